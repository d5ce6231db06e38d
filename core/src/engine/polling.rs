//! The schedule of polls of an app's source, and the decision on the heads that they find.
//!
//! Each poll begins with a load of the app, so that its owner's latest settings hold; then its branch is read, while
//! the driver does its other work; and the history is read only if the branch is at another commit than the last one
//! that was decided. A restart may lose all of this: the history has the deployed commits.

use std::time::Duration;

use crate::{
    app::Source,
    deploy::{Actor, Commit, Deploy, Revision, Trigger},
    ledger::{AppState, NewDeploy, admission},
    request::{Cause, DeployRequest, Refusal},
    source::{Fingerprint, GitSource},
    time::Timestamp,
};

/// The number of entries that are read at once to search for a commit.
pub const HISTORY_PAGE: usize = 200;

/// The time from a driver's start within which its first poll comes, at a point that differs per app: a replica with
/// many apps does not poll all of them at once.
const FIRST_POLL_WITHIN: Duration = Duration::from_secs(60);
/// The longest time until an undecided head is polled again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// The time between two consecutive polls after which an older head than the deployed one is believed.
const CONFIRM_AFTER: Duration = Duration::from_secs(5);
/// The longest time between two polls of a source that cannot be read, unless its interval is longer.
const BACKOFF_MAX: Duration = Duration::from_secs(30 * 60);
/// The longest time until settings that were changed at another replica are known.
const RELOAD_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// Polls come up to this fraction of their interval earlier or later.
const JITTER: u32 = 10;

/// The state of polling an app's source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Polling {
    phase: Phase,
    /// The number of consecutive failed polls.
    failures: u32,
    /// The head that was decided last.
    decided_head: Option<Commit>,
    /// The head of the last poll if it was not believed yet, and the time at which it was found first.
    unconfirmed: Option<(Commit, Timestamp)>,
    /// The source that this state belongs to.
    source: Option<Fingerprint>,
    /// The time at which the app was loaded.
    read: Timestamp,
    at_least: Duration,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// The app is not polled.
    #[default]
    Off,
    /// The time of the next poll.
    Due(Timestamp),
    /// The app is being loaded.
    Loading,
    /// The app was just loaded; its branch is read next.
    Loaded,
    /// The branch is being read.
    Reading,
    /// The branch is at this commit, and the history is read next.
    Found(Commit),
}

/// The next step of polling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollStep {
    /// Wait for a change.
    Idle,
    /// Ask again at this time.
    At(Timestamp),
    /// Load the app.
    Reload,
    /// Load the app for a poll: [`Polling::load_started`].
    Load,
    /// Read the source's branch, without waiting for the answer.
    ReadBranch(Box<GitSource>),
    /// Decide whether a head is deployed.
    Detect(Box<Finding>),
}

/// The finding of a poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The branch's head.
    pub head: Commit,
    /// The head that was decided before, if any.
    pub before: Option<Commit>,
    /// Whether the previous poll found the same head, long enough ago: a single answer may come from a server that lags
    /// behind.
    pub confirmed: bool,
}

/// The outcome of deciding on a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detected {
    /// The history has the head already.
    Known,
    /// The head is accepted as this revision.
    Accepted(Revision),
    /// The rollback of this revision holds the head.
    Held(Revision),
    /// The head is older than the deployed one, which a single poll does not prove.
    Unconfirmed,
    /// The decision is postponed: too many deploys are unfinished, or the store is unavailable.
    Postponed,
}

/// The decision on a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadDecision {
    /// Ignored: the history has the head already.
    Known,
    /// Ignored: its entries may have been forgotten, so that the branch's previous place is unknown.
    Forgotten,
    /// Postponed: the head is older than the deployed one, and only one poll has found it.
    Unconfirmed,
    /// Deployed as this request.
    Deploy(Box<NewDeploy>),
    /// Held by the rollback of this revision.
    Held(Revision),
    /// Refused for this reason.
    Refused(Refusal),
}

impl Polling {
    /// Sets a lower bound for the interval, whatever the app's policy is.
    pub fn at_least(&mut self, at_least: Duration) {
        self.at_least = at_least;
    }

