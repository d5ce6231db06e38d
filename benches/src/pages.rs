//! A history page in the middle of 1,000,000 entries, beside one of 1,000: its cost must not grow with the history.

use std::{path::Path, time::Duration};

use tokio::time::Instant;

use crate::{
    Failure,
    client::{self, Connection},
    place::Place,
    seed::{self, Target},
    table::{Row, median},
};

/// A multiple of the short history's.
const TARGET: f64 = 2.0;
const READS: u32 = 200;

pub(crate) async fn run(server: &Path, quick: bool) -> Result<Row, Failure> {
    let (long, short) = if quick { (50_000, 1000) } else { (1_000_000, 1000) };
    let place = Place::new()?;
    let admin = place.admin_token(server)?;
    let store = place.sqlite().await?;
    let connection = place.connection()?;
    let mut targets = Vec::new();
    for (name, length) in [("long", long), ("short", short)] {
        let target = seed::app(&store, "pages", "test", name).await?;
        seed::histories(&store, &connection, std::slice::from_ref(&target), length).await?;
        targets.push((target, length));
    }
    drop((store, connection));
    let rollhook = place.serve(server, "simulated:0ms").await?;
    let mut client = Connection::open(rollhook.address).await?;
    let mut times = vec![Vec::new(), Vec::new()];
    for read in 0..READS {
        for ((target, length), times) in targets.iter().zip(&mut times) {
            // Around the middle, so that not every read finds the same entries at hand.
            let before = length / 2 + (read * 37) % (length / 10);
            let request = page(target, u64::from(before), &admin);
            let start = Instant::now();
            let status = client.call(&request).await?;
            times.push(start.elapsed());
            let entries = client.body().windows(10).filter(|window| window == b"\"revision\"").count();
            if status != 200 || entries < 50 {
                return Err(format!("a page is answered {status}, with {entries} entries").into());
            }
        }
    }
    rollhook.stop().await?;
    let (ours, baseline) = (median(&mut times[0]), median(&mut times[1]));
    let ratio = ours.as_secs_f64() / baseline.as_secs_f64();
    let told = |time: Duration, length: u32| format!("{:.2} ms amid {length}", time.as_secs_f64() * 1000.0);
    Ok(Row {
        name: format!("page of 50, median of {READS}"),
        measured: told(ours, long),
        baseline: told(baseline, short),
        ratio: format!("{ratio:.2} ×"),
        target: format!("≤ {TARGET} ×"),
        met: Some(ratio <= TARGET),
    })
}

/// A read of the 50 entries before a revision.
pub(crate) fn page(target: &Target, before: u64, admin: &str) -> Vec<u8> {
    let path = format!("/api/v1/apps/{}/deploys?limit=50&before={before}", target.app);
    client::request("GET", &path, &[("Authorization", &format!("Bearer {admin}"))], "")
}
