//! Resident memory with many apps, a long history, and everything going on at once.

use std::{net::SocketAddr, path::Path, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    Failure,
    client::{self, Connection},
    load::{self, Calls},
    pages,
    place::Place,
    process::{Process, Resident},
    seed::{self, Target},
    table::Row,
};

/// In MiB.
const TARGET: u64 = 64;
const PAGES: u32 = 1000;

struct Size {
    apps: usize,
    entries: u32,
    waits: usize,
    time: Duration,
}

/// Two rows: what is resident at the end of the load, and the most that ever was.
pub(crate) async fn run(server: &Path, quick: bool) -> Result<Vec<Row>, Failure> {
    let size = if quick {
        Size { apps: 1000, entries: 100, waits: 100, time: Duration::from_secs(3) }
    } else {
        Size { apps: 10_000, entries: 100, waits: 1000, time: Duration::from_secs(60) }
    };
    let place = Place::new()?;
    let admin = place.admin_token(server)?;
    let store = place.sqlite().await?;
    let start = Instant::now();
    let targets = seed::apps(&store, "load", 0..size.apps).await?;
    seed::histories(&store, &place.connection()?, &targets, size.entries).await?;
    drop(store);
    eprintln!("memory: seeded in {:.0} s", start.elapsed().as_secs_f64());
    let rollhook = place.serve(server, "simulated:0ms").await?;
    let idle = rollhook.resident()?;
    let told = load_all(&rollhook, targets, &size, &admin).await?;
    let Resident { now, peak } = rollhook.resident()?;
    rollhook.stop().await?;
    let mib = |kib: u64| format!("{:.1} MiB", kib as f64 / 1024.0);
    let row = |name: &str, measured: String, kib: u64| Row {
        name: name.to_owned(),
        measured,
        baseline: format!("{TARGET} MiB"),
        ratio: format!("{:.2} ×", kib as f64 / (TARGET * 1024) as f64),
        target: "≤ 1 ×".to_owned(),
        met: Some(kib <= TARGET * 1024),
    };
    let entries = size.apps as u64 * u64::from(size.entries);
    Ok(vec![
        row(
            &format!("memory with {} apps, {entries} entries", size.apps),
            format!("{} resident (at start {}); {told}", mib(now), mib(idle.now)),
            now,
        ),
        row("its peak", format!("{} at most", mib(peak)), peak),
    ])
}

/// Waits, accepts and page reads, all at the same time.
async fn load_all(rollhook: &Process, mut targets: Vec<Target>, size: &Size, admin: &str) -> Result<String, Failure> {
    let address = rollhook.address;
    let end = Instant::now() + size.time;
    let waited_for = targets.split_off(targets.len() - size.waits);
    hang(address, &waited_for).await?;
    let mut waits = JoinSet::new();
    for target in waited_for {
        waits.spawn(keep_waiting(address, target, u64::from(size.entries) + 1, end));
    }
    let calls = Calls::new(&targets, false);
    let accepts = load::send(address, &calls, size.time);
    let pages = read_pages(address, &targets, size, admin, end);
    let (mut sent, ()) = tokio::try_join!(accepts, pages)?;
    let resident = rollhook.resident()?;
    eprintln!("memory: {} KiB with all waits open", resident.now);
    let mut answered = 0;
    while let Some(wait) = waits.join_next().await {
        answered += wait??;
    }
    let rate = sent.told();
    Ok(format!(
        "{} accepts ({rate}, {} refused), {PAGES} pages, {} open waits ({answered} answered)",
        sent.accepted, sent.refused, size.waits
    ))
}

/// Deploys what never gets ready, so that there is something to wait for.
async fn hang(address: SocketAddr, targets: &[Target]) -> Result<(), Failure> {
    let mut connection = Connection::open(address).await?;
    for target in targets {
        let path = format!("/api/v1/webhook/{}", target.app);
        let body = r#"{"image":"registry.example.com/shop/hang:1"}"#;
        let request = client::request("POST", &path, &[("X-Service-Token", &target.token)], body);
        let status = connection.call(&request).await?;
        if status != 202 {
            return Err(format!("a call is answered {status}").into());
        }
    }
    Ok(())
}

/// Waits for a deploy again and again; returns how often it was answered. A wait that outlasts the bench is given up.
async fn keep_waiting(address: SocketAddr, target: Target, revision: u64, end: Instant) -> Result<u64, Failure> {
    let mut connection = Connection::open(address).await?;
    let path = format!("/api/v1/apps/{}/deploys/{revision}", target.app);
    let headers = [("X-Service-Token", target.token.as_str()), ("Prefer", "wait=50")];
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
    targets: &[Target],
    size: &Size,
    admin: &str,
    end: Instant,
) -> Result<(), Failure> {
    let mut connection = Connection::open(address).await?;
    for (target, read) in targets.iter().cycle().step_by(7).zip(0..PAGES) {
        let status = connection.call(&pages::page(target, u64::from(size.entries), admin)).await?;
        if status != 200 {
            return Err(format!("a page is answered {status}").into());
        }
        sleep(end.saturating_duration_since(Instant::now()) / (PAGES - read)).await;
    }
    Ok(())
}
