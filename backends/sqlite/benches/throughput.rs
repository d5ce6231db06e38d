//! How much a store takes; by hand, because a loaded machine says nothing:
//! `cargo bench -p rollhook-sqlite`

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rollhook_conformance::samples;
use rollhook_core::{
    app::{App, AppUid},
    deploy::{Deploy, State},
    ports::{Admission, Admitted, Apps, History, Page, Record, TokenStore},
    time::Timestamp,
};
use rollhook_sealing::KeyRing;
use rollhook_sqlite::SqliteStore;
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use zeroize::Zeroizing;

fn ring() -> KeyRing {
    KeyRing::from_keys([("k0001".parse().unwrap(), Zeroizing::new([7; 32]))]).unwrap()
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// Processor time of this process so far: says more than throughput on a machine that others use too.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u32 = fields[11].parse::<u32>().unwrap() + fields[12].parse::<u32>().unwrap();
    f64::from(ticks) / 100.0
}

/// One deploy: its token is looked up, it is accepted under a key, rolls out and succeeds.
async fn deploy(store: &SqliteStore, app: &App, number: usize) {
    assert!(TokenStore::find(store, &app.id).await.unwrap().is_some());
    let key = Some(samples::key(&format!("run-{number}"), 7));
    let admission = Admission { key, ..samples::admission(app, samples::draft(&format!("v{number}"))) };
    let Admitted::New { deploy, .. } = store.admit(admission).await.unwrap() else { unreachable!() };
    let since = Timestamp::from_millis(1);
    let rolling = Deploy { touched: true, ..deploy.moved(State::RollingOut { since, outage: Default::default() }) };
    record(store, app.uid, rolling.clone(), false).await;
    record(store, app.uid, rolling.moved(State::Succeeded { note: None }), true).await;
}

async fn record(store: &SqliteStore, app: AppUid, change: Deploy, rest: bool) {
    store.record(Record { app, claim: None, changes: vec![change], lift: Vec::new(), rest }).await.unwrap();
}

async fn measure(apps: usize, callers: usize, deploys: usize) {
    let place = tempfile::tempdir_in(std::env::var("THROUGHPUT_DIR").unwrap_or_else(|_| "/tmp".to_owned())).unwrap();
    let store = Arc::new(SqliteStore::open(place.path().join("store.db"), ring()).await.unwrap());
    let mut registered = Vec::new();
    for number in 0..apps {
        let app = store.create(samples::app("shop", "test", &format!("app-{number}"))).await.unwrap();
        store.put(app.uid, &samples::token(1)).await.unwrap();
        registered.push(app);
    }
    let registered = Arc::new(registered);
    let (started, commits, processor) = (Instant::now(), store.commits(), processor_seconds());
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let (store, registered) = (Arc::clone(&store), Arc::clone(&registered));
            tokio::spawn(async move {
                for number in 0..deploys / callers {
                    let number = number * callers + caller;
                    deploy(&store, &registered[number % apps], number).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let seconds = started.elapsed().as_secs_f64();
    let wal = std::fs::metadata(place.path().join("store.db-wal")).map_or(0, |file| file.len());
    println!(
        "{apps} apps, {callers} callers: {:.0} deploys/s (one accept and two records each), {:.1} writes per commit, \
         {:.1} ms and {:.0} µs of processor time per deploy, write-ahead log {} MiB, resident {} MiB",
        deploys as f64 / seconds,
        3.0 * deploys as f64 / (store.commits() - commits) as f64,
        seconds * 1000.0 * callers as f64 / deploys as f64,
        (processor_seconds() - processor) * 1e6 / deploys as f64,
        wal >> 20,
        resident_mib(),
    );
}

async fn deploys_per_second() {
    measure(1, 1, 500).await;
    measure(1, 64, 20_000).await;
    measure(200, 256, 40_000).await;
    measure(2000, 1000, 40_000).await;
}

/// A history of this many entries, one in a hundred of which succeeded, made from the first.
const FILL: &str = "
INSERT INTO deploys SELECT (d.id >> 32 << 32) + n.value, CASE n.value % 100 WHEN 0 THEN 3 ELSE 4 END, 2,
    json_set(d.body, '$.revision', n.value, '$.state', json_object('status', 'succeeded', 'note', null))
FROM (WITH RECURSIVE n (value) AS (SELECT 2 UNION ALL SELECT value + 1 FROM n WHERE value < 1000000)
      SELECT value FROM n) n, deploys d WHERE d.id & 0xffffffff = 1;
UPDATE heads SET last_revision = 1000000, current_revision = 1000000;";

async fn a_million_entries() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("store.db");
    let store = SqliteStore::open(&path, ring()).await.unwrap();
    let app = store.create(samples::app("shop", "test", "api")).await.unwrap();
    store.put(app.uid, &samples::token(1)).await.unwrap();
    deploy(&store, &app, 1).await;
    let mut connection = SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(&path)).await.unwrap();
    sqlx::raw_sql(FILL).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    println!("file of {} MiB", std::fs::metadata(&path).unwrap().len() >> 20);
    for (what, before, succeeded) in
        [("newest", None, false), ("middle", Some(500_000), false), ("succeeded", Some(500_000), true)]
    {
        let page = Page { before: before.map(samples::revision), succeeded, limit: 50 };
        let started = Instant::now();
        for _ in 0..200 {
            assert_eq!(store.page(app.uid, page).await.unwrap().len(), 50);
        }
        println!("page of 50, {what}: {:?}", started.elapsed() / 200);
    }
    for start in 0..200 {
        let before = Some(samples::revision(1_000_000 - 5000 * start));
        store.page(app.uid, Page { before, succeeded: false, limit: 400 }).await.unwrap();
    }
    let started = Instant::now();
    for number in 0..1000 {
        store.view(app.uid).await.unwrap();
        deploy(&store, &app, 10 + number).await;
    }
    println!("view and deploy: {:?}; resident {} MiB", started.elapsed() / 1000, resident_mib());
}

async fn two_processes_take_turns() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("store.db");
    let one = SqliteStore::open(&path, ring()).await.unwrap();
    let two = SqliteStore::open(&path, ring()).await.unwrap();
    let app = one.create(samples::app("shop", "test", "api")).await.unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    let load = |store: SqliteStore| {
        let app = app.clone();
        async move {
            let callers = (0..64).map(|_| async {
                let (mut done, mut refused, mut longest) = (0, 0, Duration::ZERO);
                while Instant::now() < until {
                    let started = Instant::now();
                    let accept = Admission { supersede: true, ..samples::admission(&app, samples::draft("v")) };
                    match store.admit(accept).await {
                        Ok(_) => done += 1,
                        Err(_) => refused += 1,
                    }
                    longest = longest.max(started.elapsed());
                }
                (done, refused, longest)
            });
            let sums = futures_util::future::join_all(callers).await;
            sums.into_iter().fold((0, 0, Duration::ZERO), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2.max(one.2)))
        }
    };
    let (one, two) = tokio::join!(tokio::spawn(load(one)), tokio::spawn(load(two)));
    println!("accepted, refused, longest wait: {:?} and {:?}", one.unwrap(), two.unwrap());
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    deploys_per_second().await;
    a_million_entries().await;
    two_processes_take_turns().await;
}
