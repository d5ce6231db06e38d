//! Speed and memory of rollhook, as ratios to a baseline of the same run: `cargo run --release -p rollhook-benches`.
//!
//! ```text
//!   accepts   load ─▶ rollhook-server ─▶ SQLite, engine       beside   load ─▶ bare server; rows ─▶ SQLite
//!   cluster   POST ─▶ rollhook-server ─▶ API server           beside   PATCH ─▶ API server
//!   memory    load, waits, pages ─▶ rollhook-server           beside   64 MiB
//!   growth    100,000 apps                                    beside   1,000 apps
//! ```
//!
//! Each bench starts servers of its own on loopback, with files of its own, and stops them. A number of one machine
//! says little about another; ratios travel better. The README beside the manifest explains each row.

mod accepts;
mod api_calls;
mod api_counter;
mod bare;
mod bed;
mod client;
mod cluster;
mod deploy;
mod fixture;
mod growth;
mod kubernetes;
mod load;
mod memory;
mod pages;
mod pgbench;
mod postgres;
mod process;
mod seed;
mod sqlite;
mod stored;
mod subject;
mod table;
mod takeover;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, ValueEnum};
use table::Row;
use tokio::signal::unix::{SignalKind, signal};

/// The error of a bench that cannot go on.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Measures rollhook beside baselines, and prints a table.
#[derive(Debug, Parser)]
#[command(name = "rollhook-benches", version, about)]
struct Args {
    /// The benches to run [default: all]
    #[arg(value_name = "BENCH")]
    benches: Vec<Bench>,
    /// Run small and short, to check that the benches work; the figures mean little
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
    /// The same in Kubernetes itself, and the resident memory there
    Kubernetes,
    /// The time from the call to the changed Deployment
    Cluster,
    /// Calls of the API server: per deploy, and for unauthenticated requests
    ApiCalls,
    /// The time until another replica drives the deploys of a killed one
    Takeover,
    /// Resident memory on SQLite
    Memory,
    /// Pages of a long history
    Pages,
    /// Cost with few and many apps: processor time, and API calls of idle servers
    Growth,
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

/// Returns a runtime like rollhook-server's.
fn multi_thread() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Returns a runtime of one thread, so that the load leaves most of a small machine to the measured server.
fn single_thread() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Runs the benches until they end or a signal comes; servers are killed as their handles are dropped.
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
                // The rows of the benches before are printed all the same.
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
            Self::Kubernetes => kubernetes::run(server, quick).await?,
            Self::Cluster => vec![cluster::run(server, quick).await?],
            Self::ApiCalls => api_calls::run(server, quick).await?,
            Self::Takeover => takeover::run(server, quick).await?,
            Self::Memory => memory::run(server, quick).await?,
            Self::Pages => vec![pages::run(server, quick).await?],
            Self::Growth => growth::run(server, quick).await?,
            // A server, and no bench.
            Self::Bare => Vec::new(),
        })
    }
}
