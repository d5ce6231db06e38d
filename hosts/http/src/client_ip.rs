//! The address of a call's client, behind trusted proxies.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use http::HeaderMap;
use prometheus_client::metrics::counter::Counter;

pub use rollhook_core::network::{Cidr, InvalidCidr};

const FORWARDED_FOR: &str = "x-forwarded-for";
/// The most peers that the log warns of: as many near ones as far ones, so that strangers hide no proxy.
const WARNED_MAX: usize = 20;

/// The proxies whose `X-Forwarded-For` is believed.
pub(crate) struct Proxies {
    trusted: Vec<Cidr>,
    /// The number of calls of other peers with the header.
    ignored: Counter,
    /// The other peers that sent it.
    warned: Mutex<BTreeSet<IpAddr>>,
}

impl Proxies {
    pub(crate) fn new(trusted: Vec<Cidr>, ignored: Counter) -> Self {
        Self { trusted, ignored, warned: Mutex::default() }
    }

    /// Returns the client's address: the peer's, or, if that is a trusted proxy, the rightmost address of
    /// `X-Forwarded-For` that is not. Anyone may have written the addresses left of it.
    pub(crate) fn client_ip(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        if !self.trusts(client) {
            if headers.contains_key(FORWARDED_FOR) {
                self.ignore(client);
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

    /// Counts a call whose header is ignored, and warns of its peer once.
    fn ignore(&self, peer: IpAddr) {
        self.ignored.inc();
        if self.is_news(peer) {
            tracing::warn!(
                %peer,
                "ignored X-Forwarded-For: this peer is no trusted proxy. If it is your proxy, all callers behind it \
                 share its limits until --trusted-proxy names it"
            );
        }
    }

    /// Returns a sentence for operators if a peer that may be their proxy is not trusted; `None` if there is none.
    /// Proxies are near: strangers of the Internet, who may send the header too, are left out.
    pub(crate) fn notice(&self) -> Option<String> {
        let warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let near: Vec<String> = warned.iter().filter(|peer| is_private(**peer)).map(ToString::to_string).collect();
        (!near.is_empty()).then(|| {
            let near = near.join(", ");
            format!(
                "Calls that a proxy passed on come from {near}, which no --trusted-proxy names: all callers behind it \
                 share its limits, and count as one."
            )
        })
    }

    /// Returns whether the log has yet to warn of this peer.
    fn is_news(&self, peer: IpAddr) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let alike = warned.iter().filter(|other| is_private(**other) == is_private(peer)).count();
        alike < WARNED_MAX && warned.insert(peer)
    }
}

/// Returns whether an address is of this machine or a private network.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback() || address.is_private() || is_shared(address.octets()),
        IpAddr::V6(address) => address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local(),
    }
}

/// Returns whether an address is of 100.64.0.0/10, which clouds use for nodes and pods.
fn is_shared(octets: [u8; 4]) -> bool {
    octets[0] == 100 && octets[1] & 0xc0 == 64
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
        let trusted = trusted.iter().map(|text| text.parse().unwrap()).collect();
        let proxies = Proxies::new(trusted, Counter::default());
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
        let proxies = Proxies::new(Vec::new(), Counter::default());
        let peer = |last: u8| IpAddr::from([10, 0, 0, last]);
        assert!(proxies.is_news(peer(1)) && !proxies.is_news(peer(1)) && proxies.is_news(peer(2)));
        assert_eq!((0..=255).filter(|last| proxies.is_news(peer(*last))).count(), WARNED_MAX - 2);
    }

    #[test]
    fn operators_learn_of_a_near_proxy_that_is_not_trusted_and_of_no_stranger() {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", HeaderValue::from_static("1.2.3.4"));
        let proxies = Proxies::new(vec!["10.0.0.1/32".parse().unwrap()], Counter::default());
        for peer in ["10.0.0.1", "203.0.113.7", "2001:db8::1"] {
            proxies.client_ip(peer.parse().unwrap(), &headers);
        }
        assert_eq!(proxies.notice(), None);
        proxies.client_ip("10.0.0.9".parse().unwrap(), &HeaderMap::new());
        assert_eq!(proxies.notice(), None, "a call without the header comes from no proxy");
        for peer in ["10.0.0.2", "100.64.1.1", "fd00::2"] {
            proxies.client_ip(peer.parse().unwrap(), &headers);
        }
        let notice = proxies.notice().unwrap();
        assert!(notice.contains("10.0.0.2, 100.64.1.1, fd00::2"), "{notice}");
        assert_eq!(proxies.ignored.get(), 5);
    }
}
