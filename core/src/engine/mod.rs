//! The engine: decides the next effect of an app's driver.
//!
//! A driver holds a [`State`], feeds it [`Event`]s and performs the one [`Effect`] that each step answers with. Every
//! change goes through the store first; nothing here must survive a restart.

pub mod build_queue;
pub(crate) mod by_hand;
mod commands;
pub mod deadline;
mod events;
mod evidence;
pub mod following;
pub mod health;
mod interleave;
pub mod judge;
pub mod ordering;
pub mod polling;
pub mod release;
mod release_turns;
pub mod resolving;
pub mod retry;
pub mod rollout;
mod rounds;
mod run_calls;
mod spec;
pub mod verifying;
mod watching;

use std::time::Duration;

pub use events::{CallError, Effect, Event};
pub use spec::{at_rest, may_drift};

use build_queue::{BuildQueue, BuildStep};
use by_hand::ByHandProgress;
use polling::{Detected, Polling};
use release::ReleaseProgress;
use resolving::ResolveProgress;
use rollout::{FailureReport, RolloutOutcome, RolloutProgress, Terms, UNREACHABLE_MAX};
use spec::spec;
use verifying::{RoundOf, VerifyProgress, VerifyStep};

use crate::{
    app::Source,
    deploy::{Deploy, Evidence, Outage, Reason, Revision, State as Stored, Status, Stopped, Trigger},
    image::Digest,
    ledger::{
        AppState, Change, Record, releases,
        restore::{self, Owed},
        transitions,
    },
    ports::{Applied, DeployId, ReleaseRun, RolloutSpec, Started},
    time::Timestamp,
};

/// The longest wait of a driver whose only work is polling.
const POLL_ONLY_WAIT: std::time::Duration = std::time::Duration::from_secs(3600);

/// The state of an app's driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    app_state: AppState,
    /// The time at which the app was loaded.
    read_at: Timestamp,
    rollout: Option<RolloutProgress>,
    release: Option<ReleaseProgress>,
    by_hand: Option<ByHandProgress>,
    failure: Option<FailureReport>,
    /// The changes that are being committed.
    pending: Vec<Deploy>,
    /// The rollout that this driver began itself, if every call for it was answered: only then is it certain whether a
    /// refusal left the cluster untouched.
    started_here: Option<Revision>,
    /// The begin of the last observation: its answer may be late, and does not cover the time since.
    observe_began_at: Timestamp,
    /// The time of the next read of the other apps in the release group.
    turns_read_at: Timestamp,
    build_queue: BuildQueue,
    poll: Polling,
    verify: VerifyProgress,
    /// Whether this process builds and polls.
    has_builder: bool,
    /// Whether this process measures checks by a verifier.
    has_verifier: bool,
    /// Whether this process's platform runs the commands of checks.
    has_runner: bool,
    has_registry: bool,
    /// Whether this process verifies signatures of images.
    has_image_verifier: bool,
    resolve: ResolveProgress,
}

impl State {
    /// Returns the state of a driver that has just loaded its app.
    pub fn new(app_state: AppState, now: Timestamp) -> Self {
        Self {
            app_state,
            read_at: now,
            rollout: None,
            release: None,
            by_hand: None,
            failure: None,
            pending: Vec::new(),
            started_here: None,
            observe_began_at: Timestamp::default(),
            turns_read_at: Timestamp::default(),
            build_queue: BuildQueue::default(),
            poll: Polling::default(),
            verify: VerifyProgress::default(),
            has_builder: true,
            has_verifier: true,
            has_runner: true,
            has_registry: true,
            has_image_verifier: true,
            resolve: ResolveProgress::default(),
        }
    }

    /// Returns the state of a driver that leaves builds and polling to others.
    #[must_use]
    pub fn without_builder(self) -> Self {
        Self { has_builder: false, ..self }
    }

