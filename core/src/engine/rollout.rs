//! The outcome of a rollout by its observations: in progress, failed, or settled.

use std::time::Duration;

use crate::{
    app::{App, Policy},
    deploy::{Outage, Reason, Revision},
    image::Digest,
    ports::{Observation, Phase, RolloutFailure},
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
    failure: Option<(Timestamp, Timestamp, RolloutFailure)>,
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
            failure: None,
            last: None,
        }
    }

    /// Adjusts to a clock that was set from `was` to `is`, so that measured durations stay as long as they were.
    pub(super) fn clock_set(&mut self, was: Timestamp, is: Timestamp) {
        let reset = |at: &mut Timestamp| *at = at.reset(was, is);
        reset(&mut self.progressed_at);
        self.complete.iter_mut().for_each(|(since, _)| reset(since));
        self.last.iter_mut().for_each(|(seen_at, _)| reset(seen_at));
        self.failure.iter_mut().for_each(|(first, last, _)| [first, last].into_iter().for_each(reset));
    }

    /// Processes an observation made at some moment between `asked` and `now`.
    pub fn observed(&mut self, seen: Observation, asked: Timestamp, now: Timestamp) {
        self.failures = 0;
        if seen.progress != self.progress {
            self.progress.clone_from(&seen.progress);
            self.progressed_at = now;
        }
        let goes_on = |before: &RolloutFailure, failure: &RolloutFailure| {
            before.kind == failure.kind || (before.kind.may_heal() && failure.kind.may_heal())
        };
        self.failure = match (seen.failure.clone(), self.failure.take()) {
            (Some(failure), Some((first, _, before))) if goes_on(&before, &failure) => Some((first, now, failure)),
            (Some(failure), _) => Some((now, now, failure)),
            (None, Some((first, last, before))) if now.since(last) < FAILURE_EXPIRY => Some((first, last, before)),
            (None, _) => None,
        };
        self.complete = match (&seen.phase, self.complete) {
            (Phase::Complete { .. }, Some((since, restarts))) if restarts == seen.restarts => Some((since, restarts)),
            (Phase::Complete { .. }, _) => {
                self.first_restarts.get_or_insert(seen.restarts);
                Some((now, seen.restarts))
            }
            (Phase::Progressing, _) => None,
        };
        self.last = Some((asked, seen));
    }

    /// Returns when a newer revision may take over, unless there is progress until then. Settling counts as progress,
    /// unless a container restarts meanwhile.
    pub fn stalled_at(&self, policy: &Policy) -> Timestamp {
        let undisturbed = self.complete.filter(|(_, restarts)| Some(*restarts) == self.first_restarts);
        let settled_at = undisturbed.map(|(complete, _)| complete.after(policy.settle));
        self.progressed_at.max(settled_at.unwrap_or(self.progressed_at)).after(STALL_TIMEOUT)
    }

    /// Returns the outcome of a rollout of this app that began at `since`.
    ///
    /// The outcome is as of the last observation: changes since then, while the driver was paused or its store slow,
    /// are unknown until the next one.
    pub fn outcome(&self, app: &App, since: Timestamp, outage: Outage, now: Timestamp) -> RolloutOutcome {
        let policy = &app.policy;
        let Some((seen_at, last)) = &self.last else { return RolloutOutcome::Wait(now) };
        // Revisions of another registration, whose target was taken over, do not compare with this one's.
        if let Some(deploy) = last.deploy.filter(|deploy| deploy.app == app.uid && deploy.revision > self.revision) {
            return RolloutOutcome::Newer(deploy.revision);
        }
        if let Some(failure) = self.failure(policy, last, *seen_at) {
            return RolloutOutcome::Failed(failure);
        }
        let settled_at = self.complete.map(|(complete, _)| complete.after(policy.settle));
        if let (Phase::Complete { digest, note }, Some(at), None) = (&last.phase, settled_at, &last.failure)
            && at <= *seen_at
        {
            return RolloutOutcome::Settled { digest: digest.clone(), note: note.clone() };
        }
        let deadline = since.after(policy.rollout_deadline + outage.total(*seen_at));
        if deadline <= *seen_at {
            return RolloutOutcome::Failed(self.late(policy, last));
        }
        let lasting = last.failure.as_ref().and(self.failure.as_ref());
        let fails_at =
            lasting.and_then(|(first, _, failure)| Some(first.after(failure.kind.may_last(policy.patience)?)));
        let next = [Some(deadline), settled_at, fails_at].into_iter().flatten().filter(|at| at > seen_at).min();
        RolloutOutcome::Wait(next.unwrap_or(deadline))
    }

    fn failure(&self, policy: &Policy, last: &Observation, seen_at: Timestamp) -> Option<FailureReport> {
        if let (Some((first, _, failure)), Some(_)) = (&self.failure, &last.failure)
            && failure.kind.may_last(policy.patience).is_some_and(|limit| seen_at.since(*first) >= limit)
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
            message: format!("Containers of the new version restarted {restarts} times after they had been ready."),
            observed: self.failure.as_ref().map(|(_, _, failure)| failure.clone()),
        })
    }

    fn late(&self, policy: &Policy, last: &Observation) -> FailureReport {
        let waited = policy.rollout_deadline.as_secs_f64();
        let observed = self.failure.as_ref().map(|(_, _, failure)| failure.clone());
        // What the rollout has waited for to its end is the reason, and says more than that the time is over.
        let lasting = observed.as_ref().filter(|_| last.failure.is_some());
        let message = lasting.map_or(&last.message, |failure| &failure.message);
        FailureReport {
            reason: lasting.map_or_else(|| Reason::new(Reason::DEADLINE), |failure| failure.reason.clone()),
            message: format!("The rollout did not end within {waited} s. Last seen: {message}"),
            observed,
        }
    }
}

#[cfg(test)]
mod tests;
