//! Rule 20: a version is watched after its deploy, by what is measured of it then; one fail leads to one restore at most, and to
//! none once anything newer was accepted or a person has acted.

use std::collections::{BTreeMap, BTreeSet};

use rollhook_core::{
    app::{AppUid, OnFailure},
    check::{CheckMode, CheckName, Verdict},
    deploy::{Deploy, Revision, Status, Trigger, Watch, WatchEnd, WatchRestore},
    ledger::AppState,
    ports::MeasureSpec,
};

use super::{Known, Rules, checks::was_measured, model};
use crate::journal::Journal;

/// What was measured of watched versions, and which of them were restored.
#[derive(Default)]
pub(super) struct Watches {
    /// The number of measurements of a version's check within its watch that passed, failed, and said nothing.
    pub(super) measured: BTreeMap<(AppUid, Revision, CheckName), [u32; 3]>,
    restored: BTreeSet<(AppUid, Revision)>,
}

/// Whether a watch may still lead to a restore.
fn is_open(watch: &Watch) -> bool {
    watch.is_under_way() || watch.owes_restore()
}

impl Rules {
    /// Whether the deploy that is measured is one that is watched.
    pub(crate) fn is_watched(&self, spec: &MeasureSpec) -> bool {
        let known = self.known.get(&spec.deploy.app);
        known.and_then(|known| known.view.watch()).is_some_and(|watch| watch.revision == spec.deploy.revision)
    }

    /// A replica has measured a check of a watched version.
    pub(super) fn measured_within_a_watch(&mut self, spec: &MeasureSpec, verdict: Verdict, journal: &Journal) {
        journal.count(format!("watch: measured, {verdict}"));
        let index = match verdict {
            Verdict::Pass => 0,
            Verdict::Fail => 1,
            Verdict::None => 2,
        };
        let key = (spec.deploy.app, spec.deploy.revision, spec.check.name.clone());
        self.watches.measured.entry(key).or_default()[index] += 1;
    }

    fn seen_within_a_watch(&self, app: AppUid, revision: Revision, name: &CheckName) -> [u32; 3] {
        self.watches.measured.get(&(app, revision, name.clone())).copied().unwrap_or_default()
    }

    /// The watches of an app have changed, or should have.
    pub(super) fn watched(
        &self,
        known: &Known,
        before: &[Deploy],
        history: &[Deploy],
        view: &AppState,
        journal: &Journal,
    ) {
        for watch in &view.watches {
            let old = known.view.watch_of(watch.revision);
            if old.is_none() {
                begun(known, before, history, (view, watch), journal);
            }
            if old != Some(watch) {
                self.changed_watch(known, before, (view, old, watch), journal);
            }
        }
        let succeeded = before.iter().zip(history).filter(|(old, new)| !old.is_terminal() && new.is_terminal());
        for (_, new) in succeeded.filter(|(_, new)| new.status() == Status::Succeeded) {
            let is_verified = new.verification.as_ref().is_some_and(|verification| verification.skipped.is_none());
            let is_on = |policy: &rollhook_core::app::Policy| !policy.watch_for.is_zero() && !policy.checks.is_empty();
            let is_to_be = is_verified
                && model::last_in_order(history) == Some(new)
                && is_on(&known.view.app.policy)
                && is_on(&view.app.policy)
                && view.app.locks.in_force(new.updated_at).next().is_none()
                && view.stopped.is_none();
            journal.expect(!is_to_be || view.watch_of(new.revision).is_some(), || {
                format!("revision {} succeeded, and is not watched", new.revision)
            });
        }
        let Some(open) = view.watches.last().filter(|watch| is_open(watch)) else { return };
        let revision = open.revision;
        journal.expect(model::last_in_order(history).is_some_and(|last| last.revision == revision), || {
            format!("revision {revision} is watched on, and a newer one was accepted")
        });
        let was_open = known.view.watch_of(revision).is_some();
        let is_locked = view.app.locks.app.is_some() && view.app.locks.app != known.view.app.locks.app;
        let is_moved = view.app.target.settings != known.view.app.target.settings;
        journal.expect(!was_open || !is_locked && !is_moved, || {
            format!("revision {revision} is watched on, and a person has acted")
        });
    }

