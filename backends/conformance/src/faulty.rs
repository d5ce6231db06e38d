//! Ports that fail where a test wants them to: before anything happened, or after, with the answer lost.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{
    StreamExt, future,
    stream::{self, BoxStream},
};
use rollhook_core::{
    Error, Result,
    app::{App, AppId, AppUid, Namespace, Settings, Target},
    check::{CheckKind, CheckSecret, PastValue},
    configuration::{ConfigurationId, Variables},
    deploy::{Commit, Deploy, Evidence, Revision},
    disk::DiskSpace,
    image::ImageRef,
    instance::InstanceName,
    ports::{
        self, AppChange, AppPage, AppRef, Applied, AtRest, Binding, BranchReader, BuildSpec, BuildState, BuildTrigger,
        CheckedSettings, Clock, Committed, ConfigurationStore, DeployId, DriverIdentity, Heartbeat, HistoryStore,
        ImageVerifier, InstanceAddresses, InstanceLogPart, InstanceLogs, KindOfCheck, ListedApp, Loaded, LogQuery,
        LoggedWorkload, MeasureSpec, Measured, Observation, Page, ReadyInstances, Registry, ReleaseRun, ReleaseRunner,
        ReleaseSpec, ReleaseState, Resolved, RolloutDriver, RolloutFailure, RolloutSpec, Sealing, SettingsRequest,
        Started, StoreLimits, StoredConfiguration, StoredImages, TagPage, TagQuery, TargetInstance, TargetReader,
        TargetRequest, TimesBefore, TokenMark, TokenMatcher, TokenStore, Validated, Verified, Verifier, Version,
        WebhookSecret,
    },
    replica::ReplicaId,
    request::IdempotencyKey,
    requirement::Requirement,
    source::{BranchLog, GitSource},
    time::Timestamp,
    token::Token,
};
use rollhook_management::ports::{NewRecord, Record, RecordKey, RecordKind, RecordPlace, RecordStore};

/// The fate of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// The call is made as it is.
    #[default]
    None,
    /// The call is answered `Unavailable`, and was not made.
    Before,
    /// The call is answered `Corrupt`, and was not made.
    Corrupt,
    /// The call is made, and its answer is lost: `Unavailable`, for a batch for each of its parts.
    Lost,
    /// The call is made after this time, as by a process that was stopped for a while.
    Slow(Duration),
    /// The call is made, and its answer takes this time.
    Late(Duration),
}

