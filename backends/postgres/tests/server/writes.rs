//! Accepts and records that share a statement.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use rollhook_conformance::samples;
use rollhook_core::{
    Error,
    deploy::{Reason, State},
    ports::{Admission, Admitted, Apps, Claim, History, HistoryExt, Page, Record},
};
use rollhook_postgres::PostgresStore;
use sqlx::Row;

use crate::bed::{self, Database, accept, number, with_app};

/// Transactions that wrote the entries that there are.
const COMMITS: &str = "SELECT count(DISTINCT d.xmin::text) FROM rollhook.deploys d";

#[tokio::test]
async fn concurrent_accepts_share_commits() {
    let Some(database) = Database::lent("concurrent_accepts_share_commits").await else { return };
    let (store, app) = with_app(&database).await;
    let accepts = (0..90).map(|number| store.admit(accept(&app, &format!("v{number}"))));
    let answers = join_all(accepts).await;
    let numbers: BTreeSet<u64> = answers.iter().map(|admitted| number(admitted.as_ref().unwrap())).collect();
    assert_eq!(numbers, (1..=90).collect());
    let commits = database.number(COMMITS).await;
    assert!(commits <= 9, "90 accepts took {commits} commits");
}

#[tokio::test]
async fn one_key_within_one_batch_is_one_deploy() {
    let Some(database) = Database::lent("one_key_within_one_batch_is_one_deploy").await else { return };
    let (store, app) = with_app(&database).await;
    let accepts = (0..20).map(|_| store.admit(Admission { key: Some(samples::key("run-1", 1)), ..accept(&app, "v1") }));
    let answers = join_all(accepts).await;
    assert!(answers.iter().all(|answer| number(answer.as_ref().unwrap()) == 1));
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Ok(Admitted::New { .. }))).count(), 1);
}

