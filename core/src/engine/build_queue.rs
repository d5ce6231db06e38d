//! An app's build queue: first in, first out, and never two builds at once.
//!
//! The queue is free once the build's end was observed, whatever its entry's state: a build of a cancelled or
//! superseded entry occupies it until the builder reports its end. The state of a build is asked of the builder alone,
//! so that a restart may lose all of this.

use std::time::Duration;

use super::{
    CallError, Effect,
    resolving::{self, BUILT_HERE},
    retry,
    rollout::UNREACHABLE_MAX,
};
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
const OBSERVE_INTERVAL: Duration = Duration::from_secs(3);
/// The time for which a build's deadline waits for a build slot; then it goes on, so that the deploy ends.
const SLOT_WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The interval of loads of the app during a build without a hint from the store: builds last long, hints may be lost,
/// and a build that is no longer needed has to end soon.
const RELOAD_INTERVAL: Duration = Duration::from_secs(15);

/// The state of an app's build queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildQueue {
    /// The builder was not asked yet, or did not answer.
    Unknown {
        /// The time of the next call.
        retry_at: Timestamp,
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
        observe_at: Timestamp,
        /// The number of consecutive failed calls.
        failures: u32,
        /// Whether the builder was asked to cancel the build.
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
pub enum BuildStep {
    /// Record the next states of entries.
    Record(Vec<Deploy>),
    /// Call the builder.
    Call(Box<Effect>),
    /// Ask again at this time.
    At(Timestamp),
    /// Wait for a change.
    Idle,
}

impl BuildStep {
    fn of(entry: Option<Deploy>) -> Self {
        entry.map_or(Self::Idle, |entry| Self::Record(vec![entry]))
    }

    fn call(effect: Effect) -> Self {
        Self::Call(Box::new(effect))
    }
}

impl Default for BuildQueue {
    fn default() -> Self {
        Self::Unknown { retry_at: Timestamp::from_millis(i64::MIN), failures: 0 }
    }
}

impl BuildQueue {
    /// Returns whether no build of the app runs, as far as is known. The queue of an image app is always free.
    pub fn is_free(&self, app_state: &AppState) -> bool {
        matches!(self, Self::Free | Self::Built { .. }) || app_state.app.source == Source::Image
    }

    /// The revision whose build's end is awaited.
    pub fn building(&self) -> Option<Revision> {
        if let Self::Taken { revision, .. } = self { Some(*revision) } else { None }
    }

    /// Returns the next step.
    pub fn next_step(&self, app_state: &AppState, read_at: Timestamp, now: Timestamp) -> BuildStep {
        let Source::Git(source) = &app_state.app.source else { return BuildStep::Idle };
        let ended: Vec<_> =
            app_state.unfinished.iter().filter_map(|deploy| self.overdue(app_state, deploy, now)).collect();
        if !ended.is_empty() {
            return BuildStep::Record(ended);
        }
        match self {
            Self::Unknown { retry_at, .. } if *retry_at > now => BuildStep::At(*retry_at),
            Self::Unknown { .. } => BuildStep::call(Effect::FindBuild),
            Self::Free => begin(app_state, source, now),
            Self::Built { revision, image, commit } => match building_entry(app_state, *revision) {
                Some(entry) => {
                    let (image, commit) = (Some(image.clone()), Some(commit.clone()));
                    let built = Deploy { image, commit, ..entry.moved(entry.state.clone()) };
                    BuildStep::call(Effect::RecordBuilt(Box::new(built)))
                }
                None => begin(app_state, source, now),
            },
            Self::Taken { observe_at, .. } if *observe_at > now => BuildStep::At(*observe_at),
            Self::Taken { .. } if now.since(read_at) >= RELOAD_INTERVAL => BuildStep::call(Effect::Load),
            Self::Taken { revision, cancelled, .. } => {
                let build = DeployId { app: app_state.app.uid, revision: *revision };
                let may_observe = *cancelled || !has_ended(app_state, *revision);
                BuildStep::call(if may_observe { Effect::ObserveBuild(build) } else { Effect::CancelBuild(build) })
            }
        }
    }

    /// Adjusts to a clock that was set from `was` to `is`.
    pub(super) fn clock_set(&mut self, was: Timestamp, is: Timestamp) {
        match self {
            Self::Unknown { retry_at: at, .. } | Self::Taken { observe_at: at, .. } => *at = at.reset(was, is),
            Self::Free | Self::Built { .. } => {}
        }
    }

    /// Processes a load of the app: a build that is no longer needed is cancelled without delay.
    pub fn loaded(&mut self, app_state: &AppState, now: Timestamp) {
        if let Self::Taken { revision, observe_at, cancelled: false, .. } = self
            && has_ended(app_state, *revision)
        {
            *observe_at = now;
        }
    }

    /// Processes a hint of the builder.
    pub fn changed(&mut self, now: Timestamp) {
        if let Self::Taken { observe_at, .. } = self {
            *observe_at = now;
        }
    }

    /// Processes the builder's answer about running builds. Returns the next state of the first entry if that changed.
    pub fn found(
        &mut self,
        app_state: &AppState,
        found: Result<Option<Revision>, CallError>,
        now: Timestamp,
    ) -> Option<Deploy> {
        let unavailable = matches!(found, Err(CallError::Unavailable | CallError::Denied(_)));
        let status = if unavailable { BuilderStatus::Unavailable } else { BuilderStatus::Available };
        *self = match found {
            Ok(Some(revision)) => Self::taken(revision, now),
            Ok(None) => Self::Free,
            Err(CallError::Unavailable | CallError::Denied(_)) => self.unknown(now),
            // It refuses the next start as well, and that ends the entry.
            Err(CallError::Refused(_)) => Self::Free,
        };
        next_entry(app_state).and_then(|entry| paused(entry, status, now))
    }

    /// Processes the answer to a start. Returns the next state of the entry if that changed.
    pub fn started(
        &mut self,
        app_state: &AppState,
        revision: Revision,
        started: Result<Started, CallError>,
        now: Timestamp,
    ) -> Option<Deploy> {
        match started {
            Ok(Started::Known) => {
                *self = Self::taken(revision, now);
                paused_entry(app_state, revision, BuilderStatus::Available, now)
            }
            Ok(Started::Busy(other)) => {
                *self = Self::taken(other, now.after(OBSERVE_INTERVAL));
                None
            }
            // The build may have been started all the same.
            Err(CallError::Unavailable | CallError::Denied(_)) => {
                *self = self.unknown(now);
                paused_entry(app_state, revision, BuilderStatus::Unavailable, now)
            }
            Err(CallError::Refused(message)) => {
                building_entry(app_state, revision).map(|deploy| failed(deploy, Reason::BUILD_REFUSED, message))
            }
        }
    }

    /// Processes the answer to a cancel.
    pub fn cancelled(&mut self, answer: Result<(), CallError>, now: Timestamp) {
        match (&mut *self, answer) {
            (Self::Taken { observe_at, cancelled, .. }, Ok(())) => (*observe_at, *cancelled) = (now, true),
            (Self::Taken { .. }, Err(_)) => self.postpone(now),
            (Self::Unknown { .. } | Self::Free | Self::Built { .. }, _) => {}
        }
    }

    /// Processes an observation. Returns the next state of the entry, or the call that has to come first.
    pub fn observed(&mut self, app_state: &AppState, seen: Result<BuildState, CallError>, now: Timestamp) -> BuildStep {
        let Self::Taken { revision, observe_at, failures, .. } = self else { return BuildStep::Idle };
        let revision = *revision;
        let status = match &seen {
            Err(CallError::Unavailable | CallError::Denied(_)) => BuilderStatus::Unavailable,
            Err(CallError::Refused(_)) => BuilderStatus::Available,
            Ok(BuildState::Waiting) => BuilderStatus::Waiting,
            Ok(_) => BuilderStatus::Running,
        };
        let ended = match seen {
            Ok(BuildState::Running | BuildState::Waiting) => {
                (*observe_at, *failures) = (now.after(OBSERVE_INTERVAL), 0);
                return BuildStep::of(paused_entry(app_state, revision, status, now));
            }
            Err(_) => {
                self.postpone(now);
                return BuildStep::of(paused_entry(app_state, revision, status, now));
            }
            Ok(ended) => ended,
        };
        *self = Self::Free;
        let Some(entry) = building_entry(app_state, revision) else { return BuildStep::Idle };
        let ended = match ended {
            BuildState::Built { image, commit } => {
                let exact = entry.commit.as_ref().is_some_and(|ordered| ordered.may_be(&commit));
                if exact && image.digest().is_some() {
                    *self = Self::Built { revision, image, commit };
                    return BuildStep::call(Effect::Load);
                }
                let message = match image.digest() {
                    Some(_) => format!("The builder built {commit}, which is another commit than the deploy's."),
                    None => format!("The builder named {image} without a digest."),
                };
                failed(entry, Reason::BUILD_FAILED, message)
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
        BuildStep::Record(vec![ended])
    }

    fn taken(revision: Revision, observe_at: Timestamp) -> Self {
        Self::Taken { revision, observe_at, failures: 0, cancelled: false }
    }

    fn unknown(&self, now: Timestamp) -> Self {
        let failures = match self {
            Self::Unknown { failures, .. } | Self::Taken { failures, .. } => *failures,
            Self::Free | Self::Built { .. } => 0,
        };
        Self::Unknown { retry_at: now.after(retry::backoff(failures)), failures: failures.saturating_add(1) }
    }

    fn postpone(&mut self, now: Timestamp) {
        if let Self::Taken { observe_at, failures, .. } = self {
            *observe_at = now.after(retry::backoff(*failures));
            *failures = failures.saturating_add(1);
        }
    }

    /// Returns the end of an entry whose build must not go on, or was made from another source.
    fn overdue(&self, app_state: &AppState, deploy: &Deploy, now: Timestamp) -> Option<Deploy> {
        let (Stored::Building { since, source: begun, paused }, Source::Git(source)) =
            (&deploy.state, &app_state.app.source)
        else {
            return None;
        };
        if let Some(required) = app_state.app.required().first().filter(|_| deploy.is_to_be_built()) {
            return Some(resolving::unsigned(deploy, required, BUILT_HERE));
        }
        let deadline = app_state.app.policy.build_deadline;
        let uncounted = paused.away.total(now).min(UNREACHABLE_MAX) + paused.waiting.total(now).min(SLOT_WAIT_MAX);
        let is_built = matches!(self, Self::Built { revision, .. } if *revision == deploy.revision);
        let (reason, message) = if !deploy.is_to_be_built() {
            return None;
        } else if *begun != source.fingerprint() {
            let message =
                "The app's source was changed while this was built: deploy the commit again, from the new source.";
            (Reason::SOURCE_CHANGED, message.to_owned())
        } else if paused.away.since.is_some() && paused.away.total(now) >= UNREACHABLE_MAX && !is_built {
            let message = "The builder could not be reached, or denied permission, for an hour; how far the build got is \
                           not known. The server's log has the last error.";
            (Reason::UNREACHABLE, message.to_owned())
        } else if since.after(deadline + uncounted) <= now && !is_built {
            let uncounted = match uncounted.as_secs() {
                0 => String::new(),
                seconds => format!(", not counting {seconds} s in which it waited for the builder"),
            };
            (Reason::BUILD_DEADLINE, format!("The build did not end within {} s{uncounted}.", deadline.as_secs_f64()))
        } else {
            return None;
        };
        Some(failed(deploy, reason, message))
    }
}

/// Returns the start of the next build if none runs.
fn begin(app_state: &AppState, source: &GitSource, now: Timestamp) -> BuildStep {
    match next_entry(app_state) {
        None => BuildStep::Idle,
        Some(deploy) if deploy.state == Stored::Queued => {
            if let Some(required) = app_state.app.required().first() {
                return BuildStep::Record(vec![resolving::unsigned(deploy, required, BUILT_HERE)]);
            }
            if deploy.is_to_be_ordered() {
                return BuildStep::Idle;
            }
            let source = source.fingerprint();
            BuildStep::Record(vec![deploy.moved(Stored::Building { since: now, source, paused: Paused::default() })])
        }
        Some(deploy) => {
            spec(app_state, deploy).map_or(BuildStep::Idle, |spec| BuildStep::call(Effect::StartBuild(spec)))
        }
    }
}

/// A builder's answer, as far as it matters to a build's deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BuilderStatus {
    /// The builder is unavailable.
    Unavailable,
    /// The builder answers.
    Available,
    /// The build waits for a build slot.
    Waiting,
    /// The build runs.
    Running,
}

/// Returns the entry of this build with its interruptions updated; `None` if they are unchanged.
fn paused_entry(app_state: &AppState, revision: Revision, status: BuilderStatus, now: Timestamp) -> Option<Deploy> {
    building_entry(app_state, revision).and_then(|entry| paused(entry, status, now))
}

/// Returns the entry with the interruptions of its build updated; `None` if they are unchanged.
fn paused(entry: &Deploy, status: BuilderStatus, now: Timestamp) -> Option<Deploy> {
    let Stored::Building { since, source, paused } = &entry.state else { return None };
    let waiting = match status {
        // Whether the build still waits is unknown.
        BuilderStatus::Available => paused.waiting,
        // An interruption must not count twice.
        BuilderStatus::Unavailable | BuilderStatus::Waiting | BuilderStatus::Running => {
            paused.waiting.set(status == BuilderStatus::Waiting, now)
        }
    };
    let then = Paused { away: paused.away.set(status == BuilderStatus::Unavailable, now), waiting };
    let moved = || entry.moved(Stored::Building { since: *since, source: source.clone(), paused: then });
    (then != *paused).then(moved)
}

/// Returns the first entry of the queue: the one that is being built, else the oldest waiting one.
fn next_entry(app_state: &AppState) -> Option<&Deploy> {
    app_state.unfinished.iter().find(|deploy| deploy.is_to_be_built()).map(|deploy| &**deploy)
}

/// Returns the entry of a build whose end is awaited.
fn building_entry(app_state: &AppState, revision: Revision) -> Option<&Deploy> {
    let waits = |deploy: &&Deploy| deploy.is_to_be_built() && deploy.status() == Status::Building;
    app_state.unfinished(revision).map(|deploy| &**deploy).filter(waits)
}

/// Returns whether a build's entry has ended. A revision newer than the loaded app is unknown.
fn has_ended(app_state: &AppState, revision: Revision) -> bool {
    app_state.latest.is_some_and(|latest| revision <= latest)
        && app_state.unfinished.iter().all(|deploy| deploy.revision != revision)
}

fn failed(deploy: &Deploy, reason: &str, message: String) -> Deploy {
    deploy.moved(Stored::Failed { reason: Reason::new(reason), message, evidence: None })
}

fn spec(app_state: &AppState, deploy: &Deploy) -> Option<Box<BuildSpec>> {
    let Source::Git(source) = &app_state.app.source else { return None };
    Some(Box::new(BuildSpec {
        app: app_state.app.id.clone(),
        id: DeployId { app: app_state.app.uid, revision: deploy.revision },
        source: source.clone(),
        commit: deploy.commit.clone()?,
    }))
}

#[cfg(test)]
mod tests;
