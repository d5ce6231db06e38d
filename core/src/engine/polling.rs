//! When an app's source is looked at, and what becomes of what is found there.
//!
//! Each look begins with a read of the app, so that what its owner decided meanwhile holds; then its branch is read, beside
//! whatever else the driver does; and only where the branch is at another commit than the driver has dealt with, the
//! history is read. Nothing here must survive a restart: what was deployed is in the history.

use std::time::Duration;

use crate::{
    app::Source,
    deploy::{Actor, Commit, Deploy, Revision, Trigger},
    ledger::{AppState, NewDeploy, admission},
    request::{Cause, DeployRequest, Refusal},
    source::{Fingerprint, GitSource},
    time::Timestamp,
};

/// As many entries are read at once to look for a commit.
pub const NEWEST: usize = 200;

/// Within this time of a driver's start its first look comes, at a point that is the app's own: a replica that has many
/// apps does not look at all of them at once.
const FIRST: Duration = Duration::from_secs(60);
/// What could not be decided is looked at again after this time at the latest.
const AGAIN: Duration = Duration::from_secs(30);
/// A head that is older than what was deployed is believed once two looks in a row found it that were this far apart.
const DOUBT: Duration = Duration::from_secs(5);
/// The longest time between two looks at a source that cannot be read, unless its interval is longer.
const BACKOFF_MAX: Duration = Duration::from_secs(30 * 60);
/// What an app's owner decides at another replica is known after this time at the latest.
const REFRESH: Duration = Duration::from_secs(5 * 60);
/// Looks come up to this part of their interval earlier or later.
const JITTER: u32 = 10;

/// What a driver knows of its app's source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Polling {
    phase: Phase,
    /// Looks that failed in a row.
    failures: u32,
    /// The head that was dealt with last.
    seen: Option<Commit>,
    /// The head that the last look found and that was not believed yet, and when it was found first.
    doubted: Option<(Commit, Timestamp)>,
    /// The source that all of this is about.
    source: Option<Fingerprint>,
    /// When the app was read.
    read: Timestamp,
    at_least: Duration,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// The app is not polled.
    #[default]
    Off,
    /// The next look.
    Due(Timestamp),
    /// The app is being read.
    Reading,
    /// The app was read just now: its source is next.
    Read,
    /// The source was asked.
    Asked,
    /// Its branch is here, and the history is to be read.
    Found(Commit),
}

/// What a look wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing, until something changes.
    Idle,
    /// To be asked again then.
    At(Timestamp),
    /// To have the app read.
    Refresh,
    /// To have the app read, for a look: [`Polling::reading`].
    Load,
    /// To have the source's branch read, without waiting for it.
    Ask(Box<GitSource>),
    /// To have decided whether what was found is deployed.
    Detect(Box<Finding>),
}

/// What a look found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The branch's head.
    pub head: Commit,
    /// The head that was dealt with before, where there was one.
    pub before: Option<Commit>,
    /// Whether the look before this one found the same, long enough ago: one answer may be that of a server that lags
    /// behind.
    pub again: bool,
}

/// What became of a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detected {
    /// The history has it already.
    Known,
    /// It is accepted as this revision.
    Accepted(Revision),
    /// This rollback holds it.
    Held(Revision),
    /// It is older than what was deployed, which one look alone does not show.
    Doubtful,
    /// Not now: too much is unfinished, or the store is away.
    Later,
}

/// What is to become of a head, as decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: the history has it already.
    Known,
    /// Nothing: what the history had of it may be gone, and nobody knows any more where the branch was.
    Forgotten,
    /// Nothing yet: it is older than what was deployed, and one look alone has found it.
    Doubtful,
    /// It is to be deployed.
    Deploy(Box<NewDeploy>),
    /// This rollback holds it.
    Held(Revision),
    /// It is refused.
    Refused(Refusal),
}

impl Polling {
    /// Looks are never closer together than this, whatever the app's policy says.
    pub fn at_least(&mut self, at_least: Duration) {
        self.at_least = at_least;
    }

