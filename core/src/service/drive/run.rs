//! Finds apps that have work and no driver, and drives all apps of this replica within one future.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    future::Future,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, Fuse, FusedFuture},
    select_biased,
    stream::FuturesUnordered,
};

use crate::{
    app::AppUid,
    error::Result,
    ledger::AppState,
    ports::{AppChange, Version},
    service::{Deployer, Scope, StartError},
};

/// The time after the last heartbeat after which a replica's leases are free: together with the interval and duration
/// of a search for work, well below the promised 30 s.
pub(crate) const TTL: Duration = Duration::from_secs(15);
/// The interval of heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest interval of searches for work that hints cause.
const HINTED_SEARCH_INTERVAL: Duration = Duration::from_millis(250);
/// The interval of searches that include this replica's own apps: if the store's answer was lost, an app is leased to
/// this replica without its knowledge, and would have no driver.
const OWN_SEARCH_INTERVAL: Duration = Duration::from_secs(5);
/// The most apps that one search returns.
const BATCH: usize = 256;
/// The interval at which [`Deployer::run`] shows that it turns, whatever the store and the apps do.
const PULSE_INTERVAL: Duration = Duration::from_secs(5);
/// The time after which [`Deployer::run`] counts as stuck if it has not turned.
const STUCK_AFTER: Duration = Duration::from_secs(30);
/// The longest pause between two attempts to drive an app whose driver panics; the first is a second.
const PANIC_PAUSE_MAX: Duration = Duration::from_secs(300);
/// The pause of an app whose state cannot be read.
pub(crate) const UNREADABLE_PAUSE: Duration = Duration::from_secs(30);

/// The answer to a search for work: the time of its heartbeat, and the apps that no living replica drives.
struct SearchResult {
    at: Duration,
    free: Vec<AppUid>,
}

/// The state of the future of [`Deployer::run`].
struct Drivers<'a> {
    deployer: &'a Deployer,
    /// Each driver, with the reason why its app's lease could not be taken.
    running: FuturesUnordered<BoxFuture<'a, (AppUid, Option<String>)>>,
    /// The apps whose lease could not be taken, with the reason, which was logged.
    untaken: BTreeMap<AppUid, String>,
    /// The driven apps, and whether a change arrived for them meanwhile.
    apps: BTreeMap<AppUid, bool>,
    /// In [`Scope::OwnCalls`], the apps that this process's calls changed.
    called: BTreeSet<AppUid>,
    search: Fuse<BoxFuture<'a, Result<SearchResult>>>,
    tick: Fuse<BoxFuture<'a, ()>>,
    pulse: Fuse<BoxFuture<'a, ()>>,
    /// The time of the next search; none is scheduled before the first one.
    due: Duration,
    /// The time of the next search that includes this replica's own apps.
    own_due: Duration,
    /// The failure of the last search, which was logged.
    failure: Option<String>,
}

impl Deployer {
    /// Drives deploys until `shutdown` resolves, then releases its leases, so that another replica need not wait for
    /// them to expire.
    ///
    /// Begins once the store is bound to this process's driver ([`Deployer::bind_driver`]).
    ///
    /// Polled by one task, it drives any number of apps: it never blocks, and spawns nothing. If it is dropped in place of
    /// being shut down, nothing is lost: the leases expire after 15 s, and the next process goes on.
    ///
    /// # Errors
    /// [`StartError::OtherDriver`] if the store is another driver's, then or later: nothing of it is driven here.
    pub async fn run(&self, shutdown: impl Future<Output = ()> + Send) -> std::result::Result<(), StartError> {
        let mut shutdown = pin!(shutdown.fuse());
        let mut bound = self.bound().boxed().fuse();
        let mut changes = self.ports.history.watch().fuse();
        let mut drivers = Drivers::new(self);
        let (mut background, mut unbound) = (Fuse::terminated(), Fuse::terminated());
        let mut ending = Fuse::terminated();
        let end = loop {
            self.work_queue.turned(self.ports.clock.elapsed());
            let arrived = self.work_queue.listen();
            if bound.is_terminated() {
                drivers.start_queued();
            }
            select_biased! {
                () = shutdown => break Ok(()),
                reason = unbound => break Err(reason),
                ours = bound => {
                    unbound = self.unbound(ours?).boxed().fuse();
                    drivers.start_search();
                    ending = self.end_runs().boxed().fuse();
                    if self.scope == Scope::Store {
                        background = self.watch_conditions().boxed().fuse();
                    }
                }
                result = &mut drivers.search => drivers.search_ended(result),
                (app, untaken) = drivers.running.select_next_some() => drivers.ended(app, untaken),
                change = changes.select_next_some() => drivers.changed_elsewhere(change),
                () = arrived.fuse() => {}
                () = &mut drivers.tick => drivers.start_search(),
                () = &mut drivers.pulse => drivers.pulse = self.ports.clock.sleep(PULSE_INTERVAL).fuse(),
                _ = background => {}
                () = ending => {}
            }
        };
        drop((drivers, background, ending));
        // What is left ends by itself.
        self.end_runs_once().await;
        self.work_queue.set_alive(None);
        if let Err(error) = self.journal.heartbeat(&self.replica, Duration::ZERO).await {
            tracing::warn!(error = %error.chain(), "releasing the leases failed: they expire");
        }
        end
    }

