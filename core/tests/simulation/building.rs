//! A replica's way to its builder: what is asked and answered there is noted, and judged.

use async_trait::async_trait;
use futures_util::FutureExt;
use rollhook_core::{
    Error, Result,
    app::AppUid,
    deploy::Revision,
    ports::{BuildSpec, BuildState, BuildTrigger, DeployId, Started},
};

use crate::{environment::Adrift, recording_ports::RecordingPorts};

#[async_trait]
impl BuildTrigger for RecordingPorts {
    async fn start(&self, order: &BuildSpec) -> Result<Started> {
        if let Some(time) = self.faults.adrift() {
            self.log(|| format!("build revision {}: no answer, but it is under way", order.id.revision));
            self.environment.set_adrift(Adrift::Build(order.clone()), time);
            return Err(Error::unavailable("the builder", "no answer"));
        }
        if self.faults.refused() {
            self.log(|| format!("build revision {}: refused", order.id.revision));
            return Err(Error::invalid("this builder does not build it"));
        }
        let answer = self.backend.builds.start(order).await;
        match &answer {
            Ok(started) => self.log(|| format!("build revision {}: {started:?}", order.id.revision)),
            Err(_) => self.log_answer("build", &answer),
        }
        let busy = matches!(answer, Ok(Started::Busy(_)));
        self.environment.journal.count_if(busy, "rule 8: a build was refused while another ran");
        self.environment.look_at_builds(Some(self.life.number), order);
        answer
    }

    async fn running(&self, app: AppUid) -> Result<Option<Revision>> {
        let answer = self.backend.builds.running(app).await;
        self.log(|| format!("what is built? {answer:?}"));
        answer
    }

    async fn observe(&self, build: DeployId) -> Result<BuildState> {
        let answer = self.backend.builds.observe(build).await;
        self.log(|| format!("look at the build of revision {}: {answer:?}", build.revision));
        let seen = match self.environment.promise {
            Some(_) => self.environment.observe_build(build),
            None => answer.as_ref().ok().cloned(),
        };
        if let Some(seen) = seen {
            self.environment.rules.lock().unwrap().build_seen(build, &seen, &self.environment.journal);
        }
        answer
    }

    async fn changed(&self, build: DeployId) {
        self.backend.builds.changed(build).await;
    }

    async fn cancel(&self, build: DeployId) -> Result<()> {
        let answer = self.backend.builds.cancel(build).await;
        self.log_answer(&format!("end the build of revision {}", build.revision), &answer);
        if answer.is_ok() {
            self.environment.rules.lock().unwrap().build_is_told_to_end(build, &self.environment.journal);
        }
        answer
    }

    async fn log(&self, build: DeployId, from: u64) -> Result<Option<Vec<u8>>> {
        self.backend.builds.log(build, from).await
    }
}

impl crate::environment::Environment {
    /// A build as it is, on whichever machine it runs.
    fn observe_build(&self, build: DeployId) -> Option<BuildState> {
        let seen = |at: usize| self.builders[at].observe(build).now_or_never()?.ok();
        seen(0).filter(|seen| *seen != BuildState::Unknown).or_else(|| seen(1))
    }
}