/// Which fault a call meets, by the call's name, such as `history.commit`; asked once per call, in their order.
pub type Plan = Arc<dyn Fn(&'static str) -> Fault + Send + Sync>;

/// A port whose calls meet the faults of a plan.
///
/// Streams of hints and waiting for changes give no errors: for these a fault means silence for ever, which their
/// contracts allow.
pub struct Faulty<T: ?Sized> {
    inner: Arc<T>,
    clock: Arc<dyn Clock>,
    plan: Plan,
}

impl<T: ?Sized> Faulty<T> {
    /// The port under a plan; delays are slept on the clock.
    pub fn new(inner: Arc<T>, clock: Arc<dyn Clock>, plan: Plan) -> Self {
        Self { inner, clock, plan }
    }

    async fn call<R>(&self, name: &'static str, call: impl Future<Output = Result<R>> + Send) -> Result<R> {
        match (self.plan)(name) {
            Fault::None => call.await,
            Fault::Before => Err(Error::unavailable(name, "a fault before the call")),
            Fault::Corrupt => Err(Error::Corrupt { what: name.to_owned(), cause: None }),
            Fault::Lost => {
                drop(call.await);
                Err(Error::unavailable(name, "a fault after the call"))
            }
            Fault::Slow(time) => {
                self.clock.sleep(time).await;
                call.await
            }
            Fault::Late(time) => {
                let answer = call.await;
                self.clock.sleep(time).await;
                answer
            }
        }
    }
}

#[async_trait]
impl<T: TokenStore + ?Sized> TokenStore for Faulty<T> {
    async fn put(&self, app: AppUid, token: &Token) -> Result<WebhookSecret> {
        self.call("tokens.put", self.inner.put(app, token)).await
    }

    async fn rotate(&self, app: AppUid, token: &Token, until: Timestamp) -> Result<WebhookSecret> {
        self.call("tokens.rotate", self.inner.rotate(app, token, until)).await
    }

    async fn find(&self, app: &AppId) -> Result<Option<WebhookSecret>> {
        self.call("tokens.find", self.inner.find(app)).await
    }

    async fn find_fitting(&self, app: &AppId, fits: TokenMatcher<'_>) -> Result<Option<WebhookSecret>> {
        self.call("tokens.find_fitting", self.inner.find_fitting(app, fits)).await
    }

    async fn mark(&self, app: &AppId) -> Result<TokenMark> {
        self.inner.mark(app).await
    }

    async fn remove(&self, app: AppUid) -> Result<()> {
        self.call("tokens.remove", self.inner.remove(app)).await
    }

    fn sealing(&self) -> Sealing {
        self.inner.sealing()
    }
}

#[async_trait]
impl<T: ConfigurationStore + ?Sized> ConfigurationStore for Faulty<T> {
    async fn put(&self, app: AppUid, id: ConfigurationId, variables: &Variables) -> Result<()> {
        self.call("configurations.put", self.inner.put(app, id, variables)).await
    }

    async fn get(&self, app: AppUid, id: ConfigurationId) -> Result<Option<Variables>> {
        self.call("configurations.get", self.inner.get(app, id)).await
    }

    async fn list(&self, app: AppUid) -> Result<Vec<StoredConfiguration>> {
        self.call("configurations.list", self.inner.list(app)).await
    }

    async fn bytes_of(&self, namespace: &Namespace) -> Result<u64> {
        self.call("configurations.bytes_of", self.inner.bytes_of(namespace)).await
    }

    async fn remove(&self, app: AppUid, ids: &[ConfigurationId]) -> Result<()> {
        self.call("configurations.remove", self.inner.remove(app, ids)).await
    }
}

#[async_trait]
impl<T: RecordStore + ?Sized> RecordStore for Faulty<T> {
    async fn read(&self, kind: RecordKind, key: &RecordKey) -> Result<Option<Record>> {
        self.call("records.read", self.inner.read(kind, key)).await
    }

    async fn write(&self, kind: RecordKind, record: NewRecord, version: Option<Version>) -> Result<Version> {
        self.call("records.write", self.inner.write(kind, record, version)).await
    }

    async fn remove(&self, kind: RecordKind, key: &RecordKey) -> Result<()> {
        self.call("records.remove", self.inner.remove(kind, key)).await
    }

    async fn list(&self, kind: RecordKind, after: Option<RecordPlace>, limit: usize) -> Result<Vec<Record>> {
        self.call("records.list", self.inner.list(kind, after, limit)).await
    }

    async fn remove_oldest(&self, kind: RecordKind, keep: usize) -> Result<usize> {
        self.call("records.remove_oldest", self.inner.remove_oldest(kind, keep)).await
    }
}

#[async_trait]
impl<T: HistoryStore + ?Sized> HistoryStore for Faulty<T> {
    async fn load(&self, app: AppRef<'_>, key: Option<&IdempotencyKey>) -> Result<Option<Loaded>> {
        self.call("history.load", self.inner.load(app, key)).await
    }

    async fn commit(&self, commits: Vec<ports::AppCommit>) -> Vec<Result<Committed>> {
        let count = commits.len();
        let call = async { Ok(self.inner.commit(commits).await) };
        let unavailable = |_| Err(Error::unavailable("history.commit", "a fault"));
        self.call("history.commit", call).await.unwrap_or_else(|_| (0..count).map(unavailable).collect())
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        self.call("history.page", self.inner.page(app, page)).await
    }

    async fn archived(&self, app: AppUid, revision: Revision) -> Result<Option<Deploy>> {
        self.call("history.archived", self.inner.archived(app, revision)).await
    }

    async fn list(&self, page: AppPage) -> Result<Vec<ListedApp>> {
        self.call("history.list", self.inner.list(page)).await
    }

    async fn work(&self, alive: &[ReplicaId], limit: usize) -> Result<Vec<AppUid>> {
        self.call("history.work", self.inner.work(alive, limit)).await
    }

    async fn heartbeat(&self, replica: &ReplicaId, ttl: Duration) -> Result<Heartbeat> {
        self.call("history.heartbeat", self.inner.heartbeat(replica, ttl)).await
    }

    async fn bind_driver(&self, driver: &DriverIdentity, binding: Binding) -> Result<DriverIdentity> {
        self.call("history.bind_driver", self.inner.bind_driver(driver, binding)).await
    }

    fn watch(&self) -> BoxStream<'static, AppChange> {
        match (self.plan)("history.watch") {
            Fault::None | Fault::Slow(_) | Fault::Late(_) => self.inner.watch(),
            Fault::Before | Fault::Corrupt | Fault::Lost => stream::pending().boxed(),
        }
    }

    fn limits(&self) -> StoreLimits {
        self.inner.limits()
    }
}

