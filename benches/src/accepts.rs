//! Accepted deploys per second: 64 connections, 1,000 apps, SQLite, and the engine driving each to its end, beside a
//! server that only answers.

use std::{env, path::Path, time::Duration};

use crate::{
    Failure,
    ledger::Ledger,
    load::{self, Calls, Sent},
    place::Place,
    process::Process,
    seed::{self, Target},
    subject::Subject,
    table::Row,
};

/// A share of the bare rate.
const TARGET: f64 = 0.15;
const PHASES: usize = 3;

/// Two rows: calls without a key, as a plain `curl` sends, and with one of its own each, as our snippets send.
pub(crate) async fn run(server: &Path, quick: bool) -> Result<Vec<Row>, Failure> {
    let (apps, phase) = if quick { (100, Duration::from_secs(1)) } else { (1000, Duration::from_secs(4)) };
    let place = Place::new()?;
    place.admin_token(server)?;
    let targets = seed::apps(&*place.open().await?, "load", 0..apps).await?;
    let bare = Process::start(&env::current_exe()?, &["bare".to_owned()], &[], Path::new("/dev/null")).await?;
    let rollhook = Subject::new(place.serve(server, "simulated:0ms").await?, Ledger::Sqlite(place.connection()?));
    let mut bench = Bench { rollhook, bare, phase };
    let rows = vec![bench.measure(&targets, false).await?, bench.measure(&targets, true).await?];
    bench.rollhook.stop().await?;
    bench.bare.stop().await?;
    Ok(rows)
}

struct Bench {
    rollhook: Subject,
    bare: Process,
    phase: Duration,
}

impl Bench {
    async fn measure(&mut self, targets: &[Target], keyed: bool) -> Result<Row, Failure> {
        let name = if keyed { "accepts with a key each" } else { "accepts" };
        let calls = Calls::new(targets, keyed);
        self.rollhook.warm_up(&calls, self.phase / 4).await?;
        load::send(self.bare.address, &calls, self.phase / 4).await?;
        let mut bare = Sent::default();
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
        }
        let mut ours = self.rollhook.total();
        let baseline = format!("bare: {}; load's processor time {:.0} %", bare.told(), bare.cpu_share());
        Ok(Row::share(name, ours.told(), baseline, ours.sent.per_second() / bare.per_second(), TARGET))
    }
}
