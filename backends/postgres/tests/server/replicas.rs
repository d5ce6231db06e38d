//! Several processes on one database.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt, future::join_all, stream::BoxStream};
use rollhook_conformance::{client, samples};
use rollhook_core::{
    Error,
    app::AppUid,
    error::Entity,
    ports::{AppChange, HistoryStore, Version},
};
use rollhook_postgres::PostgresStore;
use sqlx::Row;

use crate::bed::{self, Database, accept, accept_on, with_app};

/// Accepts a deploy of each app in one call, again and again for those that another was faster with.
async fn accept_all(store: &PostgresStore, mut apps: Vec<AppUid>) {
    while !apps.is_empty() {
        let loaded = join_all(apps.iter().map(|app| client::load(store, *app))).await;
        let commits = loaded.iter().map(|loaded| accept_on(loaded, samples::admission(samples::deploy("v"))));
        let mut answers = store.commit(commits.collect()).await.into_iter();
        apps.retain(|_| match answers.next().unwrap() {
            Ok(_) => false,
            Err(Error::Conflict(Entity::Version)) => true,
            Err(error) => panic!("{error:?}"),
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_of_two_handles_never_wait_for_each_other() {
    let Some(database) = Database::lent("batches_of_two_handles_never_wait_for_each_other").await else { return };
    let stores = [database.store().await, database.store().await];
    let mut apps = Vec::new();
    for number in 0..8 {
        let app = samples::app("shop", "test", &format!("app-{number}"));
        apps.push(client::register(&stores[0], app).await.state.app.uid);
    }
    // In one order here, in the other there: locks are taken in the order of the uids.
    let tasks = (0..8).map(|at| {
        let (store, mut apps) = (stores[at % 2].clone(), apps.clone());
        if at % 2 == 1 {
            apps.reverse();
        }
        tokio::spawn(async move {
            for _ in 0..5 {
                accept_all(&store, apps.clone()).await;
            }
        })
    });
    for task in join_all(tasks.collect::<Vec<_>>()).await {
        task.unwrap();
    }
    for app in apps {
        assert_eq!(client::load(&stores[1], app).await.state.unfinished.len(), 40);
    }
    drop(stores);
    database.left_alone().await;
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(database.number(deadlocks).await, 0);
}

#[tokio::test]
async fn idle_replica_writes_only_its_heartbeat() {
    let Some(database) = Database::lent("idle_replica_writes_only_its_heartbeat").await else { return };
    let (store, app) = with_app(&database).await;
    accept(&store, app, "v1").await;
    let written = "SELECT (SELECT count(*) FROM rollhook.replicas)::text || ' ' || string_agg(w.v, ' ') FROM ( \
                   SELECT xmin::text || xmax::text AS v FROM rollhook.apps UNION ALL \
                   SELECT xmin::text || xmax::text FROM rollhook.deploys) w";
    let replica = samples::replica("one", 1);
    let mut seen = Vec::new();
    for _ in 0..10 {
        let alive = store.heartbeat(&replica, Duration::from_secs(60)).await.unwrap().alive;
        assert_eq!(store.work(&alive, 10).await.unwrap(), [app]);
        seen.push(database.rows(written).await[0].get::<String, _>(0));
    }
    seen.dedup();
    assert_eq!(seen.len(), 1, "{seen:?}");
}

#[tokio::test]
async fn expired_rows_are_deleted() {
    let Some(database) = Database::lent("expired_rows_are_deleted").await else { return };
    let (store, app) = with_app(&database).await;
    for number in 0..20 {
        let key = samples::key(&format!("run-{number:02}"), 1);
        client::admit(&store, app, samples::keyed(key, samples::deploy("v"))).await;
    }
    let hours_ago = |hours: f64| format!("rollhook.clock() - {}", hours * 3_600_000.0);
    database
        .run(&format!(
            "UPDATE rollhook.keys SET expires_at = {} WHERE key < 'run-10'; \
             UPDATE rollhook.keys SET expires_at = {} WHERE key BETWEEN 'run-10' AND 'run-14'; \
             INSERT INTO rollhook.replicas VALUES ('gone', 8, {}, 1), ('returning', 9, {2}, 1), ('dead', 10, {}, 1); \
             INSERT INTO rollhook.records SELECT 'session', 'old' || n, n, '{{}}', 0, {0} FROM generate_series(1, 2500) n; \
             INSERT INTO rollhook.records SELECT 'session', 'new' || n, n, '{{}}', 0, {1} FROM generate_series(1, 5) n; \
             INSERT INTO rollhook.records VALUES ('session', 'lasting', 1, '{{}}', 0, NULL)",
            hours_ago(1.1),
            hours_ago(0.9),
            hours_ago(25.0),
            hours_ago(23.0),
        ))
        .await;
    let mut other = database.connection().await;
    bed::run(&mut other, "BEGIN; UPDATE rollhook.replicas SET ttl = 2 WHERE name = 'returning'").await;
    // Another handle begins with it at once.
    let _other = database.store().await;
    let left = "SELECT (SELECT count(*) FROM rollhook.keys) * 100 + (SELECT count(*) FROM rollhook.replicas) \
                + (SELECT count(*) FROM rollhook.records) * 10000";
    for _ in 0..100 {
        if database.number(left).await == 61_002 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bed::run(&mut other, "COMMIT").await;
    let keys = database.rows("SELECT key FROM rollhook.keys ORDER BY key").await;
    assert_eq!((keys.len(), keys[0].get::<&str, _>(0)), (10, "run-10"), "those that expired an hour ago are deleted");
    let kept = "SELECT count(*) FROM rollhook.records WHERE key LIKE 'new%' OR key = 'lasting'";
    assert_eq!(database.number(kept).await, 6, "records that expired less than an hour ago are kept, as keys are");
    let names = database.rows("SELECT name FROM rollhook.replicas ORDER BY name").await;
    let names: Vec<&str> = names.iter().map(|row| row.get(0)).collect();
    assert_eq!(names, ["dead", "returning"], "one that is gone since yesterday is deleted, one that returns is left");
}

#[tokio::test]
async fn commits_of_other_processes_are_told() {
    let Some(database) = Database::lent("commits_of_other_processes_are_told").await else { return };
    let (one, app) = with_app(&database).await;
    let two = database.store().await;
    let mut changes = one.watch();
    let next = async |changes: &mut BoxStream<'static, AppChange>| {
        tokio::time::timeout(Duration::from_secs(20), changes.next()).await.unwrap()
    };
    let told = async || Some(AppChange::App(app, client::load(&one, app).await.version));
    assert_eq!(next(&mut changes).await, Some(AppChange::Any), "from now on others' commits are heard");
    accept(&one, app, "v1").await;
    assert_eq!(next(&mut changes).await, told().await);
    accept(&two, app, "v2").await;
    assert_eq!(next(&mut changes).await, told().await, "by another");
    assert_eq!(changes.next().now_or_never(), None, "own commits are told once");
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' \
               AND datname = current_database()";
    assert!(database.number(cut).await > 0);
    assert_eq!(next(&mut changes).await, Some(AppChange::Any), "it listens again, and may have missed something");
    client::remove(&two, app).await;
    assert_eq!(next(&mut changes).await, Some(AppChange::App(app, Version::REMOVED)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_that_is_put_during_a_removal_goes_with_the_app() {
    let test = "token_that_is_put_during_a_removal_goes_with_the_app";
    let Some(database) = Database::lent(test).await else { return };
    use rollhook_core::ports::TokenStore;
    let (one, two) = (database.store().await, database.store().await);
    for number in 0..30 {
        let app = client::register(&one, samples::app("shop", "test", &format!("app-{number}"))).await.state.app.uid;
        let put = async {
            let token = samples::token(1);
            for _ in 0..5 {
                match two.put(app, &token).await {
                    Ok(_) | Err(Error::NotFound(Entity::App)) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
        };
        tokio::join!(put, client::remove(&one, app));
    }
    assert_eq!(database.number("SELECT count(*) FROM rollhook.tokens").await, 0);
}
