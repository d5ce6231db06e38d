//! Reads that all who wait share: what every request begins with, so that many of them cost the server one statement.

use rollhook_core::{Error, Result};
use sqlx::postgres::PgRow;
use tokio::sync::{mpsc, oneshot};

use crate::{connections::Connections, error::Failure};

/// Calls that may wait before their callers wait to ask.
const WAITING: usize = 4096;
/// The most calls that share a statement.
const AT_ONCE: usize = 1024;

/// A kind of question, of which one statement answers many.
pub(crate) trait Question: Send + Sync + Sized + 'static {
    /// The answer to one question.
    type Answer: Send;

    /// The statement for all of them.
    fn statement(asked: &[Self]) -> Result<String, Failure>;

    /// The answers in the order of the questions.
    fn answers(asked: &[Self], rows: &[PgRow]) -> Result<Vec<Self::Answer>, Failure>;
}

type Answering<Q> = oneshot::Sender<Result<<Q as Question>::Answer>>;

/// Puts questions to the database; clones share statements.
pub(crate) struct SharedRead<Q: Question>(mpsc::Sender<(Q, Answering<Q>)>);

impl<Q: Question> Clone for SharedRead<Q> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<Q: Question> SharedRead<Q> {
    /// Starts the task that asks, which ends with the last clone.
    pub(crate) fn start(connections: Connections) -> Self {
        let (calls, waiting) = mpsc::channel(WAITING);
        tokio::spawn(serve(connections, waiting));
        Self(calls)
    }

    /// The answer of a statement that begins after this call.
    pub(crate) async fn ask(&self, question: Q) -> Result<Q::Answer> {
        let stopped = || Error::Unavailable { what: "the process is shutting down".to_owned(), cause: None };
        let (answering, answer) = oneshot::channel();
        self.0.send((question, answering)).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

async fn serve<Q: Question>(connections: Connections, mut waiting: mpsc::Receiver<(Q, Answering<Q>)>) {
    let mut calls = Vec::new();
    while waiting.recv_many(&mut calls, AT_ONCE).await > 0 {
        let unanswered = calls.drain(..).filter(|(_, answering)| !answering.is_closed());
        let (asked, answering): (Vec<Q>, Vec<_>) = unanswered.unzip();
        // A caller that has gone away misses its answer.
        match ask(&connections, &asked).await {
            Ok(answers) => answering.into_iter().zip(answers).for_each(|(to, answer)| drop(to.send(Ok(answer)))),
            Err(failure) => answering.into_iter().for_each(|to| drop(to.send(Err(failure.to_error())))),
        }
    }
}

async fn ask<Q: Question>(connections: &Connections, asked: &[Q]) -> Result<Vec<Q::Answer>, Failure> {
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    Q::answers(asked, &connections.read(Q::statement(asked)?).await?)
}
