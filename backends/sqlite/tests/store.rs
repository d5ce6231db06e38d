//! What is special to the store in a file: shared commits, locks, damage, other processes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, future::join_all};
use rollhook_conformance::samples;
use rollhook_core::{
    Error,
    app::App,
    deploy::State,
    ports::{Admission, Admitted, Apps, Claim, History, HistoryExt, Page, Record, TokenStore, Wake},
    time::Timestamp,
};
use rollhook_sealing::KeyRing;
use rollhook_sqlite::{SqliteStore, StoreClock};
use sqlx::{AssertSqlSafe, Connection, SqliteConnection, sqlite::SqliteConnectOptions};
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

async fn with_app(place: &TempDir) -> (SqliteStore, App) {
    let store = open(place).await;
    let app = store.create(samples::app("shop", "test", "api")).await.unwrap();
    (store, app)
}

async fn connect(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    SqliteConnection::connect_with(&options).await.unwrap()
}

async fn run(connection: &mut SqliteConnection, statement: &str) {
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(connection).await.unwrap();
}

async fn count(path: &Path, table: &str) -> i64 {
    let statement = AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
    sqlx::query_scalar(statement).fetch_one(&mut connect(path).await).await.unwrap()
}

fn accept(app: &App, tag: &str) -> Admission {
    samples::admission(app, samples::draft(tag))
}

fn number(admitted: &Admitted) -> u64 {
    match admitted {
        Admitted::New { deploy, .. } | Admitted::Replay(deploy) => deploy.revision.get(),
        Admitted::KeyReused | Admitted::Stale | Admitted::Full => panic!("{admitted:?}"),
    }
}

#[tokio::test]
async fn what_is_answered_survives_a_power_loss() {
    let place = tempfile::tempdir().unwrap();
    let (store, _) = with_app(&place).await;
    // 2 is FULL: each commit waits until the disk has it.
    assert_eq!(store.durability().await.unwrap(), ("wal".to_owned(), 2));
}

#[tokio::test]
async fn nobody_else_can_read_the_files() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("new/state/store.db");
    let store = SqliteStore::open(&path, ring(1)).await.unwrap();
    store.create(samples::app("shop", "test", "api")).await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    for name in ["store.db", "store.db-wal", "store.db-shm"] {
        assert_eq!(mode(&path.with_file_name(name)), 0o600, "{name}");
    }
}

#[tokio::test]
async fn concurrent_accepts_share_commits() {
    let place = tempfile::tempdir().unwrap();
    let (store, app) = with_app(&place).await;
    let before = store.commits();
    let accepts = (0..90).map(|number| store.admit(accept(&app, &format!("v{number}"))));
    let numbers: BTreeSet<u64> =
        join_all(accepts).await.iter().map(|admitted| number(admitted.as_ref().unwrap())).collect();
    assert_eq!(numbers, (1..=90).collect());
    let commits = store.commits() - before;
    assert!(commits <= 9, "90 accepts took {commits} commits");
}

#[tokio::test]
async fn one_key_within_one_batch_is_one_deploy() {
    let place = tempfile::tempdir().unwrap();
    let (store, app) = with_app(&place).await;
    let accepts = (0..20).map(|_| store.admit(Admission { key: Some(samples::key("run-1", 1)), ..accept(&app, "v1") }));
    let answers = join_all(accepts).await;
    assert!(answers.iter().all(|answer| number(answer.as_ref().unwrap()) == 1));
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Ok(Admitted::New { .. }))).count(), 1);
}

