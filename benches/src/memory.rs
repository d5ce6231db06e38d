//! Resident memory with many apps and a long history, under accepts, page reads and open waits at the same time.

use std::{net::SocketAddr, path::Path, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    Failure,
    client::{self, Connection},
    fixture::Fixture,
    load::{self, Calls},
    pages,
    process::{Process, Resident},
    seed::{self, SeededApp},
    table::Row,
};

/// The most resident memory, in MiB.
const TARGET: u64 = 64;
const PAGES: u32 = 1000;

struct Size {
    apps: usize,
    entries: u32,
    waits: usize,
    time: Duration,
}

/// Returns two rows: the resident memory at the end of the load, and its peak.
pub(crate) async fn run(server: &Path, quick: bool) -> Result<Vec<Row>, Failure> {
    let size = if quick {
        Size { apps: 1000, entries: 100, waits: 100, time: Duration::from_secs(3) }
    } else {
        Size { apps: 10_000, entries: 100, waits: 1000, time: Duration::from_secs(60) }
    };
    let fixture = Fixture::sqlite()?;
    let admin = fixture.admin_token(server)?;
    let store = fixture.open().await?;
    let start = Instant::now();
    let apps = seed::apps(&*store, "load", 0..size.apps).await?;
    seed::histories(&*store, &apps, size.entries).await?;
    drop(store);
    eprintln!("memory: seeded in {:.0} s", start.elapsed().as_secs_f64());
    let rollhook = fixture.serve(server, "simulated:0ms").await?;
    let idle = rollhook.resident()?;
    let load = load_all(&rollhook, apps, &size, &admin).await?;
    let Resident { now, peak } = rollhook.resident()?;
    rollhook.stop().await?;
    let entries = size.apps as u64 * u64::from(size.entries);
    Ok(vec![
        row(
            &format!("memory with {} apps, {entries} entries", size.apps),
            format!("{} resident (at start {}); {load}", mib(now), mib(idle.now)),
            now,
        ),
        row("its peak", format!("{} at most", mib(peak)), peak),
    ])
}

/// Returns the row of a resident memory in KiB.
pub(crate) fn row(name: &str, measured: String, kib: u64) -> Row {
    Row {
        name: name.to_owned(),
        measured,
        baseline: format!("{TARGET} MiB"),
        ratio: format!("{:.2} ×", kib as f64 / (TARGET * 1024) as f64),
        target: "≤ 1 ×".to_owned(),
        met: Some(kib <= TARGET * 1024),
    }
}

/// Formats a size in KiB.
pub(crate) fn mib(kib: u64) -> String {
    format!("{:.1} MiB", kib as f64 / 1024.0)
}

/// Waits, posts and reads pages, all at the same time.
async fn load_all(rollhook: &Process, mut apps: Vec<SeededApp>, size: &Size, admin: &str) -> Result<String, Failure> {
    let address = rollhook.address;
    let waiting = apps.split_off(apps.len() - size.waits);
    hang(address, &waiting).await?;
    eprintln!("memory: {} with deploys that hang", mib(rollhook.resident()?.now));
    let end = Instant::now() + size.time;
    let hanging = u64::from(size.entries) + 1;
    let mut waits = JoinSet::new();
    for (delay, app) in (0..).map(Duration::from_millis).zip(waiting) {
        waits.spawn(async move {
            // All at once would be more connections of strangers than one address may have.
            sleep(delay).await;
            keep_waiting(address, app, hanging, end).await
        });
    }
    let calls = Calls::new(&apps, false);
    let accepts = load::send(address, &calls, size.time);
    let pages = read_pages(address, &apps, size, admin, end);
    let (mut sent, ()) = tokio::try_join!(accepts, pages)?;
    let resident = rollhook.resident()?;
    eprintln!("memory: {} with all waits open", mib(resident.now));
    let mut answered = 0;
    while let Some(wait) = waits.join_next().await {
        answered += wait??;
    }
    let rate = sent.summary();
    Ok(format!(
        "{} accepts ({rate}, {} refused), {PAGES} pages, {} open waits ({answered} answered)",
        sent.accepted, sent.refused, size.waits
    ))
}

/// Posts an image that never gets ready, so that calls can wait for the deploys.
async fn hang(address: SocketAddr, apps: &[SeededApp]) -> Result<(), Failure> {
    let mut connection = Connection::open(address).await?;
    for app in apps {
        let path = format!("/api/v1/webhook/{}", app.id);
        let body = r#"{"image":"registry.example.com/shop/hang:1"}"#;
        let request = client::request("POST", &path, &[("X-Service-Token", &app.token)], body);
        let status = connection.call(&request).await?;
        if status != 202 {
            return Err(format!("a call is answered {status}").into());
        }
    }
    Ok(())
}

/// Waits for a deploy again and again, and returns the number of answers. The last wait is dropped at the end of the
/// bench.
async fn keep_waiting(address: SocketAddr, app: SeededApp, revision: u64, end: Instant) -> Result<u64, Failure> {
    let mut connection = Connection::open(address).await?;
    let path = format!("/api/v1/apps/{}/deploys/{revision}", app.id);
    let headers = [("X-Service-Token", app.token.as_str()), ("Prefer", "wait=50")];
    let request = client::request("GET", &path, &headers, "");
    let mut answered = 0;
    loop {
        tokio::select! {
            status = connection.call(&request) => match status? {
                200 | 202 => answered += 1,
                status => return Err(format!("a wait is answered {status}").into()),
            },
            () = tokio::time::sleep_until(end + Duration::from_secs(1)) => return Ok(answered),
        }
    }
}

async fn read_pages(
    address: SocketAddr,
    apps: &[SeededApp],
    size: &Size,
    admin: &str,
    end: Instant,
) -> Result<(), Failure> {
    let mut connection = Connection::open(address).await?;
    for (app, read) in apps.iter().cycle().step_by(7).zip(0..PAGES) {
        let status = connection.call(&pages::page(app, u64::from(size.entries), admin)).await?;
        if status != 200 {
            return Err(format!("a page is answered {status}").into());
        }
        sleep(end.saturating_duration_since(Instant::now()) / (PAGES - read)).await;
    }
    Ok(())
}
