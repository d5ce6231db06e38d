//! The sources that an operator lets apps be built from.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use super::{GitUrl, url};
use crate::{app::InvalidName, network::Cidr, text::checked_text};

/// The sources that apps may be built from: by default, those on any other machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedSources {
    /// Whether local ones are allowed ([`GitUrl::is_local`]), whatever a name resolves to.
    pub local: bool,
    /// The hosts of sources; empty: any. A local one is allowed if it is named here as it is written in URLs.
    pub hosts: Vec<HostPattern>,
}

checked_text! {
    /// A host's name or address, or `*.DOMAIN` for the hosts below a domain.
    HostPattern, InvalidName, |text| {
        let name = text.strip_prefix("*.").unwrap_or(text);
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if !name.is_empty() && (name.bytes().all(valid) || name.parse::<Ipv6Addr>().is_ok()) {
            return Ok(text.trim_end_matches('.').to_ascii_lowercase());
        }
        Err(InvalidName::new("source host", text, "must be a host's name or address without a port, or *.DOMAIN"))
    }
}

/// The reason why apps may not be built from a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceRefused {
    /// The source is local.
    Local,
    /// The host is none of those that the operator has named.
    Host,
}

impl fmt::Display for SourceRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => {
                "on this machine, at a link-local address or without encryption, which is the operator's to allow"
            }
            Self::Host => "on none of the hosts that the operator allows",
        })
    }
}

impl SourceRefused {
    /// The rule that a source's URL breaks, as the end of a sentence that begins with its field.
    pub(crate) const fn rule(self) -> &'static str {
        match self {
            Self::Local => {
                "must be https:// or ssh:// to another machine; sources on this one, on link-local addresses and without \
                 encryption are the operator's to allow."
            }
            Self::Host => "must be on one of the hosts that the operator allows.",
        }
    }
}

impl AllowedSources {
    /// Every source, local ones too.
    pub fn all() -> Self {
        Self { local: true, hosts: Vec::new() }
    }

    /// Returns `Ok` if apps may be built from this URL, as far as its text says.
    ///
    /// # Errors
    /// The reason why they may not.
    pub fn check(&self, url: &GitUrl) -> Result<(), SourceRefused> {
        let named = url.host().is_some_and(|host| self.hosts.iter().any(|pattern| pattern.is(host)));
        if url.is_local() && !self.local && !(named && url.is_encrypted()) {
            return Err(SourceRefused::Local);
        }
        let below = |host: &str| self.hosts.iter().any(|pattern| pattern.matches(host));
        let bounded = !self.hosts.is_empty() && !url.host().is_none_or(below);
        if bounded { Err(SourceRefused::Host) } else { Ok(()) }
    }

    /// Returns the name whose addresses are to be checked before a connection to this URL is made; `None` if the check
    /// of its text was enough.
    pub fn name_to_resolve<'a>(&self, url: &'a GitUrl) -> Option<&'a str> {
        let host = url.host().filter(|_| !self.local)?;
        (!url::is_local_host(host) && host.parse::<IpAddr>().is_err()).then_some(host)
    }
}

impl HostPattern {
    /// Returns whether a host, without brackets and port, is one of those that the pattern names.
    pub fn covers(&self, host: &str) -> bool {
        self.matches(host)
    }

    /// Returns whether the pattern is this very host.
    fn is(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.');
        let address = |text: &str| text.parse::<IpAddr>().ok();
        self.0.eq_ignore_ascii_case(host) || address(&self.0).is_some_and(|own| address(host) == Some(own))
    }

    fn matches(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let below = |domain: &str| host.strip_suffix(domain).is_some_and(|name| name.len() > 1 && name.ends_with('.'));
        self.is(&host) || self.0.strip_prefix("*.").is_some_and(below)
    }
}

/// The networks at which clouds serve the secrets of their instances. Most services are link-local; the others are
/// listed beside those. In Azure's wire server a node finds its extensions' settings and certificates; it resolves
/// names as well, which is the business of the cluster's DNS.
pub const METADATA_NETWORKS: [Cidr; 7] = [
    // Link-local: Amazon, Google, Azure and most others.
    Cidr::of(IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    // Alibaba, Azure's wire server, Oracle.
    Cidr::of(IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)), 32),
    Cidr::of(IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)), 32),
    Cidr::of(IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)), 32),
    // Link-local; all of Amazon's services of a host; Google.
    Cidr::of(IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    Cidr::of(IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0)), 32),
    Cidr::of(IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)), 128),
];

/// Returns whether an address is this machine's, link-local, a cloud's metadata service, or no single host's. Private
/// networks are none of these.
pub fn is_local_address(address: IpAddr) -> bool {
    METADATA_NETWORKS.iter().any(|network| network.contains(address))
        || match address {
            IpAddr::V4(address) => is_local_v4(address),
            IpAddr::V6(address) => match embedded_v4(address) {
                Some(address) => is_local_address(address.into()),
                None => is_local_v6(address),
            },
        }
}

