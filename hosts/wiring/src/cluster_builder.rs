//! The builder in the cluster, from an operator's settings.

use std::sync::Arc;

use rollhook_core::{app::InvalidName, image::ImageRef, ports::BuildTrigger};
use rollhook_kubernetes::builds::{KubernetesBuilds, NAMESPACE, Profile, Settings};

use crate::{BuilderSettings, Error};

/// Opens the builder of this image; nothing is sent to the cluster yet.
pub(crate) async fn open(image: &str, given: &BuilderSettings) -> Result<Arc<dyn BuildTrigger>, Error> {
    let fail = Error::backend("builder");
    let settings = settings(image, given).map_err(|invalid| fail(invalid.into()))?;
    if settings.profile == Some(Profile::Privileged) {
        tracing::warn!(
            "BUILDS ARE PRIVILEGED: anyone who can change the Dockerfile of an app is root on the nodes that build it. \
             Use --build-profile auto where the cluster allows it."
        );
    }
    Ok(Arc::new(KubernetesBuilds::connect(settings).await.map_err(|error| fail(error.into()))?))
}

fn settings(image: &str, given: &BuilderSettings) -> Result<Settings, InvalidName> {
    let cluster = &given.cluster;
    let namespace = cluster.build_namespace.as_deref().unwrap_or(NAMESPACE).parse()?;
    let default = Settings::new(image.parse()?, namespace);
    Ok(Settings {
        slots: given.build_slots.unwrap_or(default.slots),
        cpu: given.build_cpu.as_deref().map_or(Ok(default.cpu), str::parse)?,
        memory: given.build_memory.as_deref().map_or(Ok(default.memory), str::parse)?,
        profile: cluster.build_profile.as_deref().map_or(Ok(None), profile)?,
        insecure_registries: cluster
            .build_insecure_registry
            .iter()
            .map(|text| registry(text))
            .collect::<Result<_, _>>()?,
        credentials: given.build_credentials.clone(),
        registry_config: cluster.build_registry_config.clone(),
        sources: given.sources(),
        ..default
    })
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

/// Returns the host and port of a registry, as image references have them.
fn registry(text: &str) -> Result<String, InvalidName> {
    // The first part of an image reference, if it is a host there: `[::1]:5000` is one, `registry` is none.
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
    use crate::ClusterSettings;

    fn read(cluster: ClusterSettings) -> Result<Settings, InvalidName> {
        let image = format!("registry.example.com/builder@sha256:{}", "a".repeat(64));
        settings(&image, &BuilderSettings { cluster, ..BuilderSettings::default() })
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn an_absent_setting_is_the_default() {
        let made = read(ClusterSettings::default()).unwrap();
        assert_eq!((made.namespace.as_str(), made.slots.get(), made.profile), (NAMESPACE, 2, None));
    }

    #[test]
    fn invalid_settings_are_refused_by_name() {
        let none = ClusterSettings::default;
        for (wrong, told) in [
            (ClusterSettings { build_namespace: some("A"), ..none() }, "namespace"),
            (ClusterSettings { build_profile: some("root"), ..none() }, "privileged"),
            (ClusterSettings { build_insecure_registry: vec!["http://x".to_owned()], ..none() }, "HOST:PORT"),
        ] {
            let invalid = read(wrong).unwrap_err().to_string();
            assert!(invalid.contains(told), "{invalid}");
        }
        let none = BuilderSettings::default;
        for wrong in [
            BuilderSettings { build_cpu: some("two"), ..none() },
            BuilderSettings { build_memory: some("4GB"), ..none() },
        ] {
            let image = format!("registry.example.com/builder@sha256:{}", "a".repeat(64));
            assert!(settings(&image, &wrong).unwrap_err().to_string().contains("amount"));
        }
        assert!(settings("builder:v1", &BuilderSettings::default()).unwrap_err().to_string().contains("digest"));
    }

    #[test]
    fn registries_are_those_of_image_references() {
        for text in
            ["r.example.com", "r.example.com:5000", "10.0.0.1:5000", "localhost:5000", "[::1]:5000", "[fd00::1]"]
        {
            assert_eq!(registry(text).unwrap(), text);
        }
        for text in ["", "r.example.com/shop", "::1", "[::1", "]:[", "r.example.com:x", "registry", "a\"b.example.com"]
        {
            assert!(registry(text).is_err(), "{text}");
        }
    }

    #[test]
    fn profiles_are_named() {
        for (text, made) in
            [("auto", None), ("rootless", Some(Profile::Rootless)), ("privileged", Some(Profile::Privileged))]
        {
            let given = ClusterSettings { build_profile: some(text), ..ClusterSettings::default() };
            assert_eq!(read(given).unwrap().profile, made);
        }
    }
}