    /// Processes a load of the app.
    pub fn loaded(&mut self, app_state: &AppState, now: Timestamp) {
        let (Some(interval), Source::Git(source)) = (self.interval(app_state), &app_state.app.source) else {
            *self = Self { at_least: self.at_least, ..Self::default() };
            return;
        };
        let fingerprint = source.fingerprint();
        if self.source.as_ref() != Some(&fingerprint) {
            let first = self.source.is_none();
            let due = if first { first_poll(app_state, interval, now) } else { now };
            *self =
                Self { phase: Phase::Due(due), source: Some(fingerprint), at_least: self.at_least, ..Self::default() };
        }
        self.read = now;
        self.phase = match std::mem::take(&mut self.phase) {
            Phase::Loading => Phase::Loaded,
            Phase::Due(at) => Phase::Due(at.min(now.after(self.wait(interval)))),
            other @ (Phase::Off | Phase::Loaded | Phase::Reading | Phase::Found(_)) => other,
        };
    }

    /// Returns the next step.
    pub fn next_step(&self, app_state: &AppState, now: Timestamp) -> PollStep {
        match (&self.phase, &app_state.app.source) {
            (Phase::Due(at), _) if *at <= now => PollStep::Load,
            (Phase::Due(_), _) if self.read.after(RELOAD_INTERVAL) <= now => PollStep::Reload,
            (Phase::Due(at), _) => PollStep::At(self.read.after(RELOAD_INTERVAL).min(*at)),
            (Phase::Loaded, Source::Git(source)) => PollStep::ReadBranch(Box::new(source.clone())),
            (Phase::Found(head), _) => {
                let unconfirmed = self.unconfirmed.as_ref().filter(|(unconfirmed, _)| unconfirmed == head);
                let confirmed = unconfirmed.is_some_and(|(_, since)| since.after(CONFIRM_AFTER) <= now);
                PollStep::Detect(Box::new(Finding { head: head.clone(), before: self.decided_head.clone(), confirmed }))
            }
            (Phase::Off | Phase::Loading | Phase::Reading, _) | (Phase::Loaded, Source::Image) => PollStep::Idle,
        }
    }

    /// Processes the begin of a load for a poll.
    pub fn load_started(&mut self) {
        self.phase = Phase::Loading;
    }

    /// Processes the begin of reading the branch.
    pub fn read_started(&mut self) {
        self.phase = Phase::Reading;
    }

    /// Processes the end of reading the branch. `random` is a random number.
    pub fn read_ended(&mut self, app_state: &AppState, head: Option<Commit>, now: Timestamp, random: u64) {
        let (Phase::Reading, Some(interval)) = (&self.phase, self.interval(app_state)) else { return };
        self.failures = if head.is_some() { 0 } else { self.failures.saturating_add(1) };
        // Only consecutive polls count.
        self.unconfirmed = self.unconfirmed.take().filter(|(unconfirmed, _)| head.as_ref() == Some(unconfirmed));
        self.phase = match head {
            Some(head) if self.decided_head.as_ref() != Some(&head) => Phase::Found(head),
            Some(_) | None => Phase::Due(now.after(jittered(self.wait(interval), random))),
        };
    }

    /// Postpones the poll: the lease may have been lost, or the reader has no room. That is no failure of the source.
    pub fn postpone(&mut self, app_state: &AppState, now: Timestamp) {
        match (&self.phase, self.interval(app_state)) {
            (Phase::Loaded, _) => self.phase = Phase::Due(now.after(Duration::from_secs(2))),
            (Phase::Reading, Some(interval)) => self.phase = Phase::Due(now.after(interval.min(RETRY_INTERVAL))),
            (Phase::Off | Phase::Due(_) | Phase::Loading | Phase::Found(_), _) | (Phase::Reading, None) => {}
        }
    }

    /// Processes the decision on a head. `random` is a random number.
    pub fn decided(&mut self, app_state: &AppState, detected: &Detected, now: Timestamp, random: u64) {
        let (Phase::Found(head), Some(interval)) = (&self.phase, self.interval(app_state)) else { return };
        let wait = match detected {
            Detected::Known | Detected::Accepted(_) => {
                self.decided_head = Some(head.clone());
                self.unconfirmed = None;
                interval
            }
            Detected::Unconfirmed => {
                self.unconfirmed.get_or_insert_with(|| (head.clone(), now));
                interval.min(RETRY_INTERVAL)
            }
            // The head is decided again once the hold is released.
            Detected::Held(_) => interval,
            Detected::Postponed => interval.min(RETRY_INTERVAL),
        };
        self.phase = Phase::Due(now.after(jittered(wait, random)));
    }

