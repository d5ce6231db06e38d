//! One namespace belongs to one (project, environment) pair for as long as an app is in it.
//!
//! A Lease per namespace, in our own, names the pair. A registration writes to the Lease once more after the `App` is
//! there; another pair takes the Lease over only as it was read before the namespace was seen to be empty. So either that
//! second write fails, and the `App` is withdrawn, or the other pair's does.

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
    crd::AppObject,
    error::contended,
    heartbeat::LEASE_LABEL,
};

/// How long a pair has to create its first app.
const NEW: Duration = Duration::from_secs(10);
/// The number of attempts to write a Lease that others write at the same time.
const ATTEMPTS: usize = 24;

impl KubernetesStore {
    /// Gives the namespace to the app's pair. Returns the Lease as it was read.
    pub(crate) async fn lock_namespace(&self, app: &App) -> Result<Lease> {
        let api = self.api.own::<Lease>();
        let namespace = app.id.namespace.as_str();
        for _ in 0..ATTEMPTS {
            let found: Option<Lease> = get(&api, &lease_name(namespace)).await?;
            if let Some(lease) = &found
                && pair_of(lease) == Some(&pair(app))
            {
                return Ok(lease.clone());
            }
            if found.as_ref().is_some_and(|lease| self.is_new(lease)) || self.is_used_by_others(app).await? {
                return Err(Error::Conflict(Entity::Namespace));
            }
            let written = match found {
                Some(lease) => replace(&api, &self.owned(lease, app)).await?,
                None => create(&api, &self.owned(new_lease(namespace), app)).await?,
            };
            if let Written::Done(lease) = written {
                return Ok(lease);
            }
        }
        Err(contended())
    }

    /// Confirms that the namespace still belongs to the app's pair, now that its `App` is there.
    pub(crate) async fn confirm_lock(&self, app: &App, lease: Lease) -> Result<()> {
        let api = self.api.own::<Lease>();
        let namespace = app.id.namespace.as_str();
        let mut found = Some(lease);
        for _ in 0..ATTEMPTS {
            let written = match found {
                Some(mut lease) => {
                    let spec = lease.spec.get_or_insert_default();
                    spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default().saturating_add(1));
                    replace(&api, &lease).await?
                }
                None => create(&api, &self.owned(new_lease(namespace), app)).await?,
            };
            if let Written::Done(_) = written {
                return Ok(());
            }
            found = get(&api, &lease_name(namespace)).await?;
            if found.as_ref().is_some_and(|lease| pair_of(lease) != Some(&pair(app))) {
                return Err(Error::Conflict(Entity::Namespace));
            }
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

    fn owned(&self, mut lease: Lease, app: &App) -> Lease {
        let spec = lease.spec.get_or_insert_default();
        let now = jiff::Timestamp::from_millisecond(self.clock.now().as_millis()).unwrap_or_default();
        (spec.holder_identity, spec.renew_time) = (Some(pair(app)), Some(MicroTime(now)));
        lease
    }

    /// Whether the pair may not have created its first app yet.
    fn is_new(&self, lease: &Lease) -> bool {
        let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
        let renewed = renewed.map(|time| Timestamp::from_millis(time.0.as_millisecond()));
        renewed.is_some_and(|renewed| self.clock.now() < renewed.after(NEW))
    }

    /// Whether an app of another pair is in the namespace. Without a Lease, which may have been removed by hand, the apps
    /// themselves tell.
    async fn is_used_by_others(&self, app: &App) -> Result<bool> {
        let apps: Vec<AppObject> = list(&self.api.within(app.id.namespace.as_str()), None).await?;
        let is_same =
            |field: &str, value: &str, other: &AppObject| other.spec.0.get(field).is_some_and(|stored| stored == value);
        Ok(apps.iter().any(|other| {
            !is_same("project", app.project.as_str(), other) || !is_same("environment", app.environment.as_str(), other)
        }))
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

fn new_lease(namespace: &str) -> Lease {
    let metadata = ObjectMeta {
        name: Some(lease_name(namespace)),
        labels: Some([(LEASE_LABEL.to_owned(), "namespace".to_owned())].into()),
        ..ObjectMeta::default()
    };
    Lease { metadata, spec: Some(LeaseSpec::default()) }
}