    /// Returns the state of a driver that cannot measure checks but by commands: deploys end without being verified.
    #[must_use]
    pub fn without_verifier(self) -> Self {
        Self { has_verifier: false, ..self }
    }

    /// Returns the state of a driver whose platform runs no commands: deploys with checks that do end without being verified.
    #[must_use]
    pub fn without_runner(self) -> Self {
        Self { has_runner: false, ..self }
    }

    /// Returns the state of a driver that asks no registries: images are found by their tags.
    #[must_use]
    pub fn without_registry(self) -> Self {
        Self { has_registry: false, ..self }
    }

    /// Returns the state of a driver that verifies no signatures: deploys end that need them.
    #[must_use]
    pub fn without_image_verifier(self) -> Self {
        Self { has_image_verifier: false, ..self }
    }

    /// Returns the state with a lower bound for the interval of polling, whatever the apps' policies are.
    #[must_use]
    pub fn polling_at_least(mut self, interval: std::time::Duration) -> Self {
        self.poll.at_least(interval);
        self
    }

    /// Adjusts to a store clock that was set from `was` to `is`. Durations that the driver has measured itself stay as
    /// long as they were; deadlines, which other replicas know as well, follow the store's clock.
    pub fn clock_set(&mut self, was: Timestamp, is: Timestamp) {
        self.rollout.iter_mut().for_each(|rollout| rollout.clock_set(was, is));
        self.release.iter_mut().for_each(|release| release.clock_set(was, is));
        self.by_hand.iter_mut().for_each(|run| run.clock_set(was, is));
        self.turns_read_at = self.turns_read_at.reset(was, is);
        self.build_queue.clock_set(was, is);
        self.verify.clock_set(was, is);
        self.resolve.clock_set(was, is);
        self.poll.clock_set(was, is);
    }

    /// The app, as of the driver's last load.
    pub fn app_state(&self) -> &AppState {
        &self.app_state
    }

    /// For how long the deploy that rolls out has to stay complete, as far as this driver knows.
    pub fn settles_for(&self) -> Duration {
        let policy = &self.app_state.app.policy;
        let is_verified = self.app_state.rolling_out().is_some_and(|deploy| deploy.verification.is_some());
        self.rollout.as_ref().map_or(policy.settle, |rollout| rollout.settles_for(policy, is_verified))
    }

    /// The awaited runs: of a release command, and of one by hand. A hint of the runner is [`Event::ReleaseChanged`].
    pub fn runs(&self) -> Vec<ReleaseRun> {
        let release = self.release.as_ref().map(|release| release::run(&self.app_state, release.revision));
        let by_hand = self.by_hand.as_ref().map(|run| by_hand::id(&self.app_state, run.number));
        release.into_iter().chain(by_hand).collect()
    }

    /// The verification whose measurements are under way; those of any other are to be dropped.
    pub fn measuring(&self) -> Option<RoundOf> {
        self.verify.under_way()
    }

    /// The deploy whose image's registry is being asked; the answer for any other is to be dropped.
    pub fn resolving(&self) -> Option<Revision> {
        self.resolve.under_way()
    }

    /// Returns whether this process can read what the app is polled for.
    fn reads_source(&self) -> bool {
        match self.app_state.app.source {
            Source::Git(_) => self.has_builder,
            Source::Image => self.has_registry,
        }
    }

    /// The awaited build; a hint of the builder is [`Event::BuildChanged`].
    pub fn building(&self) -> Option<DeployId> {
        self.build_queue.building().map(|revision| DeployId { app: self.app_state.app.uid, revision })
    }
}

