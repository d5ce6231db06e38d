//! The health of a deploy's instances after its end, by the observations of its target at rest.
//!
//! One observation is not enough: a container that ends every 14 s runs most of the time, and a node that is replaced
//! leaves an app with one instance fewer for a moment.

use std::{collections::VecDeque, time::Duration};

use crate::{
    app::Policy,
    deploy::{Reason, Revision},
    ports::{Observation, Phase, RolloutFailureKind},
    time::Timestamp,
};

/// The time within which restarts count together, and the longest time for which instances must run well after them:
/// the longest backoff of a kubelet, twice.
const WINDOW: Duration = Duration::from_secs(600);
/// The time for which a crash, or a failure that cannot heal, may last in one piece: an instance that ended once is started
/// again sooner.
const CRASH_MAX: Duration = Duration::from_secs(5);
/// The least time for which instances must run well after one has ended.
const PROOF_MIN: Duration = Duration::from_secs(30);
/// The interval of observations while the instances are not well: a change of their failure may come without a hint.
const REPEAT: Duration = Duration::from_secs(60);

/// A deploy's instances do not run as they should, after its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Degraded {
    /// The code: that of the failure, [`Reason::RESTARTING`] or [`Reason::NOT_READY`].
    pub reason: Reason,
    /// The trouble in a sentence that a person can act on.
    pub message: String,
    /// The time since which it is known.
    pub since: Timestamp,
}

/// The observations of one deploy at rest. Times are those of the process's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The deploy that is observed.
    pub revision: Revision,
    /// The restarts at the last observation.
    restarts: u32,
    /// The ends of instances within [`WINDOW`], with their number.
    ends: VecDeque<(Duration, u32)>,
    /// Whether the last end was seen as a crash, and is counted before the platform does.
    is_ahead: bool,
    crashing_since: Option<Duration>,
    well_since: Option<Duration>,
    unwell_since: Option<Duration>,
    settle: Duration,
    patience: Duration,
    degraded: Option<Degraded>,
}

impl Health {
    /// Returns the health of a deploy that was not observed before.
    pub fn new(revision: Revision) -> Self {
        Self {
            revision,
            restarts: u32::MAX,
            ends: VecDeque::new(),
            is_ahead: false,
            crashing_since: None,
            well_since: None,
            unwell_since: None,
            settle: Duration::ZERO,
            patience: Duration::ZERO,
            degraded: None,
        }
    }

    /// The trouble of the instances; `None`: none is known.
    pub const fn degraded(&self) -> Option<&Degraded> {
        self.degraded.as_ref()
    }

    /// Returns whether the instances have run well for as long as a success takes, and longer than between two of their
    /// ends before.
    pub fn is_proven(&self, now: Duration) -> bool {
        self.well_since.is_some_and(|since| now.saturating_sub(since) >= self.proof())
    }

    /// Returns the time of the next observation that is needed whatever hints come; `None`: none is.
    pub fn due(&self, now: Duration) -> Option<Duration> {
        let decided_at = match (self.well_since, &self.degraded) {
            (Some(since), _) => Some(since + self.proof()),
            (None, Some(_)) => None,
            (None, None) => {
                let crash = self.crashing_since.map(|since| since + CRASH_MAX);
                self.unwell_since.map(|since| since + self.patience).into_iter().chain(crash).min()
            }
        };
        let repeated_at = self.unwell_since.map(|_| now + REPEAT);
        decided_at.filter(|at| *at > now).into_iter().chain(repeated_at).min()
    }

