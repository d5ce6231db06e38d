//! The promises of a store in a file: shared transactions, locks, damage, other processes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod conformance;
mod housekeeping;
mod processes;

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use futures_util::future::join_all;
use rollhook_conformance::{client, samples};
use rollhook_core::{
    Error, Result,
    app::AppUid,
    configuration::ConfigurationId,
    deploy::{Reason, State},
    error::Entity,
    ledger::Change,
    ports::{AppCommit, AppRef, ConfigurationStore, HistoryStore, HistoryStoreExt, Loaded, Page, TokenStore, Version},
};
use rollhook_sealing::KeyRing;
use rollhook_sqlite::SqliteStore;
use rusqlite::Connection;
use tempfile::TempDir;
use zeroize::Zeroizing;

fn ring(newest: u8) -> KeyRing {
    let keys = (1..=newest).map(|number| (format!("k{number:04}").parse().unwrap(), Zeroizing::new([number; 32])));
    KeyRing::from_keys(keys).unwrap()
}

fn file(place: &TempDir) -> PathBuf {
    place.path().join("store.db")
}

async fn open(place: &TempDir) -> SqliteStore {
    SqliteStore::open(file(place), ring(1)).await.unwrap()
}

async fn with_app(place: &TempDir) -> (SqliteStore, Loaded) {
    let store = open(place).await;
    let loaded = client::register(&store, samples::app("shop", "test", "api")).await;
    (store, loaded)
}

/// The commit that accepts a deploy on an app as it was loaded.
fn accept(loaded: &Loaded) -> AppCommit {
    let mut change = Change::on(loaded.state.clone());
    samples::admit(&mut change, samples::admission(samples::deploy("v1")), loaded.now);
    client::put(change, loaded.version)
}

async fn versions(store: &SqliteStore, apps: &[AppUid]) -> Vec<Version> {
    join_all(apps.iter().map(async |app| client::load(store, *app).await.version)).await
}

#[tokio::test]
async fn answered_commit_survives_a_power_loss() {
    let place = tempfile::tempdir().unwrap();
    let (store, _) = with_app(&place).await;
    // 2 is FULL: each commit waits until the disk has it.
    assert_eq!(store.durability().await.unwrap(), ("wal".to_owned(), 2));
}

#[tokio::test]
async fn files_are_readable_by_their_owner_only() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("new/state/store.db");
    let store = SqliteStore::open(&path, ring(1)).await.unwrap();
    client::register(&store, samples::app("shop", "test", "api")).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    for name in ["store.db", "store.db-wal", "store.db-shm"] {
        assert_eq!(mode(&path.with_file_name(name)), 0o600, "{name}");
    }
}

