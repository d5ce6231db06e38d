//! Instances of an app, and their logs.

use crate::{
    error::Error,
    instance::InstanceName,
    ports::{InstanceLogPart, InstanceLogs, LogQuery, TargetInstance},
    request::Refusal,
    service::{Authorized, Deployer, Outcome},
    slots::Slots,
};

/// The reads of instances and their logs that are under way at once.
pub(crate) struct InstanceReads(Slots);

impl Default for InstanceReads {
    fn default() -> Self {
        Self(Slots::with_share(16, 4))
    }
}

impl Deployer {
    /// Returns the instances of an app's target, those of the newest revision first. An environment has a few reads at a
    /// time; others wait for their turn.
    ///
    /// # Errors
    /// [`Refusal::NoInstanceLogs`] if the platform keeps no logs; [`Refusal::StoreUnavailable`] and
    /// [`Refusal::ClusterUnavailable`] while the store or the platform is away.
    pub async fn instances(&self, access: &Authorized) -> Outcome<Vec<TargetInstance>> {
        let logs = self.logs()?;
        let app = self.state(access).await?.app;
        let _turn = self.instance_reads.0.acquire(&access.id.namespace).await;
        logs.instances(&app).await.map_err(|error| unread(access, &error))
    }

    /// Returns a part of the log of the instance of this name or id. An environment has a few reads at a time; others wait
    /// for their turn.
    ///
    /// # Errors
    /// As [`Deployer::instances`]; [`Refusal::NoSuchInstance`].
    pub async fn instance_log(
        &self,
        access: &Authorized,
        instance: &InstanceName,
        query: &LogQuery,
    ) -> Outcome<InstanceLogPart> {
        let logs = self.logs()?;
        let app = self.state(access).await?.app;
        let _turn = self.instance_reads.0.acquire(&access.id.namespace).await;
        let part = logs.read(&app, instance, query).await.map_err(|error| unread(access, &error))?;
        part.ok_or_else(|| Refusal::NoSuchInstance(instance.clone()))
    }

    fn logs(&self) -> Outcome<&dyn InstanceLogs> {
        self.ports.rollouts.instance_logs().ok_or(Refusal::NoInstanceLogs)
    }
}

fn unread(access: &Authorized, error: &Error) -> Refusal {
    if error.is_transient() {
        tracing::debug!(app = %access.id, error = %error.chain(), "reading the instances of an app failed");
    } else {
        // Such as a permission that is missing: an operator has to look.
        tracing::warn!(app = %access.id, error = %error.chain(), "reading the instances of an app failed");
    }
    Refusal::ClusterUnavailable
}
