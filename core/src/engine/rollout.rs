//! The outcome of a rollout by its observations: in progress, failed, or settled.

mod lives;

use std::time::Duration;

use lives::Lives;

use super::deadline;
use crate::{
    app::{AppUid, Policy},
    deploy::{Deploy, Outage, Reason, Revision, Scale, State},
    image::Digest,
    ledger::AppState,
    ports::{Observation, Phase, RolloutFailure, RolloutFailureKind, WorkloadState},
    time::Timestamp,
};

/// A rollout without progress for this long gives way to a newer one.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The time for which the cluster may be unavailable before a deploy fails.
pub const UNREACHABLE_MAX: Duration = Duration::from_secs(60 * 60);
/// Trouble that was not observed for this long is over; a container runs for a while between two crashes.
const FAILURE_EXPIRY: Duration = Duration::from_secs(30);
/// Restarts within the settling time that make a rollout fail.
const RESTARTS_MAX: u32 = 3;

/// The reason why a rollout has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureReport {
    /// The code of the failure.
    pub reason: Reason,
    /// A sentence that a person can act on.
    pub message: String,
    /// The failure that the rollout driver observed, if that is the reason.
    pub observed: Option<RolloutFailure>,
}

/// The outcome of a rollout so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloutOutcome {
    /// The rollout goes on; observe again by this time at the latest.
    Wait(Timestamp),
    /// The target carries a newer revision of the app.
    Newer(Revision),
    /// The rollout has failed.
    Failed(FailureReport),
    /// The rollout succeeded and settled.
    Settled {
        /// The observed digest.
        digest: Option<Digest>,
        /// A remark for the history.
        note: Option<String>,
    },
}

/// The facts by which a rollout is judged, beside its observations.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    app: AppUid,
    policy: &'a Policy,
    since: Timestamp,
    outage: Outage,
    /// Whether the deploy puts another version in the place of one that ran well, which a restore would bring back.
    replaces: bool,
    /// Whether the rollout had settled, and is verified.
    is_verified: bool,
    /// Whether a newer deploy is ready to roll out.
    is_followed: bool,
}

impl<'a> Terms<'a> {
    /// Returns the terms of a deploy of the app; `None` unless it is rolling out.
    pub fn of(app_state: &'a AppState, deploy: &Deploy) -> Option<Self> {
        let State::RollingOut { since, outage } = deploy.state else { return None };
        let is_stop = deploy.scale == Scale::Stop;
        let replaces = app_state.current.is_some() && !deploy.adopted && !deploy.is_restore() && !is_stop;
        Some(Self {
            app: app_state.app.uid,
            policy: &app_state.app.policy,
            since,
            outage,
            replaces,
            is_verified: deploy.verification.is_some(),
            is_followed: is_followed(app_state, deploy.revision),
        })
    }
}

/// Returns whether a deploy newer than this one is ready to roll out.
pub(super) fn is_followed(app_state: &AppState, revision: Revision) -> bool {
    app_state.unfinished.iter().any(|other| other.may_begin() && other.revision > revision)
}

/// A driver's observations of one rollout. A restart may lose them: a new driver observes anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutProgress {
    /// The revision that is rolled out.
    pub revision: Revision,
    /// Whether this driver has applied the revision.
    pub applied: bool,
    /// The number of consecutive failed calls to the cluster.
    pub failures: u32,
    progress: String,
    progressed_at: Timestamp,
    complete: Option<(Timestamp, u32)>,
    first_restarts: Option<u32>,
    lives: Lives,
    /// The time since which the app has been down for the deploy, and the outage of the cluster up to then.
    down: Option<(Timestamp, Duration)>,
    failure: Option<(Timestamp, Timestamp, RolloutFailure)>,
    /// The time at which the rollout last ceased to be complete, or an instance of it was started again.
    disturbed_at: Timestamp,
    /// The workload that failed last, of several, as it was then: another one has its own patience.
    failing: Option<WorkloadState>,
    /// Whether a newer deploy was ready to roll out at the last observation.
    was_followed: bool,
    last: Option<(Timestamp, Observation)>,
}

impl RolloutProgress {
    /// Returns a watch that begins now.
    pub fn new(revision: Revision, now: Timestamp) -> Self {
        Self {
            revision,
            applied: false,
            failures: 0,
            progress: String::new(),
            progressed_at: now,
            complete: None,
            first_restarts: None,
            lives: Lives::default(),
            down: None,
            failure: None,
            disturbed_at: now,
            failing: None,
            was_followed: false,
            last: None,
        }
    }

