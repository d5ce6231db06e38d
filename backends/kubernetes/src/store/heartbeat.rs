//! Heartbeats: one Lease per replica, in our own namespace.
//!
//! A replica lives for as long as its Lease is seen to change, by the observer's own time. So the clocks of replicas
//! need not agree; and a replica that has just started counts each Lease as if it had changed then.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{ResourceExt, api::ObjectMeta};
use rollhook_core::{Result, ports::Heartbeat, replica::ReplicaId};
use sha2::{Digest as _, Sha256};

use super::{
    KubernetesStore,
    api::{Written, check_served, create, delete, list, replace},
    app_record::AppRecord,
    clock::calendar,
    crd::AppObject,
};
use crate::{error::contended, lock};

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
struct SeenLease {
    lease: Lease,
    changed: Duration,
}

impl SeenLease {
    fn lives(&self, now: Duration) -> bool {
        now <= self.changed + duration(&self.lease)
    }
}

impl Leases {
    /// Notes the Leases that there are.
    fn note(&self, leases: Vec<Lease>, now: Duration) {
        let mut seen = self.lock();
        let before = std::mem::take(&mut seen.leases);
        let version = |lease: &Lease| lease.metadata.resource_version.clone();
        seen.listed = Some(now);
        seen.leases.extend(leases.into_iter().map(|lease| {
            let same = before.get(&lease.name_any()).filter(|before| version(&before.lease) == version(&lease));
            (lease.name_any(), SeenLease { changed: same.map_or(now, |same| same.changed), lease })
        }));
    }

    fn get(&self, replica: &str) -> Option<SeenLease> {
        self.lock().leases.get(&lease_name(replica)).cloned()
    }

    fn lives(&self, replica: &ReplicaId, now: Duration) -> bool {
        self.get(&replica.name).is_some_and(|seen| seen.lives(now) && holder(&seen.lease).as_ref() == Some(replica))
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        lock(&self.0)
    }
}

impl KubernetesStore {
    pub(crate) async fn beat(&self, replica: &ReplicaId, ttl: Duration) -> Result<Heartbeat> {
        let now = self.clock.elapsed();
        let listed = self.leases.lock().listed;
        if listed.is_none_or(|listed| now.saturating_sub(listed) >= ttl / LOOKS) || self.is_in_doubt() {
            self.list_leases().await?;
        }
        match ttl.is_zero() {
            true => self.release(replica).await?,
            false => self.renew(replica, ttl).await?,
        }
        let now = self.clock.elapsed();
        let leases: Vec<SeenLease> = self.leases.lock().leases.values().cloned().collect();
        self.reap(&leases, now).await;
        let alive = leases.iter().filter(|seen| seen.lives(now)).filter_map(|seen| holder(&seen.lease)).collect();
        Ok(Heartbeat { now: self.clock.now(), alive })
    }

    /// Whether an app with work is leased to a replica that is not known to live: it may have started a moment ago.
    fn is_in_doubt(&self) -> bool {
        let now = self.clock.elapsed();
        let is_dead = |record: &AppRecord| {
            let lease = record.state.lease.as_ref().filter(|_| self.foreign_namespace(record).is_none());
            record.state.queued_at.is_some() && lease.is_some_and(|lease| !self.leases.lives(lease, now))
        };
        !self.cache.pick(is_dead).0.is_empty()
    }

    /// Lists the Leases of replicas.
    pub(crate) async fn list_leases(&self) -> Result<()> {
        let leases = list(&self.api.own(), Some(&format!("{LEASE_LABEL}={REPLICA}"))).await?;
        self.leases.note(leases, self.clock.elapsed());
        Ok(())
    }

