//! Reads what CI, git hosts and registries send to a webhook: headers and the raw body in, types of [`rollhook_core`] out.
//!
//! ```text
//!   headers ─▶ tokens, signatures ──────────────▶ Credentials, for Deployer::authorize
//!   headers ─▶ which host, which event ─╮
//!   body ────▶ JSON, or a form with it ─┼─▶ Delivery { host, event: Ping · Push · Other }, for Deployer::push
//!                                       ├─▶ RegistryEvent { registry, images }, a hint to read the registry
//!                                       ╰─▶ PostedDeploy { image, commit, committed_at, sequence }, for Deployer::submit
//!   headers ─▶ ids of the call ─────────────────▶ IdempotencyKey
//! ```
//!
//! A handler of a platform's own makes a [`Call`], has its credentials checked, and then asks for its request.
//!
//! GitHub, GitLab, Gitea, Forgejo and Bitbucket (Cloud and Data Center) are understood, and the events of registries.
//! Authenticate the call before the body is read: this crate checks no credentials, and reports a malformed payload as
//! its sender's mistake.
//!
//! ```
//! use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};
//! use rollhook_core::delivery::{Event, Reference};
//!
//! let mut headers = HeaderMap::new();
//! headers.insert("x-github-event", HeaderValue::from_static("push"));
//! headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
//! let body = br#"{"ref": "refs/heads/main", "after": "da1560886d4f094c3e6c9ef40349f7d38b5d27d7"}"#;
//!
//! let delivery = rollhook_git_hosts::delivery(&headers, body)?.ok_or("not from a git host")?;
//! assert_eq!(delivery.host, rollhook_git_hosts::Host::Github.into());
//! let Event::Push(push) = delivery.event else { return Err("not a push".into()) };
//! assert_eq!(push.updates[0].reference, Reference::Branch("main".to_owned()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bitbucket;
mod bounded;
mod call;
mod credentials;
mod field;
mod key;
mod push;
mod registry;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use bounded::{Bounded, CHANGES_MAX};
pub use call::{Call, PostedDeploy, Request, is_json, posted_deploy};
pub use credentials::{bearer, credentials, once};
pub use field::{NotText, PostedNumber, PostedText};
pub use key::key;
pub use registry::{RegistryEvent, registry_event};

use http::{HeaderMap, header::CONTENT_TYPE};
use percent_encoding::percent_decode_str;
use rollhook_core::{
    delivery::{Before, Delivery, Event, GitHost, Head, RefUpdate, Reference},
    request::Field,
};
use serde::de::DeserializeOwned;

/// Why a webhook's call cannot be read. No message repeats what was sent; the source of [`Error::Json`] may.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The header that names the event is repeated, empty, too long, or not text.
    #[error("{0}: must be the name of one event.")]
    Event(&'static str),
    /// The body is neither JSON nor a form by its type.
    #[error("Send the body with Content-Type: application/json.")]
    ContentType,
    /// The form has no field with the payload, or several.
    #[error("The form must have one field payload, which holds JSON; or have the git host send application/json.")]
    Form,
    /// The payload is not a JSON object.
    #[error("The body must be a JSON object.")]
    NotAnObject,
    /// The payload is not JSON, or lacks a part of the event.
    #[error("The body is not the JSON of this event (line {}, column {}).", .0.line(), .0.column())]
    Json(#[source] serde_json::Error),
    /// The commit of a push is not an object name.
    #[error("a push must name the commit that it brought in full, by 40 or 64 hexadecimal digits.")]
    Commit,
    /// A push changes very many branches and tags.
    #[error("a push must change at most {CHANGES_MAX} branches and tags; push fewer of them at once.")]
    TooManyChanges,
    /// A field of a deploy is not a text.
    #[error("{0}: must be a string.")]
    Field(Field),
    /// The header of an idempotency key is repeated, or not a key: its name, and the rule.
    #[error("{0}: {1}.")]
    Key(&'static str, String),
}

/// The git hosts whose calls are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// GitHub, in the cloud or on one's own server.
    Github,
    /// GitLab, in the cloud or on one's own server.
    Gitlab,
    /// Gitea, on one's own server.
    Gitea,
    /// Forgejo, on one's own server.
    Forgejo,
    /// Bitbucket Cloud or Data Center.
    Bitbucket,
}

impl From<Host> for GitHost {
    fn from(host: Host) -> Self {
        Self::named(match host {
            Host::Github => "GitHub",
            Host::Gitlab => "GitLab",
            Host::Gitea => "Gitea",
            Host::Forgejo => "Forgejo",
            Host::Bitbucket => "Bitbucket",
        })
    }
}

/// The headers that name an event. Gitea sends GitHub's beside its own, and Forgejo all three: the first one counts.
const EVENTS: [(&str, Host); 5] = [
    ("x-forgejo-event", Host::Forgejo),
    ("x-gitea-event", Host::Gitea),
    ("x-github-event", Host::Github),
    ("x-gitlab-event", Host::Gitlab),
    ("x-event-key", Host::Bitbucket),
];

/// The longest name of an event, in bytes.
const EVENT_MAX: usize = 100;

/// Returns the delivery of a git host, or `None` if the call is not a git host's.
///
/// # Errors
/// [`Error`], if a header or a push cannot be read. The bodies of other events are not read.
pub fn delivery(headers: &HeaderMap, body: &[u8]) -> Result<Option<Delivery>, Error> {
    let Some((name, host)) = EVENTS.into_iter().find(|(name, _)| headers.contains_key(*name)) else { return Ok(None) };
    let event = match (host, event(headers, name)?) {
        (Host::Github | Host::Gitea | Host::Forgejo, "ping") | (Host::Bitbucket, "diagnostics:ping") => Event::Ping,
        (Host::Github | Host::Gitea | Host::Forgejo, "push") | (Host::Gitlab, "Push Hook" | "Tag Push Hook") => {
            Event::Push(push::push(host, &payload(headers, body)?)?)
        }
        (Host::Bitbucket, "repo:push") => Event::Push(bitbucket::push(&payload(headers, body)?)?),
        (Host::Bitbucket, "repo:refs_changed") => Event::Push(bitbucket::refs_changed(&payload(headers, body)?)?),
        (_, other) => Event::Other(other.to_owned()),
    };
    Ok(Some(Delivery { host: host.into(), event }))
}

/// Returns whether the call is a git host's by its headers.
pub fn is_delivery(headers: &HeaderMap) -> bool {
    EVENTS.into_iter().any(|(name, _)| headers.contains_key(name))
}

fn event<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a str, Error> {
    let mut lines = headers.get_all(name).iter();
    let text = lines.next().and_then(|line| line.to_str().ok()).filter(|text| (1..=EVENT_MAX).contains(&text.len()));
    text.filter(|_| lines.next().is_none()).ok_or(Error::Event(name))
}

/// Returns the JSON that was sent: the body, or the field `payload` of a form, which GitHub and Gitea send unless their
/// settings say otherwise.
fn payload<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Cow<'a, [u8]>, Error> {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let given = types.next().and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") && types.next().is_none() {
        return Ok(Cow::Borrowed(body));
    }
    if !essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Err(Error::ContentType);
    }
    let form = std::str::from_utf8(body).map_err(|_| Error::Form)?;
    let mut fields = form.split('&').filter_map(|field| field.strip_prefix("payload="));
    let field = fields.next().filter(|_| fields.next().is_none()).ok_or(Error::Form)?;
    Ok(Cow::Owned(decoded(field)))
}

