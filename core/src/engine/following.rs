//! Following: the decision on the newest image of a repository.
//!
//! What was decided on is stored with the app, so that each image is decided on once, whatever restarts or takes over, and only
//! something newer comes after it. A rule that has just been set decides on what is there, and deploys nothing.

use std::time::Duration;

use super::polling::{Finding, HeadDecision};
use crate::{
    deploy::{Actor, Deploy, Revision, Trigger},
    follow::Followed,
    image::ImageRef,
    ledger::{AppState, admission},
    request::{Cause, DeployRequest, Refusal},
};

/// An image that is newer each time it is looked for is deployed after this many times to settle.
const SETTLES_MAX: u32 = 10;

/// Why following deploys nothing of what it has found, or that it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The rule has decided on nothing in this repository yet.
    Begins,
    /// The repository has no tag that the rule follows.
    Nothing,
    /// The image was decided on before, or is no newer than what was.
    Followed,
    /// The image is no newer than a version that runs, or that was accepted last.
    NoNewer(ImageRef),
    /// The history has the image already, as this revision.
    Deployed(Revision),
    /// The rollback of this revision holds the image.
    Held(Revision),
    /// The image is newer.
    Newer,
}

/// Decides on what was found newest. `entries` are the app's, newest first, back to one of the image or to the oldest.
pub fn decide(app_state: &AppState, entries: &[Deploy], found: &Followed, finding: &Finding) -> HeadDecision {
    match standing(app_state, entries, found) {
        Standing::Nothing if app_state.followed().is_some() => HeadDecision::Known,
        Standing::Followed => HeadDecision::Known,
        Standing::Begins | Standing::Nothing | Standing::NoNewer(_) | Standing::Deployed(_) => HeadDecision::Noted,
        Standing::Held(by) => HeadDecision::Held(by),
        Standing::Newer => newer(app_state, found, finding),
    }
}

fn newer(app_state: &AppState, found: &Followed, finding: &Finding) -> HeadDecision {
    let policy = &app_state.app.policy;
    let Some(image) = found.newest.clone() else { return HeadDecision::Known };
    let left = left_to_settle(policy.follow_settle, finding);
    if !left.is_zero() {
        return HeadDecision::Unconfirmed(left);
    }
    let request = DeployRequest::image(image);
    let cause = Cause { trigger: Trigger::Registry, actor: Actor::Service };
    match admission::deploy(&app_state.app, &request, &cause) {
        Ok(decided) => HeadDecision::Deploy(Box::new(decided.deploy)),
        Err(Refusal::ImageHeld { by, .. }) => HeadDecision::Held(by),
        Err(refusal) => HeadDecision::Refused(refusal),
    }
}

/// Returns the time that an image has yet to stay the newest; zero once it has, or once there was always a newer one.
fn left_to_settle(settle: Duration, finding: &Finding) -> Duration {
    if finding.new_for >= settle.saturating_mul(SETTLES_MAX) {
        return Duration::ZERO;
    }
    settle.saturating_sub(finding.unchanged_for)
}

/// Returns what is known of what was found by the app's present rule in its present repository.
///
/// A tag is not set back by following: what the history has is never deployed again without a request, whatever its outcome was.
pub fn standing(app_state: &AppState, entries: &[Deploy], found: &Followed) -> Standing {
    let Some(before) = app_state.followed() else { return Standing::Begins };
    let Some(digest) = found.newest.as_ref().and_then(ImageRef::digest) else { return Standing::Nothing };
    let is_followed = before.newest.as_ref().is_some_and(|known| {
        // A tag that is followed by itself moves; one that is a version or a number is that one for good.
        let is_same = known.digest() == Some(digest);
        is_same || found.rule.is_ordered() && found.rank() <= before.rank()
    });
    if is_followed {
        return Standing::Followed;
    }
    held_or_deployed(app_state, entries, found).unwrap_or_else(|| match no_older(app_state, found) {
        Some(known) => Standing::NoNewer(known),
        None => Standing::Newer,
    })
}

/// Returns the standing of what was found, for a person: of an image that was decided on before, the rollback that holds it, or the
/// entry that has it.
pub fn explained(app_state: &AppState, entries: &[Deploy], found: &Followed) -> Standing {
    let standing = standing(app_state, entries, found);
    let known = (standing == Standing::Followed).then(|| held_or_deployed(app_state, entries, found)).flatten();
    known.unwrap_or(standing)
}

fn held_or_deployed(app_state: &AppState, entries: &[Deploy], found: &Followed) -> Option<Standing> {
    let image = found.newest.as_ref();
    if let Err(Refusal::ImageHeld { by, .. }) = admission::held(&app_state.app, image, None, Trigger::Registry) {
        return Some(Standing::Held(by));
    }
    let entry = entries.iter().find(|entry| is_of(entry, found))?;
    Some(Standing::Deployed(entry.revision))
}

/// Returns whether an entry deploys the found image.
pub fn is_of(entry: &Deploy, found: &Followed) -> bool {
    let Some(digest) = found.newest.as_ref().and_then(ImageRef::digest) else { return false };
    let image =
        entry.image.as_ref().filter(|image| image.canonical_repository() == found.repository.canonical_repository());
    image.is_some_and(|image| entry.digest.as_ref().or(image.digest()) == Some(digest))
}

/// Returns an image that runs, or was accepted last, and is at least as new as the found one by its version or number.
fn no_older(app_state: &AppState, found: &Followed) -> Option<ImageRef> {
    let rank = found.rank().filter(|_| found.rule.is_ordered())?;
    let known = [app_state.current.as_ref(), app_state.newest()];
    let images = known.into_iter().flatten().filter_map(|deploy| deploy.image.clone());
    let repository = found.repository.canonical_repository();
    let mut same = images.filter(|image| image.canonical_repository() == repository);
    same.find(|image| found.rule.rank_of(image).is_some_and(|known| known >= rank))
}
