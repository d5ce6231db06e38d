//! Locks that others hold: an administrator's open transaction, say.

use std::time::Duration;

use rollhook_conformance::{client, samples};
use rollhook_core::{
    Result,
    app::AppUid,
    ledger::Change,
    ports::{AppCommit, Committed, HistoryStore, HistoryStoreExt},
};
use rollhook_postgres::PostgresStore;

use crate::bed::{self, Database, accept_on, with_app};

/// A store with apps of these numbers, which have one archived deploy each.
async fn with_apps(database: &Database, count: usize) -> (PostgresStore, Vec<AppUid>) {
    let store = database.store().await;
    let mut apps = Vec::new();
    for number in 0..count {
        let app = client::register(&store, samples::app("shop", "test", &format!("app-{number}"))).await.state.app.uid;
        let deploy = client::admit(&store, app, samples::admission(samples::deploy("v1"))).await;
        client::record(&store, app, vec![deploy.moved(samples::succeeded())]).await;
        apps.push(app);
    }
    (store, apps)
}

/// A commit of an accept for each app.
async fn accepts(store: &PostgresStore, apps: &[AppUid]) -> Vec<AppCommit> {
    let mut commits = Vec::new();
    for app in apps {
        commits.push(accept_on(&client::load(store, *app).await, samples::admission(samples::deploy("v2"))));
    }
    commits
}

#[track_caller]
fn assert_busy(answer: &Result<Committed>) {
    let refused = answer.as_ref().unwrap_err();
    assert!(refused.is_unavailable() && refused.to_string().contains("holds a lock"), "{refused:?}");
}

#[tokio::test]
async fn row_lock_is_unavailable_until_it_is_released() {
    let Some(database) = Database::lent("row_lock_is_unavailable_until_it_is_released").await else { return };
    let (store, app) = with_app(&database).await;
    let loaded = client::load(&store, app).await;
    let commit = || accept_on(&loaded, samples::admission(samples::deploy("v1")));
    let mut other = database.connection().await;
    bed::run(&mut other, "BEGIN; SELECT FROM rollhook.apps FOR UPDATE").await;
    assert_busy(&store.commit_one(commit()).await);
    assert_busy(&store.commit_one(client::removal(&loaded)).await);
    assert_eq!(client::load(&store, app).await.version, loaded.version, "reads go on");
    let replica = samples::replica("one", 1);
    let alive = store.heartbeat(&replica, Duration::from_secs(60)).await.unwrap().alive;
    assert_eq!(alive, [replica], "heartbeats go on");
    let waiting = store.commit_one(commit());
    let release = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        bed::run(&mut other, "ROLLBACK").await;
    };
    tokio::join!(waiting, release).0.unwrap();
    assert_eq!(client::load(&store, app).await.state.latest, Some(samples::revision(1)));
}

#[tokio::test]
async fn locked_apps_leave_the_others_alone() {
    let Some(database) = Database::lent("locked_apps_leave_the_others_alone").await else { return };
    let (store, apps) = with_apps(&database, 20).await;
    let mut commits = accepts(&store, &apps).await;
    let removal = client::removal(&client::load(&store, apps[0]).await);
    let mut other = database.connection().await;
    bed::run(&mut other, "BEGIN; SELECT FROM rollhook.apps WHERE name < 'app-15' AND name <> 'app-1' FOR UPDATE").await;
    let (locked, free): (Vec<usize>, Vec<usize>) = (0..20).partition(|at| [0, 10, 11, 12, 13, 14].contains(at));
    commits[0] = removal;
    let answers = store.commit(commits).await;
    locked.iter().for_each(|at| assert_busy(&answers[*at]));
    assert!(free.iter().all(|at| answers[*at].is_ok()), "{answers:?}");
    bed::run(&mut other, "ROLLBACK").await;
    for (at, app) in apps.into_iter().enumerate() {
        let latest = client::load(&store, app).await.state.latest;
        assert_eq!(latest, Some(samples::revision(if locked.contains(&at) { 1 } else { 2 })), "{at}");
    }
}

#[tokio::test]
async fn lock_within_an_app_leaves_the_others_alone() {
    let Some(database) = Database::lent("lock_within_an_app_leaves_the_others_alone").await else { return };
    let (store, apps) = with_apps(&database, 10).await;
    let mut other = database.connection().await;
    let lock = format!("BEGIN; SELECT FROM rollhook.deploys WHERE app = '{}' FOR UPDATE", apps[4]);
    bed::run(&mut other, &lock).await;
    let mut commits = Vec::new();
    for app in &apps {
        let loaded = client::load(&store, *app).await;
        let mut change = Change::on(loaded.state);
        change.forget(vec![samples::revision(1)], loaded.now);
        commits.push(client::put(change, loaded.version));
    }
    for (at, answer) in store.commit(commits).await.iter().enumerate() {
        if at == 4 {
            assert_busy(answer);
        } else {
            answer.as_ref().unwrap();
        }
    }
    bed::run(&mut other, "ROLLBACK").await;
    assert_eq!(database.number("SELECT count(*) FROM rollhook.deploys").await, 1);
}

#[tokio::test]
async fn lock_that_stops_all_is_found_out_by_few_statements() {
    let Some(database) = Database::lent("lock_that_stops_all_is_found_out_by_few_statements").await else { return };
    let (store, apps) = with_apps(&database, 100).await;
    let commits = accepts(&store, &apps).await;
    let mut other = database.connection().await;
    bed::run(&mut other, "BEGIN; LOCK TABLE rollhook.apps").await;
    store.commit(commits.clone()).await.iter().for_each(assert_busy);
    bed::run(&mut other, "ROLLBACK").await;
    store.commit_one(commits[0].clone()).await.unwrap();
    drop((store, other));
    database.left_alone().await;
    let failed = "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    let failed = database.number(failed).await;
    assert!((3..=30).contains(&failed), "{failed} statements failed for 100 commits");
}
