//! The settings of the backends. With the feature `clap` each is a flag and an environment variable, the same for every
//! host.

use std::{num::NonZeroU16, path::PathBuf, time::Duration};

use rollhook_command::DiskLimits;
use rollhook_core::source::{AllowedSources, HostPattern};

use crate::{DriverUrl, Error, RegistrySettings, StoreUrl, paths};

/// Which backends a host opens.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct Settings {
    /// The store and its keys.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub store: StoreSettings,
    /// The rollout driver: kubernetes; docker, the containers of this machine; or, to try things out, simulated (the
    /// server's default) or simulated:DELAY, which deploy nowhere
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_DRIVER", value_name = "DRIVER"))]
    pub driver: Option<DriverUrl>,
    /// How many versions of each app keep their images on this machine, with the driver docker; older ones that rollhook
    /// built or pulled are removed; 0: none is removed [default: 10]
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_KEEP_IMAGES", value_name = "N"))]
    pub keep_images: Option<u16>,
    /// How much free space is little, such as 5g, on the disk of images or of the store: the server warns below that, and
    /// below a quarter of it, with the driver docker, no image is pulled or built; 0: neither [default: a tenth of the
    /// disk, 5g at most]
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_LOW_DISK", value_name = "AMOUNT"))]
    pub low_disk: Option<DiskLimits>,
    /// Let issuers of id_tokens be on this machine, at link-local addresses, and without encryption
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_ALLOW_LOCAL_ISSUERS"))]
    pub allow_local_issuers: bool,
    /// The receivers of notifications.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub receivers: ReceiverSettings,
    /// The registries that images are looked up at.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub registries: RegistrySettings,
    /// The builder of git apps.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub builder: BuilderSettings,
    /// How long a cluster that keeps the store, and does not answer, is waited for.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub patience: Duration,
}

/// Which store a host opens, and the keys that it seals with.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct StoreSettings {
    /// memory, sqlite:FILE, postgres://USER@HOST/DATABASE or kubernetes [the server's default: sqlite in the data
    /// directory]
    // Text until it is used: clap repeats a value that it cannot parse, and a store's URL may hold a password.
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_STORE", value_name = "STORE", hide_env_values = true))]
    pub store: Option<String>,
    /// Directory of the keys that tokens are sealed with [default: keys in the data directory]
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_KEY_DIR", value_name = "DIR"))]
    pub key_dir: Option<PathBuf>,
}

/// Which receivers of notifications may be told.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct ReceiverSettings {
    /// Let receivers of notifications, and what checks of apps call, be on this machine, at link-local addresses, and without
    /// encryption
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_ALLOW_LOCAL_RECEIVERS"))]
    pub allow_local_receivers: bool,
    /// Host that receivers of notifications, and what checks of apps call, may be on: its name or address, or *.DOMAIN; may be
    /// repeated [default: any other machine]
    #[cfg_attr(
        feature = "clap",
        arg(long, env = "ROLLHOOK_RECEIVER_HOST", value_name = "PATTERN", value_delimiter = ',')
    )]
    pub receiver_host: Vec<HostPattern>,
}

/// Which builder a host opens.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(next_help_heading = "Git apps"))]
pub struct BuilderSettings {
    /// Program on this machine that builds a commit and pushes the image; its last line is REPOSITORY@sha256:… [default
    /// with --driver docker: Docker builds, and keeps the image]
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_BUILD_COMMAND", value_name = "PROGRAM"))]
    pub build_command: Option<PathBuf>,
    /// User on this machine that the build command runs as; it must not be root [default: the user of this process]
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_BUILD_USER", value_name = "USER"))]
    pub build_user: Option<String>,
    /// Directory of builds and their logs, which survives restarts [default: builds in the data directory; with
    /// --build-user /var/lib/rollhook-builds]
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_BUILD_DIR", value_name = "DIR"))]
    pub build_dir: Option<PathBuf>,
    /// Directory of the credentials that apps name: files with https://USER:PASSWORD@HOST/PATH, or an ssh key beside a
    /// file NAME.url with ssh://USER@HOST/PATH; and of known_hosts, the hosts that ssh may talk to
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_BUILD_CREDENTIALS", value_name = "DIR"))]
    pub build_credentials: Option<PathBuf>,
    /// Let apps be built from this machine's files and addresses, from link-local ones, and over plain http
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_ALLOW_LOCAL_SOURCES"))]
    pub allow_local_sources: bool,
    /// Host that apps may be built from: its name or address, or *.DOMAIN; may be repeated [default: any other machine]
    #[cfg_attr(
        feature = "clap",
        arg(long, env = "ROLLHOOK_SOURCE_HOST", value_name = "PATTERN", value_delimiter = ',')
    )]
    pub source_host: Vec<HostPattern>,
    /// How many builds run at once in the whole cluster, or by Docker on this machine; others wait [default: 2]
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_BUILD_SLOTS", value_name = "N"))]
    pub build_slots: Option<NonZeroU16>,
    /// How much of the processors a build may use, such as 2 or 500m; with Docker, Dockerfiles that need BuildKit are
    /// refused then [default: 2 in the cluster; with Docker all, after the containers that serve]
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_BUILD_CPU", value_name = "AMOUNT"))]
    pub build_cpu: Option<String>,
    /// How much memory a build may use, such as 4Gi; in the cluster it is reserved for it, and with Docker, Dockerfiles
    /// that need BuildKit are refused then [default: 4Gi in the cluster; with Docker half of the machine's, divided by
    /// the slots]
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_BUILD_MEMORY", value_name = "AMOUNT"))]
    pub build_memory: Option<String>,
    /// Builds in the cluster, in place of a program.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub cluster: ClusterSettings,
}

