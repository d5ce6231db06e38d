//! The end of a deploy: waiting for it, and printing it.

use std::time::Duration;

use rollhook_api::{App, Deploy};
use rollhook_core::{
    app::{AppId, OnFailure},
    deploy::{Revision, Status},
    text::escaped,
};

use super::Session;
use crate::{
    args::Wait,
    exit::CliError,
    history::{ending, what},
    output::message,
    progress::watch,
};

/// The number of newest entries among which a restore is looked for.
const RECENT: usize = 20;
/// The number of looks for a restore that is owed, and the pause after each: the service begins one at once, or once
/// another process has taken the app over.
const RESTORE_READS: u32 = 40;
const RESTORE_PAUSE: Duration = Duration::from_secs(1);

impl Session<'_> {
    /// Waits for the deploy's end if `--wait` is given or this process drives it, prints the end, and returns the entry
    /// that decided it: the deploy's own, or its last successor's.
    pub(super) async fn wait_for_end(
        &self,
        id: &AppId,
        revision: Revision,
        wait: Wait,
    ) -> Result<Option<Deploy>, CliError> {
        if !wait.wait && self.direct.is_none() {
            return Ok(None);
        }
        let ended = watch(self, id, revision).await?;
        self.print_end(&ended)?;
        self.follow_restore(id, &ended).await?;
        Ok(Some(ended))
    }

    pub(super) fn print_end(&self, ended: &Deploy) -> Result<(), CliError> {
        if ended.status != Status::Succeeded {
            ending(ended).iter().for_each(|line| message(line));
            return Ok(());
        }
        let app = format!("{}/{}", ended.namespace, ended.app);
        self.output.line(&format!("Revision {} succeeded: {} runs {}", ended.revision, escaped(&app), what(ended)))?;
        if let Some(note) = &ended.message {
            message(&format!("note: {}", escaped(note)));
        }
        Ok(())
    }

    /// Waits for what puts a failed deploy right, whoever drives it.
    pub(super) async fn follow_restore(&self, id: &AppId, ended: &Deploy) -> Result<(), CliError> {
        if self.direct.is_some() {
            return self.finish_restores(id).await;
        }
        if !matches!(ended.status, Status::Failed | Status::Cancelled) {
            return Ok(());
        }
        match self.follow_restore_at_server(id, ended).await {
            Err(failure @ CliError::Interrupted(_)) => Err(failure),
            // The deploy's own end is known, and decides how the command ends.
            Err(failure) => {
                let (revision, why) = (ended.revision, failure.lines().join(" "));
                message(&format!("note: whether revision {revision} was put right is not known: {why}"));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    async fn follow_restore_at_server(&self, id: &AppId, ended: &Deploy) -> Result<(), CliError> {
        for _ in 0..RESTORE_READS {
            let recent = match self.operations.history(id, None, RECENT).await {
                // The deploy was cancelled because its app is gone.
                Err(CliError::Problem(problem)) if problem.slug() == "app-not-found" => return Ok(()),
                read => read?.deploys,
            };
            if let Some(restore) = restore_of(ended, &recent) {
                message(&format!("Revision {} restores {}", restore.revision, what(restore)));
                return self.print_end(&watch(self, id, restore.revision).await?);
            }
            if !owes_restore(&self.operations.app(id).await?, ended) {
                return Ok(());
            }
            tokio::time::sleep(RESTORE_PAUSE).await;
        }
        Ok(())
    }

    /// Waits for the restore of a failed rollout and for other unfinished deploys, if this process drives them.
    pub(super) async fn finish_restores(&self, id: &AppId) -> Result<(), CliError> {
        let Some(direct) = self.direct else { return Ok(()) };
        while let Some(revision) = direct.next_unfinished(id).await? {
            let entry = self.operations.entry(id, revision).await?;
            if entry.is_restore() {
                message(&format!("Revision {revision} restores {}", what(&entry)));
            }
            self.print_end(&watch(self, id, revision).await?)?;
        }
        Ok(())
    }
}

/// Returns the restore that followed a deploy, among the newest entries.
fn restore_of<'a>(ended: &Deploy, recent: &'a [Deploy]) -> Option<&'a Deploy> {
    recent
        .iter()
        .filter(|entry| entry.revision > ended.revision && entry.is_restore())
        .min_by_key(|entry| entry.revision)
}

/// Returns whether the service is about to restore the app after a deploy: it is the newest one on the cluster, and
/// there is a version to return to.
fn owes_restore(app: &App, ended: &Deploy) -> bool {
    let is_on_cluster = app.on_cluster.as_ref().is_some_and(|newest| newest.revision == ended.revision);
    // A restore that fails is not restored again.
    let may_be_restored = app.policy.on_failure == OnFailure::Restore && !ended.is_restore();
    is_on_cluster && may_be_restored && app.current.is_some()
}

/// Returns `Ok` if the deploy succeeded, or was not waited for.
///
/// # Errors
/// [`CliError::Unsuccessful`] otherwise.
pub(super) fn succeeded(ended: Option<&Deploy>) -> Result<(), CliError> {
    let succeeded = ended.is_none_or(|ended| ended.status == Status::Succeeded);
    if succeeded { Ok(()) } else { Err(CliError::Unsuccessful) }
}

#[cfg(test)]
mod tests {
    use rollhook_core::deploy::{Revision, Trigger};

    use super::*;
    use crate::{apps::tests::app, history::tests::entry};

    fn failed() -> Deploy {
        Deploy { on_cluster: true, ..entry(5, "bad", Status::Failed, 9) }
    }

    fn restore(revision: u64) -> Deploy {
        let restore = entry(revision, "good", Status::RollingOut, 1);
        Deploy { trigger: Trigger::Rollback, actor: "auto".to_owned(), ..restore }
    }

    #[test]
    fn the_restore_of_a_deploy_is_the_first_one_after_it() {
        let by_hand = Deploy { actor: "ada".to_owned(), ..restore(6) };
        let recent = [restore(8), restore(7), by_hand, failed(), restore(4)];
        assert_eq!(restore_of(&failed(), &recent).map(|entry| entry.revision), Revision::new(7));
        assert_eq!(restore_of(&failed(), &recent[2..]), None);
    }

    #[test]
    fn a_restore_is_waited_for_only_if_one_is_owed() {
        let good = Some(entry(4, "good", Status::Succeeded, 60));
        let owing = App { current: good, on_cluster: Some(failed()), ..app() };
        assert!(owes_restore(&owing, &failed()));
        let mut left = owing.clone();
        left.policy.on_failure = OnFailure::Leave;
        let newer = App { on_cluster: Some(restore(6)), ..owing.clone() };
        for app in [left, newer, App { current: None, ..owing.clone() }] {
            assert!(!owes_restore(&app, &failed()));
        }
        let failed_restore = Deploy { status: Status::Failed, ..restore(5) };
        assert!(!owes_restore(&App { on_cluster: Some(failed_restore.clone()), ..owing }, &failed_restore));
    }
}
