//! Owners whose Lease is in another namespace than ours: a command line whose context names another one than the server's,
//! or a second installation.
//!
//! Apps are everybody's, wherever in the cluster that somebody runs; Leases are watched in our own namespace alone. One
//! elsewhere is read when an app of its owner has work, and again when its time seems to be over. So it counts by our
//! own time since we last saw it change, as all do. An owner whose Lease we may not read counts as living: to take his
//! apps while he drives them would be worse than to leave them to a person, who is told.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rollhook_core::Error;

use super::{
    KubernetesStore,
    calls::get,
    crd::Owner,
    leases::{KEPT, lease_name, lives},
    mirror::SeenLease,
    version::version,
};

/// How many Leases elsewhere are read for one claim; owners beyond are left alone until the next.
pub(crate) const LOOKS: usize = 8;
/// How long an owner is left alone whose Lease may not be read, and one whose Lease could not be.
const FORBIDDEN: Duration = Duration::from_secs(60);
const FAILED: Duration = Duration::from_secs(2);

/// What was seen of them.
#[derive(Default)]
pub(crate) struct Elsewhere(Mutex<BTreeMap<Owner, Sight>>);

enum Sight {
    /// His Lease, and when it was last seen to change.
    Seen(SeenLease),
    /// He is left alone until then.
    Left(Duration),
}

impl Elsewhere {
    fn lives(&self, owner: &Owner, now: Duration) -> bool {
        match self.lock().get(owner) {
            Some(Sight::Seen(seen)) => lives(owner, Some(seen), now),
            Some(Sight::Left(until)) => now < *until,
            None => false,
        }
    }

    fn note(&self, owner: &Owner, seen: SeenLease) {
        let mut sights = self.lock();
        sights.retain(|_, sight| seen.changed < sight.time() + KEPT);
        let same = |sight: &Sight| matches!(sight, Sight::Seen(known) if version(&known.lease.metadata) == version(&seen.lease.metadata));
        if !sights.get(owner).is_some_and(same) {
            sights.insert(owner.clone(), Sight::Seen(seen));
        }
    }

    fn leave(&self, owner: &Owner, until: Duration) {
        self.lock().insert(owner.clone(), Sight::Left(until));
    }

    fn forget(&self, owner: &Owner) {
        self.lock().remove(owner);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Owner, Sight>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sight {
    fn time(&self) -> Duration {
        match self {
            Self::Seen(seen) => seen.changed,
            Self::Left(until) => *until,
        }
    }
}

impl KubernetesStore {
    /// The namespace of the owner's Lease, where that is not ours.
    pub(crate) fn elsewhere<'owner>(&self, owner: &'owner Owner) -> Option<&'owner str> {
        let namespace = owner.namespace.as_str();
        (!namespace.is_empty() && namespace != self.calls.namespace()).then_some(namespace)
    }

    /// Whether an owner lives, as far as his Lease was seen.
    pub(crate) fn owner_lives(&self, owner: &Owner) -> bool {
        let now = self.clock.elapsed();
        match self.elsewhere(owner) {
            Some(_) => self.elsewhere.lives(owner, now),
            None => lives(owner, self.mirror.lease(&lease_name(&owner.replica)).as_ref(), now),
        }
    }

    /// Leaves an owner alone for this claim.
    pub(crate) fn leave_alone(&self, owner: &Owner) {
        self.elsewhere.leave(owner, self.clock.elapsed() + FAILED);
    }

    /// Reads the Lease of an owner elsewhere; where that fails, he is left alone for a while.
    pub(crate) async fn look_elsewhere(&self, owner: &Owner, namespace: &str, app: &str) {
        let found = get(&self.calls.leases_in(namespace), &lease_name(&owner.replica)).await;
        let now = self.clock.elapsed();
        match found {
            Ok(Some(lease)) => self.elsewhere.note(owner, SeenLease::new(lease.into(), now)),
            Ok(None) => self.elsewhere.forget(owner),
            Err(Error::Denied { what, .. }) => {
                tracing::warn!(
                    app,
                    replica = owner.replica,
                    theirs = namespace,
                    ours = self.calls.namespace(),
                    error = what,
                    "an app with work belongs to a process of another namespace whose Lease may not be read, and is \
                     left to it; one installation per cluster is meant. Let this one read Leases (rollhook-server \
                     manifests prints the permissions); if that process is gone for good, kubectl patch \
                     apps.rollhook.dev NAME --namespace NAMESPACE --type merge --patch '{{\"status\":{{\"owner\":null}}}}'"
                );
                self.elsewhere.leave(owner, now + FORBIDDEN);
            }
            Err(error) => {
                tracing::debug!(app, theirs = namespace, error = %error.chain(), "a Lease elsewhere cannot be read");
                self.elsewhere.leave(owner, now + FAILED);
            }
        }
    }
}
