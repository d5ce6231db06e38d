//! Writes that are spared, and rows that are deleted.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use rollhook_conformance::{client, samples};
use rollhook_core::{
    app::App,
    ports::{HistoryStore, WallClock, steady},
    time::Timestamp,
};
use rollhook_management::ports::{NewRecord, RecordKind, RecordStore};
use rollhook_sqlite::SqliteStore;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::{file, ring};

fn count(path: &Path, table: &str) -> i64 {
    let connection = Connection::open(path).unwrap();
    connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

/// A store whose clock is moved by hand.
async fn by_hand(place: &TempDir) -> (SqliteStore, Arc<AtomicI64>) {
    let now = Arc::new(AtomicI64::new(1_800_000_000_000));
    let clock = Arc::new({
        let now = Arc::clone(&now);
        move || Timestamp::from_millis(now.load(Ordering::SeqCst))
    });
    (SqliteStore::open_with_clock(file(place), ring(1), clock).await.unwrap(), now)
}

#[tokio::test]
async fn processes_from_before_and_after_a_step_of_the_clock_are_alive_to_each_other() {
    let place = tempfile::tempdir().unwrap();
    let (set, passed) = (Arc::new(AtomicI64::new(1_800_000_000_000)), Arc::new(AtomicI64::new(0)));
    let open = async || {
        let (set, now, elapsed) = (set.clone(), passed.clone(), passed.clone());
        let wall: WallClock =
            Arc::new(move || Timestamp::from_millis(set.load(Ordering::SeqCst) + now.load(Ordering::SeqCst)));
        let stored = steady(wall.clone(), move || Duration::from_millis(elapsed.load(Ordering::SeqCst).unsigned_abs()));
        SqliteStore::open_with_clocks(file(&place), ring(1), stored, wall).await.unwrap()
    };
    let (before, after) = (samples::replica("before", 1), samples::replica("after", 2));
    let first = open().await;
    set.fetch_add(24 * 3_600_000, Ordering::SeqCst);
    let second = open().await;
    for _ in 0..20 {
        passed.fetch_add(1000, Ordering::SeqCst);
        let heard = first.heartbeat(&before, Duration::from_secs(15)).await.unwrap();
        let told = second.heartbeat(&after, Duration::from_secs(15)).await.unwrap();
        assert!(told.alive.contains(&before) && told.alive.contains(&after));
        assert!(heard.now < told.now, "stored times follow slowly");
    }
    assert_eq!(first.heartbeat(&before, Duration::from_secs(15)).await.unwrap().alive.len(), 2);
}

#[tokio::test]
async fn heartbeat_is_written_once_a_third_of_its_time_is_over() {
    let place = tempfile::tempdir().unwrap();
    let (store, now) = by_hand(&place).await;
    let replica = samples::replica("one", 1);
    let beat = async |seconds: u64| {
        now.fetch_add(1000, Ordering::SeqCst);
        let answer = store.heartbeat(&replica, Duration::from_secs(seconds)).await.unwrap();
        assert_eq!(answer.now.as_millis(), now.load(Ordering::SeqCst));
        assert_eq!(answer.alive, std::slice::from_ref(&replica));
        store.commits()
    };
    let mut commits = Vec::new();
    for _ in 0..12 {
        commits.push(beat(15).await);
    }
    assert_eq!(commits, [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3]);
    assert_eq!(beat(30).await, 4, "another time to live is written at once");
    now.fetch_sub(3_600_000, Ordering::SeqCst);
    assert_eq!(beat(30).await, 5, "a heartbeat in the future is replaced");
    store.heartbeat(&samples::replica("two", 2), Duration::from_secs(15)).await.unwrap();
    store.heartbeat(&samples::replica("two", 2), Duration::ZERO).await.unwrap();
    assert_eq!(store.commits(), 7);
}

#[tokio::test]
async fn archive_of_a_removed_app_is_deleted_bit_by_bit() {
    let place = tempfile::tempdir().unwrap();
    let (store, now) = by_hand(&place).await;
    let apps: [App; 2] = ["api", "kept"].map(|name| samples::app("shop", "test", name));
    for app in &apps {
        client::register(&store, app.clone()).await;
        for _ in 0..30 {
            let deploy = client::admit(&store, app.uid, samples::admission(samples::deploy("v1"))).await;
            client::record(&store, app.uid, vec![deploy.moved(samples::failed())]).await;
        }
    }
    assert_eq!(count(&file(&place), "deploys"), 60);
    client::remove(&store, apps[0].uid).await;
    now.fetch_add(60_000, Ordering::SeqCst);
    while count(&file(&place), "removed") > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(count(&file(&place), "deploys"), 30, "the archive of the other app is kept");
}

#[tokio::test]
async fn keys_are_deleted_an_hour_after_their_time() {
    const HOUR: i64 = 3600 * 1000;
    let place = tempfile::tempdir().unwrap();
    let (store, now) = by_hand(&place).await;
    let app = client::register(&store, samples::app("shop", "test", "api")).await.state.app.uid;
    for number in 0..5 {
        let key = samples::key(&format!("run-{number}"), 1);
        client::admit(&store, app, samples::keyed(key, samples::deploy("v1"))).await;
    }
    now.fetch_add(24 * HOUR + HOUR / 2, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(count(&file(&place), "keys"), 5, "clocks of other replicas may be behind");
    now.fetch_add(HOUR, Ordering::SeqCst);
    while count(&file(&place), "keys") > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn expired_records_are_deleted_in_parts() {
    const HOUR: i64 = 3600 * 1000;
    let place = tempfile::tempdir().unwrap();
    let (store, now) = by_hand(&place).await;
    for number in 0..3 {
        let ttl = (number > 0).then_some(Duration::from_secs(60));
        let record = NewRecord { key: format!("r{number}").parse().unwrap(), document: "{}".to_owned(), ttl };
        store.write(RecordKind::Session, record, None).await.unwrap();
    }
    // More than are deleted at once, by another program.
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) \
                INSERT INTO records (kind, key, document, created_at, expires_at) \
                SELECT 'session', 'many' || i, '{}', 0, 1 FROM n";
    Connection::open(file(&place)).unwrap().execute(many, []).unwrap();
    now.fetch_add(60_000, Ordering::SeqCst);
    while count(&file(&place), "records") > 3 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    now.fetch_add(HOUR / 2, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(count(&file(&place), "records"), 3, "clocks of other processes may be behind");
    now.fetch_add(HOUR, Ordering::SeqCst);
    while count(&file(&place), "records") > 1 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(RecordStore::list(&store, RecordKind::Session, None, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn log_that_a_burst_leaves_is_emptied_once_it_is_quiet_and_nobody_reads() {
    let place = tempfile::tempdir().unwrap();
    let (store, now) = by_hand(&place).await;
    let log = || std::fs::metadata(file(&place).with_extension("db-wal")).unwrap().len();
    let pass = async || {
        now.fetch_add(10_000, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    for number in 0..200 {
        client::register(&store, samples::app("shop", "test", &format!("app-{number}"))).await;
    }
    assert!(log() > 1 << 20, "{} bytes", log());
    let reader = Connection::open(file(&place)).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM apps").unwrap();
    pass().await;
    pass().await;
    assert!(log() > 1 << 20, "another program still reads the log");
    client::register(&store, samples::app("shop", "test", "another")).await;
    reader.execute_batch("COMMIT").unwrap();
    while log() > 1 << 20 {
        pass().await;
    }
    client::register(&store, samples::app("shop", "test", "last")).await;
    assert_eq!(count(&file(&place), "apps"), 202);
}
