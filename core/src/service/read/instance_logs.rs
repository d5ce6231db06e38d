//! Instances of an app, and their logs.

use std::{sync::Arc, time::Duration};

use crate::{
    app::{AppId, LABEL_MAX},
    error::{Error, Result},
    instance::InstanceName,
    ports::{InstanceLogPart, InstanceLogs, LogQuery, LoggedWorkload, TargetInstance},
    request::Refusal,
    service::{Authorized, Deployer, Outcome, in_time::in_time},
    slots::Slots,
};

/// The longest time of a read, of all workloads of an app together: each holds a place of its environment.
const READ_TIME: Duration = Duration::from_secs(15);

/// The reads of instances and their logs that are under way at once.
pub(crate) struct InstanceReads(Slots);

impl Default for InstanceReads {
    fn default() -> Self {
        Self(Slots::with_share(16, 4))
    }
}

impl Deployer {
    /// Returns the instances of an app's target, or of its workload of this name, those of the newest revision first. An
    /// environment has a few reads at a time; others wait for their turn.
    ///
    /// # Errors
    /// [`Refusal::NoInstanceLogs`] if the platform keeps no logs; [`Refusal::NoSuchWorkload`]; [`Refusal::StoreUnavailable`] and
    /// [`Refusal::ClusterUnavailable`] while the store or the platform is away.
    pub async fn instances(&self, access: &Authorized, workload: Option<&str>) -> Outcome<Vec<TargetInstance>> {
        let logs = self.logs()?;
        let mut app = self.state(access).await?.app;
        if let Some(given) = workload {
            let all = logs.workloads(&app).map_err(|error| unread(access, &error))?;
            app = match LoggedWorkload::named(&all, given) {
                Some(found) => Arc::new(found.app.clone()),
                None => return Err(no_such_workload(&app.id, given, &all)),
            };
        }
        let _turn = self.instance_reads.0.acquire(&access.id.namespace).await;
        self.in_time(logs.instances(&app)).await.map_err(|error| unread(access, &error))
    }

    /// Returns the names of the workloads of an app's target, in their order; none if the platform has no names for them.
    ///
    /// # Errors
    /// As [`Deployer::instances`].
    pub async fn logged_workloads(&self, access: &Authorized) -> Outcome<Vec<String>> {
        let (logs, app) = (self.logs()?, self.state(access).await?.app);
        let all = logs.workloads(&app).map_err(|error| unread(access, &error))?;
        Ok(all.into_iter().map(|workload| workload.name).collect())
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
        let part = self.in_time(logs.read(&app, instance, query)).await.map_err(|error| unread(access, &error))?;
        part.ok_or_else(|| Refusal::NoSuchInstance(instance.clone()))
    }

    async fn in_time<T>(&self, read: impl Future<Output = Result<T>>) -> Result<T> {
        in_time(&*self.ports.clock, READ_TIME, read).await.unwrap_or_else(|| {
            let what = format!("reading the instances of all workloads took longer than {} s", READ_TIME.as_secs());
            Err(Error::Unavailable { what, cause: None })
        })
    }

    fn logs(&self) -> Outcome<&dyn InstanceLogs> {
        self.ports.rollouts.instance_logs().ok_or(Refusal::NoInstanceLogs)
    }
}

fn no_such_workload(app: &AppId, given: &str, all: &[LoggedWorkload]) -> Refusal {
    let known = all.iter().map(|workload| workload.name.clone()).collect();
    Refusal::NoSuchWorkload { app: app.clone(), given: given.chars().take(LABEL_MAX).collect(), known }
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
