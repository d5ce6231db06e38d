//! Accepted deploys per second: 64 connections, 1,000 apps, SQLite, and the engine driving each to its end, beside a
//! server that only answers, and beside SQLite alone.

use std::{env, path::Path, time::Duration};

use crate::{
    Failure,
    load::{self, CONNECTIONS, Calls, Sent},
    place::Place,
    process::Process,
    seed::{self, Target},
    sqlite::Alone,
    subject::Subject,
    table::Row,
};

/// A share of the bare rate.
const TARGET: f64 = 0.15;
const PHASES: usize = 3;

/// Two rows each, one per baseline: calls without a key, as a plain `curl` sends, and with one of its own each, as our snippets send.
pub(crate) async fn run(server: &Path, quick: bool) -> Result<Vec<Row>, Failure> {
    let (apps, phase) = if quick { (100, Duration::from_secs(1)) } else { (1000, Duration::from_secs(4)) };
    let place = Place::new()?;
    place.admin_token(server)?;
    let targets = seed::apps(&*place.open().await?, "load", 0..apps).await?;
    let bare = Process::start(&env::current_exe()?, &["bare".to_owned()], &[], Path::new("/dev/null")).await?;
    let rollhook = Subject::new(place.serve(server, "simulated:0ms").await?, place.open().await?);
    let alone = Alone::new(&place.path("alone.db"), &targets)?;
    let mut bench = Bench { rollhook, bare, alone, phase };
    let mut rows = bench.measure(&targets, false).await?;
    rows.extend(bench.measure(&targets, true).await?);
    bench.rollhook.stop().await?;
    bench.bare.stop().await?;
    Ok(rows)
}

struct Bench {
    rollhook: Subject,
    bare: Process,
    alone: Alone,
    phase: Duration,
}

impl Bench {
    async fn measure(&mut self, targets: &[Target], keyed: bool) -> Result<Vec<Row>, Failure> {
        let name = if keyed { "accepts with a key each" } else { "accepts" };
        let calls = Calls::new(targets, keyed);
        self.rollhook.warm_up(&calls, self.phase / 4).await?;
        load::send(self.bare.address, &calls, self.phase / 4).await?;
        self.alone.write(keyed, self.phase / 4)?;
        let (mut bare, mut alone) = (Sent::default(), 0.0);
        for phase in 1..=PHASES {
            self.rollhook.load(&calls, self.phase, &format!("{name} {phase}")).await?;
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
            let rate = self.alone.write(keyed, self.phase)?;
            eprintln!("{name} {phase}: SQLite alone {rate:.0}/s");
            alone += rate / PHASES as f64;
        }
        let mut ours = self.rollhook.total().await?;
        let baseline = format!("bare: {}; load's processor time {:.0} %", bare.told(), bare.cpu_share());
        let rate = ours.sent.per_second();
        Ok(vec![
            Row::share(name, ours.told(), baseline, rate / bare.per_second(), TARGET),
            Row {
                name: format!("{name}, beside SQLite"),
                measured: format!("{rate:.0}/s"),
                baseline: format!("SQLite's own rate for the same rows in groups of {CONNECTIONS}: {alone:.0}/s"),
                ratio: format!("{:.1} %", 100.0 * rate / alone),
                target: "–".to_owned(),
                met: None,
            },
        ])
    }
}
