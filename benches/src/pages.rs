//! A page amid a history of 1,000,000 deploys, beside a page amid 1,000: the cost must not grow with the history.

use std::{path::Path, time::Duration};

use tokio::time::Instant;

use crate::{
    Failure,
    client::{self, Connection},
    fixture::Fixture,
    seed::{self, SeededApp},
    table::{Row, median},
};

/// A multiple of the time with the short history.
const TARGET: f64 = 2.0;
const READS: u32 = 200;

pub(crate) async fn run(server: &Path, quick: bool) -> Result<Row, Failure> {
    let (long, short) = if quick { (50_000, 1000) } else { (1_000_000, 1000) };
    let fixture = Fixture::sqlite()?;
    let admin = fixture.admin_token(server)?;
    let store = fixture.open().await?;
    let mut apps = Vec::new();
    for (name, length) in [("long", long), ("short", short)] {
        let app = seed::app(&*store, "pages", "test", name).await?;
        seed::histories(&*store, std::slice::from_ref(&app), length).await?;
        apps.push((app, length));
    }
    drop(store);
    let rollhook = fixture.serve(server, "simulated:0ms").await?;
    let mut client = Connection::open(rollhook.address).await?;
    let mut times = vec![Vec::new(), Vec::new()];
    for read in 0..READS {
        for ((app, length), times) in apps.iter().zip(&mut times) {
            // Around the middle, each read at another place.
            let before = length / 2 + (read * 37) % (length / 10);
            let request = page(app, u64::from(before), &admin);
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
    let time_amid = |time: Duration, length: u32| format!("{:.2} ms amid {length}", time.as_secs_f64() * 1000.0);
    Ok(Row {
        name: format!("page of 50, median of {READS}"),
        measured: time_amid(ours, long),
        baseline: time_amid(baseline, short),
        ratio: format!("{ratio:.2} ×"),
        target: format!("≤ {TARGET} ×"),
        met: Some(ratio <= TARGET),
    })
}

/// Returns a request for the 50 deploys before a revision.
pub(crate) fn page(app: &SeededApp, before: u64, admin: &str) -> Vec<u8> {
    let path = format!("/api/v1/apps/{}/deploys?limit=50&before={before}", app.id);
    client::request("GET", &path, &[("Authorization", &format!("Bearer {admin}"))], "")
}
