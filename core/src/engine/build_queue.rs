//! An app's build queue: first in, first out, and never two builds at once.
//!
//! The queue is free once the build's end was observed, whatever its entry's state: a build of a cancelled or
//! superseded entry occupies it until the builder reports its end. The state of a build is asked of the builder alone,
//! so that a restart may lose all of this.

use std::time::Duration;

use super::{CallFailed, Effect, retry, rollout::UNREACHABLE_MAX};
use crate::{
    app::Source,
    deploy::{Commit, Deploy, Evidence, Paused, Reason, Revision, State as Stored, Status},
    image::ImageRef,
    ledger::AppState,
    ports::{BuildFailure, BuildSpec, BuildState, DeployId, Started},
    source::GitSource,
    time::Timestamp,
};

/// The interval of observations of a build without a hint from the builder.
const LOOK: Duration = Duration::from_secs(3);
/// The time for which a build's deadline waits for a build slot; then it goes on, so that the deploy ends.
const WAITING_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The interval of loads of the app during a build without a hint from the store: builds last long, hints may be lost,
/// and a build that is no longer needed has to end soon.
const READ: Duration = Duration::from_secs(15);

/// The state of an app's build queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildQueue {
    /// The builder was not asked yet, or did not answer.
    Unknown {
        /// The time of the next call.
        ask_at: Timestamp,
        /// The number of consecutive failed calls.
        failures: u32,
    },
    /// No build of the app runs.
    Free,
    /// A build runs, or its end was not observed yet.
    Taken {
        /// The revision that is built.
        revision: Revision,
        /// The time of the next observation.
        look_at: Timestamp,
        /// The number of consecutive failed calls.
        failures: u32,
        /// Whether the builder was told to cancel the build.
        cancelled: bool,
    },
    /// The last build of the app has ended with an image. The image is recorded once the app was loaded again: the
    /// source may have been changed, or the entry ended, before the build had.
    Built {
        /// The revision that was built.
        revision: Revision,
        /// The image, by digest.
        image: ImageRef,
        /// The commit in full.
        commit: Commit,
    },
}

/// The next step of the build queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Record the next states of entries.
    Record(Vec<Deploy>),
    /// Call the builder.
    Call(Box<Effect>),
    /// Ask again at this time.
    At(Timestamp),
    /// Wait for a change.
    Idle,
}

impl Turn {
    fn of(entry: Option<Deploy>) -> Self {
        entry.map_or(Self::Idle, |entry| Self::Record(vec![entry]))
    }

    fn call(effect: Effect) -> Self {
        Self::Call(Box::new(effect))
    }
}

impl Default for BuildQueue {
    fn default() -> Self {
        Self::Unknown { ask_at: Timestamp::from_millis(i64::MIN), failures: 0 }
    }
}

impl BuildQueue {
    /// Returns whether no build of the app runs, as far as is known. The queue of an image app is always free.
    pub fn is_free(&self, view: &AppState) -> bool {
        matches!(self, Self::Free | Self::Built { .. }) || view.app.source == Source::Image
    }

    /// The revision whose build's end is awaited.
    pub fn building(&self) -> Option<Revision> {
        match self {
            Self::Taken { revision, .. } => Some(*revision),
            Self::Unknown { .. } | Self::Free | Self::Built { .. } => None,
        }
    }

    /// Returns the next step.
    pub fn turn(&self, view: &AppState, read_at: Timestamp, now: Timestamp) -> Turn {
        let Source::Git(source) = &view.app.source else { return Turn::Idle };
        let ended: Vec<_> = view.unfinished.iter().filter_map(|deploy| self.overdue(view, deploy, now)).collect();
        if !ended.is_empty() {
            return Turn::Record(ended);
        }
        match self {
            Self::Unknown { ask_at, .. } if *ask_at > now => Turn::At(*ask_at),
            Self::Unknown { .. } => Turn::call(Effect::FindBuild),
            Self::Free => begin(view, source, now),
            Self::Built { revision, image, commit } => match built(view, *revision) {
                Some(entry) => {
                    let (image, commit) = (Some(image.clone()), Some(commit.clone()));
                    Turn::Record(vec![Deploy { image, commit, ..entry.moved(entry.state.clone()) }])
                }
                None => begin(view, source, now),
            },
            Self::Taken { look_at, .. } if *look_at > now => Turn::At(*look_at),
            Self::Taken { .. } if now.since(read_at) >= READ => Turn::call(Effect::Load),
            Self::Taken { revision, cancelled, .. } => {
                let build = DeployId { app: view.app.uid, revision: *revision };
                let told = *cancelled || !is_over(view, *revision);
                Turn::call(if told { Effect::ObserveBuild(build) } else { Effect::CancelBuild(build) })
            }
        }
    }

    /// Adjusts to a clock that was set from `was` to `is`.
    pub(super) fn clock_set(&mut self, was: Timestamp, is: Timestamp) {
        match self {
            Self::Unknown { ask_at: at, .. } | Self::Taken { look_at: at, .. } => *at = at.reset(was, is),
            Self::Free | Self::Built { .. } => {}
        }
    }

