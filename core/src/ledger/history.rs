//! A page of history: the unfinished deploys of a state, and the archived ones below them.

use std::collections::BTreeSet;

use super::AppState;
use crate::{
    deploy::{Deploy, Revision},
    ports::Page,
};

/// The deploys of a page, newest first: those of the state, and those that the archive answered for the same page after
/// the state was read.
///
/// Returns `None` if a deploy has ended between the two reads, so that they do not tell of one point in time: read both
/// again.
pub fn page(state: &AppState, archived: Vec<Deploy>, page: Page) -> Option<Vec<Deploy>> {
    let unfinished: BTreeSet<Revision> = state.unfinished.iter().map(|deploy| deploy.revision).collect();
    let is_of_state = |deploy: &Deploy| Some(deploy.revision) <= state.latest && !unfinished.contains(&deploy.revision);
    if !archived.iter().all(is_of_state) {
        return None;
    }
    let below = |revision: Revision| page.before.is_none_or(|before| revision < before);
    let mut deploys = archived;
    if !page.succeeded {
        deploys
            .extend(state.unfinished.iter().filter(|deploy| below(deploy.revision)).map(|deploy| (**deploy).clone()));
        deploys.sort_by_key(|deploy| std::cmp::Reverse(deploy.revision));
    }
    deploys.truncate(page.limit);
    Some(deploys)
}