/// Returns the bytes of a form's field, read once into a buffer that does not grow.
fn decoded(field: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    for (index, words) in field.split('+').enumerate() {
        if index > 0 {
            bytes.push(b' ');
        }
        bytes.extend(percent_decode_str(words));
    }
    bytes
}

/// Returns a text without UTF-8's byte order mark at its begin, which some senders of JSON write (RFC 8259 section
/// 8.1).
pub fn without_bom(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// Reads a JSON object. Without the check of its first byte, a list would be read as a struct's fields in their order.
fn object<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Error> {
    let payload = without_bom(payload);
    if payload.trim_ascii_start().first().is_some_and(|byte| *byte != b'{') {
        return Err(Error::NotAnObject);
    }
    serde_json::from_slice(payload).map_err(Error::Json)
}

/// Returns all changes of a push.
///
/// # Errors
/// [`Error::TooManyChanges`]: the branch of an app may be among those that were passed over.
fn all<T>(changes: Bounded<T, CHANGES_MAX>) -> Result<Vec<T>, Error> {
    if changes.has_more { Err(Error::TooManyChanges) } else { Ok(changes.elements) }
}

/// Returns the update of a branch or tag that is now at `commit`, whose message is `message`. A commit of zeros
/// alone means that the branch or tag does not exist.
fn update(reference: Reference, from: Option<&str>, commit: &str, message: &str) -> Result<RefUpdate, Error> {
    if !is_full(commit) {
        return Err(Error::Commit);
    }
    let before = before(from);
    if is_zeros(commit) {
        return Ok(RefUpdate { reference, before, head: None });
    }
    let commit = commit.to_ascii_lowercase().parse().map_err(|_| Error::Commit)?;
    Ok(RefUpdate { reference, before, head: Some(Head::new(commit, message)) })
}

/// Returns the update with the time of its head, if the text is one.
fn committed_at(mut update: RefUpdate, text: PostedText) -> RefUpdate {
    let time = text.text().ok().flatten().and_then(|text| text.parse().ok());
    update.head = update.head.map(|head| head.at(time));
    update
}

/// Returns the former commit of a branch or tag; a text that is not a commit is `Unsaid`.
fn before(commit: Option<&str>) -> Before {
    match commit.filter(|commit| is_full(commit)) {
        None => Before::Unreported,
        Some(commit) if is_zeros(commit) => Before::Absent,
        Some(commit) => commit.to_ascii_lowercase().parse().map_or(Before::Unreported, Before::At),
    }
}

fn is_full(commit: &str) -> bool {
    matches!(commit.len(), 40 | 64) && commit.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_zeros(commit: &str) -> bool {
    commit.bytes().all(|byte| byte == b'0')
}
