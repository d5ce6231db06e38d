//! The schedule of polls of an app's source, and the decision on the heads that they find: the commit of a git app's branch,
//! or the newest image of the repository that an image app follows ([`super::following`]).
//!
//! Each poll begins with a load of the app, so that its owner's latest settings hold; then its source is read, while
//! the driver does its other work; and the history is read only if the source is at another head than the last one
//! that was decided. A restart may lose all of this: the history has the deployed commits and images.

use std::{fmt, time::Duration};

use crate::{
    app::Source,
    deploy::{Actor, Commit, Deploy, Revision, Trigger},
    follow::{Follow, Followed},
    image::ImageRef,
    ledger::{AppState, NewDeploy, admission, following::HINT_INTERVAL},
    request::{Cause, DeployRequest, Refusal},
    source::GitSource,
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
    decided_head: Option<Head>,
    /// The head of the last poll if it was not believed yet.
    unconfirmed: Option<Unconfirmed>,
    /// The source that this state belongs to.
    source: Option<PollSource>,
    /// The time of the last poll.
    polled_at: Timestamp,
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
    /// The source is at this head, and the history is read next.
    Found(Head),
}

/// A head that was found and not believed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unconfirmed {
    head: Head,
    /// The time at which it was found first.
    since: Timestamp,
    /// The time since which each poll has found something to be confirmed.
    first: Timestamp,
}

/// The source that is polled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollSource {
    /// A branch of a git repository.
    Branch(GitSource),
    /// The tags of an image repository.
    Tags {
        /// The rule by which one of them is the newest.
        rule: Follow,
        /// The repository.
        repository: ImageRef,
    },
}

/// The place of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// The commit that the branch points to.
    Commit(Commit),
    /// The newest image of the repository, if it has one.
    Newest(Box<Followed>),
}

impl From<Commit> for Head {
    fn from(commit: Commit) -> Self {
        Self::Commit(commit)
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Commit(commit) => commit.fmt(f),
            Self::Newest(followed) => match &followed.newest {
                Some(image) => image.fmt(f),
                None => write!(f, "no tag of {}", followed.repository),
            },
        }
    }
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
    /// Read the source, without waiting for the answer.
    Read(Box<PollSource>),
    /// Decide whether a head is deployed.
    Detect(Box<Finding>),
}

