//! Seeing a deploy to its end, and saying how it ended.

use rollhook_api::Deploy;
use rollhook_core::{
    app::AppId,
    deploy::{Revision, Status},
    text::escaped,
};

use super::Session;
use crate::{
    exit::Failure,
    history::{ending, what},
    output::message,
    progress::watch,
};

impl Session<'_> {
    /// Waits for the deploy's end where that was asked for, or where nobody else would drive it; says how it ended, and
    /// returns the entry that stands for it then.
    pub(super) async fn see_through(
        &self,
        id: &AppId,
        revision: Revision,
        wait: bool,
    ) -> Result<Option<Deploy>, Failure> {
        if !wait && self.direct.is_none() {
            return Ok(None);
        }
        let ended = watch(self, id, revision).await?;
        self.tell(&ended)?;
        self.put_right(id).await?;
        Ok(Some(ended))
    }

    fn tell(&self, ended: &Deploy) -> Result<(), Failure> {
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

    /// Where this process drives, a failed rollout is its to put right, and nothing may be left half done.
    pub(super) async fn put_right(&self, id: &AppId) -> Result<(), Failure> {
        let Some(direct) = self.direct else { return Ok(()) };
        while let Some(revision) = direct.left_to_do(id).await? {
            let entry = self.operations.entry(id, revision).await?;
            if entry.actor == "auto" {
                message(&format!("Revision {revision} puts it right: {}", what(&entry)));
            }
            self.tell(&watch(self, id, revision).await?)?;
        }
        Ok(())
    }
}

/// Success of the command, by the entry that stands for its deploy.
///
/// # Errors
/// [`Failure::Unsuccessful`] unless that succeeded.
pub(super) fn succeeded(ended: Option<&Deploy>) -> Result<(), Failure> {
    match ended.map(|ended| ended.status) {
        None | Some(Status::Succeeded) => Ok(()),
        Some(
            Status::Queued
            | Status::Building
            | Status::RollingOut
            | Status::Failed
            | Status::Superseded
            | Status::Cancelled,
        ) => Err(Failure::Unsuccessful),
    }
}
