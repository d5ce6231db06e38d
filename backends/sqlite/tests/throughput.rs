//! How much a store takes; by hand, because a loaded machine says nothing:
//! `cargo test --release -p rollhook-sqlite --test throughput -- --ignored --nocapture`

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::{sync::Arc, time::Instant};

use rollhook_conformance::samples;
use rollhook_core::{
    app::{App, AppUid},
    deploy::{Deploy, State},
    ports::{Admission, Admitted, Apps, History, Record, Tokens},
    time::Timestamp,
};
use rollhook_sealing::KeyRing;
use rollhook_sqlite::SqliteStore;
use zeroize::Zeroizing;

fn ring() -> KeyRing {
    KeyRing::from_keys([("k0001".parse().unwrap(), Zeroizing::new([7; 32]))]).unwrap()
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// One deploy: its token is looked up, it is accepted under a key, rolls out and succeeds.
async fn deploy(store: &SqliteStore, app: &App, number: usize) {
    assert!(Tokens::find(store, &app.id).await.unwrap().is_some());
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
    let (started, commits) = (Instant::now(), store.commits());
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
         {:.1} ms per deploy, write-ahead log {} MiB, resident {} MiB",
        deploys as f64 / seconds,
        3.0 * deploys as f64 / (store.commits() - commits) as f64,
        seconds * 1000.0 * callers as f64 / deploys as f64,
        wal >> 20,
        resident_mib(),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn deploys_per_second() {
    measure(1, 1, 500).await;
    measure(1, 64, 20_000).await;
    measure(200, 256, 40_000).await;
    measure(2000, 1000, 40_000).await;
}
