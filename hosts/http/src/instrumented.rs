//! A history that counts what it is told, and how long that takes, and knows whether it can be written to; a rollout
//! driver whose answers to orders are counted, and a reader of branches whose answers are.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use rollhook_core::{
    Result,
    app::{AppId, AppUid, WorkloadKind},
    deploy::{Commit, Deploy, Evidence, Status},
    ports::{
        Admission, Admitted, Applied, BranchReader, Claim, Claimed, History, Observation, Page, Record, RolloutDriver,
        RolloutFailure, RolloutSpec, View, Wake, WorkloadInfo,
    },
    source::GitSource,
};
use tokio::time::Instant;

use crate::metrics::Metrics;

/// The history's decorator.
pub(crate) struct InstrumentedHistory {
    inner: Arc<dyn History>,
    metrics: Arc<Metrics>,
    writable: Writable,
}

/// Whether the engine's last sign of life was taken. It gives one every second, so that readiness is known without a
/// write for whoever asks.
#[derive(Clone)]
pub(crate) struct Writable(Arc<AtomicBool>);

impl Writable {
    pub(crate) fn now(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl InstrumentedHistory {
    pub(crate) fn new(inner: Arc<dyn History>, metrics: Arc<Metrics>) -> Self {
        Self { inner, metrics, writable: Writable(Arc::new(AtomicBool::new(true))) }
    }

    pub(crate) fn writable(&self) -> Writable {
        self.writable.clone()
    }

    async fn timed<T>(&self, call: &'static str, work: impl Future<Output = Result<T>>) -> Result<T> {
        let start = Instant::now();
        let result = work.await;
        self.metrics.store(call, &result, start.elapsed());
        result
    }
}

#[async_trait]
impl History for InstrumentedHistory {
    async fn admit(&self, admission: Admission) -> Result<Admitted> {
        let admitted = self.timed("admit", self.inner.admit(admission)).await?;
        if let Admitted::New { deploy, superseded } = &admitted {
            self.metrics.accepted(deploy.trigger);
            if !superseded.is_empty() {
                self.metrics.ended(Status::Superseded, superseded.len());
            }
        }
        Ok(admitted)
    }

    async fn record(&self, record: Record) -> Result<()> {
        let ended: Vec<Status> =
            record.changes.iter().map(Deploy::status).filter(|status| status.is_terminal()).collect();
        self.timed("record", self.inner.record(record)).await?;
        for status in ended {
            self.metrics.ended(status, 1);
        }
        Ok(())
    }

    async fn view(&self, app: AppUid) -> Result<View> {
        self.timed("view", self.inner.view(app)).await
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        self.timed("page", self.inner.page(app, page)).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        let claimed = self.timed("claim", self.inner.claim(claim)).await;
        self.writable.0.store(claimed.is_ok(), Ordering::Relaxed);
        claimed
    }

    fn wakes(&self) -> BoxStream<'static, Wake> {
        self.inner.wakes()
    }
}

/// The decorator of what reads branches.
pub(crate) struct InstrumentedBranchReader {
    inner: Arc<dyn BranchReader>,
    metrics: Arc<Metrics>,
}

impl InstrumentedBranchReader {
    pub(crate) fn new(inner: Arc<dyn BranchReader>, metrics: Arc<Metrics>) -> Self {
        Self { inner, metrics }
    }
}

#[async_trait]
impl BranchReader for InstrumentedBranchReader {
    async fn head(&self, source: &GitSource) -> Result<Option<Commit>> {
        let head = self.inner.head(source).await;
        self.metrics.source_read(&head);
        head
    }

    async fn look(&self, source: &GitSource) -> Result<Option<Commit>> {
        let head = self.inner.look(source).await;
        // Where there was no room, nothing was read.
        if !head.as_ref().is_err_and(rollhook_core::Error::is_conflict) {
            self.metrics.source_read(&head);
        }
        head
    }
}

/// The rollout driver's decorator.
pub(crate) struct InstrumentedRollouts {
    inner: Arc<dyn RolloutDriver>,
    metrics: Arc<Metrics>,
}

impl InstrumentedRollouts {
    pub(crate) fn new(inner: Arc<dyn RolloutDriver>, metrics: Arc<Metrics>) -> Self {
        Self { inner, metrics }
    }
}

#[async_trait]
impl RolloutDriver for InstrumentedRollouts {
    async fn inspect(&self, app: &AppId, kind: WorkloadKind, name: &str) -> Result<Option<WorkloadInfo>> {
        self.inner.inspect(app, kind, name).await
    }

    async fn apply(&self, order: &RolloutSpec) -> Result<Applied> {
        let applied = self.inner.apply(order).await;
        self.metrics.ordered(&applied);
        applied
    }

    async fn observe(&self, order: &RolloutSpec) -> Result<Observation> {
        self.inner.observe(order).await
    }

    async fn changed(&self, order: &RolloutSpec) {
        self.inner.changed(order).await;
    }

    async fn evidence(&self, order: &RolloutSpec, trouble: Option<&RolloutFailure>) -> Result<Evidence> {
        self.inner.evidence(order, trouble).await
    }
}
