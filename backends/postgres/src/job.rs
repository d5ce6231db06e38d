//! A call on its way to the task that serves it, and its answer on the way back.

use rollhook_core::{Error, Result};
use tokio::sync::{mpsc, oneshot};

use crate::error::Failure;

/// What is asked, and who waits for the answer.
pub(crate) struct Job<Q, A> {
    pub(crate) ask: Q,
    /// Boxed, so that calls are small on their way whatever they ask for.
    outcome: Option<Box<Result<A>>>,
    answer: oneshot::Sender<Result<A>>,
}

impl<Q, A> Job<Q, A> {
    /// Decides the answer; it is sent by [`Job::finish`].
    pub(crate) fn decide(&mut self, outcome: Result<A>) {
        self.outcome = Some(Box::new(outcome));
    }

    /// What was decided, if it is a success.
    pub(crate) fn outcome(&self) -> Option<&A> {
        self.outcome.as_deref()?.as_ref().ok()
    }

    /// Whether nobody waits any more: what has not been begun need not be.
    pub(crate) fn abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    /// Sends what was decided, or the failure in its place.
    pub(crate) fn finish(self, done: &Result<(), Failure>) {
        let outcome = match done {
            Ok(()) => self.outcome.map_or_else(|| Err(unanswered()), |outcome| *outcome),
            Err(failure) => Err(failure.to_error()),
        };
        // A caller that has gone away misses its answer; what was written stays.
        let _ = self.answer.send(outcome);
    }
}

/// Puts a call into a task's channel and waits for the answer.
pub(crate) async fn call<Q, A, C>(channel: &mpsc::Sender<C>, ask: Q, wrap: impl FnOnce(Job<Q, A>) -> C) -> Result<A> {
    let (answer, answered) = oneshot::channel();
    let job = Job { ask, outcome: None, answer };
    channel.send(wrap(job)).await.map_err(|_| stopped())?;
    answered.await.map_err(|_| stopped())?
}

fn stopped() -> Error {
    Error::Unavailable { what: "the store has been shut down".to_owned(), cause: None }
}

fn unanswered() -> Error {
    Error::Corrupt { what: "the database's answer leaves out what was asked".to_owned(), cause: None }
}
