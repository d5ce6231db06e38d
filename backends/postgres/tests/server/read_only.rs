//! A database that can be read and not written, as a standby, or a server whose disk is full.

use std::time::Duration;

use rollhook_conformance::{client, samples};
use rollhook_core::ports::HistoryStore;
use rollhook_testing::until_async;

use crate::bed::{Database, with_app};

#[tokio::test]
async fn heartbeat_fails_while_the_database_is_read_only() {
    let Some(database) = Database::lent("heartbeat_fails_while_the_database_is_read_only").await else { return };
    let (store, app) = with_app(&database).await;
    let replica = samples::replica("pod-1", 1);
    let beat = || store.heartbeat(&replica, Duration::from_secs(15));
    beat().await.unwrap();
    // Sessions that exist keep their default.
    let turn = async |value: &str| {
        let name = database.name();
        database
            .run(&format!(
                "SET TRANSACTION READ WRITE; ALTER DATABASE {name} SET default_transaction_read_only = {value}"
            ))
            .await;
        let others = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                      WHERE datname = current_database() AND pid <> pg_backend_pid()";
        database.number(others).await;
    };
    turn("on").await;
    until_async("it cannot be written", async || beat().await.is_err()).await;
    assert_eq!(client::load(&store, app).await.state.app.uid, app, "it is read");
    turn("off").await;
    until_async("it can be written", async || beat().await.is_ok()).await;
}
