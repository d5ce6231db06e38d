//! Entries that change: only forwards, only in the ways there are, and with the truth.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rollhook_core::{
    deploy::{Commit, Deploy, Reason, Revision, State, Status, Trigger},
    ledger::AppState,
    time::Timestamp,
};

use super::{Known, Moment, Rules, Seen};
use crate::{
    journal::Journal,
    workloads::{Part, parts},
};

/// A rollout without progress for this long may be taken over (rule 9).
const STALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How much later than it was given an answer may arrive.
const LATENESS: Duration = Duration::from_secs(40);

impl Rules {
    pub(super) fn changed(
        &self,
        known: &Known,
        before: &[Deploy],
        old: &Deploy,
        new: &Deploy,
        moment: Moment,
        journal: &Journal,
    ) {
        let revision = new.revision;
        journal.log("store", || format!("{} {revision}: {} → {}", known.view.app.id, old.status(), told(&new.state)));
        let built = old.image.is_none() && new.image.is_some();
        let resolved = old.is_to_be_built() && may_be(old.commit.as_ref(), new.commit.as_ref());
        let kept = Deploy {
            image: if built { new.image.clone() } else { old.image.clone() },
            commit: if resolved { new.commit.clone() } else { old.commit.clone() },
            state: new.state.clone(),
            step: new.step,
            touched: new.touched,
            release: new.release,
            verification: new.verification.clone(),
            digest: new.digest.clone(),
            resolution: new.resolution.clone(),
            updated_at: new.updated_at,
            ..old.clone()
        };
        journal.expect(&kept == new, || format!("revision {revision}: what was accepted was changed"));
        journal.expect(!old.is_terminal(), || format!("revision {revision} had ended, and was changed"));
        journal.expect(new.step == old.step + 1, || format!("revision {revision}: a step was left out"));
        in_time(known.latest, new.updated_at, journal);
        journal.expect(follows(old, new), || {
            format!("revision {revision} went from {} to {}", old.status(), new.status())
        });
        if built {
            self.was_built(known, old, new, journal);
        }
        self.verified(known, old, new, journal);
        match &new.state {
            State::Succeeded { note } => {
                journal.count("effect: succeeded");
                journal.count_if(note.is_some(), "effect: a remark");
                let is_before = note.as_ref().is_some_and(|note| note.contains("still terminate"));
                journal.count_if(is_before, "effect: succeeded before its old pods had ended");
                self.succeeded(known, new, journal);
            }
            State::Failed { reason, message, evidence } => {
                journal.count(format!("reason: {reason}"));
                journal.count_if(is_of_further(message), "rule 19: a further workload failed");
                journal.count_if(evidence.as_ref().is_some_and(|it| it.state.is_some()), "rule 12: evidence was kept");
                journal.count_if(!new.touched, "effect: a refused order took its touch back");
                let seen = self.seen.get(&(known.view.app.uid, revision)).into_iter().flatten();
                journal.count_if(seen.clone().any(|seen| seen.complete), "rule 7: complete, and then it failed");
                self.failed(known, old, reason, moment, journal);
            }
            State::Superseded { by, newer: Some(newer), .. } => self.older(known, before, old, (*by, newer), journal),
            State::Superseded { by, rollback, newer: None } => {
                if old.status() == Status::Building {
                    journal.count_if(*rollback && old.image.is_none(), "rule 10: a rollback ended a build");
                    journal.count_if(old.image.is_some(), "rule 9: what was built never ran");
                }
                journal.count_if(*rollback, "rule 10: a rollback superseded");
                self.superseded(known, before, old, (*by, *rollback), moment, journal);
            }
            State::Cancelled { reason, .. } => {
                journal.count(format!("reason: {reason}"));
                journal.count_if(old.status() == Status::Building, "rule 8: a build was cancelled");
            }
            State::RollingOut { .. } => {
                let waited = before.iter().any(|entry| entry.revision < revision && entry.touched);
                journal.count_if(old.status() != Status::RollingOut && waited, "rule 9: a higher one followed");
            }
            State::Queued | State::Building { .. } | State::Releasing { .. } => {}
        }
    }

    fn succeeded(&self, known: &Known, new: &Deploy, journal: &Journal) {
        journal.count("rule 7: a success was judged");
        self.reached_all(known, new, journal);
        self.settled(known, new, journal);
    }