/// Processes an event, and returns the next effect.
pub fn step(mut state: State, event: Event, now: Timestamp) -> (State, Effect) {
    let forced = process(&mut state, event, now);
    let effect = forced.unwrap_or_else(|| next(&mut state, now));
    let effect = verifying::interleaved(&state, effect, now);
    let effect = watching::interleaved(&state, effect, now);
    let effect = resolving::interleaved(&mut state, effect, now);
    let effect = interleave::release(&state, effect, now);
    let effect = interleave::by_hand(&state, effect, now);
    let effect = if state.has_builder {
        interleave::build(&state, effect, now)
    } else if state.app_state.needs_builder() {
        // The rest of the work is left to a replica with a builder.
        Effect::Load
    } else {
        effect
    };
    let effect = if state.reads_source() { interleave::poll(&mut state, effect, now) } else { effect };
    if let Effect::Record(record) = &effect {
        state.pending.clone_from(&record.changes);
    }
    if let Effect::Observe(_) = &effect {
        state.observe_began_at = now;
    }
    if let Effect::Measure(round) = &effect {
        state.verify.begun(round);
    }
    (state, effect)
}

/// Processes an event. Returns the effect that has to come next, if the event demands one.
fn process(state: &mut State, event: Event, now: Timestamp) -> Option<Effect> {
    match event {
        Event::Loaded(app_state) => {
            loaded(state, *app_state, now);
        }
        Event::ApplyDropped(app_state) => {
            // Whether the apply has arrived is unknown.
            state.started_here = None;
            loaded(state, *app_state, now);
        }
        Event::Recorded(app_state) => {
            let was_rolling = rolling(&state.app_state).map(|deploy| deploy.revision);
            let is_rolling = |deploy: &&Deploy| deploy.status() == Status::RollingOut;
            let started = state.pending.iter().rev().find(is_rolling).map(|deploy| deploy.revision);
            state.started_here = started.filter(|started| Some(*started) != was_rolling).or(state.started_here);
            loaded(state, *app_state, now);
        }
        Event::Applied(Ok(applied)) => return applied_to(state, applied, now),
        Event::Observed(Ok(seen)) => {
            let Stored::RollingOut { since, outage } = rolling(&state.app_state)?.state else { return None };
            let rollout = state.rollout.as_mut()?;
            let is_followed = rollout::is_followed(&state.app_state, rollout.revision);
            rollout.observed(seen, (since, outage), is_followed, state.observe_began_at, now);
        }
        Event::Applied(Err(failed)) | Event::Observed(Err(failed)) => return call_failed(state, failed, now),
        Event::Collected(evidence) => {
            let failure = state.failure.take()?;
            let deploy = rolling(&state.app_state)?;
            return Some(fail(state, deploy, failure, evidence, true));
        }
        Event::ReleaseObserved(of, seen) => return commands::observed(state, of, seen, now),
        Event::ReleaseStarted(of, answer) => return commands::started(state, of, answer, now),
        Event::ReleaseCancelled(of, answer) => return commands::cancelled(state, of, answer, now),
        Event::TurnsRead { others, is_fresh } => return release_turns::read(state, others, is_fresh, now),
        Event::ReleaseChanged => {
            state.release.iter_mut().for_each(|release| release.changed(now));
            state.by_hand.iter_mut().for_each(|run| run.changed(now));
        }
        Event::BuildFound(found) => {
            let entry = state.build_queue.found(&state.app_state, found, now)?;
            return Some(record(state, vec![entry], Vec::new()));
        }
        Event::BuildStarted(revision, started) => {
            // A build runs that this driver does not know of: its app may be outdated.
            let outdated = matches!(started, Ok(Started::Busy(_)));
            let entry = state.build_queue.started(&state.app_state, revision, started, now);
            return entry.map(|entry| record(state, vec![entry], Vec::new())).or(outdated.then_some(Effect::Load));
        }
        Event::BuildObserved(seen) => match state.build_queue.observed(&state.app_state, seen, now) {
            BuildStep::Record(changes) => return Some(record(state, changes, Vec::new())),
            BuildStep::Call(call) => return Some(*call),
            BuildStep::At(_) | BuildStep::Idle => {}
        },
        Event::BuildCancelled(answer) => state.build_queue.cancelled(answer, now),
        Event::BuildChanged => state.build_queue.changed(now),
        Event::MeasureStarted => {}
        Event::ResolveStarted(revision) => resolving::started(state, revision),
        Event::Resolved(revision, answer) => return resolving::answered(state, revision, answer, now),
        Event::Measured(of, answers) => return verifying::measured(state, of, answers, now),
        Event::HeadReadStarted => state.poll.read_started(),
        Event::HeadReadPostponed => state.poll.postpone(&state.app_state, now),
        Event::HeadRead(head, random) => state.poll.read_ended(&state.app_state, head, now, random),
        Event::Detected(detected, random) => {
            state.poll.decided(&state.app_state, &detected, now, random);
            return matches!(detected, Detected::Accepted(_)).then_some(Effect::Load);
        }
        Event::Woke => {
            state.rollout.as_ref().filter(|rollout| rollout.applied)?;
            return spec(&state.app_state, &rolling(&state.app_state)?).map(Effect::Observe);
        }
    }
    None
}

