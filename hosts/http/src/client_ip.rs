//! The address of a call's client, behind trusted proxies.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    str::FromStr,
    sync::{Mutex, PoisonError},
};

use http::HeaderMap;

/// A network: an address and the number of its leading bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    bits: u8,
}

/// The error of a text that is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be an address, or ADDRESS/BITS such as 10.0.0.0/8")]
pub struct InvalidCidr;

impl Cidr {
    /// Returns whether the address is in the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        let differs = match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => u128::from(ours.to_bits() ^ theirs.to_bits()) << 96,
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => ours.to_bits() ^ theirs.to_bits(),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
        };
        differs.leading_zeros() >= u32::from(self.bits)
    }
}

impl FromStr for Cidr {
    type Err = InvalidCidr;

    fn from_str(text: &str) -> Result<Self, InvalidCidr> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| InvalidCidr)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| InvalidCidr)?;
        if bits <= most { Ok(Self { address, bits }) } else { Err(InvalidCidr) }
    }
}

const FORWARDED_FOR: &str = "x-forwarded-for";
/// The most peers that the log warns of.
const WARNED_MAX: usize = 20;

/// The proxies whose `X-Forwarded-For` is believed.
pub(crate) struct Proxies {
    trusted: Vec<Cidr>,
    /// The other peers that sent the header.
    warned: Mutex<BTreeSet<IpAddr>>,
}

impl Proxies {
    pub(crate) fn new(trusted: Vec<Cidr>) -> Self {
        Self { trusted, warned: Mutex::default() }
    }

    /// Returns the client's address: the peer's, or, if that is a trusted proxy, the rightmost address of
    /// `X-Forwarded-For` that is not. Anyone may have written the addresses left of it.
    pub(crate) fn client_ip(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        if !self.trusts(client) {
            if headers.contains_key(FORWARDED_FOR) && self.is_news(client) {
                tracing::warn!(
                    peer = %client,
                    "ignored X-Forwarded-For: this peer is no trusted proxy. If it is your proxy, all callers behind it \
                     share its limits until --trusted-proxy names it"
                );
            }
            return client;
        }
        for line in headers.get_all(FORWARDED_FOR).iter().rev() {
            for hop in line.to_str().unwrap_or_default().rsplit(',') {
                let Some(address) = address(hop.trim()) else { return client };
                client = address;
                if !self.trusts(client) {
                    return client;
                }
            }
        }
        client
    }

    /// Returns whether the address is a trusted proxy's.
    pub(crate) fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(address))
    }

    /// Returns whether the log has yet to warn of this peer.
    fn is_news(&self, peer: IpAddr) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        warned.len() < WARNED_MAX && warned.insert(peer)
    }
}

/// Returns a hop's address; some proxies write its port too.
fn address(hop: &str) -> Option<IpAddr> {
    let address = hop.parse().or_else(|_| hop.parse::<std::net::SocketAddr>().map(|socket| socket.ip()));
    address.ok().map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn client_ip(trusted: &[&str], peer: &str, lines: &[&'static str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("x-forwarded-for", HeaderValue::from_static(line));
        }
        let proxies = Proxies::new(trusted.iter().map(|text| text.parse().unwrap()).collect());
        proxies.client_ip(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn only_a_trusted_proxy_is_believed() {
        assert_eq!(client_ip(&[], "10.0.0.1", &["1.2.3.4"]), "10.0.0.1");
        assert_eq!(client_ip(&["10.0.0.0/8"], "11.0.0.1", &["1.2.3.4"]), "11.0.0.1");
        assert_eq!(client_ip(&["10.0.0.0/8"], "10.0.0.1", &["1.2.3.4"]), "1.2.3.4");
        assert_eq!(client_ip(&["10.0.0.0/8"], "::ffff:10.0.0.1", &["1.2.3.4"]), "1.2.3.4");
        assert_eq!(client_ip(&["10.0.0.0/8"], "10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn the_rightmost_untrusted_hop_counts() {
        let proxies = ["10.0.0.0/8", "2001:db8::/32"];
        assert_eq!(client_ip(&proxies, "10.0.0.1", &["6.6.6.6, 1.2.3.4, 10.0.0.2"]), "1.2.3.4");
        assert_eq!(client_ip(&proxies, "10.0.0.1", &["6.6.6.6", "1.2.3.4", "10.0.0.2"]), "1.2.3.4");
        assert_eq!(client_ip(&proxies, "10.0.0.1", &["1.2.3.4:567"]), "1.2.3.4");
        assert_eq!(client_ip(&proxies, "2001:db8::1", &["2003::1"]), "2003::1");
        assert_eq!(client_ip(&proxies, "10.0.0.1", &["1.2.3.4, unknown, 10.0.0.2"]), "10.0.0.2");
        assert_eq!(client_ip(&proxies, "10.0.0.1", &["10.0.0.3, 10.0.0.2"]), "10.0.0.3");
    }

    #[test]
    fn each_peer_is_warned_of_once_and_few_peers_are() {
        let proxies = Proxies::new(Vec::new());
        let peer = |last: u8| IpAddr::from([10, 0, 0, last]);
        assert!(proxies.is_news(peer(1)) && !proxies.is_news(peer(1)) && proxies.is_news(peer(2)));
        assert_eq!((0..=255).filter(|last| proxies.is_news(peer(*last))).count(), WARNED_MAX - 2);
    }

    #[test]
    fn networks_are_read_strictly() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/", "10.0.0.0/8/8", "host"] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
        assert!("0.0.0.0/0".parse::<Cidr>().unwrap().contains("1.2.3.4".parse().unwrap()));
        assert!(!"1.2.3.4".parse::<Cidr>().unwrap().contains("1.2.3.5".parse().unwrap()));
        assert!(!"0.0.0.0/0".parse::<Cidr>().unwrap().contains("::1".parse().unwrap()));
    }
}
