//! Tells receivers of deploys: one replica of a store does so, and what it tells is read from the apps' own entries.
//!
//! ```text
//!   commits (hints, and a search every minute) ──► queue of each receiver ──► engine::outbox ──► Notifier
//!                                                                                 ▲   cursor stored │
//!                                                                                 ╰─────────────────╯
//! ```
//!
//! Nothing is written when a deploy is accepted or ends: an entry that is in the history is told, whichever process
//! ended in between. Without receivers, the list of receivers is all that is read.

mod cursors;
mod delivery;
mod lease;
mod worker;

use std::{
    collections::{BTreeMap, BTreeSet},
    future,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use event_listener::{Event, EventListener};
use futures_util::{
    FutureExt, StreamExt,
    future::{AbortHandle, Abortable, BoxFuture, Fuse},
    select_biased,
    stream::FuturesUnordered,
};

use super::{Deployer, Notifications, documents, receivers};
use crate::{
    app::AppUid,
    engine::outbox::Cursor,
    error::Result,
    notification::ReceiverId,
    ports::{AppChange, Record, RecordKind, RecordStore},
};
use lease::Lease;
use worker::{Opened, StoredCursor, Worker};

/// The interval at which the list of receivers is read.
const RECEIVERS_INTERVAL: Duration = Duration::from_secs(15);
/// The interval of searches for what hints have not told of.
const SEARCH_INTERVAL: Duration = Duration::from_secs(60);
/// The pause after a panic.
const PANIC_PAUSE: Duration = Duration::from_secs(30);

/// The hints of this process's own calls and looks for the replica that tells receivers, if it is this one.
#[derive(Default)]
pub(super) struct News {
    /// Whether this process tells receivers.
    telling: AtomicBool,
    drifted: Mutex<BTreeSet<AppUid>>,
    receivers: AtomicBool,
    arrived: Event,
}

impl News {
    /// Notes that receivers were added or removed here.
    pub(super) fn receivers_changed(&self) {
        self.receivers.store(true, Ordering::Release);
        self.arrived.notify(usize::MAX);
    }

    /// Notes that the drift of an app was looked at.
    pub(super) fn drift_seen(&self, app: AppUid) {
        if self.telling.load(Ordering::Acquire) {
            self.drifted.lock().unwrap_or_else(PoisonError::into_inner).insert(app);
            self.arrived.notify(usize::MAX);
        }
    }

    fn listen(&self) -> EventListener {
        self.arrived.listen()
    }

    fn take_drifted(&self) -> BTreeSet<AppUid> {
        std::mem::take(&mut self.drifted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take_receivers_changed(&self) -> bool {
        self.receivers.swap(false, Ordering::AcqRel)
    }
}

/// Marks this process as the one that tells receivers, for as long as it lives.
struct Telling<'a>(&'a News);

impl<'a> Telling<'a> {
    fn begin(news: &'a News) -> Self {
        news.telling.store(true, Ordering::Release);
        Self(news)
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.0.telling.store(false, Ordering::Release);
        self.0.take_drifted();
    }
}

/// A time for which this replica tells the receivers.
struct Term<'a> {
    deployer: &'a Deployer,
    records: &'a dyn RecordStore,
    ports: &'a Notifications,
    workers: BTreeMap<ReceiverId, (Arc<Worker>, AbortHandle)>,
    running: FuturesUnordered<BoxFuture<'a, ()>>,
    search: Fuse<BoxFuture<'a, ()>>,
    /// The receivers whose statuses are the only ones.
    swept: Option<BTreeSet<ReceiverId>>,
    /// The cursors of receivers that have no worker.
    cursors: BTreeMap<ReceiverId, BTreeMap<AppUid, StoredCursor>>,
}

impl Deployer {
    /// Tells receivers while this replica is the one that does. Never returns.
    pub(super) async fn tell_receivers(&self) {
        let (Some(records), Some(ports)) = (&self.ports.records, &self.ports.notifications) else {
            return future::pending().await;
        };
        let mut logged = String::new();
        loop {
            let arrived = self.news.listen();
            match AssertUnwindSafe(self.tell_for_a_term(&**records, ports)).catch_unwind().await {
                Ok(Ok(())) => logged.clear(),
                Ok(Err(error)) => {
                    let error = error.chain();
                    if error != logged {
                        tracing::warn!(error, "telling receivers failed, trying again");
                        logged = error;
                    }
                }
                // The panic hook has the message and the place.
                Err(_) => {
                    tracing::error!(pause_s = PANIC_PAUSE.as_secs(), "telling receivers panicked, trying again");
                    self.ports.clock.sleep(PANIC_PAUSE).await;
                }
            }
            select_biased! {
                () = arrived.fuse() => {}
                () = self.ports.clock.sleep(RECEIVERS_INTERVAL).fuse() => {}
            }
        }
    }

    /// Tells receivers until another replica does. Returns at once if there are none, or another replica does already.
    async fn tell_for_a_term(&self, records: &dyn RecordStore, ports: &Notifications) -> Result<()> {
        self.news.take_receivers_changed();
        if receivers::all(records).await?.is_empty() {
            return Ok(());
        }
        let Some(lease) = Lease::take(records, &self.replica).await? else { return Ok(()) };
        let _telling = Telling::begin(&self.news);
        let mut term = Term::new(self, records, ports);
        let cursors: Vec<(Record, Cursor)> = documents::all(records, RecordKind::ReceiverCursor).await?;
        for (record, cursor) in cursors {
            let of_receiver = term.cursors.entry(cursor.receiver.clone()).or_default();
            of_receiver.insert(cursor.app, StoredCursor::read(cursor, &record));
        }
        let told = term.run(lease).await;
        drop(term);
        told
    }

    /// Releases the lease of the replica that tells receivers, if it is this one's.
    pub(super) async fn stop_telling(&self) {
        let Some(records) = self.ports.records.as_deref().filter(|_| self.ports.notifications.is_some()) else {
            return;
        };
        if let Err(error) = Lease::release(records, &self.replica).await {
            tracing::debug!(error = %error.chain(), "releasing the lease of telling failed: it expires");
        }
    }
}

impl<'a> Term<'a> {
    fn new(deployer: &'a Deployer, records: &'a dyn RecordStore, ports: &'a Notifications) -> Self {
        let (workers, cursors) = (BTreeMap::new(), BTreeMap::new());
        let (running, search) = (FuturesUnordered::new(), Fuse::terminated());
        Self { deployer, records, ports, workers, running, search, swept: None, cursors }
    }

    /// Tells receivers until the lease is lost, or there are none.
    async fn run(&mut self, mut lease: Lease) -> Result<()> {
        let (deployer, clock) = (self.deployer, &self.deployer.ports.clock);
        // From before the first search on, so that no change falls between the two.
        let mut changes = deployer.ports.history.watch().fuse();
        self.refresh().await?;
        // At once: deploys may have ended before this process began, or while no replica told.
        let mut search_due = clock.sleep(Duration::ZERO).fuse();
        let mut refresh_due = clock.sleep(RECEIVERS_INTERVAL).fuse();
        let mut renewing = lease.renewals(self.records, &deployer.replica, clock).boxed().fuse();
        loop {
            let arrived = deployer.news.listen();
            for app in deployer.news.take_drifted() {
                self.put(app, AppChange::Any);
            }
            if deployer.news.take_receivers_changed() {
                refresh_due = clock.sleep(Duration::ZERO).fuse();
            }
            select_biased! {
                () = renewing => return Ok(()),
                () = self.running.select_next_some() => {}
                change = changes.select_next_some() => match change {
                    AppChange::App(app, _) => self.put(app, change),
                    AppChange::Any => search_due = clock.sleep(Duration::ZERO).fuse(),
                },
                () = arrived.fuse() => {}
                () = refresh_due => {
                    refresh_due = clock.sleep(RECEIVERS_INTERVAL).fuse();
                    if self.refresh().await? {
                        search_due = clock.sleep(Duration::ZERO).fuse();
                    }
                    if self.workers.is_empty() {
                        return Ok(());
                    }
                }
                () = search_due => {
                    let workers = self.workers.values().map(|(worker, _)| Arc::clone(worker)).collect();
                    self.search = deployer.search_for_news(workers).boxed().fuse();
                    search_due = clock.sleep(SEARCH_INTERVAL).fuse();
                }
                () = &mut self.search => {}
            }
        }
    }

    /// Has every receiver's worker look at an app.
    fn put(&self, app: AppUid, change: AppChange) {
        let version = match change {
            AppChange::App(_, version) => Some(version),
            AppChange::Any => None,
        };
        for (worker, _) in self.workers.values() {
            worker.put(app, version);
        }
    }

    /// Starts and stops workers as receivers were added and removed. Returns whether one was started.
    async fn refresh(&mut self) -> Result<bool> {
        let (listed, unreadable) = receivers::all_and_unreadable(self.records).await?;
        let ids: BTreeSet<_> = listed.iter().map(|(_, stored)| stored.receiver.id.clone()).collect();
        let cursors = &mut self.cursors;
        self.workers.retain(|id, (worker, stop)| {
            let stays = ids.contains(id);
            if !stays {
                stop.abort();
                // It may be one of the unreadable ones, and go on from here once it can be read again.
                if unreadable > 0 {
                    cursors.insert(id.clone(), worker.cursors());
                }
            }
            stays
        });
        let mut is_started = false;
        for (_, stored) in listed {
            let known = self.workers.get(&stored.receiver.id).map(|(worker, _)| worker);
            if known.is_some_and(|worker| worker.knows(&stored.sealed_secret)) {
                continue;
            }
            let secret = match stored.secret(&*self.ports.sealer) {
                Ok(secret) => Opened { sealed: stored.sealed_secret, secret },
                Err(error) => {
                    let receiver = stored.receiver.name.as_str();
                    tracing::error!(receiver, error = %error.chain(), "opening the secret of a receiver failed");
                    continue;
                }
            };
            if let Some(worker) = known {
                worker.set_secret(secret);
                continue;
            }
            let cursors = self.cursors.remove(&stored.receiver.id).unwrap_or_default();
            let status = receivers::status(self.records, &stored.receiver).await?;
            let worker = Arc::new(Worker::new(stored.receiver, secret, cursors, status));
            let (stop, stopped) = AbortHandle::new_pair();
            let (deployer, records, ports) = (self.deployer, self.records, self.ports);
            let working = Arc::clone(&worker);
            let work = async move { deployer.work(&working, records, ports).await };
            self.running.push(Abortable::new(work, stopped).map(drop).boxed());
            self.workers.insert(worker.receiver.id.clone(), (worker, stop));
            is_started = true;
        }
        if unreadable == 0 {
            self.forget_removed(&ids).await;
            if self.swept.as_ref() != Some(&ids) && forget_statuses(self.records, &ids).await.is_ok() {
                self.swept = Some(ids);
            }
        }
        Ok(is_started)
    }

    /// Removes the cursors of receivers that were removed: those that are not among `listed`, which must be all. One
    /// without a worker, because its secret cannot be opened, needs its cursors later. A failure leaves them to the next
    /// term.
    async fn forget_removed(&mut self, listed: &BTreeSet<ReceiverId>) {
        let gone: Vec<_> = self.cursors.keys().filter(|id| !listed.contains(id)).cloned().collect();
        for id in gone {
            for cursor in self.cursors.remove(&id).unwrap_or_default().into_values() {
                if let Err(error) = worker::forget(self.records, &cursor.cursor).await {
                    tracing::debug!(error = %error.chain(), "forgetting the cursor of a removed receiver failed");
                }
            }
        }
    }
}

/// Removes the statuses of receivers that were removed: a removal may have left one, or a delivery that was under way may
/// have written it anew.
async fn forget_statuses(records: &dyn RecordStore, listed: &BTreeSet<ReceiverId>) -> Result<()> {
    for status in documents::records(records, RecordKind::ReceiverStatus).await? {
        if !listed.iter().any(|id| id.as_str() == status.key.as_str()) {
            records.remove(RecordKind::ReceiverStatus, &status.key).await?;
        }
    }
    Ok(())
}

impl Deployer {
    /// Has the workers look at the apps whose entries they may not have told, and forgets the cursors of deleted apps.
    async fn search_for_news(&self, workers: Vec<Arc<Worker>>) {
        let (mut found, mut is_whole) = (BTreeSet::new(), true);
        let mut pages = pin!(self.all_apps());
        while let Some(apps) = pages.next().await {
            is_whole &= apps.iter().all(std::result::Result::is_ok);
            for state in apps.into_iter().flatten() {
                found.insert(state.app.uid);
                let has_drift = self.known_drift(&state).is_some();
                for worker in workers.iter().filter(|worker| worker.may_have_news(&state, has_drift)) {
                    worker.put(state.app.uid, None);
                }
            }
        }
        if is_whole {
            for worker in &workers {
                worker.put_all_but(&found);
            }
        }
    }
}
