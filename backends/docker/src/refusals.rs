//! Calls that the engine refused, and that are not repeated at once.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use rollhook_core::{app::AppUid, ports::DeployId};
use tokio::time::Instant;

use crate::lock;

/// The pause before a call that was refused is made again.
const AGAIN: Duration = Duration::from_secs(5);

/// The last refusal of each app, of a deploy's container that could not be made or started.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<HashMap<AppUid, Refusal>>);

struct Refusal {
    id: DeployId,
    /// The container, if there is one.
    container: String,
    message: String,
    at: Instant,
}

impl Refusals {
    pub(crate) fn note(&self, id: DeployId, container: &str, message: &str) {
        let (container, message) = (container.to_owned(), message.to_owned());
        lock(&self.0).insert(id.app, Refusal { id, container, message, at: Instant::now() });
    }

    pub(crate) fn clear(&self, app: AppUid) {
        lock(&self.0).remove(&app);
    }

    /// The engine's words, if it refused the deploy last.
    pub(crate) fn message(&self, id: DeployId) -> Option<String> {
        lock(&self.0).get(&id.app).filter(|refusal| refusal.id == id).map(|refusal| refusal.message.clone())
    }

    /// Whether the call may be made, for the first time or again.
    pub(crate) fn may_call(&self, id: DeployId, container: &str) -> bool {
        let refusals = lock(&self.0);
        let same = refusals.get(&id.app).filter(|refusal| refusal.id == id && refusal.container == container);
        same.is_none_or(|refusal| refusal.at.elapsed() >= AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::samples::{OURS, id};

    #[test]
    fn refusal_is_kept_for_the_last_deploy_of_an_app_alone() {
        let refusals = Refusals::default();
        refusals.note(id(OURS, 1), "", "no such network");
        assert_eq!(refusals.message(id(OURS, 1)).as_deref(), Some("no such network"));
        assert!(!refusals.may_call(id(OURS, 1), "") && refusals.may_call(id(OURS, 1), "another"));
        refusals.note(id(OURS, 2), "", "no space left on device");
        assert_eq!(refusals.message(id(OURS, 1)), None);
        assert!(refusals.may_call(id(OURS, 1), ""));
        assert_eq!(lock(&refusals.0).len(), 1);
        refusals.clear(OURS);
        assert!(refusals.message(id(OURS, 2)).is_none() && refusals.may_call(id(OURS, 2), ""));
    }
}