fn is_local_v4(address: Ipv4Addr) -> bool {
    // All of 0/8 is this host on some systems, not only 0.0.0.0.
    address.is_loopback() || address.octets()[0] == 0 || address.is_multicast() || address.is_broadcast()
}

fn is_local_v6(address: Ipv6Addr) -> bool {
    // The deprecated notation of IPv4 addresses holds this machine's too (RFC 4291).
    address.segments()[..6] == [0, 0, 0, 0, 0, 0] || address.is_multicast()
}

/// Returns the IPv4 address that is reached by this one (RFC 4291, RFC 6052).
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let translated = address.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
    let [.., a, b, c, d] = address.octets();
    address.to_ipv4_mapped().or(translated.then_some(Ipv4Addr::new(a, b, c, d)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(local: bool, hosts: &[&str]) -> AllowedSources {
        AllowedSources { local, hosts: hosts.iter().map(|host| host.parse().unwrap()).collect() }
    }

    #[test]
    fn sources_are_bounded_to_the_hosts_that_the_operator_names() {
        use SourceRefused::{Host, Local};
        let named = ["git.example.com", "*.corp.example", "127.0.0.1", "::1"];
        for (hosts, url, expected) in [
            (&[][..], "https://git.example.com/a.git", Ok(())),
            (&[], "https://10.0.0.1/a.git", Ok(())),
            (&[], "https://127.0.0.1/a.git", Err(Local)),
            (&[], "https://168.63.129.16/a.git", Err(Local)),
            (&[], "http://git.example.com/a.git", Err(Local)),
            (&named, "https://GIT.example.com./a.git", Ok(())),
            (&named, "ssh://git@a.b.corp.example:2222/a.git", Ok(())),
            (&named, "https://corp.example/a.git", Err(Host)),
            (&named, "https://evilcorp.example/a.git", Err(Host)),
            (&named, "https://git.example.com.evil.example/a.git", Err(Host)),
            (&named, "https://other.example.com/a.git", Err(Host)),
            (&named, "https://127.0.0.1:3000/a.git", Ok(())),
            (&named, "https://[0:0:0:0:0:0:0:1]/a.git", Ok(())),
            (&named, "http://127.0.0.1:3000/a.git", Err(Local)),
            (&named, "https://127.0.0.2/a.git", Err(Local)),
            (&named, "https://localhost/a.git", Err(Local)),
            (&named, "file:///srv/a.git", Err(Local)),
        ] {
            assert_eq!(allowed(false, hosts).check(&url.parse().unwrap()), expected, "{url} of {hosts:?}");
        }
        let local = allowed(true, &["git.example.com"]);
        assert_eq!(local.check(&"file:///srv/a.git".parse().unwrap()), Ok(()));
        assert_eq!(local.check(&"http://127.0.0.1/a.git".parse().unwrap()), Err(Host));
    }

    #[test]
    fn names_are_resolved_and_addresses_are_not() {
        let name = |local, url: &str| {
            let url = url.parse().unwrap();
            allowed(local, &[]).name_to_resolve(&url).map(str::to_owned)
        };
        assert_eq!(name(false, "ssh://git@git.example.com:22/a.git").as_deref(), Some("git.example.com"));
        for url in ["https://10.0.0.1/a.git", "https://[2001:db8::1]/a.git", "https://localhost/a.git"] {
            assert_eq!(name(false, url), None, "{url}");
        }
        assert_eq!(name(true, "https://git.example.com/a.git"), None, "the operator allows whatever it is");
    }

    #[test]
    fn addresses_of_this_machine_links_and_metadata_are_local() {
        for text in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "169.254.169.254",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "::ffff:127.0.0.1",
            "::ffff:168.63.129.16",
            "64:ff9b::a9fe:a9fe",
        ] {
            assert!(is_local_address(text.parse().unwrap()), "{text}");
        }
        for text in
            ["10.0.0.1", "192.168.1.1", "172.16.0.1", "203.0.113.7", "fd12::1", "2001:db8::1", "64:ff9b::c0a8:1"]
        {
            assert!(!is_local_address(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn host_patterns_have_no_port_and_no_other_wildcard() {
        for text in ["git.example.com", "*.example.com", "10.0.0.1", "fd12::1", "LOCALHOST"] {
            assert!(text.parse::<HostPattern>().is_ok(), "{text}");
        }
        for text in
            ["", "*", "*.", "git.*.example.com", "git.example.com:443", "https://git.example.com", "[::1]", "a b"]
        {
            assert!(text.parse::<HostPattern>().is_err(), "{text}");
        }
    }
}