    /// A watch has begun or gone on.
    fn changed_watch(
        &self,
        known: &Known,
        before: &[Deploy],
        (view, old, watch): (&AppState, Option<&Watch>, &Watch),
        journal: &Journal,
    ) {
        let (app, revision) = (view.app.uid, watch.revision);
        let is_slimmed = !is_open(watch) && old.is_some_and(|old| old.end == watch.end);
        if is_slimmed && watch.revoked().is_none() {
            return;
        }
        journal.log("store", || format!("{} {revision}: watched, {:?}", view.app.id, watch.end));
        if let Some(old) = old.filter(|old| !old.is_under_way()) {
            let is_same = match (&old.end, &watch.end) {
                (Some(WatchEnd::Revoked { fail, .. }), Some(WatchEnd::Revoked { fail: now, .. })) => fail == now,
                (old, now) => old == now,
            };
            journal.expect(is_same, || format!("the watch over revision {revision} ended twice"));
        }
        let was_leased = old.is_some_and(|old| old.step > 0) && known.view.lease.is_some();
        journal.count_if(was_leased && known.view.lease != view.lease && view.lease.is_some(), "watch: taken over");
        for result in &watch.measured.checks {
            let seen = self.seen_within_a_watch(app, revision, &result.name);
            was_measured(revision, result, seen, " in its watch", journal);
        }
        let may_decide = |fail: &rollhook_core::deploy::CheckFail, mode: CheckMode| {
            let measured = self.seen_within_a_watch(app, revision, &fail.check)[1];
            [&known.view.app.policy, &view.app.policy]
                .into_iter()
                .flat_map(|policy| &policy.checks)
                .any(|check| check.name == fail.check && check.mode == mode && measured >= check.failures)
        };
        if let Some(would) = watch.would_restore.as_ref().filter(|_| old.is_none_or(|old| old.would_restore.is_none()))
        {
            journal.count("watch: it would have been restored");
            journal.expect(may_decide(would, CheckMode::Observe), || {
                format!("revision {revision}: {} has not failed", would.check)
            });
        }
        if old.is_some_and(|old| !old.is_under_way()) {
            return;
        }
        let is_newest = model::last_in_order(before).is_some_and(|last| last.revision == revision);
        match &watch.end {
            Some(WatchEnd::Over) => journal.count("watch: its time was over"),
            Some(WatchEnd::Early { why }) => {
                let why = if why.ends_with("was accepted") { "a newer one was accepted" } else { why };
                journal.count(format!("watch: ended early, {why}"));
            }
            Some(WatchEnd::Revoked { fail, restore }) => {
                journal.count("watch: a verification was revoked");
                journal.expect(may_decide(fail, CheckMode::Enforce), || {
                    format!("revision {revision} is revoked, and {} has not failed", fail.check)
                });
                journal.expect(is_newest, || format!("revision {revision} is revoked, and a newer one was accepted"));
                let leaves = known.view.app.policy.on_failure == OnFailure::Leave
                    && view.app.policy.on_failure == OnFailure::Leave;
                let is_left = matches!(restore, WatchRestore::Nothing { .. });
                journal.expect(!leaves || is_left, || {
                    format!("revision {revision} is to be restored, in spite of its policy")
                });
                journal.count_if(is_left, "watch: nothing was restored");
            }
            None => {}
        }
    }

    /// Judges a restore that no failed deploy owes: a watch does, and only once. Returns whether it is one.
    pub(super) fn restored_by_watch(
        &mut self,
        known: &Known,
        before: &[Deploy],
        view: &AppState,
        new: &Deploy,
        journal: &Journal,
    ) -> bool {
        let made = |watch: &&Watch| matches!(watch.revoked(), Some((_, WatchRestore::Made { revision })) if *revision == new.revision);
        let Some(watch) = view.watches.iter().find(made) else { return false };
        journal.count("watch: a restore was made");
        let revision = watch.revision;
        let is_first = self.watches.restored.insert((view.app.uid, revision));
        journal.expect(is_first, || format!("revision {revision} is restored twice"));
        let top = model::on_cluster(before).filter(|top| top.status() == Status::Succeeded);
        journal.expect(
            model::last_in_order(before).is_some_and(|last| last.revision == revision)
                && top.is_some_and(|top| top.revision == revision),
            || format!("revision {} restores after revision {revision}, and a newer one was accepted", new.revision),
        );
        let was_open = known.view.watch_of(revision).is_some_and(is_open);
        journal.expect(was_open, || format!("revision {} restores after a watch that had ended", new.revision));
        let revoked: Vec<Revision> = view.revocations().collect();
        let good = model::good(before, &revoked);
        let right = good.is_some_and(|good| good.effective == new.effective && good.pinned_image() == new.image);
        journal.expect(right, || {
            format!("revision {} restores {}; good was {:?}", new.revision, new.effective, good.map(|it| it.revision))
        });
        true
    }
}

fn begun(known: &Known, before: &[Deploy], history: &[Deploy], (view, watch): (&AppState, &Watch), journal: &Journal) {
    let revision = watch.revision;
    journal.count("watch: begun");
    let at = revision.get() as usize - 1;
    let has_just_ended = before.get(at).is_none_or(|old| !old.is_terminal());
    let may_be = history.get(at).is_some_and(|new| {
        let is_verified = new.verification.as_ref().is_some_and(|verification| verification.skipped.is_none());
        new.status() == Status::Succeeded && new.trigger != Trigger::Rollback && !new.adopted && is_verified
    });
    let is_on = [&known.view, view].into_iter().any(|view| !view.app.policy.watch_for.is_zero());
    journal.expect(has_just_ended && may_be && is_on, || format!("revision {revision} is watched, and was not to be"));
}
