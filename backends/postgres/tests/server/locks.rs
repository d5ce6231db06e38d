//! Locks that others hold: an administrator's open transaction, say.

use std::time::Duration;

use futures_util::future::join_all;
use rollhook_conformance::samples;
use rollhook_core::{
    Result,
    app::App,
    ports::{Admission, Admitted, Apps, Claim, History},
};
use rollhook_postgres::PostgresStore;

use crate::bed::{self, Database, accept, number, with_app};

/// A store with apps that have one entry each.
async fn with_apps(database: &Database, count: usize) -> (PostgresStore, Vec<App>) {
    let store = database.store().await;
    let mut apps = Vec::new();
    for number in 0..count {
        let app = store.create(samples::app("shop", "test", &format!("app-{number}"))).await.unwrap();
        store.admit(accept(&app, "v1")).await.unwrap();
        apps.push(app);
    }
    (store, apps)
}

fn assert_busy(answer: &Result<Admitted>) {
    let refused = answer.as_ref().unwrap_err();
    assert!(refused.is_unavailable() && refused.to_string().contains("holds a lock"), "{refused:?}");
}

#[tokio::test]
async fn a_lock_of_another_session_is_unavailable_until_it_is_released() {
    let test = "a_lock_of_another_session_is_unavailable_until_it_is_released";
    let Some(database) = Database::lent(test).await else { return };
    let (store, app) = with_app(&database).await;
    let mut other = database.connection().await;
    bed::run(&mut other, "BEGIN; SELECT FROM rollhook.heads FOR UPDATE").await;
    assert_busy(&store.admit(accept(&app, "v1")).await);
    assert_eq!(store.view(app.uid).await.unwrap().last, None, "reads go on");
    let claim = Claim { replica: samples::replica("one", 1), ttl: Duration::from_secs(60), limit: 10 };
    assert!(store.claim(claim).await.unwrap().apps.is_empty(), "claims go on");
    let waiting = store.admit(accept(&app, "v1"));
    let release = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        bed::run(&mut other, "ROLLBACK").await;
    };
    assert_eq!(number(&tokio::join!(waiting, release).0.unwrap()), 1);
}

#[tokio::test]
async fn locked_apps_are_nobody_elses_trouble() {
    let Some(database) = Database::lent("locked_apps_are_nobody_elses_trouble").await else { return };
    let (store, apps) = with_apps(&database, 20).await;
    let mut other = database.connection().await;
    bed::run(&mut other, "BEGIN; SELECT FROM rollhook.heads WHERE app <= 10 FOR UPDATE").await;
    // More than share a statement.
    let answers = join_all((0..300).map(|at| store.admit(accept(&apps[at % 20], "v2")))).await;
    for (at, answer) in answers.iter().enumerate() {
        if at % 20 < 10 {
            assert_busy(answer);
        } else {
            assert!(number(answer.as_ref().unwrap()) > 1);
        }
    }
    bed::run(&mut other, "ROLLBACK").await;
    assert_eq!(number(&store.admit(accept(&apps[0], "v2")).await.unwrap()), 2, "what was refused is not recorded");
    assert_eq!(number(&store.admit(accept(&apps[19], "v2")).await.unwrap()), 17);
}

#[tokio::test]
async fn a_call_that_meets_a_lock_within_its_app_fails_alone() {
    let Some(database) = Database::lent("a_call_that_meets_a_lock_within_its_app_fails_alone").await else { return };
    let (store, apps) = with_apps(&database, 10).await;
    let mut other = database.connection().await;
    bed::run(&mut other, "BEGIN; SELECT FROM rollhook.deploys WHERE app = 5 FOR UPDATE").await;
    let accepts = apps.iter().map(|app| store.admit(Admission { supersede: true, ..accept(app, "v2") }));
    for (at, answer) in join_all(accepts).await.iter().enumerate() {
        if at == 4 {
            assert_busy(answer);
        } else {
            assert_eq!(number(answer.as_ref().unwrap()), 2);
        }
    }
}

#[tokio::test]
async fn a_lock_that_stops_everybody_is_found_out_by_few() {
    let Some(database) = Database::lent("a_lock_that_stops_everybody_is_found_out_by_few").await else { return };
    let (store, apps) = with_apps(&database, 10).await;
    let mut other = database.connection().await;
    bed::run(&mut other, "BEGIN; LOCK TABLE rollhook.heads").await;
    let answers = join_all((0..100).map(|at| store.admit(accept(&apps[at % 10], "v2")))).await;
    answers.iter().for_each(assert_busy);
    bed::run(&mut other, "ROLLBACK").await;
    assert_eq!(number(&store.admit(accept(&apps[0], "v2")).await.unwrap()), 2);
    drop((store, other));
    database.left_alone().await;
    let failed = "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    let failed = database.number(failed).await;
    assert!((3..=8).contains(&failed), "{failed} statements failed for 100 calls");
}
