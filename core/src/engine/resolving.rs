//! Resolving: before anything of a deploy begins, the tag of its image becomes a digest, and that digest is deployed. If the app
//! requires signatures, those of this digest are verified with it. Of a commit that CI posts, the source says whether it is older
//! than what came before it ([`super::ordering`]).
//!
//! The registry is asked beside whatever rolls out meanwhile, for the newest deploy that waits for it, and only until the answer
//! is recorded. A driver that takes over asks anew: nothing was touched by an answer that was lost.

use std::time::Duration;

use super::{
    Effect, State, interleave,
    ordering::{self, NewerDeploy},
    record, retry, sentence,
};
use crate::{
    app::{App, CommitRule, Resolve, Source},
    deploy::{Commit, Deploy, Reason, Resolution, Revision, State as Stored, Status, bounded_lines},
    image::{Digest, ImageRef},
    ledger::{AppState, admission},
    ports::Resolved,
    requirement::{Required, RequirementScope},
    source::{Fingerprint, GitSource},
    time::Timestamp,
};

/// The reason why a git app's image meets no requirement, a clause.
pub(super) const BUILT_HERE: &str = "a git app's image is built here, and carries no signature";

/// How long a registry that does not answer is asked again for an app that requires its answer.
const ASKED_FOR: Duration = Duration::from_secs(30);

/// A deploy that is to be resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolveSpec {
    /// The revision of the deploy.
    pub revision: Revision,
    /// The question.
    pub question: Question,
}

/// A question about a deploy, which is answered before anything of it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// To the registry: the digest of the image.
    Image {
        /// The image, as it was posted.
        image: ImageRef,
        /// The requirements that it must meet; empty: its signatures are not looked at.
        required: Vec<Required>,
    },
    /// To the source: whether the commit is older than those of earlier deploys.
    Order {
        /// The source.
        source: GitSource,
        /// The commit, as it was posted.
        commit: Commit,
    },
}

/// The answer to a question about a deploy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The registry's.
    Image(Result<Box<FoundImage>, NotResolved>),
    /// The source's.
    Order {
        /// The source that was asked.
        source: Fingerprint,
        /// The earlier deploy whose commit is newer, if there is one; or why that is not known, a clause.
        newer: Result<Option<NewerDeploy>, String>,
    },
}

/// An image that a registry has named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundImage {
    /// The answer of the registry.
    pub resolved: Resolved,
    /// The requirements that it meets.
    pub met: Vec<Required>,
    /// Its signers, each as a line; empty where nothing is required.
    pub signed_by: Vec<String>,
}

/// The reason why an image was not resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotResolved {
    /// The registry has no such image, as this sentence says.
    Missing(String),
    /// The platform runs an image as it has stored it, whatever its registry has.
    Stored,
    /// The registry does not answer this, as the sentence says.
    Refused(String),
    /// The registry does not answer now, as the sentence says.
    Unavailable(String),
    /// The image lacks what is required.
    Unsigned {
        /// The requirement that it does not meet.
        required: Box<Required>,
        /// The digest of the image, which is what would be signed.
        digest: Digest,
        /// The signatures that were found in its place, or the reasons why they cannot be read, each as a line.
        found: Vec<String>,
    },
}

/// A driver's knowledge of the resolution that is under way. A restart may lose it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResolveProgress {
    /// The deploy whose image's registry is being asked.
    under_way: Option<Revision>,
    /// The outage of the registry: of all deploys, as one that fails by it is followed by others.
    outage: Option<Unanswered>,
}

/// Calls that were not answered, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unanswered {
    since: Timestamp,
    calls: u32,
    next_at: Timestamp,
}

