//! Receives notifications of other processes' commits. Polling finds those that are not received.
//!
//! Through a pooler in transaction mode a `LISTEN` does harm: the session goes on listening when it is another
//! client's, and the notifications mix with that client's answers. So the listener first checks that connections have
//! sessions of their own.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rollhook_core::{
    Result,
    ports::{AppChange, Version},
};
use rollhook_sql::Hints;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::{sync::watch, time::sleep};

use crate::{
    connections::{Connections, in_time},
    error::SqlError,
    literal::{column, uid},
};

/// The longest wait for the server to accept the listener.
const BEGIN: Duration = Duration::from_secs(3);
/// The time until the next attempt after the connection broke.
const RECONNECT: Duration = Duration::from_secs(2);
/// The time until the next attempt if connections share sessions.
const RECHECK: Duration = Duration::from_secs(600);

/// Passes notifications on as hints.
pub(crate) struct Listener {
    pub(crate) sender: Arc<str>,
    pub(crate) hints: Hints,
}

impl Listener {
    /// Listens until the store is closed.
    pub(crate) async fn run(self, options: Arc<PgConnectOptions>, mut closing: watch::Receiver<()>) {
        loop {
            let ended = tokio::select! {
                _ = closing.changed() => return,
                ended = self.listen(&options) => ended,
            };
            let pause = match ended {
                Ok(()) => {
                    tracing::info!("polling instead of listening: a pooler shares the database's sessions");
                    RECHECK
                }
                Err(failure) => {
                    tracing::debug!(error = failure.to_error().chain(), "listening to the database failed");
                    RECONNECT
                }
            };
            tokio::select! {
                _ = closing.changed() => return,
                () = sleep(pause) => {}
            }
        }
    }

    /// Listens until the connection breaks. Returns at once if connections have no sessions of their own.
    async fn listen(&self, options: &Arc<PgConnectOptions>) -> Result<(), SqlError> {
        if !has_own_sessions(options).await? {
            return Ok(());
        }
        let pool =
            PgPoolOptions::new().max_connections(1).acquire_timeout(BEGIN).connect_lazy_with((**options).clone());
        let mut listener = in_time(BEGIN, PgListener::connect_with(&pool)).await?;
        listener.eager_reconnect(false);
        in_time(BEGIN, listener.listen("rollhook")).await?;
        // Commits may have been missed until now.
        self.hints.send(AppChange::Any);
        while let Some(notification) = listener.try_recv().await? {
            self.forward(notification.payload());
        }
        Err(sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into()).into())
    }

    /// Sends the hint of a payload, which is `SENDER UID VERSION`.
    fn forward(&self, payload: &str) {
        let mut words = payload.split(' ');
        if words.next() != Some(&self.sender) {
            let app = words.next().and_then(|word| uid(word).ok());
            let version = words.next().and_then(|word| word.parse().ok()).map(Version);
            self.hints.send(app.zip(version).map_or(AppChange::Any, |(app, version)| AppChange::App(app, version)));
        }
    }
}

/// Returns whether each connection keeps its session: two connections never share one, and neither changes it. A pooler
/// gives a statement the session that was used last, which makes two connections share it; or the one that was not used
/// for the longest time, which makes one connection change it.
async fn has_own_sessions(options: &Arc<PgConnectOptions>) -> Result<bool, SqlError> {
    let connections = [Connections::new(options, 1), Connections::new(options, 1)];
    let mut seen = [const { BTreeSet::<i64>::new() }; 2];
    for _ in 0..5 {
        for (connection, seen) in connections.iter().zip(&mut seen) {
            for _ in 0..2 {
                let rows = connection.attempt("SELECT pg_backend_pid()::bigint".into()).await?;
                seen.insert(column(rows.first().ok_or(sqlx::Error::RowNotFound)?, 0)?);
            }
        }
    }
    let [one, two] = seen;
    Ok(one.len() == 1 && two.len() == 1 && one != two)
}
