//! The command line, every option of which is an environment variable too.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use rollhook_api::duration;
use rollhook_core::app::Namespace;
use rollhook_wiring::{BuilderSettings, ClusterBuilds, DriverSpec};

use crate::source::Cidr;

/// rollhook's server: CI posts an image, rollhook rolls it out and tells how that ended.
#[derive(Debug, Parser)]
#[command(name = "rollhook-server", version, about, args_conflicts_with_subcommands = true)]
pub struct Args {
    /// What to do in place of serving.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How to serve.
    #[command(flatten)]
    pub serve: Serve,
}

/// What the binary does beside serving.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Keys that tokens are sealed with
    #[command(subcommand)]
    Keys(Keys),
    /// The management token
    #[command(subcommand)]
    AdminToken(AdminToken),
    /// Print what a cluster is given before rollhook runs in it: for kubectl apply -f -
    Manifests(Manifests),
}

/// What the printed manifests are for.
#[derive(Clone, Debug, ClapArgs)]
pub struct Manifests {
    /// The namespace that the server runs in
    #[arg(long, default_value = rollhook_wiring::manifests::NAMESPACE, value_name = "NAMESPACE")]
    pub namespace: Namespace,
    /// A namespace with apps; may be repeated
    #[arg(long, value_name = "NAMESPACE", required = true)]
    pub app_namespace: Vec<Namespace>,
    /// The server's image; adds a Deployment of two replicas to start from
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// The namespace of builds; adds it, with what builds may reach and what the server may do there
    #[arg(long, value_name = "NAMESPACE")]
    pub build_namespace: Option<Namespace>,
    /// The port of a registry or git host that builds reach, beside 443, 80 and 22; may be repeated
    #[arg(long, value_name = "PORT", requires = "build_namespace")]
    pub build_registry_port: Vec<u16>,
}

/// What can be done with keys.
#[derive(Debug, Subcommand)]
pub enum Keys {
    /// Add a key to a directory: it opens at once, and seals from the next start or `keys rotate` on
    New {
        /// The key directory
        dir: PathBuf,
    },
    /// Seal every token with the newest key, so that older keys can be deleted
    ///
    /// Give every replica the new key first: one that lacks it cannot open what this seals.
    Rotate(Sealed),
    /// Tell how many tokens are sealed with which key
    Status(Sealed),
}

/// A store, and the keys that it seals with.
#[derive(Clone, Debug, ClapArgs)]
pub struct Sealed {
    /// As the server's --store [default: sqlite in the data directory]
    #[arg(long, env = "ROLLHOOK_STORE", value_name = "STORE", hide_env_values = true)]
    pub store: Option<String>,
    /// As the server's --key-dir [default: keys in the data directory]
    #[arg(long, env = "ROLLHOOK_KEY_DIR", value_name = "DIR")]
    pub key_dir: Option<PathBuf>,
}

/// What can be done with the management token.
#[derive(Debug, Subcommand)]
pub enum AdminToken {
    /// Make a management token's file, for --admin-token-file
    New {
        /// The file; must not exist
        file: PathBuf,
    },
}

