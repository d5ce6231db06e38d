//! Bitbucket's pushes, as "Event payloads" in its documentation describes them: `repo:push` of Bitbucket Cloud and
//! `repo:refs_changed` of Bitbucket Data Center. Each names several branches and tags at once.

use std::collections::HashMap;

use rollhook_core::delivery::{Before, Push, RefUpdate, Reference};
use serde::Deserialize;

use crate::{
    Error, all, before,
    bounded::{Bounded, CHANGES_MAX, COMMITS_MAX},
    committed_at,
    field::PostedText,
    object, update,
};

/// A push to Bitbucket Cloud.
#[derive(Deserialize)]
struct Cloud {
    actor: Option<Person>,
    push: Moves,
}

#[derive(Deserialize)]
struct Person {
    nickname: Option<String>,
    display_name: Option<String>,
}

#[derive(Deserialize)]
struct Moves {
    changes: Bounded<Move, CHANGES_MAX>,
}

/// One branch or tag before and after the push; `None` where it does not exist.
#[derive(Deserialize)]
struct Move {
    old: Option<Named>,
    new: Option<Named>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    hash: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    date: PostedText,
}

impl Named {
    fn reference(self) -> Reference {
        match self.kind.as_str() {
            "branch" => Reference::Branch(self.name),
            "tag" => Reference::Tag(self.name),
            _ => Reference::Other(self.name),
        }
    }
}

impl Move {
    fn update(self) -> Option<Result<RefUpdate, Error>> {
        match (self.new, self.old) {
            (Some(mut new), old) => {
                let target = new.target.take()?;
                let mut update = update(new.reference(), old_hash(old.as_ref()), &target.hash, &target.message);
                if let (Ok(update), None) = (&mut update, &old) {
                    update.before = Before::Absent;
                }
                Some(update.map(|update| committed_at(update, target.date)))
            }
            (None, Some(old)) => {
                let before = before(old_hash(Some(&old)));
                Some(Ok(RefUpdate { reference: old.reference(), before, head: None }))
            }
            (None, None) => None,
        }
    }
}

fn old_hash(old: Option<&Named>) -> Option<&str> {
    old.and_then(|old| old.target.as_ref()).map(|target| target.hash.as_str())
}

/// Returns a push to Bitbucket Cloud.
pub(crate) fn push(payload: &[u8]) -> Result<Push, Error> {
    let sent: Cloud = object(payload)?;
    let updates = all(sent.push.changes)?.into_iter().filter_map(Move::update).collect::<Result<_, _>>()?;
    let pusher = sent.actor.and_then(|actor| actor.nickname.filter(|name| !name.is_empty()).or(actor.display_name));
    Ok(Push { pusher, updates })
}

/// A push to Bitbucket Data Center.
#[derive(Deserialize)]
struct DataCenter {
    actor: Option<User>,
    changes: Bounded<Moved, CHANGES_MAX>,
    /// The newest commits; older versions leave them out.
    commits: Option<Bounded<Message, COMMITS_MAX>>,
    #[serde(rename = "toCommit")]
    to_commit: Option<Message>,
}

#[derive(Deserialize)]
struct User {
    name: Option<String>,
}

#[derive(Deserialize)]
struct Moved {
    #[serde(rename = "ref")]
    reference: Id,
    /// All zeros if the reference was created.
    #[serde(rename = "fromHash")]
    from: Option<String>,
    /// All zeros if the reference was deleted.
    #[serde(rename = "toHash")]
    to: String,
}

#[derive(Deserialize)]
struct Id {
    id: String,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    id: String,
    #[serde(default)]
    message: String,
}

/// Returns a push to Bitbucket Data Center.
pub(crate) fn refs_changed(payload: &[u8]) -> Result<Push, Error> {
    let sent: DataCenter = object(payload)?;
    let listed = sent.commits.iter().flat_map(|commits| &commits.elements);
    let mut messages = HashMap::new();
    for commit in sent.to_commit.iter().chain(listed) {
        messages.entry(commit.id.as_str()).or_insert(commit.message.as_str());
    }
    let message = |id: &str| messages.get(id).copied().unwrap_or_default();
    let changes = all(sent.changes)?;
    let updates = changes
        .iter()
        .map(|moved| update(Reference::of(&moved.reference.id), moved.from.as_deref(), &moved.to, message(&moved.to)));
    Ok(Push { updates: updates.collect::<Result<_, _>>()?, pusher: sent.actor.and_then(|actor| actor.name) })
}