    /// Adjusts to a clock that was set from `was` to `is`, so that measured durations stay as long as they were.
    pub(super) fn clock_set(&mut self, was: Timestamp, is: Timestamp) {
        let reset = |at: &mut Timestamp| *at = at.reset(was, is);
        reset(&mut self.progressed_at);
        reset(&mut self.disturbed_at);
        self.complete.iter_mut().for_each(|(since, _)| reset(since));
        self.down.iter_mut().for_each(|(since, _)| reset(since));
        self.last.iter_mut().for_each(|(seen_at, _)| reset(seen_at));
        self.failure.iter_mut().for_each(|(first, last, _)| [first, last].into_iter().for_each(reset));
    }

    /// Processes an observation made at some moment between `asked` and `now`, of a rollout that began at `since`, which a newer
    /// deploy that is ready follows or not.
    pub fn observed(
        &mut self,
        seen: Observation,
        (since, outage): (Timestamp, Outage),
        is_followed: bool,
        asked: Timestamp,
        now: Timestamp,
    ) {
        self.failures = 0;
        self.was_followed = is_followed;
        self.lives.observed(&seen.past_lives, (since <= now).then(|| now.since(since)));
        self.down = match (seen.down_for, self.down) {
            (None, _) => None,
            (Some(_), Some(down)) => Some(down),
            // This process saw the app serve; one that takes over has the platform's word.
            (Some(_), None) if self.last.is_some() => Some((now, outage.total(now))),
            (Some(lasted), None) => {
                let counted = now.since(since).saturating_sub(outage.total(now));
                Some((now.before(lasted.min(counted)), outage.total(now)))
            }
        };
        if seen.progress != self.progress {
            self.progress.clone_from(&seen.progress);
            self.progressed_at = now;
        }
        let is_same_workload = self.failing.as_ref().map(|failing| failing.name.as_str()) == seen.failing_workload();
        let goes_on = |before: &RolloutFailure, failure: &RolloutFailure| {
            is_same_workload && (before.kind == failure.kind || (before.kind.may_heal() && failure.kind.may_heal()))
        };
        if seen.failure.is_some() {
            self.failing = seen.workloads.iter().find(|workload| workload.is_failing).cloned();
        }
        self.failure = match (seen.failure.clone(), self.failure.take()) {
            (Some(failure), Some((first, _, before))) if goes_on(&before, &failure) => Some((first, now, failure)),
            (Some(failure), _) => Some((now, now, failure)),
            (None, Some((first, last, before))) if now.since(last) < FAILURE_EXPIRY => Some((first, last, before)),
            (None, _) => None,
        };
        let was_complete = self.complete;
        self.complete = match (&seen.phase, self.complete) {
            (Phase::Complete { .. }, Some((since, restarts))) if restarts == seen.restarts => Some((since, restarts)),
            (Phase::Complete { .. }, _) => {
                self.first_restarts.get_or_insert(seen.restarts);
                Some((now, seen.restarts))
            }
            (Phase::Progressing, _) => None,
        };
        if was_complete.is_some() && self.complete != was_complete {
            self.disturbed_at = now;
        }
        self.last = Some((asked, seen));
    }

    /// Returns whether this driver has seen the rollout since it applied it.
    pub(super) const fn is_observed(&self) -> bool {
        self.applied && self.last.is_some()
    }

    /// Returns whether the target is to have no instances, so that it serves nobody.
    pub(super) fn has_no_instances(&self) -> bool {
        self.last.as_ref().and_then(|(_, seen)| seen.instances).is_some_and(|instances| instances.wanted == 0)
    }

    /// Returns the workload of several whose failure has this reason, as it was when it was last seen to fail.
    pub(super) fn failing(&self, reason: &Reason) -> Option<&WorkloadState> {
        let is_reason = self.failure.as_ref().is_some_and(|(_, _, failure)| failure.reason == *reason);
        self.failing.as_ref().filter(|_| is_reason)
    }

    /// Returns the workloads of a target that has several, as of the last observation.
    pub(super) fn workloads(&self) -> &[WorkloadState] {
        self.last.as_ref().map_or(&[], |(_, seen)| &seen.workloads)
    }

