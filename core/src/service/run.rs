//! Finds apps that have work and no driver, and drives all of this replica's within one future.

use std::{collections::BTreeMap, future::Future, pin::pin, sync::Arc, time::Duration};

use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, Fuse, FusedFuture},
    select_biased,
    stream::FuturesUnordered,
};

use super::Deployer;
use crate::{app::AppUid, error::Result, ledger::AppState, ports::AppChange, replica::ReplicaId};

/// A replica without a heartbeat for this long is taken over: with the time between two heartbeats and one look's own
/// time well below the promised 30 s.
pub(super) const TTL: Duration = Duration::from_secs(15);
/// Between two heartbeats.
const EVERY: Duration = Duration::from_secs(1);
/// Between two looks for work that hints have asked for.
const HINTED: Duration = Duration::from_millis(250);
/// How many apps one look may take.
const BATCH: usize = 256;

/// The apps of one look for work: when it was sent, who was alive, and what was free.
struct Look {
    at: Duration,
    alive: Vec<ReplicaId>,
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
    alive: Vec<ReplicaId>,
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

    async fn look_for_work(&self) -> Result<Look> {
        let at = self.ports.clock.elapsed();
        let alive = self.journal.heartbeat(&self.replica, TTL).await?.alive;
        let free = self.ports.history.work(&alive, BATCH).await?;
        Ok(Look { at, alive, free })
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
            alive: vec![deployer.replica.clone()],
        }
    }

    /// Drives an app, if its lease is or can be this replica's.
    fn start(&mut self, app: AppUid) {
        if let Some(again) = self.apps.get_mut(&app) {
            *again = true;
            return;
        }
        let (deployer, alive) = (self.deployer, self.alive.clone());
        self.apps.insert(app, false);
        let leased = deployer.journal.remembered(app).is_some_and(|state| state.is_leased_to(&deployer.replica));
        self.running.push(Box::pin(async move {
            let taken = if leased { Ok(true) } else { deployer.take_lease(app, &alive).await };
            match taken {
                Ok(true) => deployer.drive(app).await,
                Ok(false) => {}
                // It is found again with the next look.
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
        self.looking = self.deployer.look_for_work().boxed().fuse();
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
            Ok(Look { at, alive, free }) => {
                self.deployer.work_queue.set_alive(Some(at));
                self.alive = alive;
                for app in free {
                    self.start(app);
                }
            }
            Err(error) => tracing::warn!(error = %error.chain(), "looking for work failed"),
        }
        let now = self.deployer.ports.clock.elapsed();
        // A hint that came while the look was under way may be about what it missed.
        self.schedule(self.due.max(now).min(now + EVERY));
    }
}
