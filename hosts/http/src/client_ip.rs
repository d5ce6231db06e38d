//! The address of a call's client, behind trusted proxies.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use http::HeaderMap;

pub use rollhook_core::network::{Cidr, InvalidCidr};

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
}
