//! The variables of a run's command: the Secret of its own configuration, which its Job names in place of the workload's.

use k8s_openapi::{api::batch::v1::Job, apimachinery::pkg::apis::meta::v1::OwnerReference};
use rollhook_core::{
    Result,
    deploy::Reason,
    ports::{ReleaseFailure, ReleaseSpec},
};

use super::{Run, unbegun};
use crate::{
    configurations::{self, Provided},
    rules::{
        configuration::{self, Owner},
        object::Object,
        secret_drift,
    },
    workload::Rollout,
};

impl<'a> Run<'a> {
    /// Provides the Secret with the variables of the run, which goes with the workload if that exists. Returns the failure
    /// if the new version could not be rolled out with them.
    pub(super) async fn provide(
        &self,
        spec: &ReleaseSpec,
        rollout: &Rollout,
        target: &Object,
    ) -> Result<std::result::Result<Option<Provided>, ReleaseFailure>> {
        let Some(wanted) = &spec.configuration else { return Ok(Ok(None)) };
        let conflict = configuration::conflict(target, &rollout.workload.containers, wanted);
        if let Some(why) = conflict.filter(|_| self.is_release()) {
            return Ok(Err(unbegun(Reason::new(Reason::CONFIGURATION_CONFLICT), why)));
        }
        let (kind, version) = (target.kind().as_str(), target.kind().api_version());
        let owner = self.owner(configuration::reference_to(version, kind, target.metadata()));
        Ok(match configurations::provide(self.cluster, &owner, wanted, secret_drift::noted(target)).await? {
            Provided::Refused(why) => Err(unbegun(Reason::new(Reason::REFUSED), why)),
            provided @ (Provided::Made(_) | Provided::Found(_)) => Ok(Some(provided)),
        })
    }

    /// Lets the Secret of a run go with its Job where there is no workload yet, and removes old ones for a new one.
    pub(super) async fn hand_over(
        &self,
        spec: &ReleaseSpec,
        target: &Object,
        job: &Job,
        secret: Option<&Provided>,
    ) -> Result<()> {
        let Some(wanted) = &spec.configuration else { return Ok(()) };
        if target.metadata().uid.is_none() {
            let owner = self.owner(configuration::reference_to("batch/v1", "Job", &job.metadata));
            let known = secret.and_then(Provided::uid);
            configurations::provide(self.cluster, &owner, wanted, known).await?;
        }
        if self.is_release() && matches!(secret, Some(Provided::Made(_))) {
            configurations::remove_old(self.cluster, self.namespace, self.run.deploy_id()).await;
        }
        Ok(())
    }

    fn owner(&self, object: Option<OwnerReference>) -> Owner<'a> {
        let deploy = self.is_release().then(|| self.run.deploy_id());
        Owner { app: &self.run.app, uid: self.run.id.app, deploy, object }
    }
}
