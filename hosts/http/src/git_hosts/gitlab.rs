//! GitLab's `Push Hook` and `Tag Push Hook`, as "Webhook events" in its documentation describes them.

use rollhook_core::delivery::{Push, Reference};
use serde::Deserialize;

use super::{change, read};
use crate::failure::Failure;

#[derive(Deserialize)]
struct Sent {
    #[serde(rename = "ref")]
    reference: String,
    after: String,
    /// All zeros for one that was made by this push.
    before: Option<String>,
    /// The newest 20 of the commits, oldest first.
    commits: Option<Vec<Commit>>,
    user_username: Option<String>,
    user_name: Option<String>,
}

#[derive(Deserialize)]
struct Commit {
    #[serde(default)]
    id: String,
    #[serde(default)]
    message: String,
}

/// Reads a push.
///
/// # Errors
/// 400 or 422 where it cannot be read.
pub(super) fn push(payload: &[u8]) -> Result<Push, Failure> {
    let sent: Sent = read(payload)?;
    let mut commits = sent.commits.into_iter().flatten();
    let message = commits.find(|commit| commit.id == sent.after).map(|commit| commit.message).unwrap_or_default();
    let change = change(Reference::of(&sent.reference), sent.before.as_deref(), &sent.after, &message)?;
    let pusher = sent.user_username.filter(|name| !name.is_empty()).or(sent.user_name);
    Ok(Push { pusher, changes: vec![change] })
}
