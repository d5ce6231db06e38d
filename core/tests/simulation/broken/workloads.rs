//! The driver of several workloads, and ones that break one promise each.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use rollhook_core::{
    Result,
    app::{App, AppUid, Target},
    deploy::Evidence,
    ports::{
        Applied, DriverIdentity, Observation, ReleaseRunner, RolloutDriver, RolloutFailure, RolloutSpec, StoredImages,
        TargetDescription, TargetReader, TargetRequest, Validated,
    },
};
use rollhook_workloads::Workloads;

use super::Promise;
use crate::workloads::parts;

/// Returns the driver of apps with several workloads, the sound one or one that breaks a promise.
pub(crate) fn over(below: Arc<dyn RolloutDriver>, promise: Option<Promise>) -> Arc<dyn RolloutDriver> {
    let sound = Workloads::over(Arc::clone(&below));
    let promises = [Promise::Stages, Promise::RestoreOfAll, Promise::EachWorkload, Promise::AllComplete];
    match promise.filter(|promise| promises.contains(promise)) {
        Some(promise) => Arc::new(BrokenWorkloads { promise, sound, below, failed: Mutex::default() }),
        None => Arc::new(sound),
    }
}

struct BrokenWorkloads {
    promise: Promise,
    sound: Workloads,
    below: Arc<dyn RolloutDriver>,
    /// The name of the workload of each app that has failed last.
    failed: Mutex<BTreeMap<AppUid, String>>,
}

impl BrokenWorkloads {
    /// Returns the workload, as the driver below is to deploy it, that the broken promise reduces a deploy to.
    fn only(&self, spec: &RolloutSpec) -> Option<RolloutSpec> {
        let name = if self.promise == Promise::RestoreOfAll && spec.purpose.is_restore() {
            Some(self.failed.lock().unwrap().get(&spec.id.app).cloned()?)
        } else if self.promise == Promise::EachWorkload {
            None
        } else {
            return None;
        };
        let mut parts = parts(&spec.target).into_iter();
        let only = parts.find(|part| name.as_ref().is_none_or(|name| *name == part.name))?;
        Some(spec.clone().with(|spec| spec.target = only.target))
    }

    fn all(spec: &RolloutSpec) -> Vec<RolloutSpec> {
        parts(&spec.target).into_iter().map(|part| spec.clone().with(|spec| spec.target = part.target)).collect()
    }

    /// Returns the observation of a workload that is complete, if any is.
    async fn complete(&self, spec: &RolloutSpec, seen: &Observation) -> Option<Observation> {
        let index = seen.workloads.iter().position(|workload| workload.is_complete)?;
        self.below.observe(&Self::all(spec)[index]).await.ok()
    }
}

#[async_trait]
impl RolloutDriver for BrokenWorkloads {
    async fn identity(&self) -> Result<DriverIdentity> {
        self.sound.identity().await
    }

    fn describe(&self) -> TargetDescription {
        self.sound.describe()
    }

    fn unstoppable(&self, target: &Target) -> Option<String> {
        self.sound.unstoppable(target)
    }

    fn unconfigurable(&self, target: &Target) -> Option<String> {
        self.sound.unconfigurable(target)
    }

    fn has_same_workloads(&self, before: &Target, after: &Target) -> bool {
        self.sound.has_same_workloads(before, after)
    }

    fn fetches_images(&self) -> bool {
        self.sound.fetches_images()
    }

    fn observes_with_variables(&self, target: &Target) -> bool {
        self.sound.observes_with_variables(target)
    }

    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        self.sound.validate(request).await
    }

    async fn apply(&self, spec: &RolloutSpec) -> Result<Applied> {
        if let Some(only) = self.only(spec) {
            return self.below.apply(&only).await;
        }
        if self.promise != Promise::Stages || spec.adopted || spec.purpose.returns_to().is_some() {
            return self.sound.apply(spec).await;
        }
        for spec in Self::all(spec) {
            let answer = self.below.apply(&spec).await?;
            if answer != Applied::Done {
                return Ok(answer);
            }
        }
        Ok(Applied::Done)
    }

    async fn observe(&self, spec: &RolloutSpec) -> Result<Observation> {
        if let Some(only) = self.only(spec) {
            return self.below.observe(&only).await;
        }
        let seen = RolloutDriver::observe(&self.sound, spec).await?;
        if self.promise == Promise::AllComplete
            && let Some(complete) = self.complete(spec, &seen).await
        {
            return Ok(complete);
        }
        if let Some(failure) = &seen.failure {
            let is_of = |name: &String| failure.message.contains(&format!("/{name}: "));
            let failed = parts(&spec.target).into_iter().map(|part| part.name).find(is_of);
            failed.map(|name| self.failed.lock().unwrap().insert(spec.id.app, name));
        }
        Ok(seen)
    }

    async fn changed(&self, spec: &RolloutSpec) {
        RolloutDriver::changed(&self.sound, spec).await;
    }

    async fn evidence(&self, spec: &RolloutSpec, failure: Option<&RolloutFailure>) -> Result<Evidence> {
        self.sound.evidence(spec, failure).await
    }

    fn target_reader(&self) -> Option<&dyn TargetReader> {
        self.sound.target_reader()
    }

    fn stored_images(&self) -> Option<&dyn StoredImages> {
        self.sound.stored_images()
    }

    fn release_runner(&self) -> Option<&dyn ReleaseRunner> {
        self.sound.release_runner()
    }

    async fn forget(&self, app: &App) -> Result<()> {
        self.sound.forget(app).await
    }
}
