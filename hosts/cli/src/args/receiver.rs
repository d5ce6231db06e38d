//! `rollhook receiver …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use rollhook_core::{
    app::{AppName, Environment, Project},
    notification::{EventKind, ReceiverName},
};

#[derive(Debug, Subcommand)]
pub(crate) enum ReceiverCommand {
    /// Add a receiver, which is told of deploys from now on; the secret of its signatures is printed this once
    ///
    /// The server tells receivers: a command that works on a store without one leaves that to the next server.
    Add(Box<AddReceiverArgs>),
    /// List the receivers, and how their deliveries go
    #[command(visible_alias = "ls")]
    List,
    /// Send a test to a receiver, and show its answer
    Test(NamedReceiver),
    /// Remove a receiver: it is told nothing from then on
    #[command(visible_alias = "rm")]
    Remove(NamedReceiver),
}

#[derive(Debug, Args)]
pub(crate) struct AddReceiverArgs {
    /// The receiver's name
    #[arg(value_name = "NAME")]
    pub(crate) name: ReceiverName,
    /// The URL that CloudEvents are posted to, with signatures of Standard Webhooks
    #[arg(long, value_name = "URL")]
    pub(crate) webhook: String,
    /// File with the secret of the signatures, whsec_ and base64 [default: one is made, and printed]
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
    /// An event that the receiver is told of; may be repeated [default: all but building and rolling_out]
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
