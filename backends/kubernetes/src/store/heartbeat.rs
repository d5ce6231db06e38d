//! Heartbeats: one Lease per replica, in our own namespace.
//!
//! A replica lives for as long as its Lease is seen to change, by the observer's own time. So the clocks of replicas need
//! not agree; and a replica that has just started counts each Lease as if it had changed then.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Api, ResourceExt, api::ObjectMeta};
use rollhook_core::{Result, ports::Heartbeat, replica::ReplicaId};
use sha2::{Digest as _, Sha256};

use super::{
    KubernetesStore,
    api::{Written, create, delete, list, replace},
    app_record::AppRecord,
    error::contended,
};

/// The label that tells what a Lease of ours is for, and its value for replicas.
pub(crate) const LEASE_LABEL: &str = "rollhook.dev/lease";
const REPLICA: &str = "replica";
/// The annotation that names the replica.
const NAME: &str = "rollhook.dev/replica";

/// How often the Leases are listed in the time of one.
const LOOKS: u32 = 6;
/// How long the Lease of a replica that died is kept: of a pod that is gone, no process of its name comes back.
pub(crate) const KEPT: Duration = Duration::from_secs(3600);
/// The number of attempts to write a Lease that others write at the same time.
const ATTEMPTS: usize = 24;

/// The Leases of replicas, as they were seen last.
#[derive(Default)]
pub(crate) struct Leases(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    leases: BTreeMap<String, SeenLease>,
    /// When they were listed last.
    listed: Option<Duration>,
}

/// A replica's Lease, and when it was last seen to change.
#[derive(Clone, Debug)]
pub(crate) struct SeenLease {
    lease: Lease,
    changed: Duration,
}

impl SeenLease {
    /// The Lease as it is seen at this time, if it was seen like this before.
    pub(crate) fn after(before: Option<&Self>, lease: Lease, now: Duration) -> Self {
        let same = before.filter(|before| before.lease.metadata.resource_version == lease.metadata.resource_version);
        Self { lease, changed: same.map_or(now, |same| same.changed) }
    }

    /// The replica that holds the Lease.
    pub(crate) fn holder(&self) -> Option<ReplicaId> {
        let boot = self.lease.spec.as_ref()?.holder_identity.as_ref()?.parse().ok()?;
        Some(ReplicaId { name: self.lease.annotations().get(NAME)?.clone(), boot })
    }

    pub(crate) fn lives(&self, now: Duration) -> bool {
        now < self.changed + self.ttl()
    }

    /// When the Lease was last seen to change.
    pub(crate) fn changed(&self) -> Duration {
        self.changed
    }

    fn ttl(&self) -> Duration {
        let seconds = self.lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
        Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
    }
}

impl Leases {
    /// Notes the Leases that there are.
    fn note(&self, leases: Vec<Lease>, now: Duration) {
        let mut seen = self.lock();
        seen.listed = Some(now);
        let before = std::mem::take(&mut seen.leases);
        seen.leases.extend(leases.into_iter().map(|lease| {
            let name = lease.name_any();
            let lease = SeenLease::after(before.get(&name), lease, now);
            (name, lease)
        }));
    }

    /// Whether the last list is at least this old.
    fn is_older(&self, age: Duration, now: Duration) -> bool {
        self.lock().listed.is_none_or(|listed| now.saturating_sub(listed) >= age)
    }

    fn lives(&self, replica: &ReplicaId, now: Duration) -> bool {
        let seen = self.get(&lease_name(&replica.name));
        seen.is_some_and(|seen| seen.lives(now) && seen.holder().as_ref() == Some(replica))
    }

    fn get(&self, name: &str) -> Option<SeenLease> {
        self.lock().leases.get(name).cloned()
    }

    fn set(&self, lease: Lease, now: Duration) {
        self.lock().leases.insert(lease.name_any(), SeenLease { lease, changed: now });
    }

    fn remove(&self, name: &str) {
        self.lock().leases.remove(name);
    }

