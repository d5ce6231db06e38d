//! A call on its way to the thread that serves it, and its answer on the way back.

use std::sync::mpsc;

use rollhook_core::{ports::AppChange, time::Timestamp};
use rusqlite::{CachedStatement, Connection};
use tokio::sync::oneshot;

use crate::error::Failure;

/// What a call works with: a connection within a transaction.
pub(crate) struct Session<'a> {
    pub(crate) connection: &'a Connection,
    /// The store's clock, read within the transaction.
    pub(crate) now: Timestamp,
    /// The hints to send after the commit.
    pub(crate) changes: Vec<AppChange>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(connection: &'a Connection, now: Timestamp) -> Self {
        Self { connection, now, changes: Vec::new() }
    }

    /// A statement, which is prepared once per connection.
    pub(crate) fn statement(&self, sql: &'static str) -> rusqlite::Result<CachedStatement<'a>> {
        self.connection.prepare_cached(sql)
    }
}

/// A call whose caller waits.
pub(crate) trait Call: Send {
    /// Whether the caller has gone away.
    fn is_abandoned(&self) -> bool;
    /// Works out the answer. An error undoes the transaction, with the other calls in it.
    fn run(&mut self, session: &mut Session<'_>) -> rusqlite::Result<()>;
    /// Sends the answer, or the failure that undid it.
    fn finish(self: Box<Self>, done: Result<(), Failure>);
}

struct Job<W, T> {
    work: Option<W>,
    output: Option<T>,
    answer: oneshot::Sender<Result<T, Failure>>,
}

impl<W, T> Call for Job<W, T>
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

    fn finish(self: Box<Self>, done: Result<(), Failure>) {
        let Self { output, answer, .. } = *self;
        // A caller that has gone away misses its answer; what was written stays.
        let _ = answer.send(done.and_then(|()| output.ok_or(Failure::Stopped)));
    }
}

/// The way to a thread.
pub(crate) type Calls = mpsc::Sender<Box<dyn Call>>;

/// Has a thread do some work, and waits for its output.
pub(crate) async fn call<T: Send + 'static>(
    calls: &Calls,
    work: impl FnOnce(&mut Session<'_>) -> rusqlite::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    let (answer, answered) = oneshot::channel();
    calls.send(Box::new(Job { work: Some(work), output: None, answer })).map_err(|_| Failure::Stopped)?;
    answered.await.map_err(|_| Failure::Stopped)?
}