    /// Rule 7: the cluster was seen running just this revision, and again after the settling time, all well in between.
    pub(super) fn settled(&self, known: &Known, new: &Deploy, journal: &Journal) {
        let seen = self.seen.get(&(known.view.app.uid, new.revision)).map_or(&[][..], Vec::as_slice);
        let mut parts = known.counted(new);
        let app = &known.view.app;
        let was_reached = |name: &str| {
            let carried = self.all_carried(&app.id.namespace, name);
            carried.is_some_and(|carried| carried.iter().any(|carried| carried.app == app.uid))
        };
        // A restore, and a rollback in its place, leaves alone a further workload that no deploy ever came to, as one that a
        // person has made anew.
        if new.trigger == Trigger::Rollback {
            let first = parts.first().map(|part| part.name.clone());
            parts.retain(|part| Some(&part.name) == first.as_ref() || was_reached(&part.name));
        }
        let watchers: BTreeSet<u64> = seen.iter().map(|seen| seen.by).collect();
        let is_relisted = known.is_relisted(new.revision);
        journal.count_if(is_relisted, "rule 19: a deploy succeeded whose workloads had been changed");
        // The digest is that of the workloads that were listed when they were observed.
        let span = |watcher| if is_relisted { ran(seen, watcher, &parts) } else { stayed(seen, watcher, &parts, new) };
        let longest = watchers.into_iter().filter_map(span).max();
        journal.expect(longest >= Some(known.shortest.0), || {
            format!("revision {} counts as settled, and was not seen to stay ready for the settling time", new.revision)
        });
        let Some(began) = known.rolling.get(&new.revision) else { return };
        // An instance that somebody has scaled away has nothing to outlive any more.
        let is_gone = |at: usize| seen[at..].iter().any(|later| later.is_empty && later.workload == seen[at].workload);
        let counted = seen.iter().enumerate();
        let counted = counted.filter(|(at, seen)| parts.iter().any(|part| part.name == seen.workload) && !is_gone(*at));
        let life = counted.flat_map(|(_, seen)| lives(seen, began.now)).max().unwrap_or_default();
        journal.count_if(!life.is_zero(), "rule 7: an instance outlived its earlier lives");
        journal.expect(longest >= Some(2 * life), || {
            format!("revision {} succeeded after {longest:?}, and an instance had ended after {life:?}", new.revision)
        });
    }

    /// Rule 12: what is said to have recovered was seen running, and again after the settling time, all well in between.
    pub(super) fn recovered(&self, known: &Known, history: &[Deploy], view: &AppState, journal: &Journal) {
        let before = &known.view.recoveries;
        for recovery in view.recoveries.iter().filter(|recovery| !before.contains(recovery)) {
            let revision = recovery.revision;
            journal.log("store", || format!("{} {revision}: recovered", view.app.id));
            journal.count("rule 12: a deploy that had failed recovered");
            let entry = history.iter().find(|entry| entry.revision == revision);
            journal.count_if(entry.is_some_and(Deploy::is_restore), "rule 12: a restore that had failed recovered");
            let seen = self.rested.get(&(view.app.uid, revision)).map_or(&[][..], Vec::as_slice);
            let watchers: BTreeSet<u64> = seen.iter().map(|seen| seen.by).collect();
            let parts = parts(&view.app.target);
            let is_well = watchers.into_iter().any(|watcher| ran(seen, watcher, &parts) >= Some(known.shortest.0));
            let is_relisted = known.is_relisted(revision) || known.view.app.target != view.app.target;
            journal.expect(is_well || is_relisted, || {
                format!("revision {revision} recovered, and was not seen to run well")
            });
        }
        let kept = before.iter().all(|recovery| view.recoveries.contains(recovery));
        journal.expect(kept, || "a recovery was taken back".to_owned());
    }

    /// Rule 6: a deadline is not over before its time, nor is an outage. It is the store's clock that counts: one that
    /// was set ahead, be it before a driver took notice, ends them early, which fails on the safe side.
    fn failed(&self, known: &Known, old: &Deploy, reason: &Reason, moment: Moment, journal: &Journal) {
        let phase = if reason.as_str() == Reason::BUILD_DEADLINE { &known.building } else { &known.rolling };
        let Some(began) = phase.get(&old.revision) else { return };
        let uncounted = match &old.state {
            State::Building { paused, .. } => paused.away.past + paused.waiting.past,
            State::RollingOut { outage, .. } => outage.past,
            State::Releasing { outage, .. } => outage.past,
            State::Queued
            | State::Succeeded { .. }
            | State::Failed { .. }
            | State::Superseded { .. }
            | State::Cancelled { .. } => Duration::ZERO,
        };
        let least = match reason.as_str() {
            Reason::DEADLINE => known.shortest.1 + uncounted,
            Reason::BUILD_DEADLINE => known.shortest.2 + uncounted,
            Reason::UNREACHABLE => Duration::from_secs(3600),
            _ => Duration::ZERO,
        };
        let passed = moment.most.saturating_sub(began.now);
        journal.expect(passed >= least, || format!("revision {} failed of {reason} after {passed:?}", old.revision));
    }

