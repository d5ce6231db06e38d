//! Signs of life: one Lease per replica, in our own namespace.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    ResourceExt,
    api::{ObjectMeta, Preconditions},
};
use rollhook_core::{
    Result,
    ports::{Claim, Replica},
};
use sha2::{Digest as _, Sha256};

use super::{
    KubernetesStore,
    calls::{Written, create, delete, get, replace},
    crd::Owner,
    load::{ATTEMPTS, Depth, contended},
    mirror::SeenLease,
    version::version,
};

/// The label that tells our Leases from others, and the annotation that names the replica.
const KIND_LABEL: &str = "rollhook.dev/lease";
const REPLICA: &str = "rollhook.dev/replica";

/// How long a Lease is kept that ran out: of a pod that is gone, no process of its name comes back.
pub(crate) const KEPT: Duration = Duration::from_secs(3600);

impl KubernetesStore {
    /// Gives a sign of life, no more often than a third of its time asks for.
    pub(crate) async fn sign(&self, claim: &Claim) -> Result<()> {
        let name = lease_name(&claim.replica.name);
        let mut seen = self.mirror.lease(&name);
        let now = self.clock.elapsed();
        if seen.as_ref().is_some_and(|seen| stands(seen, claim) && now.saturating_sub(seen.changed) < claim.ttl / 3) {
            return Ok(());
        }
        for _ in 0..ATTEMPTS {
            let written = match &seen {
                Some(seen) => replace(&self.calls.leases(), &self.signed(Lease::clone(&seen.lease), claim)).await?,
                None => create(&self.calls.leases(), &self.signed(unsigned(&claim.replica.name), claim)).await?,
            };
            if let Written::Done(lease) = written {
                self.mirror.note_lease(lease);
                self.sweep().await;
                return Ok(());
            }
            self.look_at_lease(&name).await?;
            seen = self.mirror.lease(&name);
        }
        Err(contended())
    }

    fn signed(&self, mut lease: Lease, claim: &Claim) -> Lease {
        let spec = lease.spec.get_or_insert_default();
        let holder = Some(claim.replica.incarnation.to_string());
        let changes = i32::from(spec.holder_identity != holder);
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default().saturating_add(changes));
        spec.holder_identity = holder;
        spec.lease_duration_seconds = Some(seconds(claim.ttl));
        let now = jiff::Timestamp::from_millisecond(self.clock.now().as_millis()).unwrap_or(jiff::Timestamp::MAX);
        spec.renew_time = Some(MicroTime(now));
        lease
    }

    /// Gives up what this incarnation has; not what a later one of its name does.
    pub(crate) async fn farewell(&self, replica: &Replica) -> Result<()> {
        let name = lease_name(&replica.name);
        for _ in 0..ATTEMPTS {
            let Some(lease) = self.look_at_lease(&name).await?.filter(|lease| holds(lease, replica)) else {
                return Ok(());
            };
            if matches!(self.delete_lease(&lease).await?, Written::Done(()) | Written::Gone) {
                return Ok(());
            }
        }
        Err(contended())
    }

    /// Reads a Lease.
    pub(crate) async fn look_at_lease(&self, name: &str) -> Result<Option<Lease>> {
        let found = get(&self.calls.leases(), name).await?;
        match &found {
            Some(lease) => drop(self.mirror.note_lease(lease.clone())),
            None => self.mirror.forget_lease(name, u64::MAX),
        }
        Ok(found)
    }

    async fn delete_lease(&self, lease: &Lease) -> Result<Written<()>> {
        let meta = &lease.metadata;
        let guard = Preconditions { uid: meta.uid.clone(), resource_version: meta.resource_version.clone() };
        let name = lease.name_any();
        let deleted = delete(&self.calls.leases(), &name, guard).await?;
        if !matches!(deleted, Written::Conflict) {
            self.mirror.forget_lease(&name, version(meta));
        }
        Ok(deleted)
    }

    /// Removes the Leases of processes that have long been gone.
    async fn sweep(&self) {
        self.mirror.sweep_keys();
        let now = self.clock.elapsed();
        for seen in self.mirror.leases().into_iter().filter(|seen| now >= seen.changed + duration(seen) + KEPT) {
            if let Err(error) = self.delete_lease(&seen.lease).await {
                tracing::debug!(error = %error.chain(), "an old Lease could not be removed");
            }
        }
    }

    /// Whether the owner is its replica's present incarnation.
    pub(crate) async fn holds_lease(&self, owner: &Owner, depth: Depth) -> Result<bool> {
        let name = lease_name(&owner.replica);
        let holds = |lease: &Lease| is_of(lease, owner);
        if let Some(namespace) = self.elsewhere(owner) {
            return Ok(get(&self.calls.leases_in(namespace), &name).await?.is_some_and(|lease| holds(&lease)));
        }
        if self.mirror.lease(&name).is_some_and(|seen| holds(&seen.lease)) {
            return Ok(true);
        }
        if depth == Depth::Seen {
            return Ok(false);
        }
        Ok(self.look_at_lease(&name).await?.is_some_and(|lease| holds(&lease)))
    }
}