/// Replaces the app by a newer one, and forgets the rollout that has ended.
fn loaded(state: &mut State, app_state: AppState, now: Timestamp) {
    state.app_state = app_state;
    state.read_at = now;
    state.pending.clear();
    state.build_queue.loaded(&state.app_state, now);
    state.verify.loaded(&state.app_state);
    state.poll.loaded(&state.app_state, now);
    // One that was abandoned ends before another begins.
    let releasing = state.app_state.releasing().map(|deploy| deploy.revision);
    let run = state.app_state.abandoned_release().or(releasing);
    if state.release.as_ref().map(|release| release.revision) != run {
        state.release = run.map(|revision| ReleaseProgress::new(revision, now));
    }
    let number = state.app_state.runs.unfinished.as_ref().map(|run| run.number);
    if state.by_hand.as_ref().map(|run| run.number) != number {
        state.by_hand = number.map(|number| ByHandProgress::new(number, now));
    }
    let revision = rolling(&state.app_state).map(|deploy| deploy.revision);
    if state.rollout.as_ref().is_some_and(|rollout| Some(rollout.revision) != revision) {
        state.rollout = None;
        state.failure = None;
    }
}

/// Returns the deploy that is rolling out.
fn rolling(app_state: &AppState) -> Option<Deploy> {
    app_state.rolling_out().map(|deploy| (**deploy).clone())
}

/// Returns the effect of committing changes, and whether the app is idle after it.
fn record(state: &State, changes: Vec<Deploy>, release_holds: Vec<Revision>) -> Effect {
    record_all(state, Record { changes, release_holds, ..Record::default() })
}

/// Returns the effect of committing this, and whether the app is idle after it.
fn record_all(state: &State, record: Record) -> Effect {
    debug_assert!(record.changes.iter().all(|change| is_allowed(state, change)), "{record:?}");
    let next = preview(state, record.clone());
    let owes = matches!(restore::owed(&next), Owed::Restore(_));
    let is_over = next.unfinished.is_empty() && !next.has_runs() && next.watch().is_none();
    let idle = is_over && !owes && state.build_queue.is_free(&next);
    Effect::Record(Record { idle, ..record })
}

/// Returns whether a deploy may come to its next state. One that has ended meanwhile is for the store to refuse.
fn is_allowed(state: &State, change: &Deploy) -> bool {
    let before = state.app_state.unfinished(change.revision);
    before.is_none_or(|before| transitions::is_allowed(before.status(), change.status()))
}

/// Returns the app with the changes applied.
fn preview(state: &State, record: Record) -> AppState {
    let mut change = Change::on(state.app_state.clone());
    // The store refuses what this preview refuses, and the driver decides again then.
    let _ = change.record(record, state.read_at);
    change.state
}

