//! The decision on a git host's call: a build, or the reason for ignoring it.

use super::admission;
use crate::{
    app::{App, Source},
    delivery::{Before, Delivery, Event, GitHost, Push, RefUpdate, Reference},
    deploy::{Commit, Deploy, Status},
    request::Refusal,
    source::GitSource,
    time::Timestamp,
};

/// The request of a git host's call, as far as the call and the app alone show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushRequest {
    /// The call is ignored, for the reason in this sentence.
    Ignore(String),
    /// The push to the app's branch.
    Build(PushedCommit),
}

/// A push to the app's branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushedCommit {
    /// The branch's head after the push.
    pub commit: Commit,
    /// The place of the branch before the push.
    pub before: Before,
    /// The time of the commit, if the host has said it.
    pub committed_at: Option<Timestamp>,
}

/// The place of the app's branch at its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BranchHead {
    /// The branch is at this commit; `None`: the source has no such branch.
    At(Option<Commit>),
    /// The place of the branch is not known.
    Unread(Unread),
}

/// The reason why the place of a branch is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The source did not answer in time.
    TimedOut,
    /// The source cannot be read.
    Failed,
    /// The source answered before the history changed, and not again in time.
    Outdated,
}

impl BranchHead {
    /// Returns whether the branch is still at the pushed commit, so that the push is not late.
    pub fn is_at(&self, pushed: &PushedCommit) -> bool {
        matches!(self, Self::At(Some(head)) if head.may_be(&pushed.commit))
    }

    /// Returns whether the branch is still where it was before the push: the server that answered lags behind. Git
    /// hosts report a push before all of their servers, or a mirror before them, know it.
    fn lags(&self, pushed: &PushedCommit) -> bool {
        match (self, &pushed.before) {
            (Self::At(None), Before::Absent) => true,
            (Self::At(Some(head)), Before::At(before)) => head.may_be(before),
            (Self::At(_), Before::Unreported | Before::Absent | Before::At(_)) | (Self::Unread(_), _) => false,
        }
    }
}

/// The decision on a pushed commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushDecision {
    /// Ignored, for the reason in this sentence.
    Ignore(String),
    /// Repeated: an earlier report of the push made this entry.
    Repeated(Box<Deploy>),
    /// The commit is built.
    Build,
}

/// Decides what a git host's call asks for.
///
/// # Errors
/// [`Refusal::WrongKind`] for an app that is not built from git.
pub fn requested(app: &App, delivery: &Delivery) -> Result<PushRequest, Refusal> {
    match (&app.source, &delivery.event) {
        (Source::Git(source), Event::Ping) => Ok(PushRequest::Ignore(format!(
            "The webhook works: what {} tells of pushes to branch \"{}\" is built.",
            delivery.host, source.branch
        ))),
        (Source::Image, Event::Ping) => Ok(PushRequest::Ignore(format!(
            "The secret is right, but a push will be refused: {}",
            not_from_git(app, &delivery.host)
        ))),
        (Source::Image, Event::Push(_) | Event::Other(_)) => Err(Refusal::WrongKind(not_from_git(app, &delivery.host))),
        (Source::Git(source), Event::Other(event)) => Ok(nothing(format!(
            "{} told of {}, and only pushes to branch \"{}\" count",
            delivery.host,
            crate::text::quoted(event),
            source.branch
        ))),
        (Source::Git(source), Event::Push(push)) => Ok(pushed(app, source, push)),
    }
}

fn not_from_git(app: &App, host: &GitHost) -> String {
    format!(
        "{} is deployed by its image, and {host} has none to post. Let CI post the image once it is built, or \
         register the app as one that is built from git.",
        app.id
    )
}

fn nothing(why: String) -> PushRequest {
    PushRequest::Ignore(format!("Nothing was done: {why}."))
}