/// The server's options.
#[derive(Clone, Debug, ClapArgs)]
pub struct Serve {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, env = "ROLLHOOK_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// How CI reaches this server; webhook URLs begin with it [default: http://ADDRESS]
    #[arg(long, env = "ROLLHOOK_BASE_URL", value_name = "URL", value_parser = base_url)]
    pub base_url: Option<String>,
    /// memory, sqlite:FILE, postgres://USER@HOST/DATABASE or kubernetes [default: sqlite in the data directory]
    // Kept as text until it is used: clap repeats what it cannot parse, and a store's URL may hold a password.
    #[arg(long, env = "ROLLHOOK_STORE", value_name = "STORE", hide_env_values = true)]
    pub store: Option<String>,
    /// simulated, simulated:DELAY or kubernetes
    #[arg(long, env = "ROLLHOOK_DRIVER", default_value = "simulated", value_name = "DRIVER")]
    pub driver: DriverSpec,
    /// Directory of the keys that tokens are sealed with [default: keys in the data directory]
    #[arg(long, env = "ROLLHOOK_KEY_DIR", value_name = "DIR")]
    pub key_dir: Option<PathBuf>,
    /// File of the management token, which replaces the one that the store knows [default: admin-token in the data
    /// directory]
    #[arg(long, env = "ROLLHOOK_ADMIN_TOKEN_FILE", value_name = "FILE")]
    pub admin_token_file: Option<PathBuf>,
    /// Limit failed authentications per source, and deploys per app
    #[arg(long, env = "ROLLHOOK_RATE_LIMIT", default_value = "on", value_name = "on|off")]
    pub rate_limit: Switch,
    /// Network of proxies whose X-Forwarded-For is believed; may be repeated
    #[arg(long, env = "ROLLHOOK_TRUSTED_PROXY", value_name = "CIDR", value_delimiter = ',')]
    pub trusted_proxy: Vec<Cidr>,
    /// What builds git apps.
    #[command(flatten)]
    pub builds: BuildTrigger,
    /// The shortest interval at which apps may have their branches looked at (their policy's poll)
    #[arg(long, env = "ROLLHOOK_MIN_POLL", default_value = "30s", value_name = "TIME", value_parser = length)]
    pub min_poll: Duration,
    /// How log lines are written to stderr; RUST_LOG says which
    #[arg(long, env = "ROLLHOOK_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// What builds git apps.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Git apps")]
pub struct BuildTrigger {
    /// Program on this machine that builds a commit and pushes the image; its last line is REPOSITORY@sha256:…
    #[arg(long, env = "ROLLHOOK_BUILD_COMMAND", value_name = "PROGRAM")]
    pub build_command: Option<PathBuf>,
    /// Directory of builds and their logs, which survives restarts [default: builds in the data directory]
    #[arg(long, env = "ROLLHOOK_BUILD_DIR", value_name = "DIR")]
    pub build_dir: Option<PathBuf>,
    /// Directory of the credentials that apps name: files with USER:PASSWORD, a token, or an ssh key;
    /// and of known_hosts, the hosts that ssh may talk to
    #[arg(long, env = "ROLLHOOK_BUILD_CREDENTIALS", value_name = "DIR")]
    pub build_credentials: Option<PathBuf>,
    /// Let apps be built from this machine's files and addresses, from link-local ones, and over plain http
    #[arg(long, env = "ROLLHOOK_ALLOW_LOCAL_SOURCES")]
    pub allow_local_sources: bool,
    /// Builds in the cluster, in place of a program.
    #[command(flatten)]
    pub cluster: InCluster,
}

/// Builds in the cluster.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Git apps built in the cluster")]
pub struct InCluster {
    /// Builder's image, REPOSITORY@sha256:…: each build is a Job that runs it, in place of --build-command
    #[arg(long, env = "ROLLHOOK_BUILD_IMAGE", value_name = "IMAGE")]
    pub build_image: Option<String>,
    /// Namespace of the builds' Jobs, which holds nothing else [default: rollhook-builds]
    #[arg(long, env = "ROLLHOOK_BUILD_NAMESPACE", value_name = "NAMESPACE", requires = "build_image")]
    pub build_namespace: Option<String>,
    /// How many builds run at once in the whole cluster; others wait for their turn [default: 2]
    #[arg(long, env = "ROLLHOOK_BUILD_SLOTS", value_name = "N", requires = "build_image")]
    pub build_slots: Option<u16>,
    /// How much of the processors a build may use [default: 2]
    #[arg(long, env = "ROLLHOOK_BUILD_CPU", value_name = "AMOUNT", requires = "build_image")]
    pub build_cpu: Option<String>,
    /// How much memory a build may use; it is reserved for it [default: 4Gi]
    #[arg(long, env = "ROLLHOOK_BUILD_MEMORY", value_name = "AMOUNT", requires = "build_image")]
    pub build_memory: Option<String>,
    /// What confines a build: auto (userns where every node has user namespaces, else rootless), userns, rootless, or
    /// privileged, with which whoever can change a Dockerfile is root on the node [default: auto]
    #[arg(long, env = "ROLLHOOK_BUILD_PROFILE", value_name = "PROFILE", requires = "build_image")]
    pub build_profile: Option<String>,
    /// Docker's config.json with the credentials that images are pushed with
    #[arg(long, env = "ROLLHOOK_BUILD_REGISTRY_CONFIG", value_name = "FILE", requires = "build_image")]
    pub build_registry_config: Option<PathBuf>,
    /// Registry (HOST or HOST:PORT) without encryption or with a certificate that nobody vouches for; may be repeated
    #[arg(
        long,
        env = "ROLLHOOK_BUILD_INSECURE_REGISTRY",
        value_name = "REGISTRY",
        value_delimiter = ',',
        requires = "build_image"
    )]
    pub build_insecure_registry: Vec<String>,
}

impl InCluster {
    fn wanted(self) -> Option<ClusterBuilds> {
        Some(ClusterBuilds {
            image: self.build_image?,
            namespace: self.build_namespace,
            slots: self.build_slots,
            cpu: self.build_cpu,
            memory: self.build_memory,
            profile: self.build_profile,
            registry_config: self.build_registry_config,
            insecure_registries: self.build_insecure_registry,
        })
    }
}

impl From<BuildTrigger> for BuilderSettings {
    fn from(builds: BuildTrigger) -> Self {
        Self {
            command: builds.build_command,
            cluster: builds.cluster.wanted(),
            directory: builds.build_dir,
            credentials: builds.build_credentials,
            local_sources: builds.allow_local_sources,
        }
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

fn length(text: &str) -> Result<Duration, &'static str> {
    duration::parse(text).filter(|length| !length.is_zero()).ok_or(duration::RULE)
}

fn base_url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match rest {
        Some(rest) if !rest.is_empty() && !rest.contains(['?', '#', ' ', '@']) => {
            Ok(text.trim_end_matches('/').to_owned())
        }
        Some(_) | None => Err("must be http(s)://HOST[:PORT][/PATH], without a user, query or fragment".to_owned()),
    }
}
