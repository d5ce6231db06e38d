//! GitHub's `push`, as "Webhook events and payloads" in its documentation describes it.

use rollhook_core::delivery::{Push, Reference};
use serde::Deserialize;

use super::{change, read};
use crate::failure::Failure;

#[derive(Deserialize)]
struct Sent {
    /// The whole name, such as `refs/heads/main`.
    #[serde(rename = "ref")]
    reference: String,
    /// All zeros for one that was deleted.
    after: String,
    /// All zeros for one that was made by this push.
    before: Option<String>,
    /// None for one that was deleted.
    head_commit: Option<HeadCommit>,
    pusher: Option<Pusher>,
}

#[derive(Deserialize)]
struct HeadCommit {
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Pusher {
    name: Option<String>,
}

/// Reads a push.
///
/// # Errors
/// 400 or 422 where it cannot be read.
pub(super) fn push(payload: &[u8]) -> Result<Push, Failure> {
    let sent: Sent = read(payload)?;
    let message = sent.head_commit.map(|commit| commit.message).unwrap_or_default();
    let change = change(Reference::of(&sent.reference), sent.before.as_deref(), &sent.after, &message)?;
    Ok(Push { pusher: sent.pusher.and_then(|pusher| pusher.name), changes: vec![change] })
}
