//! Deciding on the pushes that git hosts report.

use super::*;
use crate::{
    delivery::{Before, GitHost},
    ledger::push::{BranchHead, PushDecision, PushedCommit, Unread, decide},
    tests::{git_source, queued as entry, sha},
};

/// An entry that a git host's report of a push made.
fn pushed(number: u64, commit: &str) -> Deploy {
    entry(number, Trigger::Webhook, Actor::git_host(GitHost::named("Forge"), None), Some(sha(commit)))
}

/// The decision on a git host's report of this commit; `entries` are newest first.
fn decided(entries: &[Deploy], commit: &str, branch_head: &BranchHead) -> PushDecision {
    let push = PushedCommit { commit: sha(commit), before: Before::Unreported, committed_at: None };
    decide(&git_source(), entries, &GitHost::named("Forge"), &push, branch_head)
}

#[test]
fn image_that_was_entered_anew_makes_no_later_push_late() {
    let anew = Deploy { from: Some(Origin::Built(revision(2))), ..pushed(5, "b2") };
    let entries = [anew, pushed(3, "c3"), pushed(2, "b2")];
    let PushDecision::Repeated(known) = decided(&entries, "c3", &BranchHead::Unread(Unread::Failed)) else {
        panic!("it was pushed last")
    };
    assert_eq!(known.revision, revision(3));
}

/// The reason why nothing is done.
#[track_caller]
fn ignored(entries: &[Deploy], commit: &str, branch_head: &BranchHead) -> String {
    match decided(entries, commit, branch_head) {
        PushDecision::Ignore(why) => why,
        other @ (PushDecision::Repeated(_) | PushDecision::Build) => panic!("{other:?}"),
    }
}

#[test]
fn late_push_is_told_what_became_of_its_commit() {
    let reason = || Reason::new(Reason::BUILD_FAILED);
    let message = || "It does not build.".to_owned();
    let by = revision(2);
    for (state, words) in [
        (State::Succeeded { note: None }, "which was deployed"),
        (State::Failed { reason: reason(), message: message(), evidence: None }, "which failed"),
        (State::Superseded { by, rollback: false, newer: None }, "which was superseded"),
        (State::Cancelled { reason: reason(), message: message() }, "which was cancelled"),
        (State::Queued, "which is queued"),
    ] {
        let entries = [pushed(2, "b2"), Deploy { state, ..pushed(1, "a1") }];
        let why = ignored(&entries, "a1", &BranchHead::Unread(Unread::TimedOut));
        let whole = format!("came as revision 1 before, {words}, revision 2 is of commit {}", sha("b2"));
        assert!(why.contains(&whole), "{why}");
    }
}

#[test]
fn late_push_is_told_why_the_place_of_the_branch_is_not_known() {
    let entries = [pushed(2, "b2"), pushed(1, "a1")];
    for (unread, words) in [
        (Unread::TimedOut, "did not say in time where branch \"main\" is"),
        (Unread::Failed, "the source cannot be read"),
        (Unread::Outdated, "the source said where branch \"main\" is before that"),
    ] {
        let why = ignored(&entries, "a1", &BranchHead::Unread(unread));
        assert!(why.contains(words), "{why}");
    }
}
