//! Several workloads of one app: each waits for those before it, and a deploy succeeds with all of them (rule 19).

use rollhook_core::{
    deploy::{Deploy, Revision, Trigger},
    ports::{DeployId, RolloutSpec},
};
use rollhook_memory::Effect;

use super::{Known, Rules};
use crate::{
    journal::Journal,
    workloads::{Part, parts},
};

impl Known {
    /// Whether the list of workloads was changed since the deploy was accepted: an observation of it, and a call that is
    /// under way, may be of the former list.
    pub(crate) fn is_relisted(&self, revision: Revision) -> bool {
        self.relisted >= Some(revision)
    }

    /// Returns the workloads whose state decides on a deploy: the first one of a deploy that was adopted, and of one whose
    /// list was changed.
    pub(super) fn counted(&self, deploy: &Deploy) -> Vec<Part> {
        let mut parts = parts(&self.view.app.target);
        parts.truncate(if deploy.adopted || self.is_relisted(deploy.revision) { 1 } else { usize::MAX });
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
        if known.is_relisted(revision) {
            return;
        }
        // Each workload has a fence of its own: until the newer deploy reaches this one too, an order that was under way may.
        let is_newer = |part: &Part| {
            let carried = self.carried(&effect.namespace, &part.name);
            carried.is_some_and(|carried| carried.app == app && carried.revision > revision)
        };
        let is_late = parts.iter().any(is_newer);
        journal.count_if(is_late, "rule 19: a late order reached a workload before a newer deploy did");
        let Some(changed) = parts.iter().find(|part| part.name == effect.workload) else { return };
        for part in parts.iter().filter(|part| part.stage < changed.stage) {
            journal.count("rule 19: a workload waited for those before it");
            let mut seen = self.seen.get(&(app, revision)).into_iter().flatten();
            journal.expect(seen.any(|seen| seen.workload == part.name && seen.complete), || {
                format!("revision {revision} changed {} before {} was complete", effect.workload, part.name)
            });
        }
    }

    /// Judges a deploy that succeeded: each workload was brought to it, and to none of the app after it, so that a restore
    /// has brought back all that the failed deploy had changed. A workload that a person removed tells no more.
    pub(super) fn reached_all(&self, known: &Known, new: &Deploy, journal: &Journal) {
        let app = &known.view.app;
        let id = DeployId { app: app.uid, revision: new.revision };
        let parts = parts(&app.target);
        if new.adopted || known.is_relisted(new.revision) {
            return;
        }
        let is_single = parts.len() == 1;
        for part in parts {
            let Some(carried) = self.all_carried(&app.id.namespace, &part.name) else { continue };
            let last = carried.iter().rev().find(|carried| carried.app == app.uid);
            // A restore leaves alone what no deploy ever came to, and so does a rollback in its place.
            if last.is_none() && new.trigger == Trigger::Rollback {
                continue;
            }
            journal.count_if(!is_single, "rule 19: a workload carried what succeeded");
            journal.count_if(!is_single && new.is_restore(), "rule 19: a restore brought a workload back");
            journal.expect(last == Some(&id), || {
                let last = last.map_or(0, |last| last.revision.get());
                format!("revision {} succeeded, and {} was brought to {last} last", new.revision, part.name)
            });
        }
    }
}
