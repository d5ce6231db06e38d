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
use futures_util::{
    StreamExt, future,
    stream::{self, BoxStream},
};
use rollhook_core::{
    Error, Result,
    app::{App, AppId, AppUid, Target},
    deploy::{Commit as GitCommit, Deploy, Evidence, Revision},
    disk::DiskSpace,
    image::ImageRef,
    instance::InstanceName,
    ports::{
        AppChange, AppCommit, AppPage, AppRef, Applied, AtRest, Binding, BranchReader, CheckedSettings, Committed,
        DriverIdentity, Heartbeat, HistoryStore, InstanceAddresses, InstanceLogPart, InstanceLogs, ListedApp, Loaded,
        LogQuery, LoggedWorkload, Observation, Page, ReadyInstances, ReleaseRun, ReleaseRunner, ReleaseSpec,
        ReleaseState, RolloutDriver, RolloutFailure, RolloutSpec, SettingsRequest, StoreLimits, StoredImages,
        TargetDescription, TargetInstance, TargetReader, TargetRequest, Validated,
    },
    replica::ReplicaId,
    request::IdempotencyKey,
    source::{BranchLog, GitSource},
};
use tokio::time::Instant;

use crate::metrics::Metrics;

/// The begin of every server's name as a replica, unlike that of a command line.
pub(crate) const SERVER: &str = "server-";

/// The decorator of the history store.
pub(crate) struct InstrumentedHistoryStore {
    inner: Arc<dyn HistoryStore>,
    metrics: Arc<Metrics>,
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
impl HistoryStore for InstrumentedHistoryStore {
    async fn load(&self, app: AppRef<'_>, key: Option<&IdempotencyKey>) -> Result<Option<Loaded>> {
        self.timed("load", self.inner.load(app, key)).await
    }

    async fn commit(&self, commits: Vec<AppCommit>) -> Vec<Result<Committed>> {
        let start = Instant::now();
        let answers = self.inner.commit(commits).await;
        answers.iter().for_each(|answer| self.metrics.store("commit", answer, start.elapsed()));
        answers
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        self.timed("page", self.inner.page(app, page)).await
    }

