//! Apps at rest: what runs instead of the current deploy, because others changed the target; whether the instances run
//! well; and which deploy recovers that had failed. All of it is shown, and the target is left as it is.

mod known;
mod next_looks;
mod turns;

use std::{collections::BTreeSet, future, panic::AssertUnwindSafe, pin::pin, time::Duration};

use futures_util::{FutureExt, StreamExt, future::Fuse, select_biased, stream::FuturesUnordered};

pub(crate) use known::KnownConditions;
use turns::Turns;

use crate::{
    app::{AppUid, Namespace},
    deploy::Revision,
    engine::{self, health::Degraded},
    error::Result,
    image::ImageRef,
    ledger::AppState,
    ports::{AtRest, Drift, References, WorkloadState},
    service::{
        Deployer,
        journal::{Decision, Snapshot},
    },
};

/// The greatest age of a known state that a target is compared with.
const RECENT: Duration = Duration::from_secs(1);
/// The interval at which apps are looked at for the first time: the start of a process that drives thousands of apps
/// does not flood the cluster.
const FIRST_LOOKS: Duration = Duration::from_millis(250);

/// The condition of an app at rest, as far as it is out of the ordinary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// The image that the target is set to, as it stands there, where the rollout driver knows it.
    pub image: Option<ImageRef>,
    /// The change of the target by another party since the current deploy.
    pub drift: Option<Drift>,
    /// The trouble of what runs. It is not shown beside a drift, with which what runs is not the deploy's, nor of a deploy
    /// that has failed, which tells of it.
    pub degraded: Option<Degraded>,
    /// Whether what runs has run well for long enough to be believed. A process that has just begun to look knows neither this
    /// nor a trouble.
    pub is_proven: bool,
    /// The workloads of a target that has several, each with its own state; empty for a target that has one.
    pub workloads: Vec<WorkloadState>,
    /// What has become of what the instances read of others, such as Secrets and ConfigMaps, since the deploy on the target began.
    pub references: References,
}

impl Deployer {
    /// Returns an app's condition, as the rollout driver reports it now, or reported it half a second ago: calls of the same
    /// time share one look at the target. An app that is being deployed has none.
    pub async fn condition(&self, state: &AppState) -> Condition {
        match self.look(state).await {
            Ok(condition) => condition,
            Err(error) => {
                tracing::debug!(app = %state.app.id, error = %error.chain(), "reading a target at rest failed");
                self.known_condition(state)
            }
        }
    }

    /// Returns the condition that is known of an app without asking for it: of each app while [`Deployer::run`] is polled,
    /// as far as the rollout driver reports changes.
    pub fn known_condition(&self, state: &AppState) -> Condition {
        self.observed_condition(state).unwrap_or_default()
    }

    /// Returns an app's condition as it was last observed; `None` if it was not, or is being deployed.
    pub fn observed_condition(&self, state: &AppState) -> Option<Condition> {
        engine::at_rest(state)?;
        self.conditions.of(state.app.uid)
    }

    /// Returns the apps whose condition was observed since the last call, for one follower, which calls again once
    /// [`Deployer::condition_observed`] resolves. The first call begins to note them.
    pub fn take_observed_conditions(&self) -> BTreeSet<AppUid> {
        self.conditions.take_observed()
    }

    /// Ends the noting that [`Deployer::take_observed_conditions`] began.
    pub fn forget_observed_conditions(&self) {
        self.conditions.forget_observed();
    }

    /// Resolves at the next observation of a condition after this call.
    pub fn condition_observed(&self) -> impl Future<Output = ()> + Send + use<> {
        self.conditions.observed()
    }

    /// Returns the number of apps with known drift.
    pub fn drifted_apps(&self) -> usize {
        self.conditions.count(|condition| condition.drift.is_some())
    }

    /// Returns the number of apps that are known to be degraded.
    pub fn degraded_apps(&self) -> usize {
        self.conditions.count(|condition| condition.degraded.is_some())
    }

    /// Looks at each app once, a few in a second, and again when the rollout driver reports a change, a deploy ended
    /// here, or the last look left something open. Never returns.
    pub(crate) async fn watch_conditions(&self) {
        let Some(reader) = self.ports.rollouts.target_reader() else { return future::pending().await };
        let clock = &self.ports.clock;
        let mut changes = reader.target_changes().fuse();
        self.conditions.begin();
        let mut first_looks = self.look_at_all().boxed().fuse();
        let mut turns = Turns::default();
        let mut looks = FuturesUnordered::new();
        let mut places = FuturesUnordered::new();
        loop {
            let arrived = self.conditions.listen();
            for app in self.conditions.take_due(clock.elapsed()) {
                match self.journal.remembered(app) {
                    Some(state) => turns.add(app, state.app.id.namespace.clone()),
                    None => turns.add_unplaced(app),
                }
            }
            if places.is_empty()
                && let Some(app) = turns.next_unplaced()
            {
                places.push(async move { (app, self.guarded(app, self.environment_of(app)).await.flatten()) });
            }
            while let Some((app, environment)) = turns.next() {
                looks.push(async move {
                    self.guarded(app, self.look_at(app)).await;
                    (app, environment)
                });
            }
            let wait = |at: Duration| clock.sleep(at.saturating_sub(clock.elapsed())).fuse();
            let mut due = self.conditions.next_due().map_or_else(Fuse::terminated, wait);
            select_biased! {
                (app, environment) = looks.select_next_some() => {
                    turns.ended(&environment);
                    self.conditions.turn_ended(app);
                }
                (app, environment) = places.select_next_some() => {
                    match environment {
                        Some(environment) => turns.add(app, environment),
                        None => self.conditions.turn_ended(app),
                    }
                }
                app = changes.select_next_some() => self.conditions.put_changed(app),
                () = arrived.fuse() => {}
                () = due => {}
                () = first_looks => {}
            }
        }
    }

