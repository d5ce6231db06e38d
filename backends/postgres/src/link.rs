//! A connection that is opened when it is needed, and again after it broke.

use std::{future::Future, sync::Arc, time::Duration};

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, PgConnection,
    postgres::{PgConnectOptions, PgRow},
};
use tokio::time::timeout;

use crate::error::Failure;

/// How long the server may take to let us in.
const CONNECT: Duration = Duration::from_secs(5);
/// How long it may take to answer a statement; longer than the functions wait for locks.
const ANSWER: Duration = Duration::from_secs(8);

/// One connection's state.
pub(crate) struct Link {
    options: Arc<PgConnectOptions>,
    open: Option<PgConnection>,
}

impl Link {
    pub(crate) fn new(options: Arc<PgConnectOptions>) -> Self {
        Self { options, open: None }
    }

    /// Runs a statement, to its end by the server even if nobody waits for it any more: each one is a transaction of its
    /// own, so that no lock outlives it. Values stand in it by [`crate::literal`] alone.
    ///
    /// One that may be run twice is repeated where a connection that was open before turns out to be broken.
    pub(crate) async fn fetch(&mut self, statement: String, repeatable: bool) -> Result<Vec<PgRow>, Failure> {
        let statement: Arc<str> = statement.into();
        if self.open.is_some() {
            let fetched = self.try_fetch(&statement).await;
            // Where it is still open, it is the statement that failed.
            if fetched.is_ok() || !repeatable || self.open.is_some() {
                return fetched;
            }
        }
        self.try_fetch(&statement).await
    }

    async fn try_fetch(&mut self, statement: &Arc<str>) -> Result<Vec<PgRow>, Failure> {
        // Taken out, so that a connection in the middle of something is closed when this future is dropped.
        let mut connection = match self.open.take() {
            Some(connection) => connection,
            None => connect(&self.options).await?,
        };
        let statement = sqlx::raw_sql(AssertSqlSafe(Arc::clone(statement)));
        let fetched = in_time(ANSWER, statement.fetch_all(&mut connection)).await;
        if fetched.as_ref().map_or_else(Failure::leaves_connection_sound, |_| true) {
            self.open = Some(connection);
        }
        fetched
    }

    /// Closes the connection in order.
    pub(crate) async fn close(&mut self) {
        if let Some(connection) = self.open.take()
            && let Err(failure) = in_time(CONNECT, connection.close()).await
        {
            tracing::debug!(error = failure.to_error().chain(), "closing a connection to the database failed");
        }
    }
}

/// A new connection.
pub(crate) async fn connect(options: &PgConnectOptions) -> Result<PgConnection, Failure> {
    in_time(CONNECT, options.connect()).await
}

/// What comes of it within this time.
pub(crate) async fn in_time<T>(limit: Duration, work: impl Future<Output = sqlx::Result<T>>) -> Result<T, Failure> {
    timeout(limit, work).await.map_err(|_| Failure::late())?.map_err(Failure::from)
}
