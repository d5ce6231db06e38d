//! Backends that break one promise each, to show that the simulation would notice.

mod builds;
mod releases;
mod store;
pub(crate) mod workloads;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use rollhook_core::{
    Result,
    app::{App, AppId, AppUid, Namespace, Settings, Target},
    configuration::{Configuration, ConfigurationId, Variables},
    deploy::{Decision, Evidence, Revision},
    image::ImageRef,
    ports::{
        Applied, AtRest, BranchReader, BuildTrigger, CheckedSettings, Clock, ConfigurationStore, DriverIdentity,
        HistoryStore, Observation, Phase, Purpose, ReleaseRunner, RolloutDriver, RolloutFailure, RolloutSpec, Sealing,
        SettingsRequest, StoredConfiguration, TargetReader, TargetRequest, TokenStore, Validated, WebhookSecret,
    },
    time::Timestamp,
    token::Token,
};

use crate::environment::Environment;

/// The promise that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    /// An order below the workload's stamp takes effect.
    Fence,
    /// A change is committed though the app has changed since it was made.
    Version,
    /// The idempotency key is written after the entry.
    KeyWithEntry,
    /// The last good version that is found is the one before it.
    Target,
    /// A rollout settles at once.
    Settle,
    /// The last restore is not recorded.
    LastRestore,
    /// The deploys that a rollback supersedes end before it is accepted.
    Supersede,
    /// Another party's change of a workload is put right as a failure is.
    OthersChange,
    /// A restore replaces what still runs.
    StillRuns,
    /// A restore takes over pods of the deploy that failed.
    FailedPods,
    /// A restore ends what is being built.
    BuildsBelowRestore,
    /// A replica lives for ever.
    Expiry,
    /// Stored times follow a clock that may be set back.
    Times,
    /// An accept is committed whatever has changed since it was decided.
    Guard,
    /// A replica remembers the token that it saw.
    OneToken,
    /// The old version's pods, which are healthy, are taken for the new one's.
    OwnPods,
    /// The lives that instances have had before are forgotten.
    PastLives,
    /// A build that was told to end counts as ended.
    BuildEnd,
    /// A build is begun while another one of the app runs.
    OneBuild,
    /// A build that is told to end goes on.
    Cancelled,
    /// Another commit than the ordered one is built, and goes by its name.
    ThatCommit,
    /// A built image is rolled out, whatever has become of its entry.
    LateBuild,
    /// A driver does not see that a source was changed.
    SourceChange,
    /// The newest entry is built first.
    FirstIn,
    /// Polling does not see commits that another trigger has brought.
    Brought,
    /// Holds are not seen.
    HoldOfFound,
    /// A build's time begins anew with each replica that looks at its entry.
    BuildDeadline,
    /// What is at rest after a failure is taken for healthy.
    Recovery,
    /// What recovers after a failure is not seen.
    RecoverySeen,
    /// A release command begins as soon as it is made ready.
    ReleaseReady,
    /// A release command that runs is said to have ended well.
    ReleaseEnd,
    /// A release command that is told to end goes on.
    ReleaseCancel,
    /// A release command runs the image of the version before.
    ReleaseImage,
    /// A return to an earlier version runs a release command.
    ReleaseReturn,
    /// The turns of other apps in a release group are not seen.
    ReleaseTurns,
    /// A deploy changes all workloads at once.
    Stages,
    /// A restore brings back only the workload that failed.
    RestoreOfAll,
    /// Further workloads are never deployed to.
    EachWorkload,
    /// A deploy is complete as soon as one workload is.
    AllComplete,
    /// A restore brings the image back alone.
    WholeRelease,
    /// A target keeps the variables that it got first.
    NewValues,
    /// The values of another app's configuration are read.
    OwnValues,
    /// A restore brings no settings back.
    Settings,
    /// Settings are those of the app that came first.
    OwnSettings,
    /// A configuration is removed that is needed.
    NeededValues,
    /// A check that says nothing passes.
    SilencePasses,
    /// A check that says nothing fails.
    SilenceFails,
    /// A question to a person is answered by itself.
    AskedByItself,
    /// A decision counts for the next version that asks too.
    DecisionAcross,
    /// A version begins with the fails of the one before it.
    FailsAcross,
    /// A return to an earlier version is verified.
    ReturnVerified,
    /// A version is measured before its rollout has settled.
    EarlyMeasurements,
    /// A check that says nothing of a watched version fails.
    SilenceRevokes,
    /// A watch that has restored once restores once more.
    SecondWatchRestore,
    /// A watch goes on whatever is accepted.
    WatchGoesOn,
    /// A watch begins with the fails of the version before.
    FailsIntoWatch,
    /// A tag is looked up once more when it is rolled out.
    ResolvedOnce,
    /// A deploy begins before its registry has answered.
    WaitsForAnswer,
    /// The newest version is the last by the alphabet.
    NewestByAlphabet,
    /// The decisions of following are not seen.
    DecidedOnce,
    /// Following sees neither holds nor its decision on what they hold.
    HeldFollowed,
    /// Following sees no version above the newest listed one.
    Downgrade,
    /// Each image is taken for signed.
    Signature,
    /// What is required of images is not seen.
    Required,
    /// A check that decides nothing revokes a verification.
    ObserverRevokes,
    /// The highest sequence of a webhook's deploys is not seen.
    Sequence,
    /// The log of a branch begins with its oldest commit, as if each was made from the next.
    LogOrder,
}

