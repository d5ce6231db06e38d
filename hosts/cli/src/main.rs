//! `rollhook`, the command line of a deployment webhook service: deploys, history and rollback from a terminal or a
//! pipeline.
//!
//! ```text
//!   args ─▶ run ─▶ commands ──▶ Api ──▶ Remote: a server's management API
//!                     │                   └──▶ Direct: store, cluster and engine in this process
//!                     ▼
//!           history, apps, table ─▶ output (data: stdout)     progress, exit ─▶ messages (stderr)
//! ```
//!
//! `rollhook app deploy` parses its arguments, performs the operation on the server or in this process, watches the
//! entry until it has ended, and exits with a code that says how.

mod api;
mod apps;
mod args;
mod commands;
mod completion;
mod confirm;
mod contexts;
mod direct;
mod dotenv;
mod exit;
mod history;
mod output;
mod progress;
mod remote;
mod run;
mod table;
mod when;

use std::process::ExitCode;

fn main() -> ExitCode {
    completion::answer();
    run::run(args::Cli::read(std::env::args_os()).unwrap_or_else(|error| error.exit()))
}
