//! The sources of git apps, and the fate of each commit.

use std::time::Duration;

use rollhook_core::{
    delivery::{Before, Delivery, Event, GitHost, Head, Push, RefUpdate, Reference},
    deploy::Commit,
    request::{DeployRequest, IdempotencyKey, SourceChange},
    source::GitSource,
};
use rollhook_memory::{BuildScript, Script};

use crate::images::{TAGS, drains, image};

/// How long a sound commit takes to be built.
pub(crate) const BUILD: Duration = Duration::from_secs(3);

/// How the commits begin that stand for the tags, in their order: the first three are sound; some are not built, each
/// in its own way, and some are and do not run.
const BEGINNINGS: [&str; TAGS.len()] =
    ["a01", "a02", "a03", "404", "510", "a04", "b01", "b02", "888", "b03", "300", "500", "b04", "520", "b05"];

/// The behaviour of builds that the builder does not know by their commit.
pub(crate) fn build_scripts() -> Vec<(&'static str, BuildScript)> {
    let seconds = Duration::from_secs;
    vec![
        ("510", BuildScript::succeeds().after(seconds(16)).dying_for(seconds(1))),
        ("520", BuildScript::succeeds().after(seconds(30)).waiting_for(seconds(20)).dying_for(seconds(12))),
        ("888", BuildScript::hangs().dying_for(seconds(4))),
    ]
}

/// The behaviour of the images that commits are built to.
pub(crate) fn built_scripts() -> Vec<(&'static str, Script)> {
    vec![
        (":a04", drains()),
        (":b01", Script::missing()),
        (":b02", Script::crashes()),
        (":b03", Script::dies_after(Duration::from_secs(2))),
        (":b04", Script::hangs()),
        (":b05", Script::relapses(Duration::from_secs(2), Duration::from_secs(5))),
    ]
}

/// A commit of the kind that the tag stands for, which no other call brings; in full or in short.
pub(crate) fn commit(tag: &str, number: usize) -> Commit {
    let kind = TAGS.iter().position(|other| *other == tag).unwrap_or_default();
    let short = format!("{}{number:04}", BEGINNINGS[kind]);
    if number.is_multiple_of(2) { format!("{short:0<40}").parse().unwrap() } else { short.parse().unwrap() }
}

/// How the images of commits are tagged that stand for this tag.
pub(crate) fn built(tag: &str) -> String {
    let kind = TAGS.iter().position(|other| *other == tag).unwrap_or_default();
    format!(":{}", BEGINNINGS[kind])
}

/// A call to build and deploy a commit, sometimes with an image that is not what is deployed.
pub(crate) fn deploy(tag: &str, number: usize, key: Option<IdempotencyKey>) -> DeployRequest {
    let beside = number.is_multiple_of(5).then(|| image(tag));
    DeployRequest::commit(commit(tag, number)).with(|request| {
        request.image = beside;
        request.key = key;
    })
}

/// The source of an app when it is registered.
pub(crate) fn source() -> GitSource {
    GitSource {
        url: "https://git.example.com/shop/api.git".parse().unwrap(),
        branch: "main".parse().unwrap(),
        dockerfile: "Dockerfile".parse().unwrap(),
        context: ".".parse().unwrap(),
        image_repository: "registry.example.com/built/api".parse().unwrap(),
        credentials: None,
    }
}

/// A commit of the kind that the tag stands for, as it is pushed: no call brings it but by its branch.
pub(crate) fn pushed(tag: &str, number: usize) -> Commit {
    let kind = TAGS.iter().position(|other| *other == tag).unwrap_or_default();
    let short = format!("{}f{number:03}", BEGINNINGS[kind]);
    format!("{short:0<40}").parse().unwrap()
}

/// A git host's report of a push by this person.
pub(crate) fn delivery(pusher: &str, branch: String, commit: Commit) -> Delivery {
    let head = Some(Head { commit, skip: false, committed_at: None });
    let updates = vec![RefUpdate { reference: Reference::Branch(branch), before: Before::Unreported, head }];
    Delivery { host: GitHost::named("GitHub"), event: Event::Push(Push { pusher: Some(pusher.to_owned()), updates }) }
}

/// The name of a branch, by its number.
pub(crate) const fn branch(number: u8) -> &'static str {
    if number == 1 { "next" } else { "main" }
}

/// One of the sources that differ in their branch.
pub(crate) fn of(number: u8) -> GitSource {
    GitSource { branch: branch(number).parse().unwrap(), ..source() }
}

/// A change to one of three sources, of which the first is the one that apps are registered with.
pub(crate) fn change(to: u8) -> SourceChange {
    let (branch, repository) = match to {
        0 => ("main", "registry.example.com/built/api"),
        1 => ("next", "registry.example.com/built/api"),
        _ => ("main", "registry.example.com/built/next"),
    };
    SourceChange { branch: branch.parse().ok(), image_repository: repository.parse().ok(), ..SourceChange::default() }
}