/// The finding of a poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The source's head.
    pub head: Head,
    /// The head that was decided before, if any.
    pub before: Option<Head>,
    /// The time since the first of the consecutive polls that found the same head. A single answer may come from a server that
    /// lags behind, and more may be pushed.
    pub unchanged_for: Duration,
    /// The time since the first of the consecutive polls that found something new, the same or not.
    pub new_for: Duration,
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
    /// The head has to be found again after this time.
    Unconfirmed(Duration),
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
    /// Ignored, and recorded as what following has decided on.
    Noted,
    /// Postponed: the head has to be found again after this time.
    Unconfirmed(Duration),
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
        let (Some(interval), Some(source)) = (self.interval(app_state), PollSource::of(app_state)) else {
            *self = Self { at_least: self.at_least, ..Self::default() };
            return;
        };
        if self.source.as_ref() != Some(&source) {
            let first = self.source.is_none();
            let due = if first { first_poll(app_state, interval, now) } else { now };
            let (at_least, polled_at) = (self.at_least, if first { now } else { self.polled_at });
            *self = Self { phase: Phase::Due(due), source: Some(source), polled_at, at_least, ..Self::default() };
        }
        self.read = now;
        self.phase = match std::mem::take(&mut self.phase) {
            Phase::Loading => {
                self.polled_at = now;
                Phase::Loaded
            }
            Phase::Due(at) => self.due(app_state, at.min(now.after(self.wait(interval)))),
            other @ (Phase::Off | Phase::Loaded | Phase::Reading | Phase::Found(_)) => other,
        };
    }

    /// Returns the next step.
    pub fn next_step(&self, app_state: &AppState, now: Timestamp) -> PollStep {
        match &self.phase {
            Phase::Due(at) if *at <= now => PollStep::Load,
            Phase::Due(_) if self.read.after(RELOAD_INTERVAL) <= now => PollStep::Reload,
            Phase::Due(at) => PollStep::At(self.read.after(RELOAD_INTERVAL).min(*at)),
            Phase::Loaded => {
                PollSource::of(app_state).map_or(PollStep::Idle, |source| PollStep::Read(Box::new(source)))
            }
            Phase::Found(head) => {
                let unconfirmed = self.unconfirmed.as_ref();
                let same = unconfirmed.filter(|unconfirmed| unconfirmed.head == *head);
                PollStep::Detect(Box::new(Finding {
                    head: head.clone(),
                    before: self.decided_head.clone(),
                    unchanged_for: same.map_or(Duration::ZERO, |same| now.since(same.since)),
                    new_for: unconfirmed.map_or(Duration::ZERO, |unconfirmed| now.since(unconfirmed.first)),
                }))
            }
            Phase::Off | Phase::Loading | Phase::Reading => PollStep::Idle,
        }
    }

    /// Processes the begin of a load for a poll.
    pub fn load_started(&mut self) {
        self.phase = Phase::Loading;
    }

    /// Processes the begin of reading the source.
    pub fn read_started(&mut self) {
        self.phase = Phase::Reading;
    }

    /// Processes the end of reading the source. `random` is a random number.
    pub fn read_ended(&mut self, app_state: &AppState, head: Option<Head>, now: Timestamp, random: u64) {
        let (Phase::Reading, Some(interval)) = (&self.phase, self.interval(app_state)) else { return };
        self.failures = if head.is_some() { 0 } else { self.failures.saturating_add(1) };
        // Only consecutive polls count.
        self.unconfirmed = self.unconfirmed.take().filter(|_| head.is_some() && head != self.decided_head);
        self.phase = match head {
            Some(head) if self.decided_head.as_ref() != Some(&head) => Phase::Found(head),
            Some(_) | None => self.due(app_state, now.after(jittered(self.wait(interval), random))),
        };
    }

    /// Postpones the poll: the lease may have been lost, or the reader has no room. That is no failure of the source.
    pub fn postpone(&mut self, app_state: &AppState, now: Timestamp) {
        match (&self.phase, self.interval(app_state)) {
            (Phase::Reading, Some(interval)) => self.phase = Phase::Due(now.after(interval.min(RETRY_INTERVAL))),
            (Phase::Off | Phase::Due(_) | Phase::Loading | Phase::Loaded | Phase::Found(_), _)
            | (Phase::Reading, None) => {}
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
            Detected::Unconfirmed(wait) => {
                let known = self.unconfirmed.take();
                let first = known.as_ref().map_or(now, |known| known.first);
                let since = known.filter(|known| known.head == *head).map_or(now, |known| known.since);
                self.unconfirmed = Some(Unconfirmed { head: head.clone(), since, first });
                self.phase = Phase::Due(now.after(*wait));
                return;
            }
            // The head is decided again once the hold is released.
            Detected::Held(_) => interval,
            Detected::Postponed => interval.min(RETRY_INTERVAL),
        };
        self.phase = self.due(app_state, now.after(jittered(wait, random)));
    }

    /// Adjusts to a clock that was set from `was` to `is`.
    pub(super) fn clock_set(&mut self, was: Timestamp, is: Timestamp) {
        self.read = self.read.reset(was, is);
        self.polled_at = self.polled_at.reset(was, is);
        if let Some(Unconfirmed { since, first, .. }) = &mut self.unconfirmed {
            *since = since.reset(was, is);
            *first = first.reset(was, is);
        }
        if let Phase::Due(at) = &mut self.phase {
            *at = at.reset(was, is);
        }
    }

    /// Returns the wait for the next poll: until this time, or until that which hints ask for.
    fn due(&self, app_state: &AppState, at: Timestamp) -> Phase {
        Phase::Due(self.hinted(app_state).map_or(at, |hinted| at.min(hinted)))
    }

    /// Returns the time of the poll that hints ask for. One that comes right after another takes its place in the store, some time
    /// ahead, before the other may have been seen.
    fn hinted(&self, app_state: &AppState) -> Option<Timestamp> {
        let hint = app_state.hinted_at?;
        let asked = [hint.before(HINT_INTERVAL), hint].into_iter().find(|hint| *hint > self.polled_at)?;
        Some(asked.max(self.polled_at.after(HINT_INTERVAL)))
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

impl PollSource {
    /// Returns the source of a polled app; `None` if nothing is polled, or if the repository is not known yet.
    pub fn of(app_state: &AppState) -> Option<Self> {
        app_state.app.policy.poll?;
        match &app_state.app.source {
            Source::Git(source) => Some(Self::Branch(source.clone())),
            Source::Image => {
                let rule = app_state.app.policy.follow.clone()?;
                Some(Self::Tags { rule, repository: app_state.repository()? })
            }
        }
    }
}

/// Decides on a branch's head. `entries` are the app's, newest first, back to one of this head or to the oldest.
///
/// A commit that the history has is not built again without a request, whatever its trigger and outcome. The exception
/// is a branch that was reset: its head is older than the commit that was deployed from it, and a single poll does not
/// prove that.
pub fn decide(app_state: &AppState, entries: &[Deploy], head: &Commit, finding: &Finding) -> HeadDecision {
    let brought = || entries.iter().filter(|entry| entry.moves_branch());
    let of = |commit: &Commit| {
        let commit = commit.clone();
        brought().filter(move |entry| entry.commit.as_ref().is_some_and(|known| known.may_be(&commit)))
    };
    // A commit that polling has found was the branch's head at that time.
    let found = brought().find(|entry| entry.trigger == Trigger::Git).and_then(|entry| entry.commit.as_ref());
    let decided = finding.before.as_ref().and_then(|before| match before {
        Head::Commit(commit) => Some(commit),
        Head::Newest(_) => None,
    });
    let before = decided.or(found);
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
        Ok(_) if is_older && finding.unchanged_for < CONFIRM_AFTER => {
            let interval = app_state.app.policy.poll.unwrap_or(RETRY_INTERVAL);
            HeadDecision::Unconfirmed(interval.min(RETRY_INTERVAL).max(CONFIRM_AFTER))
        }
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
