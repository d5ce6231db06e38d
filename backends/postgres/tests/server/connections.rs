//! Answers that do not come, connections that break.

use rollhook_conformance::samples;
use rollhook_core::ports::History;

use crate::bed::{Database, accept, number, with_app};

#[tokio::test]
async fn a_statement_that_is_not_answered_is_unavailable() {
    let Some(database) = Database::lent("a_statement_that_is_not_answered_is_unavailable").await else { return };
    let (store, app) = with_app(&database).await;
    database
        .run(
            "ALTER FUNCTION rollhook.clock() RENAME TO clock_before; \
             CREATE FUNCTION rollhook.clock() RETURNS bigint LANGUAGE sql AS 'SELECT pg_sleep(60); SELECT 0::bigint'",
        )
        .await;
    let (accepted, viewed) = tokio::join!(store.admit(accept(&app, "v1")), store.view(app.uid));
    for refused in [accepted.map(drop), viewed.map(drop)] {
        let refused = refused.unwrap_err();
        assert!(refused.is_unavailable() && refused.to_string().contains("in time"), "{refused:?}");
    }
    // What those statements hold is theirs until their ends: nothing says that they end at once where nobody waits.
    let stop = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active'";
    database.number(stop).await;
    database.run("DROP FUNCTION rollhook.clock(); ALTER FUNCTION rollhook.clock_before() RENAME TO clock").await;
    assert_eq!(number(&store.admit(accept(&app, "v1")).await.unwrap()), 1);
    assert_eq!(store.view(app.uid).await.unwrap().last, Some(samples::revision(1)));
}

#[tokio::test]
async fn connections_that_are_cut_are_opened_again() {
    let Some(database) = Database::lent("connections_that_are_cut_are_opened_again").await else { return };
    let (store, app) = with_app(&database).await;
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    store.admit(accept(&app, "v1")).await.unwrap();
    store.view(app.uid).await.unwrap();
    assert!(database.number(cut).await > 1);
    assert_eq!(store.view(app.uid).await.unwrap().last, Some(samples::revision(1)), "reads are repeated");
    let mut refused = 0;
    let accepted = loop {
        match store.admit(accept(&app, "v2")).await {
            Ok(accepted) => break accepted,
            Err(error) => assert!(error.is_unavailable(), "{error:?}"),
        }
        refused += 1;
        assert!(refused <= 2, "each of the two writers finds out once");
    };
    assert_eq!(number(&accepted), 2, "what was refused is not recorded");
}
