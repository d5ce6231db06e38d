//! Decorators of ports: a history store that counts and times calls and knows whether it can be written, a rollout
//! driver and a branch reader whose answers are counted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{StreamExt, stream::BoxStream};
use rollhook_core::{
    Result,
    app::{App, AppUid},
    deploy::{Commit as GitCommit, Deploy, Evidence},
    disk::DiskSpace,
    image::ImageRef,
    ledger::AppState,
    ports::{
        AppChange, AppCommit, AppPage, AppRef, Applied, Binding, BranchReader, Committed, Drift, DriverIdentity,
        Heartbeat, HistoryStore, ListedApp, Loaded, Observation, Page, RolloutDriver, RolloutFailure, RolloutSpec,
        StoreLimits, TargetDescription, TargetRequest, Validated, Version,
    },
    replica::ReplicaId,
    request::IdempotencyKey,
    source::GitSource,
};
use tokio::time::Instant;

use crate::{
    deploy_counts::{DeployCounts, UnderWay},
    metrics::Metrics,
};

/// The begin of every server's name as a replica, unlike that of a command line.
pub(crate) const SERVER: &str = "server-";

/// The decorator of the history store.
pub(crate) struct InstrumentedHistoryStore {
    inner: Arc<dyn HistoryStore>,
    metrics: Arc<Metrics>,
    deploys: DeployCounts,
    writable: Writable,
}

/// Whether the store took the engine's last heartbeat. The engine sends one every second, so that a readiness check
/// needs no write.
#[derive(Clone)]
pub(crate) struct Writable(Arc<AtomicBool>);

impl Writable {
    pub(crate) fn now(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl InstrumentedHistoryStore {
    pub(crate) fn new(inner: Arc<dyn HistoryStore>, metrics: Arc<Metrics>) -> Self {
        let deploys = DeployCounts::new(metrics.clone());
        Self { inner, metrics, deploys, writable: Writable(Arc::new(AtomicBool::new(true))) }
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

    fn written(&self, written: Written) {
        match written {
            Written::Changed { state, ended } => self.seen(&state, &ended),
            Written::Removed(app) => self.metrics.removed(app),
        }
    }

    fn seen(&self, state: &AppState, ended: &[Arc<Deploy>]) {
        for phase in self.metrics.progress().seen(state, ended) {
            self.metrics.phase_ended(phase);
        }
    }
}

/// The part of a commit that shows how deploys go on.
enum Written {
    Changed { state: Box<AppState>, ended: Vec<Arc<Deploy>> },
    Removed(AppUid),
}

impl Written {
    fn of(commit: &AppCommit) -> Self {
        match commit.change() {
            Some(change) => Self::Changed { state: Box::new(change.state.clone()), ended: change.ended.clone() },
            None => Self::Removed(commit.app()),
        }
    }
}

#[async_trait]
impl HistoryStore for InstrumentedHistoryStore {
    async fn load(&self, app: AppRef<'_>, key: Option<&IdempotencyKey>) -> Result<Option<Loaded>> {
        let loaded = self.timed("load", self.inner.load(app, key)).await;
        if let Ok(Some(loaded)) = &loaded {
            self.seen(&loaded.state, &[]);
            self.deploys.loaded(&*self.inner, loaded).await;
        }
        loaded
    }

    async fn commit(&self, commits: Vec<AppCommit>) -> Vec<Result<Committed>> {
        let under_way: Vec<UnderWay<'_>> = commits.iter().map(|commit| self.deploys.begin(commit)).collect();
        let written: Vec<Written> = commits.iter().map(Written::of).collect();
        let start = Instant::now();
        let answers = self.inner.commit(commits).await;
        for ((commit, written), answer) in under_way.into_iter().zip(written).zip(&answers) {
            self.metrics.store("commit", answer, start.elapsed());
            commit.answered(answer);
            if answer.is_ok() {
                self.written(written);
            }
        }
        answers
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        self.timed("page", self.inner.page(app, page)).await
    }

    async fn list(&self, page: AppPage) -> Result<Vec<ListedApp>> {
        self.timed("list", self.inner.list(page)).await
    }

    async fn work(&self, alive: &[ReplicaId], limit: usize) -> Result<Vec<AppUid>> {
        self.timed("work", self.inner.work(alive, limit)).await
    }

    async fn heartbeat(&self, replica: &ReplicaId, ttl: Duration) -> Result<Heartbeat> {
        let heartbeat = self.timed("heartbeat", self.inner.heartbeat(replica, ttl)).await;
        self.writable.0.store(heartbeat.is_ok(), Ordering::Relaxed);
        let servers = |heartbeat: &Heartbeat| heartbeat.alive.iter().filter(|it| it.name.starts_with(SERVER)).count();
        self.metrics.gauges().heartbeat(heartbeat.as_ref().ok().map(servers));
        heartbeat
    }

    async fn bind_driver(&self, driver: &DriverIdentity, binding: Binding) -> Result<DriverIdentity> {
        self.timed("bind_driver", self.inner.bind_driver(driver, binding)).await
    }

    fn watch(&self) -> BoxStream<'static, AppChange> {
        let metrics = self.metrics.clone();
        let forget = move |change: &AppChange| {
            if let AppChange::App(app, Version::REMOVED) = change {
                metrics.removed(*app);
            }
        };
        self.inner.watch().inspect(forget).boxed()
    }

    fn limits(&self) -> StoreLimits {
        self.inner.limits()
    }
}

/// The decorator of the branch reader.
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
    async fn head(&self, source: &GitSource) -> Result<Option<GitCommit>> {
        let head = self.inner.head(source).await;
        self.metrics.source_read(&head);
        head
    }

    async fn look(&self, source: &GitSource) -> Result<Option<GitCommit>> {
        let head = self.inner.look(source).await;
        // A conflict means that the reader was busy and read nothing.
        if !head.as_ref().is_err_and(rollhook_core::Error::is_conflict) {
            self.metrics.source_read(&head);
        }
        head
    }
}

/// The decorator of the rollout driver.
pub(crate) struct InstrumentedRolloutDriver {
    inner: Arc<dyn RolloutDriver>,
    metrics: Arc<Metrics>,
}

impl InstrumentedRolloutDriver {
    pub(crate) fn new(inner: Arc<dyn RolloutDriver>, metrics: Arc<Metrics>) -> Self {
        Self { inner, metrics }
    }