#[async_trait]
impl<T: RolloutDriver + ?Sized> RolloutDriver for Faulty<T> {
    async fn identity(&self) -> Result<DriverIdentity> {
        self.call("rollouts.identity", self.inner.identity()).await
    }

    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        self.call("rollouts.validate", self.inner.validate(request)).await
    }

    async fn apply(&self, order: &RolloutSpec) -> Result<Applied> {
        self.call("rollouts.apply", self.inner.apply(order)).await
    }

    async fn observe(&self, order: &RolloutSpec) -> Result<Observation> {
        self.call("rollouts.observe", self.inner.observe(order)).await
    }

    async fn changed(&self, order: &RolloutSpec) {
        match (self.plan)("rollouts.changed") {
            Fault::None | Fault::Slow(_) | Fault::Late(_) => self.inner.changed(order).await,
            Fault::Before | Fault::Corrupt | Fault::Lost => future::pending().await,
        }
    }

    fn unstoppable(&self, target: &Target) -> Option<String> {
        self.inner.unstoppable(target)
    }

    fn unconfigurable(&self, target: &Target) -> Option<String> {
        self.inner.unconfigurable(target)
    }

    async fn check_settings(&self, request: &SettingsRequest) -> Result<CheckedSettings> {
        self.call("rollouts.check_settings", self.inner.check_settings(request)).await
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

    async fn evidence(&self, order: &RolloutSpec, failure: Option<&RolloutFailure>) -> Result<Evidence> {
        self.call("rollouts.evidence", self.inner.evidence(order, failure)).await
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
        self.call("rollouts.forget", self.inner.forget(app)).await
    }
}

#[async_trait]
impl<T: RolloutDriver + ?Sized> TargetReader for Faulty<T> {
    async fn at_rest(&self, order: &RolloutSpec) -> Result<AtRest> {
        let Some(reader) = self.inner.target_reader() else {
            return Err(Error::invalid("the driver reads no targets"));
        };
        self.call("rollouts.at_rest", reader.at_rest(order)).await
    }

    fn target_changes(&self) -> BoxStream<'static, AppUid> {
        match ((self.plan)("rollouts.target_changes"), self.inner.target_reader()) {
            (Fault::None | Fault::Slow(_) | Fault::Late(_), Some(reader)) => reader.target_changes(),
            (Fault::Before | Fault::Corrupt | Fault::Lost, _) | (_, None) => stream::pending().boxed(),
        }
    }

    fn forget_targets(&self, app: AppUid) {
        if let Some(reader) = self.inner.target_reader() {
            reader.forget_targets(app);
        }
    }
}

