//! The tasks that talk to the server: each has a connection, takes all calls of its kind that wait, and serves them with
//! one statement.

use std::{sync::Arc, time::Duration};

use rollhook_core::{app::AppUid, ports::Wake};
use sqlx::postgres::{PgConnectOptions, PgRow};
use tokio::{
    sync::{Mutex, broadcast, mpsc},
    time::timeout,
};

use crate::{error::Failure, link::Link};

/// Calls that may wait in a channel before their callers wait to put more into it.
const WAITING: usize = 4096;
/// How long an unused connection is kept.
const IDLE: Duration = Duration::from_secs(30);
/// Of calls that are served one by one, how many may find the database busy before the others are not kept waiting.
const BUSY: usize = 2;

/// A kind of calls that are served together.
pub(crate) trait Call: Send + Sized + 'static {
    /// The most calls that share a statement.
    const BATCH: usize;

    /// Whether nobody waits for it any more.
    fn abandoned(&self) -> bool;

    /// The statement for all of them, one transaction of its own; `sender` is the word, made of letters and digits, by
    /// which this store's own notifications are told from others'.
    fn statement(calls: &[Self], sender: &str) -> sqlx::Result<String>;

    /// Whether that statement may be run twice.
    fn repeatable(calls: &[Self]) -> bool;

    /// Decides the answer of each from what the statement gave.
    fn decide(calls: &mut [Self], rows: &[PgRow]) -> sqlx::Result<()>;

    /// The app that others should look at afterwards.
    fn wakes(&self) -> Option<AppUid> {
        None
    }

    /// Sends what was decided, or the failure in its place.
    fn finish(self, done: &Result<(), Failure>);
}

/// What all tasks of a store share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) options: Arc<PgConnectOptions>,
    pub(crate) wakes: broadcast::Sender<Wake>,
    pub(crate) sender: Arc<str>,
}

/// Starts tasks that serve one channel, until its last sender is gone.
pub(crate) fn open<C: Call>(tasks: usize, shared: &Shared) -> mpsc::Sender<C> {
    let (channel, calls) = mpsc::channel(WAITING);
    let calls = Arc::new(Mutex::new(calls));
    for _ in 0..tasks {
        let link = Link::new(Arc::clone(&shared.options));
        tokio::spawn(Lane { link, calls: Arc::clone(&calls), shared: shared.clone() }.run());
    }
    channel
}

struct Lane<C> {
    link: Link,
    calls: Arc<Mutex<mpsc::Receiver<C>>>,
    shared: Shared,
}

impl<C: Call> Lane<C> {
    async fn run(mut self) {
        let mut batch = Vec::new();
        loop {
            let received = timeout(IDLE, async { self.calls.lock().await.recv_many(&mut batch, C::BATCH).await });
            match received.await {
                Ok(0) => break,
                Ok(_) => {
                    // What nobody waits for any more has not begun, and need not.
                    batch.retain(|call| !call.abandoned());
                    self.serve(&mut batch).await;
                }
                Err(_) => self.link.close().await,
            }
        }
        self.link.close().await;
    }

    async fn serve(&mut self, batch: &mut Vec<C>) {
        let Err(failure) = self.attempt(batch).await else { return };
        if failure.is_refusal() && batch.len() > 1 {
            return self.serve_apart(batch).await;
        }
        if failure.is_away()
            && let Ok(mut calls) = self.calls.try_lock()
        {
            // They have waited for the same server already.
            while let Ok(call) = calls.try_recv() {
                batch.push(call);
            }
        }
        refuse(batch, failure);
    }

    /// Serves the calls one by one: the server did nothing, for the sake of one of them, and its neighbours must not pay for
    /// it. Where it turns out that it was none of them, those that are left are refused too.
    async fn serve_apart(&mut self, batch: &mut Vec<C>) {
        let mut calls = batch.drain(..);
        let mut busy = 0;
        while let Some(call) = calls.next() {
            let mut alone = vec![call];
            let Err(failure) = self.attempt(&mut alone).await else { continue };
            busy += usize::from(failure.is_busy());
            if failure.is_away() || busy == BUSY {
                alone.extend(calls.by_ref());
            }
            refuse(&mut alone, failure);
        }
    }

    /// Serves the calls and answers them; where it fails, they are left in the batch.
    async fn attempt(&mut self, batch: &mut Vec<C>) -> Result<(), Failure> {
        if batch.is_empty() {
            return Ok(());
        }
        let rows = self.link.fetch(C::statement(batch, &self.shared.sender)?, C::repeatable(batch)).await?;
        C::decide(batch, &rows)?;
        for call in batch.drain(..) {
            let wakes = call.wakes();
            call.finish(&Ok(()));
            if let Some(app) = wakes {
                // Nobody may be listening.
                let _ = self.shared.wakes.send(Wake::App(app));
            }
        }
        Ok(())
    }
}

fn refuse<C: Call>(batch: &mut Vec<C>, failure: Failure) {
    tracing::warn!(error = failure.to_error().chain(), calls = batch.len(), "a statement failed");
    let done = Err(failure);
    for call in batch.drain(..) {
        call.finish(&done);
    }
}
