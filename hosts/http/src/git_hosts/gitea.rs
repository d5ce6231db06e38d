//! The `push` of Gitea and Forgejo: GitHub's, but for whom it names as the pusher, and how.

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
    /// The commits, newest first; `head_commit` is missing in old versions.
    commits: Option<Vec<Commit>>,
    head_commit: Option<Commit>,
    pusher: Option<Pusher>,
}

#[derive(Deserialize)]
struct Commit {
    #[serde(default)]
    id: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Pusher {
    login: Option<String>,
    username: Option<String>,
}

/// Reads a push.
///
/// # Errors
/// 400 or 422 where it cannot be read.
pub(super) fn push(payload: &[u8]) -> Result<Push, Failure> {
    let sent: Sent = read(payload)?;
    let mut commits = sent.head_commit.into_iter().chain(sent.commits.into_iter().flatten());
    let message = commits.find(|commit| commit.id == sent.after).map(|commit| commit.message).unwrap_or_default();
    let change = change(Reference::of(&sent.reference), sent.before.as_deref(), &sent.after, &message)?;
    let pusher = sent.pusher.and_then(|pusher| pusher.login.filter(|login| !login.is_empty()).or(pusher.username));
    Ok(Push { pusher, changes: vec![change] })
}
