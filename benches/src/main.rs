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
mod client;
mod cluster;
mod load;
mod memory;
mod pages;
mod place;
mod process;
mod seed;
mod table;

use std::{path::PathBuf, process::ExitCode};

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
    /// Accepted deploys per second
    Accepts,
    /// From the call to the changed Deployment
    Cluster,
    /// Resident memory
    Memory,
    /// Pages of a long history
    Pages,
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
    let all = [Bench::Accepts, Bench::Cluster, Bench::Memory, Bench::Pages];
    let benches = if args.benches.is_empty() { &all[..] } else { &args.benches };
    let mut rows: Vec<Row> = Vec::new();
    for bench in benches {
        match bench {
            Bench::Accepts => rows.extend(accepts::run(&server, args.quick).await?),
            Bench::Cluster => rows.push(cluster::run(&server, args.quick).await?),
            Bench::Memory => rows.extend(memory::run(&server, args.quick).await?),
            Bench::Pages => rows.push(pages::run(&server, args.quick).await?),
            Bench::Bare => return Err("bare is run alone".into()),
        }
    }
    table::print(&rows);
    Ok(())
}
