//! The one task that writes: it takes all that waits, does it in one transaction, and answers after the commit.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use rollhook_core::{
    Result,
    app::AppUid,
    ports::{Admission, Admitted, Claim, Claimed, Record, Wake},
    time::Timestamp,
};
use sqlx::SqliteConnection;
use tokio::{
    sync::{broadcast, mpsc},
    time::{MissedTickBehavior, interval},
};

use crate::{batch, claims, clock::StoreClock, connection::Link, error::Failure, housekeeping::Housekeeping, job::Job};

/// The most calls that share a commit.
const BATCH: usize = 512;
/// How often is looked for changes by other processes, while somebody listens.
const PULSE: Duration = Duration::from_millis(200);
/// A call that writes.
pub(crate) enum Op {
    Admit(Job<Box<Admission>, Admitted>),
    Record(Job<Record, ()>),
    Claim(Job<Claim, Claimed>),
    Rare(Box<dyn Rare>),
}

/// A write that comes seldom enough to have statements of its own, within a batch's transaction.
#[async_trait]
pub(crate) trait Write: Send + Sync + 'static {
    /// What the caller gets.
    type Output: Send + Sync + 'static;

    /// Decides and writes. The outer error undoes the whole batch, the inner one is this caller's answer; a write that
    /// ends with it must have changed nothing.
    async fn write(&self, connection: &mut SqliteConnection, now: Timestamp) -> sqlx::Result<Result<Self::Output>>;

    /// The app that others should look at afterwards.
    fn wakes(&self) -> Option<AppUid> {
        None
    }
}

/// A [`Write`] whose caller waits.
#[async_trait]
pub(crate) trait Rare: Send + Sync {
    async fn run(&mut self, connection: &mut SqliteConnection, now: Timestamp) -> sqlx::Result<()>;
    fn wakes(&self) -> Option<AppUid>;
    fn abandoned(&self) -> bool;
    fn finish(self: Box<Self>, done: &Result<(), Failure>);
}

#[async_trait]
impl<W: Write> Rare for Job<W, W::Output> {
    async fn run(&mut self, connection: &mut SqliteConnection, now: Timestamp) -> sqlx::Result<()> {
        let outcome = self.ask.write(connection, now).await?;
        self.decide(outcome);
        Ok(())
    }

    fn wakes(&self) -> Option<AppUid> {
        self.outcome().and_then(|_| self.ask.wakes())
    }

    fn abandoned(&self) -> bool {
        Self::abandoned(self)
    }

    fn finish(self: Box<Self>, done: &Result<(), Failure>) {
        Self::finish(*self, done);
    }
}

impl Op {
    fn abandoned(&self) -> bool {
        match self {
            Self::Admit(job) => job.abandoned(),
            Self::Record(job) => job.abandoned(),
            Self::Claim(job) => job.abandoned(),
            Self::Rare(job) => job.abandoned(),
        }
    }

    fn wakes(&self) -> Option<AppUid> {
        match self {
            Self::Admit(job) => {
                job.outcome().filter(|answer| matches!(answer, Admitted::New { .. })).map(|_| job.ask.app)
            }
            Self::Record(job) => job.outcome().map(|()| job.ask.app),
            Self::Claim(_) => None,
            Self::Rare(job) => job.wakes(),
        }
    }

    fn finish(self, done: &Result<(), Failure>) {
        match self {
            Self::Admit(job) => job.finish(done),
            Self::Record(job) => job.finish(done),
            Self::Claim(job) => job.finish(done),
            Self::Rare(job) => job.finish(done),
        }
    }
}

/// The writing task's state.
pub(crate) struct Writer {
    pub(crate) link: Link,
    pub(crate) calls: mpsc::Receiver<Op>,
    pub(crate) wakes: broadcast::Sender<Wake>,
    pub(crate) clock: StoreClock,
    pub(crate) commits: Arc<AtomicU64>,
    pub(crate) housekeeping: Housekeeping,
}

