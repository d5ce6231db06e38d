//! Runs by hand: their list, waiting for one to change, and its log.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, select_biased};

use super::queries::POLL;
use crate::{
    ports::ReleaseRun,
    request::Refusal,
    run::{Run, RunNumber},
    service::{Authorized, Deployer, LogPart, Outcome},
};

/// The interval of reads of a growing log.
const LOG_POLL: Duration = Duration::from_secs(1);

impl Deployer {
    /// Returns the app's runs by hand, newest first: the unfinished one, and the last that ended.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`] if the app was deleted; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn runs(&self, access: &Authorized) -> Outcome<Vec<Arc<Run>>> {
        Ok(self.state(access).await?.runs.newest_first().cloned().collect())
    }

    /// Returns a run by hand once it has ended, or as it is when `limit` is over. A dropped wait has no effect.
    ///
    /// # Errors
    /// [`Refusal::RunNotFound`], [`Refusal::AppNotFound`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn wait_for_run(&self, access: &Authorized, number: RunNumber, limit: Duration) -> Outcome<Arc<Run>> {
        let end = self.ports.clock.elapsed() + limit;
        let changes = self.waiters.subscribe(access.uid);
        loop {
            let change = changes.listen();
            let recent = self.journal.recent(access.uid, POLL).await.map_err(Refusal::of_store)?;
            let state = recent.ok_or_else(|| Refusal::AppNotFound(access.id.clone()))?.state;
            let left = end.saturating_sub(self.ports.clock.elapsed());
            match state.runs.find(number) {
                Some(run) if run.is_ended() => return Ok(Arc::clone(run)),
                Some(_) if !left.is_zero() => {}
                // Another process may have accepted it or ended it a moment ago.
                Some(_) | None => {
                    let runs = self.state(access).await?.runs;
                    return runs.find(number).cloned().ok_or(Refusal::RunNotFound(number));
                }
            }
            select_biased! {
                () = change.fuse() => {}
                () = self.ports.clock.sleep(POLL.min(left)).fuse() => {}
            }
        }
    }

    /// Returns a run by hand as it is, or was a moment ago.
    async fn recent_run(&self, access: &Authorized, number: RunNumber) -> Outcome<Arc<Run>> {
        let recent = self.journal.recent(access.uid, POLL).await.map_err(Refusal::of_store)?;
        let known = recent.and_then(|recent| recent.state.runs.find(number).cloned());
        match known {
            Some(run) => Ok(run),
            // Another process may have accepted it a moment ago.
            None => self.state(access).await?.runs.find(number).cloned().ok_or(Refusal::RunNotFound(number)),
        }
    }

    /// Returns a part of a run's log from this byte on. With `follow` it waits for one as long as the run goes on.
    ///
    /// # Errors
    /// [`Refusal::RunNotFound`], [`Refusal::NoRunLog`] if there is no readable log; [`Refusal::StoreUnavailable`] and
    /// [`Refusal::ClusterUnavailable`] while the store or the platform is away.
    pub async fn run_log(&self, access: &Authorized, number: RunNumber, from: u64, follow: bool) -> Outcome<LogPart> {
        let Some(runner) = self.ports.rollouts.release_runner() else { return Err(Refusal::NoRunLog(number)) };
        let id = ReleaseRun::by_hand(&access.id, access.uid, number);
        loop {
            // The run is read before the log: the log of an ended one is complete by then.
            let run = self.recent_run(access, number).await?;
            if run.is_ended() && !run.may_have_begun() {
                return Err(Refusal::NoRunLog(number));
            }
            let log = if run.may_have_begun() {
                runner.log(&id, from).await.map_err(|error| {
                    tracing::debug!(app = %access.id, error = %error.chain(), "reading the log of a command by hand failed");
                    if error.is_transient() { Refusal::ClusterUnavailable } else { Refusal::NoRunLog(number) }
                })?
            } else {
                None
            };
            match log {
                Some(bytes) if !bytes.is_empty() => return Ok(LogPart { bytes, last: false }),
                None if run.is_ended() => return Err(Refusal::NoRunLog(number)),
                Some(_) | None if !follow || run.is_ended() => return Ok(LogPart { bytes: Vec::new(), last: true }),
                Some(_) | None => {}
            }
            self.ports.clock.sleep(LOG_POLL).await;
        }
    }
}
