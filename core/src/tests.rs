//! Apps and deploys for unit tests.

use std::sync::Arc;

use crate::{
    app::{App, AppUid, Policy, Source, Target},
    deploy::{Actor, AdmissionId, Commit, Deploy, Revision, Trigger},
    ledger::{AppState, NewDeploy},
    request::Cause,
    source::GitSource,
    time::Timestamp,
};

pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_000_000);

pub(crate) fn revision(number: u64) -> Revision {
    Revision::new(number).unwrap()
}

/// A commit of these first digits, in full.
pub(crate) fn sha(digits: &str) -> Commit {
    format!("{digits:0<40}").parse().unwrap()
}

pub(crate) fn git_source() -> GitSource {
    GitSource {
        url: "https://git.example.com/api.git".parse().unwrap(),
        branch: "main".parse().unwrap(),
        dockerfile: "Dockerfile".parse().unwrap(),
        context: ".".parse().unwrap(),
        image_repository: "registry.example.com/api".parse().unwrap(),
        credentials: None,
    }
}

pub(crate) fn git_app(uid: u128, policy: Policy) -> App {
    App {
        id: "shop-test/api".parse().unwrap(),
        uid: AppUid::from_bits(uid),
        project: "shop".parse().unwrap(),
        environment: "test".parse().unwrap(),
        source: Source::Git(git_source()),
        target: Target::default(),
        policy,
        holds: Vec::new(),
        locks: crate::lock::Locks::default(),
        requirements: crate::requirement::RequirementCopies::default(),
        created_at: NOW,
    }
}

/// A queued deploy of a commit.
pub(crate) fn queued(number: u64, trigger: Trigger, actor: Actor, commit: Option<Commit>) -> Deploy {
    let deploy = NewDeploy { commit, ..NewDeploy::new(&Cause { trigger, actor }) };
    deploy.entry(AdmissionId(u128::from(number)), revision(number), NOW)
}

/// A git app with these queued deploys, each of its own commit.
pub(crate) fn git_state(revisions: &[u64]) -> AppState {
    let deploy = |number: &u64| {
        let commit = format!("abc{number:037}").parse().ok();
        Arc::new(queued(*number, Trigger::Webhook, Actor::Ci, commit))
    };
    AppState {
        latest: revisions.last().map(|last| revision(*last)),
        unfinished: revisions.iter().map(deploy).collect(),
        queued_at: Some(NOW),
        ..AppState::new(git_app(1, Policy::default()))
    }
}
