//! The simulated cluster's driver, with one promise broken.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};

use async_trait::async_trait;
use rollhook_conformance::samples;
use rollhook_core::{
    Error, Result,
    app::{App, AppUid, Target},
    deploy::{Evidence, Revision},
    disk::DiskSpace,
    image::ImageRef,
    ports::{
        Applied, DriverIdentity, Observation, Phase, RolloutDriver, RolloutFailure, RolloutSpec, StoredImages,
        TargetRequest, Validated,
    },
};
use rollhook_memory::SimulatedCluster;

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
    /// Validating changes nothing: here it does.
    ValidationReads,
}

/// A driver, as one process has it.
pub(crate) struct Broken {
    cluster: Arc<SimulatedCluster>,
    promise: Promise,
    applied: Mutex<BTreeMap<AppUid, Revision>>,
    completed: Mutex<BTreeMap<Revision, Observation>>,
    busy: AtomicBool,
}

impl Broken {
    pub(crate) fn new(cluster: Arc<SimulatedCluster>, promise: Promise) -> Self {
        let (applied, completed, busy) = Default::default();
        Self { cluster, promise, applied, completed, busy }
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

    fn with_digest(seen: Observation, with: Option<u8>) -> Observation {
        match seen.phase {
            Phase::Complete { note, .. } => {
                Observation { phase: Phase::Complete { digest: with.map(samples::digest), note }, ..seen }
            }
            Phase::Progressing => seen,
        }
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

fn complete(seen: Observation) -> Observation {
    Observation { phase: Phase::Complete { digest: None, note: None }, ..seen }
}

#[async_trait]
impl RolloutDriver for Broken {
    async fn identity(&self) -> Result<DriverIdentity> {
        self.cluster.identity().await
    }

    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        let answer = self.cluster.validate(request).await?;
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
            _ => self.cluster.apply(order).await,
        }
    }

    async fn observe(&self, order: &RolloutSpec) -> Result<Observation> {
        let seen = self.cluster.observe(order).await?;
        let applied = seen.deploy == Some(order.id);
        Ok(match self.promise {
            Promise::OldOnesEnd if applied && !seen.progress.starts_with("0/") => complete(seen),
            Promise::RestartsCount => Observation { restarts: 0, ..seen },
            Promise::DigestIsObserved => Self::with_digest(seen, Some(7)),
            Promise::DigestIsTold => Self::with_digest(seen, None),
            Promise::ReadyIsComplete if applied => complete(seen),
            Promise::DeathIsSeen => self.once_complete(order, seen),
            Promise::OwnInstances if seen.failure.is_none() => complete(seen),
            _ => seen,
        })
    }

    async fn changed(&self, order: &RolloutSpec) {
        self.cluster.changed(order).await;
    }

    async fn evidence(&self, order: &RolloutSpec, failure: Option<&RolloutFailure>) -> Result<Evidence> {
        let evidence = self.cluster.evidence(order, failure).await?;
        Ok(match self.promise {
            Promise::LogIsEvidence => Evidence { log: Vec::new(), ..evidence },
            _ => evidence,
        })
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
impl StoredImages for Broken {
    fn stored_versions(&self) -> Option<usize> {
        None
    }

    async fn discard(&self, app: &App, images: &[ImageRef]) -> Result<()> {
        if self.promise == Promise::DiscardedRuns
            && self.cluster.running(&app.id, &app.target).iter().any(|image| images.contains(image))
        {
            self.cluster.scale(&app.id, &app.target, 0);
        }
        Ok(())
    }

    async fn disk_space(&self) -> Result<Option<DiskSpace>> {
        Ok(None)
    }
}
