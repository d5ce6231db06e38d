//! Calls to the threads that own the connections, and their answers.

use std::sync::mpsc;

use rollhook_core::{
    Result,
    ports::{AppChange, WallClock},
    time::Timestamp,
};
use rusqlite::{CachedStatement, Connection};
use tokio::sync::oneshot;

use crate::error::SqlError;

/// The clocks of the store.
#[derive(Clone)]
pub(crate) struct Clocks {
    /// The clock of what is stored and expires.
    pub(crate) stored: WallClock,
    pub(crate) wall: WallClock,
}

/// A connection within a transaction, for the work of a call.
pub(crate) struct Session<'a> {
    pub(crate) connection: &'a Connection,
    /// The store's clock, read within the transaction.
    pub(crate) now: Timestamp,
    /// The wall clock, read with it: heartbeats are compared with those of other processes.
    pub(crate) wall: Timestamp,
    /// The hints to send after the commit.
    pub(crate) changes: Vec<AppChange>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(connection: &'a Connection, clocks: &Clocks) -> Self {
        Self { connection, now: (clocks.stored)(), wall: (clocks.wall)(), changes: Vec::new() }
    }

    /// Returns a statement, which is prepared once per connection.
    pub(crate) fn statement(&self, sql: &'static str) -> rusqlite::Result<CachedStatement<'a>> {
        self.connection.prepare_cached(sql)
    }
}

/// A call that waits for its answer.
pub(crate) trait Call: Send {
    /// Returns whether the caller has gone away.
    fn is_abandoned(&self) -> bool;
    /// Does the work. An error undoes the transaction, with the other calls in it.
    fn run(&mut self, session: &mut Session<'_>) -> rusqlite::Result<()>;
    /// Sends the answer, or the failure that undid it.
    fn finish(self: Box<Self>, done: Result<(), SqlError>);
}

struct Request<W, T> {
    work: Option<W>,
    output: Option<T>,
    answer: oneshot::Sender<Result<T, SqlError>>,
}

impl<W, T> Call for Request<W, T>
where
    W: FnOnce(&mut Session<'_>) -> rusqlite::Result<T> + Send,
    T: Send,
{
    fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn run(&mut self, session: &mut Session<'_>) -> rusqlite::Result<()> {
        if let Some(work) = self.work.take() {
            self.output = Some(work(session)?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, done: Result<(), SqlError>) {
        let Self { output, answer, .. } = *self;
        // A caller that has gone away misses its answer; what was written stays.
        let _ = answer.send(done.and_then(|()| output.ok_or(SqlError::Stopped)));
    }
}

/// Sends calls to a thread.
#[derive(Clone)]
pub(crate) struct Calls(pub(crate) mpsc::Sender<Box<dyn Call>>);

impl Calls {
    /// Has the thread do some work, and returns the output. The work's outer error undoes the transaction; its inner
    /// error is the answer to this call alone, and the work must have changed nothing then.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Session<'_>) -> rusqlite::Result<Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.try_run(work).await.unwrap_or_else(|failure| Err(failure.to_error()))
    }

    /// Has the thread do some work, and returns the output, or the failure of the whole transaction.
    pub(crate) async fn try_run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Session<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, SqlError> {
        let (answer, answered) = oneshot::channel();
        let request = Box::new(Request { work: Some(work), output: None, answer });
        self.0.send(request).map_err(|_| SqlError::Stopped)?;
        answered.await.map_err(|_| SqlError::Stopped)?
    }
}
