//! Notifies receivers of deploys: one replica of a store does so, and it reads the notifications from the apps' own entries.
//!
//! ```text
//!   commits (hints, and a search every minute) ──► queue of each receiver ──► engine::outbox ──► Notifier
//!                                                                                 ▲   cursor stored │
//!                                                                                 ╰─────────────────╯
//! ```
//!
//! Nothing is written when a deploy is accepted or ends: receivers are notified of each entry of the history, whichever process
//! ended in between. Without receivers, the list of receivers is all that is read.

mod cursors;
mod delivery;
mod destination;
mod lease;
mod notification;
mod outbox;
mod receiver;
mod receivers;
mod worker;

use std::{
    collections::{BTreeMap, BTreeSet},
    future,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{
        Arc,
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

use rollhook_core::{app::AppUid, error::Result, ports::AppChange, service::Deployer};

use crate::{
    Management, NotificationPorts, documents,
    notifications::outbox::Cursor,
    ports::{Record, RecordKind, RecordStore},
};
pub use destination::{ApiUrl, Destination, DestinationUrl, GitHubRepository, GitLabProject, SlackChannel};
pub use notification::{Content, DegradedNews, DriftNews, EventKind, Notification, NotificationId};
pub use receiver::{
    Events, RECEIVERS_MAX, Receiver, ReceiverApps, ReceiverId, ReceiverName, ReceiverSecret, SECRET_MAX,
};
pub use receivers::{NewReceiver, ReceiverStatus, reseal_receivers, sealed_receiver_secrets};

use lease::Lease;
use worker::{Opened, StoredCursor, Worker};

/// The interval at which the list of receivers is read.
const RECEIVERS_INTERVAL: Duration = Duration::from_secs(15);
/// The interval of searches for changes of which no hint came.
const SEARCH_INTERVAL: Duration = Duration::from_secs(60);
/// The pause after a panic.
const PANIC_PAUSE: Duration = Duration::from_secs(30);

/// Hints of this process's own calls for the replica that notifies receivers, if it is this one.
#[derive(Default)]
pub(crate) struct Hints {
    receivers: AtomicBool,
    arrived: Event,
}

impl Hints {
    /// Notes that receivers were added or removed here.
    pub(crate) fn receivers_changed(&self) {
        self.receivers.store(true, Ordering::Release);
        self.arrived.notify(usize::MAX);
    }

    fn listen(&self) -> EventListener {
        self.arrived.listen()
    }

    fn take_receivers_changed(&self) -> bool {
        self.receivers.swap(false, Ordering::AcqRel)
    }
}

/// The noting of observed conditions, for as long as this process notifies receivers.
struct ObservedConditions<'a>(&'a Deployer);

impl Drop for ObservedConditions<'_> {
    fn drop(&mut self) {
        self.0.forget_observed_conditions();
    }
}

/// A term in which this replica notifies the receivers.
struct Term<'a> {
    management: &'a Management,
    ports: &'a NotificationPorts,
    workers: BTreeMap<ReceiverId, (Arc<Worker>, AbortHandle)>,
    running: FuturesUnordered<BoxFuture<'a, ()>>,
    search: Fuse<BoxFuture<'a, ()>>,
    /// The receivers whose statuses are the only ones.
    swept: Option<BTreeSet<ReceiverId>>,
    /// The cursors of receivers that have no worker.
    cursors: BTreeMap<ReceiverId, BTreeMap<AppUid, StoredCursor>>,
}

impl Management {
    /// Notifies receivers while this replica is the one that does. Never returns.
    pub(crate) async fn notify_receivers(&self) {
        let Some(ports) = &self.notifications else { return future::pending().await };
        let mut logged = String::new();
        loop {
            let arrived = self.hints.listen();
            match AssertUnwindSafe(self.notify_for_a_term(ports)).catch_unwind().await {
                Ok(Ok(())) => logged.clear(),
                Ok(Err(error)) => {
                    let error = error.chain();
                    if error != logged {
                        tracing::warn!(error, "notifying receivers failed, trying again");
                        logged = error;
                    }
                }
                // The panic hook has the message and the place.
                Err(_) => {
                    tracing::error!(pause_s = PANIC_PAUSE.as_secs(), "notifying receivers panicked, trying again");
                    self.deployer.ports().clock.sleep(PANIC_PAUSE).await;
                }
            }
            select_biased! {
                () = arrived.fuse() => {}
                () = self.deployer.ports().clock.sleep(RECEIVERS_INTERVAL).fuse() => {}
            }
        }
    }

