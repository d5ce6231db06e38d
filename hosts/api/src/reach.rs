//! Who can reach the URL of a webhook.

use std::net::IpAddr;

/// Returns what the people who copy the URL to CI have to know, if CI elsewhere does not reach it.
pub fn note(url: &str) -> Option<&'static str> {
    let host = host(url);
    if host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()) {
        return Some(
            "The URL is this machine's own; start the server with --base-url to have the one that others reach.",
        );
    }
    let is_service = [".svc", ".cluster.local"].iter().any(|end| host.ends_with(end));
    is_service.then_some(
        "The URL is the cluster's own, which CI outside of it does not reach; give the server an ingress or a gateway \
         (ingress.enabled or httpRoute.enabled of the chart), or the URL that leads to it (baseUrl, --base-url).",
    )
}

/// Returns the host without brackets, in lower case; empty if there is none.
fn host(url: &str) -> String {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(address) => address.split(']').next(),
        None => authority.split(':').next(),
    };
    host.unwrap_or_default().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_that_only_the_machine_or_the_cluster_reaches_is_told() {
        let told = |url: &str| note(url).unwrap_or_default();
        for url in ["http://127.0.0.1:8080", "http://localhost/x", "http://[::1]:8080/x"] {
            assert!(told(url).contains("this machine's own"), "{url}");
        }
        for url in ["http://rollhook.rollhook.svc/api", "http://r.x.svc:8080", "https://r.x.svc.cluster.local/"] {
            assert!(told(url).contains("the cluster's own"), "{url}");
        }
        for url in ["https://deploys.example.com/x", "https://svc.example.com", "http://10.0.0.1", ""] {
            assert_eq!(note(url), None, "{url}");
        }
    }
}
