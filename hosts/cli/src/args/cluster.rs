//! The words for builds in the cluster, the same as the server's.

use std::path::PathBuf;

use clap::Args;
use rollhook_wiring::ClusterBuilds;

/// Builds in the cluster.
#[derive(Clone, Debug, Args)]
pub(crate) struct InCluster {
    /// Without a server: the builder's image, REPOSITORY@sha256:…: each build is a Job in the cluster that runs it
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        env = "ROLLHOOK_BUILD_IMAGE",
        hide_env_values = true,
        value_name = "IMAGE"
    )]
    pub(crate) build_image: Option<String>,

    /// Without a server: the namespace of the builds' Jobs; default: rollhook-builds
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        env = "ROLLHOOK_BUILD_NAMESPACE",
        hide_env_values = true,
        value_name = "NAMESPACE"
    )]
    pub(crate) build_namespace: Option<String>,

    /// Without a server: how many builds run at once in the whole cluster; default: 2
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        env = "ROLLHOOK_BUILD_SLOTS",
        hide_env_values = true,
        value_name = "N"
    )]
    pub(crate) build_slots: Option<u16>,

    /// Without a server: how much of the processors a build may use; default: 2
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        env = "ROLLHOOK_BUILD_CPU",
        hide_env_values = true,
        value_name = "AMOUNT"
    )]
    pub(crate) build_cpu: Option<String>,

    /// Without a server: how much memory a build may use; default: 4Gi
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        env = "ROLLHOOK_BUILD_MEMORY",
        hide_env_values = true,
        value_name = "AMOUNT"
    )]
    pub(crate) build_memory: Option<String>,

    /// Without a server: what confines a build: auto, userns, rootless or privileged; default: auto
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        env = "ROLLHOOK_BUILD_PROFILE",
        hide_env_values = true,
        value_name = "PROFILE"
    )]
    pub(crate) build_profile: Option<String>,

    /// Without a server: docker's config.json with the credentials that images are pushed with
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        env = "ROLLHOOK_BUILD_REGISTRY_CONFIG",
        hide_env_values = true,
        value_name = "FILE"
    )]
    pub(crate) build_registry_config: Option<PathBuf>,

    /// Without a server: a registry (HOST or HOST:PORT) without encryption or with a certificate that nobody vouches for
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        env = "ROLLHOOK_BUILD_INSECURE_REGISTRY",
        hide_env_values = true,
        value_name = "REGISTRY",
        value_delimiter = ','
    )]
    pub(crate) build_insecure_registry: Vec<String>,
}

impl InCluster {
    /// What is wanted of builds in the cluster; none where they are not.
    ///
    /// # Errors
    /// A sentence, where something is said of them and not by which image they are made.
    pub(crate) fn wanted(&self) -> Result<Option<ClusterBuilds>, &'static str> {
        let Self { build_image, build_namespace, build_slots, build_cpu, build_memory, build_profile, .. } = self;
        let texts = [build_namespace, build_cpu, build_memory, build_profile];
        let further = texts.into_iter().any(Option::is_some)
            || build_slots.is_some()
            || self.build_registry_config.is_some()
            || !self.build_insecure_registry.is_empty();
        let Some(image) = build_image.clone() else {
            return if further {
                Err("is what all else that is said of builds in the cluster needs")
            } else {
                Ok(None)
            };
        };
        Ok(Some(ClusterBuilds {
            image,
            namespace: build_namespace.clone(),
            slots: *build_slots,
            cpu: build_cpu.clone(),
            memory: build_memory.clone(),
            profile: build_profile.clone(),
            registry_config: self.build_registry_config.clone(),
            insecure_registries: self.build_insecure_registry.clone(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        cluster: InCluster,
    }

    fn wanted(words: &[&str]) -> Result<Option<ClusterBuilds>, &'static str> {
        Words::parse_from(["rollhook"].iter().chain(words)).cluster.wanted()
    }

    #[test]
    fn an_image_is_what_makes_builds_in_the_cluster() {
        assert!(wanted(&[]).unwrap().is_none());
        for words in [["--build-slots", "3"], ["--build-profile", "auto"], ["--build-insecure-registry", "r:5000"]] {
            assert!(wanted(&words).is_err(), "{words:?}");
            let made = wanted(&[&words[..], &["--build-image", "builder"]].concat()).unwrap().unwrap();
            assert_eq!(made.image, "builder");
        }
    }
}
