//! Several processes on one database.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, future::join_all};
use rollhook_conformance::samples;
use rollhook_core::{
    app::AppUid,
    ports::{Admission, Apps, Claim, History, Wake},
};
use rollhook_postgres::PostgresStore;
use sqlx::Row;

use crate::bed::{self, Database, accept, with_app};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_of_two_handles_never_share_an_app() {
    let Some(database) = Database::lent("claims_of_two_handles_never_share_an_app").await else { return };
    let (one, two) = (database.store().await, database.store().await);
    let mut apps = Vec::new();
    for number in 0..20 {
        apps.push(one.create(samples::app("shop", "test", &format!("app-{number}"))).await.unwrap());
    }
    let owners: Arc<Mutex<BTreeMap<AppUid, u64>>> = Arc::default();
    let work = |store: PostgresStore, incarnation: u64| {
        let (apps, owners) = (apps.clone(), Arc::clone(&owners));
        tokio::spawn(async move {
            for round in 0..20 {
                let app = &apps[(round * 7 + usize::try_from(incarnation).unwrap()) % apps.len()];
                store.admit(Admission { supersede: true, ..accept(app, "v") }).await.unwrap();
                let replica = samples::replica(&format!("replica-{incarnation}"), incarnation);
                let claim = Claim { replica, ttl: Duration::from_secs(600), limit: 1 + round };
                for named in store.claim(claim).await.unwrap().apps {
                    let owner = *owners.lock().unwrap().entry(named).or_insert(incarnation);
                    assert_eq!(owner, incarnation, "{named} is named by two");
                }
            }
        })
    };
    let workers =
        (1..=8).map(|incarnation| work(if incarnation % 2 == 0 { one.clone() } else { two.clone() }, incarnation));
    for worker in join_all(workers.collect::<Vec<_>>()).await {
        worker.unwrap();
    }
    let owned = owners.lock().unwrap().len();
    assert_eq!(owned, apps.len());
}

#[tokio::test]
async fn claims_that_change_nothing_write_nothing() {
    let Some(database) = Database::lent("claims_that_change_nothing_write_nothing").await else { return };
    let (store, app) = with_app(&database).await;
    store.admit(accept(&app, "v1")).await.unwrap();
    let claim = || Claim { replica: samples::replica("one", 1), ttl: Duration::from_secs(600), limit: 10 };
    let first = store.claim(claim()).await.unwrap();
    let written = "SELECT string_agg(v, ' ') FROM (SELECT xmin::text || xmax::text AS v FROM rollhook.replicas UNION ALL \
                   SELECT xmin::text || xmax::text FROM rollhook.heads) w";
    let before: String = database.rows(written).await[0].get(0);
    for _ in 0..10 {
        assert_eq!(store.claim(claim()).await.unwrap().apps, first.apps);
    }
    assert_eq!(database.rows(written).await[0].get::<String, _>(0), before);
}

#[tokio::test]
async fn names_that_are_long_gone_are_deleted_without_waiting_for_one_that_returns() {
    let test = "names_that_are_long_gone_are_deleted_without_waiting_for_one_that_returns";
    let Some(database) = Database::lent(test).await else { return };
    let store = database.store().await;
    database.run("INSERT INTO rollhook.replicas VALUES ('gone', 8, 1, 1), ('returning', 9, 1, 1)").await;
    let mut other = database.connection().await;
    bed::run(&mut other, "BEGIN; UPDATE rollhook.replicas SET expires_at = 2 WHERE name = 'returning'").await;
    let claim = Claim { replica: samples::replica("one", 1), ttl: Duration::from_secs(60), limit: 10 };
    store.claim(claim).await.unwrap();
    bed::run(&mut other, "COMMIT").await;
    let names = database.rows("SELECT name FROM rollhook.replicas ORDER BY name").await;
    let names: Vec<&str> = names.iter().map(|row| row.get(0)).collect();
    assert_eq!(names, ["one", "returning"]);
}

#[tokio::test]
async fn writes_of_other_processes_wake() {
    let Some(database) = Database::lent("writes_of_other_processes_wake").await else { return };
    let (one, app) = with_app(&database).await;
    let two = database.store().await;
    let mut wakes = one.wakes();
    let next = async |wakes: &mut futures_util::stream::BoxStream<'static, Wake>| {
        tokio::time::timeout(Duration::from_secs(20), wakes.next()).await.unwrap()
    };
    assert_eq!(next(&mut wakes).await, Some(Wake::Any), "from now on others' writes are heard");
    one.admit(accept(&app, "v1")).await.unwrap();
    assert_eq!(next(&mut wakes).await, Some(Wake::App(app.uid)));
    two.admit(accept(&app, "v2")).await.unwrap();
    assert_eq!(next(&mut wakes).await, Some(Wake::App(app.uid)), "by another");
    assert_eq!(wakes.next().now_or_never(), None, "one's own writes are told once");
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'";
    assert!(database.number(cut).await > 0);
    assert_eq!(next(&mut wakes).await, Some(Wake::Any), "it listens again, and may have missed something");
    Apps::remove(&two, app.uid).await.unwrap();
    assert_eq!(next(&mut wakes).await, Some(Wake::App(app.uid)));
}

#[tokio::test]
async fn what_nobody_needs_is_deleted_bit_by_bit() {
    let Some(database) = Database::lent("what_nobody_needs_is_deleted_bit_by_bit").await else { return };
    let (store, app) = with_app(&database).await;
    let kept = store.create(samples::app("shop", "test", "kept")).await.unwrap();
    for number in 0..60 {
        let key = Some(samples::key(&format!("run-{number}"), 1));
        store.admit(Admission { key: key.clone(), ..accept(&app, "v") }).await.unwrap();
        store.admit(Admission { key, ..accept(&kept, "v") }).await.unwrap();
    }
    Apps::remove(&store, app.uid).await.unwrap();
    database.run("UPDATE rollhook.keys SET expires_at = 0 WHERE key < 'run-5'").await;
    // Another handle begins with it at once.
    let _other = database.store().await;
    let left = "SELECT (SELECT count(*) FROM rollhook.leftovers) + (SELECT count(*) FROM rollhook.keys)";
    for _ in 0..100 {
        if database.number(left).await == 15 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(database.number(left).await, 15, "keys of the other app that have not expired");
    assert_eq!(database.number("SELECT count(*) FROM rollhook.deploys").await, 60);
}
