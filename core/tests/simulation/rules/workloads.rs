//! Several workloads of one app: each waits for those before it, and a deploy succeeds with all of them (rule 19).

use rollhook_core::{
    deploy::Deploy,
    ports::{DeployId, RolloutSpec},
};
use rollhook_memory::Effect;

use super::{Known, Rules};
use crate::{
    journal::Journal,
    workloads::{Part, parts},
};

impl Known {
    /// Returns the workloads whose state decides on a deploy. One that was adopted is what the first workload ran.
    pub(super) fn counted(&self, deploy: &Deploy) -> Vec<Part> {
        let mut parts = parts(&self.view.app.target);
        parts.truncate(if deploy.adopted { 1 } else { usize::MAX });
        parts
    }
}

impl Rules {
    /// Judges a change of a workload by a deploy: all workloads of the stages before it were complete with that deploy. A
    /// return to an earlier version waits for none.
    pub(super) fn waited(&self, effect: &Effect, order: &RolloutSpec, journal: &Journal) {
        let DeployId { app, revision } = effect.stamp;
        let Some(known) = self.known.get(&app).filter(|_| order.purpose.returns_to().is_none()) else { return };
        let parts = parts(&known.view.app.target);
        let Some(changed) = parts.iter().find(|part| part.name == effect.workload) else { return };
        for part in parts.iter().filter(|part| part.stage < changed.stage) {
            journal.count("rule 19: a workload waited for those before it");
            let mut seen = self.seen.get(&(app, revision)).into_iter().flatten();
            journal.expect(seen.any(|seen| seen.workload == part.name && seen.complete), || {
                format!("revision {revision} changed {} before {} was complete", effect.workload, part.name)
            });
        }
    }

    /// Judges a deploy that succeeded: each workload carries it by its effects. One that a person removed tells no more, and
    /// one that another registration has taken over is that one's.
    pub(super) fn reached_all(&self, known: &Known, new: &Deploy, journal: &Journal) {
        let app = &known.view.app;
        let id = DeployId { app: app.uid, revision: new.revision };
        let parts = parts(&app.target);
        if new.adopted {
            return;
        }
        let is_single = parts.len() == 1;
        for part in parts {
            let Some(carried) = self.carried(&app.id.namespace, &part.name) else { continue };
            if carried.app != app.uid {
                continue;
            }
            journal.count_if(!is_single, "rule 19: a workload carried what succeeded");
            journal.count_if(!is_single && new.is_restore(), "rule 19: a restore brought a workload back");
            journal.expect(carried == id, || {
                format!("revision {} succeeded, and {} carries {}", new.revision, part.name, carried.revision)
            });
        }
    }
}
