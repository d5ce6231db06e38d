//! Accepted and driven deploys per second on PostgreSQL, beside `pgbench` on the same server.

use std::{path::Path, time::Duration};

use crate::{
    Failure,
    bed::Postgres,
    fixture::Fixture,
    load::Calls,
    pgbench::{Bare, Ran},
    seed,
    subject::Subject,
    table::Row,
};

/// A multiple of the rate of `pgbench`.
const TARGET: f64 = 2.0;
const PHASES: usize = 3;

/// Returns two rows: calls without a key, and with a key each.
pub(crate) async fn run(server: &Path, quick: bool) -> Result<Vec<Row>, Failure> {
    let bed = match Postgres::start() {
        Ok(bed) => bed,
        Err(why) => return Ok(vec![Row::absent("accepts on PostgreSQL", &format!("not measured: {why}"))]),
    };
    let (count, phase) = if quick { (100, Duration::from_secs(1)) } else { (1000, Duration::from_secs(5)) };
    let (url, bare) = (bed.database("rollhook").await?, bed.database("bare").await?);
    let fixture = Fixture::postgres(url)?;
    fixture.admin_token(server)?;
    let apps = seed::apps(&*fixture.open().await?, "load", 0..count).await?;
    let bare = Bare::new(bare).await?;
    let mut rollhook = Subject::new(fixture.serve(server, "simulated:0ms").await?, fixture.open().await?);
    let mut rows = Vec::new();
    for (keyed, name) in [(false, "accepts on PostgreSQL"), (true, "accepts on PostgreSQL with a key each")] {
        let calls = Calls::new(&apps, keyed);
        rollhook.warm_up(&calls, phase / 4).await?;
        bare.warm_up(phase / 4).await?;
        let mut ran = Ran::default();
        for phase_number in 1..=PHASES {
            rollhook.load(&calls, phase, &format!("{name} {phase_number}")).await?;
            let bare = bare.run(phase).await?;
            eprintln!("{name} {phase_number}: {}", bare.summary());
            ran.add(&bare);
        }
        let mut ours = rollhook.total().await?;
        let ratio = ours.per_second() / ran.per_second();
        rows.push(Row::share(name, ours.summary(), ran.summary(), ratio, TARGET));
    }
    rollhook.server.stop().await?;
    Ok(rows)
}
