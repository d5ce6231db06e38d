//! Opens the reader of registries.

use std::{path::PathBuf, sync::Arc};

use rollhook_core::source::HostPattern;
use rollhook_registry::{HttpRegistry, LoginFiles, PlatformLogins};
use rollhook_signatures::SignatureVerifier;

use crate::{DriverUrl, Error};

/// Which registries a host reads images at, and with which logins.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(next_help_heading = "Registries of images"))]
pub struct RegistrySettings {
    /// Docker's config.json with the logins that images are read with; or a directory with a NAMESPACE.json of those that
    /// only one namespace may use, and a HOST.json of those of a registry. On Kubernetes, the pull secrets of the apps' own
    /// workloads are used where it has none [default: $DOCKER_CONFIG, or ~/.docker]
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_REGISTRY_CONFIG", value_name = "PATH"))]
    pub registry_config: Option<PathBuf>,
    /// Host that registries may be on: its name or address, or *.DOMAIN; may be repeated [default: any other machine]
    #[cfg_attr(
        feature = "clap",
        arg(long, env = "ROLLHOOK_REGISTRY_HOST", value_name = "PATTERN", value_delimiter = ',')
    )]
    pub registry_host: Vec<HostPattern>,
    /// Host of registries that are called without encryption, also on this machine; may be repeated [default with --driver
    /// docker: localhost and 127.0.0.1, as the engine calls them]
    #[cfg_attr(
        feature = "clap",
        arg(long, env = "ROLLHOOK_INSECURE_REGISTRY", value_name = "PATTERN", value_delimiter = ',')
    )]
    pub insecure_registry: Vec<HostPattern>,
    /// Trust root of Sigstore (trusted_root.json) with those who vouch for the identities of signers [default: the public instance,
    /// as it was known when this program was built]
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_SIGNATURE_ROOT", value_name = "FILE"))]
    pub signature_root: Option<PathBuf>,
}

/// Returns the reader of registries for what this driver rolls out, with the logins by which its platform pulls images.
pub fn registry(
    settings: &RegistrySettings,
    driver: &DriverUrl,
    platform: Option<Arc<dyn PlatformLogins>>,
) -> Arc<HttpRegistry> {
    Arc::new(HttpRegistry::new(rollhook_registry::RegistrySettings {
        logins: settings.registry_config.clone().map_or(LoginFiles::OfUser, LoginFiles::At),
        platform,
        hosts: settings.registry_host.clone(),
        insecure: insecure(settings, driver),
    }))
}

/// Returns the verifier of signatures at the registries of this reader.
///
/// # Errors
/// [`Error::Usage`] if the trust root cannot be read.
pub fn image_verifier(settings: &RegistrySettings, registry: Arc<HttpRegistry>) -> Result<SignatureVerifier, Error> {
    let Some(path) = &settings.signature_root else {
        return SignatureVerifier::new(registry, None)
            .map_err(|why| Error::Usage(format!("the embedded trust root of signatures {why}")));
    };
    let unusable = |why: String| Error::Usage(format!("--signature-root: {} {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| unusable(format!("cannot be read: {error}")))?;
    SignatureVerifier::new(registry, Some(&text)).map_err(unusable)
}

fn insecure(settings: &RegistrySettings, driver: &DriverUrl) -> Vec<HostPattern> {
    if !settings.insecure_registry.is_empty() || *driver != DriverUrl::Docker {
        return settings.insecure_registry.clone();
    }
    ["localhost", "127.0.0.1"].iter().filter_map(|host| host.parse().ok()).collect()
}

impl RegistrySettings {
    /// Returns the file or directory of logins, if it is named and does not exist.
    pub fn missing(&self) -> Option<&PathBuf> {
        self.registry_config.as_ref().filter(|place| !place.exists())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_called_where_its_engine_calls_it_unless_the_operator_says_otherwise() {
        let named = |hosts: &[&str]| RegistrySettings {
            insecure_registry: hosts.iter().map(|host| host.parse().unwrap()).collect(),
            ..RegistrySettings::default()
        };
        let hosts = |settings: &RegistrySettings, driver| {
            insecure(settings, &driver).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(hosts(&named(&[]), DriverUrl::Docker), ["localhost", "127.0.0.1"]);
        assert_eq!(hosts(&named(&["10.0.0.7"]), DriverUrl::Docker), ["10.0.0.7"]);
        assert!(hosts(&named(&[]), DriverUrl::Kubernetes).is_empty());
        assert!(hosts(&named(&[]), DriverUrl::default()).is_empty());
    }
}
