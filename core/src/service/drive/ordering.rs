//! Asking sources whether posted commits are older than those of earlier deploys.

use std::time::Duration;

use crate::{
    Result,
    deploy::{Commit, Deploy, Revision},
    engine::{
        ordering::{self, COMPARED_MAX, NewerDeploy},
        resolving::Answer,
    },
    ledger::AppState,
    ports::Page,
    service::{Deployer, drive::polling::sentence, in_time::in_time},
    source::GitSource,
};

/// The longest time in which a source answers: a build waits for it.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// The pause after which a source that named a newer commit is asked again: it may lag behind a branch that was taken back.
const CONFIRM_AFTER: Duration = Duration::from_secs(5);

impl Deployer {
    /// Asks whether an earlier deploy's commit is newer than the posted one of this revision.
    pub(super) async fn read_order(
        &self,
        app_state: AppState,
        revision: Revision,
        source: GitSource,
        commit: Commit,
    ) -> Answer {
        let app = &app_state.app.id;
        let read = self.newer_deploy(&app_state, revision, &source, &commit);
        let newer = match in_time(&*self.ports.clock, ANSWER_WITHIN, read).await {
            Some(Ok(newer)) => Ok(newer),
            Some(Err(error)) => {
                tracing::warn!(%app, %revision, error = %error.chain(), "reading the order of a commit failed");
                Err(sentence(&error))
            }
            None => {
                tracing::warn!(%app, %revision, "reading the order of a commit took too long");
                Err(format!("{} did not answer in time", source.url))
            }
        };
        Answer::Order { source: source.fingerprint(), newer }
    }

    async fn newer_deploy(
        &self,
        app_state: &AppState,
        revision: Revision,
        source: &GitSource,
        commit: &Commit,
    ) -> Result<Option<NewerDeploy>> {
        let Some(builder) = &self.ports.builder else { return Ok(None) };
        let (app, branches) = (&app_state.app, &builder.branches);
        let page = Page { before: Some(revision), succeeded: false, limit: 2 * COMPARED_MAX };
        let unfinished = app_state.unfinished.iter().map(|deploy| Deploy::clone(deploy));
        let mut entries: Vec<Deploy> =
            self.ports.history.page(app.uid, page).await?.into_iter().chain(unfinished).collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.revision));
        let compared = ordering::compared(entries, revision, commit);
        // The head is newer than all else, and is known by a smaller answer.
        if compared.is_empty() || branches.head(&app.id, source).await?.is_some_and(|head| head.may_be(commit)) {
            return Ok(None);
        }
        let newer = ordering::newer(&compared, commit, &branches.log(&app.id, source).await?);
        if newer.is_none() {
            return Ok(None);
        }
        self.ports.clock.sleep(CONFIRM_AFTER).await;
        Ok(ordering::newer(&compared, commit, &branches.log(&app.id, source).await?))
    }
}
