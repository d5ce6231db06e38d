//! The baseline of a store on PostgreSQL: `pgbench`, which sends what one accept sends when it is alone.

use std::{path::Path, process::Stdio, time::Duration};

use sqlx::{Connection, PgConnection};

use crate::{Failure, load::CONNECTIONS};

/// A database that nobody but `pgbench` uses, with the apps of the other.
pub(crate) struct Bare {
    url: String,
    connection: PgConnection,
    apps: usize,
}

const NO_WAKE: &str =
    "CREATE OR REPLACE FUNCTION rollhook.wake(_sender text, _uids text[]) RETURNS void LANGUAGE sql AS ''";

/// What `pgbench` told.
#[derive(Default)]
pub(crate) struct Ran {
    accepted: u64,
    /// Of its phases, the sum of the rates and of the mean latencies.
    rates: f64,
    latencies: f64,
    phases: u32,
}

impl Ran {
    pub(crate) fn per_second(&self) -> f64 {
        self.rates / f64::from(self.phases)
    }

    pub(crate) fn told(&self) -> String {
        let latency = self.latencies / f64::from(self.phases);
        format!("pgbench: {:.0}/s, mean {latency:.1} ms", self.per_second())
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.rates += other.rates;
        self.latencies += other.latencies;
        self.phases += other.phases;
    }
}

impl Bare {
    pub(crate) async fn new(url: String, apps: usize) -> Result<Self, Failure> {
        let mut connection = PgConnection::connect(&url).await?;
        // To notify others takes a lock that all who commit wait for, their disk writes included: batches take it seldom,
        // but one accept per transaction would be measured by little else.
        sqlx::query(NO_WAKE).execute(&mut connection).await?;
        Ok(Self { url, connection, apps })
    }

    /// Has as many clients as the load has connections accept deploys for this long; checks that each accept made an
    /// entry.
    pub(crate) async fn run(&mut self, keyed: bool, time: Duration) -> Result<Ran, Failure> {
        // Nobody drives these deploys, and an app with many that are unfinished would be dearer than a driven one.
        for statement in ["UPDATE rollhook.heads SET unfinished = '{}', place = NULL", "VACUUM rollhook.heads"] {
            sqlx::query(statement).execute(&mut self.connection).await?;
        }
        let before = self.entries().await?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("pgbench/accept.sql");
        let output = tokio::process::Command::new("pgbench")
            .args(["--no-vacuum", "--protocol=simple", "--jobs=1"])
            .arg(format!("--client={CONNECTIONS}"))
            .arg(format!("--time={}", time.as_secs().max(2)))
            .args([format!("--define=apps={}", self.apps), format!("--define=keyed={}", u8::from(keyed))])
            .arg("--file")
            .args([&script, Path::new(&self.url)])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        let told = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(format!("pgbench: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        let number = |label: &str| {
            let line = told.lines().find_map(|line| line.strip_prefix(label));
            line.and_then(|rest| rest.split([' ', '/']).next()?.parse::<f64>().ok())
                .ok_or(format!("no {label} in {told}"))
        };
        let accepted = number("number of transactions actually processed: ")? as u64;
        let recorded = self.entries().await? - before;
        if i64::try_from(accepted)? != recorded {
            return Err(format!("pgbench made {accepted} accepts, of which {recorded} are stored").into());
        }
        Ok(Ran { accepted, rates: number("tps = ")?, latencies: number("latency average = ")?, phases: 1 })
    }

    async fn entries(&mut self) -> Result<i64, Failure> {
        Ok(sqlx::query_scalar("SELECT count(*) FROM rollhook.deploys").fetch_one(&mut self.connection).await?)
    }
}