/// Whether an owner lives, as far as its Lease was seen.
pub(crate) fn lives(owner: &Owner, lease: Option<&SeenLease>, now: Duration) -> bool {
    lease.is_some_and(|seen| is_of(&seen.lease, owner) && now < seen.changed + duration(seen))
}

/// Whether it is the Lease by which the owner took the app.
pub(crate) fn is_of(lease: &Lease, owner: &Owner) -> bool {
    let same = owner.lease.is_empty() || lease.metadata.uid.as_ref() == Some(&owner.lease);
    same && holder(lease) == Some(owner.incarnation.as_str())
}

/// The name of a replica's Lease: a replica may be called what no object can.
pub(crate) fn lease_name(replica: &str) -> String {
    let hash = Sha256::digest(replica.as_bytes());
    let digits: String = hash.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    format!("rollhook-replica-{digits}")
}

fn unsigned(replica: &str) -> Lease {
    let (kind, value) = super::calls::REPLICA_SELECTOR.split_once('=').unwrap_or((KIND_LABEL, "replica"));
    let metadata = ObjectMeta {
        name: Some(lease_name(replica)),
        labels: Some([(kind.to_owned(), value.to_owned())].into()),
        annotations: Some([(REPLICA.to_owned(), replica.to_owned())].into()),
        ..ObjectMeta::default()
    };
    Lease { metadata, spec: Some(LeaseSpec::default()) }
}

fn stands(seen: &SeenLease, claim: &Claim) -> bool {
    let spec = seen.lease.spec.as_ref();
    holds(&seen.lease, &claim.replica) && spec.and_then(|spec| spec.lease_duration_seconds) == Some(seconds(claim.ttl))
}

fn holds(lease: &Lease, replica: &Replica) -> bool {
    holder(lease) == Some(replica.incarnation.to_string().as_str())
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref()
}

fn duration(seen: &SeenLease) -> Duration {
    let seconds = seen.lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

/// A Lease counts in whole seconds, and none is shorter than one.
fn seconds(ttl: Duration) -> i32 {
    i32::try_from(ttl.as_millis().div_ceil(1000)).unwrap_or(i32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn seen(holder: &str, changed: u64) -> SeenLease {
        let mut lease = unsigned("pod-1");
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(holder.to_owned());
        spec.lease_duration_seconds = Some(15);
        SeenLease::new(Arc::new(lease), Duration::from_secs(changed))
    }

    #[test]
    fn an_owner_lives_while_its_own_lease_is_seen_to_change() {
        let owner = Owner { replica: "pod-1".to_owned(), incarnation: "7".to_owned(), ..Owner::default() };
        let at = |seconds| Duration::from_secs(seconds);
        assert!(lives(&owner, Some(&seen("7", 100)), at(114)));
        assert!(!lives(&owner, Some(&seen("7", 100)), at(115)), "its time is over");
        assert!(!lives(&owner, Some(&seen("8", 100)), at(101)), "another process of its name lives");
        assert!(!lives(&owner, None, at(101)), "it has said farewell");
    }

    #[test]
    fn a_lease_is_named_after_any_name() {
        let names = ["pod-1", "Pod 1", "", "pod-1.example.com/7"].map(lease_name);
        for name in &names {
            assert!(name.len() <= 63 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
        }
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
    }
}
