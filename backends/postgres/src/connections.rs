//! Connections that are opened when they are needed, and again after they broke.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sqlx::{
    AssertSqlSafe, ConnectOptions, PgConnection,
    postgres::{PgConnectOptions, PgRow},
};
use tokio::{sync::Semaphore, time::timeout};

use crate::error::SqlError;

/// The longest wait for the server to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest wait for an answer; longer than statements wait for locks.
const ANSWER: Duration = Duration::from_secs(8);

/// Stands before each write: how long it waits for locks, and that what it answered survives a crash of the server,
/// whatever the server's default is. Neither outlives the transaction, and neither gives a row.
const WRITE: &str = "SET LOCAL lock_timeout = '1s'; SELECT WHERE set_config('synchronous_commit', \
                     replace(current_setting('synchronous_commit'), 'off', 'on'), true) IS NULL; ";

/// Connections for calls of one kind, so that other kinds cannot use them up; clones share them.
#[derive(Clone)]
pub(crate) struct Connections(Arc<Shared>);

struct Shared {
    options: Arc<PgConnectOptions>,
    permits: Semaphore,
    unused: Mutex<Vec<PgConnection>>,
}

impl Connections {
    /// Returns a pool of at most this many connections; none is open yet.
    pub(crate) fn new(options: &Arc<PgConnectOptions>, most: usize) -> Self {
        let (permits, unused) = (Semaphore::new(most), Mutex::default());
        Self(Arc::new(Shared { options: Arc::clone(options), permits, unused }))
    }

    /// Runs a statement, or several, once. They are a transaction of its own, which the server brings to its end even
    /// if the caller goes away, so that no lock outlives it.
    pub(crate) async fn write(&self, statement: String) -> Result<Vec<PgRow>, SqlError> {
        self.run([WRITE, &statement].concat().into()).await
    }

    /// Runs a statement that only reads: again, on a new connection, if the one used before turns out to be broken.
    pub(crate) async fn read(&self, statement: String) -> Result<Vec<PgRow>, SqlError> {
        match self.run(statement.clone().into()).await {
            Err(failure) if failure.is_broken_connection() => self.run(statement.into()).await,
            done => done,
        }
    }

    async fn run(&self, statement: Arc<str>) -> Result<Vec<PgRow>, SqlError> {
        let done = self.attempt(statement).await;
        if let Err(failure) = &done {
            tracing::warn!(error = failure.to_error().chain(), "running a statement failed");
        }
        done
    }

    /// Runs a statement once; the caller logs its failure.
    pub(crate) async fn attempt(&self, statement: Arc<str>) -> Result<Vec<PgRow>, SqlError> {
        let permit = self.0.permits.acquire();
        let _permit = in_time(ANSWER, async { permit.await.map_err(|_| sqlx::Error::PoolClosed) }).await?;
        let unused = self.unused().pop();
        // Owned here, so that it is closed with this future: an answer that is late must not meet the next call.
        let mut connection = match unused {
            Some(connection) => connection,
            None => connect(&self.0.options).await?,
        };
        let fetched = in_time(ANSWER, sqlx::raw_sql(AssertSqlSafe(statement)).fetch_all(&mut connection)).await;
        match &fetched {
            Err(failure) if !failure.leaves_connection_sound() => self.unused().clear(),
            Ok(_) | Err(_) => self.unused().push(connection),
        }
        fetched
    }

    /// Closes all unused connections but one. There may be as many as were in use at the same time.
    pub(crate) fn close_unused(&self) {
        self.unused().truncate(1);
    }

    fn unused(&self) -> MutexGuard<'_, Vec<PgConnection>> {
        self.0.unused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a connection.
pub(crate) async fn connect(options: &PgConnectOptions) -> Result<PgConnection, SqlError> {
    in_time(CONNECT, options.connect()).await
}

/// Fails if the work takes longer than the limit.
pub(crate) async fn in_time<T>(limit: Duration, work: impl Future<Output = sqlx::Result<T>>) -> Result<T, SqlError> {
    timeout(limit, work).await.map_err(|_| SqlError::late())?.map_err(SqlError::from)
}
