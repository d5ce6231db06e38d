//! Logs of release commands.

use std::time::Duration;

use crate::{
    deploy::{Revision, State, Status},
    engine::verifying,
    ledger::releases,
    ports::{AppRef, ReleaseRun, RunKind},
    request::Refusal,
    run::RunNumber,
    service::{Authorized, Deployer, LogPart, Outcome},
};

/// The interval of reads of a growing log.
const POLL: Duration = Duration::from_secs(1);
/// The longest wait for a command's begin without a look at its deploy.
const BEGIN_POLL: Duration = Duration::from_secs(10);

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
        let run = ReleaseRun::new(&access.id, access.uid, revision);
        loop {
            // The entry is read before the log: the log of an ended run is complete by then.
            let (state, entry) = self.recent_entry(access, revision, 0).await?;
            if entry.release.is_none() {
                let may_begin = !entry.is_terminal() && !matches!(entry.state, State::RollingOut { .. });
                // A run that was made ready keeps the command that it began with, whatever the policy has by now.
                let comes = entry.status() == Status::Releasing || releases::command(&state.app, &entry).is_some();
                if !may_begin || !comes {
                    return Err(Refusal::NoReleaseLog(revision));
                }
                if !follow {
                    return Ok(LogPart { bytes: Vec::new(), last: true });
                }
                self.changed(access, revision, entry.step, BEGIN_POLL).await?;
                continue;
            }
            let runs = entry.status() == Status::Releasing;
            let log = runner.log(&run, from).await.map_err(|error| {
                tracing::debug!(app = %access.id, error = %error.chain(), "reading a release command's log failed");
                if error.is_transient() { Refusal::ClusterUnavailable } else { Refusal::NoReleaseLog(revision) }
            })?;
            match log {
                Some(bytes) if !bytes.is_empty() => return Ok(LogPart { bytes, last: false }),
                None if !runs => return Err(Refusal::NoReleaseLog(revision)),
                Some(_) | None if !follow || !runs => return Ok(LogPart { bytes: Vec::new(), last: true }),
                Some(_) | None => {}
            }
            self.ports.clock.sleep(POLL).await;
        }
    }

    /// Ends the commands of an app that is being deleted, as far as some may be running: release commands, those of
    /// checks, and one by hand.
    ///
    /// # Errors
    /// [`Refusal::ClusterUnavailable`] while the platform is away: a command that nobody knows of any more would run on.
    pub(crate) async fn end_commands(&self, access: &Authorized, by_hand: Option<RunNumber>) -> Outcome<()> {
        let Some(runner) = self.ports.rollouts.release_runner() else { return Ok(()) };
        let loaded = self.journal.load(AppRef::Uid(access.uid)).await.map_err(Refusal::of_store)?;
        let (app, uid) = (&access.id, access.uid);
        let state = loaded.map(|app| app.into_state());
        let checks = state.as_ref().map(verifying::runs).unwrap_or_default();
        let releases = state.map(|state| state.release_runs).unwrap_or_default();
        let releases = releases.into_iter().map(|revision| ReleaseRun::new(app, uid, revision));
        let by_hand = by_hand.map(|number| ReleaseRun::by_hand(app, uid, number));
        for run in releases.chain(checks).chain(by_hand) {
            if let Err(error) = runner.cancel(&run).await {
                tracing::warn!(app = %access.id, run = %run.id, error = %error.chain(), "ending a command failed");
                // A check's command has a time of its own, after which it is ended.
                if error.is_transient() && !matches!(run.id.kind, RunKind::Check(_)) {
                    return Err(Refusal::ClusterUnavailable);
                }
            }
        }
        Ok(())
    }
}
