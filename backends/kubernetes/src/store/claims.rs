//! Who drives which app: found in the mirror, taken by replacing the App.
//!
//! One installation per cluster is meant, whose replicas give their signs of life in one namespace. A process whose
//! connection has another namespace, such as a command line, shares the work all the same: see [`elsewhere`].
//!
//! [`elsewhere`]: super::elsewhere

use std::collections::{BTreeMap, BTreeSet};

use rollhook_core::{
    Error, Result,
    app::AppUid,
    ports::{Claim, Claimed, Replica},
};

use super::{
    KubernetesStore, codec,
    crd::{AppObject, Owner},
    elsewhere,
    leases::{is_of, lease_name},
    load::{ATTEMPTS, Loaded},
};

/// An app with work, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    /// As it is stored: these texts sort like the times that they are.
    since: String,
    name: String,
    uid: AppUid,
    /// Who is to be looked at before it is taken from him; none: nobody, or ourselves.
    owner: Option<Owner>,
    mine: bool,
}

impl KubernetesStore {
    pub(crate) async fn sign_and_take(&self, claim: &Claim) -> Result<Claimed> {
        self.ready().await?;
        let now = self.clock.now();
        if claim.ttl.is_zero() {
            self.farewell(&claim.replica).await?;
            return Ok(Claimed { now, apps: Vec::new() });
        }
        self.sign(claim).await?;
        let (mut passed_over, mut looked_at, mut looks) = (BTreeSet::new(), BTreeSet::new(), 0);
        for _ in 0..ATTEMPTS {
            let chosen = choose(self.waiting(&claim.replica), &passed_over, claim.limit);
            if chosen.iter().all(|waiting| waiting.mine) {
                return Ok(Claimed { now, apps: chosen.into_iter().map(|waiting| waiting.uid).collect() });
            }
            let mut doubtful = false;
            for (waiting, owner) in chosen.iter().filter_map(|waiting| Some((waiting, waiting.owner.as_ref()?))) {
                if !looked_at.insert(owner.clone()) {
                    continue;
                }
                // He may have given a sign that was not seen yet.
                doubtful = true;
                match self.elsewhere(owner) {
                    None => drop(self.look_at_lease(&lease_name(&owner.replica)).await?),
                    Some(namespace) if looks < elsewhere::LOOKS => {
                        looks += 1;
                        self.look_elsewhere(owner, namespace, &waiting.name).await;
                    }
                    Some(_) => self.leave_alone(owner),
                }
            }
            if !doubtful {
                for waiting in chosen.iter().filter(|waiting| !waiting.mine) {
                    self.take(waiting, &claim.replica, &mut passed_over).await;
                }
            }
        }
        let chosen = choose(self.waiting(&claim.replica), &passed_over, claim.limit);
        let mine = chosen.into_iter().filter(|waiting| waiting.mine).map(|waiting| waiting.uid);
        Ok(Claimed { now, apps: mine.collect() })
    }

    /// Takes an app; one that cannot be taken is passed over, so that it holds up no others.
    async fn take(&self, waiting: &Waiting, replica: &Replica, passed_over: &mut BTreeSet<AppUid>) {
        match self.try_take(waiting.uid, replica).await {
            Ok(()) | Err(Error::NotFound(_)) => {}
            Err(error) => {
                tracing::warn!(app = %waiting.name, error = %error.chain(), "an app with work cannot be taken");
                passed_over.insert(waiting.uid);
            }
        }
    }

