//! The command line, every option of which is an environment variable too.

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use rollhook_api::duration;
use rollhook_wiring::{Installation, Manifests, ReviewAudience, Settings, StoreSettings};

use crate::client_ip::Cidr;

/// rollhook's server: CI posts an image, rollhook rolls it out and answers how the deploy ended.
#[derive(Debug, Parser)]
#[command(name = "rollhook-server", version, about, args_conflicts_with_subcommands = true)]
pub struct Args {
    /// The command to run in place of serving.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The server's options.
    #[command(flatten)]
    pub serve: Serve,
}

/// The commands beside serving.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Keys that secrets are sealed with
    #[command(subcommand)]
    Keys(Keys),
    /// The admin token
    #[command(subcommand)]
    AdminToken(AdminToken),
    /// The store
    #[command(subcommand)]
    Store(Store),
    /// Print the manifests that a cluster needs before rollhook runs in it, for kubectl apply -f -
    Manifests(Manifests),
    /// Make the Secrets of a server in a cluster, keys and admin token, unless they exist
    ///
    /// Nothing is made, and the exit code is 3, if one of the two is lost while the other is there.
    Secrets(Installation),
    /// Ask the server on this machine whether it is healthy; fails unless it is
    Healthcheck(Healthcheck),
}

/// The addresses of the server, given as the server has them.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub struct Healthcheck {
    /// Address and port that the server listens on
    #[arg(long, env = "ROLLHOOK_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Address and port of /healthz, if it has one of its own
    #[arg(long, env = "ROLLHOOK_PROBE_LISTEN", value_name = "ADDRESS")]
    pub probe_listen: Option<SocketAddr>,
}

/// The commands for keys.
#[derive(Debug, Subcommand)]
pub enum Keys {
    /// Add a key to a directory: it opens at once, and seals from the next start or `keys rotate` on
    New {
        /// The key directory
        dir: PathBuf,
    },
    /// Seal every token, configuration and receiver's secret with the newest key, so that older keys can be deleted
    ///
    /// Give every replica the new key first: one that lacks it cannot open what this seals.
    Rotate(StoreSettings),
    /// Print how many secrets are sealed with which key
    Status(StoreSettings),
}

/// The commands for the store.
#[derive(Debug, Subcommand)]
pub enum Store {
    /// Bind the store to the named driver and its cluster, after its apps have moved there
    ///
    /// A store keeps what its apps are deployed by, and a server with another driver or cluster refuses to start on it.
    /// Stop every server on the store first.
    Rebind(Box<Settings>),
}

/// The commands for the admin token.
#[derive(Debug, Subcommand)]
pub enum AdminToken {
    /// Make an admin token's file, for --admin-token-file
    New {
        /// The file; must not exist
        file: PathBuf,
    },
    /// Replace the admin token that the store knows by the file's: the former one is refused from then on
    Set {
        /// The file of the new token
        file: PathBuf,
        /// The store.
        #[command(flatten)]
        store: StoreSettings,
    },
}

/// The server's options.
#[derive(Clone, Debug, ClapArgs)]
pub struct Serve {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, env = "ROLLHOOK_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Address and port of /healthz, /readyz and /metrics, which --listen answers then no longer
    #[arg(long, env = "ROLLHOOK_PROBE_LISTEN", value_name = "ADDRESS")]
    pub probe_listen: Option<SocketAddr>,
    /// File that names the provider at which people sign in to the console, and the roles of its groups
    #[arg(long, env = "ROLLHOOK_SIGN_IN", value_name = "FILE")]
    pub sign_in: Option<PathBuf>,
    /// Let callers prove themselves by tokens of the cluster that are made for this audience; its roles say what they may
    /// do [audience if none is named: rollhook]
    #[arg(
        long,
        env = "ROLLHOOK_KUBERNETES_IDENTITY",
        value_name = "AUDIENCE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "rollhook"
    )]
    pub kubernetes_identity: Option<ReviewAudience>,
    /// How CI reaches this server; webhook URLs begin with it [default: http://ADDRESS]
    #[arg(long, env = "ROLLHOOK_BASE_URL", value_name = "URL", value_parser = base_url)]
    pub base_url: Option<String>,
    /// File of the admin token that the store knows; a store that knows none keeps it [default: admin-token in the
    /// data directory]
    #[arg(long, env = "ROLLHOOK_ADMIN_TOKEN_FILE", value_name = "FILE")]
    pub admin_token_file: Option<PathBuf>,
    /// Limit failed authentications per source and app, and deploys per app
    #[arg(long, env = "ROLLHOOK_RATE_LIMIT", default_value = "on", value_name = "on|off")]
    pub rate_limit: RateLimit,
    /// How many deploys of its webhook an app may have in an hour; more are refused until time has passed
    #[arg(long, env = "ROLLHOOK_DEPLOYS_PER_HOUR", default_value = "600", value_name = "N")]
    pub deploys_per_hour: NonZeroU32,
    /// Network of proxies whose X-Forwarded-For is believed; may be repeated
    #[arg(long, env = "ROLLHOOK_TRUSTED_PROXY", value_name = "CIDR", value_delimiter = ',')]
    pub trusted_proxy: Vec<Cidr>,
    /// The shortest interval at which the branches of apps are read (their policy's poll)
    #[arg(long, env = "ROLLHOOK_MIN_POLL", default_value = "30s", value_name = "TIME", value_parser = length)]
    pub min_poll: Duration,
    /// The most apps with metrics of their own; the others share the label value _other. 0: no metrics by app
    #[arg(long, env = "ROLLHOOK_METRICS_PER_APP", default_value = "0", value_name = "APPS")]
    pub metrics_per_app: usize,
    /// How log lines are written to stderr; RUST_LOG says which
    #[arg(long, env = "ROLLHOOK_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,
    /// Export deploys as traces of OpenTelemetry to this collector, by OTLP over HTTP (/v1/traces)
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    // Last: its headings hold for the flags after it.
    /// The backends.
    #[command(flatten)]
    pub backends: Settings,
}

/// Whether failed authentications and deploys are limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RateLimit {
    /// Limits apply.
    On,
    /// No limits apply.
    Off,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text for people.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_in_the_documents_is_read() {
        let commands = rollhook_testing::documents::commands("rollhook-server");
        assert!(commands.len() > 5, "{commands:?}");
        for (page, words) in commands {
            let read = Args::try_parse_from(&words);
            assert!(read.is_ok(), "{page}: {words:?}: {}", read.unwrap_err());
        }
    }

    #[test]
    fn every_command_that_the_documents_name_is_known() {
        use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument};
        let commands = rollhook_testing::documents::mentions("rollhook-server");
        assert!(commands.len() > 10, "{commands:?}");
        for (page, words) in commands {
            let Err(error) = Args::try_parse_from(&words) else { continue };
            let incomplete = [DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument];
            assert!(incomplete.contains(&error.kind()), "{page}: {words:?}: {error}");
        }
    }
}
