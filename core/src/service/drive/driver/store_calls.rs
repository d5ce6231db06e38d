//! The driver's calls to the store: loads and commits, repeated as long as the store is away.

use super::{Driver, Next, RECENT, StoreCall};
use crate::{
    deploy::{Actor, Deploy, Status, Trigger},
    engine::{
        Event,
        polling::{Detected, Finding, PollSource},
        retry,
    },
    error::Error,
    ledger::{
        Admission, AppState, Built, Change, ExpectedLatest, NewDeploy, Record, Refused,
        restore::{self, Owed},
        rollback,
    },
    ports::AppRef,
    request::Cause,
    service::{
        Deployer,
        drive::{log, run::UNREADABLE_PAUSE},
        journal::{Decision, Snapshot},
    },
    time::Timestamp,
};

impl Driver<'_> {
    /// Loads the app as this process has just committed it, or as it is stored.
    pub(super) async fn first_load(&mut self) -> Option<AppState> {
        match self.deployer.journal.recent(self.app, RECENT).await {
            Ok(Some(app)) if self.may_drive(&app.state) => {
                self.read(&app);
                Some(app.into_state())
            }
            Ok(_) | Err(_) => self.load().await,
        }
    }

    /// Returns the state with the hints that this process has had, and did not store as nobody vouches for them.
    fn hinted(&self, state: AppState) -> AppState {
        let unproven = self.deployer.poll_results.hinted_at(self.app);
        AppState { hinted_at: state.hinted_at.max(unproven), ..state }
    }

    fn may_drive(&self, state: &AppState) -> bool {
        state.is_leased_to(&self.deployer.replica) && !self.deployer.lacks_builder()(state)
    }

    fn read(&mut self, app: &Snapshot) {
        self.read_at = (app.state.time(app.now), self.deployer.ports.clock.elapsed());
        self.name = app.state.app.id.to_string();
    }

    /// Loads the app, retrying as long as the store is away. Returns `None` if the app is deleted, not leased to this
    /// replica, or left to one that has a builder.
    pub(super) async fn load(&mut self) -> Option<AppState> {
        loop {
            match self.deployer.journal.load(AppRef::Uid(self.app)).await {
                Ok(Some(app)) => {
                    self.failures = 0;
                    self.store_failure.take_if(|(call, _)| *call == StoreCall::Load);
                    let was = self.time();
                    self.read(&app);
                    self.loads.push((was, self.read_at.0));
                    self.log_unconfirmed(&app.state).await;
                    if self.may_drive(&app.state) {
                        return Some(self.hinted(app.into_state()));
                    }
                    if self.deployer.lacks_builder()(&app.state)
                        && let Err(error) = self.deployer.leave(self.app).await
                    {
                        tracing::warn!(app = %self.name, error = %error.chain(), "releasing an app's lease failed");
                    }
                    return None;
                }
                Ok(None) => {
                    // The deletion has cancelled the app's builds, except one that was about to begin here.
                    self.deployer.end_builds(self.app).await;
                    self.deployer.forget_builds(self.app).await;
                    // The same holds for commands of checks.
                    std::mem::take(&mut self.check_runs).into_iter().for_each(|run| self.deployer.ending_runs.put(run));
                    return None;
                }
                Err(error) if error.is_transient() => self.pause(StoreCall::Load, &error).await,
                Err(error) => {
                    tracing::error!(app = %self.name, error = %error.chain(), "reading an app's state failed");
                    self.deployer.ports.clock.sleep(UNREADABLE_PAUSE).await;
                    return None;
                }
            }
        }
    }

    /// Logs the failures that were stored although the answer to their record was lost.
    async fn log_unconfirmed(&mut self, state: &AppState) {
        for deploy in std::mem::take(&mut self.unconfirmed) {
            if state.unfinished(deploy.revision).is_some() {
                continue;
            }
            match self.deployer.ports.history.archived(self.app, deploy.revision).await {
                Ok(Some(archived)) if archived.id == deploy.id && archived.state == deploy.state => {
                    log::recorded(&self.name, &deploy);
                }
                // Another replica has ended it, and logs it.
                Ok(_) => {}
                Err(_) => self.unconfirmed.push(deploy),
            }
        }
    }

    /// Pauses after a failed call; the failure is logged once until such a call succeeds.
    pub(super) async fn pause(&mut self, call: StoreCall, error: &Error) {
        let failure = Some((call, error.chain()));
        if failure != self.store_failure {
            tracing::warn!(app = %self.name, error = %error.chain(), "calling the store failed, trying again");
            self.store_failure = failure;
        }
        self.deployer.ports.clock.sleep(retry::backoff(self.failures)).await;
        self.failures = self.failures.saturating_add(1);
    }

    pub(super) async fn record(&mut self, record: Record) -> Next {
        let (recorded, run) = (record.changes.clone(), record.run.clone());
        // A failure is logged also if the answer of this commit is lost.
        self.unconfirmed = recorded.iter().filter(|deploy| deploy.status() == Status::Failed).cloned().collect();
        let record = Record { driver: Some(self.deployer.replica.clone()), ..record };
        let make = move |change: &mut Change, now| change.record(record.clone(), now);
        let log = |driver: &mut Self, ()| {
            driver.unconfirmed.clear();
            recorded.iter().for_each(|deploy| log::recorded(&driver.name, deploy));
            run.iter().for_each(|run| log::run_recorded(&driver.name, run));
        };
        self.commit(make, log).await
    }

    /// Records the image of a build that ended well.
    pub(super) async fn record_built(&mut self, deploy: Deploy) -> Next {
        let (driver, id, revision) = (self.deployer.replica.clone(), self.deployer.admission_id(), deploy.revision);
        let built = Built { driver, deploy, id };
        let make = move |change: &mut Change, now| change.built(built.clone(), now);
        self.commit(make, |driver, anew| log::built(&driver.name, revision, anew)).await
    }

    /// Commits a change of the app's deploys, and logs its answer.
    async fn commit<T: Send + 'static>(
        &mut self,
        mut make: impl FnMut(&mut Change, Timestamp) -> Result<T, Refused> + Send + 'static,
        log: impl FnOnce(&mut Self, T),
    ) -> Next {
        let update = self.deployer.journal.update(self.app, None, move |change, _, now| match make(change, now) {
            Ok(answer) => Decision::Commit(Ok(answer)),
            Err(Refused::NextCommit) => Decision::NextCommit,
            Err(refused) => Decision::Answer(Err(refused)),
        });
        match update.await {
            Ok((Ok(answer), app)) => {
                self.store_failure = None;
                log(self, answer);
                self.deployer.waiters.notify(self.app);
                self.deployer.retain(&app.state).await;
                self.discard_images(&app.state).await;
                Next::step(Event::Recorded(Box::new(app.into_state())))
            }
            Ok((Err(Refused::NotLeased), _)) | Err(Error::NotFound(_)) => Next::Stop,
            Ok((Err(Refused::Outdated | Refused::NextCommit), _)) => Next::Reload,
            Err(error) => {
                self.pause(StoreCall::Write, &error).await;
                Next::Reload
            }
        }
    }

    /// Accepts a branch's head if it is new.
    pub(super) async fn detect(&mut self, finding: &Finding, source: Option<PollSource>) -> Next {
        let detected = match self.deployer.detect(self.app, finding, source, self.time()).await {
            Ok(detected) => detected,
            Err(Error::NotFound(_)) => return Next::Stop,
            Err(error) => {
                self.pause(StoreCall::Write, &error).await;
                Detected::Postponed
            }
        };
        Next::step(Event::Detected(detected, self.random()))
    }

    /// Accepts a restore if it is still owed and no newer deploy was accepted; then the app is loaded again.
    pub(super) async fn restore(&mut self, app_state: &AppState, current: &Deploy) -> Next {
        let cause = Cause { trigger: Trigger::Rollback, actor: Actor::Service };
        let Ok(deploy) = rollback::deploy(app_state, current, &cause) else { return Next::Stop };
        // The trace of the failed deploy shows how it was put right.
        let deploy = NewDeploy { trace: app_state.on_cluster().and_then(|failed| failed.trace.clone()), ..deploy };
        if app_state.owes_watch_restore() && Box::pin(was_changed_by_another(self.deployer, app_state)).await {
            let withhold = self.commit(|change, now| Ok(change.withhold_watch_restore(now)), |_, _| ());
            return Box::pin(withhold).await;
        }
        let (expected, revision) = (ExpectedLatest::Exactly(app_state.latest), current.revision);
        let (id, replica) = (self.deployer.admission_id(), self.deployer.replica.clone());
        let restored = self.deployer.journal.update(self.app, None, move |change, lookup, now| {
            let owed = matches!(restore::owed(&change.state), Owed::Restore(owed) if owed.revision == revision);
            if !owed || !change.state.is_leased_to(&replica) {
                return Decision::Answer(());
            }
            let admission = Admission { expected, ..Admission::plain(id, deploy.clone()) };
            Decision::of(change.admit(admission, lookup, now)).map(drop)
        });
        match restored.await {
            Ok(_) => self.deployer.waiters.notify(self.app),
            Err(error) => self.pause(StoreCall::Write, &error).await,
        }
        Next::Reload
    }
}

/// Returns whether another party has changed what runs since its deploy succeeded, as far as the platform can be reached: such
/// as a person, by a hotfix.
async fn was_changed_by_another(deployer: &Deployer, app_state: &AppState) -> bool {
    let mut at_rest = Change::on(app_state.clone());
    at_rest.withhold_watch_restore(app_state.updated_at);
    deployer.condition(&at_rest.state).await.drift.is_some()
}