fn pushed(app: &App, source: &GitSource, push: &Push) -> PushRequest {
    let ours =
        |update: &&RefUpdate| matches!(&update.reference, Reference::Branch(name) if *name == source.branch.as_str());
    let Some(update) = push.updates.iter().find(ours) else {
        let moved = push.updates.first().map_or_else(|| "nothing".to_owned(), |update| update.reference.to_string());
        return nothing(format!("the push moved {moved}, and this app is built from branch \"{}\"", source.branch));
    };
    match &update.head {
        None => nothing(format!("branch \"{}\" was deleted", source.branch)),
        Some(head) if head.skip => nothing(format!("the message of commit {} says [skip deploy]", head.commit)),
        Some(head) => match admission::hold_of(app, None, Some(&head.commit)) {
            Some(hold) => nothing(format!(
                "commit {} is held since rollback {} went away from it. To deploy it all the same, release the hold, \
                 or let CI or a person ask for it",
                head.commit, hold.by
            )),
            None => PushRequest::Build(PushedCommit {
                commit: head.commit.clone(),
                before: update.before.clone(),
                committed_at: head.committed_at,
            }),
        },
    }
}

/// Decides on a pushed commit.
///
/// `entries` are the newest of the app's history, newest first, read before `branch_head` was: the admission detects a
/// push that was accepted since then, and one that was accepted before is the branch's head.
///
/// Hosts repeat reports, some under another id. So a push is recognised by its content: the newest push that this host
/// reported has the same.
pub fn decide(
    source: &GitSource,
    entries: &[Deploy],
    host: &GitHost,
    pushed: &PushedCommit,
    branch_head: &BranchHead,
) -> PushDecision {
    let brought: Vec<&Deploy> = entries.iter().filter(|entry| entry.moves_branch()).collect();
    if let Some(late) = late(source, &brought, pushed, branch_head) {
        return PushDecision::Ignore(format!("Nothing was done: {late}."));
    }
    let newest = brought.iter().find(|entry| host.made(entry));
    match newest.filter(|entry| is_of(entry, &pushed.commit)) {
        Some(known) => PushDecision::Repeated(Box::new(Deploy::clone(known))),
        None => PushDecision::Build,
    }
}

/// Returns the reason why a push is late. If the source gives no answer, or the place before the push, the history
/// decides.
fn late(source: &GitSource, entries: &[&Deploy], pushed: &PushedCommit, branch_head: &BranchHead) -> Option<String> {
    let (branch, commit) = (&source.branch, &pushed.commit);
    let because = match branch_head {
        BranchHead::At(_) if branch_head.is_at(pushed) => return None,
        BranchHead::At(Some(head)) if branch_head.lags(pushed) => {
            format!("the source says that branch \"{branch}\" is at {head}, where it was before")
        }
        BranchHead::At(None) if branch_head.lags(pushed) => {
            format!("the source says that there is no branch \"{branch}\", as before")
        }
        BranchHead::At(Some(head)) => {
            return Some(format!("the push brought commit {commit}, and branch \"{branch}\" is at {head} by now"));
        }
        BranchHead::At(None) => {
            return Some(format!("the push brought commit {commit}, and the source has no branch \"{branch}\" by now"));
        }
        BranchHead::Unread(Unread::TimedOut) => format!("the source did not say in time where branch \"{branch}\" is"),
        BranchHead::Unread(Unread::Failed) => {
            format!("the source cannot be read, so that the place of branch \"{branch}\" is not known")
        }
        BranchHead::Unread(Unread::Outdated) => {
            format!("the source said where branch \"{branch}\" is before that, and not again in time")
        }
    };
    let at = entries.iter().position(|entry| is_of(entry, commit))?;
    let known = entries.get(at)?;
    let newer = entries.iter().take(at).find(|entry| entry.commit.is_some())?;
    let other = newer.commit.as_ref()?;
    Some(format!(
        "commit {commit} came as revision {} before, which {}, revision {} is of commit {other}, and {because}. To deploy it \
         all the same, let CI or a person ask for it",
        known.revision,
        outcome(known.status()),
        newer.revision
    ))
}

/// Returns a status as the predicate of a sentence.
const fn outcome(status: Status) -> &'static str {
    match status {
        Status::Queued => "is queued",
        Status::Building => "is being built",
        Status::Releasing => "runs its release command",
        Status::RollingOut => "is rolling out",
        Status::Verifying => "is being verified",
        Status::Succeeded => "was deployed",
        Status::Failed => "failed",
        Status::Superseded => "was superseded",
        Status::Cancelled => "was cancelled",
    }
}

fn is_of(entry: &Deploy, commit: &Commit) -> bool {
    entry.commit.as_ref().is_some_and(|pushed| pushed.may_be(commit))
}
