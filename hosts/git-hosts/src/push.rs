//! The push of GitHub, GitLab, Gitea and Forgejo: one form; its members for commits and pusher differ.
//!
//! GitHub: "Webhook events and payloads"; GitLab: "Webhook events", `Push Hook` and `Tag Push Hook`; Gitea and Forgejo
//! follow GitHub.

use rollhook_core::delivery::{Push, Reference};
use serde::Deserialize;

use crate::{
    Error, Host,
    bounded::{Bounded, COMMITS_MAX},
    committed_at,
    field::PostedText,
    object, update,
};

#[derive(Deserialize)]
struct Sent {
    /// The full name, such as `refs/heads/main`.
    #[serde(rename = "ref")]
    reference: String,
    /// All zeros if the reference was deleted.
    after: String,
    /// All zeros if the reference was created.
    before: Option<String>,
    /// Missing if the reference was deleted, in GitLab's pushes, and in those of old versions of Gitea.
    head_commit: Option<Commit>,
    /// GitLab lists the newest 20, oldest first; Gitea lists the newest first.
    commits: Option<Bounded<Commit, COMMITS_MAX>>,
    /// The pusher at GitHub, Gitea and Forgejo.
    pusher: Option<Pusher>,
    /// The pusher's login at GitLab.
    user_username: Option<String>,
    /// The pusher's display name at GitLab.
    user_name: Option<String>,
}

#[derive(Deserialize)]
struct Commit {
    #[serde(default)]
    id: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    timestamp: PostedText,
}

#[derive(Default, Deserialize)]
struct Pusher {
    /// The login at Gitea and Forgejo.
    login: Option<String>,
    /// The login at Gitea and Forgejo, under its second name.
    username: Option<String>,
    /// The login at GitHub.
    name: Option<String>,
}

/// Returns the push of one branch or tag.
pub(crate) fn push(host: Host, payload: &[u8]) -> Result<Push, Error> {
    let sent: Sent = object(payload)?;
    // The head commit of an annotated tag's push has another id than the tag: GitHub names it all the same.
    let is_head = |commit: &Commit| host == Host::Github || commit.id == sent.after;
    let listed = sent.commits.into_iter().flat_map(|commits| commits.elements);
    let mut commits = sent.head_commit.into_iter().chain(listed);
    let head = commits.find(is_head);
    let (message, timestamp) = head.map(|commit| (commit.message, commit.timestamp)).unwrap_or_default();
    let Pusher { login, username, name } = sent.pusher.unwrap_or_default();
    let names = [login, username, name, sent.user_username, sent.user_name];
    Ok(Push {
        pusher: names.into_iter().flatten().find(|name| !name.is_empty()),
        updates: vec![committed_at(
            update(Reference::of(&sent.reference), sent.before.as_deref(), &sent.after, &message)?,
            timestamp,
        )],
    })
}
