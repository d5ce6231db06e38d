//! Backends that break one promise each, to show that the simulation would notice.

mod builds;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use rollhook_core::{
    Result,
    app::{AppId, AppUid},
    decide::poll::NEWEST,
    deploy::{Actor, Deploy, Evidence, Revision, State, Trigger},
    ports::{
        Admission, Admitted, Applied, Apps, BranchReader, BuildTrigger, Claim, Claimed, Clock, History, Observation,
        Page, Phase, Record, RolloutDriver, RolloutFailure, RolloutSpec, Sealing, TargetRequest, TokenStore, Validated,
        View, Wake, WebhookSecret,
    },
    token::Token,
};

use crate::stage::Stage;

/// The promise that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    /// An order below the workload's stamp takes effect.
    Fence,
    /// A record does not ask whose the app is.
    Claim,
    /// The idempotency key is written after the entry.
    KeyWithEntry,
    /// The last good version that is found is the one before it.
    Target,
    /// A rollout settles at once.
    Settle,
    /// Nobody knows that a restore was made.
    LastRestore,
    /// What a rollback supersedes ends before it is accepted.
    Supersede,
    /// A claim lasts for ever.
    Expiry,
    /// Stored times follow a clock that may be set back.
    Times,
    /// An accept is not refused for what has changed since it was decided.
    Guard,
    /// A replica remembers the token that it saw.
    OneToken,
    /// The old version's pods, which are healthy, are taken for the new one's.
    OwnPods,
    /// A build that was told to end counts as ended.
    BuildEnd,
    /// A build is begun while another one of the app runs.
    OneBuild,
    /// A build that is told to end goes on.
    Cancelled,
    /// Something else than the ordered commit is built, and goes by its name.
    ThatCommit,
    /// What was built is rolled out, whatever has become of its entry.
    LateBuild,
    /// A driver does not see that a source was changed.
    SourceChange,
    /// The newest entry is built first.
    FirstIn,
    /// What another trigger has brought is not seen where a source is looked at.
    Brought,
    /// What is held is not seen where a source is looked at.
    HoldOfFound,
    /// A build's time begins anew with whoever looks at its entry.
    BuildDeadline,
}

/// What one replica acts on.
pub(crate) struct Backend {
    pub(crate) apps: Arc<dyn Apps>,
    pub(crate) tokens: Arc<dyn TokenStore>,
    pub(crate) history: Arc<dyn History>,
    pub(crate) rollouts: Arc<dyn RolloutDriver>,
    pub(crate) builds: Arc<dyn BuildTrigger>,
    pub(crate) heads: Arc<dyn BranchReader>,
}

impl Backend {
    /// The true one, or one that breaks a promise.
    pub(crate) fn new(stage: &Arc<Stage>, clock: Arc<dyn Clock>, broken: Option<Promise>) -> Self {
        let Some(promise) = broken else {
            return Self {
                apps: stage.store.clone(),
                tokens: stage.store.clone(),
                history: stage.store.clone(),
                rollouts: stage.cluster.clone(),
                builds: stage.builders[0].clone(),
                heads: stage.builders[0].clone(),
            };
        };
        let stage = Arc::clone(stage);
        let liar = Arc::new(Liar { promise, stage, clock, token: Mutex::default() });
        let apps = liar.stage.store.clone();
        let heads = liar.stage.builders[0].clone();
        Self { apps, tokens: liar.clone(), history: liar.clone(), rollouts: liar.clone(), builds: liar, heads }
    }
}

struct Liar {
    promise: Promise,
    stage: Arc<Stage>,
    clock: Arc<dyn Clock>,
    token: Mutex<BTreeMap<AppId, WebhookSecret>>,
}

impl Liar {
    fn breaks(&self, promise: Promise) -> bool {
        self.promise == promise
    }

    /// Somebody else's turn, in the middle of what should be one write.
    async fn gap(&self) {
        self.stage.look();
        self.clock.sleep(Duration::from_millis(5)).await;
    }

    async fn key_after_entry(&self, admission: Admission) -> Result<Admitted> {
        let Some(key) = admission.key.clone() else { return self.stage.store.admit(admission).await };
        let name = (admission.app, key.key);
        let known = self.stage.keys.lock().unwrap().get(&name).copied();
        if let Some(revision) = known {
            let page = Page { before: Some(Revision::next(revision)), succeeded: false, limit: 1 };
            let entry = self.stage.store.page(admission.app, page).await?.into_iter().next();
            return Ok(entry.map_or(Admitted::Stale, Admitted::Replay));
        }
        let admitted = self.stage.store.admit(Admission { key: None, ..admission }).await?;
        if let Admitted::New { deploy, .. } = &admitted {
            self.gap().await;
            self.stage.keys.lock().unwrap().insert(name, deploy.revision);
        }
        Ok(admitted)
    }