/// The backends of one replica.
pub(crate) struct Backend {
    pub(crate) tokens: Arc<dyn TokenStore>,
    pub(crate) configurations: Arc<dyn ConfigurationStore>,
    pub(crate) history: Arc<dyn HistoryStore>,
    pub(crate) rollouts: Arc<dyn RolloutDriver>,
    pub(crate) builds: Arc<dyn BuildTrigger>,
    pub(crate) heads: Arc<dyn BranchReader>,
}

impl Backend {
    /// The true one, or one that breaks a promise.
    pub(crate) fn new(environment: &Arc<Environment>, clock: Arc<dyn Clock>, broken: Option<Promise>) -> Self {
        let Some(promise) = broken else {
            return Self {
                tokens: environment.store.clone(),
                configurations: environment.store.clone(),
                history: environment.store.clone(),
                rollouts: environment.cluster.clone(),
                builds: environment.builders[0].clone(),
                heads: environment.builders[0].clone(),
            };
        };
        let environment = Arc::clone(environment);
        let broken = Arc::new(BrokenBackend {
            promise,
            environment,
            clock,
            token: Mutex::default(),
            first_values: Mutex::default(),
            last_shown: Mutex::default(),
            last_images: Mutex::default(),
            last_decision: Mutex::default(),
        });
        let heads = broken.environment.builders[0].clone();
        Self {
            tokens: broken.clone(),
            configurations: broken.clone(),
            history: broken.clone(),
            rollouts: broken.clone(),
            builds: broken,
            heads,
        }
    }
}

struct BrokenBackend {
    promise: Promise,
    environment: Arc<Environment>,
    clock: Arc<dyn Clock>,
    token: Mutex<BTreeMap<AppId, WebhookSecret>>,
    /// The first configuration of each app.
    first_values: Mutex<BTreeMap<AppUid, Configuration>>,
    /// The last answer about each app.
    last_shown: Mutex<BTreeMap<AppUid, store::Shown>>,
    /// The image that each app has got last.
    last_images: Mutex<BTreeMap<AppUid, ImageRef>>,
    /// The last decision of a person on a deploy.
    last_decision: Mutex<Option<(Revision, Decision)>>,
}

impl BrokenBackend {
    fn breaks(&self, promise: Promise) -> bool {
        self.promise == promise
    }
}

#[async_trait]
impl RolloutDriver for BrokenBackend {
    async fn identity(&self) -> Result<DriverIdentity> {
        self.environment.cluster.identity().await
    }

