//! The end of a deploy: waiting for it, and printing it.

use rollhook_api::Deploy;
use rollhook_core::{
    app::AppId,
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
        self.finish_restores(id).await?;
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

    /// Waits for the restore of a failed rollout and for other unfinished deploys, if this process drives them.
    pub(super) async fn finish_restores(&self, id: &AppId) -> Result<(), CliError> {
        let Some(direct) = self.direct else { return Ok(()) };
        while let Some(revision) = direct.next_unfinished(id).await? {
            let entry = self.operations.entry(id, revision).await?;
            if entry.actor == "auto" {
                message(&format!("Revision {revision} restores {}", what(&entry)));
            }
            self.print_end(&watch(self, id, revision).await?)?;
        }
        Ok(())
    }
}

/// Returns `Ok` if the deploy succeeded, or was not waited for.
///
/// # Errors
/// [`CliError::Unsuccessful`] otherwise.
pub(super) fn succeeded(ended: Option<&Deploy>) -> Result<(), CliError> {
    let succeeded = ended.is_none_or(|ended| ended.status == Status::Succeeded);
    if succeeded { Ok(()) } else { Err(CliError::Unsuccessful) }
}
