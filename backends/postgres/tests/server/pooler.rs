//! The stores keep what the ports promise through PgBouncer in transaction mode, which gives each transaction to whichever
//! of three sessions is free; its settings are its own defaults.

use std::time::Duration;

use crate::bed::{
    Database,
    fresh::{Fresh, block_on},
    ring, skipped,
};
use futures_util::{FutureExt, StreamExt};
use rollhook_conformance::samples;
use rollhook_core::ports::{Apps, History, Wake};
use rollhook_postgres::PostgresStore;

rollhook_conformance::stores!(block_on, Fresh::pooled().await);

#[tokio::test]
async fn notifications_that_do_not_arrive_are_done_without() {
    let test = "notifications_that_do_not_arrive_are_done_without";
    let Some(database) = Database::lent(test).await else { return };
    let Some(url) = database.pooled_url() else { return skipped(test, "there is no PgBouncer on this machine") };
    let store = PostgresStore::connect(&url, ring(1)).await.unwrap();
    let app = store.create(samples::app("shop", "test", "api")).await.unwrap();
    let mut wakes = store.wakes();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(wakes.next().now_or_never(), None, "nothing is heard");
    store.admit(samples::admission(&app, samples::draft("v1"))).await.unwrap();
    assert_eq!(wakes.next().await, Some(Wake::App(app.uid)), "one's own writes are told without the database");
    let listening = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    assert_eq!(database.number(listening).await, 0, "no session of the pooler was made to listen");
}