fn applied_to(state: &mut State, applied: Applied, now: Timestamp) -> Option<Effect> {
    let deploy = rolling(&state.app_state)?;
    match applied {
        Applied::Done => {
            let rollout = state.rollout.get_or_insert_with(|| RolloutProgress::new(deploy.revision, now));
            rollout.applied = true;
            rollout.failures = 0;
            let observe = spec(&state.app_state, &deploy).map_or(Effect::Load, Effect::Observe);
            Some(reachable_again(state, &deploy, now).unwrap_or(observe))
        }
        Applied::Newer(newer) => Some(record(state, vec![superseded(&state.app_state, &deploy, newer)], Vec::new())),
        Applied::Refused { reason, message } => {
            let failure = FailureReport { reason, message, observed: None };
            let touched = state.started_here != Some(deploy.revision);
            Some(fail(state, deploy, failure, None, touched))
        }
    }
}

fn call_failed(state: &mut State, failed: CallError, now: Timestamp) -> Option<Effect> {
    let deploy = rolling(&state.app_state)?;
    let Stored::RollingOut { since, outage } = deploy.state else { return None };
    let rollout = state.rollout.get_or_insert_with(|| RolloutProgress::new(deploy.revision, now));
    let lasted = match failed {
        CallError::Refused(message) => {
            let failure = FailureReport { reason: Reason::new(Reason::REFUSED), message, observed: None };
            let touched = rollout.applied || state.started_here != Some(deploy.revision);
            return Some(fail(state, deploy, failure, None, touched));
        }
        CallError::Unavailable => "The cluster could not be reached for an hour".to_owned(),
        CallError::Denied(what) => format!("The cluster denied permission for an hour ({what})"),
    };
    state.started_here = None;
    if outage.since.is_some() && outage.total(now) >= UNREACHABLE_MAX {
        let message = format!("{lasted}; whether the change arrived is not known.");
        let failure = FailureReport { reason: Reason::new(Reason::UNREACHABLE), message, observed: None };
        return Some(fail(state, deploy, failure, None, true));
    }
    rollout.failures += 1;
    if outage.since.is_none() {
        let outage = Outage { since: Some(now), ..outage };
        return Some(record(state, vec![deploy.moved(Stored::RollingOut { since, outage })], Vec::new()));
    }
    let until = now.after(retry::backoff(rollout.failures));
    // A newer revision need not wait for an unavailable cluster.
    taken_over(state, &deploy, now).or(Some(Effect::Wait(until)))
}

/// Records the end of an outage before anything else, so that the deadline goes on from there.
fn reachable_again(state: &State, deploy: &Deploy, now: Timestamp) -> Option<Effect> {
    let Stored::RollingOut { since, outage } = deploy.state else { return None };
    outage.since?;
    let outage = Outage { since: None, past: outage.total(now) };
    Some(record(state, vec![deploy.moved(Stored::RollingOut { since, outage })], Vec::new()))
}

fn next(state: &mut State, now: Timestamp) -> Effect {
    let highest = state.app_state.unfinished.iter().rfind(|deploy| deploy.may_begin()).map(|deploy| (**deploy).clone());
    let rolling = rolling(&state.app_state);
    if let Some(releasing) = state.app_state.releasing().cloned() {
        return commands::releasing_next(state, &releasing, now);
    }
    if let Some(unmet) = resolving::unmet(&state.app_state) {
        return record(state, unmet, Vec::new());
    }
    if let Some(outdated) = outdated(&state.app_state, rolling.as_ref()) {
        return record(state, outdated, Vec::new());
    }
    match (rolling, highest) {
        (_, None) => idle(state, now),
        (Some(rolling), Some(highest)) if rolling.revision < highest.revision => {
            taken_over(state, &rolling, now).unwrap_or_else(|| drive(state, rolling, now))
        }
        (Some(rolling), Some(_)) => drive(state, rolling, now),
        (None, Some(highest)) => begin(state, &highest, Vec::new(), now),
    }
}