    /// Has each app looked at that was not looked at before.
    async fn look_at_all(&self) {
        let mut pages = pin!(self.all_apps());
        while let Some(apps) = pages.next().await {
            let uids: Vec<AppUid> = apps.into_iter().flatten().map(|state| state.app.uid).collect();
            for app in uids.into_iter().filter(|app| !self.conditions.is_known(*app)) {
                self.conditions.put_new(app);
                self.ports.clock.sleep(FIRST_LOOKS).await;
            }
        }
    }

    async fn look_at(&self, app: AppUid) {
        if let Some(snapshot) = self.read_to_look(app).await {
            drop(self.condition(&snapshot.state).await);
        }
    }

    /// Forgets the condition of an app that is gone.
    pub(crate) fn forget_condition(&self, app: AppUid) {
        self.conditions.forget(app, self.ports.clock.elapsed());
        self.forget_targets(app);
    }

    /// Has the rollout driver drop what it remembers of an app's targets.
    pub(crate) fn forget_targets(&self, app: AppUid) {
        if let Some(reader) = self.ports.rollouts.target_reader() {
            reader.forget_targets(app);
        }
    }

    /// Returns the namespace that stands for the app's environment; `None` if there is no such app, or it cannot be read.
    async fn environment_of(&self, app: AppUid) -> Option<Namespace> {
        self.read_to_look(app).await.map(|snapshot| snapshot.state.app.id.namespace.clone())
    }

    async fn read_to_look(&self, app: AppUid) -> Option<Snapshot> {
        match self.journal.recent(app, RECENT).await {
            Ok(Some(snapshot)) => Some(snapshot),
            Ok(None) => {
                self.forget_condition(app);
                None
            }
            Err(error) => {
                self.conditions.put_later(app, self.ports.clock.elapsed());
                tracing::debug!(app = %self.name_of(app), error = %error.chain(), "reading an app to look at its target failed");
                None
            }
        }
    }

    /// Completes with `None` if a step of a look panics, which its hook has logged: the app is looked at again later.
    async fn guarded<T>(&self, app: AppUid, step: impl Future<Output = T>) -> Option<T> {
        let answer = AssertUnwindSafe(step).catch_unwind().await;
        if answer.is_err() {
            tracing::error!(app = %self.name_of(app), "looking at the target of an app panicked");
            self.conditions.note_failure(app, self.ports.clock.elapsed());
        }
        answer.ok()
    }

    async fn look(&self, state: &AppState) -> Result<Condition> {
        let app = state.app.uid;
        let Some(spec) = engine::at_rest(state) else {
            let is_under_way = state.on_cluster().is_some() || !state.unfinished.is_empty();
            self.conditions.set_aside(app, is_under_way, self.ports.clock.elapsed());
            return Ok(Condition::default());
        };
        // Another driver would look at another cluster.
        if self.bound_to.get().is_none() {
            return Ok(Condition::default());
        }
        let Some(reader) = self.ports.rollouts.target_reader() else { return Ok(Condition::default()) };
        let has_failed = state.unrecovered().is_some_and(|ended| ended.revision == spec.id.revision);
        let lock = self.conditions.lock_of(app);
        let _locked = lock.lock().await;
        if let Some(condition) = self.conditions.recent(app, (&spec, has_failed), self.ports.clock.elapsed()) {
            return Ok(condition);
        }
        if self.conditions.has_moved(app, &spec.target) {
            reader.forget_targets(app);
        }
        let found = reader.at_rest(&spec).await.map(AtRest::bounded);
        let mut found = found.inspect_err(|_| self.conditions.note_failure(app, self.ports.clock.elapsed()))?;
        found.drift = found.drift.filter(|_| state.on_cluster().is_some_and(|deploy| engine::may_drift(deploy)));
        let now = (self.ports.clock.elapsed(), self.time());
        let is_its_own = found.is_of(&spec);
        let condition = self.conditions.note(&state.app, (&spec, has_failed), found, now);
        if condition.is_proven && has_failed && is_its_own {
            self.recover(state, spec.id.revision).await;
        }
        Ok(condition)
    }

    /// Records the recovery of a deploy, for all processes once.
    async fn recover(&self, state: &AppState, revision: Revision) {
        let (app, name) = (state.app.uid, &state.app.id);
        let recorded = self.journal.update(app, None, move |change, _, now| match change.recover(revision, now) {
            true => Decision::Commit(true),
            false => Decision::Answer(false),
        });
        match recorded.await {
            Ok((true, _)) => {
                tracing::info!(app = %name, %revision, "a deploy that had failed has recovered: its instances run");
                self.waiters.notify(app);
            }
            Ok((false, _)) => {}
            Err(error) => {
                tracing::debug!(app = %name, error = %error.chain(), "recording a recovery failed");
                self.conditions.put_later(app, self.ports.clock.elapsed());
            }
        }
    }
}