    /// Rules 9 and 10: what rolls out gives way to a rollback, or when nothing moves.
    fn superseded(
        &self,
        known: &Known,
        before: &[Deploy],
        old: &Deploy,
        (by, rollback): (Revision, bool),
        moment: Moment,
        journal: &Journal,
    ) {
        // The one that takes its place may be accepted in the same write.
        let there = by.get() <= before.len() as u64 || rollback || old.image.is_none();
        journal.expect(there, || format!("revision {} is superseded by {by}, which is not there", old.revision));
        let Some(began) = known.rolling.get(&old.revision).filter(|_| matches!(old.state, State::RollingOut { .. }))
        else {
            journal.count("rule 9: a lower one never ran");
            return;
        };
        let newer_is_there = before.iter().any(|entry| entry.revision == by && entry.touched);
        if rollback || newer_is_there {
            journal.count_if(rollback, "rule 9: a rollback did not wait");
            return;
        }
        let mut moved = began.own;
        let mut progress = BTreeMap::new();
        let is_single = parts(&known.view.app.target).len() == 1 && !known.is_relisted(old.revision);
        let seen = self.seen.get(&(known.view.app.uid, old.revision)).map_or(&[][..], Vec::as_slice);
        // What becomes of a workload that the deploy has not reached is no progress of it, and an order to several looks at them
        // first, which its driver does not hear of.
        let is_heard = |seen: &&Seen| is_single || seen.is_there && seen.moment.own < moment.own;
        for seen in answered(seen).filter(is_heard) {
            if progress.insert(&seen.workload, &seen.progress) != Some(&seen.progress) {
                moved = seen.moment.own;
            }
        }
        journal.count("rule 9: one without progress was taken over");
        journal.expect(moment.own.saturating_sub(moved) >= STALL_TIMEOUT, || {
            format!("revision {} gave way to {by} although it moved", old.revision)
        });
        let is_reached = matches!(old.state, State::RollingOut { outage, .. } if outage.since.is_none());
        let policy = &known.view.app.policy;
        if is_single && is_reached && policy.checks.is_empty() {
            journal.expect(only_old_ones_left(seen).is_none_or(|span| span < policy.settle + LATENESS), || {
                format!("revision {} gave way to {by} as if it had not settled", old.revision)
            });
        }
    }
}

/// For how long the one that looked last has seen the rollout complete on its only workload, and well; `None` unless only old
/// pods are waited for.
fn only_old_ones_left(seen: &[Seen]) -> Option<Duration> {
    let last = answered(seen).last().filter(|last| last.leaving && last.past_lives.is_empty())?;
    let by_it = seen.iter().rev().filter(|seen| seen.by == last.by);
    let is_well = |seen: &&Seen| seen.complete && seen.sound && seen.restarts == last.restarts && !seen.is_lost;
    let first = by_it.take_while(is_well).last()?;
    Some(last.moment.now.saturating_sub(first.moment.now))
}

/// Whether a failure is that of a further workload.
fn is_of_further(message: &str) -> bool {
    ["Deployment/worker: ", "CronJob/nightly: "].iter().any(|name| message.starts_with(name))
}

/// The lengths of the lives that had ended in a rollout when it was seen; what lies before the rollout does not count.
fn lives(seen: &Seen, began: Duration) -> impl Iterator<Item = Duration> + '_ {
    seen.past_lives.iter().filter_map(move |lives| {
        let ended = seen.moment.now.checked_sub(lives.ended_ago)?.checked_sub(began)?;
        Some(lives.last.min(ended))
    })
}

/// For how long a watcher has last seen all of these workloads ready at once, without a break.
fn stayed(seen: &[Seen], watcher: u64, parts: &[Part], new: &Deploy) -> Option<Duration> {
    let last = |part: &Part| seen.iter().rev().find(|seen| seen.by == watcher && seen.workload == part.name);
    let mut digests = parts.iter().filter_map(|part| last(part)?.digest.as_ref());
    let first = digests.next();
    let digest = first.filter(|first| digests.all(|other| other == *first));
    // Where nothing runs at the end, what the registry named, what the release command ran with or what ran before was rolled out.
    let has_run = seen.iter().any(|seen| seen.digest.is_some() && seen.digest == new.digest);
    let is_known = digest.is_none() && (new.release.is_some() || new.is_resolved() || has_run);
    ran(seen, watcher, parts).filter(|_| digest == new.digest.as_ref() || is_known)
}

