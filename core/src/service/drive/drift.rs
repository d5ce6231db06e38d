//! Drift of apps at rest: what runs instead of the current deploy, because others changed the target. It is told, and
//! nothing is changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    future,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use event_listener::{Event, EventListener};
use futures_util::{FutureExt, StreamExt, select_biased};

use crate::{
    app::{App, AppUid},
    engine,
    error::Result,
    ledger::AppState,
    ports::Drift,
    service::Deployer,
};

/// The greatest age of a known state that a target is compared with.
const RECENT: Duration = Duration::from_secs(1);
/// The interval at which apps are looked at for the first time: the start of a process that drives thousands of apps
/// does not flood the cluster.
const FIRST_LOOKS: Duration = Duration::from_millis(250);

/// The known drift, and the apps to be looked at.
#[derive(Default)]
pub(crate) struct Drifts {
    state: Mutex<Known>,
    arrived: Event,
    /// Wakes the follower of observations, if there is one.
    observed: Event,
}

#[derive(Default)]
struct Known {
    /// Whether the rollout driver tells drift, and this process looks for it.
    watching: bool,
    due: BTreeSet<AppUid>,
    /// The apps that were looked at.
    apps: BTreeMap<AppUid, Option<Drift>>,
    /// The apps that were looked at since the follower last took them; `None` without a follower.
    unseen: Option<BTreeSet<AppUid>>,
}

impl Drifts {
    /// Has an app looked at, if this process looks for drift.
    pub(crate) fn put(&self, app: AppUid) {
        let mut known = self.lock();
        if known.watching {
            known.due.insert(app);
            drop(known);
            self.arrived.notify(usize::MAX);
        }
    }

    /// Has an app looked at that was not looked at before.
    pub(crate) fn put_new(&self, app: AppUid) {
        if !self.is_known(app) {
            self.put(app);
        }
    }

    fn is_known(&self, app: AppUid) -> bool {
        self.lock().apps.contains_key(&app)
    }

    fn listen(&self) -> EventListener {
        self.arrived.listen()
    }

    fn note_observation(&self, app: AppUid) {
        if let Some(unseen) = &mut self.lock().unseen {
            unseen.insert(app);
            self.observed.notify(usize::MAX);
        }
    }

    fn take(&self) -> BTreeSet<AppUid> {
        std::mem::take(&mut self.lock().due)
    }

    /// Notes an app's drift, and logs it if that is news.
    fn note(&self, app: &App, drift: Option<&Drift>) {
        let before = self.lock().apps.insert(app.uid, drift.cloned()).flatten();
        match (before, drift) {
            (before, Some(drift)) if before.as_ref() != Some(drift) => {
                let image = drift.image.as_ref().map(ToString::to_string);
                tracing::warn!(app = %app.id, image, detail = drift.message, "found drift: another party changed the target");
            }
            (Some(_), None) => {
                tracing::info!(app = %app.id, "drift ended: the target is as its current deploy left it")
            }
            (_, Some(_)) | (None, None) => {}
        }
    }

    /// An app is being deployed: what others changed before is overwritten.
    fn set_aside(&self, app: AppUid) {
        self.lock().apps.insert(app, None);
    }

