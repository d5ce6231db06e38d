//! Asking sources whether posted commits are older than those of earlier deploys.

use std::time::Duration;

use crate::{
    Result,
    deploy::{Commit, Deploy, Revision},
    engine::ordering::{self, COMPARED_MAX, NewerDeploy},
    ledger::AppState,
    ports::Page,
    service::{Deployer, in_time::in_time},
    source::GitSource,
};

/// The longest time in which a source answers: a build waits for it.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

impl Deployer {
    /// Returns the earlier deploy whose commit is newer than the posted one of this revision; `None` if there is none, or if the
    /// source does not say so.
    pub(super) async fn newer_deploy(
        &self,
        app_state: AppState,
        revision: Revision,
        source: GitSource,
        commit: Commit,
    ) -> Option<NewerDeploy> {
        let (app, asked) = (&app_state.app.id, self.asked(&app_state, revision, &source, &commit));
        match in_time(&*self.ports.clock, ANSWER_WITHIN, asked).await {
            Some(Ok(newer)) => newer,
            Some(Err(error)) => {
                tracing::info!(
                    %app, %revision, error = %error.chain(),
                    "a commit is built without knowing whether it is older than what came before: reading its branch failed"
                );
                None
            }
            None => {
                tracing::info!(
                    %app, %revision,
                    "a commit is built without knowing whether it is older than what came before: its source was too slow"
                );
                None
            }
        }
    }

    async fn asked(
        &self,
        app_state: &AppState,
        revision: Revision,
        source: &GitSource,
        commit: &Commit,
    ) -> Result<Option<NewerDeploy>> {
        let Some(builder) = &self.ports.builder else { return Ok(None) };
        let (app, page) = (&app_state.app, Page { before: Some(revision), succeeded: false, limit: 2 * COMPARED_MAX });
        let unfinished = app_state.unfinished.iter().map(|deploy| Deploy::clone(deploy));
        let mut entries: Vec<Deploy> =
            self.ports.history.page(app.uid, page).await?.into_iter().chain(unfinished).collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.revision));
        let compared = ordering::compared(entries, revision, commit);
        // The head is newer than all else, and is known by a smaller answer.
        if compared.is_empty() || builder.branches.head(&app.id, source).await?.is_some_and(|head| head.may_be(commit))
        {
            return Ok(None);
        }
        let log = builder.branches.log(&app.id, source).await?;
        Ok(ordering::newer(compared, commit, &log))
    }
}