#[tokio::test]
async fn waiting_commits_share_a_transaction_with_an_answer_each() {
    let place = tempfile::tempdir().unwrap();
    let (store, refused) = with_app(&place).await;
    let mut apps = Vec::new();
    for number in 0..60 {
        let app = samples::app("shop", "test", &format!("app-{number}"));
        apps.push(client::register(&store, app).await);
    }
    let stale = accept(&Loaded { version: Version(77), ..refused.clone() });
    let unknown = AppCommit::Remove(AppUid::from_bits(404), refused.version);
    let taken = client::registration(Change::register(samples::app("shop", "test", "api")));
    let (before, token) = (store.commits(), samples::token(1));
    // The first call waits for the lock, and the others gather behind it.
    let other = Connection::open(file(&place)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let good = join_all(apps.iter().map(|app| store.commit_one(accept(app))));
    let (good, stale, unknown, taken, put, ()) = tokio::join!(
        good,
        store.commit_one(stale),
        store.commit_one(unknown),
        store.commit_one(taken),
        TokenStore::put(&store, refused.state.app.uid, &token),
        async { other.execute_batch("ROLLBACK").unwrap() },
    );
    let commits = store.commits() - before;
    assert!(commits <= 2, "64 calls took {commits} transactions");
    assert!(good.iter().all(Result::is_ok), "{good:?}");
    assert!(matches!(stale, Err(Error::Conflict(Entity::Version))), "{stale:?}");
    assert!(matches!(unknown, Err(Error::NotFound(Entity::App))), "{unknown:?}");
    assert!(matches!(taken, Err(Error::Conflict(Entity::App))), "{taken:?}");
    assert!(put.is_ok(), "{put:?}");
    let uids: Vec<AppUid> = apps.iter().map(|app| app.state.app.uid).collect();
    let answered: Vec<Version> = good.into_iter().map(|answer| answer.unwrap().version).collect();
    assert_eq!(versions(&store, &uids).await, answered);
    assert_eq!(client::load(&store, refused.state.app.uid).await.version, refused.version);
}

#[tokio::test]
async fn key_in_use_refuses_its_own_app_alone() {
    let place = tempfile::tempdir().unwrap();
    let (store, _) = with_app(&place).await;
    let neighbour = client::register(&store, samples::app("shop", "test", "web")).await;
    let app = samples::app("shop", "test", "api").uid;
    let keyed = |key: &str| samples::keyed(samples::key(key, 1), samples::deploy("v1"));
    client::admit(&store, app, keyed("run-1")).await;
    let stored = client::load(&store, app).await;
    let mut change = Change::on(stored.state.clone());
    samples::admit(&mut change, keyed("run-2"), stored.now);
    samples::admit(&mut change, keyed("run-1"), stored.now);
    let answers = store.commit(vec![client::put(change, stored.version), accept(&neighbour)]).await;
    assert!(matches!(answers[0], Err(Error::Conflict(Entity::IdempotencyKey))), "{answers:?}");
    assert!(answers[1].is_ok(), "{answers:?}");
    let after = store.load(AppRef::Uid(app), Some(&samples::key("run-2", 1))).await.unwrap().unwrap();
    assert_eq!((after.state, after.version, after.key), (stored.state, stored.version, None), "nothing was written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_call_is_written_whole_or_not_at_all() {
    let place = tempfile::tempdir().unwrap();
    let (store, loaded) = with_app(&place).await;
    let app = loaded.state.app.uid;
    for round in 0..20 {
        let (task, commit) = (store.clone(), accept(&client::load(&store, app).await));
        let task = tokio::spawn(async move { task.commit_one(commit).await });
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        task.abort();
        // The writer serves calls in order: this one comes after the dropped one.
        TokenStore::put(&store, app, &samples::token(1)).await.unwrap();
        let loaded = client::load(&store, app).await;
        let accepted = loaded.state.latest.map_or(0, |latest| latest.get());
        assert_eq!(loaded.version.0, 1 + accepted);
        assert_eq!(loaded.state.unfinished.len() as u64, accepted);
    }
}

#[tokio::test]
async fn file_of_another_program_or_version_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let text = place.path().join("text.db");
    fs::write(&text, "not a database, but a text of some length".repeat(200)).unwrap();
    assert!(matches!(SqliteStore::open(&text, ring(1)).await, Err(Error::Corrupt { .. })));

    let other = place.path().join("other.db");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE things (id)").unwrap();
    let refused = SqliteStore::open(&other, ring(1)).await.unwrap_err();
    assert!(matches!(&refused, Error::Invalid { what, .. } if what.contains("move this one away")), "{refused:?}");

    with_app(&place).await.0.commits();
    Connection::open(file(&place)).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    let refused = SqliteStore::open(file(&place), ring(1)).await.unwrap_err();
    assert!(matches!(&refused, Error::Invalid { what, .. } if what.contains("newer version")), "{refused:?}");

    let missing = SqliteStore::open("/proc/no/store.db", ring(1)).await.unwrap_err();
    assert!(missing.is_unavailable() && missing.to_string().contains("/proc/no/store.db"), "{missing:?}");
}

#[tokio::test]
async fn file_of_the_first_version_is_brought_to_this_one() {
    let place = tempfile::tempdir().unwrap();
    let (store, loaded) = with_app(&place).await;
    let app = loaded.state.app.uid;
    let failed = |tag: &str| {
        let message = tag.to_owned();
        State::Failed { reason: Reason::new("Error"), message, evidence: Some(samples::evidence()) }
    };
    let first = client::admit(&store, app, samples::admission(samples::deploy("v1"))).await;
    client::record(&store, app, vec![first.moved(failed("v1"))]).await;
    let stored = store.archived(app, first.revision).await.unwrap().unwrap();
    drop(store);
    let connection = Connection::open(file(&place)).unwrap();
    connection
        .execute_batch(
            "DROP TABLE configurations; DROP INDEX keys_by_revision; ALTER TABLE deploys DROP COLUMN evidence; \
             PRAGMA user_version = 1",
        )
        .unwrap();
    let document = serde_json::to_string(&stored).unwrap();
    connection.execute("UPDATE deploys SET document = ?1", [document]).unwrap();
    drop(connection);

    let store = open(&place).await;
    let second = client::admit(&store, app, samples::admission(samples::deploy("v2"))).await;
    client::record(&store, app, vec![second.moved(failed("v2"))]).await;
    assert_eq!(store.archived(app, first.revision).await.unwrap(), Some(stored), "as the first version stored it");
    let page = store.page(app, Page::newest(9)).await.unwrap();
    assert_eq!(page.len(), 2);
    assert!(page.iter().all(|deploy| *deploy == deploy.without_logs()));
    let variables = samples::configuration(1, &[("A", "b")]).variables;
    ConfigurationStore::put(&store, app, ConfigurationId(1), &variables).await.unwrap();
    assert_eq!(open(&place).await.get(app, ConfigurationId(1)).await.unwrap(), Some(variables));
}

#[tokio::test]
async fn file_that_must_not_be_written_is_unavailable() {
    let place = tempfile::tempdir().unwrap();
    let (store, loaded) = with_app(&place).await;
    drop(store);
    fs::set_permissions(file(&place), fs::Permissions::from_mode(0o400)).unwrap();
    if fs::OpenOptions::new().write(true).open(file(&place)).is_ok() {
        // Root writes all the same: nothing to see.
        fs::set_permissions(file(&place), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(client::load(&open(&place).await, loaded.state.app.uid).await.state, loaded.state);
        return;
    }
    assert!(SqliteStore::open(file(&place), ring(1)).await.unwrap_err().is_unavailable());
}

#[tokio::test]
async fn old_keys_are_unneeded_after_resealing() {
    let place = tempfile::tempdir().unwrap();
    let (store, loaded) = with_app(&place).await;
    let (app, token) = (&loaded.state.app, samples::token(1));
    TokenStore::put(&store, app.uid, &token).await.unwrap();
    let variables = samples::configuration(1, &[("A", "b")]).variables;
    for number in 0..20 {
        ConfigurationStore::put(&store, app.uid, ConfigurationId(number), &variables).await.unwrap();
    }
    let both = SqliteStore::open(file(&place), ring(2)).await.unwrap();
    assert_eq!(both.keys_in_use().await.unwrap(), [("k0001".parse().unwrap(), 21)]);
    ConfigurationStore::put(&both, app.uid, ConfigurationId(20), &variables).await.unwrap();
    assert_eq!(both.keys_in_use().await.unwrap(), [("k0001".parse().unwrap(), 21), ("k0002".parse().unwrap(), 1)]);
    assert_eq!(both.reseal().await.unwrap(), 21);
    assert_eq!(both.keys_in_use().await.unwrap(), [("k0002".parse().unwrap(), 22)]);
    assert_eq!(both.reseal().await.unwrap(), 0);
    for number in 0..=20 {
        assert_eq!(both.get(app.uid, ConfigurationId(number)).await.unwrap().as_ref(), Some(&variables));
    }
    let lacking = store.get(app.uid, ConfigurationId(1)).await.unwrap_err();
    assert!(matches!(&lacking, Error::Denied { what, .. } if what.contains("k0002")), "{lacking:?}");
    let found = TokenStore::find(&both, &app.id).await.unwrap().unwrap();
    assert_eq!(found.token.expose(), token.expose());
    let lacking = TokenStore::find(&store, &app.id).await.unwrap_err();
    assert!(matches!(&lacking, Error::Denied { what, .. } if what.contains("k0002")), "{lacking:?}");
}
