//! What a rollout's observations mean: still moving, failing for good, or settled.

use std::time::Duration;

use crate::{
    app::{App, Policy},
    deploy::{Outage, Reason, Revision},
    image::Digest,
    ports::{Observation, Phase, RolloutFailure},
    time::Timestamp,
};

/// A rollout without progress for this long gives way to a newer one.
pub const STALLED: Duration = Duration::from_secs(10);
/// How long the cluster may be out of reach before a deploy fails for it.
pub const UNREACHABLE_MAX: Duration = Duration::from_secs(60 * 60);
/// Trouble that was not seen for this long is over; between two crashes a container runs for a while.
const FORGOTTEN: Duration = Duration::from_secs(30);
/// Restarts within the settling time that make a rollout fail.
const RESTARTS_MAX: u32 = 3;

/// Why a rollout has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// The code.
    pub reason: Reason,
    /// A sentence that a person can act on.
    pub message: String,
    /// What the cluster reports, where it is that.
    pub trouble: Option<RolloutFailure>,
}

/// What is to be made of a rollout now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on; look again by then at the latest.
    Wait(Timestamp),
    /// A newer revision of the app is on the workload.
    Newer(Revision),
    /// It has failed.
    Failed(Failing),
    /// It runs, and stayed so.
    Settled {
        /// The digest that was observed.
        digest: Option<Digest>,
        /// A remark.
        note: Option<String>,
    },
}

/// What a driver remembers of the rollout that it watches. None of it must survive a restart: a new driver looks anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The revision.
    pub revision: Revision,
    /// Whether this driver has brought the cluster to it.
    pub applied: bool,
    /// Calls to the cluster that failed in a row.
    pub failures: u32,
    progress: String,
    progressed_at: Timestamp,
    complete: Option<(Timestamp, u32)>,
    first_restarts: Option<u32>,
    trouble: Option<(Timestamp, Timestamp, RolloutFailure)>,
    last: Option<(Timestamp, Observation)>,
}

impl Watch {
    /// A watch that begins now.
    pub fn new(revision: Revision, now: Timestamp) -> Self {
        Self {
            revision,
            applied: false,
            failures: 0,
            progress: String::new(),
            progressed_at: now,
            complete: None,
            first_restarts: None,
            trouble: None,
            last: None,
        }
    }

    /// Takes in that the clock was set from `was` to `is`, so that what had lasted for a second has lasted for no more.
    pub(super) fn clock_set(&mut self, was: Timestamp, is: Timestamp) {
        let reset = |at: &mut Timestamp| *at = at.reset(was, is);
        reset(&mut self.progressed_at);
        self.complete.iter_mut().for_each(|(since, _)| reset(since));
        self.last.iter_mut().for_each(|(seen_at, _)| reset(seen_at));
        self.trouble.iter_mut().for_each(|(first, last, _)| [first, last].into_iter().for_each(reset));
    }

    /// Takes in what was seen at some moment between `asked` and `now`.
    pub fn observed(&mut self, seen: Observation, asked: Timestamp, now: Timestamp) {
        self.failures = 0;
        if seen.progress != self.progress {
            self.progress.clone_from(&seen.progress);
            self.progressed_at = now;
        }
        self.trouble = match (seen.trouble.clone(), self.trouble.take()) {
            (Some(trouble), Some((first, _, before))) if before.kind == trouble.kind => Some((first, now, trouble)),
            (Some(trouble), _) => Some((now, now, trouble)),
            (None, Some((first, last, before))) if now.since(last) < FORGOTTEN => Some((first, last, before)),
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

    /// When a newer revision may take over, if nothing moves until then. What runs and settles waits for nothing but
    /// time: that is progress, unless a container restarts meanwhile.
    pub fn stalled_at(&self, policy: &Policy) -> Timestamp {
        let undisturbed = self.complete.filter(|(_, restarts)| Some(*restarts) == self.first_restarts);
        let settled_at = undisturbed.map(|(complete, _)| complete.after(policy.settle));
        self.progressed_at.max(settled_at.unwrap_or(self.progressed_at)).after(STALLED)
    }

    /// What is to be made of it, for a rollout of this app that began at `since`.
    ///
    /// It is judged as of the last look: what has happened since, while the driver was stopped or its store slow, is not
    /// known until the next one.
    pub fn verdict(&self, app: &App, since: Timestamp, outage: Outage, now: Timestamp) -> Verdict {
        let policy = &app.policy;
        let Some((seen_at, last)) = &self.last else { return Verdict::Wait(now) };
        // Another registration's numbers, which what was taken over carries, say nothing about this one's.
        if let Some(stamp) = last.stamp.filter(|stamp| stamp.app == app.uid && stamp.revision > self.revision) {
            return Verdict::Newer(stamp.revision);
        }
        if let Some(failing) = self.failing(last, *seen_at) {
            return Verdict::Failed(failing);
        }
        let settled_at = self.complete.map(|(complete, _)| complete.after(policy.settle));
        if let (Phase::Complete { digest, note }, Some(at), None) = (&last.phase, settled_at, &last.trouble)
            && at <= *seen_at
        {
            return Verdict::Settled { digest: digest.clone(), note: note.clone() };
        }
        let deadline = since.after(policy.rollout_deadline + outage.total(*seen_at));
        if deadline <= *seen_at {
            return Verdict::Failed(self.late(policy, last));
        }
        let patience =
            last.trouble.as_ref().and(self.trouble.as_ref()).map(|(first, _, t)| first.after(t.kind.grace_period()));
        let next = [Some(deadline), settled_at, patience].into_iter().flatten().filter(|at| at > seen_at).min();
        Verdict::Wait(next.unwrap_or(deadline))
    }

    fn failing(&self, last: &Observation, seen_at: Timestamp) -> Option<Failing> {
        if let (Some((first, _, trouble)), Some(_)) = (&self.trouble, &last.trouble)
            && seen_at.since(*first) >= trouble.kind.grace_period()
        {
            let trouble = trouble.clone();
            return Some(Failing {
                reason: trouble.reason.clone(),
                message: trouble.message.clone(),
                trouble: Some(trouble),
            });
        }
        let restarts = last.restarts.saturating_sub(self.first_restarts?);
        (restarts >= RESTARTS_MAX).then(|| Failing {
            reason: Reason::new(Reason::RESTARTING),
            message: format!("Containers of the new version restarted {restarts} times after they had been ready."),
            trouble: self.trouble.as_ref().map(|(_, _, trouble)| trouble.clone()),
        })
    }

    fn late(&self, policy: &Policy, last: &Observation) -> Failing {
        let waited = policy.rollout_deadline.as_secs_f64();
        Failing {
            reason: Reason::new(Reason::DEADLINE),
            message: format!("The rollout did not end within {waited} s. Last seen: {}", last.message),
            trouble: self.trouble.as_ref().map(|(_, _, trouble)| trouble.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
