//! Accepted and driven deploys per second: 64 connections, 1,000 apps, SQLite, and the engine that drives each deploy
//! to its end; beside a server that only answers, and beside SQLite alone.

use std::{env, path::Path, time::Duration};

use crate::{
    Failure,
    fixture::Fixture,
    load::{self, Calls, Sent},
    process::Process,
    seed::{self, SeededApp},
    sqlite::{self, Alone, Shape},
    subject::Subject,
    table::Row,
};

/// A share of SQLite's own rate.
const TARGET: f64 = 0.5;
const PHASES: usize = 3;

/// Returns a row per baseline, for calls without a key, as a plain `curl` sends, and for calls with a key each, as our
/// snippets send.
pub(crate) async fn run(server: &Path, quick: bool) -> Result<Vec<Row>, Failure> {
    let (count, phase) = if quick { (100, Duration::from_secs(1)) } else { (1000, Duration::from_secs(4)) };
    let fixture = Fixture::sqlite()?;
    fixture.admin_token(server)?;
    let apps = seed::apps(&*fixture.open().await?, "load", 0..count).await?;
    let bare = Process::start(&env::current_exe()?, &["bare".to_owned()], &[], Path::new("/dev/null")).await?;
    let rollhook = Subject::new(fixture.serve(server, "simulated:0ms").await?, fixture.open().await?);
    let mut bench = Bench { fixture, rollhook, bare, alone: Alone::new(count).await?, phase };
    let mut rows = bench.measure(&apps, false).await?;
    rows.extend(bench.measure(&apps, true).await?);
    bench.rollhook.server.stop().await?;
    bench.bare.stop().await?;
    Ok(rows)
}

struct Bench {
    fixture: Fixture,
    rollhook: Subject,
    bare: Process,
    alone: Alone,
    phase: Duration,
}

impl Bench {
    async fn measure(&mut self, apps: &[SeededApp], keyed: bool) -> Result<Vec<Row>, Failure> {
        let name = if keyed { "accepts with a key each" } else { "accepts" };
        let calls = Calls::new(apps, keyed);
        self.rollhook.warm_up(&calls, self.phase / 4).await?;
        load::send(self.bare.address, &calls, self.phase / 4).await?;
        let (mut bare, mut alone, start) = (Sent::default(), 0.0, self.written().await?);
        for phase in 1..=PHASES {
            let before = self.written().await?;
            self.rollhook.load(&calls, self.phase, &format!("{name} {phase}")).await?;
            let shape = Shape::of(before, self.written().await?);
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
            let rate = self.alone.write(keyed, &shape, self.phase)?;
            eprintln!("{name} {phase}: SQLite alone {rate:.0}/s");
            alone += rate / PHASES as f64;
        }
        let mut ours = self.rollhook.total().await?;
        let rate = ours.per_second();
        let baseline = format!("bare: {}; load's processor time {:.0} %", bare.summary(), bare.cpu_share());
        let Shape { commits_per_deploy, commits_per_transaction } = Shape::of(start, self.written().await?);
        let measured =
            format!("{rate:.0}/s, {commits_per_deploy:.2} commits each, {commits_per_transaction:.0} per transaction");
        let own = format!("SQLite's own rate for the same rows in transactions of the same size: {alone:.0}/s");
        Ok(vec![
            // A server that stores nothing has no place for a target: SQLite's own rate may lie below any share of it.
            Row {
                target: "–".to_owned(),
                met: None,
                ..Row::share(name, ours.summary(), baseline, rate / bare.per_second(), 0.0)
            },
            Row::share(&format!("{name}, beside SQLite"), measured, own, rate / alone, TARGET),
        ])
    }

    /// Counts the deploys, the commits of apps, and the transactions of the file so far.
    async fn written(&self) -> Result<[u64; 3], Failure> {
        let (stored, file) = (&self.rollhook.stored, self.fixture.database());
        Ok([stored.totals().await?.deploys, stored.commits().await?, sqlite::transactions(&file)?])
    }
}