#[async_trait]
impl<T: RolloutDriver + ?Sized> ReleaseRunner for Faulty<T> {
    async fn prepare(&self, spec: &ReleaseSpec) -> Result<ReleaseState> {
        let Some(runner) = self.inner.release_runner() else { return Err(no_runner()) };
        self.call("releases.prepare", runner.prepare(spec)).await
    }

    async fn start(&self, run: &ReleaseRun) -> Result<()> {
        let Some(runner) = self.inner.release_runner() else { return Err(no_runner()) };
        self.call("releases.start", runner.start(run)).await
    }

    async fn observe(&self, run: &ReleaseRun) -> Result<ReleaseState> {
        let Some(runner) = self.inner.release_runner() else { return Err(no_runner()) };
        self.call("releases.observe", runner.observe(run)).await
    }

    async fn cancel(&self, run: &ReleaseRun) -> Result<()> {
        let Some(runner) = self.inner.release_runner() else { return Err(no_runner()) };
        self.call("releases.cancel", runner.cancel(run)).await
    }

    async fn changed(&self, run: &ReleaseRun) {
        match self.inner.release_runner() {
            Some(runner) => runner.changed(run).await,
            None => future::pending().await,
        }
    }

    async fn log(&self, run: &ReleaseRun, from: u64) -> Result<Option<Vec<u8>>> {
        let Some(runner) = self.inner.release_runner() else { return Err(no_runner()) };
        self.call("releases.log", runner.log(run, from)).await
    }
}

#[async_trait]
impl<T: RolloutDriver + ?Sized> InstanceLogs for Faulty<T> {
    async fn instances(&self, app: &App) -> Result<Vec<TargetInstance>> {
        let Some(logs) = self.inner.instance_logs() else { return Err(no_logs()) };
        self.call("instances.instances", logs.instances(app)).await
    }

    async fn read(&self, app: &App, instance: &InstanceName, query: &LogQuery) -> Result<Option<InstanceLogPart>> {
        let Some(logs) = self.inner.instance_logs() else { return Err(no_logs()) };
        self.call("instances.read", logs.read(app, instance, query)).await
    }

    fn workloads(&self, app: &App) -> Result<Vec<LoggedWorkload>> {
        let Some(logs) = self.inner.instance_logs() else { return Err(no_logs()) };
        logs.workloads(app)
    }
}

#[async_trait]
impl<T: RolloutDriver + ?Sized> InstanceAddresses for Faulty<T> {
    async fn addresses(&self, order: &RolloutSpec, port: u16) -> Result<ReadyInstances> {
        let Some(addresses) = self.inner.instance_addresses() else {
            return Err(Error::invalid("the driver names no addresses of instances"));
        };
        self.call("instances.addresses", addresses.addresses(order, port)).await
    }
}

fn no_logs() -> Error {
    Error::invalid("the driver keeps no logs of instances")
}

fn no_runner() -> Error {
    Error::invalid("the driver runs no release commands")
}

#[async_trait]
impl<T: RolloutDriver + ?Sized> StoredImages for Faulty<T> {
    fn stored_versions(&self) -> Option<usize> {
        self.inner.stored_images()?.stored_versions()
    }

    async fn has(&self, image: &ImageRef) -> Result<bool> {
        let Some(stored) = self.inner.stored_images() else { return Ok(false) };
        self.call("rollouts.has_image", stored.has(image)).await
    }

    async fn discard(&self, app: &App, images: &[ImageRef]) -> Result<()> {
        let Some(stored) = self.inner.stored_images() else { return Ok(()) };
        self.call("rollouts.discard", stored.discard(app, images)).await
    }

    async fn disk_space(&self) -> Result<Option<DiskSpace>> {
        let Some(stored) = self.inner.stored_images() else { return Ok(None) };
        self.call("rollouts.disk_space", stored.disk_space()).await
    }
}

