//! The simulated cluster's driver, with one promise broken.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{
    StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use rollhook_conformance::{Instance, ManualClock, block_on, samples};
use rollhook_core::{
    Error, Result,
    app::{App, AppUid, Target},
    configuration::Configuration,
    deploy::{Evidence, Revision},
    image::Digest,
    ports::{
        Applied, AtRest, CheckedSettings, Clock, DeployId, DriverIdentity, InstanceAddresses, InstanceLogs,
        Observation, PastLives, Phase, Purpose, RolloutDriver, RolloutFailure, RolloutSpec, SettingsRequest,
        StoredImages, TargetReader, TargetRequest, Validated,
    },
};
use rollhook_memory::{Script, SimulatedCluster};

use crate::{
    simulated::Simulated,
    stops::{self, Stops},
};

/// What a driver promises, and breaks here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// All of them are kept.
    Kept,
    /// The deploy id outlives the process: here it is in the driver's memory alone.
    IdIsKept,
    /// The deploy id is compared and replaced as one step: here another driver gets in between.
    FenceIsOneStep,
    /// A dropped call is made good: here it blocks those that follow.
    DropsAreMadeGood,
    /// Complete leaves no old instance: here one ready new one is enough.
    OldOnesEnd,
    /// Restarts are counted: here there are none.
    RestartsCount,
    /// The digest is observed: here it is invented.
    DigestIsObserved,
    /// The digest is told: here it is not.
    DigestIsTold,
    /// The configuration stays: here a deploy sets it back.
    ConfigurationStays,
    /// A restore brings settings back: here without them.
    SettingsAreRestored,
    /// Settings end with the configuration that has them: here they stay.
    SettingsEnd,
    /// Settings are an app's own: here they are those of the app that came first.
    SettingsAreOwn,
    /// The log is in the evidence: here it is lost.
    LogIsEvidence,
    /// Complete means ready: here it means started.
    ReadyIsComplete,
    /// The end of a ready instance is seen: here what was complete once is so for ever.
    DeathIsSeen,
    /// Complete means the deploy's own instances: here the image is enough.
    OwnInstances,
    /// A forgotten target goes on: here it loses its deploy id.
    ForgottenRuns,
    /// What runs goes on where its image is discarded: here it ends.
    DiscardedRuns,
    /// Stored images are those that are there: here each is.
    StoredIsThere,
    /// Validating changes nothing: here it does.
    ValidationReads,
    /// Settings that were not used are named: here they are not.
    UnusedIsNamed,
    /// Its own deploy id is no other's: here it is.
    OwnIsKnown,
    /// A new revision of the same image has its own instances: here the old ones get its deploy id.
    SameImageRolls,
    /// A digest goes before the tag beside it: here the tag does.
    DigestBeatsTag,
    /// The digest that is deployed runs: here the tag does, and the digest is reported.
    DigestRuns,
    /// The digest is the one of what runs: here it is what the tag means now.
    DigestStays,
    /// Old instances end, also where they crash: here such stay.
    CrashingOnesEnd,
    /// Restarts are counted by the platform: here by the driver, since its start.
    RestartsAreKept,
    /// Past lives are reported: here there are none.
    LivesAreTold,
    /// Past lives are kept by the platform: here by the driver, since its start.
    LivesAreKept,
    /// The time for which the app is down is known: here it is never down.
    DownIsTold,
    /// The time for which the app is down is kept by the platform: here by the driver, since its start.
    DownIsKept,
    /// Evidence is the deploy's own: here it begins with that of the deploy before.
    EvidenceIsOwn,
    /// A call answers in time: here it waits for the instances.
    AnswersInTime,
    /// A failure ends with recovery: here it stays.
    FailureEnds,
    /// The progress stands still with the rollout: here it is the time.
    ProgressStandsStill,
    /// The progress moves with the rollout: here it never does.
    ProgressMoves,
    /// A hint ends or waits: here it panics where the target carries another deploy.
    HintsDoNotPanic,
    /// Asking for a hint never panics: here it does so before there is a future, where the target carries the deploy.
    HintsAreFutures,
    /// A restore keeps what still runs: here it replaces that.
    RestoreKeeps,
    /// A restore keeps nothing of the failed deploy: here it takes over the instances that have its image.
    FailedIsNotKept,
    /// What was adopted is complete as long as it runs: here for ever.
    AdoptedMayChange,
    /// A healthy target at rest is complete: here it is degraded.
    HealthyStaysComplete,
    /// A crash loop at rest is seen: here what was complete once is well for ever.
    CrashLoopIsSeen,
    /// A hint comes with a crash loop: here none does.
    CrashLoopIsHinted,
    /// Recovery at rest is seen: here a failure stays.
    RecoveryIsSeen,
    /// Addresses are of the deploy's own instances: here of all that serve.
    AddressesAreOwn,
    /// Addresses are of all instances that are ready: here of one.
    AddressesAreAll,
    /// What a restore keeps has addresses: here only what it made has.
    KeptHaveAddresses,
    /// Instances name the revision that made them: here they do not.
    InstancesHaveRevisions,
    /// Lines come oldest first: here newest first.
    LogIsOldestFirst,
    /// A position loses no line: here it loses those of the last one's time.
    PositionLosesNothing,
    /// A position repeats no line: here the last one comes twice.
    PositionRepeatsNothing,
    /// `previous` is the life before: here it is the present one.
    PreviousIsBefore,
    /// An unknown instance has no log: here it has an empty one.
    UnknownHasNoLog,
    /// A promise of stops and starts is broken.
    Stops(Stops),
}