impl ResolveProgress {
    /// Adjusts to a clock that was set from `was` to `is`.
    pub(super) fn clock_set(&mut self, was: Timestamp, is: Timestamp) {
        if let Some(outage) = &mut self.outage {
            outage.since = outage.since.reset(was, is);
            outage.next_at = outage.next_at.reset(was, is);
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
    if state.app_state.unfinished.iter().all(|deploy| !deploy.is_to_be_resolved()) {
        state.resolve = ResolveProgress::default();
        return effect;
    }
    if let Some(question) = ordering::question(state) {
        return question;
    }
    let mut newest_first = state.app_state.unfinished.iter().rev().filter(|deploy| deploy.is_to_be_resolved());
    let with_image = newest_first.find_map(|deploy| Some((deploy, deploy.image.clone()?)));
    let Some((deploy, image)) = with_image else { return effect };
    let revision = deploy.revision;
    let required = state.app_state.app.required();
    if let Some(first) = required.first().filter(|_| !state.has_registry || !state.has_image_verifier) {
        let changed = unsigned(deploy, first, "this process verifies no signatures");
        return record(state, vec![changed], Vec::new());
    }
    if !state.has_registry || state.app_state.app.resolve() == Resolve::Off {
        let why = if state.has_registry { "the app's policy is off now" } else { "this process reads no registries" };
        let is_required = is_required(state, deploy);
        let changed = unresolved(state, deploy, NotResolved::Refused(why.to_owned()), is_required);
        return record(state, vec![changed], Vec::new());
    }
    // A call that is under way for an older one is waited for: else a slow registry would answer for none.
    if is_under_way(state) {
        return effect;
    }
    match state.resolve.outage {
        Some(outage) if outage.next_at > now => interleave::no_longer_than(effect, outage.next_at),
        Some(_) | None => {
            Effect::Resolve(Box::new(ResolveSpec { revision, question: Question::Image { image, required } }))
        }
    }
}

/// Returns whether a question about a deploy that waits for the answer is under way.
pub(super) fn is_under_way(state: &State) -> bool {
    state.resolve.under_way.is_some_and(|asked| waiting(state, asked).is_some())
}

/// Processes the begin of a call.
pub(super) fn started(state: &mut State, revision: Revision) {
    state.resolve.under_way = Some(revision);
}

/// Processes an answer. Returns the effect that has to come next, if it demands one.
pub(super) fn answered(state: &mut State, revision: Revision, answer: Answer, now: Timestamp) -> Option<Effect> {
    if state.resolve.under_way != Some(revision) {
        return None;
    }
    state.resolve.under_way = None;
    let deploy = waiting(state, revision)?.clone();
    match answer {
        Answer::Image(answer) => {
            let outage = state.resolve.outage.take();
            answered_by_registry(state, deploy, (answer, outage), now)
        }
        Answer::Order { source, newer } => ordering::answered(state, &deploy, &source, newer),
    }
}

fn answered_by_registry(
    state: &mut State,
    deploy: Deploy,
    (answer, outage): (Result<Box<FoundImage>, NotResolved>, Option<Unanswered>),
    now: Timestamp,
) -> Option<Effect> {
    if is_outdated(&state.app_state.app.required(), &answer) {
        return None;
    }
    let why = match answer {
        Ok(found) => return Some(record(state, vec![resolved(&state.app_state.app, &deploy, *found)], Vec::new())),
        Err(why) => why,
    };
    let is_required = is_required(state, &deploy);
    if !is_required || !matches!(why, NotResolved::Unavailable(_)) {
        return Some(record(state, vec![unresolved(state, &deploy, why, is_required)], Vec::new()));
    }
    let (since, calls) = outage.map_or((now, 1), |outage| (outage.since, outage.calls + 1));
    state.resolve.outage = Some(Unanswered { since, calls, next_at: now.after(retry::backoff(calls)) });
    let is_over = now.since(since) >= ASKED_FOR;
    is_over.then(|| record(state, ended_by_outage(state, &deploy, &why), Vec::new()))
}

/// Returns whether an answer is about other requirements than there are by now, so that the registry is asked anew.
fn is_outdated(now: &[Required], answer: &Result<Box<FoundImage>, NotResolved>) -> bool {
    match answer {
        Ok(found) => now.iter().any(|required| !found.met.contains(required)),
        Err(NotResolved::Unsigned { required, .. }) => !now.contains(required),
        Err(NotResolved::Missing(_) | NotResolved::Stored | NotResolved::Refused(_) | NotResolved::Unavailable(_)) => {
            false
        }
    }
}

/// Returns the end of a deploy whose registry is away, and of all others that wait for that registry: asking for each would hold up
/// a restore.
fn ended_by_outage(state: &State, deploy: &Deploy, why: &NotResolved) -> Vec<Deploy> {
    let host = |deploy: &Deploy| deploy.image.as_ref().map(ImageRef::registry);
    let waiting = state.app_state.unfinished.iter().filter(|other| other.is_to_be_resolved());
    let of_host = waiting.filter(|other| host(other) == host(deploy));
    of_host.map(|other| unresolved(state, other, why.clone(), is_required(state, other))).collect()
}

/// Returns a deploy that waits for its image's registry.
fn waiting(state: &State, revision: Revision) -> Option<&Deploy> {
    state.app_state.unfinished(revision).map(|deploy| &**deploy).filter(|deploy| deploy.is_to_be_resolved())
}

/// Returns whether a deploy fails without its digest. A posted digest is the image, whether or not the registry shows it; its
/// signatures are nowhere else.
fn is_required(state: &State, deploy: &Deploy) -> bool {
    let app = &state.app_state.app;
    let has_digest = deploy.image.as_ref().is_some_and(|image| image.digest().is_some());
    app.requires_signatures() || app.resolve() == Resolve::Require && !has_digest
}

/// Returns a deploy with the digest of its image; failed if the app has commits match, and the image was built from another one, or
/// if the image is held by another tag.
fn resolved(app: &App, deploy: &Deploy, found: FoundImage) -> Deploy {
    let FoundImage { resolved: found, signed_by, met } = found;
    let pinned = deploy.image.clone().map(|image| image.pinned(found.digest.clone()));
    if let Err(refusal) = admission::held(app, pinned.as_ref(), None, deploy.trigger) {
        return failed(deploy, Reason::IMAGE_HELD, refusal.to_string());
    }
    // An image that is built here has the labels of the one below it.
    let must_match = app.policy.commit == CommitRule::MustMatch && app.source == Source::Image;
    let labelled = found.labels.commit().filter(|_| must_match);
    if let Some((posted, labelled)) = deploy.commit.as_ref().zip(labelled).filter(|(one, other)| !one.may_be(other)) {
        let message = format!(
            "The image says that it was built from commit {labelled}, and {posted} was posted with it: the app has them match."
        );
        return failed(deploy, Reason::COMMIT_MISMATCH, message);
    }
    let resolved = with(deploy, Resolution::resolved(found.labels, &found.platforms, &signed_by, &met));
    Deploy { digest: Some(found.digest), ..resolved }
}

/// Returns a deploy whose image was not resolved: left to its platform, or failed.
fn unresolved(state: &State, deploy: &Deploy, why: NotResolved, is_required: bool) -> Deploy {
    let required = state.app_state.app.required();
    match (why, required.first()) {
        (NotResolved::Stored, Some(required)) => {
            unsigned(deploy, required, "it was made on the platform itself, where nothing is signed")
        }
        (NotResolved::Unsigned { required, digest, found }, _) if found.is_empty() => {
            unsigned(deploy, &required, &format!("{digest} has no signatures and no attestations"))
        }
        (NotResolved::Unsigned { required, digest, found }, _) => {
            unsigned(deploy, &required, &format!("for {digest}, {}", bounded_lines(&found).join("; ")))
        }
        (NotResolved::Missing(message), _) => failed(deploy, Reason::IMAGE_NOT_FOUND, message),
        (NotResolved::Stored, None) if is_required => {
            let message = "The image was made on the platform itself, where no registry names its digest.";
            failed(deploy, Reason::IMAGE_NOT_RESOLVED, message.to_owned())
        }
        (NotResolved::Stored, None) => {
            with(deploy, Resolution::unresolved("the platform has one of its own, which came from no registry"))
        }
        (NotResolved::Refused(why), _) if is_required => undetermined(deploy, required.first(), &why),
        (NotResolved::Unavailable(why), _) if is_required => {
            let why = format!("{} Deploy it again once the registry answers.", sentence(&why));
            undetermined(deploy, required.first(), &why)
        }
        (NotResolved::Refused(why) | NotResolved::Unavailable(why), _) => with(deploy, Resolution::unresolved(&why)),
    }
}

/// Returns a deploy that failed as the digest of its image, or its signatures, were not found.
fn undetermined(deploy: &Deploy, required: Option<&Required>, why: &str) -> Deploy {
    let scope = required.map_or(RequirementScope::App, |required| required.scope);
    let message = format!("The {scope} requires the digest of the image, which was not found: {why}");
    failed(deploy, Reason::IMAGE_NOT_RESOLVED, message)
}

/// Returns the ends of the deploys that wait to begin, and whose images were not found to meet what is required by now.
pub(super) fn unmet(app_state: &AppState) -> Option<Vec<Deploy>> {
    let app = &app_state.app;
    if !app.requires_signatures() {
        return None;
    }
    let waits = |deploy: &Deploy| matches!(deploy.status(), Status::Queued | Status::Building) && deploy.may_begin();
    let found = match &app.source {
        Source::Git(_) => BUILT_HERE,
        Source::Image => {
            "no verdict on this, as the deploy was accepted before it was required; deploy the image again"
        }
    };
    let unmet = app_state.unfinished.iter().filter(|deploy| waits(deploy) && admission::is_unmet(app, deploy));
    let ends: Vec<_> = unmet.filter_map(|deploy| Some(unsigned(deploy, app.required().first()?, found))).collect();
    (!ends.is_empty()).then_some(ends)
}

/// Returns a deploy that failed as its image lacks what is required, with what was found in its place.
pub(super) fn unsigned(deploy: &Deploy, required: &Required, found: &str) -> Deploy {
    let (scope, demanded, found) = (required.scope, required.requirement.summary(), found.trim_end_matches('.'));
    let message = format!("The {scope} requires that the image is {demanded}. Found: {found}.");
    failed(deploy, Reason::IMAGE_NOT_SIGNED, message)
}

fn with(deploy: &Deploy, resolution: Resolution) -> Deploy {
    Deploy { resolution: Some(Box::new(resolution)), ..deploy.moved(deploy.state.clone()) }
}

fn failed(deploy: &Deploy, reason: &str, message: String) -> Deploy {
    let message = format!("{} Nothing was touched.", sentence(&message));
    let ended = Stored::Failed { reason: Reason::new(reason), message, evidence: None };
    // What was answered before stays true.
    let resolution = deploy.resolution.clone().filter(|resolution| **resolution != Resolution::Pending);
    Deploy { resolution, ..deploy.moved(ended) }
}
