//! The stores keep what the ports promise through PgBouncer in transaction mode, which gives each transaction to
//! whichever of three sessions is free; its settings are its own defaults.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use rollhook_conformance::{client, samples};
use rollhook_core::ports::{AppChange, HistoryStore};
use rollhook_postgres::PostgresStore;

use crate::bed::{
    Database, accept,
    fresh::{Fresh, block_on},
    ring, skipped,
};

rollhook_conformance::stores!(block_on, Fresh::pooled().await);

#[tokio::test]
async fn pooled_sessions_are_not_made_to_listen() {
    let test = "pooled_sessions_are_not_made_to_listen";
    let Some(database) = Database::lent(test).await else { return };
    let Some(url) = database.pooled_url() else { return skipped(test, "there is no PgBouncer on this machine") };
    let store = PostgresStore::connect(&url, ring(1)).await.unwrap();
    let app = client::register(&store, samples::app("shop", "test", "api")).await.state.app.uid;
    let mut changes = store.watch();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(changes.next().now_or_never(), None, "nothing is heard");
    accept(&store, app, "v1").await;
    let version = client::load(&store, app).await.version;
    assert_eq!(changes.next().await, Some(AppChange::App(app, version)), "own commits are told without the database");
    let listening = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    assert_eq!(database.number(listening).await, 0);
}

#[tokio::test]
async fn pooled_sessions_keep_no_settings() {
    let test = "pooled_sessions_keep_no_settings";
    let Some(database) = Database::lent(test).await else { return };
    let Some(url) = database.pooled_url() else { return skipped(test, "there is no PgBouncer on this machine") };
    let store = PostgresStore::connect(&url, ring(1)).await.unwrap();
    let app = client::register(&store, samples::app("shop", "test", "api")).await.state.app.uid;
    for tag in ["v1", "v2", "v3", "v4"] {
        accept(&store, app, tag).await;
        let settings = "SELECT current_setting('lock_timeout') = '0' AND current_setting('synchronous_commit') = 'on'";
        assert!(database.pooled_flag(settings).await, "a session was left with a setting of the store's");
    }
}
