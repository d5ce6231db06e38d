//! The hosts that an operator lets receivers be on.

use rollhook_core::source::HostPattern;

/// The receivers that may be told: by default, those on any other machine.
#[derive(Clone, Debug, Default)]
pub struct AllowedReceivers {
    /// Whether receivers may be on this machine, at link-local addresses and without encryption.
    pub local: bool,
    /// The hosts of receivers; empty: any.
    pub hosts: Vec<HostPattern>,
}

impl AllowedReceivers {
    /// Returns whether a URL's host is one of those that the operator has named.
    pub(crate) fn names(&self, url: &str) -> bool {
        let host = url.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
        let host = host.unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.covers(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_are_bounded_to_the_hosts_that_the_operator_names() {
        let allowed = |hosts: &[&str]| AllowedReceivers {
            local: false,
            hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
        };
        assert!(allowed(&[]).names("https://anything.example.com/"));
        let named = allowed(&["hooks.slack.com", "*.corp.example", "::1"]);
        for url in ["https://HOOKS.slack.com/x", "https://a.corp.example:8443/", "http://[::1]:80/"] {
            assert!(named.names(url), "{url}");
        }
        for url in ["https://slack.com/", "https://hooks.slack.com.evil.example/", "https://corp.example/", "x"] {
            assert!(!named.names(url), "{url}");
        }
    }
}
