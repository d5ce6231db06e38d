//! The rollouts that this process has begun, so that it begins none again that another party has undone.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
};

use rollhook_core::{app::AppUid, deploy::Revision, ports::DeployId};

/// The workloads that the last deploy of each app was applied to.
#[derive(Default)]
pub(crate) struct Begun(Mutex<HashMap<AppUid, (Revision, BTreeSet<String>)>>);

impl Begun {
    /// Notes that a deploy was applied to this workload.
    pub(crate) fn note(&self, id: DeployId, name: &str) {
        let mut apps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = apps.entry(id.app).or_insert_with(|| (id.revision, BTreeSet::new()));
        if known.0 < id.revision {
            *known = (id.revision, BTreeSet::new());
        }
        if known.0 == id.revision {
            known.1.insert(name.to_owned());
        }
    }

    /// Returns the workloads that this process has applied the deploy to.
    pub(crate) fn of(&self, id: DeployId) -> BTreeSet<String> {
        let apps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        apps.get(&id.app).filter(|known| known.0 == id.revision).map(|known| known.1.clone()).unwrap_or_default()
    }

    /// Forgets a deploy that has ended.
    pub(crate) fn ended(&self, id: DeployId) {
        let mut apps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if apps.get(&id.app).is_some_and(|known| known.0 <= id.revision) {
            apps.remove(&id.app);
        }
    }

    /// Forgets an app.
    pub(crate) fn forget(&self, app: AppUid) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&app);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deploy_is_remembered_until_it_has_ended_or_a_newer_one_has_begun() {
        let begun = Begun::default();
        let id = |revision| DeployId { app: AppUid::from_bits(1), revision: Revision::new(revision).unwrap() };
        for (revision, workload) in [(1, "web"), (2, "web"), (2, "worker")] {
            begun.note(id(revision), workload);
        }
        assert!(begun.of(id(1)).is_empty() && begun.of(id(2)).len() == 2);
        begun.ended(id(1));
        assert_eq!(begun.of(id(2)).len(), 2, "an older one has ended");
        begun.ended(id(2));
        assert!(begun.0.lock().unwrap().is_empty());
    }
}