    /// Processes a load of the app: a build that is no longer needed is cancelled without delay.
    pub fn loaded(&mut self, view: &AppState, now: Timestamp) {
        if let Self::Taken { revision, look_at, cancelled: false, .. } = self
            && is_over(view, *revision)
        {
            *look_at = now;
        }
    }

    /// Processes a hint of the builder.
    pub fn changed(&mut self, now: Timestamp) {
        if let Self::Taken { look_at, .. } = self {
            *look_at = now;
        }
    }

    /// Processes the builder's answer about running builds. Returns the next state of the first entry if that changed.
    pub fn found(
        &mut self,
        view: &AppState,
        found: Result<Option<Revision>, CallFailed>,
        now: Timestamp,
    ) -> Option<Deploy> {
        let sign = if found == Err(CallFailed::Away) { Sign::Away } else { Sign::Answers };
        *self = match found {
            Ok(Some(revision)) => Self::taken(revision, now),
            Ok(None) => Self::Free,
            Err(CallFailed::Away) => self.unknown(now),
            // It refuses the next start as well, and that ends the entry.
            Err(CallFailed::Refused(_)) => Self::Free,
        };
        first(view).and_then(|entry| paused(entry, sign, now))
    }

    /// Processes the answer to a start. Returns the next state of the entry if that changed.
    pub fn started(
        &mut self,
        view: &AppState,
        revision: Revision,
        started: Result<Started, CallFailed>,
        now: Timestamp,
    ) -> Option<Deploy> {
        match started {
            Ok(Started::Known) => {
                *self = Self::taken(revision, now);
                built(view, revision).and_then(|entry| paused(entry, Sign::Answers, now))
            }
            Ok(Started::Busy(other)) => {
                *self = Self::taken(other, now.after(LOOK));
                None
            }
            // The build may have been started all the same.
            Err(CallFailed::Away) => {
                *self = self.unknown(now);
                built(view, revision).and_then(|entry| paused(entry, Sign::Away, now))
            }
            Err(CallFailed::Refused(message)) => {
                built(view, revision).map(|deploy| failed(deploy, Reason::BUILD_REFUSED, message))
            }
        }
    }

    /// Processes the answer to a cancel.
    pub fn cancelled(&mut self, answer: Result<(), CallFailed>, now: Timestamp) {
        match (&mut *self, answer) {
            (Self::Taken { look_at, cancelled, .. }, Ok(())) => (*look_at, *cancelled) = (now, true),
            (Self::Taken { .. }, Err(_)) => self.put_off(now),
            (Self::Unknown { .. } | Self::Free | Self::Built { .. }, _) => {}
        }
    }

    /// Processes an observation. Returns the next state of the entry, or the call that has to come first.
    pub fn observed(&mut self, view: &AppState, seen: Result<BuildState, CallFailed>, now: Timestamp) -> Turn {
        let Self::Taken { revision, look_at, failures, .. } = self else { return Turn::Idle };
        let revision = *revision;
        let seen = match seen {
            Ok(goes @ (BuildState::Running | BuildState::Waiting)) => {
                (*look_at, *failures) = (now.after(LOOK), 0);
                let sign = if goes == BuildState::Waiting { Sign::Waits } else { Sign::Goes };
                return Turn::of(built(view, revision).and_then(|entry| paused(entry, sign, now)));
            }
            Err(error) => {
                self.put_off(now);
                let sign = if error == CallFailed::Away { Sign::Away } else { Sign::Answers };
                return Turn::of(built(view, revision).and_then(|entry| paused(entry, sign, now)));
            }
            Ok(ended) => ended,
        };
        *self = Self::Free;
        let Some(entry) = built(view, revision) else { return Turn::Idle };
        let ended = match seen {
            BuildState::Built { image, commit } => {
                let exact = entry.commit.as_ref().is_some_and(|ordered| ordered.may_be(&commit));
                match image.digest() {
                    Some(_) if exact => {
                        *self = Self::Built { revision, image, commit };
                        return Turn::call(Effect::Load);
                    }
                    Some(_) => failed(
                        entry,
                        Reason::BUILD_FAILED,
                        format!("The builder built {commit}, which nobody asked for."),
                    ),
                    None => failed(entry, Reason::BUILD_FAILED, format!("The builder named {image} without a digest.")),
                }
            }
            BuildState::Failed(BuildFailure { reason, message, commit, log }) => {
                let evidence = (!log.is_empty()).then(|| Evidence { log, ..Evidence::default() });
                let commit = commit.or_else(|| entry.commit.clone());
                Deploy { commit, ..entry.moved(Stored::Failed { reason, message, evidence }) }
            }
            BuildState::Unknown | BuildState::Running | BuildState::Waiting => {
                let message = "The builder knows nothing of this build any more; deploy the commit again.".to_owned();
                failed(entry, Reason::BUILD_LOST, message)
            }
        };
        Turn::Record(vec![ended])
    }

    fn taken(revision: Revision, look_at: Timestamp) -> Self {
        Self::Taken { revision, look_at, failures: 0, cancelled: false }
    }