    /// Returns when a newer revision may take over, unless there is progress until then. Settling counts as progress,
    /// unless a container restarts meanwhile.
    pub fn stalled_at(&self, policy: &Policy) -> Timestamp {
        let undisturbed = self.complete.filter(|(_, restarts)| Some(*restarts) == self.first_restarts);
        let settled_at = undisturbed.map(|(complete, _)| complete.after(policy.settle));
        self.progressed_at.max(settled_at.unwrap_or(self.progressed_at)).after(STALL_TIMEOUT)
    }

    /// Returns for how long the deploy has to stay complete: for the app's settling time, and longer where an instance was
    /// started again.
    pub fn settles_for(&self, policy: &Policy, is_verified: bool) -> Duration {
        let outlives = self.lives.to_outlive();
        // One that is verified ran well before, perhaps for hours.
        let outlives = if is_verified { outlives.min(policy.rollout_deadline / 2) } else { outlives };
        policy.settle.max(outlives)
    }

    /// Returns the outcome of the rollout.
    ///
    /// The outcome is as of the last observation: changes since then, while the driver was paused or its store slow,
    /// are unknown until the next one.
    pub fn outcome(&self, terms: &Terms<'_>, now: Timestamp) -> RolloutOutcome {
        let Terms { policy, since, outage, .. } = *terms;
        let Some((seen_at, last)) = &self.last else { return RolloutOutcome::Wait(now) };
        // Revisions of another registration, whose target was taken over, do not compare with this one's.
        if let Some(deploy) = last.deploy.filter(|deploy| deploy.app == terms.app && deploy.revision > self.revision) {
            return RolloutOutcome::Newer(deploy.revision);
        }
        if let Some(failure) = self.failure(terms, last, *seen_at) {
            return RolloutOutcome::Failed(failure);
        }
        let settled_at = self.settled_at(terms);
        let settled = self.settled(terms);
        if let Some(settled) = settled.clone().filter(|_| last.leaving.is_none() || terms.is_followed) {
            // Old instances that are to end keep no newer deploy waiting. The newer one may be ready for longer than since the last
            // observation.
            let is_known = last.leaving.is_none() || self.was_followed;
            return if is_known { settled } else { RolloutOutcome::Wait(now) };
        }
        let ready_by = self.ready_by(terms, last, *seen_at);
        if ready_by.is_some_and(|at| at <= *seen_at) {
            return RolloutOutcome::Failed(self.not_ready(policy, last));
        }
        // One that is verified was complete, and has the same time to become so again.
        let since = if terms.is_verified { since.max(self.disturbed_at) } else { since };
        let deadline = deadline::of_rollout(policy, since, outage.total(*seen_at));
        if deadline <= *seen_at {
            // Old instances that take long to end are no failure of the new ones.
            return settled.unwrap_or_else(|| RolloutOutcome::Failed(self.late(policy, last)));
        }
        let lasting = last.failure.as_ref().and(self.failure.as_ref());
        let fails_at = lasting.and_then(|(first, _, failure)| Some(first.after(may_last(failure, terms, last)?)));
        let next =
            [Some(deadline), settled_at, fails_at, ready_by].into_iter().flatten().filter(|at| at > seen_at).min();
        RolloutOutcome::Wait(next.unwrap_or(deadline))
    }

    /// Returns whether the rollout has settled, and is not over only because old instances still end.
    pub(super) fn awaits_old_ones(&self, terms: &Terms<'_>) -> bool {
        self.applied
            && self.settled(terms).is_some()
            && self.last.as_ref().is_some_and(|(_, seen)| seen.leaving.is_some())
    }

    /// Returns the time at which the rollout has settled, if it stays complete.
    fn settled_at(&self, terms: &Terms<'_>) -> Option<Timestamp> {
        let (complete, _) = self.complete?;
        Some(complete.after(self.settles_for(terms.policy, terms.is_verified)))
    }

    /// Returns the outcome of a rollout whose new instances have settled, whatever old ones there are.
    fn settled(&self, terms: &Terms<'_>) -> Option<RolloutOutcome> {
        let (seen_at, last) = self.last.as_ref()?;
        let (Phase::Complete { digest, note }, None) = (&last.phase, &last.failure) else { return None };
        self.settled_at(terms).filter(|at| at <= seen_at)?;
        let notes = [note.as_ref(), last.leaving.as_ref()].into_iter().flatten();
        let note = notes.cloned().reduce(|one, other| format!("{one}; {other}"));
        Some(RolloutOutcome::Settled { digest: digest.clone(), note })
    }

