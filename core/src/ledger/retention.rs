//! How long archived deploys are kept: the newest, and those that others depend on.
//!
//! A rollback leads from each version to the newest before it with another image, from that to the next, and so on: of
//! this chain the first ten are kept, however often one image succeeded in between.

use super::AppState;
use crate::{
    deploy::{Deploy, Revision, Status},
    image::{Digest, ImageRef},
    time::Timestamp,
};

/// How many versions, each of another image than the one before, stay available for rollbacks; the version that runs,
/// or ran last, is the first of them.
const TARGETS: usize = 10;

/// The number of surplus deploys that gather before retention reads the archive: one read serves many.
const MARGIN: u64 = 50;

/// The most deploys that are kept because their idempotency keys may still be repeated, beside those that are kept
/// anyway: with more, the oldest go, and their keys with them.
pub const REPEATABLE_MAX: usize = 2_000;

/// Returns whether enough deploys were archived since the last run of retention.
pub fn is_due(state: &AppState) -> bool {
    state.kept_from < kept_from(state, MARGIN)
}

/// Returns the oldest of the newest revisions that the policy keeps, and of `more` besides.
pub(super) fn kept_from(state: &AppState, more: u64) -> Revision {
    let latest = state.latest.map_or(0, Revision::get);
    Revision::new(latest.saturating_sub(u64::from(state.app.policy.keep) + more)).unwrap_or(Revision::FIRST)
}

/// Returns the archived deploys that need not be kept. `archived` are all of the app's, newest first.
///
/// Kept are the newest that the policy keeps, the current deploy and the one on the cluster, the targets of rollbacks
/// from these, the last restore, the deploy of the highest sequence, and the newest [`REPEATABLE_MAX`] others whose idempotency key may still be repeated.
pub fn surplus(state: &AppState, archived: &[Deploy], now: Timestamp) -> Vec<Revision> {
    let returned_to = [state.current.as_ref(), state.on_cluster(), state.good_before.as_ref()]
        .into_iter()
        .flatten()
        .map(|deploy| deploy.effective);
    let mut kept: Vec<Revision> = targets(archived, u64::MAX, TARGETS);
    for revision in returned_to {
        kept.extend(targets(archived, revision.get(), TARGETS));
        kept.push(revision);
    }
    let pointed_at = [state.current.as_ref(), state.on_cluster(), state.good_before.as_ref()]
        .into_iter()
        .flatten()
        .map(|deploy| deploy.revision);
    let highest = state.highest_sequence.map(|highest| highest.revision);
    kept.extend(pointed_at.chain(state.last_restore).chain(highest));
    let mut repeatable = 0;
    let goes = |deploy: &&Deploy| {
        if kept.contains(&deploy.revision) {
            return false;
        }
        let is_repeatable = deploy.kept_until.is_some_and(|kept_until| kept_until > now);
        repeatable += usize::from(is_repeatable);
        !is_repeatable || repeatable > REPEATABLE_MAX
    };
    let newest = usize::try_from(state.app.policy.keep).unwrap_or(usize::MAX);
    archived.iter().skip(newest).filter(goes).map(|deploy| deploy.revision).collect()
}

/// Returns whether every entry that is newer than the newest of the archive, as it was read, is unfinished.
pub fn holds_all_since(state: &AppState, newest: Option<Revision>) -> bool {
    let number = |revision: Option<Revision>| revision.map_or(0, Revision::get);
    let newer = number(state.latest).saturating_sub(number(newest));
    let unfinished = state.unfinished.iter().filter(|deploy| newest.is_none_or(|newest| deploy.revision > newest));
    u64::try_from(unfinished.count()).is_ok_and(|unfinished| unfinished == newer)
}

/// Returns the digests of the images that the app runs, is to run, or may go back to, by so many versions. `archived` are
/// the app's newest, newest first.
pub fn needed_digests(state: &AppState, archived: &[Deploy], versions: usize) -> Vec<Digest> {
    let pointed_at = || [state.current.as_ref(), state.on_cluster(), state.good_before.as_ref()].into_iter().flatten();
    let mut needed = targets(archived, u64::MAX, versions);
    for revision in pointed_at().map(|deploy| deploy.effective) {
        needed.extend(targets(archived, revision.get(), versions));
        needed.push(revision);
    }
    needed.extend(state.last_restore);
    let needed = archived.iter().filter(|deploy| needed.contains(&deploy.revision));
    let unfinished = pointed_at().chain(&state.unfinished).map(|deploy| &**deploy);
    needed.chain(unfinished).filter_map(digest).collect()
}

/// Returns the archived deploys' images, each once, whose digests are known and not among these.
pub fn surplus_images(archived: &[Deploy], needed: &[Digest]) -> Vec<ImageRef> {
    let mut surplus: Vec<ImageRef> = Vec::new();
    for image in archived.iter().filter_map(Deploy::pinned_image) {
        let is_surplus = image.digest().is_some_and(|digest| !needed.contains(digest));
        if is_surplus && !surplus.iter().any(|known| known.digest() == image.digest()) {
            surplus.push(image);
        }
    }
    surplus
}

fn digest(deploy: &Deploy) -> Option<Digest> {
    deploy.pinned_image()?.digest().cloned()
}

/// Returns the chain of versions, each of another image than the one before, at or below a revision; so many at most.
fn targets(archived: &[Deploy], from: u64, most: usize) -> Vec<Revision> {
    let mut last: Option<&Deploy> = None;
    let succeeded =
        archived.iter().filter(|deploy| deploy.status() == Status::Succeeded && deploy.revision.get() <= from);
    let others = succeeded.filter(|deploy| {
        let other = last.is_none_or(|last| !last.same_image(deploy));
        if other {
            last = Some(deploy);
        }
        other
    });
    others.take(most).map(|deploy| deploy.revision).collect()
}
