//! One run of a command, whether a deploy's or a person's: what its driver knows of its own calls to the runner.

use std::time::Duration;

use super::retry;
use crate::{ports::ReleaseState, time::Timestamp};

/// The interval of observations of a run without a hint from the runner.
pub(super) const OBSERVE_INTERVAL: Duration = Duration::from_secs(2);
/// The interval of loads of the app during a run without a hint from the store: hints may be lost, and the policy changed.
pub(super) const RELOAD_INTERVAL: Duration = Duration::from_secs(15);
/// The time within which a run that was told to end is seen to have ended.
const END_WITHIN: Duration = Duration::from_secs(600);
/// The interval of cancels of a run that does not end.
const CANCEL_INTERVAL: Duration = Duration::from_secs(60);
/// The number of observations of a run that has begun without its record; the record may only be read late.
const UNRECORDED_MAX: u32 = 3;

/// A driver's knowledge of its calls. A restart may lose it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunCalls {
    /// The time of the next call.
    pub(super) call_at: Timestamp,
    /// The number of consecutive failed calls.
    pub(super) failures: u32,
    /// The time of the last answer that the run has not ended.
    pub(super) seen_at: Option<Timestamp>,
    /// The number of answers that it has begun, though that is not recorded.
    unrecorded: u32,
    /// Whether the runner has answered a start.
    pub(super) started: bool,
    /// The time at which the runner has answered a cancel.
    pub(super) cancelled: Option<Timestamp>,
    /// The time at which it has answered the first one.
    first_cancelled: Option<Timestamp>,
}

impl RunCalls {
    pub(super) const fn new(now: Timestamp) -> Self {
        Self {
            call_at: now,
            failures: 0,
            seen_at: None,
            unrecorded: 0,
            started: false,
            cancelled: None,
            first_cancelled: None,
        }
    }

    /// Adjusts to a clock that was set from `was` to `is`.
    pub(super) fn clock_set(&mut self, was: Timestamp, is: Timestamp) {
        self.call_at = self.call_at.reset(was, is);
        self.seen_at = self.seen_at.map(|at| at.reset(was, is));
        self.cancelled = self.cancelled.map(|at| at.reset(was, is));
        self.first_cancelled = self.first_cancelled.map(|at| at.reset(was, is));
    }

    /// Processes a hint of the runner.
    pub(super) fn changed(&mut self, now: Timestamp) {
        if self.failures == 0 {
            self.call_at = now;
        }
    }

    /// Processes the answer that a run is started.
    pub(super) fn started(&mut self, now: Timestamp) {
        (self.started, self.call_at) = (true, now.after(Duration::from_millis(200)));
    }

    /// Processes the answer that a run is told to end.
    pub(super) fn cancelled(&mut self, now: Timestamp) {
        (self.cancelled, self.call_at) = (Some(now), now);
        self.first_cancelled.get_or_insert(now);
    }

    /// Returns whether a run that is to end since then, and was told so, has had the time to.
    pub(super) fn should_have_ended(&self, since: Timestamp, now: Timestamp) -> bool {
        self.first_cancelled.is_some_and(|asked| asked.max(since).after(END_WITHIN) <= now)
    }

    /// Processes an observation.
    pub(super) fn observed(&mut self, seen: &ReleaseState, now: Timestamp) {
        self.call_at = now.after(OBSERVE_INTERVAL);
        // A run that goes on after a cancel is cancelled again: its machine may have come back.
        self.cancelled.take_if(|at| *seen == ReleaseState::Running && now.since(*at) >= CANCEL_INTERVAL);
    }

    /// Processes an observation of a run that has begun, though that is not recorded: another replica has recorded it, or
    /// somebody else has started it. Returns whether the record is missing for good.
    pub(super) fn is_unrecorded(&mut self) -> bool {
        self.unrecorded += 1;
        self.unrecorded >= UNRECORDED_MAX
    }

    /// Returns whether the run was seen not to have ended a moment ago. One that has ended while nobody looked has not missed
    /// its deadline.
    pub(super) fn is_seen(&self, now: Timestamp) -> bool {
        self.seen_at.is_some_and(|at| now.since(at) <= 2 * OBSERVE_INTERVAL)
    }

    /// Returns whether a run that was begun is observed next; else it is started, which changes nothing if it was before.
    pub(super) const fn is_under_way(&self) -> bool {
        self.started || self.cancelled.is_some()
    }

    /// Processes a failed call.
    pub(super) fn failed(&mut self, now: Timestamp) {
        self.call_at = now.after(retry::backoff(self.failures));
        self.failures = self.failures.saturating_add(1);
    }
}
