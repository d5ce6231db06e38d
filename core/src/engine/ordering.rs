//! The order of commits that CI posts: one that is older than what came before it changes nothing.
//!
//! Two pipelines of a git app may end in the other order than they began, and the slow one would take the place of the newer
//! commit. Where CI counts its runs, that decides ([`crate::ledger`], sequences); else the source is asked once, beside whatever is
//! built or rolls out, before the build begins. Earlier deploys are judged first, and a commit whose place is not known is in
//! order.

use super::{
    Effect, State, record,
    resolving::{self, Question, ResolveSpec},
};
use crate::{
    app::Source,
    deploy::{Commit, Deploy, Newer, Resolution, Revision, State as Stored, Status, Trigger},
    source::{BranchLog, Fingerprint},
};

/// How many earlier deploys a commit is compared with.
pub const COMPARED_MAX: usize = 40;

/// An earlier deploy whose commit is newer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewerDeploy {
    /// Its revision.
    pub revision: Revision,
    /// Its commit.
    pub commit: Commit,
}

/// Returns the effect of asking the source, if a deploy waits for that and no other question is under way.
pub(super) fn question(state: &State) -> Option<Effect> {
    let deploy = state.app_state.unfinished.iter().find(|deploy| deploy.is_to_be_ordered())?;
    let (Source::Git(source), Some(commit)) = (&state.app_state.app.source, &deploy.commit) else { return None };
    // A process without a builder leaves them to others. What must be signed is not built here, whatever its order.
    let is_built = state.has_builder && !state.app_state.app.requires_signatures();
    if !is_built || resolving::is_under_way(state) {
        return None;
    }
    let question = Question::Order { source: source.clone(), commit: commit.clone() };
    Some(Effect::Resolve(Box::new(ResolveSpec { revision: deploy.revision, question })))
}

/// Processes the answer of the source for a deploy that waits for it.
pub(super) fn answered(
    state: &State,
    deploy: &Deploy,
    asked: &Fingerprint,
    newer: Result<Option<NewerDeploy>, String>,
) -> Option<Effect> {
    let Source::Git(source) = &state.app_state.app.source else { return None };
    // The source was changed meanwhile: the present one is asked.
    if source.fingerprint() != *asked {
        return None;
    }
    let changed = match newer {
        Ok(newer) => vec![with_order(deploy, newer)],
        // Asking for each of them would hold up their builds one after another.
        Err(why) => {
            let waiting = state.app_state.unfinished.iter().filter(|other| other.is_to_be_ordered());
            waiting.map(|other| without_order(other, &why)).collect()
        }
    };
    Some(record(state, changed, Vec::new()))
}

/// Returns a deploy once the source has answered: to be built, or ended by the earlier one whose commit is newer.
fn with_order(deploy: &Deploy, newer: Option<NewerDeploy>) -> Deploy {
    let state = match newer {
        Some(NewerDeploy { revision, commit }) => {
            Stored::Superseded { by: revision, rollback: false, newer: Some(Newer::Commit(commit)) }
        }
        None => deploy.state.clone(),
    };
    Deploy { resolution: None, ..deploy.moved(state) }
}

/// Returns a deploy whose source does not answer: to be built, with the reason.
fn without_order(deploy: &Deploy, why: &str) -> Deploy {
    let why = format!("whether its commit is older than what came before is not known: {why}");
    Deploy { resolution: Some(Box::new(Resolution::unresolved(&why))), ..deploy.moved(deploy.state.clone()) }
}