/// A driver, as one process has it.
pub(crate) struct Broken {
    pub(crate) cluster: Arc<SimulatedCluster>,
    pub(crate) promise: Promise,
    applied: Mutex<BTreeMap<AppUid, Revision>>,
    completed: Mutex<BTreeMap<Revision, Observation>>,
    busy: AtomicBool,
    clock: Arc<ManualClock>,
    memory: Mutex<Memory>,
}

/// What a driver must not keep in memory, or not keep at all.
#[derive(Default)]
struct Memory {
    /// The deploy that rolled, and the one whose id its instances carry now.
    restamped: Option<(RolloutSpec, DeployId)>,
    /// Instances of deploys that failed.
    left: Vec<Instance>,
    /// The restarts that the first observation found.
    restarts: Option<u32>,
    /// The past lives that the first observation found, by their instances.
    lives: Option<Vec<PastLives>>,
    /// The first observation of an app that is down.
    down: Option<Duration>,
    /// The log of the last crash.
    log: Vec<String>,
    /// The last failure of each revision.
    failures: BTreeMap<Revision, RolloutFailure>,
    /// The configuration that was brought last, or first.
    brought: Option<Configuration>,
}

impl Broken {
    pub(crate) fn new(simulated: &Simulated, promise: Promise) -> Self {
        let (applied, completed, busy, memory) = Default::default();
        let (cluster, clock) = (simulated.cluster.clone(), simulated.clock.clone());
        Self { cluster, promise, applied, completed, busy, clock, memory }
    }

    /// The deploy id that old instances were given.
    pub(crate) fn restamped(&self) -> Option<DeployId> {
        self.memory.lock().unwrap().restamped.as_ref().map(|(_, id)| *id)
    }

    /// The instances that run beside those of the cluster.
    pub(crate) fn left(&self) -> Vec<Instance> {
        self.memory.lock().unwrap().left.clone()
    }

    fn with_other_settings(&self, order: &RolloutSpec) -> RolloutSpec {
        let brought = &mut self.memory.lock().unwrap().brought;
        let known = brought.clone();
        if self.promise != Promise::SettingsAreOwn || known.is_none() {
            *brought = order.configuration.clone().or(brought.take());
        }
        order.clone().with(|spec| match (self.promise, &mut spec.configuration) {
            (Promise::SettingsAreRestored, Some(own)) if order.purpose.is_restore() => {
                own.variables.settings.clear();
            }
            (Promise::SettingsEnd, own @ None) => *own = known,
            (Promise::SettingsAreOwn, Some(own)) => {
                own.variables.settings = known.unwrap_or_else(|| own.clone()).variables.settings;
            }
            _ => {}
        })
    }

    async fn restamp(&self, order: &RolloutSpec) -> Result<Applied> {
        let rolled = self.memory.lock().unwrap().restamped.as_ref().map(|(rolled, _)| rolled.clone());
        match rolled.filter(|rolled| rolled.image == order.image) {
            Some(rolled) => {
                self.memory.lock().unwrap().restamped = Some((rolled, order.id));
                Ok(Applied::Done)
            }
            None => {
                self.memory.lock().unwrap().restamped = Some((order.clone(), order.id));
                self.cluster.apply(order).await
            }
        }
    }

