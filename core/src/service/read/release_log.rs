//! Logs of release commands.

use std::time::Duration;

use futures_util::{FutureExt, select_biased};

use crate::{
    app::{AppId, AppUid},
    deploy::{Deploy, Revision, Status},
    error::Error,
    ports::{AppRef, DeployId, ReleaseRun},
    request::Refusal,
    service::{Authorized, Deployer, LogPart, Outcome},
};

/// The interval of reads of a growing log.
const POLL: Duration = Duration::from_millis(500);

impl Deployer {
    /// Returns a part of the log of a deploy's release command from this byte on. With `follow` it waits for one as long as
    /// the command runs.
    ///
    /// # Errors
    /// [`Refusal::RevisionNotFound`], [`Refusal::NoReleaseLog`] if there is no readable log;
    /// [`Refusal::StoreUnavailable`] and [`Refusal::ClusterUnavailable`] while the store or the platform is away.
    pub async fn release_log(
        &self,
        access: &Authorized,
        revision: Revision,
        from: u64,
        follow: bool,
    ) -> Outcome<LogPart> {
        let Some(runner) = self.ports.rollouts.release_runner() else { return Err(Refusal::NoReleaseLog(revision)) };
        let run = run(&access.id, access.uid, revision);
        loop {
            // The entry is read before the log: the log of an ended run is complete by then.
            let (_, entry) = self.recent_entry(access, revision, 0).await?;
            let runs = entry.status() == Status::Releasing;
            let log = match runner.log(&run, from).await {
                Ok(log) => log,
                Err(error) if error.is_transient() => {
                    tracing::warn!(app = %access.id, error = %error.chain(), "reading a release command's log failed");
                    return Err(Refusal::ClusterUnavailable);
                }
                Err(error) => {
                    tracing::warn!(app = %access.id, error = %error.chain(), "reading a release command's log failed");
                    return Err(Refusal::NoReleaseLog(revision));
                }
            };
            match log {
                Some(bytes) if !bytes.is_empty() => return Ok(LogPart { bytes, last: false }),
                None if !runs && !may_begin(&entry) => return Err(Refusal::NoReleaseLog(revision)),
                Some(_) | None if !follow || !(runs || may_begin(&entry)) => {
                    return Ok(LogPart { bytes: Vec::new(), last: true });
                }
                Some(_) | None => {}
            }
            select_biased! {
                () = runner.changed(&run).fuse() => {}
                () = self.ports.clock.sleep(POLL).fuse() => {}
            }
        }
    }

    /// Ends the release command of an app that is being deleted, if one may be running.
    pub(crate) async fn end_release(&self, access: &Authorized) {
        let Some(runner) = self.ports.rollouts.release_runner() else { return };
        let ended = async {
            let state = self.journal.load(AppRef::Uid(access.uid)).await?;
            if let Some(revision) = state.and_then(|app| app.state.release_run) {
                runner.cancel(&run(&access.id, access.uid, revision)).await?;
            }
            Ok::<_, Error>(())
        };
        if let Err(error) = ended.await {
            tracing::warn!(app = %access.id, error = %error.chain(), "ending the release command of a deleted app failed");
        }
    }
}

fn run(app: &AppId, uid: AppUid, revision: Revision) -> ReleaseRun {
    ReleaseRun { app: app.clone(), id: DeployId { app: uid, revision } }
}

/// Returns whether the deploy may still come to its release command.
fn may_begin(entry: &Deploy) -> bool {
    !entry.is_terminal() && entry.release.is_none() && entry.status() != Status::RollingOut
}