    /// The app was read.
    pub fn loaded(&mut self, view: &AppState, now: Timestamp) {
        let (Some(interval), Source::Git(source)) = (self.interval(view), &view.app.source) else {
            *self = Self { at_least: self.at_least, ..Self::default() };
            return;
        };
        let fingerprint = source.fingerprint();
        if self.source.as_ref() != Some(&fingerprint) {
            let first = self.source.is_none();
            let due = if first { first_look(view, interval, now) } else { now };
            *self =
                Self { phase: Phase::Due(due), source: Some(fingerprint), at_least: self.at_least, ..Self::default() };
        }
        self.read = now;
        self.phase = match std::mem::take(&mut self.phase) {
            Phase::Reading => Phase::Read,
            Phase::Due(at) => Phase::Due(at.min(now.after(self.wait(interval)))),
            other @ (Phase::Off | Phase::Read | Phase::Asked | Phase::Found(_)) => other,
        };
    }

    /// What is next.
    pub fn turn(&self, view: &AppState, now: Timestamp) -> Turn {
        match (&self.phase, &view.app.source) {
            (Phase::Due(at), _) if *at <= now => Turn::Load,
            (Phase::Due(_), _) if self.read.after(REFRESH) <= now => Turn::Refresh,
            (Phase::Due(at), _) => Turn::At(self.read.after(REFRESH).min(*at)),
            (Phase::Read, Source::Git(source)) => Turn::Ask(Box::new(source.clone())),
            (Phase::Found(head), _) => {
                let doubted = self.doubted.as_ref().filter(|(doubted, _)| doubted == head);
                let again = doubted.is_some_and(|(_, since)| since.after(DOUBT) <= now);
                Turn::Detect(Box::new(Finding { head: head.clone(), before: self.seen.clone(), again }))
            }
            (Phase::Off | Phase::Reading | Phase::Asked, _) | (Phase::Read, Source::Image) => Turn::Idle,
        }
    }

    /// The app is being read, for a look.
    pub fn reading(&mut self) {
        self.phase = Phase::Reading;
    }

    /// The source was asked.
    pub fn asked(&mut self) {
        self.phase = Phase::Asked;
    }

    /// The source answered, or did not. `chance` is any number.
    pub fn answered(&mut self, view: &AppState, head: Option<Commit>, now: Timestamp, chance: u64) {
        let (Phase::Asked, Some(interval)) = (&self.phase, self.interval(view)) else { return };
        self.failures = if head.is_some() { 0 } else { self.failures.saturating_add(1) };
        // Only looks in a row count.
        self.doubted = self.doubted.take().filter(|(doubted, _)| head.as_ref() == Some(doubted));
        self.phase = match head {
            Some(head) if self.seen.as_ref() != Some(&head) => Phase::Found(head),
            Some(_) | None => Phase::Due(now.after(jittered(self.wait(interval), chance))),
        };
    }

    /// The look comes later: others may have the app by now, or whoever reads sources has no room. That is no failure of
    /// the source.
    pub fn put_off(&mut self, view: &AppState, now: Timestamp) {
        match (&self.phase, self.interval(view)) {
            (Phase::Read, _) => self.phase = Phase::Due(now.after(Duration::from_secs(2))),
            (Phase::Asked, Some(interval)) => self.phase = Phase::Due(now.after(interval.min(AGAIN))),
            (Phase::Off | Phase::Due(_) | Phase::Reading | Phase::Found(_), _) | (Phase::Asked, None) => {}
        }
    }

    /// What was found was decided on. `chance` is any number.
    pub fn detected(&mut self, view: &AppState, detected: &Detected, now: Timestamp, chance: u64) {
        let (Phase::Found(head), Some(interval)) = (&self.phase, self.interval(view)) else { return };
        let wait = match detected {
            Detected::Known | Detected::Accepted(_) => {
                self.seen = Some(head.clone());
                self.doubted = None;
                interval
            }
            Detected::Doubtful => {
                self.doubted.get_or_insert_with(|| (head.clone(), now));
                interval.min(AGAIN)
            }
            // Once the hold is lifted it is another matter.
            Detected::Held(_) => interval,
            Detected::Later => interval.min(AGAIN),
        };
        self.phase = Phase::Due(now.after(jittered(wait, chance)));
    }

