//! The server's own parsing, up to where the core takes over.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};
use http_body::Body as _;
use rollhook_api::{AppPatch, CreateApp, Kind, Problem, Promote, Rollback};
use rollhook_core::{
    delivery::Delivery,
    request::{DeployRequest, IdempotencyKey, KeyHeader, Refusal},
    time::Timestamp,
};
use rollhook_git_hosts::RegistryEvent;
use rollhook_management::keyless::Presented;

use crate::{auth, body, error_reply::ErrorReply, headers};

/// A refusal: its kind, and the problem as the caller reads it.
#[derive(Debug)]
pub struct Refused {
    /// The kind.
    pub kind: Kind,
    /// The problem.
    pub problem: Problem,
}

/// What a webhook's body asks for.
///
/// # Errors
/// The answer to the caller.
pub fn deploy_request(body: &[u8]) -> Result<DeployRequest, Box<Refused>> {
    let json = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    let posted = rollhook_git_hosts::posted_deploy(&json, body).map_err(ErrorReply::from);
    posted.and_then(|post| Ok(post.parse(None)?)).map_err(refused)
}

/// What keeps a body from being a person's request for a deploy.
pub fn refused_by_hand(body: &[u8]) -> Option<Box<Refused>> {
    let json = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    body::deploy_post(&json, body).err().map(refused)
}

/// What keeps a body from being any other request, told by each.
pub fn other_requests(body: &[u8]) -> Vec<Box<Refused>> {
    let refusals = [
        body::object::<CreateApp>(body).err(),
        body::object::<AppPatch>(body).err(),
        body::object::<Rollback>(body).err(),
        body::object::<Promote>(body).err(),
    ];
    refusals.into_iter().flatten().map(refused).collect()
}

/// The credentials in a call's headers, read at this time.
pub fn credentials(headers: &HeaderMap, now: Timestamp) -> Presented {
    auth::credentials(headers, now)
}

/// What a git host tells in a call.
///
/// # Errors
/// What the caller is answered.
pub fn delivery(headers: &HeaderMap, body: &[u8]) -> Result<Option<Delivery>, Box<Refused>> {
    rollhook_git_hosts::delivery(headers, body).map_err(|error| refused(error.into()))
}

/// The event of a registry, as a call reports it.
///
/// # Errors
/// What the caller is answered.
pub fn registry_event(headers: &HeaderMap, body: &[u8]) -> Result<Option<RegistryEvent>, Box<Refused>> {
    rollhook_git_hosts::registry_event(headers, body).map_err(|error| refused(error.into()))
}

/// The idempotency key in a call's headers.
///
/// # Errors
/// What the caller is answered.
pub fn key(headers: &HeaderMap, accepted: &[KeyHeader], body: &[u8]) -> Result<Option<IdempotencyKey>, Box<Refused>> {
    headers::key(headers, accepted, "webhook", body).map_err(refused)
}

/// How long the caller prefers to wait.
pub fn wait(headers: &HeaderMap) -> Option<Duration> {
    headers::wait(headers)
}

/// What the caller is answered for a refusal of the core.
pub fn refusal(refusal: Refusal) -> Box<Refused> {
    refused(refusal.into())
}

fn refused(failure: ErrorReply) -> Box<Refused> {
    let kind = failure.kind();
    let (mut parts, body) = failure.render("fuzz").into_parts();
    assert_eq!(parts.headers.remove("content-type").expect("a type"), "application/problem+json");
    // A whole text is there at once.
    let Poll::Ready(Some(Ok(frame))) = pin!(body).as_mut().poll_frame(&mut Context::from_waker(Waker::noop())) else {
        panic!("a problem without a body")
    };
    let text = frame.into_data().expect("a frame of data");
    let problem: Problem = serde_json::from_slice(&text).expect("a problem is JSON");
    assert_eq!(problem.status, parts.status.as_u16());
    assert!((400..500).contains(&problem.status), "a caller's mistake is not the server's: {problem:?}");
    Box::new(Refused { kind, problem })
}
