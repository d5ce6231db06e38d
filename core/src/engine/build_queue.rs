//! An app's build lane: first in, first out, and never two builds at once.
//!
//! The lane is free once the build's end was observed, whatever has become of its entry meanwhile: one that was cancelled,
//! or is late, keeps it until the builder says that it has ended. What the builder is doing is asked of the builder alone,
//! so that nothing of this must survive a restart.

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

/// How long a driver goes without a look at a build, for want of a sign from the builder.
const LOOK: Duration = Duration::from_secs(3);
/// For how long a build's deadline waits until the builder has room for it; then it goes on, so that the deploy ends.
const WAITING_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a build is watched before the app is read again, for want of any sign from the store: builds last long, signs
/// may be lost, and a build that nobody waits for any more is to end soon.
const READ: Duration = Duration::from_secs(15);

/// What a driver knows of its app's lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildQueue {
    /// The builder was not asked yet, or could not say.
    Unknown {
        /// When to ask.
        ask_at: Timestamp,
        /// Calls that failed in a row.
        failures: u32,
    },
    /// No build of the app runs.
    Free,
    /// A build whose end was not observed.
    Taken {
        /// Of which revision.
        revision: Revision,
        /// When to look.
        look_at: Timestamp,
        /// Calls that failed in a row.
        failures: u32,
        /// Whether the builder was told to end it.
        cancelled: bool,
    },
    /// No build of the app runs any more, and the last one made an image. It is its entry's once the app was read anew:
    /// the source may have been changed, or the entry ended, before the build had.
    Built {
        /// Of which revision.
        revision: Revision,
        /// The image, by digest.
        image: ImageRef,
        /// The commit in full.
        commit: Commit,
    },
}

/// What the lane wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// To build this entry, or to end some: their next states.
    Record(Vec<Deploy>),
    /// A call.
    Call(Box<Effect>),
    /// To be asked again then.
    At(Timestamp),
    /// Nothing, until something changes.
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
    /// Whether nothing of the app is being built, as far as is known. An image app has no lane, which is free.
    pub fn is_free(&self, view: &AppState) -> bool {
        matches!(self, Self::Free | Self::Built { .. }) || view.app.source == Source::Image
    }

    /// The revision whose end is waited for.
    pub fn building(&self) -> Option<Revision> {
        match self {
            Self::Taken { revision, .. } => Some(*revision),
            Self::Unknown { .. } | Self::Free | Self::Built { .. } => None,
        }
    }

    /// What is next.
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

    /// The clock by which looks are due was set from `was` to `is`.
    pub(super) fn clock_set(&mut self, was: Timestamp, is: Timestamp) {
        match self {
            Self::Unknown { ask_at: at, .. } | Self::Taken { look_at: at, .. } => *at = at.reset(was, is),
            Self::Free | Self::Built { .. } => {}
        }
    }

    /// The app was read anew: a build that nobody waits for any more is ended without delay.
    pub fn loaded(&mut self, view: &AppState, now: Timestamp) {
        if let Self::Taken { revision, look_at, cancelled: false, .. } = self
            && is_over(view, *revision)
        {
            *look_at = now;
        }
    }

    /// The builder gave a sign.
    pub fn changed(&mut self, now: Timestamp) {
        if let Self::Taken { look_at, .. } = self {
            *look_at = now;
        }
    }

    /// The builder was asked what it is building; the next state of the entry whose turn it is, where that says more.
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
            // It will refuse the order as well, and that ends the entry.
            Err(CallFailed::Refused(_)) => Self::Free,
        };
        first(view).and_then(|entry| paused(entry, sign, now))
    }

    /// The builder was given an order; the entry's next state, where that says more.
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
            // It may have been started all the same.
            Err(CallFailed::Away) => {
                *self = self.unknown(now);
                built(view, revision).and_then(|entry| paused(entry, Sign::Away, now))
            }
            Err(CallFailed::Refused(message)) => {
                built(view, revision).map(|deploy| failed(deploy, Reason::BUILD_REFUSED, message))
            }
        }
    }

    /// The builder was told to end a build.
    pub fn cancelled(&mut self, answer: Result<(), CallFailed>, now: Timestamp) {
        match (&mut *self, answer) {
            (Self::Taken { look_at, cancelled, .. }, Ok(())) => (*look_at, *cancelled) = (now, true),
            (Self::Taken { .. }, Err(_)) => self.put_off(now),
            (Self::Unknown { .. } | Self::Free | Self::Built { .. }, _) => {}
        }
    }

    /// The build was looked at; the entry's next state, or the call to make first, where something follows from it.
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

    /// The end of an entry whose build must not go on, or has ended and was from another source.
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

/// The next build, where nothing is being built.
fn begin(view: &AppState, source: &GitSource, now: Timestamp) -> Turn {
    match first(view) {
        None => Turn::Idle,
        Some(deploy) if deploy.state == Stored::Queued => {
            let source = source.fingerprint();
            Turn::Record(vec![deploy.moved(Stored::Building { since: now, source, paused: Paused::default() })])
        }
        Some(deploy) => order(view, deploy).map_or(Turn::Idle, |order| Turn::call(Effect::StartBuild(order))),
    }
}

/// What a call to the builder says of a build's time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// The builder cannot be reached.
    Away,
    /// It can.
    Answers,
    /// The build waits for its place.
    Waits,
    /// The build runs.
    Goes,
}

/// The entry with what is to be told of its build's time; none where nothing is new.
fn paused(entry: &Deploy, sign: Sign, now: Timestamp) -> Option<Deploy> {
    let Stored::Building { since, source, paused } = &entry.state else { return None };
    let waiting = match sign {
        // Whether it still waits is not known.
        Sign::Answers => paused.waiting,
        // One time is not counted twice.
        Sign::Away | Sign::Waits | Sign::Goes => paused.waiting.set(sign == Sign::Waits, now),
    };
    let then = Paused { away: paused.away.set(sign == Sign::Away, now), waiting };
    let moved = || entry.moved(Stored::Building { since: *since, source: source.clone(), paused: then });
    (then != *paused).then(moved)
}

/// The entry whose turn it is: the one that is being built, else the oldest that waits for it.
fn first(view: &AppState) -> Option<&Deploy> {
    view.unfinished.iter().find(|deploy| deploy.is_to_be_built()).map(|deploy| &**deploy)
}

/// The entry of a build, while its end is waited for.
fn built(view: &AppState, revision: Revision) -> Option<&Deploy> {
    let waits = |deploy: &&Deploy| deploy.is_to_be_built() && deploy.status() == Status::Building;
    view.unfinished(revision).map(|deploy| &**deploy).filter(waits)
}

/// Whether a build's entry has ended. Nothing is known of a revision that came after the app was read.
fn is_over(view: &AppState, revision: Revision) -> bool {
    view.latest.is_some_and(|latest| revision <= latest)
        && view.unfinished.iter().all(|deploy| deploy.revision != revision)
}

fn failed(deploy: &Deploy, reason: &str, message: String) -> Deploy {
    deploy.moved(Stored::Failed { reason: Reason::new(reason), message, evidence: None })
}

fn order(view: &AppState, deploy: &Deploy) -> Option<Box<BuildSpec>> {
    let Source::Git(source) = &view.app.source else { return None };
    Some(Box::new(BuildSpec {
        app: view.app.id.clone(),
        stamp: DeployId { app: view.app.uid, revision: deploy.revision },
        source: source.clone(),
        commit: deploy.commit.clone()?,
    }))
}

#[cfg(test)]
mod tests;
