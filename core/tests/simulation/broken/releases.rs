//! A runner of release commands that breaks one promise.

use async_trait::async_trait;
use rollhook_core::{
    Result,
    deploy::Reason,
    ports::{ReleaseFailure, ReleaseRun, ReleaseRunner, ReleaseSpec, ReleaseState},
};

use super::{BrokenBackend, Promise};

#[async_trait]
impl ReleaseRunner for BrokenBackend {
    async fn prepare(&self, spec: &ReleaseSpec) -> Result<ReleaseState> {
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
