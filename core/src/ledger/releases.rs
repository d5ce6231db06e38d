//! Release commands, as far as later decisions need them: which revisions' commands may have run, and whether a run may
//! still be under way.

use serde::{Deserialize, Serialize};

use super::{AppState, Change};
use crate::{
    app::App,
    deploy::{Deploy, Origin, Revision, Status, Trigger},
    time::Timestamp,
};

/// The most revisions that a state remembers because their release commands may have run; the oldest goes first.
pub const RELEASED_MAX: usize = 50;

/// A revision whose release command may have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// The revision.
    pub revision: Revision,
    /// The time at which the command may have begun.
    pub at: Timestamp,
    /// The revision whose image the command ran with, if a change of the configuration repeated that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_of: Option<Revision>,
}

/// Returns the command that this deploy runs before its rollout; `None`: it runs none, or has run it.
///
/// A rollback and a restore return to a version whose command had its turn, a redeploy repeats one, and an adopted version
/// runs already. One with another configuration runs it again, unless the policy says otherwise: what it prepares may
/// depend on that.
pub fn command<'a>(app: &'a App, deploy: &Deploy) -> Option<&'a [String]> {
    let command = app.policy.release_command.as_slice();
    let has_run = deploy.has_run_before() || deploy.release.is_some();
    let is_left_out = deploy.trigger == Trigger::Config && !app.policy.release_on_config;
    Some(command).filter(|command| !has_run && !is_left_out && !command.is_empty())
}

/// The most revisions that a sentence names.
const NAMED_MAX: usize = 5;

/// Returns the release commands of these revisions, newest first, as the subject of a sentence: "release commands of
/// revisions 5, 4".
pub fn named(released: &[Released]) -> String {
    let newest: Vec<String> = released.iter().rev().take(NAMED_MAX).map(|it| it.revision.to_string()).collect();
    let (commands, revisions) = if released.len() == 1 { ("command", "revision") } else { ("commands", "revisions") };
    let more = match released.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("release {commands} of {revisions} {}{more}", newest.join(", "))
}

/// Returns the remark on a deploy that succeeded although the release command of its version did not.
pub fn remark_on_unreleased(deploy: &Deploy) -> Option<String> {
    let version = deploy.effective;
    let is_remarked = deploy.unreleased && deploy.lacks_release();
    is_remarked.then(|| format!("the release command of revision {version} did not succeed, and was not run"))
}

impl AppState {
    /// The deploy whose release command is being run, or made ready.
    pub fn releasing(&self) -> Option<&std::sync::Arc<Deploy>> {
        self.unfinished.iter().rev().find(|deploy| deploy.status() == Status::Releasing)
    }

    /// The oldest revision whose run of a release command may be under way although its deploy has ended, as by a rollback
    /// or a cancel.
    pub fn abandoned_release(&self) -> Option<Revision> {
        let releasing = self.releasing().map(|deploy| deploy.revision);
        self.release_runs.iter().copied().find(|run| Some(*run) != releasing)
    }

    /// Returns those of [`released_since`](Self::released_since) whose commands ran with another image than this revision's.
    pub fn released_otherwise_since(&self, target: Revision) -> Vec<Released> {
        let image = self.image_of(target);
        self.released_since(target).into_iter().filter(|released| self.image_of(released.revision) != image).collect()
    }

    /// Returns the revision that brought this one's image, as far as release commands say.
    fn image_of(&self, revision: Revision) -> Revision {
        let known = self.released.iter().find(|released| released.revision == revision);
        known.and_then(|released| released.image_of).unwrap_or(revision)
    }

    /// Returns the revisions above this one whose release commands may have run, ascending: a return to it leaves what
    /// they changed, such as the schema of a database, as it is.
    pub fn released_since(&self, target: Revision) -> Vec<Released> {
        self.released.iter().filter(|released| released.revision > target).copied().collect()
    }
}

impl Change {
    /// Notes what a deploy's next state says of its release command.
    pub(super) fn note_release(&mut self, deploy: &Deploy) {
        let (revision, state) = (deploy.revision, &mut self.state);
        let is_releasing = state.releasing().is_some_and(|known| known.revision == revision);
        let has_waited = state.abandoned_release().is_some() || state.awaited_turn(revision).is_some();
        if deploy.is_terminal() && is_releasing && deploy.release.is_none() && has_waited {
            // Nothing of its run was made ready while the abandoned one went on, or another app's.
            state.release_runs.retain(|run| *run != revision);
        }
        if deploy.status() == Status::Releasing {
            state.release_runs.push(revision);
            state.release_runs.sort_unstable();
            state.release_runs.dedup();
        }
        let known = state.released.iter().position(|released| released.revision == revision);
        match (known, deploy.release) {
            (None, Some(_)) => {
                let image_of = match deploy.from {
                    Some(Origin::Same(repeated)) => Some(state.image_of(repeated)),
                    Some(Origin::Revision(_) | Origin::Built(_) | Origin::Promoted { .. }) | None => None,
                };
                let at = state.released.partition_point(|released| released.revision < revision);
                state.released.insert(at, Released { revision, at: deploy.updated_at, image_of });
                let surplus = state.released.len().saturating_sub(RELEASED_MAX);
                state.released.drain(..surplus);
            }
            (Some(known), None) => drop(state.released.remove(known)),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }
}
