//! Claims apps that have work, and drives all of them within one future.

use std::{collections::BTreeMap, future::Future, pin::pin, time::Duration};

use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, Fuse},
    select_biased,
    stream::FuturesUnordered,
};

use super::Deployer;
use crate::{
    app::AppUid,
    error::Result,
    ports::{Claim, Claimed, Wake},
};

/// A replica that gives no sign of life for this long is taken over: with the time between two signs and one claim's
/// own time well below the promised 30 s.
pub(super) const TTL: Duration = Duration::from_secs(15);
/// Between two signs of life.
const EVERY: Duration = Duration::from_secs(1);
/// Between two claims that hints have asked for.
const HINTED: Duration = Duration::from_millis(250);
/// How many apps more than are driven already one claim may take.
const BATCH: usize = 256;

/// What the future of [`Deployer::run`] holds.
struct Drivers<'a> {
    deployer: &'a Deployer,
    running: FuturesUnordered<BoxFuture<'a, AppUid>>,
    /// The apps that are driven, and whether something arrived for them meanwhile.
    apps: BTreeMap<AppUid, bool>,
    claiming: Fuse<BoxFuture<'a, Result<Claimed>>>,
    tick: Fuse<BoxFuture<'a, ()>>,
    /// When the next claim may start.
    due: Duration,
    /// When the claim was made that is under way.
    claimed_at: Duration,
}

impl Deployer {
    /// Drives deploys until `shutdown` resolves, then gives up its claims, so that another replica need not wait for
    /// them to expire.
    ///
    /// Polled by one task, it drives any number of apps: it never blocks, and spawns nothing.
    pub async fn run(&self, shutdown: impl Future<Output = ()> + Send) {
        let mut shutdown = pin!(shutdown.fuse());
        let mut wakes = self.ports.history.wakes().fuse();
        let mut drivers = Drivers::new(self);
        loop {
            let arrived = self.inbox.listen();
            drivers.take_in();
            select_biased! {
                () = shutdown => break,
                claimed = &mut drivers.claiming => drivers.claimed(claimed),
                app = drivers.running.select_next_some() => drivers.ended(app),
                wake = wakes.select_next_some() => drivers.woken(wake),
                () = arrived.fuse() => {}
                () = &mut drivers.tick => drivers.claim(),
            }
        }
        drop(drivers);
        if let Err(error) = self.ports.history.claim(self.sign(Duration::ZERO, 0)).await {
            tracing::warn!(error = %error.chain(), "claims are left to expire");
        }
    }

    fn sign(&self, ttl: Duration, limit: usize) -> Claim {
        Claim { replica: self.replica.clone(), ttl, limit }
    }
}

impl<'a> Drivers<'a> {
    fn new(deployer: &'a Deployer) -> Self {
        Self {
            deployer,
            running: FuturesUnordered::new(),
            apps: BTreeMap::new(),
            claiming: Fuse::terminated(),
            tick: std::future::ready(()).boxed().fuse(),
            due: Duration::ZERO,
            claimed_at: Duration::ZERO,
        }
    }

    fn start(&mut self, app: AppUid, named: bool) {
        let deployer = self.deployer;
        self.apps.insert(app, false);
        self.running.push(Box::pin(async move {
            deployer.drive(app, named).await;
            app
        }));
    }

    /// What this process wrote itself: driven at once where the app is its own, else asked for at once.
    fn take_in(&mut self) {
        let mut foreign = false;
        for (app, owned) in self.deployer.inbox.take() {
            match self.apps.get_mut(&app) {
                Some(again) => *again = true,
                None if owned => self.start(app, false),
                None => foreign = true,
            }
        }
        if foreign {
            self.claim_in(Duration::ZERO);
        }
    }

    fn ended(&mut self, app: AppUid) {
        if self.apps.remove(&app) == Some(true) {
            self.start(app, false);
        }
    }

    fn woken(&mut self, wake: Wake) {
        match wake {
            Wake::App(app) => self.deployer.bells.ring(app),
            Wake::Any => self.deployer.bells.ring_all(),
        }
        self.claim_in(HINTED);
    }

    fn claim(&mut self) {
        let claim = self.deployer.sign(TTL, self.apps.len() + BATCH);
        self.claimed_at = self.deployer.ports.clock.elapsed();
        self.claiming = self.deployer.ports.history.claim(claim).fuse();
        self.tick = Fuse::terminated();
        self.due = Duration::MAX;
    }

    /// Has the next claim start no later than in this time.
    fn claim_in(&mut self, wait: Duration) {
        let due = self.deployer.ports.clock.elapsed() + wait;
        let claiming = !futures_util::future::FusedFuture::is_terminated(&self.claiming);
        if claiming {
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

    fn claimed(&mut self, claimed: Result<Claimed>) {
        self.claiming = Fuse::terminated();
        match claimed {
            Ok(claimed) => {
                self.deployer.inbox.own(&claimed.apps, self.claimed_at);
                for app in claimed.apps {
                    if !self.apps.contains_key(&app) {
                        self.start(app, true);
                    }
                }
            }
            Err(error) => tracing::warn!(error = %error.chain(), "the store gives no work"),
        }
        let now = self.deployer.ports.clock.elapsed();
        // A hint that came while the claim was under way may be about what it missed.
        self.schedule(self.due.max(now).min(now + EVERY));
    }
}