#[async_trait]
impl<T: BuildTrigger + ?Sized> BuildTrigger for Faulty<T> {
    async fn start(&self, order: &BuildSpec) -> Result<Started> {
        self.call("builds.start", self.inner.start(order)).await
    }

    async fn running(&self, app: AppUid) -> Result<Option<Revision>> {
        self.call("builds.running", self.inner.running(app)).await
    }

    async fn observe(&self, build: DeployId) -> Result<BuildState> {
        self.call("builds.observe", self.inner.observe(build)).await
    }

    async fn changed(&self, build: DeployId) {
        match (self.plan)("builds.changed") {
            Fault::None | Fault::Slow(_) | Fault::Late(_) => self.inner.changed(build).await,
            Fault::Before | Fault::Corrupt | Fault::Lost => future::pending().await,
        }
    }

    async fn cancel(&self, build: DeployId) -> Result<()> {
        self.call("builds.cancel", self.inner.cancel(build)).await
    }

    async fn log(&self, build: DeployId, from: u64) -> Result<Option<Vec<u8>>> {
        self.call("builds.log", self.inner.log(build, from)).await
    }
}

#[async_trait]
impl<T: Verifier + ?Sized> Verifier for Faulty<T> {
    fn describe(&self) -> Vec<KindOfCheck> {
        self.inner.describe()
    }

    fn check(&self, kind: &CheckKind, settings: &Settings) -> std::result::Result<Settings, String> {
        self.inner.check(kind, settings)
    }

    fn secret_for(&self, kind: &CheckKind, settings: &Settings) -> Option<String> {
        self.inner.secret_for(kind, settings)
    }

    fn check_secret(
        &self,
        kind: &CheckKind,
        settings: &Settings,
        secret: &CheckSecret,
    ) -> std::result::Result<(), String> {
        self.inner.check_secret(kind, settings, secret)
    }

    fn instance_port(&self, kind: &CheckKind, settings: &Settings) -> Option<u16> {
        self.inner.instance_port(kind, settings)
    }

    async fn measure(&self, spec: &MeasureSpec) -> Result<Measured> {
        self.call("verifier.measure", self.inner.measure(spec)).await
    }

    async fn values_before(&self, spec: &MeasureSpec, times: &TimesBefore) -> Vec<PastValue> {
        self.inner.values_before(spec, times).await
    }
}

#[async_trait]
impl<T: BranchReader + ?Sized> BranchReader for Faulty<T> {
    async fn head(&self, app: &AppId, source: &GitSource) -> Result<Option<Commit>> {
        self.call("branches.head", self.inner.head(app, source)).await
    }

    async fn look(&self, app: &AppId, source: &GitSource) -> Result<Option<Commit>> {
        self.call("branches.head", self.inner.look(app, source)).await
    }

    async fn log(&self, app: &AppId, source: &GitSource) -> Result<BranchLog> {
        self.call("branches.log", self.inner.log(app, source)).await
    }
}

#[async_trait]
impl<T: Registry + ?Sized> Registry for Faulty<T> {
    async fn resolve(&self, environment: &Namespace, image: &ImageRef) -> Result<Resolved> {
        self.call("registry.resolve", self.inner.resolve(environment, image)).await
    }

    async fn tags(&self, environment: &Namespace, repository: &ImageRef, query: &TagQuery) -> Result<TagPage> {
        self.call("registry.tags", self.inner.tags(environment, repository, query)).await
    }
}

#[async_trait]
impl<T: ImageVerifier + ?Sized> ImageVerifier for Faulty<T> {
    fn check(&self, requirement: &Requirement) -> std::result::Result<(), String> {
        self.inner.check(requirement)
    }

    async fn verify(&self, environment: &Namespace, image: &ImageRef, requirement: &Requirement) -> Result<Verified> {
        self.call("signatures.verify", self.inner.verify(environment, image, requirement)).await
    }
}