    async fn observe_restamped(&self, order: &RolloutSpec) -> Result<Observation> {
        let restamped = self.memory.lock().unwrap().restamped.clone();
        let Some((rolled, id)) = restamped else { return self.cluster.observe(order).await };
        let seen = self.cluster.observe(&rolled).await?;
        Ok(seen.with(|seen| {
            seen.deploy = Some(id);
            if order.id != id {
                seen.phase = Phase::Progressing;
            }
        }))
    }

    /// Leaves a failing instance of the deploy before as it is.
    async fn apply_beside(&self, order: &RolloutSpec) -> Result<Applied> {
        let before = self.memory.lock().unwrap().restamped.replace((order.clone(), order.id));
        if let Some((before, _)) = before
            && self.cluster.observe(&before).await?.failure.is_some()
        {
            let left = Instance { id: before.id.to_string(), image: before.image, digest: None };
            self.memory.lock().unwrap().left.push(left);
        }
        self.cluster.apply(order).await
    }

    /// Applies, whatever the target carries.
    async fn overwrite(&self, order: &RolloutSpec) -> Result<Applied> {
        if matches!(self.cluster.apply(order).await?, Applied::Newer(_)) {
            self.cluster.unstamp(&order.app, &order.target);
        }
        self.cluster.apply(order).await
    }

    async fn apply_by_memory(&self, order: &RolloutSpec) -> Result<Applied> {
        let newest = *self.applied.lock().unwrap().entry(order.id.app).or_insert(order.id.revision);
        if newest > order.id.revision {
            return Ok(Applied::Newer(newest));
        }
        self.applied.lock().unwrap().insert(order.id.app, order.id.revision);
        self.overwrite(order).await
    }

    async fn apply_in_two_steps(&self, order: &RolloutSpec) -> Result<Applied> {
        let carried = self.cluster.observe(order).await?.deploy.filter(|deploy| deploy.app == order.id.app);
        others_first().await;
        match carried {
            Some(carried) if carried.revision > order.id.revision => Ok(Applied::Newer(carried.revision)),
            Some(_) | None => self.overwrite(order).await,
        }
    }

    async fn apply_alone(&self, order: &RolloutSpec) -> Result<Applied> {
        if self.busy.swap(true, Ordering::SeqCst) {
            return Err(Error::Conflict(rollhook_core::error::Entity::Object));
        }
        others_first().await;
        let answer = self.cluster.apply(order).await;
        self.busy.store(false, Ordering::SeqCst);
        answer
    }

    fn once_complete(&self, order: &RolloutSpec, seen: Observation) -> Observation {
        let mut completed = self.completed.lock().unwrap();
        if matches!(seen.phase, Phase::Complete { .. }) {
            completed.entry(order.id.revision).or_insert_with(|| seen.clone());
        }
        completed.get(&order.id.revision).cloned().unwrap_or(seen)
    }

    fn with(seen: Observation, digest: Option<Digest>) -> Observation {
        seen.with(|seen| {
            if let Phase::Complete { digest: shown, .. } = &mut seen.phase {
                *shown = digest;
            }
        })
    }
}

