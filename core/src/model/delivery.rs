//! What a git host tells of a repository, whichever host it is.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    deploy::{Actor, Commit, Deploy, Trigger},
    text::quoted,
};

/// What a commit's message says that is not to be deployed.
const SKIP: &str = "[skip deploy]";

/// A call by which a git host tells of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Who tells.
    pub host: GitHost,
    /// Of what.
    pub event: Event,
}

/// The git hosts whose calls are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GitHost {
    /// GitHub, in the cloud or on one's own server.
    Github,
    /// GitLab, likewise.
    Gitlab,
    /// Gitea.
    Gitea,
    /// Forgejo.
    Forgejo,
    /// Bitbucket Cloud or Data Center.
    Bitbucket,
}

/// What a git host tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing: it only tries whether it gets through.
    Ping,
    /// Branches or tags are somewhere else than before.
    Push(Push),
    /// Anything else, by the host's name of it.
    Other(String),
}

/// Branches or tags that somebody moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// Who, as the host names them.
    pub pusher: Option<String>,
    /// What was moved. Hosts that tell of each move by itself name one.
    pub changes: Vec<Change>,
}

/// One branch or tag that is somewhere else now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub reference: Reference,
    /// Where it was.
    pub before: Before,
    /// Where it is now; none: it is gone.
    pub head: Option<Head>,
}

/// Where a branch or tag was before a push.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Before {
    /// The host does not say.
    #[default]
    Unsaid,
    /// It was not there.
    Absent,
    /// At this commit, in full.
    At(Commit),
}

/// What points to a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A branch, by its name without `refs/heads/`.
    Branch(String),
    /// A tag, by its name without `refs/tags/`.
    Tag(String),
    /// Something else, by its whole name.
    Other(String),
}

/// The newest commit of a branch or tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// It, in full.
    pub commit: Commit,
    /// Whether its author wants it not to be deployed.
    pub skip: bool,
}

impl GitHost {
    /// Its name, as its makers write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Github => "GitHub",
            Self::Gitlab => "GitLab",
            Self::Gitea => "Gitea",
            Self::Forgejo => "Forgejo",
            Self::Bitbucket => "Bitbucket",
        }
    }

    /// Whether an entry was made because this host reported a push.
    pub fn made(self, deploy: &Deploy) -> bool {
        deploy.trigger == Trigger::Webhook && matches!(deploy.actor, Actor::GitHost { host, .. } if host == self)
    }
}

impl fmt::Display for GitHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Reference {
    /// What git's own name of it, such as `refs/heads/main`, means.
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
    /// The head of this commit, whose message is this.
    pub fn new(commit: Commit, message: &str) -> Self {
        Self { commit, skip: message.to_ascii_lowercase().contains(SKIP) }
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
        assert_eq!(shown(GitHost::Github, Some("octocat")), "GitHub: octocat");
        assert_eq!(shown(GitHost::Gitlab, Some(" ")), "GitLab");
        assert_eq!(shown(GitHost::Gitea, None), "Gitea");
        let hostile = shown(GitHost::Bitbucket, Some(&"\u{1b}x".repeat(500)));
        assert!(hostile.chars().count() <= 140 && !hostile.contains('\u{1b}'));
    }
}