    async fn superseded_before(&self, admission: Admission) -> Result<Admitted> {
        let View { unfinished, last, .. } = self.stage.store.view(admission.app).await?;
        let by = Revision::following(last);
        let state = || State::Superseded { by, rollback: admission.draft.trigger == Trigger::Rollback };
        let changes: Vec<Deploy> = unfinished.iter().map(|entry| entry.moved(state())).collect();
        let record = Record { app: admission.app, claim: None, changes, lift: Vec::new(), rest: false };
        self.stage.store.record(record).await?;
        self.gap().await;
        self.stage.store.admit(Admission { supersede: false, ..admission }).await
    }

    async fn unguarded(&self, admission: Admission) -> Result<Admitted> {
        let View { app, .. } = self.stage.store.view(admission.app).await?;
        self.stage.store.admit(Admission { guard: app.guard, after: None, ..admission }).await
    }
}

#[async_trait]
impl History for Liar {
    async fn admit(&self, admission: Admission) -> Result<Admitted> {
        if self.breaks(Promise::KeyWithEntry) {
            self.key_after_entry(admission).await
        } else if self.breaks(Promise::Supersede) && admission.supersede {
            self.superseded_before(admission).await
        } else if self.breaks(Promise::Guard) {
            self.unguarded(admission).await
        } else {
            self.stage.store.admit(admission).await
        }
    }

    async fn record(&self, record: Record) -> Result<()> {
        let claim = record.claim.filter(|_| !self.breaks(Promise::Claim));
        let changes = self.recorded(record.app, record.changes).await?;
        self.stage.store.record(Record { claim, changes, ..record }).await
    }

    async fn view(&self, app: AppUid) -> Result<View> {
        let mut view = self.stage.store.view(app).await?;
        if self.breaks(Promise::Settle) {
            view.app.policy.settle = Duration::ZERO;
        }
        if self.breaks(Promise::LastRestore) {
            view.last_restore = None;
            let restore = view.on_cluster.as_mut().filter(|top| top.is_restore());
            restore.into_iter().for_each(|top| top.actor = Actor::named("somebody"));
        }
        if self.breaks(Promise::HoldOfFound) {
            view.app.holds.clear();
        }
        Ok(self.shown(view))
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        let mut entries = self.stage.store.page(app, page).await?;
        if self.breaks(Promise::Target) && page.succeeded && !entries.is_empty() {
            entries.remove(0);
        }
        if self.breaks(Promise::Brought) && page.limit == NEWEST {
            entries.retain(|entry| entry.trigger == Trigger::Git);
        }
        Ok(entries)
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        let for_ever = self.breaks(Promise::Expiry) && !claim.ttl.is_zero();
        let ttl = if for_ever { Duration::from_secs(1_000_000) } else { claim.ttl };
        self.stage.store.claim(Claim { ttl, ..claim }).await
    }

    fn wakes(&self) -> BoxStream<'static, Wake> {
        self.stage.store.wakes()
    }
}

#[async_trait]
impl RolloutDriver for Liar {
    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        self.stage.cluster.validate(request).await
    }

    async fn apply(&self, order: &RolloutSpec) -> Result<Applied> {
        let answer = self.stage.cluster.apply(order).await?;
        if self.breaks(Promise::Fence) && matches!(answer, Applied::Newer(_)) {
            self.stage.cluster.delete(&order.app, &order.target);
            return self.stage.cluster.apply(order).await;
        }
        Ok(answer)
    }

    async fn observe(&self, order: &RolloutSpec) -> Result<Observation> {
        let seen = self.stage.cluster.observe(order).await?;
        if self.breaks(Promise::OwnPods) {
            let phase = Phase::Complete { digest: None, note: None };
            return Ok(Observation { phase, trouble: None, ..seen });
        }
        Ok(seen)
    }

    async fn changed(&self, order: &RolloutSpec) {
        self.stage.cluster.changed(order).await;
    }

    async fn evidence(&self, order: &RolloutSpec, trouble: Option<&RolloutFailure>) -> Result<Evidence> {
        self.stage.cluster.evidence(order, trouble).await
    }
}

#[async_trait]
impl TokenStore for Liar {
    async fn put(&self, app: AppUid, token: &Token) -> Result<WebhookSecret> {
        self.stage.store.put(app, token).await
    }

    async fn find(&self, app: &AppId) -> Result<Option<WebhookSecret>> {
        let known = self.token.lock().unwrap().get(app).cloned();
        if self.breaks(Promise::OneToken) && known.is_some() {
            return Ok(known);
        }
        let found = TokenStore::find(&*self.stage.store, app).await?;
        if let Some(secret) = &found {
            self.token.lock().unwrap().insert(app.clone(), secret.clone());
        }
        Ok(found)
    }

    async fn remove(&self, app: AppUid) -> Result<()> {
        TokenStore::remove(&*self.stage.store, app).await
    }

    async fn operator_hash(&self) -> Result<Option<[u8; 32]>> {
        self.stage.store.operator_hash().await
    }

    async fn set_operator_hash(&self, hash: [u8; 32]) -> Result<()> {
        self.stage.store.set_operator_hash(hash).await
    }

    fn sealing(&self) -> Sealing {
        self.stage.store.sealing()
    }
}