/// Returns those of an app's entries that a posted commit is compared with, newest first: what the branch's pipelines brought
/// before it. Those that were out of order themselves do not count, nor those that failed or were cancelled: an older commit may be
/// the fix.
pub fn compared(entries: impl IntoIterator<Item = Deploy>, revision: Revision, commit: &Commit) -> Vec<NewerDeploy> {
    let is_compared = |entry: &Deploy| {
        let has_failed = matches!(entry.status(), Status::Failed | Status::Cancelled);
        let is_brought = matches!(entry.trigger, Trigger::Webhook | Trigger::Git);
        entry.revision < revision && is_brought && !entry.is_out_of_order() && !has_failed
    };
    let entries = entries.into_iter().filter(is_compared);
    let others = entries.filter_map(|entry| Some(NewerDeploy { revision: entry.revision, commit: entry.commit? }));
    others.filter(|other| !other.commit.may_be(commit)).take(COMPARED_MAX).collect()
}

/// Returns the newest of the compared deploys whose commit was made from the posted one.
pub fn newer(compared: &[NewerDeploy], commit: &Commit, log: &BranchLog) -> Option<NewerDeploy> {
    compared.iter().find(|other| log.is_older(commit, &other.commit)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        deploy::{Actor, Reason},
        source::LoggedCommit,
        tests::{queued, revision, sha},
    };

    fn log(newest_first: &[&str]) -> BranchLog {
        let parents = newest_first.iter().skip(1).map(|parent| vec![sha(parent)]).chain([Vec::new()]);
        let commits = newest_first.iter().zip(parents);
        BranchLog::new(commits.map(|(commit, parents)| LoggedCommit { commit: sha(commit), parents }).collect())
    }

    fn entry(number: u64, trigger: Trigger, commit: &str) -> Deploy {
        queued(number, trigger, Actor::Service, Some(sha(commit)))
    }

    #[test]
    fn posted_commit_is_compared_with_what_the_branch_brought_before() {
        let late = Deploy {
            state: Stored::Superseded { by: revision(1), rollback: false, newer: Some(Newer::Commit(sha("c"))) },
            ..entry(5, Trigger::Webhook, "e")
        };
        let failed = Stored::Failed { reason: Reason::new(Reason::BUILD_FAILED), message: "x".into(), evidence: None };
        let entries = [
            entry(8, Trigger::Webhook, "d"),
            entry(7, Trigger::Webhook, "a"),
            entry(6, Trigger::Git, "c"),
            late,
            Deploy { state: failed, ..entry(5, Trigger::Webhook, "d") },
            entry(4, Trigger::Manual, "d"),
            entry(3, Trigger::Rollback, "d"),
            entry(2, Trigger::Webhook, "b"),
        ];
        let compared = compared(entries, revision(8), &sha("a"));
        let revisions: Vec<u64> = compared.iter().map(|other| other.revision.get()).collect();
        assert_eq!(revisions, [6, 2], "neither itself, nor what people deployed, nor what was older or failed");
        let newer = newer(&compared, &sha("a"), &log(&["d", "c", "b", "a"]));
        assert_eq!(newer, Some(NewerDeploy { revision: revision(6), commit: sha("c") }));
    }

    #[test]
    fn commit_that_follows_what_came_before_is_in_order() {
        let known = compared([entry(1, Trigger::Webhook, "b")], revision(2), &sha("c"));
        assert_eq!(newer(&known, &sha("c"), &log(&["d", "c", "b", "a"])), None);
        assert_eq!(newer(&known, &sha("c"), &log(&[])), None, "its place is not known");
    }

    #[test]
    fn older_commit_ends_and_another_goes_on() {
        let posted = entry(2, Trigger::Webhook, "a");
        let waits = Deploy { resolution: Some(Box::new(Resolution::Pending)), ..posted };
        let goes_on = with_order(&waits, None);
        assert_eq!((goes_on.state, goes_on.resolution, goes_on.step), (Stored::Queued, None, waits.step + 1));
        let newer = NewerDeploy { revision: revision(1), commit: sha("b") };
        let ended = with_order(&waits, Some(newer));
        let state = Stored::Superseded { by: revision(1), rollback: false, newer: Some(Newer::Commit(sha("b"))) };
        assert_eq!((ended.state, ended.resolution, ended.touched), (state, None, false));
    }
}