    /// Adjusts to a clock that was set from `was` to `is`.
    pub(super) fn clock_set(&mut self, was: Timestamp, is: Timestamp) {
        self.read = self.read.reset(was, is);
        if let Some((_, since)) = &mut self.unconfirmed {
            *since = since.reset(was, is);
        }
        if let Phase::Due(at) = &mut self.phase {
            *at = at.reset(was, is);
        }
    }

    fn interval(&self, app_state: &AppState) -> Option<Duration> {
        app_state.app.policy.poll.map(|interval| interval.max(self.at_least))
    }

    /// Returns the time between two polls, which grows with each failure.
    fn wait(&self, interval: Duration) -> Duration {
        let longest = interval.max(BACKOFF_MAX);
        interval.saturating_mul(1 << self.failures.min(16)).min(longest)
    }
}

/// Decides on a branch's head. `entries` are the app's, newest first, back to one of this head or to the oldest.
///
/// A commit that the history has is not built again without a request, whatever its trigger and outcome. The exception
/// is a branch that was reset: its head is older than the commit that was deployed from it, and a single poll does not
/// prove that.
pub fn decide(app_state: &AppState, entries: &[Deploy], finding: &Finding) -> HeadDecision {
    let head = &finding.head;
    // An image that was entered anew does not tell where the branch was: its first entry does.
    let brought = || entries.iter().filter(|entry| !entry.is_entered_anew());
    let of = |commit: &Commit| {
        let commit = commit.clone();
        brought().filter(move |entry| entry.commit.as_ref().is_some_and(|known| known.may_be(&commit)))
    };
    // A commit that polling has found was the branch's head at that time.
    let found = brought().find(|entry| entry.trigger == Trigger::Git).and_then(|entry| entry.commit.as_ref());
    let before = finding.before.as_ref().or(found);
    let is_reset = |known: &Deploy| {
        before.filter(|before| !before.may_be(head)).is_some_and(|before| {
            // The times at which polling found it first and last: a rebuild does not move the branch.
            let found = of(before).find(|entry| entry.trigger == Trigger::Git);
            let came = of(before).next_back();
            found.into_iter().chain(came).any(|entry| entry.revision > known.revision)
        })
    };
    let known = of(head).next();
    let is_older = match known {
        Some(known) if is_reset(known) => true,
        Some(_) => return HeadDecision::Known,
        None if before.is_none() && is_truncated(entries) => return HeadDecision::Forgotten,
        None => false,
    };
    let request = DeployRequest::commit(head.clone());
    let cause = Cause { trigger: Trigger::Git, actor: Actor::Service };
    match admission::deploy(&app_state.app, &request, &cause) {
        Ok(_) if is_older && !finding.confirmed => HeadDecision::Unconfirmed,
        Ok(decided) => HeadDecision::Deploy(Box::new(decided.deploy)),
        Err(Refusal::ImageHeld { by, .. }) => HeadDecision::Held(by),
        Err(refusal) => HeadDecision::Refused(refusal),
    }
}

/// Returns whether the oldest entries are forgotten, or not among these.
fn is_truncated(entries: &[Deploy]) -> bool {
    entries.last().is_some_and(|oldest| oldest.revision.get() > 1)
}

/// Returns the time of a driver's first poll: each app has its own point.
fn first_poll(app_state: &AppState, interval: Duration, now: Timestamp) -> Timestamp {
    let within = u64::try_from(interval.min(FIRST_POLL_WITHIN).as_millis()).unwrap_or(u64::MAX).max(1);
    let point = u64::try_from(app_state.app.uid.as_bits() % u128::from(within)).unwrap_or(0);
    now.after(Duration::from_millis(point))
}

/// Returns a time somewhat shorter or longer than this one.
fn jittered(wait: Duration, random: u64) -> Duration {
    let span = wait / JITTER;
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX).saturating_mul(2).saturating_add(1);
    wait.saturating_sub(span) + Duration::from_millis(random % millis)
}

#[cfg(test)]
mod tests;
