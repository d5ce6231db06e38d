//! Finds apps that have work and no driver, and drives all of this replica's within one future.

use std::{collections::BTreeMap, future::Future, pin::pin, sync::Arc, time::Duration};

use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, Fuse, FusedFuture},
    select_biased,
    stream::FuturesUnordered,
};

use super::Deployer;
use crate::{app::AppUid, error::Result, ledger::AppState, ports::AppChange};

/// A replica without a heartbeat for this long is taken over: with the time between two heartbeats and one look's own
/// time well below the promised 30 s.
pub(super) const TTL: Duration = Duration::from_secs(15);
/// Between two heartbeats.
const EVERY: Duration = Duration::from_secs(1);
/// Between two looks for work that hints have asked for.
const HINTED: Duration = Duration::from_millis(250);
/// Between two looks that find this replica's own apps as well: one that it does not know to be its own, since the
/// store's answer was lost, would have no driver.
const OWN: Duration = Duration::from_secs(5);
/// How many apps one look may take.
const BATCH: usize = 256;

/// The answer to one look for work: when its heartbeat was sent, and the apps that no living replica drives.
struct Look {
    at: Duration,
    free: Vec<AppUid>,
}

/// The state of the future of [`Deployer::run`].
struct Drivers<'a> {
    deployer: &'a Deployer,
    running: FuturesUnordered<BoxFuture<'a, AppUid>>,
    /// The apps that are driven, and whether something arrived for them meanwhile.
    apps: BTreeMap<AppUid, bool>,
    looking: Fuse<BoxFuture<'a, Result<Look>>>,
    tick: Fuse<BoxFuture<'a, ()>>,
    /// When the next look may start.
    due: Duration,
    /// When the next look finds this replica's own apps as well.
    own_due: Duration,
}

impl Deployer {
    /// Drives deploys until `shutdown` resolves, then releases its leases, so that another replica need not wait for
    /// them to expire.
    ///
    /// Polled by one task, it drives any number of apps: it never blocks, and spawns nothing.
    pub async fn run(&self, shutdown: impl Future<Output = ()> + Send) {
        let mut shutdown = pin!(shutdown.fuse());
        let mut changes = self.ports.history.watch().fuse();
        let mut drivers = Drivers::new(self);
        loop {
            let arrived = self.work_queue.listen();
            drivers.take_in();
            select_biased! {
                () = shutdown => break,
                look = &mut drivers.looking => drivers.looked(look),
                app = drivers.running.select_next_some() => drivers.ended(app),
                change = changes.select_next_some() => drivers.hinted(change),
                () = arrived.fuse() => {}
                () = &mut drivers.tick => drivers.look(),
            }
        }
        drop(drivers);
        self.work_queue.set_alive(None);
        if let Err(error) = self.journal.heartbeat(&self.replica, Duration::ZERO).await {
            tracing::warn!(error = %error.chain(), "releasing the leases failed: they expire");
        }
    }

    /// The apps that no living replica drives, and with a number of own ones those that this replica does.
    async fn look_for_work(&self, own: Option<usize>) -> Result<Look> {
        let at = self.ports.clock.elapsed();
        let mut alive = self.journal.heartbeat(&self.replica, TTL).await?.alive;
        if own.is_some() {
            alive.retain(|replica| *replica != self.replica);
        }
        let free = self.ports.history.work(&alive, BATCH + own.unwrap_or(0)).await?;
        Ok(Look { at, free })
    }
}

impl<'a> Drivers<'a> {
    fn new(deployer: &'a Deployer) -> Self {
        Self {
            deployer,
            running: FuturesUnordered::new(),
            apps: BTreeMap::new(),
            looking: Fuse::terminated(),
            tick: std::future::ready(()).boxed().fuse(),
            due: Duration::ZERO,
            own_due: Duration::ZERO,
        }
    }

    /// Drives an app, if its lease is or can be this replica's.
    fn start(&mut self, app: AppUid) {
        if let Some(again) = self.apps.get_mut(&app) {
            *again = true;
            return;
        }
        let deployer = self.deployer;
        self.apps.insert(app, false);
        let leased = deployer.journal.remembered(app).is_some_and(|state| state.is_leased_to(&deployer.replica));
        self.running.push(Box::pin(async move {
            let taken = if leased { Ok(true) } else { deployer.take_lease(app).await };
            match taken {
                Ok(true) => deployer.drive(app).await,
                Ok(false) => {}
                // A later look finds it again, as this replica's if the lease was taken all the same.
                Err(error) => tracing::warn!(%app, error = %error.chain(), "taking an app's lease failed"),
            }
            app
        }));
    }

    /// Apps that were changed here: their lease was given to this replica, or another one drives them.
    fn take_in(&mut self) {
        for app in self.deployer.work_queue.take() {
            self.start(app);
        }
    }

    fn ended(&mut self, app: AppUid) {
        let idle = |state: Arc<AppState>| state.queued_at.is_none();
        // What arrived meanwhile was committed by this process, which remembers it.
        if self.apps.remove(&app) == Some(true) && !self.deployer.journal.remembered(app).is_some_and(idle) {
            self.start(app);
        }
    }

    fn hinted(&mut self, change: AppChange) {
        if self.deployer.journal.knows(&change) {
            return;
        }
        match change {
            AppChange::App(app, _) => {
                self.deployer.waiters.notify(app);
                self.deployer.drivers.notify(app);
            }
            AppChange::Any => {
                self.deployer.waiters.notify_all();
                self.deployer.drivers.notify_all();
            }
        }
        self.look_in(HINTED);
    }

    fn look(&mut self) {
        let now = self.deployer.ports.clock.elapsed();
        let own = (now >= self.own_due).then_some(self.apps.len());
        if own.is_some() {
            self.own_due = now + OWN;
        }
        self.looking = self.deployer.look_for_work(own).boxed().fuse();
        self.tick = Fuse::terminated();
        self.due = Duration::MAX;
    }

    /// Has the next look start no later than in this time.
    fn look_in(&mut self, wait: Duration) {
        let due = self.deployer.ports.clock.elapsed() + wait;
        if !self.looking.is_terminated() {
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

    fn looked(&mut self, look: Result<Look>) {
        self.looking = Fuse::terminated();
        match look {
            Ok(Look { at, free }) => {
                self.deployer.work_queue.set_alive(Some(at));
                for app in free {
                    if !self.apps.contains_key(&app) {
                        self.start(app);
                    }
                }
            }
            Err(error) => tracing::warn!(error = %error.chain(), "looking for work failed"),
        }
        let now = self.deployer.ports.clock.elapsed();
        // A hint that came while the look was under way may be about what it missed.
        self.schedule(self.due.max(now).min(now + EVERY));
    }
}
