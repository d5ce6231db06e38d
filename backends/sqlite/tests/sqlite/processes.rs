//! Several processes on one file: locks, ends, and hints of what others committed.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, future::join_all};
use rollhook_conformance::{client, samples};
use rollhook_core::{
    ledger::Change,
    ports::{AppChange, Committed, HistoryStore, HistoryStoreExt},
    time::Timestamp,
};
use rollhook_sqlite::SqliteStore;
use rusqlite::Connection;

use crate::{accept, file, open, ring, with_app};

#[tokio::test]
async fn new_file_is_opened_by_several_at_once() {
    let place = tempfile::tempdir().unwrap();
    let stores = join_all((0..8).map(|_| open(&place))).await;
    client::register(&stores[0], samples::app("shop", "test", "api")).await;
    for store in &stores {
        client::load(store, samples::app("shop", "test", "api").uid).await;
    }
}

#[tokio::test]
async fn lock_of_another_process_is_unavailable_until_it_is_released() {
    let place = tempfile::tempdir().unwrap();
    let (store, loaded) = with_app(&place).await;
    let other = Connection::open(file(&place)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = store.commit_one(accept(&loaded)).await.unwrap_err();
    assert!(refused.is_unavailable() && refused.to_string().contains("locked"), "{refused:?}");
    assert_eq!(client::load(&store, loaded.state.app.uid).await.version, loaded.version, "reads go on");
    let waiting = store.commit_one(accept(&loaded));
    let release = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        other.execute_batch("ROLLBACK").unwrap();
    };
    assert!(tokio::join!(waiting, release).0.is_ok());
}

const CHILD: &str = "ROLLHOOK_SQLITE_CHILD";

/// Commits to the app again and again, and prints each version once it was answered.
async fn commit_for_ever(path: &Path) {
    let store = SqliteStore::open(path, ring(1)).await.unwrap();
    let app = samples::app("shop", "test", "child").uid;
    loop {
        let release = |change: &mut Change, now: Timestamp| change.lease(&samples::replica("child", 1), now);
        let (_, Committed { version, .. }) = client::change(&store, app, release).await;
        println!("\nversion {}", version.0);
    }
}

#[tokio::test]
async fn killed_process_keeps_what_it_answered_and_leaves_others_alone() {
    if let Some(path) = std::env::var_os(CHILD) {
        return commit_for_ever(path.as_ref()).await;
    }
    let place = tempfile::tempdir().unwrap();
    let (store, mut own) = with_app(&place).await;
    let child = client::register(&store, samples::app("shop", "test", "child")).await;
    for _ in 0..3 {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "processes::killed_process_keeps_what_it_answered_and_leaves_others_alone",
                "--nocapture",
            ])
            .env(CHILD, file(&place))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut answers = lines.filter_map(|line| line.strip_prefix("version ")?.parse::<u64>().ok());
        let mut answered = 0;
        for _ in 0..20 {
            answered = answers.next().unwrap();
            let committed = store.commit_one(accept(&own)).await.unwrap();
            assert_eq!(committed.version.0, own.version.0 + 1);
            own = client::load(&store, own.state.app.uid).await;
        }
        process.kill().unwrap();
        process.wait().unwrap();
        answered = answers.last().unwrap_or(answered);
        let stored = client::load(&store, child.state.app.uid).await.version.0;
        assert!((answered..=answered + 1).contains(&stored), "{answered} was answered, {stored} is stored");
    }
}

#[tokio::test]
async fn commits_of_other_processes_are_told() {
    let place = tempfile::tempdir().unwrap();
    let (one, loaded) = with_app(&place).await;
    let two = open(&place).await;
    let mut changes = one.watch();
    tokio::time::sleep(Duration::from_millis(500)).await;
    while changes.next().now_or_never().is_some() {}
    let Committed { version, .. } = one.commit_one(accept(&loaded)).await.unwrap();
    assert_eq!(changes.next().await, Some(AppChange::App(loaded.state.app.uid, version)));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(changes.next().now_or_never(), None, "a store's own commits are told once");
    two.commit_one(accept(&client::load(&two, loaded.state.app.uid).await)).await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(10), changes.next()).await;
    assert_eq!(told.unwrap(), Some(AppChange::Any));
}
