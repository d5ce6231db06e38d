//! A runner of release commands that breaks one promise.

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    deploy::Reason,
    ports::{ReleaseFailure, ReleaseRun, ReleaseRunner, ReleaseSpec, ReleaseState, RolloutSpec},
};

use super::{BrokenBackend, Promise};

impl BrokenBackend {
    /// Begins a release command for a rollout that is to have none; an error until it has begun.
    pub(super) async fn release_first(&self, rollout: &RolloutSpec) -> Result<()> {
        let run = ReleaseRun { app: rollout.app.clone(), id: rollout.id.into() };
        if self.environment.cluster.releases().iter().any(|begun| begun.run == run.id) {
            return Ok(());
        }
        let (target, image) = (rollout.target.clone(), rollout.image.clone());
        let spec = ReleaseSpec::new(run, target, image, vec!["migrate".to_owned()]);
        ReleaseRunner::prepare(&*self.environment.cluster, &spec).await?;
        ReleaseRunner::start(&*self.environment.cluster, &spec.run).await?;
        Err(Error::unavailable("the cluster", "a release command is under way"))
    }
}

#[async_trait]
impl ReleaseRunner for BrokenBackend {
    async fn prepare(&self, spec: &ReleaseSpec) -> Result<ReleaseState> {
        let last = self.last_images.lock().unwrap().get(&spec.run.id.app).cloned();
        let last = last.filter(|_| self.breaks(Promise::ReleaseImage) && !spec.run.id.kind.is_by_hand());
        let spec = &spec.clone().with(|spec| spec.image = last.unwrap_or_else(|| spec.image.clone()));
        let state = self.environment.cluster.prepare(spec).await?;
        if self.breaks(Promise::ReleaseReady) {
            ReleaseRunner::start(&*self.environment.cluster, &spec.run).await?;
        }
        Ok(state)
    }

    async fn start(&self, run: &ReleaseRun) -> Result<()> {
        ReleaseRunner::start(&*self.environment.cluster, run).await
    }

    async fn observe(&self, run: &ReleaseRun) -> Result<ReleaseState> {
        let state = ReleaseRunner::observe(&*self.environment.cluster, run).await?;
        if state != ReleaseState::Running {
            return Ok(state);
        }
        Ok(match () {
            () if self.breaks(Promise::ReleaseEnd) => ReleaseState::Succeeded { digest: None },
            () if self.breaks(Promise::ReleaseCancel) && !self.environment.is_awaited(run) => {
                let (reason, message) = (Reason::new(Reason::CANCELLED), "It was ended.".to_owned());
                ReleaseState::Failed(ReleaseFailure { began: true, reason, message, exit_code: None, log: Vec::new() })
            }
            () => state,
        })
    }

    async fn cancel(&self, run: &ReleaseRun) -> Result<()> {
        if self.breaks(Promise::ReleaseCancel) {
            return Ok(());
        }
        self.environment.cluster.cancel(run).await
    }

    async fn changed(&self, run: &ReleaseRun) {
        ReleaseRunner::changed(&*self.environment.cluster, run).await;
    }

    async fn log(&self, run: &ReleaseRun, from: u64) -> Result<Option<Vec<u8>>> {
        self.environment.cluster.log(run, from).await
    }
}
