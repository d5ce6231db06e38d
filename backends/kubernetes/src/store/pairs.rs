//! One namespace belongs to one (project, environment) pair for as long as an app is in it.
//!
//! A Lease per namespace, in our own, names the pair. Whoever registers an app writes to it once more after the App is
//! there; whoever removes it does so only as he read it before he saw that the namespace is empty. So either that second
//! write fails, and the App is withdrawn, or the removal does.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{ObjectMeta, Preconditions};
use rollhook_core::{Error, Result, app::App};

use super::{
    KubernetesStore,
    calls::{Written, create, delete, get, list, replace},
    load::{ATTEMPTS, contended},
};

/// The namespace's pair, as it was read.
pub(crate) struct Pair(Lease);

impl KubernetesStore {
    /// Has the namespace belong to the app's pair, or says that it is another's.
    pub(crate) async fn claim_pair(&self, app: &App) -> Result<Pair> {
        let api = self.calls.leases();
        let namespace = app.id.namespace.as_str();
        for _ in 0..ATTEMPTS {
            match get(&api, &lease_name(namespace)).await? {
                Some(lease) if pair_of(&lease) == Some(&pair(app)) => return Ok(Pair(lease)),
                Some(lease) => {
                    if !self.is_empty(namespace).await? {
                        return Err(Error::Conflict("namespace"));
                    }
                    self.delete_pair(&lease, namespace).await?;
                }
                None => {
                    self.check_neighbours(app).await?;
                    if let Written::Done(lease) = create(&api, &new_lease(app)).await? {
                        return Ok(Pair(lease));
                    }
                }
            }
        }
        Err(contended())
    }

    /// Whether the namespace still belongs to the app's pair, now that its App is there.
    pub(crate) async fn confirm_pair(&self, app: &App, claimed: Pair) -> Result<bool> {
        let api = self.calls.leases();
        let mut lease = claimed.0;
        let uid = lease.metadata.uid.clone();
        for _ in 0..ATTEMPTS {
            let spec = lease.spec.get_or_insert_default();
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default().saturating_add(1));
            match replace(&api, &lease).await? {
                Written::Done(_) => return Ok(true),
                Written::Gone => return Ok(false),
                Written::Conflict => {}
            }
            match get(&api, &lease_name(app.id.namespace.as_str())).await? {
                Some(found) if found.metadata.uid == uid && pair_of(&found) == Some(&pair(app)) => lease = found,
                Some(_) | None => return Ok(false),
            }
        }
        Err(contended())
    }

    /// Leaves the namespace to any pair, where no app is in it any more.
    pub(crate) async fn release_pair(&self, namespace: &str) -> Result<()> {
        let Some(lease) = get(&self.calls.leases(), &lease_name(namespace)).await? else { return Ok(()) };
        if self.is_empty(namespace).await? {
            self.delete_pair(&lease, namespace).await?;
        }
        Ok(())
    }

    async fn delete_pair(&self, lease: &Lease, namespace: &str) -> Result<()> {
        let meta = &lease.metadata;
        let guard = Preconditions { uid: meta.uid.clone(), resource_version: meta.resource_version.clone() };
        delete(&self.calls.leases(), &lease_name(namespace), guard).await.map(drop)
    }

    async fn is_empty(&self, namespace: &str) -> Result<bool> {
        Ok(list(&self.calls.apps(namespace), None).await?.is_empty())
    }

    /// Where the Lease is gone, by hand or with our namespace, the apps themselves say whose the namespace is.
    async fn check_neighbours(&self, app: &App) -> Result<()> {
        let (project, environment) = (app.project.as_str(), app.environment.as_str());
        let apps = list(&self.calls.apps(app.id.namespace.as_str()), None).await?;
        let foreign = apps.iter().any(|other| other.spec.project != project || other.spec.environment != environment);
        if foreign { Err(Error::Conflict("namespace")) } else { Ok(()) }
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

fn new_lease(app: &App) -> Lease {
    let metadata = ObjectMeta {
        name: Some(lease_name(app.id.namespace.as_str())),
        labels: Some([("rollhook.dev/lease".to_owned(), "namespace".to_owned())].into()),
        ..ObjectMeta::default()
    };
    Lease { metadata, spec: Some(LeaseSpec { holder_identity: Some(pair(app)), ..LeaseSpec::default() }) }
}