    /// Renews the replica's Lease, no more often than each third of its time; fails while the cluster does not know the
    /// custom resources, so that no commit could be written.
    async fn renew(&self, replica: &ReplicaId, ttl: Duration) -> Result<()> {
        let api = self.api.own();
        let is_due = |now| self.leases.get(&replica.name).is_none_or(|seen| !is_fresh(&seen, replica, ttl, now));
        if is_due(self.clock.elapsed()) {
            check_served(&self.api.all::<AppObject>()).await?;
        }
        for _ in 0..ATTEMPTS {
            let now = self.clock.elapsed();
            let written = match self.leases.get(&replica.name) {
                Some(seen) if is_fresh(&seen, replica, ttl, now) => return Ok(()),
                Some(seen) => replace(&api, &self.renewed(seen.lease, replica, ttl)).await?,
                None => create(&api, &self.renewed(new_lease(&replica.name), replica, ttl)).await?,
            };
            if let Written::Done(lease) = written {
                self.leases.lock().leases.insert(lease.name_any(), SeenLease { lease, changed: now });
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
        spec.lease_duration_seconds = i32::try_from(seconds(ttl)).ok();
        spec.renew_time = Some(MicroTime(calendar(self.clock.now())));
        lease
    }

    /// Removes the Lease of this boot of the replica; that of a later boot of its name stays.
    async fn release(&self, replica: &ReplicaId) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let own = self.leases.get(&replica.name).filter(|seen| holder(&seen.lease).as_ref() == Some(replica));
            let Some(own) = own else { return Ok(()) };
            if !matches!(delete(&self.api.own::<Lease>(), &own.lease.metadata).await?, Written::Conflict) {
                self.leases.lock().leases.remove(&lease_name(&replica.name));
                return Ok(());
            }
            self.list_leases().await?;
        }
        Err(contended())
    }

    /// Removes the Leases of replicas that died long ago.
    async fn reap(&self, leases: &[SeenLease], now: Duration) {
        for seen in leases.iter().filter(|seen| now >= seen.changed + duration(&seen.lease) + KEPT) {
            if let Err(error) = delete(&self.api.own::<Lease>(), &seen.lease.metadata).await {
                tracing::debug!(error = %error.chain(), "removing an old Lease failed");
            }
        }
    }
}

/// The replica that holds a Lease.
pub(crate) fn holder(lease: &Lease) -> Option<ReplicaId> {
    let boot = lease.spec.as_ref()?.holder_identity.as_ref()?.parse().ok()?;
    Some(ReplicaId { name: lease.annotations().get(NAME)?.clone(), boot })
}

/// How long a Lease counts.
pub(crate) fn duration(lease: &Lease) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

/// The name of a replica's Lease: a replica may have a name that no object can have.
pub(crate) fn lease_name(replica: &str) -> String {
    let hash = Sha256::digest(replica.as_bytes());
    let digits = rollhook_core::text::hex(&hash[..10]);
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
    let is_same = holder(&seen.lease).as_ref() == Some(replica) && duration(&seen.lease).as_secs() == seconds(ttl);
    is_same && now.saturating_sub(seen.changed) < ttl / 3
}

/// A Lease counts in whole seconds.
fn seconds(ttl: Duration) -> u64 {
    ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(version: &str) -> Lease {
        let mut lease = new_lease("pod-1");
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some("7".to_owned());
        spec.lease_duration_seconds = Some(15);
        lease.metadata.resource_version = Some(version.to_owned());
        lease
    }

    #[test]
    fn replica_lives_while_its_lease_is_seen_to_change() {
        let (leases, at) = (Leases::default(), Duration::from_secs);
        let replica = |boot| ReplicaId { name: "pod-1".to_owned(), boot };
        leases.note(vec![lease("1")], at(100));
        leases.note(vec![lease("1")], at(110));
        assert!(leases.lives(&replica(7), at(115)) && !leases.lives(&replica(7), at(116)));
        leases.note(vec![lease("2")], at(120));
        assert!(leases.lives(&replica(7), at(134)) && !leases.lives(&replica(8), at(121)));
        leases.note(Vec::new(), at(121));
        assert!(!leases.lives(&replica(7), at(121)));
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