/// How long a watcher has seen a deploy complete on all of these workloads, by its last look at each.
fn ran(seen: &[Seen], watcher: u64, parts: &[Part]) -> Option<Duration> {
    let spans = parts.iter().map(|part| span(seen, watcher, &part.name)).collect::<Option<Vec<_>>>()?;
    let first = spans.iter().map(|(first, _)| *first).max()?;
    let last = spans.iter().map(|(_, last)| *last).min()?;
    Some(last.saturating_sub(first))
}

/// From when until when a watcher has seen a deploy complete on one workload, by its last look.
fn span(seen: &[Seen], watcher: u64, workload: &str) -> Option<(Duration, Duration)> {
    let mut by_it = seen.iter().rev().filter(|seen| seen.by == watcher && seen.workload == workload);
    let last = by_it.next().filter(|last| last.complete && last.sound)?;
    // Where no instance is to run any more, those that had restarted are gone.
    let is_same = |seen: &Seen| seen.complete && (seen.restarts == last.restarts || last.is_empty);
    let first = by_it.take_while(|seen| is_same(seen)).last().unwrap_or(last);
    Some((first.moment.own, last.moment.own))
}

/// Rule 14: an app's stored times never decrease.
pub(super) fn in_time(latest: Timestamp, time: Timestamp, journal: &Journal) {
    journal.expect(time >= latest, || format!("a time went back by {:?}", latest.since(time)));
}

fn may_be(old: Option<&Commit>, new: Option<&Commit>) -> bool {
    old.zip(new).is_some_and(|(old, new)| old.may_be(new))
}

fn follows(old: &Deploy, new: &Deploy) -> bool {
    let was = old.status();
    match new.status() {
        Status::Queued => old.is_to_be_resolved() && !new.is_to_be_resolved(),
        // What the deadline runs from, and what is built, stay as they were.
        Status::Building => match was {
            Status::Queued => old.image.is_none(),
            Status::Building => same_phase(&old.state, &new.state) && old.image.is_none(),
            Status::Releasing
            | Status::RollingOut
            | Status::Verifying
            | Status::Succeeded
            | Status::Failed
            | Status::Superseded
            | Status::Cancelled => false,
        },
        Status::Releasing => {
            new.image.is_some() && matches!(was, Status::Queued | Status::Building | Status::Releasing)
        }
        Status::RollingOut => {
            let came_from = [Status::Queued, Status::Building, Status::Releasing, Status::RollingOut];
            new.image.is_some() && came_from.contains(&was)
        }
        Status::Verifying => matches!(was, Status::RollingOut | Status::Verifying),
        Status::Succeeded => matches!(was, Status::RollingOut | Status::Verifying),
        Status::Failed => {
            matches!(was, Status::Releasing | Status::RollingOut | Status::Verifying)
                || (was == Status::Building && old.image.is_none())
                || old.is_to_be_resolved()
                || new.state.has_failed_for(Reason::IMAGE_NOT_SIGNED)
        }
        Status::Superseded | Status::Cancelled => !was.is_terminal(),
    }
}

fn same_phase(old: &State, new: &State) -> bool {
    let State::Building { since: began, source: from, .. } = old else { return false };
    matches!(new, State::Building { since, source, .. } if since == began && source == from)
}

fn told(state: &State) -> String {
    match state {
        State::Failed { reason, message, .. } => format!("failed, {reason}: {message}"),
        State::Superseded { by, .. } => format!("superseded by {by}"),
        State::Cancelled { message, .. } => format!("cancelled: {message}"),
        State::RollingOut { outage, .. } if outage.since.is_some() => "rolling_out, the cluster is away".to_owned(),
        State::RollingOut { .. }
        | State::Queued
        | State::Building { .. }
        | State::Releasing { .. }
        | State::Succeeded { .. } => state.status().to_string(),
    }
}

/// Returns the observations that the replica got: of several workloads, all of one pass or none.
fn answered(seen: &[Seen]) -> impl Iterator<Item = &Seen> {
    let mut passes: Vec<Vec<&Seen>> = Vec::new();
    for seen in seen {
        let follows = |before: &&Seen| before.by == seen.by && before.workload != seen.workload;
        match passes.last_mut().filter(|pass| pass.iter().all(follows)) {
            Some(pass) => pass.push(seen),
            None => passes.push(vec![seen]),
        }
    }
    passes.into_iter().filter(|pass| pass.iter().all(|seen| !seen.is_lost)).flatten()
}