    fn all(&self) -> Vec<SeenLease> {
        self.lock().leases.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KubernetesStore {
    pub(crate) async fn beat(&self, replica: &ReplicaId, ttl: Duration) -> Result<Heartbeat> {
        let api = self.api.own::<Lease>();
        if self.leases.is_older(ttl / LOOKS, self.clock.elapsed()) || self.is_in_doubt() {
            self.list_leases().await?;
        }
        match ttl.is_zero() {
            true => self.release(&api, replica).await?,
            false => self.renew(&api, replica, ttl).await?,
        }
        let now = self.clock.elapsed();
        let leases = self.leases.all();
        self.reap(&api, &leases, now).await;
        let alive = leases.iter().filter(|lease| lease.lives(now)).filter_map(SeenLease::holder).collect();
        Ok(Heartbeat { now: self.clock.now(), alive })
    }

    /// Whether an app with work is leased to a replica that is not known to live: it may have started a moment ago.
    fn is_in_doubt(&self) -> bool {
        let now = self.clock.elapsed();
        let is_dead = |record: &AppRecord| {
            let lease = record.state.lease.as_ref().filter(|_| self.foreign_namespace(record).is_none());
            record.state.queued_at.is_some() && lease.is_some_and(|lease| !self.leases.lives(lease, now))
        };
        !self.mirror.pick(is_dead).is_empty()
    }

    /// Lists the Leases of replicas.
    pub(crate) async fn list_leases(&self) -> Result<()> {
        let leases = list(&self.api.own(), Some(&format!("{LEASE_LABEL}={REPLICA}"))).await?;
        self.leases.note(leases, self.clock.elapsed());
        Ok(())
    }

    /// Renews the replica's Lease, no more often than each third of its time.
    async fn renew(&self, api: &Api<Lease>, replica: &ReplicaId, ttl: Duration) -> Result<()> {
        let name = lease_name(&replica.name);
        for _ in 0..ATTEMPTS {
            let now = self.clock.elapsed();
            let written = match self.leases.get(&name) {
                Some(seen) if is_fresh(&seen, replica, ttl, now) => return Ok(()),
                Some(seen) => replace(api, &self.renewed(seen.lease, replica, ttl)).await?,
                None => create(api, &self.renewed(new_lease(&replica.name), replica, ttl)).await?,
            };
            if let Written::Done(lease) = written {
                self.leases.set(lease, now);
                return Ok(());
            }
            self.list_leases().await?;
        }
        Err(contended())
    }

    fn renewed(&self, mut lease: Lease, replica: &ReplicaId, ttl: Duration) -> Lease {
        let spec = lease.spec.get_or_insert_default();
        let holder = Some(replica.boot.to_string());
        let changes = i32::from(spec.holder_identity != holder);
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default().saturating_add(changes));
        spec.holder_identity = holder;
        spec.lease_duration_seconds = Some(seconds(ttl));
        let now = jiff::Timestamp::from_millisecond(self.clock.now().as_millis()).unwrap_or_default();
        spec.renew_time = Some(MicroTime(now));
        lease
    }

    /// Removes the Lease of this boot of the replica; that of a later boot of its name stays.
    async fn release(&self, api: &Api<Lease>, replica: &ReplicaId) -> Result<()> {
        let name = lease_name(&replica.name);
        for _ in 0..ATTEMPTS {
            let own = self.leases.get(&name).filter(|seen| seen.holder().as_ref() == Some(replica));
            let Some(own) = own else { return Ok(()) };
            if !matches!(delete(api, &own.lease.metadata).await?, Written::Conflict) {
                self.leases.remove(&name);
                return Ok(());
            }
            self.list_leases().await?;
        }
        Err(contended())
    }

    /// Removes the Leases of replicas that died long ago.
    async fn reap(&self, api: &Api<Lease>, leases: &[SeenLease], now: Duration) {
        for seen in leases.iter().filter(|seen| now >= seen.changed + seen.ttl() + KEPT) {
            if let Err(error) = delete(api, &seen.lease.metadata).await {
                tracing::debug!(error = %error.chain(), "removing an old Lease failed");
            }
        }
    }
}

/// The name of a replica's Lease: a replica may have a name that no object can have.
pub(crate) fn lease_name(replica: &str) -> String {
    let hash = Sha256::digest(replica.as_bytes());
    let digits: String = hash.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    format!("rollhook-replica-{digits}")
}

fn new_lease(replica: &str) -> Lease {
    let metadata = ObjectMeta {
        name: Some(lease_name(replica)),
        labels: Some([(LEASE_LABEL.to_owned(), REPLICA.to_owned())].into()),
        annotations: Some([(NAME.to_owned(), replica.to_owned())].into()),
        ..ObjectMeta::default()
    };
    Lease { metadata, spec: Some(LeaseSpec::default()) }
}

fn is_fresh(seen: &SeenLease, replica: &ReplicaId, ttl: Duration, now: Duration) -> bool {
    let same_ttl = seen.lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds) == Some(seconds(ttl));
    same_ttl && seen.holder().as_ref() == Some(replica) && now.saturating_sub(seen.changed) < ttl / 3
}

/// A Lease counts in whole seconds, at least one.
fn seconds(ttl: Duration) -> i32 {
    i32::try_from(ttl.as_millis().div_ceil(1000)).unwrap_or(i32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(boot: u64, changed: u64) -> SeenLease {
        let mut lease = new_lease("pod-1");
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(boot.to_string());
        spec.lease_duration_seconds = Some(15);
        SeenLease { lease, changed: Duration::from_secs(changed) }
    }

    #[test]
    fn replica_lives_while_its_lease_is_seen_to_change() {
        let at = Duration::from_secs;
        assert!(seen(7, 100).lives(at(114)));
        assert!(!seen(7, 100).lives(at(115)));
        let unchanged = SeenLease::after(Some(&seen(7, 100)), seen(7, 0).lease, at(110));
        assert_eq!(unchanged.changed, at(100));
        let mut lease = seen(7, 0).lease;
        lease.metadata.resource_version = Some("2".to_owned());
        assert_eq!(SeenLease::after(Some(&seen(7, 100)), lease, at(110)).changed, at(110));
        assert_eq!(seen(7, 0).holder(), Some(ReplicaId { name: "pod-1".to_owned(), boot: 7 }));
    }

    #[test]
    fn lease_has_a_valid_name_whatever_its_replica_is_called() {
        let names = ["pod-1", "Pod 1", "", "pod-1.example.com/7"].map(lease_name);
        for name in &names {
            assert!(name.len() <= 63 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
        }
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
    }
}