impl Writer {
    /// Serves calls until no handle of the store is left.
    pub(crate) async fn run(mut self) {
        let mut pulse = interval(PULSE);
        pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                received = self.calls.recv_many(&mut batch, BATCH) => {
                    if received == 0 {
                        break;
                    }
                    // What nobody waits for any more has not begun, and need not.
                    batch.retain(|op| !op.abandoned());
                    if !batch.is_empty() {
                        self.serve(&mut batch).await;
                    }
                }
                _ = pulse.tick() => self.pulse().await,
            }
        }
        self.link.close().await;
    }

    async fn serve(&mut self, batch: &mut Vec<Op>) {
        let done = self.write(batch).await;
        match &done {
            Ok(()) => self.wake(batch),
            Err(failure) => tracing::warn!(error = failure.to_error().chain(), calls = batch.len(), "a write failed"),
        }
        for op in batch.drain(..) {
            op.finish(&done);
        }
        if done.as_ref().is_err_and(Failure::is_busy) {
            // They have waited for the same lock already.
            while let Ok(op) = self.calls.try_recv() {
                op.finish(&done);
            }
        }
    }

    fn wake(&self, batch: &[Op]) {
        let apps: BTreeSet<AppUid> = batch.iter().filter_map(Op::wakes).collect();
        for app in apps {
            // Nobody may be listening.
            let _ = self.wakes.send(Wake::App(app));
        }
    }

    async fn write(&mut self, batch: &mut [Op]) -> Result<(), Failure> {
        let written = self.try_write(batch).await;
        if let Err(failure) = &written {
            self.recover(failure).await;
        }
        written
    }

    async fn try_write(&mut self, batch: &mut [Op]) -> Result<(), Failure> {
        let connection = self.link.get().await?;
        if plan_claims(connection, batch, self.clock.now()).await? {
            return Ok(());
        }
        execute(connection, "BEGIN IMMEDIATE").await?;
        // Read under the lock, so that what another process wrote before lies before.
        let now = self.clock.now();
        perform(connection, batch, now).await?;
        self.housekeeping.prune(connection, now).await?;
        execute(connection, "COMMIT").await?;
        self.commits.fetch_add(1, Ordering::Relaxed);
        if batch.iter().any(|op| matches!(op, Op::Rare(_))) {
            // It may have removed an app.
            self.housekeeping.expect_leftovers();
        }
        Ok(())
    }

    /// Undoes what a failed transaction did, with the connection itself if need be.
    async fn recover(&mut self, failure: &Failure) {
        let sound = failure.leaves_connection_sound();
        if let (true, Ok(connection)) = (sound, self.link.get().await) {
            // Fails where there is no transaction: it did not begin, or SQLite has undone it already.
            let _ = execute(connection, "ROLLBACK").await;
        } else {
            self.link.reset();
            self.housekeeping.forget_version();
        }
    }

    async fn pulse(&mut self) {
        let listened_to = self.wakes.receiver_count() > 0;
        if !listened_to {
            self.housekeeping.forget_version();
        }
        if let Err(failure) = self.try_pulse(listened_to).await {
            tracing::debug!(error = failure.to_error().chain(), "looking after the database failed");
            self.recover(&failure).await;
        }
    }

    async fn try_pulse(&mut self, listened_to: bool) -> Result<(), Failure> {
        if listened_to && self.housekeeping.others_wrote(self.link.get().await?).await? {
            let _ = self.wakes.send(Wake::Any);
        }
        if self.housekeeping.expects_leftovers() {
            let connection = self.link.get().await?;
            execute(connection, "BEGIN IMMEDIATE").await?;
            self.housekeeping.sweep(connection).await?;
            execute(connection, "COMMIT").await?;
        }
        Ok(())
    }
}

/// Answers a batch of claims alone without a transaction, where none of them changes anything.
async fn plan_claims(connection: &mut SqliteConnection, batch: &mut [Op], now: Timestamp) -> Result<bool, Failure> {
    let mut plans = Vec::new();
    for op in &*batch {
        let Op::Claim(job) = op else { return Ok(false) };
        let plan = claims::plan(connection, &job.ask, now).await?;
        if !plan.needs_no_write() {
            return Ok(false);
        }
        plans.push(plan);
    }
    for (op, plan) in batch.iter_mut().zip(plans) {
        if let Op::Claim(job) = op {
            job.decide(Ok(plan.claimed()));
        }
    }
    Ok(true)
}

/// Does all of a batch within its transaction: claims last, so that they see the work that came with it.
async fn perform(connection: &mut SqliteConnection, batch: &mut [Op], now: Timestamp) -> Result<(), Failure> {
    for op in &mut *batch {
        if let Op::Rare(job) = op {
            job.run(connection, now).await?;
        }
    }
    perform_deploys(connection, batch, now).await?;
    for op in batch {
        if let Op::Claim(job) = op {
            let plan = claims::plan(connection, &job.ask, now).await?;
            claims::perform(connection, &job.ask, &plan).await?;
            job.decide(Ok(plan.claimed()));
        }
    }
    Ok(())
}

async fn perform_deploys(connection: &mut SqliteConnection, batch: &mut [Op], now: Timestamp) -> Result<(), Failure> {
    let (mut admissions, mut records) = (Vec::new(), Vec::new());
    for op in &*batch {
        match op {
            Op::Admit(job) => admissions.push(&*job.ask),
            Op::Record(job) => records.push(&job.ask),
            Op::Claim(_) | Op::Rare(_) => {}
        }
    }
    if admissions.is_empty() && records.is_empty() {
        return Ok(());
    }
    let mut ledger = batch::load(connection, now, &admissions, &records).await?;
    for op in batch {
        match op {
            Op::Admit(job) => job.decide(ledger.admit(&job.ask)),
            Op::Record(job) => job.decide(ledger.record(&job.ask)),
            Op::Claim(_) | Op::Rare(_) => {}
        }
    }
    Ok(batch::store(connection, &ledger).await?)
}

async fn execute(connection: &mut SqliteConnection, statement: &'static str) -> sqlx::Result<()> {
    sqlx::query(statement).execute(connection).await.map(drop)
}
