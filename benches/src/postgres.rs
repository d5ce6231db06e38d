//! Accepted deploys per second on PostgreSQL, with the engine driving each to its end, beside `pgbench` on the same
//! server.

use std::{path::Path, time::Duration};

use crate::{
    Failure,
    bed::Postgres,
    load::Calls,
    pgbench::{Bare, Ran},
    place::Place,
    seed,
    subject::Subject,
    table::Row,
};

/// A share of the rate of `pgbench`.
const TARGET: f64 = 1.0;
const PHASES: usize = 3;

/// Two rows: calls without a key, and with one of its own each.
pub(crate) async fn run(server: &Path, quick: bool) -> Result<Vec<Row>, Failure> {
    let bed = match Postgres::start() {
        Ok(bed) => bed,
        Err(why) => return Ok(vec![Row::absent("accepts on PostgreSQL", &format!("not measured: {why}"))]),
    };
    let (apps, phase) = if quick { (100, Duration::from_secs(1)) } else { (1000, Duration::from_secs(5)) };
    let (url, bare) = (bed.database("rollhook").await?, bed.database("bare").await?);
    let place = Place::postgres(url)?;
    place.admin_token(server)?;
    let targets = seed::apps(&*place.open().await?, "load", 0..apps).await?;
    let bare = Bare::new(bare).await?;
    let mut rollhook = Subject::new(place.serve(server, "simulated:0ms").await?, place.open().await?);
    let mut rows = Vec::new();
    for (keyed, name) in [(false, "accepts on PostgreSQL"), (true, "accepts on PostgreSQL with a key each")] {
        let calls = Calls::new(&targets, keyed);
        rollhook.warm_up(&calls, phase / 4).await?;
        bare.run(phase / 4).await?;
        let mut ran = Ran::default();
        for phase_number in 1..=PHASES {
            rollhook.load(&calls, phase, &format!("{name} {phase_number}")).await?;
            let bare = bare.run(phase).await?;
            eprintln!("{name} {phase_number}: {}", bare.told());
            ran.add(&bare);
        }
        let mut ours = rollhook.total().await?;
        let ratio = ours.sent.per_second() / ran.per_second();
        rows.push(Row::share(name, ours.told(), ran.told(), ratio, TARGET));
    }
    rollhook.stop().await?;
    Ok(rows)
}