    /// One attempt, after which what was seen is newer than before.
    async fn try_take(&self, uid: AppUid, replica: &Replica) -> Result<()> {
        // Its entries do not matter: one that cannot be read is its owner's trouble.
        let app = self.mirror.app(uid).ok_or(Error::NotFound("app"))?;
        let mut head = codec::head(&app)?;
        if head.owner.as_ref().is_some_and(|owner| !self.is(owner, replica) && self.owner_lives(owner)) {
            return Ok(());
        }
        let loaded = Loaded { uid, app, head: head.clone(), fresh: BTreeMap::new() };
        let lease = self.mirror.lease(&lease_name(&replica.name)).and_then(|seen| seen.lease.metadata.uid.clone());
        head.owner = Some(Owner {
            replica: replica.name.clone(),
            incarnation: replica.incarnation.to_string(),
            namespace: self.calls.namespace().to_owned(),
            lease: lease.unwrap_or_default(),
        });
        if self.commit(&loaded, head).await?.is_none() {
            self.read_app(uid).await?;
        }
        Ok(())
    }

    /// Whether the owner is this replica, by the Lease that it has now.
    fn is(&self, owner: &Owner, replica: &Replica) -> bool {
        let seen = || self.mirror.lease(&lease_name(&replica.name));
        let named = owner.replica == replica.name && owner.incarnation == replica.incarnation.to_string();
        named && seen().is_some_and(|seen| is_of(&seen.lease, owner))
    }

    /// Apps with work that are this replica's, or nobody's who lives.
    fn waiting(&self, replica: &Replica) -> Vec<Waiting> {
        let mut living: BTreeMap<Owner, bool> = BTreeMap::new();
        let mut waiting = Vec::new();
        for (uid, app) in self.mirror.apps() {
            let Some(since) = self.work_since(uid, &app) else { continue };
            let owner = app.status.as_ref().and_then(|status| status.owner.as_ref());
            let mine = owner.is_some_and(|owner| self.is(owner, replica));
            let other = owner.filter(|_| !mine);
            if other.is_some_and(|other| *living.entry(other.clone()).or_insert_with(|| self.owner_lives(other))) {
                continue;
            }
            let owner = other.cloned();
            waiting.push(Waiting { since, name: codec::named(&app), uid, owner, mine });
        }
        waiting
    }

    /// Since when the app has had work, where it has any.
    fn work_since(&self, uid: AppUid, app: &AppObject) -> Option<String> {
        let status = app.status.as_ref()?;
        let accepted = |number| self.mirror.entry(uid, number).map(|known| known.accepted_at);
        status.work_since.clone().or_else(|| accepted(status.folded + 1))
    }
}

/// What a claim gets: what it has already comes first, so that a newcomer displaces none; longest waiting first.
fn choose(mut waiting: Vec<Waiting>, passed_over: &BTreeSet<AppUid>, limit: usize) -> Vec<Waiting> {
    waiting.retain(|app| !passed_over.contains(&app.uid));
    waiting.sort_unstable_by(|one, two| (!one.mine, one).cmp(&(!two.mine, two)));
    waiting.truncate(limit);
    waiting.sort_unstable();
    waiting
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(uid: u128, since: &str, mine: bool) -> Waiting {
        let name = format!("app-{uid}");
        Waiting { since: since.to_owned(), name, uid: AppUid::from_bits(uid), owner: None, mine }
    }

    fn chosen(waiting: &[Waiting], passed_over: &[u128], limit: usize) -> Vec<u128> {
        let passed_over = passed_over.iter().copied().map(AppUid::from_bits).collect();
        choose(waiting.to_vec(), &passed_over, limit).into_iter().map(|app| app.uid.as_bits()).collect()
    }

    #[test]
    fn what_one_has_comes_before_what_one_could_have() {
        let apps = [waiting(1, "09:00", false), waiting(2, "09:05", true), waiting(3, "08:00", false)];
        assert_eq!(chosen(&apps, &[], 1), [2]);
        assert_eq!(chosen(&apps, &[], 2), [3, 2], "and they are named in the order of their waiting");
        assert_eq!(chosen(&apps, &[], 9), [3, 1, 2]);
        assert_eq!(chosen(&apps, &[3], 2), [1, 2]);
        assert_eq!(chosen(&apps, &[], 0), [0; 0]);
    }
}