    pub(crate) fn forget(&self, app: AppUid) {
        self.lock().apps.remove(&app);
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deployer {
    /// Returns what runs instead of an app's current deploy, as the rollout driver tells it now. An app that is being
    /// deployed has no drift, and one whose newest deploy on the cluster failed is shown as such, unless that deploy ended
    /// by the change of another party, which then is its drift.
    pub async fn drift(&self, state: &AppState) -> Option<Drift> {
        self.look(state).await.unwrap_or_else(|error| {
            tracing::debug!(app = %state.app.id, error = %error.chain(), "looking for drift failed");
            self.known_drift(state)
        })
    }

    /// Returns the drift that is known of an app without asking for it: of each app while [`Deployer::run`] is polled,
    /// as far as the rollout driver tells of changes.
    pub fn known_drift(&self, state: &AppState) -> Option<Drift> {
        engine::at_rest(state)?;
        self.drifts.lock().apps.get(&state.app.uid).cloned().flatten()
    }

    /// Returns an app's drift as it was last observed; `None` if it was not, or is being deployed.
    pub fn observed_drift(&self, state: &AppState) -> Option<Option<Drift>> {
        engine::at_rest(state)?;
        self.drifts.lock().apps.get(&state.app.uid).cloned()
    }

    /// Returns the apps whose drift was observed since the last call, for one follower, which calls again once
    /// [`Deployer::drift_observed`] resolves. The first call begins to note them.
    pub fn take_observed_drifts(&self) -> BTreeSet<AppUid> {
        self.drifts.lock().unseen.replace(BTreeSet::new()).unwrap_or_default()
    }

    /// Ends the noting that [`Deployer::take_observed_drifts`] began.
    pub fn forget_observed_drifts(&self) {
        self.drifts.lock().unseen = None;
    }

    /// Resolves at the next observation of a drift after this call.
    pub fn drift_observed(&self) -> impl Future<Output = ()> + Send + use<> {
        self.drifts.observed.listen()
    }

    /// Returns the number of apps with known drift.
    pub fn drifted_apps(&self) -> usize {
        self.drifts.lock().apps.values().flatten().count()
    }

    /// Looks at each app once, a few in a second, and again when the rollout driver tells of a change, or a deploy
    /// ended here. Never returns.
    pub(crate) async fn watch_drift(&self) {
        let Some(reader) = self.ports.rollouts.drift_reader() else { return future::pending().await };
        let mut changes = reader.drift_changes().fuse();
        self.drifts.lock().watching = true;
        let mut first_looks = self.look_at_all().boxed().fuse();
        loop {
            let arrived = self.drifts.listen();
            for app in self.drifts.take() {
                guarded(self.look_at(app)).await;
            }
            select_biased! {
                app = changes.select_next_some() => self.drifts.put(app),
                () = arrived.fuse() => {}
                () = first_looks => {}
            }
        }
    }

    /// Looks at each app that was not looked at before.
    async fn look_at_all(&self) {
        let mut pages = pin!(self.all_apps());
        while let Some(apps) = pages.next().await {
            let uids: Vec<AppUid> = apps.into_iter().flatten().map(|state| state.app.uid).collect();
            for app in uids.into_iter().filter(|app| !self.drifts.is_known(*app)) {
                guarded(self.look_at(app)).await;
                self.ports.clock.sleep(FIRST_LOOKS).await;
            }
        }
    }

    async fn look_at(&self, app: AppUid) {
        match self.journal.recent(app, RECENT).await {
            Ok(Some(snapshot)) => drop(self.drift(&snapshot.state).await),
            Ok(None) => self.drifts.forget(app),
            // Its deploys, if any, look at it again.
            Err(error) => {
                tracing::debug!(app = %self.name_of(app), error = %error.chain(), "reading an app to look for drift failed")
            }
        }
    }

    async fn look(&self, state: &AppState) -> Result<Option<Drift>> {
        let Some(spec) = engine::at_rest(state) else {
            self.drifts.set_aside(state.app.uid);
            return Ok(None);
        };
        // Another driver would look at another cluster.
        if self.bound_to.get().is_none() {
            return Ok(None);
        }
        let drift = match self.ports.rollouts.drift_reader() {
            Some(reader) => reader.drift(&spec).await?,
            None => None,
        };
        self.drifts.note(&state.app, drift.as_ref());
        self.drifts.note_observation(state.app.uid);
        Ok(drift)
    }
}

/// Looks at one app; a panic, which its hook has logged, ends that look alone.
async fn guarded<T>(look: impl Future<Output = T>) {
    if AssertUnwindSafe(look).catch_unwind().await.is_err() {
        tracing::error!("looking for the drift of an app panicked");
    }
}
