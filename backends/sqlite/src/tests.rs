//! What can only be seen, or brought about, from inside: failures of the file, and how statements are planned.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use async_trait::async_trait;
use rollhook_conformance::samples;
use rollhook_core::{
    Error, Result,
    app::App,
    ports::{Admission, Admitted, Apps, History, Page},
    time::Timestamp,
};
use rollhook_sealing::KeyRing;
use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection, sqlite::SqliteConnectOptions};
use tempfile::TempDir;
use zeroize::Zeroizing;

use crate::{SqliteStore, batch, claims, error::classify, views, writer::Write};

fn ring() -> KeyRing {
    KeyRing::from_keys([("k0001".parse().unwrap(), Zeroizing::new([7; 32]))]).unwrap()
}

async fn store(place: &TempDir) -> SqliteStore {
    SqliteStore::open(place.path().join("store.db"), ring()).await.unwrap()
}

async fn connect(path: &Path) -> SqliteConnection {
    SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(path)).await.unwrap()
}

fn admission(app: &App, tag: &str) -> Admission {
    samples::admission(app, samples::draft(tag))
}

/// Runs a statement on the writing connection.
struct Statement(String);

#[async_trait]
impl Write for Statement {
    type Output = i64;

    async fn write(&self, connection: &mut SqliteConnection, _: Timestamp) -> sqlx::Result<Result<i64>> {
        sqlx::query_scalar(AssertSqlSafe(self.0.clone())).fetch_one(connection).await.map(Ok)
    }
}

/// Breaks the batch that it is in.
struct Breakage;

#[async_trait]
impl Write for Breakage {
    type Output = ();

    async fn write(&self, _: &mut SqliteConnection, _: Timestamp) -> sqlx::Result<Result<()>> {
        Err(sqlx::Error::WorkerCrashed)
    }
}

#[tokio::test]
async fn a_full_disk_is_unavailable_until_there_is_space() {
    let place = tempfile::tempdir().unwrap();
    let store = store(&place).await;
    let app = store.create(samples::app("shop", "test", "api")).await.unwrap();
    let pages = store.write(Statement("PRAGMA page_count".to_owned())).await.unwrap();
    store.write(Statement(format!("PRAGMA max_page_count = {pages}"))).await.unwrap();
    let mut accepted = 0;
    let refused = loop {
        match store.admit(admission(&app, &format!("v{accepted}"))).await {
            Ok(Admitted::New { .. }) => accepted += 1,
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert!(refused.is_unavailable(), "{refused:?}");
    assert!(refused.to_string().contains("no space left"), "{refused}");
    assert!(store.admit(admission(&app, "again")).await.unwrap_err().is_unavailable());
    assert_eq!(store.view(app.uid).await.unwrap().unfinished.len(), accepted, "reads go on");
    // The limit is the connection's, so it can only be lifted where it was set.
    store.write(Statement("PRAGMA max_page_count = 1000000".to_owned())).await.unwrap();
    let Admitted::New { deploy, .. } = store.admit(admission(&app, "space")).await.unwrap() else { panic!() };
    assert_eq!(deploy.revision.get() as usize, accepted + 1, "what was refused left no gap");
}

#[tokio::test]
async fn a_broken_connection_is_opened_again() {
    let place = tempfile::tempdir().unwrap();
    let store = store(&place).await;
    let app = store.create(samples::app("shop", "test", "api")).await.unwrap();
    let (broken, neighbour) = tokio::join!(store.write(Breakage), store.admit(admission(&app, "v1")));
    assert!(broken.unwrap_err().is_unavailable());
    assert!(neighbour.unwrap_err().is_unavailable(), "they shared the transaction");
    let Admitted::New { deploy, .. } = store.admit(admission(&app, "v1")).await.unwrap() else { panic!() };
    assert_eq!(deploy.revision.get(), 1);
    assert_eq!(store.durability().await.unwrap(), ("wal".to_owned(), 2));
}

#[tokio::test]
async fn a_statement_on_damaged_pages_is_corrupt() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("store.db");
    {
        let store = store(&place).await;
        store.create(samples::app("shop", "test", "api")).await.unwrap();
    }
    let mut connection = connect(&path).await;
    let folded: i64 = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(&mut connection).await.unwrap().get(0);
    assert_eq!(folded, 0);
    connection.close().await.unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096..].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let mut connection = connect(&path).await;
    let error = sqlx::query("SELECT * FROM apps").fetch_all(&mut connection).await.unwrap_err();
    assert!(matches!(classify(error), Error::Corrupt { .. }));
}

#[test]
fn failures_without_a_code_are_told_apart() {
    assert!(classify(sqlx::Error::WorkerCrashed).is_unavailable());
    assert!(classify(sqlx::Error::Io(std::io::ErrorKind::BrokenPipe.into())).is_unavailable());
    assert!(matches!(classify(sqlx::Error::RowNotFound), Error::Corrupt { .. }));
    assert!(matches!(classify(sqlx::Error::Encode("no".into())), Error::Invalid { .. }));
}

/// Scans of what a statement was given, and of the few replicas.
const BOUNDED: [&str; 7] = [
    "SCAN j VIRTUAL TABLE",
    "SCAN u VIRTUAL TABLE",
    "SCAN json_each VIRTUAL TABLE",
    "SCAN CONSTANT ROW",
    "SCAN w",
    "SCAN r",
    "SCAN replicas",
];

#[tokio::test]
async fn every_statement_on_the_way_of_a_deploy_searches() {
    let place = tempfile::tempdir().unwrap();
    let store = store(&place).await;
    let app = store.create(samples::app("shop", "test", "api")).await.unwrap();
    store.admit(admission(&app, "v1")).await.unwrap();
    let mut connection = connect(&place.path().join("store.db")).await;
    for statement in batch::STATEMENTS.into_iter().chain(views::STATEMENTS).chain([claims::CANDIDATES]) {
        let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
        let rows = sqlx::query(explain).fetch_all(&mut connection).await.unwrap();
        for row in rows {
            let step: String = row.get("detail");
            let bounded = BOUNDED.iter().any(|scan| step.starts_with(scan)) || step.contains("heads_with_work");
            assert!(!step.starts_with("SCAN") || bounded, "{step} in {statement}");
        }
    }
    assert_eq!(store.page(app.uid, Page { before: None, succeeded: true, limit: 9 }).await.unwrap(), []);
}
