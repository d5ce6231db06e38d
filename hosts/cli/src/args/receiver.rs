//! `rollhook receiver …`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use rollhook_core::app::{AppName, Environment, Project};
use rollhook_management::notifications::{EventKind, ReceiverName};

#[derive(Debug, Subcommand)]
pub(crate) enum ReceiverCommand {
    /// Add a receiver, which is told of deploys from now on; a secret that is made here is printed this once
    ///
    /// The server tells receivers: a command that works on a store without one leaves that to the next server.
    Add(Box<AddReceiverArgs>),
    /// List the receivers, and how their deliveries go
    #[command(visible_alias = "ls")]
    List,
    /// Send a test to a receiver, and show its answer
    Test(NamedReceiver),
    /// Replace a receiver's secret: what is told from now on has the new one
    Rotate {
        /// The receiver.
        #[command(flatten)]
        receiver: NamedReceiver,
        /// File with the new secret [default: one is made for a URL, and printed]
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
    },
    /// Remove a receiver: it is told nothing from then on
    #[command(visible_alias = "rm")]
    Remove(NamedReceiver),
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("destination").required(true))]
pub(crate) struct AddReceiverArgs {
    /// The receiver's name
    #[arg(value_name = "NAME")]
    pub(crate) name: ReceiverName,
    /// Tell this URL by CloudEvents, with signatures of Standard Webhooks
    #[arg(long, value_name = "URL", group = "destination", conflicts_with = "api_url")]
    pub(crate) webhook: Option<String>,
    /// Send CDEvents of services that were deployed, upgraded or rolled back to this URL, signed in the same way
    #[arg(long, value_name = "URL", group = "destination", conflicts_with = "api_url")]
    pub(crate) cdevents: Option<String>,
    /// Tell this channel of Slack, its id or # and its name, by one message per deploy
    #[arg(long, value_name = "CHANNEL", group = "destination", requires = "secret_file")]
    pub(crate) slack: Option<String>,
    /// Tell this repository of GitHub by deployments, and its commits by statuses
    #[arg(long, value_name = "OWNER/REPO", group = "destination", requires = "secret_file")]
    pub(crate) github: Option<String>,
    /// Tell this project of GitLab, its path or number, by deployments
    #[arg(long, value_name = "PROJECT", group = "destination", requires = "secret_file")]
    pub(crate) gitlab: Option<String>,
    /// The URL of the service's API [default: https://slack.com/api, https://api.github.com, https://gitlab.com/api/v4]
    #[arg(long, value_name = "URL")]
    pub(crate) api_url: Option<String>,
    /// File with the secret: of a webhook's signatures, whsec_ and base64 [default: one is made, and printed]; or the
    /// token that Slack, GitHub or GitLab has given
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
    /// An event that the receiver is told of; may be repeated [default: all but building, releasing, rolling_out and verifying]
    #[arg(long = "event", value_name = "EVENT", value_delimiter = ',')]
    pub(crate) events: Vec<EventKind>,
    /// The project of the apps [default: every project]
    #[arg(short, long)]
    pub(crate) project: Option<Project>,
    /// The environment of the apps [default: every one of the project]
    #[arg(short, long, requires = "project")]
    pub(crate) environment: Option<Environment>,
    /// The one app of the environment [default: all of its apps]
    #[arg(short, long, requires = "environment")]
    pub(crate) app: Option<AppName>,
}

#[derive(Debug, Args)]
pub(crate) struct NamedReceiver {
    /// The receiver's name
    #[arg(value_name = "NAME")]
    pub(crate) name: ReceiverName,
}
