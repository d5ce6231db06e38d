//! Accepted deploys per second: 64 connections, 1,000 apps, SQLite, and the engine driving each to its end, beside a
//! server that only answers.

use std::{env, path::Path, sync::Arc, time::Duration};

use sqlx::SqliteConnection;
use tokio::time::{Instant, sleep};

use crate::{
    Failure,
    load::{self, Calls, Sent},
    place::Place,
    process::Process,
    seed::{self, Target},
    table::Row,
};

/// A share of the bare rate.
const TARGET: f64 = 0.15;
const PHASES: usize = 3;
const DRAIN_MAX: Duration = Duration::from_secs(120);

/// Two rows: calls without a key, as a plain `curl` sends, and with one of its own each, as our snippets send.
pub(crate) async fn run(server: &Path, quick: bool) -> Result<Vec<Row>, Failure> {
    let (apps, phase) = if quick { (100, Duration::from_secs(1)) } else { (1000, Duration::from_secs(4)) };
    let place = Place::new()?;
    place.admin_token(server)?;
    let store = place.store().await?;
    let targets = seed::apps(&store, apps).await?;
    drop(store);
    let bare = Process::start(&env::current_exe()?, &["bare".to_owned()], &[], Path::new("/dev/null")).await?;
    let rollhook = place.serve(server, "simulated:0ms").await?;
    let mut bench = Bench { rollhook, bare, connection: place.connection().await?, recorded: 0, phase };
    let rows = vec![bench.measure(&targets, false).await?, bench.measure(&targets, true).await?];
    bench.rollhook.stop().await?;
    bench.bare.stop().await?;
    Ok(rows)
}

struct Bench {
    rollhook: Process,
    bare: Process,
    connection: SqliteConnection,
    /// Entries that the store should have.
    recorded: u64,
    phase: Duration,
}

impl Bench {
    async fn measure(&mut self, targets: &[Target], keyed: bool) -> Result<Row, Failure> {
        let name = if keyed { "accepts with a key each" } else { "accepts" };
        let calls = Calls::new(targets, keyed);
        // The first deploys of an app are not like its later ones, and a bench is not about a process's first second.
        self.load(&calls, self.phase / 4).await?;
        load::send(self.bare.address, &calls, self.phase / 4).await?;
        let (mut ours, mut bare, mut drained) = (Sent::default(), Sent::default(), Duration::ZERO);
        let mut worst_backlog = 0;
        for phase in 1..=PHASES {
            let cpu = self.rollhook.cpu()?;
            let (sent, backlog, drain) = self.load(&calls, self.phase).await?;
            let cpu = self.rollhook.cpu()?.saturating_sub(cpu);
            eprintln!(
                "{name} {phase}: rollhook {:.0}/s, {} refused, backlog {backlog}, drained in {:.2} s; processor \
                 time: server {:.1} s, load {:.1} s",
                sent.per_second(),
                sent.refused,
                drain.as_secs_f64(),
                cpu.as_secs_f64(),
                sent.cpu.as_secs_f64(),
            );
            ours.add(sent);
            drained += drain;
            worst_backlog = worst_backlog.max(backlog);
            let cpu = self.bare.cpu()?;
            let sent = load::send(self.bare.address, &calls, self.phase).await?;
            let cpu = self.bare.cpu()?.saturating_sub(cpu);
            eprintln!(
                "{name} {phase}: bare {:.0}/s; processor time: server {:.1} s, load {:.1} s",
                sent.per_second(),
                cpu.as_secs_f64(),
                sent.cpu.as_secs_f64()
            );
            bare.add(sent);
        }
        let ratio = ours.per_second() / bare.per_second();
        let sustained = ours.accepted as f64 / (ours.time + drained).as_secs_f64();
        Ok(Row {
            name: name.to_owned(),
            measured: format!(
                "{}, {} refused; backlog {worst_backlog}, {:.0}/s with the time to drain; load's processor time {:.0} %",
                ours.told(),
                ours.refused,
                sustained,
                100.0 * ours.cpu.as_secs_f64() / ours.time.as_secs_f64()
            ),
            baseline: format!(
                "bare: {}; load's processor time {:.0} %",
                bare.told(),
                100.0 * bare.cpu.as_secs_f64() / bare.time.as_secs_f64()
            ),
            ratio: format!("{:.1} %", 100.0 * ratio),
            target: format!("≥ {:.0} %", 100.0 * TARGET),
            met: Some(ratio >= TARGET),
        })
    }

    /// Loads rollhook, and waits until all that it accepted has ended: what was sent, what was unfinished when the load
    /// ended, and how long it took to end.
    async fn load(&mut self, calls: &Arc<Calls>, time: Duration) -> Result<(Sent, i64, Duration), Failure> {
        let sent = load::send(self.rollhook.address, calls, time).await?;
        let end = Instant::now();
        let backlog = self.unfinished().await?;
        let mut left = backlog;
        while left > 0 {
            if end.elapsed() > DRAIN_MAX {
                return Err(format!("{left} deploys do not end").into());
            }
            sleep(Duration::from_millis(20)).await;
            left = self.unfinished().await?;
        }
        let drained = end.elapsed();
        self.recorded += sent.accepted;
        self.check().await?;
        Ok((sent, backlog, drained))
    }

    async fn unfinished(&mut self) -> Result<i64, Failure> {
        let count = "SELECT coalesce(sum(json_array_length(unfinished)), 0) FROM heads";
        Ok(sqlx::query_scalar(count).fetch_one(&mut self.connection).await?)
    }

    /// Every 202 is one entry, and every entry has ended.
    async fn check(&mut self) -> Result<(), Failure> {
        let (entries, open): (i64, i64) = sqlx::query_as("SELECT count(*), coalesce(sum(status < 3), 0) FROM deploys")
            .fetch_one(&mut self.connection)
            .await?;
        if (entries.unsigned_abs(), open) == (self.recorded, 0) {
            return Ok(());
        }
        Err(format!("{} deploys were accepted, {entries} are stored, {open} of them unfinished", self.recorded).into())
    }
}