/// Returns the ready entries that will never run: those below the highest ready one, or below the one on the cluster.
///
/// One that is still being built is none of them: the higher one is a restore, or was built before, and the build may
/// be the fix. See [`Change::built`].
fn outdated(app_state: &AppState, rolling: Option<&Deploy>) -> Option<Vec<Deploy>> {
    let rolling = rolling.map(|deploy| deploy.revision);
    let mut outdated = Vec::new();
    for deploy in app_state.unfinished.iter().filter(|deploy| Some(deploy.revision) != rolling && deploy.is_ready()) {
        let by = app_state.overtaken_by(deploy.revision);
        outdated.extend(by.map(|by| superseded(app_state, deploy, by)));
    }
    (!outdated.is_empty()).then_some(outdated)
}

/// Starts a newer rollout in place of one that has stalled, or of any if the newer one is a rollback. One that only waits for
/// old instances to end succeeds first.
fn taken_over(state: &State, rolling: &Deploy, now: Timestamp) -> Option<Effect> {
    let highest = state.app_state.unfinished.iter().rfind(|deploy| deploy.may_begin())?;
    if highest.revision <= rolling.revision {
        return None;
    }
    let policy = &state.app_state.app.policy;
    let stalled = state.rollout.as_ref().is_some_and(|rollout| rollout.stalled_at(policy) <= now);
    let waits = highest.trigger != Trigger::Rollback;
    if waits && (!stalled || is_over_but_for_old_ones(state, rolling, now)) {
        return None;
    }
    let ended = superseded(&state.app_state, rolling, highest.revision);
    Some(begin(state, highest, vec![ended], now))
}

/// Returns whether a deploy has settled, with the verdicts of its checks if it has any, and only old instances still end.
fn is_over_but_for_old_ones(state: &State, rolling: &Deploy, now: Timestamp) -> bool {
    let is_reached = matches!(rolling.state, Stored::RollingOut { outage, .. } if outage.since.is_none());
    let terms = Terms::of(&state.app_state, rolling).filter(|_| is_reached);
    let awaits = |terms: Terms<'_>| state.rollout.as_ref().is_some_and(|rollout| rollout.awaits_old_ones(&terms));
    terms.is_some_and(awaits)
        && match verifying::next_step(state, rolling, now) {
            Some(step) => matches!(step, VerifyStep::Done(_)),
            None => verifying::begun(state, rolling, now)
                .and_then(|begun| begun.verification)
                .is_none_or(|begun| begun.skipped.is_some()),
        }
}

fn begin(state: &State, deploy: &Deploy, mut changes: Vec<Deploy>, now: Timestamp) -> Effect {
    changes.push(match releases::command(&state.app_state.app, deploy) {
        Some(command) => {
            deploy.moved(Stored::Releasing { since: now, command: command.to_vec(), outage: Outage::default() })
        }
        None => rolling_out(deploy, now),
    });
    record(state, changes, Vec::new())
}

fn rolling_out(deploy: &Deploy, now: Timestamp) -> Deploy {
    let state = Stored::RollingOut { since: now, outage: Outage::default() };
    Deploy { touched: true, ..deploy.moved(state) }
}

fn superseded(app_state: &AppState, deploy: &Deploy, by: Revision) -> Deploy {
    let rollback = app_state
        .unfinished
        .iter()
        .chain(app_state.on_cluster())
        .any(|other| other.revision == by && other.trigger == Trigger::Rollback);
    deploy.moved(Stored::Superseded { by, rollback, newer: None })
}

