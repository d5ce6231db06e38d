//! The decision on a git host's call: a build, or the reason for ignoring it.

use super::admission;
use crate::{
    app::{App, Source},
    delivery::{Before, Change, Delivery, Event, GitHost, Push, Reference},
    deploy::{Commit, Deploy},
    request::Refusal,
    source::GitSource,
};

/// The request of a git host's call, as far as the call and the app alone show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The call is ignored, for the reason in this sentence.
    Nothing(String),
    /// The push to the app's branch.
    Build(Brought),
}

/// A push to the app's branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brought {
    /// The branch's head after the push.
    pub commit: Commit,
    /// The place of the branch before the push.
    pub before: Before,
}

/// The place of the app's branch at its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The branch is at this commit; `None`: the source has no such branch.
    At(Option<Commit>),
    /// The source could not be read in time.
    Unread,
}

impl Standing {
    /// Returns whether the branch is still at the pushed commit, so that the push is not late.
    pub fn is_of(&self, brought: &Brought) -> bool {
        matches!(self, Self::At(Some(head)) if head.may_be(&brought.commit))
    }

    /// Returns whether the branch is still where it was before the push: the server that answered lags behind. Git
    /// hosts report a push before all of their servers, or a mirror before them, know it.
    fn lags(&self, brought: &Brought) -> bool {
        match (self, &brought.before) {
            (Self::At(None), Before::Absent) => true,
            (Self::At(Some(head)), Before::At(before)) => head.may_be(before),
            (Self::At(_), Before::Unsaid | Before::Absent | Before::At(_)) | (Self::Unread, _) => false,
        }
    }
}

/// The decision on a pushed commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Ignored, for the reason in this sentence.
    Nothing(String),
    /// Repeated: an earlier report of the push made this entry.
    Known(Box<Deploy>),
    /// The commit is built.
    Build,
}

/// Decides what a git host's call asks for.
///
/// # Errors
/// [`Refusal::WrongKind`] for an app that is not built from git.
pub fn wanted(app: &App, delivery: &Delivery) -> Result<Wanted, Refusal> {
    match (&app.source, &delivery.event) {
        (Source::Git(source), Event::Ping) => Ok(Wanted::Nothing(format!(
            "The webhook works: what {} tells of pushes to branch \"{}\" is built.",
            delivery.host, source.branch
        ))),
        (Source::Image, Event::Ping) => Ok(Wanted::Nothing(format!(
            "The secret is right, but a push will be refused: {}",
            not_from_git(app, delivery.host)
        ))),
        (Source::Image, Event::Push(_) | Event::Other(_)) => Err(Refusal::WrongKind(not_from_git(app, delivery.host))),
        (Source::Git(source), Event::Other(event)) => Ok(nothing(format!(
            "{} told of {}, and only pushes to branch \"{}\" count",
            delivery.host,
            crate::text::quoted(event),
            source.branch
        ))),
        (Source::Git(source), Event::Push(push)) => Ok(pushed(app, source, push)),
    }
}

fn not_from_git(app: &App, host: GitHost) -> String {
    format!(
        "{} is deployed by its image, and {host} has none to post. Let CI post the image once it is built (rollhook app \
         webhook enable prints how), or register the app as one that is built from git.",
        app.id
    )
}

fn nothing(why: String) -> Wanted {
    Wanted::Nothing(format!("Nothing was done: {why}."))
}

fn pushed(app: &App, source: &GitSource, push: &Push) -> Wanted {
    let ours =
        |change: &&Change| matches!(&change.reference, Reference::Branch(name) if *name == source.branch.as_str());
    let Some(change) = push.changes.iter().find(ours) else {
        let moved = push.changes.first().map_or_else(|| "nothing".to_owned(), |change| change.reference.to_string());
        return nothing(format!("the push moved {moved}, and this app is built from branch \"{}\"", source.branch));
    };
    match &change.head {
        None => nothing(format!("branch \"{}\" was deleted", source.branch)),
        Some(head) if head.skip => nothing(format!("the message of commit {} says [skip deploy]", head.commit)),
        Some(head) => match admission::hold_of(app, None, Some(&head.commit)) {
            Some(hold) => nothing(format!(
                "commit {} is held since rollback {} went away from it. To deploy it all the same, release the hold \
                 (rollhook app release-hold), or let CI or a person ask for it",
                head.commit, hold.by
            )),
            None => Wanted::Build(Brought { commit: head.commit.clone(), before: change.before.clone() }),
        },
    }
}

/// Decides on a pushed commit.
///
/// `entries` are the newest of the app's history, newest first, read before `standing` was: the admission detects a
/// push that was accepted since then, and one that was accepted before is the branch's head.
///
/// Hosts repeat reports, some under another id. So a push is recognised by its content: the newest push that this host
/// reported has the same.
pub fn verdict(
    source: &GitSource,
    entries: &[Deploy],
    host: GitHost,
    brought: &Brought,
    standing: &Standing,
) -> Verdict {
    if let Some(late) = late(source, entries, brought, standing) {
        return Verdict::Nothing(format!("Nothing was done: {late}."));
    }
    let newest = entries.iter().find(|entry| host.made(entry));
    match newest.filter(|entry| brings(entry, &brought.commit)) {
        Some(known) => Verdict::Known(Box::new(known.clone())),
        None => Verdict::Build,
    }
}

/// Returns the reason why a push is late. If the source gives no answer, or the place before the push, the history
/// decides.
fn late(source: &GitSource, entries: &[Deploy], brought: &Brought, standing: &Standing) -> Option<String> {
    let (branch, commit) = (&source.branch, &brought.commit);
    let unsaid = match standing {
        Standing::At(_) if standing.is_of(brought) => return None,
        Standing::At(Some(head)) if standing.lags(brought) => {
            format!("the source says that branch \"{branch}\" is at {head}, where it was before")
        }
        Standing::At(None) if standing.lags(brought) => {
            format!("the source says that there is no branch \"{branch}\", as before")
        }
        Standing::At(Some(head)) => {
            return Some(format!(
                "the push brought commit {commit}, and branch \"{branch}\" is at {head} by now; what is late deploys \
                 nothing backwards"
            ));
        }
        Standing::At(None) => {
            return Some(format!("the push brought commit {commit}, and the source has no branch \"{branch}\" by now"));
        }
        Standing::Unread => format!("the source could not be asked in time where branch \"{branch}\" is"),
    };
    let at = entries.iter().position(|entry| brings(entry, commit))?;
    let known = entries.get(at)?;
    let newer = entries.iter().take(at).find(|entry| entry.commit.is_some())?;
    let other = newer.commit.as_ref()?;
    Some(format!(
        "commit {commit} was deployed as revision {} already, revision {} is of commit {other}, and {unsaid}. To deploy it \
         all the same, let CI or a person ask for it",
        known.revision, newer.revision
    ))
}

fn brings(entry: &Deploy, commit: &Commit) -> bool {
    entry.commit.as_ref().is_some_and(|brought| brought.may_be(commit))
}
