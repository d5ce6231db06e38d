//! Deciding on the pushes that git hosts report.

use super::*;
use crate::{
    delivery::{Before, GitHost},
    ledger::push::{BranchHead, PushDecision, PushedCommit, decide},
    tests::{git_source, queued as entry, sha},
};

/// An entry that GitHub's report of a push made.
fn pushed(number: u64, commit: &str) -> Deploy {
    entry(number, Trigger::Webhook, Actor::git_host(GitHost::Github, None), Some(sha(commit)))
}

/// The decision on GitHub's report of this commit; `entries` are newest first.
fn decided(entries: &[Deploy], commit: &str, branch_head: &BranchHead) -> PushDecision {
    let push = PushedCommit { commit: sha(commit), before: Before::Unreported };
    decide(&git_source(), entries, GitHost::Github, &push, branch_head)
}

#[test]
fn image_that_was_entered_anew_makes_no_later_push_late() {
    let anew = Deploy { from: Some(Origin::Built(revision(2))), ..pushed(5, "b2") };
    let entries = [anew, pushed(3, "c3"), pushed(2, "b2")];
    let PushDecision::Repeated(known) = decided(&entries, "c3", &BranchHead::Unread) else {
        panic!("it was pushed last")
    };
    assert_eq!(known.revision, revision(3));
}
