//! The end of a run: troubles cease, everything ends, and then nothing moves any more.

use std::time::Duration;

use futures_util::FutureExt;
use rollhook_core::{
    app::OnFailure,
    deploy::{Deploy, Revision, Status, Trigger},
    engine,
    ledger::AppState,
    ports::{AtRest, Phase, TargetReader},
};

use crate::{registry::Reading, requests::WORKLOAD, rules::model, run::Run, verifying::Answers, workloads::parts};

/// Much longer than the longest chain of deadlines, take-overs and clocks that were set back.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// The longest time until another replica drives an app whose driver is gone.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(30);

impl Run {
    /// Lets everything come to its end, and judges what is left.
    pub(crate) fn quieten(&mut self) {
        // A driver that read an old policy last has decided by that.
        self.stale = self.environment.journal.has_counted("fault: stale read");
        self.environment.cluster.set_reachable(true);
        self.environment.builders.iter().for_each(|builder| builder.set_reachable(true));
        self.environment.provider.set(Answers::Well);
        self.environment.registry.set(Reading::Well);
        self.slots.iter().flatten().for_each(|replica| replica.faults.disarm());
        self.wait_for_the_end();
        if self.is_over() {
            return;
        }
        self.judge_the_end();
        self.stands_still("stepping again did something");
        // Memory holds nothing that a restart must know.
        self.crash(0, Duration::ZERO, false);
        self.stands_still("a restart did something");
    }

    fn wait_for_the_end(&mut self) {
        let end = self.now() + PATIENCE;
        // Whether a restore is owed is not told then, and one may be about to be made: after a call that failed, once the driver
        // has read its app again, or by the replica that takes over from it.
        if self.stale {
            self.pass(TAKEN_OVER_WITHIN);
        }
        while !self.is_over() && !self.is_quiet() {
            let late = self.now() > end;
            self.environment.journal.expect(!late, || format!("it never ends: {}", self.unfinished()));
            self.pass(Duration::from_secs(3));
        }
    }

    fn is_quiet(&self) -> bool {
        let all_there = self.slots.iter().all(|slot| slot.as_ref().is_some_and(|replica| !replica.paused));
        all_there
            && self.nothing_is_due()
            && !self.callers.are_calling()
            && self.environment.is_still()
            && self.unfinished().is_empty()
    }

    fn unfinished(&self) -> String {
        let rules = self.environment.rules.lock().unwrap();
        let running = self.environment.builds(&rules.built_for()).into_iter();
        let lives = |life| self.slots.iter().flatten().any(|replica| replica.life.number == life);
        let waited_for = running.filter(|(app, revision)| !rules.is_left(*app, *revision, lives));
        let mut unfinished: Vec<_> =
            waited_for.map(|(app, revision)| format!("the build of revision {revision} of {app}")).collect();
        unfinished.extend(rules.unheard());
        unfinished.extend(rules.unfollowed());
        for known in rules.known.values() {
            let entries = known.history.iter().filter(|entry| !entry.is_terminal());
            unfinished
                .extend(known.view.release_runs.iter().map(|run| format!("the release command of revision {run}")));
            unfinished.extend(known.view.runs.unfinished.iter().map(|run| format!("run {} by hand", run.number)));
            unfinished.extend(entries.map(|entry| format!("{} {}", known.view.app.id, entry.revision)));
            let revoked: Vec<Revision> = known.view.revocations().collect();
            let open = known.view.watches.last().filter(|watch| watch.is_under_way() || watch.owes_restore());
            unfinished.extend(open.map(|watch| format!("the watch over revision {}", watch.revision)));
            let settled = !known.undecided && !self.stale;
            if let Some(owed) = model::owed(&known.history, &known.view.app.policy, &revoked).filter(|_| settled) {
                unfinished.push(format!("{} owes a restore of {}", known.view.app.id, owed.revision));
            }
            if let Some(ended) = known.view.unrecovered().filter(|ended| self.runs_well(&known.view, ended)) {
                unfinished.push(format!("{} says not that {} has recovered", known.view.app.id, ended.revision));
            }
        }
        unfinished.join(", ")
    }

    /// Whether a deploy that ended without success runs, and has not restarted.
    fn runs_well(&self, view: &AppState, ended: &Deploy) -> bool {
        let spec = engine::at_rest(view).filter(|spec| spec.id.revision == ended.revision);
        let Some(spec) = spec else { return false };
        parts(&spec.target).into_iter().all(|part| {
            let spec = spec.clone().with(|spec| spec.target = part.target);
            let found = self.environment.cluster.at_rest(&spec).now_or_never();
            let Some(Ok(AtRest { seen, drift, .. })) = found else { return false };
            let is_anothers = ended.was_changed_by_another() && drift.is_some();
            let is_well = matches!(seen.phase, Phase::Complete { .. }) && seen.failure.is_none() && seen.restarts == 0;
            is_well && !is_anothers
        })
    }

    fn judge_the_end(&self) {
        let rules = self.environment.rules.lock().unwrap();
        let journal = &self.environment.journal;
        for known in rules.known.values() {
            let app = &known.view.app;
            if let Some(top) = model::went_wrong(&known.history) {
                journal.count(match (app.policy.on_failure, model::current(&known.history)) {
                    (OnFailure::Leave, _) => "rule 12: left as it is",
                    (OnFailure::Restore, None) => "rule 12: nothing to restore",
                    (OnFailure::Restore, Some(_)) => "rule 12: the restore was tried",
                });
                journal.count_if(top.status() == Status::Cancelled, "rule 12: a cancelled one had touched the cluster");
            }
            let top = model::on_cluster(&known.history);
            let changed = top.is_some_and(|top| top.was_changed_by_another() && !top.is_restore());
            journal.count_if(changed, "rule 12: another party's change was left");
            journal.count_if(
                top.is_some_and(|top| top.is_restore() && top.status() == Status::Failed),
                "rule 12: a restore that failed was left",
            );
            let Some(top) = top.filter(|top| top.status() == Status::Succeeded) else { continue };
            let is_relisted = known.is_relisted(top.revision);
            for part in parts(&app.target).into_iter().filter(|part| !is_relisted || part.name == WORKLOAD) {
                let carried = rules.carried(&app.id.namespace, &part.name);
                let Some(carried) = carried.filter(|stamp| stamp.app == app.uid) else { continue };
                // An order of before may come late to a workload that a restore has left alone, as no deploy had come to it.
                if top.trigger == Trigger::Rollback && !rules.has_reached(&app.id.namespace, &part.name, top.revision) {
                    continue;
                }
                journal.count("rule 7: current runs at the end");
                journal.expect(top.revision == carried.revision, || {
                    format!("{} is current, and {} has {}", top.revision, part.name, carried.revision)
                });
            }
        }
    }

    /// Nothing is written and nothing is changed, whatever time passes.
    fn stands_still(&mut self, otherwise: &str) {
        let done = |run: &Self| {
            let writes = run.environment.rules.lock().unwrap().writes;
            (writes, run.environment.cluster.effects().len(), run.environment.begun())
        };
        let found = |run: &Self| run.environment.rules.lock().unwrap().found;
        let (mut before, mut known) = (done(self), found(self));
        self.pass(Duration::from_secs(12));
        // A branch that was taken back is known, and still to be followed: that is no step that comes again.
        while found(self) != known && !self.is_over() {
            self.wait_for_the_end();
            (before, known) = (done(self), found(self));
            self.pass(Duration::from_secs(12));
        }
        let after = done(self);
        self.environment.journal.count("effect: it stood still");
        self.environment.journal.expect(before == after, || otherwise.to_owned());
    }
}