    async fn timed<T>(&self, call: &'static str, work: impl Future<Output = Result<T>>) -> Result<T> {
        let start = Instant::now();
        let result = work.await;
        self.metrics.driver(call, &result, start.elapsed());
        result
    }
}

#[async_trait]
impl RolloutDriver for InstrumentedRolloutDriver {
    async fn identity(&self) -> Result<DriverIdentity> {
        self.timed("identity", self.inner.identity()).await
    }

    fn describe(&self) -> TargetDescription {
        self.inner.describe()
    }

    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        self.timed("validate", self.inner.validate(request)).await
    }

    async fn apply(&self, spec: &RolloutSpec) -> Result<Applied> {
        let applied = self.timed("apply", self.inner.apply(spec)).await;
        self.metrics.applied(&applied);
        applied
    }

    async fn observe(&self, spec: &RolloutSpec) -> Result<Observation> {
        self.timed("observe", self.inner.observe(spec)).await
    }

    async fn changed(&self, spec: &RolloutSpec) {
        self.inner.changed(spec).await;
    }

    async fn evidence(&self, spec: &RolloutSpec, failure: Option<&RolloutFailure>) -> Result<Evidence> {
        self.timed("evidence", self.inner.evidence(spec, failure)).await
    }

    async fn drift(&self, spec: &RolloutSpec) -> Result<Option<Drift>> {
        self.timed("drift", self.inner.drift(spec)).await
    }

    fn drift_changes(&self) -> Option<BoxStream<'static, AppUid>> {
        self.inner.drift_changes()
    }

    async fn keep(&self, app: &App, images: &[ImageRef]) -> Result<()> {
        self.timed("keep", self.inner.keep(app, images)).await
    }

    fn stored_versions(&self) -> Option<usize> {
        self.inner.stored_versions()
    }

    async fn discard(&self, app: &App, images: &[ImageRef]) -> Result<()> {
        self.timed("discard", self.inner.discard(app, images)).await
    }

    async fn disk_space(&self) -> Result<Option<DiskSpace>> {
        // Uncounted: a disk that this process may not see is no failure of the driver.
        self.inner.disk_space().await
    }

    async fn forget(&self, app: &App) -> Result<()> {
        self.timed("forget", self.inner.forget(app)).await
    }
}
