//! Resolving: before anything of a deploy begins, the tag of its image becomes a digest, and that digest is deployed.
//!
//! The registry is asked beside whatever rolls out meanwhile, for the newest deploy that waits for it, and only until the answer
//! is recorded. A driver that takes over asks anew: nothing was touched by an answer that was lost.

use std::time::Duration;

use super::{Effect, State, interleave, record, retry};
use crate::{
    app::{CommitRule, Resolve},
    deploy::{Deploy, Reason, Resolution, Revision, State as Stored},
    image::ImageRef,
    ports::Resolved,
    time::Timestamp,
};

/// How long a registry that does not answer is asked again for an app that requires its answer.
const ASKED_FOR: Duration = Duration::from_secs(30);

/// The image of a deploy that is to be resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolveSpec {
    /// The revision of the deploy.
    pub revision: Revision,
    /// The image, as it was posted.
    pub image: ImageRef,
}

/// The reason why an image was not resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotResolved {
    /// The registry has no such image, as this sentence says.
    Missing(String),
    /// The registry has no such image, and the platform has stored one.
    Stored,
    /// The registry does not answer this, as the sentence says.
    Refused(String),
    /// The registry does not answer now, as the sentence says.
    Unavailable(String),
}

/// A driver's knowledge of the resolution that is under way. A restart may lose it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResolveProgress {
    /// The deploy whose image's registry is being asked.
    under_way: Option<Revision>,
    /// The deploy whose registry did not answer, when it was asked first, how often, and the time of the next call.
    unanswered: Option<(Revision, Timestamp, u32, Timestamp)>,
}

impl ResolveProgress {
    /// Adjusts to a clock that was set from `was` to `is`.
    pub(super) fn clock_set(&mut self, was: Timestamp, is: Timestamp) {
        if let Some((_, since, _, at)) = &mut self.unanswered {
            *since = since.reset(was, is);
            *at = at.reset(was, is);
        }
    }

    /// The deploy whose image's registry is being asked.
    pub(super) fn under_way(&self) -> Option<Revision> {
        self.under_way
    }
}

/// Returns the effect of resolving if all else only waits.
pub(super) fn interleaved(state: &mut State, effect: Effect, now: Timestamp) -> Effect {
    if !matches!(effect, Effect::Wait(_) | Effect::Watch(..)) {
        return effect;
    }
    let Some(deploy) = state.app_state.unfinished.iter().rfind(|deploy| deploy.is_to_be_resolved()) else {
        state.resolve = ResolveProgress::default();
        return effect;
    };
    let Some(image) = deploy.image.clone() else { return effect };
    let revision = deploy.revision;
    if !state.has_registry || state.app_state.app.policy.resolve == Resolve::Off {
        let why = if state.has_registry { "the app's policy is off now" } else { "this process reads no registries" };
        return record(state, vec![with(deploy, Resolution::unresolved(why))], Vec::new());
    }
    if state.resolve.under_way == Some(revision) {
        return effect;
    }
    match state.resolve.unanswered.filter(|(of, ..)| *of == revision) {
        Some((.., at)) if at > now => interleave::no_longer_than(effect, at),
        Some(_) | None => Effect::Resolve(Box::new(ResolveSpec { revision, image })),
    }
}

/// Processes the begin of a call.
pub(super) fn started(state: &mut State, revision: Revision) {
    state.resolve.under_way = Some(revision);
}

/// Processes the answer of a registry. Returns the effect that has to come next, if it demands one.
pub(super) fn answered(
    state: &mut State,
    revision: Revision,
    answer: Result<Resolved, NotResolved>,
    now: Timestamp,
) -> Option<Effect> {
    if state.resolve.under_way != Some(revision) {
        return None;
    }
    state.resolve.under_way = None;
    let deploy = state.app_state.unfinished(revision).filter(|deploy| deploy.is_to_be_resolved())?.clone();
    let is_required = state.app_state.app.policy.resolve == Resolve::Require;
    let first = state.resolve.unanswered.filter(|(of, ..)| *of == revision);
    let (since, calls) = first.map_or((now, 0), |(_, since, calls, _)| (since, calls));
    if is_required && matches!(answer, Err(NotResolved::Unavailable(_))) && now.since(since) < ASKED_FOR {
        state.resolve.unanswered = Some((revision, since, calls + 1, now.after(retry::backoff(calls + 1))));
        return None;
    }
    state.resolve.unanswered = None;
    let found = match answer {
        Ok(found) => resolved(&deploy, found, state.app_state.app.policy.commit),
        Err(why) => unresolved(&deploy, why, is_required),
    };
    Some(record(state, vec![found], Vec::new()))
}

/// Returns a deploy with the digest of its image; failed if the app has commits match, and the image was built from another one.
fn resolved(deploy: &Deploy, found: Resolved, rule: CommitRule) -> Deploy {
    let labelled = found.labels.commit().filter(|_| rule == CommitRule::MustMatch);
    if let Some((posted, labelled)) = deploy.commit.as_ref().zip(labelled).filter(|(one, other)| !one.may_be(other)) {
        let message = format!(
            "The image says that it was built from commit {labelled}, and {posted} was posted with it: the app has them match."
        );
        return failed(deploy, Reason::COMMIT_MISMATCH, message);
    }
    let resolved = with(deploy, Resolution::Resolved { labels: found.labels });
    Deploy { digest: Some(found.digest), ..resolved }
}

/// Returns a deploy whose image was not resolved: left to its platform, or failed.
fn unresolved(deploy: &Deploy, why: NotResolved, is_required: bool) -> Deploy {
    // A posted digest is the image, whether or not the registry shows it.
    let is_required = is_required && deploy.image.as_ref().is_none_or(|image| image.digest().is_none());
    match why {
        NotResolved::Missing(message) => failed(deploy, Reason::IMAGE_NOT_FOUND, message),
        NotResolved::Stored if is_required => {
            let message =
                "The registry does not have the image: only the platform has stored one, of which it names no digest.";
            failed(deploy, Reason::IMAGE_NOT_RESOLVED, message.to_owned())
        }
        NotResolved::Stored => {
            with(deploy, Resolution::unresolved("its registry does not have it, and the platform has stored it"))
        }
        NotResolved::Refused(why) | NotResolved::Unavailable(why) if is_required => {
            let message = format!("The image was not resolved, as the app requires: {why}");
            failed(deploy, Reason::IMAGE_NOT_RESOLVED, message)
        }
        NotResolved::Refused(why) | NotResolved::Unavailable(why) => with(deploy, Resolution::unresolved(&why)),
    }
}

fn with(deploy: &Deploy, resolution: Resolution) -> Deploy {
    Deploy { resolution: Some(Box::new(resolution)), ..deploy.moved(deploy.state.clone()) }
}

fn failed(deploy: &Deploy, reason: &str, message: String) -> Deploy {
    let ended = Stored::Failed { reason: Reason::new(reason), message, evidence: None };
    Deploy { resolution: None, ..deploy.moved(ended) }
}