    /// Takes in an observation of an app with this policy, made now, which is `time` by the store's clock.
    pub fn observed(&mut self, seen: &Observation, policy: &Policy, now: Duration, time: Timestamp) {
        (self.settle, self.patience) = (policy.settle, policy.patience);
        let is_certain = |kind| matches!(kind, RolloutFailureKind::Crash | RolloutFailureKind::Final);
        let is_crashing = seen.failure.as_ref().is_some_and(|failure| is_certain(failure.kind));
        let has_ended = self.count_ends(seen.restarts, is_crashing, now);
        self.crashing_since = is_crashing.then(|| self.crashing_since.unwrap_or(now));
        if matches!(seen.phase, Phase::Complete { .. }) && seen.failure.is_none() {
            self.unwell_since = None;
            self.well_since = Some(self.well_since.filter(|_| !has_ended).unwrap_or(now));
        } else {
            self.well_since = None;
            // Where all are ready, others may be about to take their places: a person has restarted them.
            let is_lacking = seen.instances.is_none_or(|instances| instances.ready < instances.wanted);
            self.unwell_since = (is_lacking || seen.failure.is_some()).then(|| self.unwell_since.unwrap_or(now));
        }
        if self.degraded.is_some() && self.is_proven(now) {
            self.degraded = None;
            self.ends.clear();
        } else if let Some((reason, message)) = self.trouble(seen, now) {
            let since = self.degraded.as_ref().map_or(time, |degraded| degraded.since);
            self.degraded = Some(Degraded { reason, message, since });
        }
    }

    /// Notes the instances that ended since the last observation, and returns whether any did.
    fn count_ends(&mut self, restarts: u32, is_crashing: bool, now: Duration) -> bool {
        let is_first = self.restarts == u32::MAX;
        let mut ended = if is_first { 0 } else { restarts.saturating_sub(self.restarts) };
        let grows = ended > 0;
        if restarts != self.restarts && std::mem::take(&mut self.is_ahead) {
            ended = ended.saturating_sub(1);
        }
        self.restarts = restarts;
        // Some platforms count an end once the instance is started again, which a crash loop delays.
        if is_crashing && self.crashing_since.is_none() && !grows {
            // An instance that was restarted before this process looked has ended once at least.
            ended = 1 + u32::from(is_first && restarts > 0);
            self.is_ahead = true;
        }
        if ended > 0 {
            self.ends.push_back((now, ended));
        }
        while self.ends.front().is_some_and(|(at, _)| now.saturating_sub(*at) > WINDOW) {
            self.ends.pop_front();
        }
        ended > 0 || grows
    }

    /// Returns the reason and the message of a trouble that is certain now.
    fn trouble(&self, seen: &Observation, now: Duration) -> Option<(Reason, String)> {
        let lasts = |since: Option<Duration>, time| since.is_some_and(|since| now.saturating_sub(since) >= time);
        let is_certain = self.loops(seen)
            || lasts(self.crashing_since, CRASH_MAX)
            || lasts(self.unwell_since, self.patience)
            || (self.degraded.is_some() && self.unwell_since.is_some());
        if !is_certain {
            return None;
        }
        if let Some(failure) = &seen.failure {
            return Some((failure.reason.clone(), failure.message.clone()));
        }
        if self.loops(seen) {
            // Between two crashes, the platform's word for them says more.
            let known = self.degraded.as_ref().map(|degraded| (degraded.reason.clone(), degraded.message.clone()));
            return Some(known.unwrap_or_else(|| (Reason::new(Reason::RESTARTING), self.restarting())));
        }
        let message = seen.instances.map_or_else(
            || seen.message.clone(),
            |instances| format!("{} of {} instances are ready", instances.ready, instances.wanted),
        );
        Some((Reason::new(Reason::NOT_READY), message))
    }

    /// Returns whether some instance has ended twice within [`WINDOW`]: together they ended more often than there are.
    fn loops(&self, seen: &Observation) -> bool {
        let wanted = seen.instances.map_or(1, |instances| instances.wanted.max(1));
        self.count() > wanted
    }

    fn count(&self) -> u32 {
        self.ends.iter().map(|(_, count)| *count).fold(0, u32::saturating_add)
    }

    fn restarting(&self) -> String {
        let within =
            self.ends.front().zip(self.ends.back()).map_or(0, |((first, _), (last, _))| (*last - *first).as_secs());
        format!(
            "instances ended {} times within {} s and were started again: see their log for why",
            self.count(),
            within.max(1)
        )
    }

    /// Returns the time for which the instances must run well to count as recovered.
    fn proof(&self) -> Duration {
        let times = self.ends.iter().zip(self.ends.iter().skip(1));
        let longest = times.map(|((one, _), (next, _))| *next - *one).max().unwrap_or_default();
        let least = if self.ends.is_empty() { Duration::ZERO } else { PROOF_MIN };
        (longest * 2).min(WINDOW).max(least).max(self.settle)
    }
}

#[cfg(test)]
mod tests;