    /// Notifies receivers until another replica does. Returns at once if there are none, or another replica does already.
    async fn notify_for_a_term(&self, ports: &NotificationPorts) -> Result<()> {
        self.hints.take_receivers_changed();
        if receivers::all(&*self.records).await?.is_empty() {
            return Ok(());
        }
        let Some(lease) = Lease::take(&*self.records, self.deployer.replica()).await? else { return Ok(()) };
        let _conditions = ObservedConditions(&self.deployer);
        let mut term = Term::new(self, ports);
        let cursors: Vec<(Record, Cursor)> = documents::all(&*self.records, RecordKind::ReceiverCursor).await?;
        for (record, cursor) in cursors {
            let of_receiver = term.cursors.entry(cursor.receiver.clone()).or_default();
            of_receiver.insert(cursor.app, StoredCursor::read(cursor, &record));
        }
        term.run(lease).await
    }

    /// Releases the lease of the replica that notifies receivers, if it is this one's.
    pub(crate) async fn stop_notifying(&self) {
        if self.notifications.is_none() {
            return;
        }
        if let Err(error) = Lease::release(&*self.records, self.deployer.replica()).await {
            tracing::debug!(error = %error.chain(), "releasing the lease of notifying failed: it expires");
        }
    }
}

impl<'a> Term<'a> {
    fn new(management: &'a Management, ports: &'a NotificationPorts) -> Self {
        Self {
            management,
            ports,
            workers: BTreeMap::new(),
            running: FuturesUnordered::new(),
            search: Fuse::terminated(),
            swept: None,
            cursors: BTreeMap::new(),
        }
    }

    /// Notifies receivers until the lease is lost, or there are none.
    async fn run(&mut self, mut lease: Lease) -> Result<()> {
        let management = self.management;
        let deployer = &*management.deployer;
        let clock = &deployer.ports().clock;
        // From before the first search on, so that no change falls between the two.
        let mut changes = deployer.ports().history.watch().fuse();
        self.refresh().await?;
        // At once: deploys may have ended before this process began, or while no replica notified receivers.
        let mut search_due = clock.sleep(Duration::ZERO).fuse();
        let mut refresh_due = clock.sleep(RECEIVERS_INTERVAL).fuse();
        let mut renewing = lease.renewals(&*management.records, deployer.replica(), clock).boxed().fuse();
        loop {
            let arrived = management.hints.listen();
            let observed = deployer.condition_observed();
            for app in deployer.take_observed_conditions() {
                self.put(app, AppChange::Any);
            }
            if management.hints.take_receivers_changed() {
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
                () = observed.fuse() => {}
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
                    self.search = management.search_for_news(workers).boxed().fuse();
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
        let (listed, unreadable) = receivers::all_and_unreadable(&*self.management.records).await?;
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
            let status = receivers::status(&*self.management.records, &stored.receiver).await?;
            let worker = Arc::new(Worker::new(stored.receiver, secret, cursors, status));
            let (stop, stopped) = AbortHandle::new_pair();
            let management = self.management;
            let ports = self.ports;
            let working = Arc::clone(&worker);
            let work = async move { management.work(&working, ports).await };
            self.running.push(Abortable::new(work, stopped).map(drop).boxed());
            self.workers.insert(worker.receiver.id.clone(), (worker, stop));
            is_started = true;
        }
        if unreadable == 0 {
            self.forget_removed(&ids).await;
            if self.swept.as_ref() != Some(&ids) && forget_statuses(&*self.management.records, &ids).await.is_ok() {
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
                if let Err(error) = worker::forget(&*self.management.records, &cursor.cursor).await {
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

impl Management {
    /// Has the workers look at the apps of whose entries their receivers may not know, and forgets the cursors of deleted apps.
    async fn search_for_news(&self, workers: Vec<Arc<Worker>>) {
        let (mut found, mut is_whole) = (BTreeSet::new(), true);
        let mut pages = pin!(self.deployer.all_apps());
        while let Some(apps) = pages.next().await {
            is_whole &= apps.iter().all(std::result::Result::is_ok);
            for state in apps.into_iter().flatten() {
                found.insert(state.app.uid);
                let condition = self.deployer.known_condition(&state);
                for worker in workers.iter().filter(|worker| worker.may_have_news(&state, &condition)) {
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
