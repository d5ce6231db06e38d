//! The hosts that an operator lets receivers be on.

use rollhook_core::source::HostPattern;
use rollhook_https::covers;
use rollhook_management::notifications::Destination;

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
        self.hosts.is_empty() || self.lists(&host(url))
    }

    /// Returns whether the answers of a host are for people to read: hosts that the operator has named, and the public
    /// services. Another may be an internal one, whose answers are not for everybody who may add a receiver.
    pub(crate) fn may_be_repeated(&self, host: &str) -> bool {
        let services = [Destination::SLACK_API, Destination::GITHUB_API, Destination::GITLAB_API];
        self.lists(host) || services.iter().any(|service| self::host(service).eq_ignore_ascii_case(host))
    }

    fn lists(&self, host: &str) -> bool {
        covers(&self.hosts, host)
    }
}

/// Returns the host of a URL.
fn host(url: &str) -> String {
    url.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_default()
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

    #[test]
    fn answers_are_repeated_of_public_services_and_of_hosts_that_the_operator_names() {
        let any = AllowedReceivers::default();
        let named = AllowedReceivers { local: true, hosts: vec!["*.corp.example".parse().unwrap()] };
        for host in ["slack.com", "api.github.com", "GitLab.com"] {
            assert!(any.may_be_repeated(host) && named.may_be_repeated(host), "{host}");
        }
        assert!(named.may_be_repeated("git.corp.example") && !any.may_be_repeated("git.corp.example"));
        for host in ["10.0.0.1", "127.0.0.1", "[::1]", "evil.slack.com", ""] {
            assert!(!any.may_be_repeated(host) && !named.may_be_repeated(host), "{host}");
        }
    }
}
