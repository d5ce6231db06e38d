//! Failures of the file that can only be brought about from inside, and the plans of the statements.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    fs::OpenOptions,
    io::{Seek, SeekFrom, Write},
    path::PathBuf,
    sync::mpsc,
};

use rollhook_conformance::{client, samples};
use rollhook_core::{
    Error,
    ledger::Change,
    ports::{AppCommit, HistoryStoreExt, Loaded},
};
use rollhook_sealing::KeyRing;
use rusqlite::{Connection, ffi};
use tempfile::TempDir;
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use crate::{SqliteStore, commit, configurations, error::SqlError, history, records, tokens};

fn file(place: &TempDir) -> PathBuf {
    place.path().join("store.db")
}

async fn with_app(place: &TempDir) -> (SqliteStore, Loaded) {
    let ring = KeyRing::from_keys([("k0001".parse().unwrap(), Zeroizing::new([7; 32]))]).unwrap();
    let store = SqliteStore::open(file(place), ring).await.unwrap();
    let loaded = client::register(&store, samples::app("shop", "test", "api")).await;
    (store, loaded)
}

/// The commit that accepts a deploy on the app as it is stored.
async fn accept(store: &SqliteStore, app: &Loaded) -> AppCommit {
    let Loaded { state, version, now, .. } = client::load(store, app.state.app.uid).await;
    let mut change = Change::on(state);
    samples::admit(&mut change, samples::admission(samples::deploy("v1")), now);
    client::put(change, version)
}

async fn pragma(store: &SqliteStore, name: &'static str, value: i64) {
    let set = store.writer.run(move |session| session.connection.pragma_update(None, name, value).map(Ok));
    set.await.unwrap();
}

#[tokio::test]
async fn full_disk_is_unavailable_until_there_is_space() {
    let place = tempfile::tempdir().unwrap();
    let (store, app) = with_app(&place).await;
    // SQLite takes a limit below the present number of pages for that number.
    pragma(&store, "max_page_count", 1).await;
    let refused = loop {
        if let Err(error) = store.commit_one(accept(&store, &app).await).await {
            break error;
        }
    };
    assert!(refused.is_unavailable() && refused.to_string().contains("no space left"), "{refused:?}");
    let stored = client::load(&store, app.state.app.uid).await;
    assert!(store.commit_one(accept(&store, &app).await).await.unwrap_err().is_unavailable());
    let after = client::load(&store, app.state.app.uid).await;
    assert!((after.state, after.version) == (stored.state, stored.version), "reads go on, and nothing was written");
    pragma(&store, "max_page_count", 1_000_000).await;
    let committed = store.commit_one(accept(&store, &app).await).await.unwrap();
    assert_eq!(committed.version.0, stored.version.0 + 1);
}

#[tokio::test]
async fn broken_connection_is_opened_again() {
    let place = tempfile::tempdir().unwrap();
    let (store, app) = with_app(&place).await;
    let commit = accept(&store, &app).await;
    // While the writer is held up, the next two calls gather for one transaction.
    let (begun, has_begun) = oneshot::channel();
    let (release, released) = mpsc::channel::<()>();
    let hold = store.writer.run(move |_| {
        begun.send(()).unwrap();
        Ok(Ok(released.recv().is_err()))
    });
    let calls = async {
        has_begun.await.unwrap();
        let error = || rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR), None);
        let breakage = store.writer.run::<()>(move |_| Err(error()));
        tokio::join!(breakage, store.commit_one(commit), async { drop(release) })
    };
    let (held, (broken, neighbour, ())) = tokio::join!(hold, calls);
    assert!(held.unwrap());
    assert!(broken.unwrap_err().is_unavailable());
    assert!(neighbour.unwrap_err().is_unavailable(), "they shared the transaction");
    assert_eq!(client::load(&store, app.state.app.uid).await.version, app.version, "nothing was written");
    store.commit_one(accept(&store, &app).await).await.unwrap();
    assert_eq!(store.durability().await.unwrap(), ("wal".to_owned(), 2));
}

