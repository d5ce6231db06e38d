//! How much the store takes, beside SQLite alone with the same rows; by hand, because a loaded machine says nothing:
//! `cargo bench -p rollhook-sqlite`

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

mod bare;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bare::Bare;
use futures_util::future::join_all;
use rollhook_conformance::{client, samples};
use rollhook_core::{
    deploy::{Deploy, State},
    ledger::{AppState, Change, Record},
    ports::{AppCommit, AppRef, HistoryStore, Page, TokenStore, Version},
    replica::ReplicaId,
    time::Timestamp,
};
use rollhook_sealing::KeyRing;
use rollhook_sqlite::SqliteStore;
use tempfile::TempDir;

const APPS: usize = 2000;

fn place() -> TempDir {
    tempfile::tempdir_in(std::env::var("THROUGHPUT_DIR").unwrap_or_else(|_| "/tmp".to_owned())).unwrap()
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// An app as its driver knows it.
struct App {
    state: AppState,
    version: Version,
}

/// The steps of a deploy, each of which is a commit: it is accepted under a key, rolls out, and succeeds.
const STEPS: [fn(&mut Change, usize, Timestamp); 3] = [accept, roll_out, succeed];

fn accept(change: &mut Change, number: usize, now: Timestamp) {
    let key = samples::key(&format!("https://ci.example.com/jobs/{number}/attempts/1"), 7);
    let driver = Some(ReplicaId { name: "rollhook-0".to_owned(), boot: 0x1234_5678_9abc_def0 });
    let admission = samples::keyed(key, samples::deploy(&format!("v{number}")));
    samples::admit(change, rollhook_core::ledger::Admission { driver, ..admission }, now);
}

fn roll_out(change: &mut Change, _: usize, now: Timestamp) {
    let record = |deploy: &Deploy| Deploy { touched: true, ..deploy.moved(samples::rolling_out(deploy)) };
    let changes = change.state.unfinished.iter().map(|deploy| record(deploy)).collect();
    change.record(Record { changes, ..Record::default() }, now).unwrap();
}

fn succeed(change: &mut Change, _: usize, now: Timestamp) {
    let succeeded = State::Succeeded { note: None };
    let record = |deploy: &Deploy| Deploy { digest: Some(samples::digest(1)), ..deploy.moved(succeeded.clone()) };
    let changes = change.state.unfinished.iter().map(|deploy| record(deploy)).collect();
    change.record(Record { changes, idle: true, ..Record::default() }, now).unwrap();
}

async fn register(store: &SqliteStore, apps: usize) -> Vec<App> {
    let mut registered = Vec::new();
    for number in 0..apps {
        let loaded = client::register(store, samples::app("shop", "test", &format!("app-{number}"))).await;
        registered.push(App { state: loaded.state, version: loaded.version });
    }
    registered
}

/// Writes deploys in groups of this many apps through the store and through SQLite alone, in turns.
async fn groups(size: usize, deploys: usize) {
    let (place, other) = (place(), place());
    let store = SqliteStore::open(place.path().join("store.db"), KeyRing::of_key([7; 32])).await.unwrap();
    let mut apps = register(&store, APPS).await;
    register(&SqliteStore::open(other.path().join("store.db"), KeyRing::of_key([7; 32])).await.unwrap(), APPS).await;
    let mut bare = Bare::open(&other.path().join("store.db"));
    let (mut ours, mut theirs) = (Duration::ZERO, Duration::ZERO);
    let mut done = 0;
    while done < deploys {
        // A prime's multiples: the apps of a group lie anywhere in the file.
        let group: Vec<usize> = (done..done + size).map(|number| number * 7919 % APPS).collect();
        for step in STEPS {
            let change = |(at, app): (usize, &usize)| {
                let mut change = Change::on(apps[*app].state.clone());
                step(&mut change, done + at, Timestamp::from_millis(1_800_000_000_000));
                client::put(change, apps[*app].version)
            };
            let commits: Vec<AppCommit> = group.iter().enumerate().map(change).collect();
            let rows = bare.encode(&commits);
            let states = commits.iter().map(state).collect::<Vec<_>>();
            let started = Instant::now();
            let answers = store.commit(commits).await;
            ours += started.elapsed();
            let started = Instant::now();
            bare.commit(&rows);
            theirs += started.elapsed();
            for ((app, state), answer) in group.iter().zip(states).zip(answers) {
                apps[*app] = App { state, version: answer.unwrap().version };
            }
        }
        done += size;
    }
    let rate = |time: Duration| done as f64 / time.as_secs_f64();
    println!(
        "groups of {size:>3}: {:>6.0} deploys/s ({:.1} µs per commit of an app), SQLite alone {:>6.0}: {:.2}; resident {} MiB",
        rate(ours),
        ours.as_secs_f64() * 1e6 / (3 * done) as f64,
        rate(theirs),
        rate(ours) / rate(theirs),
        resident_mib()
    );
}

fn state(commit: &AppCommit) -> AppState {
    commit.change().unwrap().state.clone()
}

/// Reads as requests make them.
async fn reads() {
    let place = place();
    let store = Arc::new(SqliteStore::open(place.path().join("store.db"), KeyRing::of_key([7; 32])).await.unwrap());
    let apps = register(&store, APPS).await;
    for app in &apps {
        store.put(app.state.app.uid, &samples::token(1)).await.unwrap();
    }
    let apps = Arc::new(apps);
    for callers in [1, 64] {
        for (what, load) in [("token", false), ("app", true)] {
            let started = Instant::now();
            let tasks = (0..callers).map(|caller| {
                let (store, apps) = (Arc::clone(&store), Arc::clone(&apps));
                tokio::spawn(async move {
                    for number in 0..20_000 / callers {
                        let app = &apps[(number * 64 + caller) * 7919 % APPS].state.app;
                        if load {
                            assert!(store.load(AppRef::Uid(app.uid), None).await.unwrap().is_some());
                        } else {
                            assert!(TokenStore::find(&*store, &app.id).await.unwrap().is_some());
                        }
                    }
                })
            });
            join_all(tasks).await;
            println!("{callers} callers: a read of a {what} every {:?}", started.elapsed() / 20_000);
        }
    }
}

async fn a_million_deploys() {
    let place = place();
    let path = place.path().join("store.db");
    let store = SqliteStore::open(&path, KeyRing::of_key([7; 32])).await.unwrap();
    let mut apps = register(&store, 1).await;
    let uid = apps.remove(0).state.app.uid;
    for step in STEPS {
        client::change(&store, uid, |change, now| step(change, 1, now)).await;
    }
    bare::fill(&path);
    println!("file of {} MiB", std::fs::metadata(&path).unwrap().len() >> 20);
    for (what, before, succeeded) in
        [("newest", None, false), ("middle", Some(500_000), false), ("succeeded", Some(500_000), true)]
    {
        let page = Page::newest(50).below(before.map(samples::revision)).succeeded(succeeded);
        let started = Instant::now();
        for _ in 0..200 {
            assert_eq!(store.page(uid, page).await.unwrap().len(), 50);
        }
        println!("page of 50, {what}: {:?}; resident {} MiB", started.elapsed() / 200, resident_mib());
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    for (size, deploys) in [(1, 500), (16, 8_000), (128, 25_600), (512, 51_200)] {
        groups(size, deploys).await;
    }
    reads().await;
    a_million_deploys().await;
}