    /// Returns whether [`Deployer::run`] turns: in the last 30 s it has gone on, whatever the store and the apps did. A
    /// new deployer has as long to begin.
    pub fn is_driving(&self) -> bool {
        self.since_last_turn() < STUCK_AFTER
    }

    /// Returns the time since [`Deployer::run`] turned last; while it is polled, at most a few seconds.
    pub fn since_last_turn(&self) -> Duration {
        self.ports.clock.elapsed().saturating_sub(self.work_queue.turned_at())
    }

    /// Takes an app's lease if no living replica has it, and drives the app. A panic ends this attempt alone: it is
    /// logged, and the app is driven again after a pause, which grows with each panic.
    ///
    /// Returns the reason why the lease could not be taken, if so.
    async fn take_and_drive(&self, app: AppUid, is_leased: bool) -> Option<String> {
        let mut pause = Duration::from_secs(1);
        loop {
            let begun = self.ports.clock.elapsed();
            let panic = match AssertUnwindSafe(self.try_to_drive(app, is_leased)).catch_unwind().await {
                Ok(untaken) => return untaken,
                Err(panic) => panic,
            };
            if self.ports.clock.elapsed().saturating_sub(begun) > PANIC_PAUSE_MAX {
                pause = Duration::from_secs(1);
            }
            let name = self.name_of(app);
            let (panic, pause_s) = (crate::text::escaped(message(&*panic)), pause.as_secs());
            // The panic hook has the place, and a backtrace.
            tracing::error!(app = %name, panic, pause_s, "driving an app panicked, trying again");
            self.ports.clock.sleep(pause).await;
            pause = (pause * 2).min(PANIC_PAUSE_MAX);
        }
    }

    /// Returns an app's name for logs; its uid if this process does not know it.
    pub(crate) fn name_of(&self, app: AppUid) -> String {
        self.journal.remembered(app).map_or_else(|| app.to_string(), |state| state.app.id.to_string())
    }

    async fn try_to_drive(&self, app: AppUid, is_leased: bool) -> Option<String> {
        match if is_leased { Ok(true) } else { self.take_lease(app).await } {
            Ok(true) => self.drive(app).await,
            Ok(false) => {
                let state = self.journal.remembered(app);
                let lacks_builder = state.is_some_and(|state| self.lacks_builder()(&state));
                return lacks_builder.then(|| "its work needs a builder, and this process has none".to_owned());
            }
            // A later search finds the app again, as this replica's if the lease was taken all the same.
            Err(error) => {
                if !error.is_transient() {
                    self.ports.clock.sleep(UNREADABLE_PAUSE).await;
                }
                return Some(error.chain());
            }
        }
        None
    }

    /// Returns the apps that no living replica drives, and up to `own` apps of this replica; in [`Scope::OwnCalls`],
    /// the `called` ones.
    async fn search_for_work(&self, own: Option<usize>, called: Vec<AppUid>) -> Result<SearchResult> {
        let at = self.ports.clock.elapsed();
        let mut alive = self.journal.heartbeat(&self.replica, TTL).await?.alive;
        if own.is_some() {
            alive.retain(|replica| *replica != self.replica);
        }
        let free = match self.scope {
            Scope::Store => self.ports.history.work(&alive, BATCH + own.unwrap_or(0)).await?,
            Scope::OwnCalls => called,
        };
        Ok(SearchResult { at, free })
    }
}