    fn failure(&self, terms: &Terms<'_>, last: &Observation, seen_at: Timestamp) -> Option<FailureReport> {
        if let (Some((first, _, failure)), Some(_)) = (&self.failure, &last.failure)
            && may_last(failure, terms, last).is_some_and(|limit| seen_at.since(*first) >= limit)
        {
            let failure = failure.clone();
            return Some(FailureReport {
                reason: failure.reason.clone(),
                message: failure.message.clone(),
                observed: Some(failure),
            });
        }
        let restarts = last.restarts.saturating_sub(self.first_restarts?);
        (restarts >= RESTARTS_MAX).then(|| FailureReport {
            reason: Reason::new(Reason::RESTARTING),
            message: format!(
                "Containers of the new version{} restarted {restarts} times after they had been ready.",
                restarted(&last.workloads)
            ),
            observed: self.failure.as_ref().map(|(_, _, failure)| failure.clone()),
        })
    }

    /// Returns the time by which an instance has to be ready, where the app is down for the deploy. Room that the platform
    /// has not is waited for: the version before would find none either.
    fn ready_by(&self, terms: &Terms<'_>, last: &Observation, seen_at: Timestamp) -> Option<Timestamp> {
        let waits_for_room = last.failure.as_ref().is_some_and(|failure| failure.kind == RolloutFailureKind::Capacity);
        let (since, outage) = self.down.filter(|_| terms.replaces && !waits_for_room)?;
        Some(since.after(terms.policy.ready_within + terms.outage.total(seen_at).saturating_sub(outage)))
    }

    fn not_ready(&self, policy: &Policy, last: &Observation) -> FailureReport {
        let waited = policy.ready_within.as_secs_f64();
        self.lasting(last, Reason::NOT_READY, |seen| {
            format!(
                "The old version had to stop first, and the new one was not ready within {waited} s, in which the app was \
                 down. Last seen: {seen}"
            )
        })
    }

    fn late(&self, policy: &Policy, last: &Observation) -> FailureReport {
        let waited = policy.rollout_deadline.as_secs_f64();
        let outlives = self.lives.to_outlive();
        if matches!(last.phase, Phase::Complete { .. }) && outlives > policy.settle {
            let outlives = outlives.as_secs_f64();
            let message = format!(
                "The rollout did not end within {waited} s: a container of the new version was started again, and did not \
                 run for {outlives} s after that, which is twice as long as before."
            );
            return FailureReport { reason: Reason::new(Reason::RESTARTING), message, observed: None };
        }
        self.lasting(last, Reason::DEADLINE, |seen| {
            format!("The rollout did not end within {waited} s. Last seen: {seen}")
        })
    }

    /// Returns the report of a rollout whose time is over: what it has waited for to its end is the reason, and says more
    /// than that.
    fn lasting(&self, last: &Observation, code: &str, message: impl Fn(&str) -> String) -> FailureReport {
        let observed = self.failure.as_ref().map(|(_, _, failure)| failure.clone());
        // Between two of its ends, a container of a crash loop runs as if nothing were wrong.
        let is_loop = |failure: &RolloutFailure| failure.kind == RolloutFailureKind::Crash;
        let lasting = observed.filter(|failure| last.failure.is_some() || is_loop(failure));
        FailureReport {
            reason: lasting.as_ref().map_or_else(|| Reason::new(code), |failure| failure.reason.clone()),
            message: message(lasting.as_ref().map_or(&last.message, |failure| &failure.message)),
            observed: lasting,
        }
    }
}

/// Returns the words for those of several workloads whose instances were restarted.
fn restarted(workloads: &[WorkloadState]) -> String {
    let restarted = workloads.iter().filter(|workload| workload.restarts > 0).map(|workload| workload.name.as_str());
    let names = restarted.collect::<Vec<_>>().join(", ");
    if names.is_empty() { String::new() } else { format!(" in {names}") }
}

/// Returns how long a failure may last; `None`: until the deadline. Where the app is down for the deploy, each further
/// start makes the outage longer.
fn may_last(failure: &RolloutFailure, terms: &Terms<'_>, last: &Observation) -> Option<Duration> {
    let is_outage = terms.replaces && last.down_for.is_some();
    if is_outage && failure.kind == RolloutFailureKind::Crash {
        return Some(Duration::ZERO);
    }
    failure.kind.may_last(terms.policy.patience)
}

#[cfg(test)]
mod tests;
