//! The end of a deploy: waiting for it, and printing it.

use std::time::Duration;

use rollhook_api::{Deploy, Revoked, operations::ShowApp, words};
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

/// The longest wait for the entry of a restore that is owed: the service accepts it at once, or once another process has
/// taken the app over.
const RESTORE_WITHIN: Duration = Duration::from_secs(20);

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
            ending(ended, None).iter().for_each(|line| message(line));
            return Ok(());
        }
        if let Some(revoked) = &ended.revoked {
            message(&revoked_line(ended.revision, revoked));
            return Ok(());
        }
        let app = format!("{}/{}", ended.namespace, ended.app);
        self.output.line(&format!("Revision {} succeeded: {} runs {}", ended.revision, escaped(&app), what(ended)))?;
        if let Some(note) = &ended.message {
            message(&format!("note: {}", escaped(note)));
        }
        Ok(())
    }

    /// Waits for the restore of a deploy that ended, whoever drives it; and for all unfinished deploys of the app, if this
    /// process drives them.
    pub(super) async fn follow_restore(&self, id: &AppId, ended: &Deploy) -> Result<(), CliError> {
        match self.end_of_restore(id, ended).await {
            Err(failure) if self.direct.is_some() || matches!(failure, CliError::Interrupted(_)) => {
                return Err(failure);
            }
            // The deploy was cancelled because its app is gone.
            Err(CliError::Problem(problem)) if matches!(problem.slug(), "app-not-found" | "revision-not-found") => {}
            // The deploy's own end is known, and decides how the command ends.
            Err(failure) => {
                let (revision, why) = (ended.revision, failure.lines().join(" "));
                message(&format!("note: whether revision {revision} was put right is not known: {why}"));
            }
            Ok(()) => {}
        }
        if self.direct.is_some() { self.finish_all(id).await } else { Ok(()) }
    }

    async fn end_of_restore(&self, id: &AppId, ended: &Deploy) -> Result<(), CliError> {
        if !matches!(ended.status, Status::Failed | Status::Cancelled) {
            return Ok(());
        }
        let now = self.api.changed(&(id.clone(), ended.revision), ended, RESTORE_WITHIN).await?;
        let Some(restore) = &now.restore else { return Ok(()) };
        let what = escaped(&words::restored(restore));
        let Some(revision) = &restore.revision else {
            message(&format!("note: the restore of {what} is owed, and has not begun"));
            return Ok(());
        };
        message(&format!("Revision {revision} restores {what}"));
        self.print_end(&watch(self, id, *revision).await?)
    }

    /// Waits for the unfinished deploys of an app, newest first, and for the restores of those that fail.
    async fn finish_all(&self, id: &AppId) -> Result<(), CliError> {
        while let Some(revision) = self.api.call(ShowApp, id, ()).await?.unfinished.last().copied() {
            let ended = watch(self, id, revision).await?;
            self.print_end(&ended)?;
            self.end_of_restore(id, &ended).await?;
        }
        Ok(())
    }
}

/// Returns a line about a version that succeeded and was revoked since, and about its restore.
fn revoked_line(revision: Revision, revoked: &Revoked) -> String {
    let Revoked { fail, restore, not_restored } = revoked;
    let then = match (restore, not_restored) {
        (Some(restore), _) => format!("revision {restore} restores the version before"),
        (None, Some(why)) => format!("nothing is restored: {why}"),
        (None, None) => "the version before is to be restored".to_owned(),
    };
    escaped(&format!("Revision {revision} succeeded, and was revoked: the check {} failed; {then}", fail.check))
}

/// Returns `Ok` if the deploy succeeded and was not revoked, or was not waited for.
///
/// # Errors
/// [`CliError::Unsuccessful`] otherwise.
pub(super) fn succeeded(ended: Option<&Deploy>) -> Result<(), CliError> {
    let succeeded = ended.is_none_or(|ended| ended.status == Status::Succeeded && ended.revoked.is_none());
    if succeeded { Ok(()) } else { Err(CliError::Unsuccessful) }
}

#[cfg(test)]
mod tests {
    use rollhook_core::time::Timestamp;

    use super::*;

    #[test]
    fn revoked_version_names_its_restore() {
        let (at, message) = (Timestamp::from_millis(0), String::new());
        let fail = rollhook_api::CheckFail { at, check: "front".to_owned(), message };
        let revoked = Revoked { fail, restore: Some(Revision::FIRST.next()), not_restored: None };
        let line = revoked_line(Revision::FIRST, &revoked);
        assert_eq!(
            line,
            "Revision 1 succeeded, and was revoked: the check front failed; revision 2 restores the version before"
        );
        let clause = rollhook_api::words::revocation(Some(&revoked));
        assert_eq!(clause.as_deref(), Some("its verification was revoked: the check front failed"));
    }
}
