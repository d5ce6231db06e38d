//! Hosts, as image references and repository URLs spell them.

use std::net::Ipv6Addr;

/// Returns the host and the port of `HOST[:PORT]`, without the brackets of an IPv6 address.
pub(super) fn split(text: &str) -> (&str, Option<&str>) {
    if let Some((address, after)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (address, after.strip_prefix(':'));
    }
    text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)))
}

/// Returns the host of `HOST[:PORT]` if it is an IPv6 address in brackets, or a valid name.
pub(super) fn check(text: &str, is_name: impl Fn(&str) -> bool) -> Result<&str, &'static str> {
    let (host, port) = split(text);
    if port.is_some_and(|port| port.parse::<u16>().is_err() || !port.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err("the port must be a number up to 65535");
    }
    if text.starts_with('[') {
        let ends_with_address = port.is_some() || text.len() == host.len() + "[]".len();
        let valid = ends_with_address && host.parse::<Ipv6Addr>().is_ok();
        return valid.then_some(host).ok_or("the host in brackets must be an IPv6 address");
    }
    is_name(host).then_some(host).ok_or("the host must be a DNS name or an IP address")
}
