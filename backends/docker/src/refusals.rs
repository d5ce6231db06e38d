//! Calls that the engine refused, and that are not repeated at once.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use rollhook_core::{app::AppUid, ports::DeployId};
use tokio::time::Instant;

use crate::{lock, settings::Rollout};

/// The pause before a call that was refused is made again.
const AGAIN: Duration = Duration::from_secs(5);

/// The last refusal of each target, of a deploy's container that could not be made or started.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<HashMap<(AppUid, String), Refusal>>);

struct Refusal {
    id: DeployId,
    /// The container, if there is one.
    container: String,
    message: String,
    at: Instant,
}

impl Refusals {
    pub(crate) fn note(&self, rollout: &Rollout, container: &str, message: &str) {
        let (container, message) = (container.to_owned(), message.to_owned());
        let refusal = Refusal { id: rollout.id, container, message, at: Instant::now() };
        lock(&self.0).insert(key(rollout), refusal);
    }

    pub(crate) fn clear(&self, rollout: &Rollout) {
        lock(&self.0).remove(&key(rollout));
    }

    pub(crate) fn forget(&self, app: AppUid) {
        lock(&self.0).retain(|(of, _), _| *of != app);
    }

    /// The engine's words, if it refused the deploy last.
    pub(crate) fn message(&self, rollout: &Rollout) -> Option<String> {
        let refusals = lock(&self.0);
        refusals.get(&key(rollout)).filter(|refusal| refusal.id == rollout.id).map(|refusal| refusal.message.clone())
    }

    /// Whether the call may be made, for the first time or again.
    pub(crate) fn may_call(&self, rollout: &Rollout, container: &str) -> bool {
        let refusals = lock(&self.0);
        let is_same = |refusal: &&Refusal| refusal.id == rollout.id && refusal.container == container;
        let same = refusals.get(&key(rollout)).filter(is_same);
        same.is_none_or(|refusal| refusal.at.elapsed() >= AGAIN)
    }
}

fn key(rollout: &Rollout) -> (AppUid, String) {
    (rollout.id.app, rollout.workload.key())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        rules::samples::{OURS, rollout},
        settings::{Kind, Workload},
    };

    #[test]
    fn refusal_is_kept_for_the_last_deploy_of_a_target_alone() {
        let refusals = Refusals::default();
        refusals.note(&rollout(1), "", "no such network");
        assert_eq!(refusals.message(&rollout(1)).as_deref(), Some("no such network"));
        assert!(!refusals.may_call(&rollout(1), "") && refusals.may_call(&rollout(1), "another"));
        refusals.note(&rollout(2), "", "no space left on device");
        assert_eq!(refusals.message(&rollout(1)), None);
        assert!(refusals.may_call(&rollout(1), ""));
        assert_eq!(lock(&refusals.0).len(), 1);
        let worker = Rollout { workload: Workload::named(Kind::Container, "worker"), ..rollout(2) };
        refusals.note(&worker, "", "no such volume");
        assert_eq!(refusals.message(&rollout(2)).as_deref(), Some("no space left on device"));
        refusals.forget(OURS);
        assert!(lock(&refusals.0).is_empty());
        assert!(refusals.message(&rollout(2)).is_none() && refusals.may_call(&rollout(2), ""));
    }
}