#[tokio::test]
async fn failed_read_leaves_its_neighbours_alone() {
    let place = tempfile::tempdir().unwrap();
    let (store, app) = with_app(&place).await;
    let bad = store
        .reader
        .run::<i64>(|session| session.connection.query_row("SELECT uid FROM apps", [], |row| row.get(0)).map(Ok));
    let (bad, good) = tokio::join!(bad, client::load(&store, app.state.app.uid));
    assert!(matches!(bad, Err(Error::Corrupt { .. })), "{bad:?}");
    assert_eq!(good.state, app.state);
}

#[tokio::test]
async fn damaged_pages_are_corrupt() {
    let place = tempfile::tempdir().unwrap();
    let (store, app) = with_app(&place).await;
    drop(store);
    let connection = Connection::open(file(&place)).unwrap();
    let folded: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
    assert_eq!(folded, 0);
    drop(connection);
    let mut bytes = OpenOptions::new().write(true).open(file(&place)).unwrap();
    let length = bytes.metadata().unwrap().len();
    bytes.seek(SeekFrom::Start(4096)).unwrap();
    bytes.write_all(&vec![0xff; usize::try_from(length).unwrap() - 4096]).unwrap();
    drop(bytes);
    let connection = Connection::open(file(&place)).unwrap();
    let error = connection.query_row("SELECT uid FROM apps", [], |_| Ok(())).unwrap_err();
    assert!(matches!(SqlError::from(error).to_error(), Error::Corrupt { .. }), "{:?}", app.state.app.id);
}

#[test]
fn failures_are_told_apart() {
    let failure = |code| SqlError::from(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
    for code in [ffi::SQLITE_BUSY, ffi::SQLITE_BUSY_SNAPSHOT, ffi::SQLITE_LOCKED, ffi::SQLITE_FULL] {
        assert!(failure(code).to_error().is_unavailable() && failure(code).leaves_connection_sound(), "{code}");
    }
    for code in [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_CANTOPEN, ffi::SQLITE_READONLY, ffi::SQLITE_NOMEM] {
        assert!(failure(code).to_error().is_unavailable() && !failure(code).leaves_connection_sound(), "{code}");
    }
    for code in [ffi::SQLITE_CORRUPT, ffi::SQLITE_NOTADB, ffi::SQLITE_IOERR_CORRUPTFS, ffi::SQLITE_CONSTRAINT] {
        assert!(matches!(failure(code).to_error(), Error::Corrupt { .. }), "{code}");
    }
    assert!(matches!(failure(ffi::SQLITE_TOOBIG).to_error(), Error::Invalid { .. }));
    assert!(SqlError::Stopped.to_error().is_unavailable());
    let unread = rusqlite::Error::IntegralValueOutOfRange(0, 0);
    assert!(matches!(SqlError::from(unread).to_error(), Error::Corrupt { .. }));
    assert!(matches!(SqlError::from(rusqlite::Error::InvalidQuery).to_error(), Error::Invalid { .. }));
}

#[tokio::test]
async fn every_statement_searches() {
    let place = tempfile::tempdir().unwrap();
    let _store = with_app(&place).await;
    let connection = Connection::open(file(&place)).unwrap();
    let all = commit::STATEMENTS.iter().chain(&history::STATEMENTS).chain(&records::STATEMENTS);
    for sql in all.chain(&configurations::STATEMENTS).chain([&tokens::FIND]) {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let parameters = vec![rusqlite::types::Null; statement.parameter_count()];
        let rows = statement.query_map(rusqlite::params_from_iter(parameters), |row| row.get::<_, String>(3));
        for step in rows.unwrap().map(Result::unwrap) {
            let given = ["SCAN json_each VIRTUAL TABLE", "SCAN CONSTANT ROW"].iter().any(|scan| step.starts_with(scan));
            // Work is read in the order of its index, which holds nothing else.
            let in_order = step.contains("apps_with_work") || !step.contains("SCAN");
            assert!((in_order || given) && !step.contains("TEMP B-TREE"), "{step} in {sql}");
        }
    }
}

#[tokio::test]
async fn keys_of_a_forgotten_deploy_are_found_by_its_revision() {
    let place = tempfile::tempdir().unwrap();
    let _store = with_app(&place).await;
    let connection = Connection::open(file(&place)).unwrap();
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {}", commit::FREE)).unwrap();
    let plan: String = statement.query_row([1, 1], |row| row.get(3)).unwrap();
    assert!(plan.contains("keys_by_revision (app=? AND revision=?)"), "{plan}");
}
