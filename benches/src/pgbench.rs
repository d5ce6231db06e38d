//! The baseline of a store on PostgreSQL: `pgbench` with its own tables and its own small writing transaction.

use std::{process::Stdio, time::Duration};

use crate::{Failure, load::CONNECTIONS};

/// A database for `pgbench` alone.
pub(crate) struct Bare {
    url: String,
}

/// The outcome of some runs of `pgbench`: sums of the rates and of the mean latencies.
#[derive(Default)]
pub(crate) struct Ran {
    rates: f64,
    latencies: f64,
    phases: u32,
}

impl Ran {
    pub(crate) fn per_second(&self) -> f64 {
        self.rates / f64::from(self.phases)
    }

    pub(crate) fn summary(&self) -> String {
        let latency = self.latencies / f64::from(self.phases);
        format!("pgbench simple-update: {:.0}/s, mean {latency:.1} ms", self.per_second())
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.rates += other.rates;
        self.latencies += other.latencies;
        self.phases += other.phases;
    }
}

impl Bare {
    /// Lets `pgbench` make its tables.
    pub(crate) async fn new(url: String) -> Result<Self, Failure> {
        let bare = Self { url };
        bare.pgbench(&["--initialize", "--quiet", "--scale=10"]).await?;
        Ok(bare)
    }

    /// Runs `pgbench` for a phase that does not count.
    pub(crate) async fn warm_up(&self, time: Duration) -> Result<(), Failure> {
        self.update(time).await.map(drop)
    }

    /// Runs `pgbench` for this long, and returns the outcome.
    pub(crate) async fn run(&self, time: Duration) -> Result<Ran, Failure> {
        let output = self.update(time).await?;
        let number = |label: &str| {
            let line = output.lines().find_map(|line| line.strip_prefix(label));
            line.and_then(|rest| rest.split([' ', '/']).next()?.parse::<f64>().ok())
                .ok_or(format!("no {label} in {output}"))
        };
        Ok(Ran { rates: number("tps = ")?, latencies: number("latency average = ")?, phases: 1 })
    }

    /// Updates, reads and inserts a row per transaction, with as many clients as the load has connections.
    async fn update(&self, time: Duration) -> Result<String, Failure> {
        let (clients, time) = (format!("--client={CONNECTIONS}"), format!("--time={}", time.as_secs().max(5)));
        let options = ["--no-vacuum", "--protocol=prepared", "--jobs=1", "--builtin=simple-update", &clients, &time];
        self.pgbench(&options).await
    }

    async fn pgbench(&self, options: &[&str]) -> Result<String, Failure> {
        let mut command = tokio::process::Command::new("pgbench");
        let output = command.args(options).arg(&self.url).stdin(Stdio::null()).kill_on_drop(true).output().await?;
        if !output.status.success() {
            return Err(format!("pgbench: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}
