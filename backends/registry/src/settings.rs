//! What an operator says of registries.

use std::sync::Arc;

use rollhook_core::source::HostPattern;
use rollhook_https::covers;
use rollhook_registry_logins::{LoginFiles, PlatformLogins};

/// The registries that may be called, and their logins: by default, all on other machines, with encryption, and with the
/// logins of the user that this process runs as.
#[derive(Clone, Debug, Default)]
pub struct RegistrySettings {
    /// The files of logins.
    pub logins: LoginFiles,
    /// The logins with which the platform of the apps pulls images: they are used where the files have none.
    pub platform: Option<Arc<dyn PlatformLogins>>,
    /// The hosts of registries; empty: any.
    pub hosts: Vec<HostPattern>,
    /// The hosts that are called without encryption, also if they are on this machine or at a link-local address. They are
    /// allowed without being among `hosts`.
    pub insecure: Vec<HostPattern>,
}

impl RegistrySettings {
    /// Returns whether registries may be on this host.
    pub(crate) fn allow(&self, host: &str) -> bool {
        self.hosts.is_empty() || covers(&self.hosts, host) || self.is_insecure(host)
    }

    /// Returns whether a host is called without encryption.
    pub(crate) fn is_insecure(&self, host: &str) -> bool {
        covers(&self.insecure, host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_are_those_that_the_operator_names() {
        let patterns = |hosts: &[&str]| hosts.iter().map(|host| host.parse().unwrap()).collect();
        let any = RegistrySettings::default();
        assert!(any.allow("registry.example.com") && !any.is_insecure("localhost"));
        let named = RegistrySettings {
            hosts: patterns(&["*.example.com"]),
            insecure: patterns(&["127.0.0.1", "::1"]),
            ..RegistrySettings::default()
        };
        for (host, allowed, insecure) in [
            ("registry.example.com", true, false),
            ("127.0.0.1", true, true),
            ("[::1]", true, true),
            ("evil.example", false, false),
        ] {
            assert_eq!((named.allow(host), named.is_insecure(host)), (allowed, insecure), "{host}");
        }
    }
}
