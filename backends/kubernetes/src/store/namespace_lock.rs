//! One namespace belongs to one (project, environment) pair for as long as an app is in it.
//!
//! A Lease per namespace, in our own, names the pair. After the Lease was written, the namespace is searched for apps
//! of another pair; after a `RollhookApp` was created, the Lease is read again. So of two pairs at the same time, at least one
//! sees the other, and withdraws.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::api::ObjectMeta;
use rollhook_core::{Error, Result, app::App, error::Entity, time::Timestamp};

use super::{
    KubernetesStore,
    api::{Written, create, delete, get, list, replace},
    clock::calendar,
    crd::AppObject,
    heartbeat::LEASE_LABEL,
};
use crate::error::contended;

/// How long a pair has to create its first app.
const NEW: Duration = Duration::from_secs(10);
/// The number of attempts to write a Lease that others write at the same time.
const ATTEMPTS: usize = 24;

impl KubernetesStore {
    /// Gives the namespace to the app's pair; called before its `RollhookApp` is created, and again afterwards.
    pub(crate) async fn lock_namespace(&self, app: &App) -> Result<()> {
        let api = self.api.own::<Lease>();
        let taken = Error::Conflict(Entity::Namespace);
        for _ in 0..ATTEMPTS {
            let found: Option<Lease> = get(&api, &lease_name(app.id.namespace.as_str())).await?;
            let written = match found {
                Some(lease) if pair_of(&lease) == Some(&pair(app)) => return Ok(()),
                Some(lease) if self.is_new(&lease) => return Err(taken),
                _ if self.is_used_by_others(app).await? => return Err(taken),
                Some(lease) => replace(&api, &self.owned(lease, app)).await?,
                None => create(&api, &self.owned(Lease::default(), app)).await?,
            };
            let Written::Done(lease) = written else { continue };
            if self.is_used_by_others(app).await? {
                delete(&api, &lease.metadata).await?;
                return Err(taken);
            }
            return Ok(());
        }
        Err(contended())
    }

    /// Removes the Lease of a namespace without apps; one that is left is taken over by whichever pair comes next.
    pub(crate) async fn unlock_namespace(&self, namespace: &str) {
        let unlocked = async {
            let api = self.api.own::<Lease>();
            let Some(lease) = get(&api, &lease_name(namespace)).await? else { return Ok(()) };
            if list::<AppObject>(&self.api.within(namespace), None).await?.is_empty() {
                delete(&api, &lease.metadata).await?;
            }
            Ok::<_, Error>(())
        };
        if let Err(error) = unlocked.await {
            tracing::debug!(namespace, error = %error.chain(), "removing the Lease of a namespace failed");
        }
    }

    /// The Lease, held by the app's pair.
    fn owned(&self, lease: Lease, app: &App) -> Lease {
        let metadata = ObjectMeta {
            name: Some(lease_name(app.id.namespace.as_str())),
            labels: Some([(LEASE_LABEL.to_owned(), "namespace".to_owned())].into()),
            ..lease.metadata
        };
        let now = Some(MicroTime(calendar(self.clock.now())));
        let spec = LeaseSpec { holder_identity: Some(pair(app)), renew_time: now, ..LeaseSpec::default() };
        Lease { metadata, spec: Some(spec) }
    }

    /// Whether the pair may not have created its first app yet.
    fn is_new(&self, lease: &Lease) -> bool {
        let written = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
        let written = written.map(|time| Timestamp::from_millis(time.0.as_millisecond()));
        written.is_some_and(|written| self.clock.now() < written.after(NEW))
    }

    /// Whether an app of another pair is in the namespace.
    async fn is_used_by_others(&self, app: &App) -> Result<bool> {
        let apps: Vec<AppObject> = list(&self.api.within(app.id.namespace.as_str()), None).await?;
        let ours = [("project", app.project.as_str()), ("environment", app.environment.as_str())];
        let is_ours = |other: &AppObject| {
            ours.iter().all(|(field, ours)| other.spec.0.get(*field).is_some_and(|value| value == ours))
        };
        Ok(!apps.iter().all(is_ours))
    }
}

fn lease_name(namespace: &str) -> String {
    format!("rollhook-namespace-{namespace}")
}

fn pair(app: &App) -> String {
    format!("{}/{}", app.project, app.environment)
}

fn pair_of(lease: &Lease) -> Option<&String> {
    lease.spec.as_ref()?.holder_identity.as_ref()
}
