//! The builder that builds in the cluster, from what an operator says of it.

use std::path::PathBuf;

/// Which builds in the cluster a host wants; none of a part: its default. See `rollhook_kubernetes::builds::Settings`.
#[derive(Clone, Debug, Default)]
pub struct ClusterBuilds {
    /// The builder's image, by digest.
    pub image: String,
    /// The namespace of builds.
    pub namespace: Option<String>,
    /// How many builds run at once in the cluster.
    pub slots: Option<u16>,
    /// How much of the processors a build may use.
    pub cpu: Option<String>,
    /// How much memory a build may use.
    pub memory: Option<String>,
    /// `auto`, `userns`, `rootless` or `privileged`.
    pub profile: Option<String>,
    /// The file with the credentials that images are pushed with.
    pub registry_config: Option<PathBuf>,
    /// Registries without encryption, or with a certificate that nobody vouches for.
    pub insecure_registries: Vec<String>,
}

#[cfg(feature = "kubernetes")]
pub(crate) use with_kubernetes::open;

#[cfg(feature = "kubernetes")]
mod with_kubernetes {
    use std::{num::NonZeroU16, sync::Arc};

    use rollhook_core::{app::InvalidName, image::ImageRef, ports::BuildTrigger};
    use rollhook_kubernetes::builds::{KubernetesBuilds, NAMESPACE, Profile, Settings};

    use super::ClusterBuilds;
    use crate::{BuilderSettings, Error};

    /// Opens it; nothing is sent to the cluster yet.
    pub(crate) async fn open(wanted: &ClusterBuilds, shared: &BuilderSettings) -> Result<Arc<dyn BuildTrigger>, Error> {
        let settings = settings(wanted, shared).map_err(|invalid| Error::backend("builder")(invalid.into()))?;
        if settings.profile == Some(Profile::Privileged) {
            tracing::warn!(
                "BUILDS ARE PRIVILEGED: whoever can change a Dockerfile of an app is root on the nodes that build it. \
                 Use --build-profile auto where the cluster allows it."
            );
        }
        let builds = KubernetesBuilds::connect(settings).await;
        Ok(Arc::new(builds.map_err(|error| Error::backend("builder")(error.into()))?))
    }

    fn settings(wanted: &ClusterBuilds, shared: &BuilderSettings) -> Result<Settings, InvalidName> {
        let namespace = wanted.namespace.as_deref().unwrap_or(NAMESPACE).parse()?;
        let mut settings = Settings::new(wanted.image.parse()?, namespace);
        if let Some(slots) = wanted.slots {
            settings.places = NonZeroU16::new(slots).ok_or_else(|| InvalidName {
                what: "number of builds at once",
                given: slots.to_string(),
                rule: "must be at least 1",
            })?;
        }
        if let Some(cpu) = &wanted.cpu {
            settings.cpu = cpu.parse()?;
        }
        if let Some(memory) = &wanted.memory {
            settings.memory = memory.parse()?;
        }
        settings.profile = wanted.profile.as_deref().map_or(Ok(None), profile)?;
        settings.insecure_registries =
            wanted.insecure_registries.iter().map(|text| registry(text)).collect::<Result<_, _>>()?;
        settings.credentials = shared.credentials.clone();
        settings.registry_config = wanted.registry_config.clone();
        settings.local_sources = shared.local_sources;
        Ok(settings)
    }

    fn profile(text: &str) -> Result<Option<Profile>, InvalidName> {
        let profiles = [Profile::UserNamespace, Profile::Rootless, Profile::Privileged];
        match profiles.into_iter().find(|profile| profile.as_str() == text) {
            None if text != "auto" => {
                let rule = "must be auto, userns, rootless or privileged";
                Err(InvalidName { what: "build profile", given: text.chars().take(32).collect(), rule })
            }
            profile => Ok(profile),
        }
    }

    /// The host and port of a registry, as image references have them.
    fn registry(text: &str) -> Result<String, InvalidName> {
        // What comes first in an image reference, and is a host there: `[::1]:5000` is one, `registry` is none.
        let image = format!("{text}/image");
        if !text.contains('/') && image.parse::<ImageRef>().is_ok_and(|parsed| parsed.canonical_repository() == image) {
            return Ok(text.to_owned());
        }
        let given = text.chars().take(255).collect();
        Err(InvalidName { what: "registry", given, rule: "must be HOST or HOST:PORT" })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn wanted() -> ClusterBuilds {
            let image = format!("registry.example.com/builder@sha256:{}", "a".repeat(64));
            ClusterBuilds { image, ..ClusterBuilds::default() }
        }

        #[test]
        fn what_is_not_said_is_the_default() {
            let made = settings(&wanted(), &BuilderSettings::default()).unwrap();
            assert_eq!((made.namespace.as_str(), made.places.get(), made.profile), (NAMESPACE, 2, None));
        }

        #[test]
        fn what_is_wrong_is_told() {
            for (wrong, told) in [
                (ClusterBuilds { image: "builder:v1".to_owned(), ..wanted() }, "digest"),
                (ClusterBuilds { namespace: Some("A".to_owned()), ..wanted() }, "namespace"),
                (ClusterBuilds { slots: Some(0), ..wanted() }, "at least 1"),
                (ClusterBuilds { cpu: Some("two".to_owned()), ..wanted() }, "amount"),
                (ClusterBuilds { memory: Some("4GB".to_owned()), ..wanted() }, "amount"),
                (ClusterBuilds { profile: Some("root".to_owned()), ..wanted() }, "privileged"),
                (ClusterBuilds { insecure_registries: vec!["http://x".to_owned()], ..wanted() }, "HOST:PORT"),
            ] {
                let invalid = settings(&wrong, &BuilderSettings::default()).unwrap_err().to_string();
                assert!(invalid.contains(told), "{invalid}");
            }
        }

        #[test]
        fn registries_are_those_of_image_references() {
            for text in
                ["r.example.com", "r.example.com:5000", "10.0.0.1:5000", "localhost:5000", "[::1]:5000", "[fd00::1]"]
            {
                assert_eq!(registry(text).unwrap(), text);
            }
            for text in
                ["", "r.example.com/shop", "::1", "[::1", "]:[", "r.example.com:x", "registry", "a\"b.example.com"]
            {
                assert!(registry(text).is_err(), "{text}");
            }
        }

        #[test]
        fn profiles_are_named() {
            for (text, made) in
                [("auto", None), ("rootless", Some(Profile::Rootless)), ("privileged", Some(Profile::Privileged))]
            {
                let wanted = ClusterBuilds { profile: Some(text.to_owned()), ..wanted() };
                assert_eq!(settings(&wanted, &BuilderSettings::default()).unwrap().profile, made);
            }
        }
    }
}

/// Opens it.
#[cfg(not(feature = "kubernetes"))]
pub(crate) async fn open(
    _: &ClusterBuilds,
    _: &crate::BuilderSettings,
) -> Result<std::sync::Arc<dyn rollhook_core::ports::BuildTrigger>, crate::Error> {
    Err(crate::Error::NotBuilt("kubernetes builder"))
}
