//! Repository URLs.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use super::{super::host, allowed::is_local_address};
use crate::{app::InvalidName, text::checked_text};

/// The longest URL, in bytes.
pub const URL_MAX: usize = 2048;

checked_text! {
    /// A repository's URL: `https://HOST/PATH` or `ssh://[USER@]HOST/PATH`; also `http://` and `file://`, which are
    /// local ([`GitUrl::is_local`]), and `USER@HOST:PATH`, which is read as ssh.
    ///
    /// It holds no password, no query and nothing that git would read as an option or as a program to start
    /// (`ext::`, `-u…`).
    GitUrl, InvalidName, |text| check(text).map_err(|rule| InvalidName::new("source URL", &without_user(text), rule))
}

/// The protocols of repositories.
const PROTOCOLS: [&str; 4] = ["https", "http", "ssh", "file"];

impl GitUrl {
    /// The one protocol that git needs for the URL: `https`, `http`, `ssh` or `file`.
    pub fn protocol(&self) -> &'static str {
        split(&self.0).map_or("https", |(protocol, _)| protocol)
    }

    /// The host's name or address, without its port; `None` for a file.
    pub fn host(&self) -> Option<&str> {
        match split(&self.0)? {
            ("file", _) => None,
            (_, rest) => Some(host::split(without_user_info(authority(rest))).0),
        }
    }

    /// The explicit port; `None` for the protocol's default.
    pub fn port(&self) -> Option<u16> {
        match split(&self.0)? {
            ("file", _) => None,
            (_, rest) => host::split(without_user_info(authority(rest))).1?.parse().ok(),
        }
    }

    /// Returns whether the URL reaches what only the operator may let apps reach: this machine's files, this machine
    /// itself, link-local addresses and others at which clouds keep their instances' secrets, and anything without
    /// encryption.
    ///
    /// A name is judged as it is written; whoever connects checks the addresses that it resolves to
    /// ([`super::AllowedSources::name_to_resolve`]).
    pub fn is_local(&self) -> bool {
        !self.is_encrypted() || self.host().is_none_or(is_local_host)
    }

    /// Returns whether the URL is https or ssh.
    pub fn is_encrypted(&self) -> bool {
        matches!(split(&self.0), Some(("https" | "ssh", _)))
    }
}

/// Returns the protocol, and the text after `://`.
fn split(text: &str) -> Option<(&'static str, &str)> {
    let (given, rest) = text.split_once("://")?;
    PROTOCOLS.iter().find(|protocol| **protocol == given).map(|protocol| (*protocol, rest))
}

fn authority(rest: &str) -> &str {
    rest.split('/').next().unwrap_or_default()
}

/// Returns the host and the port without the user before them.
fn without_user_info(authority: &str) -> &str {
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

pub(super) fn is_local_host(host: &str) -> bool {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || name.parse().is_ok_and(is_local_address)
}

fn check(text: &str) -> Result<String, &'static str> {
    if text.is_empty() || text.len() > URL_MAX {
        return Err("must be 1 to 2048 characters");
    }
    if text.bytes().any(|byte| !(b'!'..=b'~').contains(&byte) || matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'`')) {
        return Err("must be printable ASCII without spaces and quotation marks (others percent-encoded)");
    }
    let text = match from_scp(text) {
        Some(url) => url,
        None => text.to_owned(),
    };
    let Some((protocol, rest)) = split(&text) else {
        return Err("must begin with https:// or ssh://");
    };
    if text.contains(['?', '#']) {
        return Err("must be without a query and a fragment");
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if path.is_empty() || leads_upwards(path) {
        return Err("must have a path to the repository, without .. and ;");
    }
    if protocol == "file" {
        return if authority.is_empty() { Ok(text) } else { Err("a file's URL must be file:///PATH") };
    }
    check_user(protocol, authority)?;
    check_host(authority)?;
    Ok(text)
}

/// Returns whether a path has a part `..`, as it is written or as a server decodes it: credentials are bound to paths. Some
/// servers cut a part at `;`, take a backslash for a slash, or decode twice.
fn leads_upwards(path: &str) -> bool {
    let lower = path.to_lowercase();
    if path.contains([';', '\\']) || ["%3b", "%5c", "%25"].iter().any(|code| lower.contains(code)) {
        return true;
    }
    let decoded = path.replace("%2e", ".").replace("%2E", ".").replace("%2f", "/").replace("%2F", "/");
    decoded.split('/').any(|part| part == "..")
}

/// Returns the ssh URL of `USER@HOST:PATH`, which is how git hosts print it.
fn from_scp(text: &str) -> Option<String> {
    let (place, path) = text.split_once(':')?;
    let (user, host) = place.split_once('@')?;
    let valid = !user.is_empty() && !host.is_empty() && !place.contains('/') && !path.starts_with(['/', ':']);
    valid.then(|| format!("ssh://{user}@{host}/{path}"))
}

fn check_user(protocol: &str, authority: &str) -> Result<(), &'static str> {
    let Some((user, _)) = authority.rsplit_once('@') else { return Ok(()) };
    if protocol != "ssh" || user.contains([':', '@']) {
        return Err("must hold no credentials; name those that the builder knows with credentials");
    }
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if user.is_empty() || user.starts_with('-') || !user.bytes().all(valid) {
        return Err("the user must be letters, digits, '.', '_' and '-', and not begin with a hyphen");
    }
    Ok(())
}

fn check_host(authority: &str) -> Result<(), &'static str> {
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let is_name = |name: &str| name.len() <= 254 && name.strip_suffix('.').unwrap_or(name).split('.').all(is_label);
    let host = host::check(without_user_info(authority), is_name)?;
    if host.parse::<Ipv6Addr>().is_ok() {
        return Ok(());
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    // 127.1, 0x7f000001 and 017700000001 are addresses to a resolver, but look like names.
    let last = name.rsplit('.').next().unwrap_or_default();
    let number = last.bytes().all(|byte| byte.is_ascii_digit()) || last.to_ascii_lowercase().starts_with("0x");
    if number && name.parse::<Ipv4Addr>().is_err() {
        return Err("an IPv4 address must be four decimal numbers");
    }
    Ok(())
}

/// Returns the text without its user part, so that an error does not repeat a password into a log.
fn without_user(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, rest)) => format!("…@{rest}"),
        None => text.to_owned(),
    }
}
