//! The one thread that writes: it takes all calls that wait, serves them in one transaction, and answers after the
//! commit.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use rollhook_core::{Result, ports::AppChange};
use rollhook_sql::Hints;
use tokio::sync::oneshot;

use crate::{
    call::{Call, Calls, Clocks, Session},
    connection::{BUSY_TIMEOUT, Link},
    error::SqlError,
    housekeeping::Housekeeping,
    schema,
};

/// The most calls that share a transaction.
const TOGETHER: usize = 256;
/// The time between checks for commits of other processes.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// The pause between attempts to lock a new file exclusively.
const RETRY: Duration = Duration::from_millis(50);

/// The writing thread's state.
pub(crate) struct Writer {
    pub(crate) link: Link,
    pub(crate) clocks: Clocks,
    pub(crate) hints: Hints,
    /// The number of transactions that were committed.
    pub(crate) commits: Arc<AtomicU64>,
    pub(crate) housekeeping: Housekeeping,
}

impl Writer {
    pub(crate) fn new(path: &Path, clocks: Clocks, hints: Hints, commits: Arc<AtomicU64>) -> Self {
        Self { link: Link::writer(path), clocks, hints, commits, housekeeping: Housekeeping::default() }
    }

    /// Starts the thread, which ends with the last sender of its calls. The receiver tells whether the file can be
    /// used.
    pub(crate) fn start(self) -> io::Result<(Calls, oneshot::Receiver<Result<()>>)> {
        let (calls, waiting) = mpsc::channel();
        let (ready, opened) = oneshot::channel();
        let run = move || {
            let mut writer = self;
            let prepared = writer.prepare(&waiting);
            let is_ready = prepared.is_ok();
            if ready.send(prepared).is_ok() && is_ready {
                writer.run(&waiting);
            }
        };
        thread::Builder::new().name("sqlite-write".to_owned()).spawn(run)?;
        Ok((Calls(calls), opened))
    }

    /// Opens the file and checks its tables. The change of a new file to WAL mode needs the file alone, and SQLite does
    /// not wait for that by itself.
    fn prepare(&mut self, calls: &Receiver<Box<dyn Call>>) -> Result<()> {
        let mut waited = Duration::ZERO;
        loop {
            match self.link.get().and_then(schema::prepare) {
                Ok(prepared) => return prepared,
                Err(failure) if failure.is_busy() && waited < BUSY_TIMEOUT => {
                    self.link.recover(&failure);
                    // No call comes before the store is open.
                    let _ = calls.recv_timeout(RETRY);
                    waited += RETRY;
                }
                Err(failure) => return Err(failure.to_error()),
            }
        }
    }

    fn run(&mut self, calls: &Receiver<Box<dyn Call>>) {
        loop {
            match calls.recv_timeout(CHECK_INTERVAL) {
                Ok(first) => self.serve([first].into_iter().chain(calls.try_iter()).take(TOGETHER), calls),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.keep_house();
        }
    }

    fn serve(&mut self, batch: impl Iterator<Item = Box<dyn Call>>, calls: &Receiver<Box<dyn Call>>) {
        // A call that has not begun, and whose caller has gone away, need not begin.
        let mut batch: Vec<_> = batch.filter(|call| !call.is_abandoned()).collect();
        if batch.is_empty() {
            return;
        }
        match self.write(&mut batch) {
            Ok(changes) => {
                batch.into_iter().for_each(|call| call.finish(Ok(())));
                // After the answers: their receivers need no hint then.
                changes.into_iter().for_each(|change| self.hints.send(change));
            }
            Err(failure) => {
                tracing::warn!(error = failure.to_error().chain(), calls = batch.len(), "writing the database failed");
                self.link.recover(&failure);
                // Calls that came meanwhile have waited for the same lock already. They are taken before the first answer:
                // a call that follows an answer waits for itself.
                batch.extend(calls.try_iter().take(if failure.is_busy() { usize::MAX } else { 0 }));
                batch.into_iter().for_each(|call| call.finish(Err(failure.clone())));
            }
        }
    }

    /// Serves the calls in one transaction; returns the hints of what it changed.
    fn write(&mut self, batch: &mut [Box<dyn Call>]) -> Result<Vec<AppChange>, SqlError> {
        let connection = self.link.get()?;
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        // The clocks are read under the lock: the commits of other processes lie before.
        let mut session = Session::new(connection, &self.clocks);
        for call in batch {
            call.run(&mut session)?;
        }
        connection.prepare_cached("COMMIT")?.execute([])?;
        self.commits.fetch_add(1, Ordering::Relaxed);
        Ok(session.changes)
    }

    fn keep_house(&mut self) {
        let now = (self.clocks.stored)();
        let commits = self.commits.load(Ordering::Relaxed);
        let checked = self.link.get().and_then(|connection| Ok(self.housekeeping.run(connection, now, commits)?));
        match checked {
            Ok(true) => self.hints.send(AppChange::Any),
            Ok(false) => {}
            Err(failure) => {
                tracing::debug!(error = failure.to_error().chain(), "housekeeping of the database failed");
                self.link.recover(&failure);
            }
        }
    }
}