/// Returns the next effect of the current rollout.
fn drive(state: &mut State, deploy: Deploy, now: Timestamp) -> Effect {
    let Stored::RollingOut { outage, .. } = deploy.state else { return Effect::Load };
    let Some(spec) = spec(&state.app_state, &deploy) else { return Effect::Load };
    let rollout = state.rollout.get_or_insert_with(|| RolloutProgress::new(deploy.revision, now));
    if !rollout.applied {
        return Effect::Apply(spec);
    }
    if outage.since.is_some() {
        let answered = rollout.failures == 0;
        let recorded = answered.then(|| reachable_again(state, &deploy, now)).flatten();
        return recorded.unwrap_or(Effect::Observe(spec));
    }
    let Some(terms) = Terms::of(&state.app_state, &deploy) else { return Effect::Load };
    match (rollout.outcome(&terms, now), verifying::next_step(state, &deploy, now)) {
        (RolloutOutcome::Newer(newer), _) => {
            record(state, vec![superseded(&state.app_state, &deploy, newer)], Vec::new())
        }
        (RolloutOutcome::Failed(failure), _) | (_, Some(VerifyStep::Failed(failure))) => {
            let observed = failure.observed.clone();
            state.failure = Some(failure);
            Effect::Collect(spec, observed)
        }
        (_, Some(VerifyStep::Asked(asked))) => record(state, vec![asked.moved(deploy.state.clone())], Vec::new()),
        (RolloutOutcome::Wait(at), _) if at <= now => Effect::Observe(spec),
        (RolloutOutcome::Wait(at), _) | (RolloutOutcome::Settled { .. }, Some(VerifyStep::Wait(at))) => {
            watch(state, &deploy, spec, at, now)
        }
        (RolloutOutcome::Settled { digest, note }, Some(VerifyStep::Done(verified))) => {
            succeed(state, &verified, digest, note)
        }
        (RolloutOutcome::Settled { digest, note }, None) => match verifying::begun(state, &deploy, now) {
            Some(begun) if begun.verification.as_ref().is_some_and(|begun| begun.skipped.is_none()) => {
                let begun = Deploy { digest: deploy.digest_beside(digest), ..begun };
                record(state, vec![begun.moved(deploy.state.clone())], Vec::new())
            }
            begun => succeed(state, &begun.unwrap_or(deploy), digest, note),
        },
    }
}

/// Returns the wait for a change of the rollout until this time at the latest, or until a newer one may take over.
fn watch(state: &State, deploy: &Deploy, spec: RolloutSpec, at: Timestamp, now: Timestamp) -> Effect {
    let newer = rollout::is_followed(&state.app_state, deploy.revision);
    let stalled_at = state.rollout.as_ref().map(|rollout| rollout.stalled_at(&state.app_state.app.policy));
    let until = stalled_at.filter(|_| newer).map_or(at, |stalled_at| at.min(stalled_at));
    Effect::Watch(spec, until.max(now))
}

fn succeed(state: &State, deploy: &Deploy, digest: Option<Digest>, note: Option<String>) -> Effect {
    // What the release command ran with is what was rolled out, also where the driver observes no digest.
    let digest = deploy.digest_beside(digest);
    let stays_stopped = state.app_state.stopped.as_ref().filter(|_| deploy.scale.is_keep()).map(|stopped| {
        let Stopped { since, by, .. } = stopped;
        format!("not started, as the app was stopped by revision {since} of {by}")
    });
    let revoked = state.app_state.remark_on_revoked(deploy);
    let unreleased = releases::remark_on_unreleased(deploy);
    let gap = verifying::remark(deploy);
    let notes = note.into_iter().chain(stays_stopped).chain(revoked).chain(unreleased).chain(gap);
    let note = notes.reduce(|one, other| format!("{one}; {other}"));
    let done = Deploy { digest, ..deploy.moved(Stored::Succeeded { note }) };
    let lifts = match deploy.trigger {
        // A restore as well: after a failed rollback it brings back the version before, which then runs and must not be
        // held.
        Trigger::Manual | Trigger::Promotion | Trigger::Rollback => true,
        Trigger::Webhook | Trigger::Git | Trigger::Registry | Trigger::Config => false,
    };
    let image = done.pinned_image();
    // A rebuild of a held commit is another image, but the same held commit.
    let built = matches!(state.app_state.app.source, Source::Git(_)).then_some(done.commit.as_ref()).flatten();
    let release_holds = state
        .app_state
        .app
        .holds
        .iter()
        .filter(|hold| lifts && (hold.covers(image.as_ref(), None) || hold.covers(None, built)))
        .map(|hold| hold.by)
        .collect();
    record(state, vec![done], release_holds)
}

