//! The values of scenarios: requests, and the parts of entries that they compare.

use rollhook_conformance::samples::{git_source, settings};
use rollhook_core::{
    app::{HoldPolicy, OnFailure, Policy, Source},
    deploy::{Commit, Deploy, State, Status},
    image::{Digest, ImageRef},
    request::{DeployRequest, Registration},
    text::hex,
};
use serde_json::json;

pub fn registration(name: &str, policy: Policy) -> Registration {
    Registration::new("shop".parse().unwrap(), "test".parse().unwrap(), name.parse().unwrap())
        .target(settings(json!({ "template": { "replicas": 2 } })))
        .image(image("registry.example.com/api:v1"))
        .policy(policy)
        .adopt()
}

/// The registration of a git app, of the one source that the scenarios have.
pub fn git(name: &str, policy: Policy) -> Registration {
    registration(name, policy).with(|app| {
        app.source = Source::Git(git_source());
        app.image = None;
    })
}

/// A commit of these first digits, in full.
pub fn sha(digits: &str) -> Commit {
    format!("{digits:0<40}").parse().unwrap()
}

pub fn image(text: &str) -> ImageRef {
    text.parse().unwrap()
}

/// A digest of these bits.
pub fn digest(bits: u8) -> Digest {
    format!("sha256:{}", hex(&[bits; 32])).parse().unwrap()
}

pub fn api(tag: &str) -> String {
    format!("registry.example.com/api:{tag}")
}

/// Returns why an entry ended, as a code and a sentence.
#[track_caller]
pub fn reason(deploy: &Deploy) -> (String, String) {
    match &deploy.state {
        State::Failed { reason, message, .. } | State::Cancelled { reason, message } => {
            assert!(!message.is_empty(), "{reason} is explained");
            (reason.to_string(), message.clone())
        }
        State::Queued
        | State::Building { .. }
        | State::Releasing { .. }
        | State::RollingOut { .. }
        | State::Succeeded { .. }
        | State::Superseded { .. } => panic!("{:?} has no reason", deploy.state),
    }
}

pub fn request(text: &str) -> DeployRequest {
    let commit: Commit = "abc123f".parse().unwrap();
    DeployRequest::image(image(text)).with(|request| request.commit = Some(commit))
}

/// The last word of an image's tag.
pub fn tag(deploy: &Deploy) -> String {
    deploy.image.as_ref().and_then(|image| image.tag().map(str::to_owned)).unwrap_or_default()
}

pub fn statuses(history: &[Deploy]) -> Vec<(u64, Status)> {
    history.iter().map(|deploy| (deploy.revision.get(), deploy.status())).collect()
}

pub fn leave() -> Policy {
    Policy::default().with(|policy| policy.on_failure = OnFailure::Leave)
}

pub fn hold_all() -> Policy {
    Policy::default().with(|policy| policy.hold = HoldPolicy::All)
}
