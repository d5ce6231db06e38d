//! Accepted deploys per second on PostgreSQL, with the engine driving each to its end, beside `pgbench` on the same server
//! sending the statements of an accept alone.

use std::{path::Path, time::Duration};

use crate::{
    Failure,
    bed::Postgres,
    ledger::Ledger,
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
/// The script of `pgbench` makes the names of apps from numbers with as many digits as this.
const FIRST: usize = 10_000;

/// Two rows: calls without a key, and with one of its own each.
pub(crate) async fn run(server: &Path, quick: bool) -> Result<Vec<Row>, Failure> {
    let bed = match Postgres::start() {
        Ok(bed) => bed,
        Err(why) => return Ok(vec![Row::absent("accepts on PostgreSQL", &format!("not measured: {why}"))]),
    };
    let (apps, phase) = if quick { (100, Duration::from_secs(1)) } else { (1000, Duration::from_secs(5)) };
    let (url, bare) = (bed.database("rollhook").await?, bed.database("bare").await?);
    let place = Place::postgres(url.clone())?;
    place.admin_token(server)?;
    let targets = seed::apps(&*place.open().await?, "load", FIRST..FIRST + apps).await?;
    seed::apps(&*Place::postgres(bare.clone())?.open().await?, "load", FIRST..FIRST + apps).await?;
    let mut bare = Bare::new(bare, apps).await?;
    let mut rollhook = Subject::new(place.serve(server, "simulated:0ms").await?, Ledger::postgres(&url).await?);
    let mut rows = Vec::new();
    for (keyed, name) in [(false, "accepts on PostgreSQL"), (true, "accepts on PostgreSQL with a key each")] {
        let calls = Calls::new(&targets, keyed);
        rollhook.warm_up(&calls, phase / 4).await?;
        bare.run(keyed, phase / 4).await?;
        let mut ran = Ran::default();
        for phase_number in 1..=PHASES {
            rollhook.load(&calls, phase, &format!("{name} {phase_number}")).await?;
            let bare = bare.run(keyed, phase).await?;
            eprintln!("{name} {phase_number}: {}", bare.told());
            ran.add(&bare);
        }
        let mut ours = rollhook.total();
        let ratio = ours.sent.per_second() / ran.per_second();
        rows.push(Row::share(name, ours.told(), ran.told(), ratio, TARGET));
    }
    rollhook.stop().await?;
    Ok(rows)
}
