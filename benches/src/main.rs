//! Speed and memory of rollhook, as ratios to a baseline of the same run: `cargo run --release -p rollhook-benches`.
//!
//! ```text
//!   accepts   load ─▶ rollhook-server ─▶ SQLite, engine       beside   load ─▶ bare
//!   cluster   POST ─▶ rollhook-server ─▶ API server           beside   PATCH ─▶ API server
//!   memory    load, waits, pages ─▶ rollhook-server           beside   64 MiB
//!   pages     a page amid 1,000,000 entries                   beside   one amid 1,000
//! ```
//!
//! Each bench starts servers of its own on loopback, with files of its own, and stops them. What a number of one machine
//! is worth on another is unknown; ratios travel better. See the README beside the manifest for what each row means.

mod accepts;
mod bare;
mod bed;
mod calls;
mod client;
mod cluster;
mod deploy;
mod idle;
mod kubernetes;
mod load;
mod memory;
mod pages;
mod pgbench;
mod place;
mod postgres;
mod process;
mod seed;
mod sqlite;
mod stored;
mod subject;
mod table;
mod takeover;
mod tally;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, ValueEnum};
use table::Row;
use tokio::signal::unix::{SignalKind, signal};

/// Why a bench could not be run.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Measures rollhook beside baselines, and prints a table.
#[derive(Debug, Parser)]
#[command(name = "rollhook-benches", version, about)]
struct Args {
    /// Which benches; all of them where none is named
    #[arg(value_name = "BENCH")]
    benches: Vec<Bench>,
    /// Shorter and smaller: to see that the benches work, not what they say
    #[arg(long)]
    quick: bool,
    /// The rollhook-server to measure [default: built here, in release]
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Bench {
    /// Accepted deploys per second, on SQLite
    Accepts,
    /// The same on PostgreSQL
    Postgres,
    /// The same in Kubernetes itself
    Kubernetes,
    /// From the call to the changed Deployment
    Cluster,
    /// Calls of the API server: for a deploy, and for those who do not authenticate
    Calls,
    /// How long until another replica drives what a killed one had
    Takeover,
    /// Resident memory
    Memory,
    /// Pages of a long history
    Pages,
    /// Queries and API calls of servers that have nothing to do
    Idle,
    /// The baseline server of `accepts`, until it is stopped
    #[value(hide = true)]
    Bare,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = if args.benches == [Bench::Bare] {
        multi_thread().and_then(|runtime| runtime.block_on(bare::serve()))
    } else {
        single_thread().and_then(|runtime| runtime.block_on(run_until_stopped(&args)))
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("rollhook-benches: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// As rollhook-server's own.
fn multi_thread() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// The load comes from one thread, which leaves the most of a small machine to what is measured.
fn single_thread() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// A bench that is stopped takes its servers with it: they are killed as their handles are dropped.
async fn run_until_stopped(args: &Args) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        outcome = run(args) => outcome,
        _ = terminate.recv() => Err("stopped".into()),
        _ = interrupt.recv() => Err("stopped".into()),
    }
}

async fn run(args: &Args) -> Result<(), Failure> {
    let server = match &args.server {
        Some(server) => server.clone(),
        None => process::build_server()?,
    };
    let benches = if args.benches.is_empty() { Bench::value_variants() } else { &args.benches };
    let mut rows: Vec<Row> = Vec::new();
    let mut outcome = Ok(());
    for bench in benches {
        match bench.run(&server, args.quick).await {
            Ok(measured) => rows.extend(measured),
            Err(failure) => {
                // What the others have measured took long enough.
                outcome = Err(failure);
                break;
            }
        }
    }
    table::print(&rows);
    outcome
}

impl Bench {
    async fn run(self, server: &Path, quick: bool) -> Result<Vec<Row>, Failure> {
        Ok(match self {
            Self::Accepts => accepts::run(server, quick).await?,
            Self::Postgres => postgres::run(server, quick).await?,
            Self::Kubernetes => vec![kubernetes::run(server, quick).await?],
            Self::Cluster => vec![cluster::run(server, quick).await?],
            Self::Calls => calls::run(server, quick).await?,
            Self::Takeover => takeover::run(server, quick).await?,
            Self::Memory => memory::run(server, quick).await?,
            Self::Pages => vec![pages::run(server, quick).await?],
            Self::Idle => idle::run(server, quick).await?,
            // A server, and no bench of its own.
            Self::Bare => Vec::new(),
        })
    }
}
