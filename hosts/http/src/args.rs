//! The command line, every option of which is an environment variable too.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use rollhook_api::duration;
use rollhook_core::app::Namespace;
use rollhook_wiring::{Settings, StoreSettings};

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
    Rotate(StoreSettings),
    /// Tell how many tokens are sealed with which key
    Status(StoreSettings),
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
    /// The shortest interval at which apps may have their branches looked at (their policy's poll)
    #[arg(long, env = "ROLLHOOK_MIN_POLL", default_value = "30s", value_name = "TIME", value_parser = length)]
    pub min_poll: Duration,
    /// How log lines are written to stderr; RUST_LOG says which
    #[arg(long, env = "ROLLHOOK_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,
    // Last: its headings hold for the flags after it.
    /// The backends.
    #[command(flatten)]
    pub backends: Settings,
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
