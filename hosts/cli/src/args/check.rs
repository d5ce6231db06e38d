//! `rollhook app check …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use rollhook_api::SetCheck;
use rollhook_core::{app::Settings, check::CheckName};

use super::{
    Target,
    value::{CommandLine, command_line, duration},
};

#[derive(Debug, Subcommand)]
pub(crate) enum CheckCommand {
    /// Add a check, or set the one of this name anew
    ///
    /// For example: app check add api front-page http https://shop.example.com/ --contains Welcome, or app check add api
    /// errors prometheus https://prometheus.example.com --condition '< 0.01' --query
    /// 'sum(rate(http_errors_total{namespace="{{namespace}}"}[{{window}}])) or vector(0)', or app check add api smoke command
    /// --command 'bin/smoke --fast'. Try it out with app check test.
    Add(Box<AddCheck>),
    /// List the checks
    #[command(visible_alias = "ls")]
    List(Target),
    /// Measure a check once, of what runs, and show what was asked and found; the command fails unless the check passes
    Test(NamedCheck),
    /// Remove a check
    #[command(visible_alias = "rm")]
    Remove(NamedCheck),
}

#[derive(Debug, Args)]
pub(crate) struct NamedCheck {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The check's name
    #[arg(value_name = "NAME")]
    pub(crate) name: CheckName,
}

#[derive(Debug, Args)]
pub(crate) struct AddCheck {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The check's name, such as front-page
    #[arg(value_name = "NAME")]
    pub(crate) name: CheckName,
    /// The kind: a request through the app's route or of each instance, a query of Prometheus, a signed call of a service that answers with the
    /// verdict, or a command that is run with the new image
    #[arg(value_name = "KIND", value_parser = ["http", "prometheus", "webhook", "command"])]
    kind: String,
    /// With http: the URL, whose path and query may have {{namespace}}, {{app}} and {{revision}}. With prometheus: the URL of
    /// its API, without /api/v1/query. With webhook: the URL that is posted to
    #[arg(value_name = "URL", required_if_eq_any([("kind", "http"), ("kind", "prometheus"), ("kind", "webhook")]))]
    url: Option<String>,
    /// What follows from a fail: enforce fails the deploy, observe only shows it [default: enforce]
    #[arg(long, value_parser = ["enforce", "observe"])]
    mode: Option<String>,
    /// The time between two measurements, from 1s to 1h [default: 15s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    every: Option<String>,
    /// How many measurements in a row must fail before the check fails [default: 3]
    #[arg(long, value_name = "N")]
    failures: Option<u32>,
    /// How long a measurement may take, from 1s to 20s [default: 10s]; with command, to 10m [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<String>,
    /// What follows if there is nothing to judge by: accept the deploy as not verified, wait for a verdict, or ask a person
    /// (app verdict) [default: accept]
    #[arg(long, value_name = "WHAT", value_parser = ["accept", "wait", "ask"])]
    without_verdict: Option<String>,
    /// With http and prometheus: how the secret is sent: bearer, basic (the secret is USER:PASSWORD), or header=NAME
    #[arg(long, value_name = "HOW")]
    login: Option<String>,
    /// File with the secret: what --login sends, or with webhook the key of its signatures, whsec_ and base64 [default: the
    /// check's own stays, as long as the scheme, host and port of its URL do]
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
    #[command(flatten)]
    http: HttpFlags,
    #[command(flatten)]
    prometheus: PrometheusFlags,
    #[command(flatten)]
    command: CommandFlags,
}

/// The settings of checks of kind `command`.
#[derive(Debug, Args)]
#[command(next_help_heading = "With command")]
struct CommandFlags {
    /// The program and its arguments, such as 'bin/smoke --fast': exit code 0 passes
    #[arg(long, value_name = "COMMAND", value_parser = command_line, required_if_eq("kind", "command"))]
    command: Option<CommandLine>,
}

