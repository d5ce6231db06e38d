//! Answers that do not come, connections that break.

use rollhook_conformance::{client, samples};
use rollhook_core::ports::{AppRef, HistoryStore, HistoryStoreExt};

use crate::bed::{Database, accept, accept_on, with_app};

#[tokio::test]
async fn unanswered_statement_is_unavailable() {
    let Some(database) = Database::lent("unanswered_statement_is_unavailable").await else { return };
    let (store, app) = with_app(&database).await;
    let loaded = client::load(&store, app).await;
    let commit = || accept_on(&loaded, samples::admission(samples::deploy("v1")));
    database
        .run(
            "ALTER FUNCTION rollhook.clock() RENAME TO clock_before; \
             CREATE FUNCTION rollhook.clock() RETURNS bigint LANGUAGE sql AS 'SELECT pg_sleep(60); SELECT 0::bigint'",
        )
        .await;
    let (committed, read) = tokio::join!(store.commit_one(commit()), store.load(AppRef::Uid(app), None));
    for refused in [committed.map(drop), read.map(drop)] {
        let refused = refused.unwrap_err();
        assert!(refused.is_unavailable() && refused.to_string().contains("in time"), "{refused:?}");
    }
    // A statement whose caller has given up keeps its locks until it ends.
    let stop = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active'";
    database.number(stop).await;
    database.run("DROP FUNCTION rollhook.clock(); ALTER FUNCTION rollhook.clock_before() RENAME TO clock").await;
    store.commit_one(commit()).await.unwrap();
    assert_eq!(client::load(&store, app).await.state.latest, Some(samples::revision(1)));
}

#[tokio::test]
async fn broken_connections_are_opened_again() {
    let Some(database) = Database::lent("broken_connections_are_opened_again").await else { return };
    let (store, app) = with_app(&database).await;
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    assert_eq!(accept(&store, app, "v1").await, 1);
    assert!(database.number(cut).await > 1);
    let loaded = client::load(&store, app).await;
    assert_eq!(loaded.state.latest, Some(samples::revision(1)), "reads are repeated");
    let commit = || accept_on(&loaded, samples::admission(samples::deploy("v2")));
    let mut refused = 0;
    while let Err(error) = store.commit_one(commit()).await {
        assert!(error.is_unavailable(), "{error:?}");
        refused += 1;
        assert!(refused <= 1, "one finds out for all");
    }
    assert_eq!(
        client::load(&store, app).await.state.latest,
        Some(samples::revision(2)),
        "the refused one is not stored"
    );
}