    fn unstoppable(&self, target: &Target) -> Option<String> {
        self.environment.cluster.unstoppable(target)
    }

    fn unconfigurable(&self, target: &Target) -> Option<String> {
        self.environment.cluster.unconfigurable(target)
    }

    async fn check_settings(&self, request: &SettingsRequest) -> Result<CheckedSettings> {
        self.environment.cluster.check_settings(request).await
    }

    fn has_same_workloads(&self, before: &Target, after: &Target) -> bool {
        self.environment.cluster.has_same_workloads(before, after)
    }

    fn fetches_images(&self) -> bool {
        self.environment.cluster.fetches_images()
    }

    fn observes_with_variables(&self, target: &Target) -> bool {
        self.environment.cluster.observes_with_variables(target)
    }

    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        self.environment.cluster.validate(request).await
    }

    async fn apply(&self, spec: &RolloutSpec) -> Result<Applied> {
        if self.breaks(Promise::ReleaseReturn) && spec.purpose.returns_to().is_some() {
            self.release_first(spec).await?;
        }
        let purpose = match spec.purpose {
            Purpose::Restore { .. } if self.breaks(Promise::StillRuns) => Purpose::Deploy,
            Purpose::Restore { .. } if self.breaks(Promise::FailedPods) => Purpose::Restore { to: spec.id.revision },
            other @ (Purpose::Deploy | Purpose::Rollback { .. } | Purpose::Restore { .. }) => other,
        };
        let configuration = self.values(spec);
        let spec = &spec.clone().with(|spec| {
            spec.purpose = purpose;
            if self.breaks(Promise::ResolvedOnce) {
                spec.image = spec.image.clone().unpinned();
            }
            spec.configuration = configuration;
        });
        let answer = self.environment.cluster.apply(spec).await?;
        self.last_images.lock().unwrap().insert(spec.id.app, spec.image.clone());
        if self.breaks(Promise::Fence) && matches!(answer, Applied::Newer(_)) {
            self.environment.cluster.delete(&spec.app, &spec.target);
            return self.environment.cluster.apply(spec).await;
        }
        Ok(answer)
    }

    async fn observe(&self, spec: &RolloutSpec) -> Result<Observation> {
        let seen = RolloutDriver::observe(&*self.environment.cluster, spec).await?;
        if self.breaks(Promise::OwnPods) {
            let phase = Phase::Complete { digest: None, note: None };
            return Ok(seen.with(|seen| {
                seen.phase = phase;
                seen.failure = None;
            }));
        }
        if self.breaks(Promise::PastLives) {
            return Ok(seen.with(|seen| seen.past_lives = Vec::new()));
        }
        Ok(seen)
    }

    async fn changed(&self, spec: &RolloutSpec) {
        RolloutDriver::changed(&*self.environment.cluster, spec).await;
    }

    fn target_reader(&self) -> Option<&dyn TargetReader> {
        Some(self)
    }

    fn release_runner(&self) -> Option<&dyn ReleaseRunner> {
        Some(self)
    }

    async fn evidence(&self, spec: &RolloutSpec, failure: Option<&RolloutFailure>) -> Result<Evidence> {
        self.environment.cluster.evidence(spec, failure).await
    }

    async fn forget(&self, app: &App) -> Result<()> {
        self.environment.cluster.forget(app).await
    }
}

#[async_trait]
impl TargetReader for BrokenBackend {
    async fn at_rest(&self, spec: &RolloutSpec) -> Result<AtRest> {
        let AtRest { image, drift, seen, references } = self.environment.cluster.at_rest(spec).await?;
        let phase = match seen.phase.clone() {
            _ if self.breaks(Promise::Recovery) => Phase::Complete { digest: None, note: None },
            _ if self.breaks(Promise::RecoverySeen) => Phase::Progressing,
            phase @ (Phase::Progressing | Phase::Complete { .. }) => phase,
        };
        let failure = seen.failure.clone().filter(|_| !self.breaks(Promise::Recovery));
        Ok(AtRest {
            image,
            drift,
            references,
            seen: seen.with(|seen| {
                seen.phase = phase;
                seen.failure = failure;
            }),
        })
    }