/// The settings of checks of kind `http`.
#[derive(Debug, Args)]
#[command(next_help_heading = "With http")]
struct HttpFlags {
    /// The method [default: GET]
    #[arg(long, value_parser = ["GET", "HEAD", "POST"])]
    method: Option<String>,
    /// The statuses of a good answer, such as 200-299,404 [default: 200]
    #[arg(long, value_name = "STATUSES")]
    status: Option<String>,
    /// A text that the first 64 KiB of the answer must have
    #[arg(long, value_name = "TEXT")]
    contains: Option<String>,
    /// A JSON pointer into the answer, such as /status
    #[arg(long, value_name = "POINTER", requires = "equals")]
    json: Option<String>,
    /// The value that must be at the pointer
    #[arg(long, value_name = "VALUE", requires = "json")]
    equals: Option<String>,
    /// The verdict of a request that is not answered: none, or fail where nothing between here and the app can fail
    /// [default: none]
    #[arg(long, value_name = "VERDICT", value_parser = ["none", "fail"])]
    unreachable: Option<String>,
    /// Ask each new instance that is ready at this port of its container, over http, in place of the URL's server: all must
    /// pass. The URL gives the path and the Host header
    #[arg(long, value_name = "PORT", conflicts_with = "login", value_parser = clap::value_parser!(u16).range(1..))]
    each_instance: Option<u16>,
}

/// The settings of checks of kind `prometheus`.
#[derive(Debug, Args)]
#[command(next_help_heading = "With prometheus")]
struct PrometheusFlags {
    /// A query that gives one number, with {{namespace}}, {{app}}, {{revision}} and {{workload}} in quotes, and {{window}} as
    /// a length
    #[arg(long, value_name = "PROMQL")]
    query: Option<String>,
    /// The condition of a pass, such as '< 0.01'; with --than, the operator alone
    #[arg(long)]
    condition: Option<String>,
    /// A query of the number of samples, such as of requests
    #[arg(long, value_name = "PROMQL", requires = "minimum")]
    samples_query: Option<String>,
    /// The least number of samples: with fewer there is no verdict
    #[arg(long, value_name = "N", requires = "samples_query")]
    minimum: Option<u64>,
    /// Compare with the value of the same query before the deploy
    #[arg(long, value_name = "WHEN", value_parser = ["before"])]
    than: Option<String>,
    /// The factor of the value before the deploy [default: 1]
    #[arg(long, value_name = "NUMBER", requires = "than")]
    factor: Option<f64>,
}

impl AddCheck {
    /// Returns the request, with this secret.
    pub(crate) fn request(&self, secret: Option<String>) -> SetCheck {
        let Self { http, prometheus, command, .. } = self;
        let text = |text: &Option<String>| text.clone().map(serde_json::Value::from);
        let settings = [
            ("url", text(&self.url)),
            ("command", command.command.as_ref().map(|command| command.0.clone().into())),
            ("method", text(&http.method)),
            ("status", text(&http.status)),
            ("contains", text(&http.contains)),
            ("json", text(&http.json)),
            ("equals", text(&http.equals)),
            ("unreachable", text(&http.unreachable)),
            ("each_instance", http.each_instance.map(Into::into)),
            ("query", text(&prometheus.query)),
            ("condition", text(&prometheus.condition)),
            ("samples_query", text(&prometheus.samples_query)),
            ("minimum", prometheus.minimum.map(Into::into)),
            ("than", text(&prometheus.than)),
            ("factor", prometheus.factor.map(Into::into)),
            ("login", text(&self.login)),
        ];
        let given = settings.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        SetCheck {
            kind: self.kind.clone(),
            settings: given.collect::<Settings>(),
            mode: self.mode.clone(),
            every: self.every.clone(),
            failures: self.failures,
            timeout: self.timeout.clone(),
            without_verdict: self.without_verdict.clone(),
            secret,
        }
    }
}