    /// The clock by which looks are due was set from `was` to `is`.
    pub(super) fn clock_set(&mut self, was: Timestamp, is: Timestamp) {
        self.read = self.read.reset(was, is);
        if let Some((_, since)) = &mut self.doubted {
            *since = since.reset(was, is);
        }
        if let Phase::Due(at) = &mut self.phase {
            *at = at.reset(was, is);
        }
    }

    fn interval(&self, view: &AppState) -> Option<Duration> {
        view.app.policy.poll.map(|interval| interval.max(self.at_least))
    }

    /// Between two looks: longer each time the source could not be read.
    fn wait(&self, interval: Duration) -> Duration {
        let longest = interval.max(BACKOFF_MAX);
        interval.saturating_mul(1 << self.failures.min(16)).min(longest)
    }
}

/// Decides what becomes of a branch's head. `entries` are the app's, newest first, back to one of this head or to the
/// oldest that there is.
///
/// Whatever the history has is nobody's to build again without being asked, whoever brought it and however it ended. A
/// branch that was taken back is another matter: what it is at now is older than what was deployed from it. One look is
/// not enough for that.
pub fn decide(view: &AppState, entries: &[Deploy], finding: &Finding) -> Verdict {
    let head = &finding.head;
    let of = |commit: &Commit| {
        let commit = commit.clone();
        entries.iter().filter(move |entry| entry.commit.as_ref().is_some_and(|known| known.may_be(&commit)))
    };
    // Whatever this service has found before was the branch's head then.
    let found = entries.iter().find(|entry| entry.trigger == Trigger::Git).and_then(|entry| entry.commit.as_ref());
    let before = finding.before.as_ref().or(found);
    let taken_back = |known: &Deploy| {
        before.filter(|before| !before.may_be(head)).is_some_and(|before| {
            // When it came, and when it was found last: that somebody had it built again moved no branch.
            let found = of(before).find(|entry| entry.trigger == Trigger::Git);
            let came = of(before).next_back();
            found.into_iter().chain(came).any(|entry| entry.revision > known.revision)
        })
    };
    let known = of(head).next();
    let is_older = match known {
        Some(known) if taken_back(known) => true,
        Some(_) => return Verdict::Known,
        None if before.is_none() && is_cut(entries) => return Verdict::Forgotten,
        None => false,
    };
    let request = DeployRequest { image: None, commit: Some(head.clone()), key: None };
    let cause = Cause { trigger: Trigger::Git, actor: Actor::Service };
    match admission::deploy(&view.app, &request, &cause) {
        Ok(_) if is_older && !finding.again => Verdict::Doubtful,
        Ok(decided) => Verdict::Deploy(Box::new(decided.deploy)),
        Err(Refusal::ImageHeld { by, .. }) => Verdict::Held(by),
        Err(refusal) => Verdict::Refused(refusal),
    }
}

/// Whether the oldest entries are gone, or not among these.
fn is_cut(entries: &[Deploy]) -> bool {
    entries.last().is_some_and(|oldest| oldest.revision.get() > 1)
}

/// The first look of a driver: each app has its own point within the time for it.
fn first_look(view: &AppState, interval: Duration, now: Timestamp) -> Timestamp {
    let within = u64::try_from(interval.min(FIRST).as_millis()).unwrap_or(u64::MAX).max(1);
    let point = u64::try_from(view.app.uid.as_bits() % u128::from(within)).unwrap_or(0);
    now.after(Duration::from_millis(point))
}

/// A time somewhat shorter or longer than this one.
fn jittered(wait: Duration, chance: u64) -> Duration {
    let span = wait / JITTER;
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX).saturating_mul(2).saturating_add(1);
    wait.saturating_sub(span) + Duration::from_millis(chance % millis)
}

#[cfg(test)]
mod tests;
