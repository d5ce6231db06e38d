//! Calls that have a statement of their own.

use rollhook_core::{Result, app::AppUid};
use sqlx::postgres::PgRow;
use tokio::sync::mpsc;

use crate::{
    error::Failure,
    job::{Job, call},
    lane::Call,
};

/// What is asked for by one statement, and how its answer is read.
pub(crate) trait Ask: Send + Sync + 'static {
    /// What the caller gets.
    type Answer: Send + Sync + 'static;

    /// The statement; see [`Call::statement`].
    fn statement(&self, sender: &str) -> sqlx::Result<String>;

    /// The answer. The outer error means that the rows are not what the statement gives.
    fn answer(&self, rows: &[PgRow]) -> sqlx::Result<Result<Self::Answer>>;

    /// Whether it only reads.
    fn reads(&self) -> bool {
        false
    }

    /// The app that others should look at afterwards.
    fn wakes(&self) -> Option<AppUid> {
        None
    }
}

/// An [`Ask`] whose caller waits.
pub(crate) struct Asked(Box<dyn Waiting>);

/// Asks for it through a channel of such calls.
pub(crate) async fn ask<A: Ask>(channel: &mpsc::Sender<Asked>, ask: A) -> Result<A::Answer> {
    call(channel, ask, |job| Asked(Box::new(job))).await
}

trait Waiting: Send {
    fn abandoned(&self) -> bool;
    fn statement(&self, sender: &str) -> sqlx::Result<String>;
    fn reads(&self) -> bool;
    fn decide(&mut self, rows: &[PgRow]) -> sqlx::Result<()>;
    fn wakes(&self) -> Option<AppUid>;
    fn finish(self: Box<Self>, done: &Result<(), Failure>);
}

impl<A: Ask> Waiting for Job<A, A::Answer> {
    fn abandoned(&self) -> bool {
        Self::abandoned(self)
    }

    fn statement(&self, sender: &str) -> sqlx::Result<String> {
        self.ask.statement(sender)
    }

    fn reads(&self) -> bool {
        self.ask.reads()
    }

    fn decide(&mut self, rows: &[PgRow]) -> sqlx::Result<()> {
        let answer = self.ask.answer(rows)?;
        Self::decide(self, answer);
        Ok(())
    }

    fn wakes(&self) -> Option<AppUid> {
        self.outcome().and_then(|_| self.ask.wakes())
    }

    fn finish(self: Box<Self>, done: &Result<(), Failure>) {
        Self::finish(*self, done);
    }
}

impl Call for Asked {
    const BATCH: usize = 1;

    fn abandoned(&self) -> bool {
        self.0.abandoned()
    }

    fn statement(calls: &[Self], sender: &str) -> sqlx::Result<String> {
        calls.iter().map(|call| call.0.statement(sender)).collect()
    }

    fn repeatable(calls: &[Self]) -> bool {
        calls.iter().all(|call| call.0.reads())
    }

    fn decide(calls: &mut [Self], rows: &[PgRow]) -> sqlx::Result<()> {
        calls.iter_mut().try_for_each(|call| call.0.decide(rows))
    }

    fn wakes(&self) -> Option<AppUid> {
        self.0.wakes()
    }

    fn finish(self, done: &Result<(), Failure>) {
        self.0.finish(done);
    }
}