/// Builds in the cluster: none without an image; what else is absent has the Kubernetes backend's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(next_help_heading = "Git apps built in the cluster"))]
pub struct ClusterSettings {
    /// Builder's image, REPOSITORY@sha256:…: each build is a Job that runs it, in place of --build-command
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_BUILD_IMAGE", value_name = "IMAGE"))]
    pub build_image: Option<String>,
    /// Namespace of the builds' Jobs, which holds nothing else [default: rollhook-builds]
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_BUILD_NAMESPACE", value_name = "NAMESPACE"))]
    pub build_namespace: Option<String>,
    /// The confinement of builds: auto (userns where every node has user namespaces, else rootless), userns, rootless,
    /// or privileged, with which anyone who can change a Dockerfile is root on the node [default: auto]
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_BUILD_PROFILE", value_name = "PROFILE"))]
    pub build_profile: Option<String>,
    /// Docker's config.json with the credentials that images are pushed with; or a directory with a NAMESPACE.json for
    /// each namespace
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_BUILD_REGISTRY_CONFIG", value_name = "PATH"))]
    pub build_registry_config: Option<PathBuf>,
    /// Registry (HOST or HOST:PORT) without encryption or with a certificate of an unknown authority; may be repeated
    #[cfg_attr(
        feature = "clap",
        arg(long, env = "ROLLHOOK_BUILD_INSECURE_REGISTRY", value_name = "REGISTRY", value_delimiter = ',')
    )]
    pub build_insecure_registry: Vec<String>,
}

impl StoreSettings {
    /// Returns the store that is named, or else SQLite in the data directory.
    ///
    /// # Errors
    /// If the text names no store, or there is no data directory.
    pub fn named(&self) -> Result<StoreUrl, Error> {
        match &self.store {
            Some(text) => text.parse().map_err(|invalid| Error::Usage(format!("--store: {invalid}"))),
            None => paths::in_data_directory("rollhook.db", "--store").map(StoreUrl::Sqlite),
        }
    }
}

impl BuilderSettings {
    /// Returns the sources that apps may be built from.
    pub(crate) fn sources(&self) -> AllowedSources {
        AllowedSources { local: self.allow_local_sources, hosts: self.source_host.clone() }
    }

    /// Returns an error if a limit is set that this builder does not know.
    pub(crate) fn refuse_limits(&self) -> Result<(), Error> {
        if self.build_slots.is_none() && self.build_cpu.is_none() && self.build_memory.is_none() {
            return Ok(());
        }
        let why = "--build-slots, --build-cpu and --build-memory are limits of builds in the cluster (--build-image) and of \
                   Docker's builds (--driver docker without --build-command)";
        Err(Error::Usage(why.to_owned()))
    }

    /// Returns the files and directories of credentials that do not exist.
    pub(crate) fn missing(&self) -> impl Iterator<Item = &PathBuf> {
        self.build_credentials.iter().chain(&self.cluster.build_registry_config).filter(|place| !place.exists())
    }
}

impl ClusterSettings {
    /// Returns the builder's image, or `None` if builds are not made in the cluster.
    ///
    /// # Errors
    /// If other settings of these builds lack the image.
    pub fn image(&self) -> Result<Option<&str>, Error> {
        let why = "--build-image: name the builder's image, which the other flags of builds in the cluster need";
        match &self.build_image {
            None if *self != Self::default() => Err(Error::Usage(why.to_owned())),
            image => Ok(image.as_deref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_what_makes_builds_in_the_cluster() {
        assert_eq!(ClusterSettings::default().image().unwrap(), None);
        let profile = ClusterSettings { build_profile: Some("auto".to_owned()), ..ClusterSettings::default() };
        let registry = ClusterSettings { build_insecure_registry: vec!["r:5000".to_owned()], ..profile.clone() };
        for settings in [profile, registry] {
            assert!(settings.image().unwrap_err().to_string().contains("--build-image"));
            let settings = ClusterSettings { build_image: Some("builder".to_owned()), ..settings };
            assert_eq!(settings.image().unwrap(), Some("builder"));
        }
    }

    #[test]
    fn a_store_that_cannot_be_read_is_not_repeated() {
        let settings = StoreSettings { store: Some("mysql://u:hunter2@db".to_owned()), key_dir: None };
        let told = settings.named().unwrap_err().to_string();
        assert!(told.starts_with("--store: ") && !told.contains("hunter2"), "{told}");
    }
}
