//! Apps that are leased to a replica of another namespace than ours: a command line whose context names another one than
//! the server's, or a second installation.
//!
//! Apps are shared by all, wherever in the cluster a replica runs; the Leases of replicas are listed in our own namespace
//! alone. The Lease of a foreign owner is read when an app of it has work, and again when its time seems to be over: it
//! counts by our own time since we last saw it change, as all do. An owner whose Lease we may not read counts as living: to
//! take its apps while it drives them would be worse than to leave them to a person, who is told.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use rollhook_core::{Error, Result, replica::ReplicaId};

use super::{
    KubernetesStore,
    api::get,
    app_record::AppRecord,
    heartbeat::{KEPT, SeenLease, lease_name},
};

/// The most Leases that are read for one search for work; the other owners are left alone until the next.
const READS: usize = 8;
/// How long an owner is left alone if its Lease may not be read, and if reading it failed.
const FORBIDDEN: Duration = Duration::from_secs(60);
const FAILED: Duration = Duration::from_secs(2);

/// The foreign owners that were looked at, by the namespace of their Lease.
#[derive(Default)]
pub(crate) struct ForeignOwners(Mutex<BTreeMap<(String, ReplicaId), Sight>>);

enum Sight {
    /// Its Lease.
    Seen(SeenLease),
    /// The owner counts as living until then.
    LeftAlone(Duration),
}

impl ForeignOwners {
    fn lives(&self, owner: &(String, ReplicaId), now: Duration) -> bool {
        match self.lock().get(owner) {
            Some(Sight::Seen(seen)) => seen.holder().as_ref() == Some(&owner.1) && seen.lives(now),
            Some(Sight::LeftAlone(until)) => now < *until,
            None => false,
        }
    }

    fn note(&self, owner: (String, ReplicaId), found: Result<Option<Lease>>, now: Duration) {
        let mut sights = self.lock();
        sights.retain(|_, sight| match sight {
            Sight::Seen(seen) => now < seen.changed() + KEPT,
            Sight::LeftAlone(until) => now < *until,
        });
        let before = match sights.remove(&owner) {
            Some(Sight::Seen(seen)) => Some(seen),
            Some(Sight::LeftAlone(_)) | None => None,
        };
        let sight = match found {
            Ok(Some(lease)) => Sight::Seen(SeenLease::after(before.as_ref(), lease, now)),
            Ok(None) => return,
            Err(Error::Denied { .. }) => Sight::LeftAlone(now + FORBIDDEN),
            Err(_) => Sight::LeftAlone(now + FAILED),
        };
        sights.insert(owner, sight);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, ReplicaId), Sight>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
                 replica is gone for good, kubectl patch apps.rollhook.dev NAME --namespace NAMESPACE --type merge \
                 --patch '{{\"status\":{{\"lease\":null}}}}'"
            ),
            Err(error) => tracing::debug!(app = %record.id(), theirs = namespace, error = %error.chain(), "reading a Lease failed"),
            Ok(_) => {}
        }
        self.foreign_owners.note(owner.clone(), found, self.clock.elapsed());
        self.foreign_owners.lives(&owner, self.clock.elapsed())
    }
}
