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

    /// Forgets an app.
    pub(crate) fn forget(&self, app: AppUid) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&app);
    }
}
