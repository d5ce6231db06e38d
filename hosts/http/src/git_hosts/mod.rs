//! Reads what git hosts send to an app's webhook: each host's own words become the core's.
//!
//! All of this runs after authentication, and trusts nothing all the same: a body that makes no sense is its sender's
//! mistake.

mod bitbucket;
mod gitea;
mod github;
mod gitlab;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use http::{HeaderMap, header::CONTENT_TYPE};
use rollhook_api::Kind;
use rollhook_core::{
    delivery::{Before, Change, Delivery, Event, GitHost, Head, Reference},
    deploy::Commit,
    request::Refusal,
};
use serde::de::DeserializeOwned;

use crate::{body, failure::Failure, query};

/// The headers that name an event, and whose they are. Gitea sends GitHub's beside its own, and Forgejo all three, so
/// that the order counts.
const EVENTS: [(&str, GitHost); 5] = [
    ("x-forgejo-event", GitHost::Forgejo),
    ("x-gitea-event", GitHost::Gitea),
    ("x-github-event", GitHost::Github),
    ("x-gitlab-event", GitHost::Gitlab),
    ("x-event-key", GitHost::Bitbucket),
];

/// The longest name of an event that is looked at, in bytes.
const EVENT_MAX: usize = 100;

/// What a git host tells in this call; none where no git host calls.
///
/// # Errors
/// 400 or 422 where it cannot be read, 415 for a body of another type.
pub(crate) fn delivery(headers: &HeaderMap, body: &[u8]) -> Result<Option<Delivery>, Failure> {
    let Some((name, host)) = EVENTS.into_iter().find(|(name, _)| headers.contains_key(*name)) else { return Ok(None) };
    let event = event(headers, name)?;
    let push = match (host, event) {
        (GitHost::Github | GitHost::Gitea | GitHost::Forgejo, "ping") | (GitHost::Bitbucket, "diagnostics:ping") => {
            return Ok(Some(Delivery { host, event: Event::Ping }));
        }
        (GitHost::Github, "push") => github::push(&payload(headers, body)?)?,
        (GitHost::Gitea | GitHost::Forgejo, "push") => gitea::push(&payload(headers, body)?)?,
        (GitHost::Gitlab, "Push Hook" | "Tag Push Hook") => gitlab::push(&payload(headers, body)?)?,
        (GitHost::Bitbucket, "repo:push") => bitbucket::push(&payload(headers, body)?)?,
        (GitHost::Bitbucket, "repo:refs_changed") => bitbucket::refs_changed(&payload(headers, body)?)?,
        (_, other) => return Ok(Some(Delivery { host, event: Event::Other(other.to_owned()) })),
    };
    Ok(Some(Delivery { host, event: Event::Push(push) }))
}

fn event<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, Failure> {
    let mut lines = headers.get_all(name).iter();
    let text = lines.next().and_then(|line| line.to_str().ok()).filter(|text| (1..=EVENT_MAX).contains(&text.len()));
    match (text, lines.next()) {
        (Some(text), None) => Ok(text),
        (Some(_) | None, Some(_)) | (None, None) => {
            Err(Failure::new(Kind::Malformed, format!("{name}: must be the name of one event.")))
        }
    }
}

/// The JSON that was sent: the body, or what is in its field `payload` where it is a form, as GitHub and Gitea send it
/// unless told otherwise.
fn payload<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Cow<'a, [u8]>, Failure> {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        body::require_json(headers)?;
        return Ok(Cow::Borrowed(body));
    }
    let form = std::str::from_utf8(body).ok();
    let mut fields =
        form.into_iter().flat_map(|form| form.split('&')).filter_map(|field| field.strip_prefix("payload="));
    match (fields.next().and_then(query::decoded), fields.next()) {
        (Some(payload), None) => Ok(Cow::Owned(payload.into_bytes())),
        (Some(_) | None, Some(_)) | (None, None) => Err(Failure::new(
            Kind::Malformed,
            "The form must have one field payload, which holds JSON; or have the git host send application/json.",
        )),
    }
}

/// Reads a host's JSON.
fn read<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Failure> {
    body::object(payload)
}

/// A branch or tag that is at this commit now, whose message is this, and was at that one before, where the host says so.
/// A commit of nothing but zeros is how git says that there is none.
fn change(reference: Reference, before: Option<&str>, commit: &str, message: &str) -> Result<Change, Failure> {
    if !is_whole(commit) {
        let rule = "a push names the commit that it brought in full, by 40 or 64 hexadecimal digits.".to_owned();
        return Err(Refusal::InvalidField("commit", rule).into());
    }
    let before = before_of(before);
    if is_zeros(commit) {
        return Ok(Change { reference, before, head: None });
    }
    let commit: Commit = commit
        .to_ascii_lowercase()
        .parse()
        .map_err(|error: rollhook_core::app::InvalidName| Refusal::InvalidField("commit", format!("{error}.")))?;
    Ok(Change { reference, before, head: Some(Head::new(commit, message)) })
}

/// What a host says of where a branch or tag was; what makes no sense says nothing.
fn before_of(commit: Option<&str>) -> Before {
    match commit.filter(|commit| is_whole(commit)) {
        None => Before::Unsaid,
        Some(commit) if is_zeros(commit) => Before::Absent,
        Some(commit) => commit.to_ascii_lowercase().parse().map_or(Before::Unsaid, Before::At),
    }
}

fn is_whole(commit: &str) -> bool {
    matches!(commit.len(), 40 | 64) && commit.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_zeros(commit: &str) -> bool {
    commit.bytes().all(|byte| byte == b'0')
}