#[tokio::test]
async fn a_refused_item_leaves_its_neighbours_alone() {
    let place = tempfile::tempdir().unwrap();
    let (store, app) = with_app(&place).await;
    let broken = store.create(samples::app("shop", "test", "broken")).await.unwrap();
    let keyed = || Admission { key: Some(samples::key("run-1", 1)), ..accept(&broken, "v1") };
    store.admit(keyed()).await.unwrap();
    run(&mut connect(&file(&place)).await, "UPDATE deploys SET body = CAST(x'ff' AS TEXT)").await;
    let unknown = samples::app("shop", "test", "unknown");
    let before = store.commits();
    let (good, unreadable, missing, superseding, create) = tokio::join!(
        store.admit(accept(&app, "v1")),
        store.admit(keyed()),
        store.admit(accept(&unknown, "v1")),
        store.admit(Admission { supersede: true, ..accept(&broken, "v2") }),
        store.create(samples::app("shop", "test", "api")),
    );
    assert_eq!(number(&good.unwrap()), 1);
    assert!(matches!(unreadable, Err(Error::Corrupt { .. })));
    assert!(matches!(missing, Err(Error::NotFound("app"))));
    assert!(matches!(superseding, Err(Error::Corrupt { .. })));
    assert!(matches!(create, Err(Error::Conflict("app"))));
    assert_eq!(store.commits() - before, 1, "they were one batch");
    assert!(matches!(store.view(broken.uid).await, Err(Error::Corrupt { .. })));
    assert_eq!(store.view(app.uid).await.unwrap().last, Some(samples::revision(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_go_away_hold_nobody_up() {
    let place = tempfile::tempdir().unwrap();
    let (store, app) = with_app(&place).await;
    for round in 0..20 {
        let task = tokio::spawn({
            let (store, app) = (store.clone(), app.clone());
            async move { store.admit(Admission { supersede: true, ..accept(&app, "gone") }).await }
        });
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        task.abort();
        let kept = Admission { supersede: true, ..accept(&app, "kept") };
        let kept_id = kept.id;
        store.admit(kept).await.unwrap();
        assert!(store.admitted(app.uid, kept_id).await.unwrap().is_some());
    }
    let page = store.page(app.uid, Page { before: None, succeeded: false, limit: 100 }).await.unwrap();
    let numbers: Vec<u64> = page.iter().rev().map(|deploy| deploy.revision.get()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_lock_of_another_process_is_unavailable_until_it_is_released() {
    let place = tempfile::tempdir().unwrap();
    let (store, app) = with_app(&place).await;
    let mut other = connect(&file(&place)).await;
    run(&mut other, "BEGIN IMMEDIATE").await;
    let refused = store.admit(accept(&app, "v1")).await.unwrap_err();
    assert!(refused.is_unavailable() && refused.to_string().contains("locked"), "{refused:?}");
    assert_eq!(store.view(app.uid).await.unwrap().last, None, "reads go on");
    let waiting = store.admit(accept(&app, "v1"));
    let release = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        run(&mut other, "ROLLBACK").await;
    };
    assert_eq!(number(&tokio::join!(waiting, release).0.unwrap()), 1);
}

#[tokio::test]
async fn files_of_others_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let text = place.path().join("text.db");
    fs::write(&text, "not a database, but a text of some length".repeat(200)).unwrap();
    assert!(matches!(SqliteStore::open(&text, ring(1)).await, Err(Error::Corrupt { .. })));

    let other = place.path().join("other.db");
    run(&mut connect(&other).await, "CREATE TABLE things (id)").await;
    let refused = SqliteStore::open(&other, ring(1)).await.unwrap_err();
    assert!(matches!(&refused, Error::Invalid { what, .. } if what.contains("another program")), "{refused:?}");

    with_app(&place).await.0.commits();
    run(&mut connect(&file(&place)).await, "PRAGMA user_version = 99").await;
    let refused = SqliteStore::open(file(&place), ring(1)).await.unwrap_err();
    assert!(matches!(&refused, Error::Invalid { what, .. } if what.contains("newer version")), "{refused:?}");

    let missing = SqliteStore::open("/proc/no/store.db", ring(1)).await.unwrap_err();
    assert!(missing.is_unavailable() && missing.to_string().contains("/proc/no/store.db"), "{missing:?}");
}

#[test]
fn every_answer_is_kept_when_the_process_ends_in_the_middle() {
    let place = tempfile::tempdir().unwrap();
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let answered = Arc::new(AtomicI64::new(0));
    let first = runtime();
    let app = first.block_on(async {
        let (store, app) = with_app(&place).await;
        for _ in 0..8 {
            let (store, app, answered) = (store.clone(), app.clone(), Arc::clone(&answered));
            tokio::spawn(async move {
                loop {
                    let admitted = store.admit(Admission { supersede: true, ..accept(&app, "v") }).await.unwrap();
                    answered.fetch_max(number(&admitted) as i64, Ordering::SeqCst);
                }
            });
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        app
    });
    // Drops every task where it stands, the writer's too.
    first.shutdown_background();
    let answered = answered.load(Ordering::SeqCst) as u64;
    runtime().block_on(async {
        let store = open(&place).await;
        let last = store.view(app.uid).await.unwrap().last.unwrap().get();
        assert!(answered > 0 && last >= answered, "{answered} answered, {last} kept");
        assert_eq!(number(&store.admit(Admission { supersede: true, ..accept(&app, "v") }).await.unwrap()), last + 1);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_handles_number_one_history() {
    let place = tempfile::tempdir().unwrap();
    let (one, app) = with_app(&place).await;
    let two = open(&place).await;
    let task = |store: SqliteStore| {
        let app = app.clone();
        tokio::spawn(async move {
            let mut numbers = Vec::new();
            for _ in 0..10 {
                let accepts = (0..4).map(|_| store.admit(accept(&app, "v")));
                numbers.extend(join_all(accepts).await.iter().map(|answer| number(answer.as_ref().unwrap())));
            }
            numbers
        })
    };
    let (from_one, from_two) = tokio::join!(task(one.clone()), task(two.clone()));
    let numbers: BTreeSet<u64> = from_one.unwrap().into_iter().chain(from_two.unwrap()).collect();
    assert_eq!(numbers, (1..=80).collect());
    assert_eq!(one.view(app.uid).await.unwrap().unfinished.len(), 80);
}

#[tokio::test]
async fn writes_of_other_processes_wake() {
    let place = tempfile::tempdir().unwrap();
    let (one, app) = with_app(&place).await;
    let two = open(&place).await;
    let mut wakes = one.wakes();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(wakes.next().now_or_never(), None, "nothing happened");
    one.admit(accept(&app, "v1")).await.unwrap();
    assert_eq!(wakes.next().await, Some(Wake::App(app.uid)));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(wakes.next().now_or_never(), None, "one's own writes are told once");
    two.admit(accept(&app, "v2")).await.unwrap();
    let woken = tokio::time::timeout(Duration::from_secs(3), wakes.next()).await;
    assert_eq!(woken.unwrap(), Some(Wake::Any));
}

#[tokio::test]
async fn claims_that_change_nothing_write_nothing() {
    let place = tempfile::tempdir().unwrap();
    let (store, app) = with_app(&place).await;
    store.admit(accept(&app, "v1")).await.unwrap();
    let claim = || Claim { replica: samples::replica("one", 1), ttl: Duration::from_secs(60), limit: 10 };
    let first = store.claim(claim()).await.unwrap();
    let before = store.commits();
    for _ in 0..10 {
        assert_eq!(store.claim(claim()).await.unwrap().apps, first.apps);
    }
    assert_eq!(store.commits(), before);
}

#[tokio::test]
async fn what_a_removed_app_leaves_is_deleted_bit_by_bit() {
    let place = tempfile::tempdir().unwrap();
    let (store, app) = with_app(&place).await;
    for number in 0..60 {
        let key = Some(samples::key(&format!("run-{number}"), 1));
        store.admit(Admission { key, ..accept(&app, "v") }).await.unwrap();
    }
    let kept = store.create(samples::app("shop", "test", "kept")).await.unwrap();
    store.admit(accept(&kept, "v1")).await.unwrap();
    Apps::remove(&store, app.uid).await.unwrap();
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if count(&file(&place), "leftovers").await == 0 {
            break;
        }
    }
    assert_eq!(count(&file(&place), "leftovers").await, 0);
    assert_eq!(count(&file(&place), "deploys").await, 1, "only what is left of the other app");
    assert_eq!(count(&file(&place), "keys").await, 0);
}

#[tokio::test]
async fn expired_keys_are_deleted() {
    let place = tempfile::tempdir().unwrap();
    let now = Arc::new(AtomicI64::new(1_800_000_000_000));
    let clock = StoreClock::new({
        let now = Arc::clone(&now);
        move || Timestamp::from_millis(now.load(Ordering::SeqCst))
    });
    let store = SqliteStore::open_with_clock(file(&place), ring(1), clock).await.unwrap();
    let app = store.create(samples::app("shop", "test", "api")).await.unwrap();
    for number in 0..5 {
        let key = Some(samples::key(&format!("run-{number}"), 1));
        store.admit(Admission { key, ..accept(&app, "v") }).await.unwrap();
    }
    assert_eq!(count(&file(&place), "keys").await, 5);
    now.fetch_add(25 * 3600 * 1000, Ordering::SeqCst);
    store.admit(accept(&app, "v")).await.unwrap();
    assert_eq!(count(&file(&place), "keys").await, 0);
}

#[tokio::test]
async fn resealing_makes_old_keys_unneeded() {
    let place = tempfile::tempdir().unwrap();
    let (store, app) = with_app(&place).await;
    let token = samples::token(1);
    store.put(app.uid, &token).await.unwrap();
    let both = SqliteStore::open(file(&place), ring(2)).await.unwrap();
    assert_eq!(both.keys_in_use().await.unwrap(), [("k0001".parse().unwrap(), 1)]);
    assert_eq!(both.reseal().await.unwrap(), 1);
    assert_eq!(both.keys_in_use().await.unwrap(), [("k0002".parse().unwrap(), 1)]);
    assert_eq!(both.reseal().await.unwrap(), 0);
    let found = TokenStore::find(&both, &app.id).await.unwrap().unwrap();
    assert_eq!(found.token.expose(), token.expose());
    let lacking = TokenStore::find(&store, &app.id).await.unwrap_err();
    assert!(matches!(&lacking, Error::Denied { what, .. } if what.contains("k0002")), "{lacking:?}");
}

#[tokio::test]
async fn a_file_that_must_not_be_written_is_unavailable() {
    let place = tempfile::tempdir().unwrap();
    let (store, app) = with_app(&place).await;
    drop(store);
    fs::set_permissions(file(&place), fs::Permissions::from_mode(0o400)).unwrap();
    if fs::OpenOptions::new().write(true).open(file(&place)).is_ok() {
        // Root writes all the same: nothing to see.
        fs::set_permissions(file(&place), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(open(&place).await.view(app.uid).await.unwrap().last, None);
        return;
    }
    assert!(SqliteStore::open(file(&place), ring(1)).await.unwrap_err().is_unavailable());
}

#[tokio::test]
async fn records_of_one_batch_see_each_other() {
    let place = tempfile::tempdir().unwrap();
    let (store, app) = with_app(&place).await;
    let Admitted::New { deploy, .. } = store.admit(accept(&app, "v1")).await.unwrap() else { panic!() };
    let ended = deploy.moved(State::Succeeded { note: None });
    let record = || Record { app: app.uid, claim: None, changes: vec![ended.clone()], lift: Vec::new(), rest: true };
    let answers = join_all([store.record(record()), store.record(record()), store.record(record())]).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Err(Error::Conflict("deploy")))).count(), 2);
    assert_eq!(store.entry(app.uid, deploy.revision).await.unwrap().unwrap().state, ended.state);
}