#[tokio::test]
async fn a_refused_item_leaves_its_neighbours_alone() {
    let Some(database) = Database::lent("a_refused_item_leaves_its_neighbours_alone").await else { return };
    let (store, app) = with_app(&database).await;
    let broken = store.create(samples::app("shop", "test", "broken")).await.unwrap();
    let keyed = || Admission { key: Some(samples::key("run-1", 1)), ..accept(&broken, "v1") };
    store.admit(keyed()).await.unwrap();
    database
        .run("UPDATE rollhook.deploys SET body = '{'; UPDATE rollhook.apps SET holds = '1' WHERE name = 'broken'")
        .await;
    let unknown = samples::app("shop", "test", "unknown");
    let holding = Admission { hold: Some(samples::hold("bad")), ..accept(&broken, "v2") };
    let (one, unreadable, missing, holding, two) = tokio::join!(
        store.admit(accept(&app, "v1")),
        store.admit(keyed()),
        store.admit(accept(&unknown, "v1")),
        store.admit(holding),
        store.admit(accept(&app, "v2")),
    );
    let numbers: BTreeSet<u64> = [one, two].iter().map(|answer| number(answer.as_ref().unwrap())).collect();
    assert_eq!(numbers, [1, 2].into());
    assert!(matches!(unreadable, Err(Error::Corrupt { .. })), "{unreadable:?}");
    assert!(matches!(missing, Err(Error::NotFound("app"))), "{missing:?}");
    assert!(matches!(holding, Err(Error::Invalid { .. })), "the server cannot add to what is no list: {holding:?}");
    assert!(matches!(store.view(broken.uid).await, Err(Error::Corrupt { .. })));
    assert_eq!(store.view(app.uid).await.unwrap().last, Some(samples::revision(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_go_away_hold_nobody_up() {
    let Some(database) = Database::lent("callers_that_go_away_hold_nobody_up").await else { return };
    let (store, app) = with_app(&database).await;
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
async fn what_is_answered_survives_a_crash_of_the_server() {
    let Some(database) = Database::lent("what_is_answered_survives_a_crash_of_the_server").await else { return };
    let (store, app) = with_app(&database).await;
    database.run(&format!("ALTER DATABASE {} SET synchronous_commit = off", database.name())).await;
    let mut connection = database.connection().await;
    let setting = "SELECT current_setting('synchronous_commit')";
    let given: String = sqlx::raw_sql(setting).fetch_one(&mut connection).await.unwrap().get(0);
    assert_eq!(given, "off", "for new connections");
    bed::run(&mut connection, "BEGIN").await;
    let write = "SELECT FROM rollhook.write('test', 100, 100, '[]')";
    sqlx::raw_sql(write).fetch_all(&mut connection).await.unwrap();
    let in_force: String = sqlx::raw_sql(setting).fetch_one(&mut connection).await.unwrap().get(0);
    assert_eq!(in_force, "on", "until the end of the transaction that writes");
    bed::run(&mut connection, "COMMIT").await;
    store.admit(accept(&app, "v1")).await.unwrap();
}

#[tokio::test]
async fn what_a_deploy_needs_is_found_by_index() {
    let Some(database) = Database::lent("what_a_deploy_needs_is_found_by_index").await else { return };
    let (store, app) = with_app(&database).await;
    let claim = || Claim { replica: samples::replica("one", 1), ttl: Duration::from_secs(600), limit: 10 };
    let round = async |number: usize| {
        let key = Some(samples::key(&format!("run-{number}"), 1));
        let admission = Admission { key, supersede: true, ..accept(&app, "v") };
        let Admitted::New { deploy, .. } = store.admit(admission).await.unwrap() else { panic!("not new") };
        let failed = State::Failed { reason: Reason::new("test"), message: "test".to_owned(), evidence: None };
        let record =
            Record { app: app.uid, claim: None, changes: vec![deploy.moved(failed)], lift: Vec::new(), rest: true };
        store.claim(claim()).await.unwrap();
        store.record(record).await.unwrap();
        store.view(app.uid).await.unwrap();
        assert!(Apps::find(&store, &app.id).await.unwrap().is_some());
    };
    for number in 0..30 {
        round(number).await;
    }
    // The sessions made their plans while the tables were empty. They report what they did when they end.
    drop(store);
    let scans = "SELECT coalesce(sum(seq_scan), 0)::bigint FROM pg_stat_user_tables \
                 WHERE schemaname = 'rollhook' AND relname IN ('apps', 'heads', 'deploys', 'keys', 'tokens')";
    let found = "SELECT coalesce(sum(idx_scan), 0)::bigint FROM pg_stat_user_tables WHERE relname = 'deploys'";
    for _ in 0..100 {
        if database.number(found).await >= 60 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(database.number(found).await >= 60);
    let made = "SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid \
                WHERE relnamespace = 'rollhook'::regnamespace AND relname IN ('apps', 'heads', 'deploys', 'keys', 'tokens')";
    assert_eq!(
        database.number(scans).await,
        database.number(made).await,
        "tables were read whole to make indexes only"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_handles_number_one_history() {
    let Some(database) = Database::lent("two_handles_number_one_history").await else { return };
    let (one, app) = with_app(&database).await;
    let two = database.store().await;
    let other = one.create(samples::app("shop", "prod", "api")).await.unwrap();
    let task = |store: PostgresStore| {
        let apps = [app.clone(), other.clone()];
        tokio::spawn(async move {
            let mut numbers = [Vec::new(), Vec::new()];
            for _ in 0..10 {
                // In one order here, and in the other there: locks are taken in the apps' order.
                let accepts = (0..8).map(|at| store.admit(accept(&apps[at % 2], "v")));
                for (at, answer) in join_all(accepts).await.iter().enumerate() {
                    numbers[at % 2].push(number(answer.as_ref().unwrap()));
                }
            }
            numbers
        })
    };
    let (from_one, from_two) = tokio::join!(task(one.clone()), task(two.clone()));
    let [mut first, mut second] = from_one.unwrap();
    let [more_first, more_second] = from_two.unwrap();
    first.extend(more_first);
    second.extend(more_second);
    for mut numbers in [first, second] {
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=80).collect::<Vec<_>>());
    }
    assert_eq!(one.view(app.uid).await.unwrap().unfinished.len(), 80);
}
