//! Apps that are leased to a replica of another namespace than ours: a command line whose context names another one
//! than the server's, or a second installation.
//!
//! Apps are shared by all, wherever in the cluster a replica runs; the Leases of replicas are listed in our own
//! namespace alone. The Lease of a foreign owner is read when an app of it has work, and again when its time seems to
//! be over: it counts by our own time since we last saw it change, as all do. An owner whose Lease we may not read
//! counts as living: to take its apps while it drives them would be worse than to leave them to a person, who is told.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use rollhook_core::{Error, Result, replica::ReplicaId};

use super::{
    KubernetesStore,
    api::get,
    app_record::AppRecord,
    heartbeat::{KEPT, duration, holder, lease_name},
};
use crate::lock;

/// The most Leases that are read for one search for work; the other owners are left alone until the next.
const READS: usize = 8;
/// How long an owner is left alone if its Lease may not be read, and if reading it failed.
const FORBIDDEN: Duration = Duration::from_secs(60);
const FAILED: Duration = Duration::from_secs(2);

/// The foreign owners that were looked at, by the namespace of their Lease.
#[derive(Default)]
pub(crate) struct ForeignOwners(Mutex<BTreeMap<(String, ReplicaId), Sight>>);

struct Sight {
    /// The version of the Lease, if it could be read.
    version: Option<String>,
    /// Until when the owner counts as living.
    until: Duration,
}

impl ForeignOwners {
    fn lives(&self, owner: &(String, ReplicaId), now: Duration) -> bool {
        lock(&self.0).get(owner).is_some_and(|sight| now < sight.until)
    }

    /// Notes the owner's Lease as it was read.
    fn note(&self, owner: (String, ReplicaId), found: Result<Option<Lease>>, now: Duration) {
        let mut sights = lock(&self.0);
        sights.retain(|_, sight| now < sight.until + KEPT);
        let (version, until) = match found {
            Ok(Some(lease)) if holder(&lease).as_ref() == Some(&owner.1) => {
                let until = now + duration(&lease);
                (lease.metadata.resource_version, until)
            }
            Ok(_) => (None, now),
            Err(Error::Denied { .. }) => (None, now + FORBIDDEN),
            Err(_) => (None, now + FAILED),
        };
        let seen = sights.get(&owner).is_some_and(|sight| version.is_some() && sight.version == version);
        if !seen {
            sights.insert(owner, Sight { version, until });
        }
    }
}

impl KubernetesStore {
    /// The namespace of the Lease of the app's owner, if that is not ours.
    pub(crate) fn foreign_namespace<'record>(&self, record: &'record AppRecord) -> Option<&'record str> {
        record.kept.lease_namespace.as_deref().filter(|namespace| *namespace != self.api.namespace())
    }

    /// Whether the app is leased to a living replica of another namespace. `reads` counts the Leases that were read.
    pub(crate) async fn foreign_owner_lives(&self, record: &AppRecord, reads: &mut usize) -> bool {
        let Some((lease, namespace)) = record.state.lease.as_ref().zip(self.foreign_namespace(record)) else {
            return false;
        };
        let owner = (namespace.to_owned(), lease.clone());
        if self.foreign_owners.lives(&owner, self.clock.elapsed()) || *reads == READS {
            return true;
        }
        *reads += 1;
        let found = get(&self.api.within::<Lease>(namespace), &lease_name(&lease.name)).await;
        match &found {
            Err(Error::Denied { what, .. }) => tracing::warn!(
                app = %record.id(),
                replica = lease.name,
                theirs = namespace,
                ours = self.api.namespace(),
                error = what,
                "leaving an app to a replica of another namespace, whose Lease may not be read; one installation per \
                 cluster is meant. Let this one read Leases (rollhook-server manifests prints the permissions); if that \
                 replica is gone for good, kubectl patch rollhookapps.rollhook.dev NAME --namespace NAMESPACE --type merge \
                 --patch '{{\"status\":{{\"lease\":null}}}}'"
            ),
            Err(error) => {
                tracing::debug!(app = %record.id(), theirs = namespace, error = %error.chain(), "reading a Lease failed")
            }
            Ok(_) => {}
        }
        self.foreign_owners.note(owner.clone(), found, self.clock.elapsed());
        self.foreign_owners.lives(&owner, self.clock.elapsed())
    }
}