    async fn archived(&self, app: AppUid, revision: Revision) -> Result<Option<Deploy>> {
        self.timed("archived", self.inner.archived(app, revision)).await
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
        self.inner.watch()
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
    async fn head(&self, app: &AppId, source: &GitSource) -> Result<Option<GitCommit>> {
        let head = self.inner.head(app, source).await;
        self.metrics.source_read(&head);
        head
    }

    async fn look(&self, app: &AppId, source: &GitSource) -> Result<Option<GitCommit>> {
        let head = self.inner.look(app, source).await;
        // A conflict means that the reader was busy and read nothing.
        if !head.as_ref().is_err_and(rollhook_core::Error::is_conflict) {
            self.metrics.source_read(&head);
        }
        head
    }

    async fn log(&self, app: &AppId, source: &GitSource) -> Result<BranchLog> {
        let log = self.inner.log(app, source).await;
        self.metrics.source_read(&log);
        log
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

    fn unstoppable(&self, target: &Target) -> Option<String> {
        self.inner.unstoppable(target)
    }

    fn unconfigurable(&self, target: &Target) -> Option<String> {
        self.inner.unconfigurable(target)
    }

    async fn check_settings(&self, request: &SettingsRequest) -> Result<CheckedSettings> {
        self.timed("check_settings", self.inner.check_settings(request)).await
    }

    fn has_same_workloads(&self, before: &Target, after: &Target) -> bool {
        self.inner.has_same_workloads(before, after)
    }

    fn fetches_images(&self) -> bool {
        self.inner.fetches_images()
    }

    fn observes_with_variables(&self, target: &Target) -> bool {
        self.inner.observes_with_variables(target)
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

    fn target_reader(&self) -> Option<&dyn TargetReader> {
        self.inner.target_reader().map(|_| self as _)
    }

    fn release_runner(&self) -> Option<&dyn ReleaseRunner> {
        self.inner.release_runner().map(|_| self as _)
    }

    fn instance_logs(&self) -> Option<&dyn InstanceLogs> {
        self.inner.instance_logs().map(|_| self as _)
    }

    fn instance_addresses(&self) -> Option<&dyn InstanceAddresses> {
        self.inner.instance_addresses().map(|_| self as _)
    }

    fn stored_images(&self) -> Option<&dyn StoredImages> {
        self.inner.stored_images().map(|_| self as _)
    }

    async fn forget(&self, app: &App) -> Result<()> {
        self.timed("forget", self.inner.forget(app)).await
    }
}

#[async_trait]
impl TargetReader for InstrumentedRolloutDriver {
    async fn at_rest(&self, spec: &RolloutSpec) -> Result<AtRest> {
        let Some(reader) = self.inner.target_reader() else {
            return Err(Error::invalid("the driver reads no targets"));
        };
        self.timed("at_rest", reader.at_rest(spec)).await
    }

    fn target_changes(&self) -> BoxStream<'static, AppUid> {
        self.inner.target_reader().map_or_else(|| stream::empty().boxed(), TargetReader::target_changes)
    }

    fn forget_targets(&self, app: AppUid) {
        if let Some(reader) = self.inner.target_reader() {
            reader.forget_targets(app);
        }
    }
}

#[async_trait]
impl ReleaseRunner for InstrumentedRolloutDriver {
    async fn prepare(&self, spec: &ReleaseSpec) -> Result<ReleaseState> {
        let Some(runner) = self.inner.release_runner() else { return Err(no_runner()) };
        self.timed("release_prepare", runner.prepare(spec)).await
    }

    async fn start(&self, run: &ReleaseRun) -> Result<()> {
        let Some(runner) = self.inner.release_runner() else { return Err(no_runner()) };
        self.timed("release_start", runner.start(run)).await
    }

    async fn observe(&self, run: &ReleaseRun) -> Result<ReleaseState> {
        let Some(runner) = self.inner.release_runner() else { return Err(no_runner()) };
        self.timed("release_observe", runner.observe(run)).await
    }

    async fn cancel(&self, run: &ReleaseRun) -> Result<()> {
        let Some(runner) = self.inner.release_runner() else { return Err(no_runner()) };
        self.timed("release_cancel", runner.cancel(run)).await
    }

    async fn changed(&self, run: &ReleaseRun) {
        match self.inner.release_runner() {
            Some(runner) => runner.changed(run).await,
            None => future::pending().await,
        }
    }

    async fn log(&self, run: &ReleaseRun, from: u64) -> Result<Option<Vec<u8>>> {
        let Some(runner) = self.inner.release_runner() else { return Err(no_runner()) };
        self.timed("release_log", runner.log(run, from)).await
    }
}

#[async_trait]
impl InstanceLogs for InstrumentedRolloutDriver {
    async fn instances(&self, app: &App) -> Result<Vec<TargetInstance>> {
        let Some(logs) = self.inner.instance_logs() else { return Err(no_logs()) };
        self.timed("instances", logs.instances(app)).await
    }

    async fn read(&self, app: &App, instance: &InstanceName, query: &LogQuery) -> Result<Option<InstanceLogPart>> {
        let Some(logs) = self.inner.instance_logs() else { return Err(no_logs()) };
        self.timed("instance_log", logs.read(app, instance, query)).await
    }

    fn workloads(&self, app: &App) -> Result<Vec<LoggedWorkload>> {
        let Some(logs) = self.inner.instance_logs() else { return Err(no_logs()) };
        logs.workloads(app)
    }
}

#[async_trait]
impl InstanceAddresses for InstrumentedRolloutDriver {
    async fn addresses(&self, spec: &RolloutSpec, port: u16) -> Result<ReadyInstances> {
        let Some(addresses) = self.inner.instance_addresses() else {
            return Err(Error::invalid("the driver names no addresses of instances"));
        };
        self.timed("addresses", addresses.addresses(spec, port)).await
    }
}

fn no_logs() -> Error {
    Error::invalid("the driver keeps no logs of instances")
}

fn no_runner() -> Error {
    Error::invalid("the driver runs no release commands")
}

#[async_trait]
impl StoredImages for InstrumentedRolloutDriver {
    fn stored_versions(&self) -> Option<usize> {
        self.inner.stored_images()?.stored_versions()
    }

    async fn has(&self, image: &ImageRef) -> Result<bool> {
        let Some(stored) = self.inner.stored_images() else { return Ok(false) };
        self.timed("has_image", stored.has(image)).await
    }

    async fn discard(&self, app: &App, images: &[ImageRef]) -> Result<()> {
        let Some(stored) = self.inner.stored_images() else { return Ok(()) };
        self.timed("discard", stored.discard(app, images)).await
    }

    async fn disk_space(&self) -> Result<Option<DiskSpace>> {
        // Uncounted: a disk that this process may not see is no failure of the driver.
        match self.inner.stored_images() {
            Some(stored) => stored.disk_space().await,
            None => Ok(None),
        }
    }
}