fn fail(state: &State, deploy: Deploy, failure: FailureReport, evidence: Option<Evidence>, touched: bool) -> Effect {
    let deploy = verifying::decided(&state.app_state, deploy);
    let evidence = evidence::with_workloads(state, &deploy, &failure.reason, evidence);
    let message = evidence::with_platforms(&deploy, &failure.message, evidence.as_ref());
    let failure = FailureReport { message, ..failure };
    let ended = |message: String| {
        let state = Stored::Failed { reason: failure.reason.clone(), message, evidence: evidence.clone() };
        Deploy { touched, ..deploy.moved(state) }
    };
    let is_followed = rollout::is_followed(&state.app_state, deploy.revision);
    let record_of = |ended: Deploy| Record { changes: vec![ended], ..Record::default() };
    let message = match restore::owed(&preview(state, record_of(ended(String::new())))) {
        Owed::NothingToRestore if touched => {
            let before = state.app_state.ended_on_cluster.as_ref().map(|before| before.revision);
            let way = before.map(unproven).unwrap_or_default();
            let message = sentence(&failure.message);
            format!("{message} There is no earlier version that succeeded: nothing to restore.{way}")
        }
        Owed::Nothing if touched && !is_followed && ended(String::new()).was_changed_by_another() => {
            let way = if failure.reason.as_str() == Reason::REVERTED {
                ": the next deploy or rollback replaces it"
            } else {
                ""
            };
            format!("{} That change stays, and nothing is restored{way}.", sentence(&failure.message))
        }
        Owed::Restore(current) => released_remark(&state.app_state, deploy.revision, &current, &failure.message),
        Owed::NothingToRestore | Owed::Nothing => failure.message.clone(),
    };
    record(state, vec![ended(message)], Vec::new())
}

/// Returns the message of a deploy that is restored, with the release commands that ran since the version which is restored.
fn released_remark(app_state: &AppState, revision: Revision, restored: &Deploy, message: &str) -> String {
    // A failed deploy before this one may have changed a database as well, and was restored without its change.
    let released = app_state.released_otherwise_since(restored.effective);
    let with_stop = sentence(message);
    match released.as_slice() {
        [] => message.to_owned(),
        [own] if own.revision == revision => format!(
            "{with_stop} Its release command had run: what that changed, such as a database, may be newer than the version \
             that is restored."
        ),
        all => format!(
            "{with_stop} The {} ran, or may have run: what they changed, such as a database, may be newer than the version \
             that is restored.",
            releases::named(all)
        ),
    }
}

/// Returns a message with its full stop.
fn sentence(message: &str) -> String {
    if message.ends_with('.') { message.to_owned() } else { format!("{message}.") }
}

/// Returns the way back where no version has succeeded, such as to a container that was adopted and is not healthy.
fn unproven(before: Revision) -> String {
    format!(" A rollback that names revision {before} returns to that one all the same.")
}

fn idle(state: &State, now: Timestamp) -> Effect {
    let app_state = &state.app_state;
    if let Owed::Restore(current) = restore::owed(app_state) {
        Effect::Restore(current)
    } else if !app_state.unfinished.is_empty() || app_state.has_runs() || !state.build_queue.is_free(app_state) {
        Effect::Wait(now.after(retry::backoff(u32::MAX)))
    } else if let Some(effect) = watching::idle(state, now) {
        effect
    } else if app_state.is_polled() {
        Effect::Wait(now.after(POLL_ONLY_WAIT))
    } else if app_state.queued_at.is_none() {
        Effect::Stop
    } else {
        Effect::Record(Record { idle: true, ..Record::default() })
    }
}