    fn target_changes(&self) -> BoxStream<'static, AppUid> {
        self.environment.cluster.target_changes()
    }
}

#[async_trait]
impl TokenStore for BrokenBackend {
    async fn put(&self, app: AppUid, token: &Token) -> Result<WebhookSecret> {
        TokenStore::put(&*self.environment.store, app, token).await
    }

    async fn rotate(&self, app: AppUid, token: &Token, until: Timestamp) -> Result<WebhookSecret> {
        self.environment.store.rotate(app, token, until).await
    }

    async fn find(&self, app: &AppId) -> Result<Option<WebhookSecret>> {
        let known = self.token.lock().unwrap().get(app).cloned();
        if self.breaks(Promise::OneToken) && known.is_some() {
            return Ok(known);
        }
        let found = TokenStore::find(&*self.environment.store, app).await?;
        if let Some(secret) = &found {
            self.token.lock().unwrap().insert(app.clone(), secret.clone());
        }
        Ok(found)
    }

    async fn remove(&self, app: AppUid) -> Result<()> {
        TokenStore::remove(&*self.environment.store, app).await
    }

    fn sealing(&self) -> Sealing {
        self.environment.store.sealing()
    }
}

impl BrokenBackend {
    /// The configuration that is brought to the target.
    fn values(&self, spec: &RolloutSpec) -> Option<Configuration> {
        let wanted =
            spec.configuration.clone().filter(|_| !spec.purpose.is_restore() || !self.breaks(Promise::WholeRelease))?;
        let mut known = self.first_values.lock().unwrap();
        let first = known.entry(spec.id.app).or_insert_with(|| wanted.clone()).clone();
        let settings = if self.breaks(Promise::Settings) && spec.purpose.is_restore() {
            Settings::default()
        } else if self.breaks(Promise::OwnSettings) {
            let others = known.iter().find(|(app, _)| **app != spec.id.app).map(|(_, other)| other);
            others.unwrap_or(&wanted).variables.settings.clone()
        } else {
            wanted.variables.settings.clone()
        };
        let wanted = if self.breaks(Promise::NewValues) { first } else { wanted };
        Some(wanted.with(|wanted| wanted.variables.settings = settings))
    }
}

#[async_trait]
impl ConfigurationStore for BrokenBackend {
    async fn put(&self, app: AppUid, id: ConfigurationId, variables: &Variables) -> Result<()> {
        ConfigurationStore::put(&*self.environment.store, app, id, variables).await
    }

    async fn get(&self, app: AppUid, id: ConfigurationId) -> Result<Option<Variables>> {
        let others = self.environment.apps().into_iter().map(|other| other.app.uid);
        for other in others.filter(|other| self.breaks(Promise::OwnValues) && *other != app) {
            let listed = ConfigurationStore::list(&*self.environment.store, other).await?;
            if let Some(stored) = listed.first() {
                return self.environment.store.get(other, stored.id).await;
            }
        }
        self.environment.store.get(app, id).await
    }

    async fn list(&self, app: AppUid) -> Result<Vec<StoredConfiguration>> {
        let listed = ConfigurationStore::list(&*self.environment.store, app).await?;
        if self.breaks(Promise::NeededValues) && listed.len() > 1 {
            let ids: Vec<ConfigurationId> = listed.iter().map(|one| one.id).collect();
            ConfigurationStore::remove(&*self.environment.store, app, &ids).await?;
        }
        Ok(listed)
    }

    async fn bytes_of(&self, namespace: &Namespace) -> Result<u64> {
        self.environment.store.bytes_of(namespace).await
    }

    async fn remove(&self, app: AppUid, ids: &[ConfigurationId]) -> Result<()> {
        ConfigurationStore::remove(&*self.environment.store, app, ids).await
    }
}