/// Lets whoever else is to be polled go first.
async fn others_first() {
    let mut waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn by_tag(order: &RolloutSpec) -> RolloutSpec {
    order.clone().with(|spec| spec.image = order.image.clone().unpinned())
}

/// The restore of whatever ran last.
fn of_the_last(order: &RolloutSpec) -> RolloutSpec {
    let purpose = match order.purpose {
        Purpose::Restore { .. } => Purpose::Restore { to: order.id.revision },
        other @ (Purpose::Deploy | Purpose::Rollback { .. }) => other,
    };
    order.clone().with(|spec| spec.purpose = purpose)
}

fn complete(seen: Observation) -> Observation {
    seen.with(|seen| seen.phase = Phase::Complete { digest: None, note: None })
}

#[async_trait]
impl RolloutDriver for Broken {
    fn instance_logs(&self) -> Option<&dyn InstanceLogs> {
        Some(self)
    }

    fn instance_addresses(&self) -> Option<&dyn InstanceAddresses> {
        Some(self)
    }

    async fn identity(&self) -> Result<DriverIdentity> {
        self.cluster.identity().await
    }

    fn unstoppable(&self, target: &Target) -> Option<String> {
        self.cluster.unstoppable(target)
    }

    fn unconfigurable(&self, target: &Target) -> Option<String> {
        self.cluster.unconfigurable(target)
    }

    async fn check_settings(&self, request: &SettingsRequest) -> Result<CheckedSettings> {
        self.cluster.check_settings(request).await
    }

    fn fetches_images(&self) -> bool {
        self.cluster.fetches_images()
    }

    fn observes_with_variables(&self, target: &Target) -> bool {
        self.cluster.observes_with_variables(target)
    }

    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        let stranger = TargetRequest { registered: None, ..request.clone() };
        let request = if self.promise == Promise::OwnIsKnown { &stranger } else { request };
        let mut answer = self.cluster.validate(request).await?;
        if let (Promise::UnusedIsNamed, Validated::Adopt { unused, .. }) = (self.promise, &mut answer) {
            unused.clear();
        }
        if let (Promise::ValidationReads, Validated::Adopt { settings, .. }) = (self.promise, &answer) {
            let target = Target { settings: settings.clone(), ..Target::default() };
            let pods = self.cluster.pods(&request.app, &target).unwrap_or_default();
            self.cluster.scale(&request.app, &target, pods + 1);
        }
        Ok(answer)
    }

    async fn apply(&self, order: &RolloutSpec) -> Result<Applied> {
        match self.promise {
            Promise::IdIsKept => self.apply_by_memory(order).await,
            Promise::FenceIsOneStep => self.apply_in_two_steps(order).await,
            Promise::DropsAreMadeGood => self.apply_alone(order).await,
            Promise::ConfigurationStays => {
                let answer = self.cluster.apply(order).await;
                if order.id.revision > Revision::FIRST {
                    self.cluster.scale(&order.app, &order.target, 1);
                }
                answer
            }
            Promise::SettingsAreRestored | Promise::SettingsEnd | Promise::SettingsAreOwn => {
                self.cluster.apply(&self.with_other_settings(order)).await
            }
            Promise::SameImageRolls => self.restamp(order).await,
            Promise::DigestBeatsTag | Promise::DigestRuns => self.cluster.apply(&by_tag(order)).await,
            Promise::CrashingOnesEnd => self.apply_beside(order).await,
            Promise::RestoreKeeps => {
                let replacing = order.clone().with(|spec| spec.purpose = Purpose::Deploy);
                self.cluster.apply(&replacing).await
            }
            Promise::FailedIsNotKept => self.cluster.apply(&of_the_last(order)).await,
            Promise::Stops(promise) => stops::apply(&self.cluster, promise, order).await,
            Promise::AnswersInTime => {
                self.clock.sleep(Duration::from_secs(100)).await;
                self.cluster.apply(order).await
            }
            _ => self.cluster.apply(order).await,
        }
    }

    async fn observe(&self, order: &RolloutSpec) -> Result<Observation> {
        let seen = match self.promise {
            Promise::SameImageRolls => self.observe_restamped(order).await?,
            Promise::Stops(promise) => stops::observe(&self.cluster, promise, order).await?,
            Promise::DigestBeatsTag | Promise::DigestRuns => self.cluster.observe(&by_tag(order)).await?,
            _ => self.cluster.observe(order).await?,
        };
        let applied = seen.deploy == Some(order.id);
        Ok(match self.promise {
            Promise::DigestRuns => Self::with(seen, order.image.digest().cloned()),
            Promise::DigestStays => Self::with(seen, Some(self.cluster.digest(&order.image))),
            Promise::RestartsAreKept => {
                let first = *self.memory.lock().unwrap().restarts.get_or_insert(seen.restarts);
                seen.with(|seen| seen.restarts -= first)
            }
            Promise::LivesAreTold => seen.with(|seen| seen.past_lives = Vec::new()),
            Promise::LivesAreKept => {
                let mut memory = self.memory.lock().unwrap();
                let first = memory.lives.get_or_insert_with(|| seen.past_lives.clone());
                let is_new = |lives: &PastLives| first.iter().all(|known| known.count != lives.count);
                seen.with(|seen| seen.past_lives.retain(is_new))
            }
            Promise::DownIsTold => seen.with(|seen| seen.down_for = None),
            Promise::DownIsKept => {
                let now = self.clock.elapsed();
                let mut memory = self.memory.lock().unwrap();
                let down_for = seen.down_for.map(|_| now - *memory.down.get_or_insert(now));
                seen.with(|seen| seen.down_for = down_for)
            }
            Promise::FailureEnds => {
                let failures = &mut self.memory.lock().unwrap().failures;
                failures.extend(seen.failure.clone().map(|failure| (order.id.revision, failure)));
                seen.with(|seen| seen.failure = failures.get(&order.id.revision).cloned())
            }
            Promise::ProgressStandsStill => seen.with(|seen| seen.progress = format!("{:?}", self.clock.elapsed())),
            Promise::ProgressMoves => seen.with(|seen| seen.progress = String::new()),
            Promise::AdoptedMayChange if order.adopted => complete(seen).with(|seen| seen.failure = None),
            Promise::OldOnesEnd if applied && !seen.progress.starts_with("0/") => complete(seen),
            Promise::RestartsCount => seen.with(|seen| seen.restarts = 0),
            Promise::DigestIsObserved => Self::with(seen, Some(samples::digest(7))),
            Promise::DigestIsTold => Self::with(seen, None),
            Promise::ReadyIsComplete if applied => complete(seen),
            Promise::DeathIsSeen => self.once_complete(order, seen),
            Promise::OwnInstances if seen.failure.is_none() => complete(seen),
            _ => seen,
        })
    }

    fn changed<'a: 'c, 'b: 'c, 'c>(&'a self, order: &'b RolloutSpec) -> BoxFuture<'c, ()> {
        let carried = block_on(self.cluster.observe(order)).map(|seen| seen.deploy == Some(order.id));
        if self.promise == Promise::HintsAreFutures && matches!(carried, Ok(true)) {
            panic!("the watch is not connected");
        }
        Box::pin(async move {
            if self.promise == Promise::HintsDoNotPanic && matches!(carried, Ok(false)) {
                panic!("no watch of this deploy");
            }
            self.cluster.changed(order).await;
        })
    }

    async fn evidence(&self, order: &RolloutSpec, failure: Option<&RolloutFailure>) -> Result<Evidence> {
        let evidence = self.cluster.evidence(order, failure).await?;
        Ok(match self.promise {
            Promise::LogIsEvidence => Evidence { log: Vec::new(), ..evidence },
            Promise::EvidenceIsOwn => {
                let log = &mut self.memory.lock().unwrap().log;
                log.extend(evidence.log.iter().cloned());
                Evidence { log: log.clone(), ..evidence }
            }
            _ => evidence,
        })
    }

    fn target_reader(&self) -> Option<&dyn TargetReader> {
        Some(self)
    }

    fn stored_images(&self) -> Option<&dyn StoredImages> {
        Some(self)
    }

    async fn forget(&self, app: &App) -> Result<()> {
        if self.promise == Promise::ForgottenRuns {
            self.cluster.unstamp(&app.id, &app.target);
        }
        Ok(())
    }
}

#[async_trait]
impl TargetReader for Broken {
    async fn at_rest(&self, order: &RolloutSpec) -> Result<AtRest> {
        let found = self.cluster.at_rest(order).await?;
        let seen = match self.promise {
            Promise::HealthyStaysComplete => found.seen.with(|seen| seen.failure = Script::crashes().failure),
            Promise::CrashLoopIsSeen => self.once_complete(order, found.seen),
            Promise::RecoveryIsSeen => {
                let failures = &mut self.memory.lock().unwrap().failures;
                failures.extend(found.seen.failure.clone().map(|failure| (order.id.revision, failure)));
                found.seen.with(|seen| seen.failure = failures.get(&order.id.revision).cloned())
            }
            _ => found.seen,
        };
        Ok(AtRest { seen, ..found })
    }

    fn target_changes(&self) -> BoxStream<'static, AppUid> {
        match self.promise {
            Promise::CrashLoopIsHinted => stream::pending().boxed(),
            _ => self.cluster.target_changes(),
        }
    }
}
