//! Calls of git hosts, in terms that all hosts share.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    deploy::{Actor, Commit, Deploy, Trigger},
    text::quoted,
    time::Timestamp,
};

/// The text in a commit's message that asks for no deploy.
const SKIP: &str = "[skip deploy]";

/// A call by which a git host reports an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The git host that sent the call.
    pub host: GitHost,
    /// The reported event.
    pub event: Event,
}

/// The kind of a git host that reports events, by the name that people know it by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GitHost(Cow<'static, str>);

/// An event that a git host reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A test of the connection.
    Ping,
    /// A push to branches or tags.
    Push(Push),
    /// Any other event, by the host's name for it.
    Other(String),
}

/// A push: branches or tags that were moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// The user who pushed, as the host names them.
    pub pusher: Option<String>,
    /// The moved branches and tags. Hosts that report each move in a call of its own name one.
    pub updates: Vec<RefUpdate>,
}

/// A branch or tag that was moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefUpdate {
    /// The branch or tag.
    pub reference: Reference,
    /// The place before the push.
    pub before: Before,
    /// The place after the push; `None` if the branch or tag was deleted.
    pub head: Option<Head>,
}

/// The place of a branch or tag before a push.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Before {
    /// Not reported by the host.
    #[default]
    Unreported,
    /// The branch or tag did not exist.
    Absent,
    /// The commit, in full.
    At(Commit),
}

/// A git reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A branch, by its name without `refs/heads/`.
    Branch(String),
    /// A tag, by its name without `refs/tags/`.
    Tag(String),
    /// Any other reference, by its whole name.
    Other(String),
}

/// The newest commit of a branch or tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The commit, in full.
    pub commit: Commit,
    /// Whether the commit's author asked for no deploy.
    pub skip: bool,
    /// The time of the commit, if the host has said it.
    pub committed_at: Option<Timestamp>,
}

impl GitHost {
    /// Returns the git host of this name.
    pub const fn named(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// Returns whether an entry was made because this host reported a push.
    pub fn made(&self, deploy: &Deploy) -> bool {
        deploy.trigger == Trigger::Webhook && matches!(&deploy.actor, Actor::GitHost { host, .. } if host == self)
    }
}

impl fmt::Display for GitHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Reference {
    /// Returns the reference of a full name such as `refs/heads/main`.
    pub fn of(name: &str) -> Self {
        match (name.strip_prefix("refs/heads/"), name.strip_prefix("refs/tags/")) {
            (Some(branch), _) => Self::Branch(branch.to_owned()),
            (_, Some(tag)) => Self::Tag(tag.to_owned()),
            (None, None) => Self::Other(name.to_owned()),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Branch(name) => write!(f, "branch {}", quoted(name)),
            Self::Tag(name) => write!(f, "tag {}", quoted(name)),
            Self::Other(name) => f.write_str(&quoted(name)),
        }
    }
}

impl Head {
    /// Returns the head at a commit with this message.
    pub fn new(commit: Commit, message: &str) -> Self {
        Self { commit, skip: message.to_ascii_lowercase().contains(SKIP), committed_at: None }
    }

    /// Returns the head with the time of its commit, if it is known.
    #[must_use]
    pub fn at(self, committed_at: Option<Timestamp>) -> Self {
        Self { committed_at, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_git_is_a_branch_a_tag_or_neither() {
        assert_eq!(Reference::of("refs/heads/feature/x"), Reference::Branch("feature/x".to_owned()));
        assert_eq!(Reference::of("refs/tags/v1"), Reference::Tag("v1".to_owned()));
        assert_eq!(Reference::of("main"), Reference::Other("main".to_owned()));
        assert_eq!(Reference::of("refs/heads/a\u{1b}[1m").to_string(), "branch \"a\\u{1b}[1m\"");
    }

    #[test]
    fn an_author_asks_for_no_deploy_anywhere_in_the_message() {
        let skips = |message| Head::new("a1b2c3d".parse().unwrap(), message).skip;
        assert!(skips("[skip deploy]") && skips("Mend a typo\n\nNot worth it. [Skip Deploy]\n"));
        assert!(!skips("") && !skips("skip deploy") && !skips("[skip ci]") && !skips("[skip  deploy]"));
    }

    #[test]
    fn actor_names_the_host_and_who_pushed() {
        let shown = |host, pusher| Actor::git_host(host, pusher).to_string();
        assert_eq!(shown(GitHost::named("Forge"), Some("octocat")), "Forge: octocat");
        assert_eq!(shown(GitHost::named("Forge"), Some(" ")), "Forge");
        assert_eq!(shown(GitHost::named("Forge"), None), "Forge");
        let hostile = shown(GitHost::named("Forge"), Some(&"\u{1b}x".repeat(500)));
        assert!(hostile.chars().count() <= 140 && !hostile.contains('\u{1b}'));
    }
}