    fn unknown(&self, now: Timestamp) -> Self {
        let failures = match self {
            Self::Unknown { failures, .. } | Self::Taken { failures, .. } => *failures,
            Self::Free | Self::Built { .. } => 0,
        };
        Self::Unknown { ask_at: now.after(retry::backoff(failures)), failures: failures.saturating_add(1) }
    }

    fn put_off(&mut self, now: Timestamp) {
        if let Self::Taken { look_at, failures, .. } = self {
            *look_at = now.after(retry::backoff(*failures));
            *failures = failures.saturating_add(1);
        }
    }

    /// Returns the end of an entry whose build must not go on, or was made from another source.
    fn overdue(&self, view: &AppState, deploy: &Deploy, now: Timestamp) -> Option<Deploy> {
        let (Stored::Building { since, source: begun, paused }, Source::Git(source)) =
            (&deploy.state, &view.app.source)
        else {
            return None;
        };
        let deadline = view.app.policy.build_deadline;
        let uncounted = paused.away.total(now).min(UNREACHABLE_MAX) + paused.waiting.total(now).min(WAITING_MAX);
        let has_ended = matches!(self, Self::Built { revision, .. } if *revision == deploy.revision);
        if !deploy.is_to_be_built() {
            None
        } else if *begun != source.fingerprint() {
            let message =
                "The app's source was changed while this was built: deploy the commit again, from the new source.";
            Some(failed(deploy, Reason::SOURCE_CHANGED, message.to_owned()))
        } else if paused.away.since.is_some() && paused.away.total(now) >= UNREACHABLE_MAX && !has_ended {
            let message = "The builder could not be reached for an hour; how far the build got is not known.";
            Some(failed(deploy, Reason::UNREACHABLE, message.to_owned()))
        } else if since.after(deadline + uncounted) <= now && !has_ended {
            let uncounted = match uncounted.as_secs() {
                0 => String::new(),
                seconds => format!(", not counting {seconds} s in which it waited for the builder"),
            };
            let message = format!("The build did not end within {} s{uncounted}.", deadline.as_secs_f64());
            Some(failed(deploy, Reason::BUILD_DEADLINE, message))
        } else {
            None
        }
    }
}

/// Returns the start of the next build if none runs.
fn begin(view: &AppState, source: &GitSource, now: Timestamp) -> Turn {
    match first(view) {
        None => Turn::Idle,
        Some(deploy) if deploy.state == Stored::Queued => {
            let source = source.fingerprint();
            Turn::Record(vec![deploy.moved(Stored::Building { since: now, source, paused: Paused::default() })])
        }
        Some(deploy) => spec(view, deploy).map_or(Turn::Idle, |spec| Turn::call(Effect::StartBuild(spec))),
    }
}

/// A builder's answer, as far as it matters to a build's deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// The builder is unavailable.
    Away,
    /// The builder answers.
    Answers,
    /// The build waits for a build slot.
    Waits,
    /// The build runs.
    Goes,
}

/// Returns the entry with the interruptions of its build updated; `None` if they are unchanged.
fn paused(entry: &Deploy, sign: Sign, now: Timestamp) -> Option<Deploy> {
    let Stored::Building { since, source, paused } = &entry.state else { return None };
    let waiting = match sign {
        // Whether the build still waits is unknown.
        Sign::Answers => paused.waiting,
        // An interruption must not count twice.
        Sign::Away | Sign::Waits | Sign::Goes => paused.waiting.set(sign == Sign::Waits, now),
    };
    let then = Paused { away: paused.away.set(sign == Sign::Away, now), waiting };
    let moved = || entry.moved(Stored::Building { since: *since, source: source.clone(), paused: then });
    (then != *paused).then(moved)
}

/// Returns the first entry of the queue: the one that is being built, else the oldest waiting one.
fn first(view: &AppState) -> Option<&Deploy> {
    view.unfinished.iter().find(|deploy| deploy.is_to_be_built()).map(|deploy| &**deploy)
}

/// Returns the entry of a build whose end is awaited.
fn built(view: &AppState, revision: Revision) -> Option<&Deploy> {
    let waits = |deploy: &&Deploy| deploy.is_to_be_built() && deploy.status() == Status::Building;
    view.unfinished(revision).map(|deploy| &**deploy).filter(waits)
}

/// Returns whether a build's entry has ended. A revision newer than the loaded app is unknown.
fn is_over(view: &AppState, revision: Revision) -> bool {
    view.latest.is_some_and(|latest| revision <= latest)
        && view.unfinished.iter().all(|deploy| deploy.revision != revision)
}

fn failed(deploy: &Deploy, reason: &str, message: String) -> Deploy {
    deploy.moved(Stored::Failed { reason: Reason::new(reason), message, evidence: None })
}

fn spec(view: &AppState, deploy: &Deploy) -> Option<Box<BuildSpec>> {
    let Source::Git(source) = &view.app.source else { return None };
    Some(Box::new(BuildSpec {
        app: view.app.id.clone(),
        id: DeployId { app: view.app.uid, revision: deploy.revision },
        source: source.clone(),
        commit: deploy.commit.clone()?,
    }))
}

#[cfg(test)]
mod tests;
