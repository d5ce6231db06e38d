//! Joining a state and its archive.

use super::*;
use crate::{ledger::history::page, ports::Page};

const ALL: Page = Page { before: None, succeeded: false, limit: 100 };

/// A state whose deploys 2 and 4 are unfinished, and the archive with 1, which succeeded, and 3, which failed.
fn halves() -> (AppState, Vec<Deploy>) {
    let (state, ended) = committed(queued(registered(), 4), |change| {
        let ends = vec![succeeded(&change.state.unfinished[0]), failed(&change.state.unfinished[2])];
        change.record(record(ends), NOW).unwrap();
    });
    (state, ended.iter().rev().map(|deploy| (**deploy).clone()).collect())
}

#[track_caller]
fn joined(state: &AppState, archived: &[Deploy], of: Page) -> Vec<u64> {
    // The archive answers the same page.
    let below = |deploy: &&Deploy| of.before.is_none_or(|before| deploy.revision < before);
    let archived = archived.iter().filter(below).take(of.limit).cloned().collect();
    page(state, archived, of).unwrap().iter().map(|deploy| deploy.revision.get()).collect()
}

#[test]
fn a_page_joins_state_and_archive() {
    let (state, archived) = halves();
    assert_eq!(joined(&state, &archived, ALL), [4, 3, 2, 1]);
    assert_eq!(joined(&state, &archived, Page { limit: 2, ..ALL }), [4, 3]);
    assert_eq!(joined(&state, &archived, Page { limit: 0, ..ALL }), [0; 0]);
    assert_eq!(joined(&state, &archived, Page { before: Some(revision(3)), ..ALL }), [2, 1]);
    assert_eq!(joined(&state, &archived, Page { before: Some(revision(4)), limit: 1, ..ALL }), [3]);
    assert_eq!(joined(&state, &archived[1..], Page { succeeded: true, ..ALL }), [1], "none of the state succeeded");
    assert_eq!(joined(&state, &[], ALL), [4, 2], "forgotten deploys are left out");
}

#[test]
fn a_page_of_two_points_in_time_is_none() {
    let (before, archived) = halves();
    let (later, ended) = committed(before.clone(), |change| {
        let end = succeeded(&change.state.unfinished[1]);
        change.record(record(vec![end]), NOW).unwrap();
    });
    let with_newest: Vec<Deploy> = ended.iter().map(|deploy| (**deploy).clone()).chain(archived).collect();
    assert_eq!(page(&before, with_newest.clone(), ALL), None, "4 is unfinished in the state and ended in the archive");
    assert!(page(&later, with_newest.clone(), ALL).is_some());
    let younger = AppState { latest: Some(revision(3)), unfinished: vec![before.unfinished[0].clone()], ..before };
    assert_eq!(page(&younger, with_newest, ALL), None, "4 was accepted after the state was read");
}