impl<'a> Drivers<'a> {
    fn new(deployer: &'a Deployer) -> Self {
        Self {
            deployer,
            running: FuturesUnordered::new(),
            untaken: BTreeMap::new(),
            apps: BTreeMap::new(),
            called: BTreeSet::new(),
            search: Fuse::terminated(),
            tick: Fuse::terminated(),
            pulse: std::future::ready(()).boxed().fuse(),
            // Before the first search, no hint causes one.
            due: Duration::ZERO,
            own_due: Duration::ZERO,
            failure: None,
        }
    }

    /// Drives an app if its lease is or can be this replica's.
    fn start(&mut self, app: AppUid) {
        if let Some(again) = self.apps.get_mut(&app) {
            *again = true;
            return;
        }
        let deployer = self.deployer;
        self.apps.insert(app, false);
        let leased = deployer.journal.remembered(app).is_some_and(|state| state.is_leased_to(&deployer.replica));
        self.running.push(Box::pin(async move { (app, deployer.take_and_drive(app, leased).await) }));
    }

    /// Starts drivers for apps that were changed here: their lease was given to this replica, or another one drives
    /// them.
    fn start_queued(&mut self) {
        for app in self.deployer.work_queue.take() {
            if self.deployer.scope == Scope::OwnCalls {
                self.called.insert(app);
            }
            self.start(app);
        }
    }

    fn ended(&mut self, app: AppUid, untaken: Option<String>) {
        let logged = self.untaken.remove(&app);
        if let Some(error) = untaken {
            if logged.as_ref() != Some(&error) {
                tracing::warn!(app = %self.deployer.name_of(app), error, "taking an app's lease failed, trying again");
            }
            self.untaken.insert(app, error);
        }
        self.deployer.conditions.put(app);
        let idle = |state: Arc<AppState>| state.queued_at.is_none();
        // A change that arrived meanwhile was committed by this process, which remembers it.
        if self.apps.remove(&app) == Some(true) && !self.deployer.journal.remembered(app).is_some_and(idle) {
            self.start(app);
        }
    }

    fn changed_elsewhere(&mut self, change: AppChange) {
        if self.deployer.journal.is_known(&change) {
            return;
        }
        match change {
            AppChange::App(app, version) => {
                self.deployer.waiters.notify(app);
                self.deployer.drivers.notify(app);
                match version {
                    Version::REMOVED => {
                        self.deployer.journal.removed(app);
                        self.deployer.forget_condition(app);
                    }
                    _ => self.deployer.conditions.put_new(app),
                }
            }
            AppChange::Any => {
                self.deployer.waiters.notify_all();
                self.deployer.drivers.notify_all();
            }
        }
        self.search_within(HINTED_SEARCH_INTERVAL);
    }

    fn start_search(&mut self) {
        let now = self.deployer.ports.clock.elapsed();
        let own = (now >= self.own_due).then_some(self.apps.len());
        if own.is_some() {
            self.own_due = now + OWN_SEARCH_INTERVAL;
        }
        let called = self.called.iter().copied().collect();
        self.search = self.deployer.search_for_work(own, called).boxed().fuse();
        self.tick = Fuse::terminated();
        self.due = Duration::MAX;
    }

    /// Schedules the next search no later than in this time.
    fn search_within(&mut self, wait: Duration) {
        let due = self.deployer.ports.clock.elapsed() + wait;
        if !self.search.is_terminated() {
            self.due = self.due.min(due);
        } else if due < self.due {
            self.schedule(due);
        }
    }

    fn schedule(&mut self, due: Duration) {
        self.due = due;
        let clock = &self.deployer.ports.clock;
        self.tick = clock.sleep(due.saturating_sub(clock.elapsed())).fuse();
    }

    fn search_ended(&mut self, result: Result<SearchResult>) {
        self.search = Fuse::terminated();
        match result {
            Ok(SearchResult { at, free }) => {
                self.failure = None;
                self.deployer.work_queue.set_alive(Some(at));
                for app in free {
                    if !self.apps.contains_key(&app) {
                        self.start(app);
                    }
                }
            }
            Err(error) => {
                let failure = error.chain();
                if self.failure.as_ref() != Some(&failure) {
                    tracing::warn!(error = failure, "searching for work failed, trying again each second");
                }
                self.failure = Some(failure);
            }
        }
        let now = self.deployer.ports.clock.elapsed();
        // The search may have missed the change that a hint reported meanwhile.
        self.schedule(self.due.max(now).min(now + HEARTBEAT_INTERVAL));
    }
}

/// Returns a panic's message.
fn message(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}
