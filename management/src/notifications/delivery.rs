//! Deliveries to one receiver: a few apps at a time, each app's events in order, and pauses after failures.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, Fuse, FusedFuture},
    select_biased,
    stream::FuturesUnordered,
};
use sha2::{Digest as _, Sha256};

use super::worker::{self, StoredCursor, Worker};
use rollhook_core::{
    app::AppUid,
    deploy::{Deploy, Revision},
    engine::health::Degraded,
    error::{Error, Result},
    ledger::AppState,
    ports::{Drift, Version},
};

use crate::{
    Management, NotificationPorts, documents,
    notifications::{
        Content, DegradedNews, DriftNews, EventKind, Notification, NotificationId, ReceiverStatus,
        outbox::{self, Archived, Next},
        receivers,
    },
    ports::{Delivered, DeliveryFailure, RecordKind},
};

/// The most notifications to a receiver at the same time, each of another app.
const IN_FLIGHT: usize = 4;
/// The pause after a failure of the store.
const STORE_PAUSE: Duration = Duration::from_secs(5);
/// How often the status of a receiver that takes notifications is written at most.
const STATUS_INTERVAL: Duration = Duration::from_secs(30);
/// The revisions that a cursor is past without a delivery before it is stored.
const UNSTORED_MAX: u64 = 20;
/// The longest failure that is kept, in characters.
const FAILURE_MAX: usize = 500;

/// The reason why the notifications of an app stopped.
pub(super) enum Ended {
    /// The receiver has not taken a notification.
    Failed(DeliveryFailure),
    /// The store has failed.
    Store(Error),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// The surroundings of a worker.
#[derive(Clone, Copy)]
pub(super) struct Delivery<'a> {
    pub(super) management: &'a Management,
    pub(super) worker: &'a Worker,
    ports: &'a NotificationPorts,
}

/// How the deliveries of a worker go.
struct Progress<'a> {
    failures: u32,
    pause: Fuse<BoxFuture<'a, ()>>,
    /// The time of the next write of the status.
    status_due: Fuse<BoxFuture<'a, ()>>,
    /// The apps of which the receiver refuses a notification, until the next attempt: the others are taken meanwhile.
    aside: FuturesUnordered<BoxFuture<'a, AppUid>>,
}

impl Management {
    /// Notifies a receiver of the apps of its queue. Never returns.
    pub(super) async fn work(&self, worker: &Worker, ports: &NotificationPorts) {
        let delivery = Delivery { management: self, worker, ports };
        let (mut running, mut busy) = (FuturesUnordered::new(), BTreeSet::new());
        let mut progress = Progress {
            failures: 0,
            pause: Fuse::terminated(),
            status_due: Fuse::terminated(),
            aside: FuturesUnordered::new(),
        };
        loop {
            let arrived = worker.listen();
            // After a failure one notification at a time is tried.
            let room = if progress.failures == 0 { IN_FLIGHT } else { 1 };
            while progress.is_open()
                && running.len() < room
                && let Some((app, version)) = worker.take(&busy)
            {
                busy.insert(app);
                running.push(async move { (app, delivery.notify_app(app, version).await) });
            }
            select_biased! {
                (app, ended) = running.select_next_some() => {
                    if delivery.ended(app, ended, &mut progress).await == Then::Free {
                        busy.remove(&app);
                    }
                }
                app = progress.aside.select_next_some() => {
                    busy.remove(&app);
                    worker.put_back(app);
                }
                () = arrived.fuse() => {}
                () = &mut progress.pause => {}
                () = &mut progress.status_due => delivery.write_status(|_| {}).await,
            }
        }
    }
}

/// The consequence for an app whose notifications were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The app may be taken again at once.
    Free,
    /// The app is put aside, until its pause is over.
    Aside,
}

impl Progress<'_> {
    fn is_open(&self) -> bool {
        self.pause.is_terminated()
    }
}

impl<'a> Delivery<'a> {
    /// Takes note of how the notifications of an app have ended: `true` if something was delivered.
    async fn ended(self, app: AppUid, ended: Result<bool, Ended>, progress: &mut Progress<'a>) -> Then {
        let clock = &self.management.deployer.ports().clock;
        let receiver = self.worker.receiver.name.as_str();
        match ended {
            Ok(false) => {}
            Ok(true) => {
                let now = Some(self.management.deployer.time());
                if progress.failures > 0 {
                    tracing::info!(receiver, "the receiver takes notifications again");
                    progress.failures = 0;
                }
                let before = self.worker.update_status(|_| {});
                if before.failing_since.is_some() || before.last_delivered_at.is_none() {
                    let well = |status: &mut ReceiverStatus| {
                        *status = ReceiverStatus { last_delivered_at: now, ..Default::default() };
                    };
                    self.write_status(well).await;
                } else {
                    self.worker.update_status(|status| status.last_delivered_at = now);
                    if progress.status_due.is_terminated() {
                        progress.status_due = clock.sleep(STATUS_INTERVAL).fuse();
                    }
                }
            }
            Err(Ended::Failed(failure)) if failure.is_final => {
                self.put_aside(app, failure, progress).await;
                return Then::Aside;
            }
            Err(Ended::Failed(failure)) => {
                self.worker.put(app, None);
                progress.failures = progress.failures.saturating_add(1);
                let pause =
                    outbox::pause(progress.failures, failure.retry_after, self.management.deployer.ports().rng.bits());
                progress.pause = clock.sleep(pause).fuse();
                let message = failure.message;
                if progress.failures == 1 {
                    tracing::warn!(receiver, error = message, "notifying a receiver failed, trying again");
                }
                self.write_failure(message).await;
            }
            Err(Ended::Store(error)) => {
                tracing::debug!(receiver, error = %error.chain(), "reading an app for a receiver failed");
                self.worker.put(app, None);
                progress.pause = clock.sleep(STORE_PAUSE).fuse();
            }
        }
        Then::Free
    }

    /// Leaves an app alone for a time of its own: the receiver refuses this notification, and may take those of others.
    async fn put_aside(self, app: AppUid, failure: DeliveryFailure, progress: &mut Progress<'a>) {
        let (count, clock) = (self.worker.refusals(app), &self.management.deployer.ports().clock);
        let pause = outbox::pause(count, failure.retry_after, self.management.deployer.ports().rng.bits());
        let sleep = clock.sleep(pause);
        progress.aside.push(sleep.map(move |()| app).boxed());
        self.worker.put_aside(app);
        if count == 1 {
            let receiver = self.worker.receiver.name.as_str();
            tracing::warn!(receiver, error = failure.message, "a receiver refuses a notification, trying again");
        }
        self.write_failure(failure.message).await;
    }

    /// Has the receiver's status show a failure.
    async fn write_failure(self, message: String) {
        let message = message.chars().take(FAILURE_MAX).collect();
        let (now, waiting) = (self.management.deployer.time(), self.worker.waiting());
        let failing = |status: &mut ReceiverStatus| {
            status.failing_since.get_or_insert(now);
            (status.failure, status.waiting) = (Some(message), waiting);
        };
        self.write_status(failing).await;
    }

    /// Changes the receiver's status, and stores it. A failure is made up for by the next write.
    async fn write_status(self, change: impl FnOnce(&mut ReceiverStatus)) {
        let status = self.worker.update_status(change);
        let written = async {
            let key = receivers::status_key(&self.worker.receiver.id)?;
            let known = self.management.records.read(RecordKind::ReceiverStatus, &key).await?;
            let record = documents::encode(key, &status, None)?;
            self.management.records.write(RecordKind::ReceiverStatus, record, known.map(|known| known.version)).await
        };
        if let Err(error) = written.await {
            tracing::debug!(error = %error.chain(), "writing the status of a receiver failed");
        }
    }

    /// Notifies the receiver of the news of an app. Returns whether something was delivered.
    async fn notify_app(self, app: AppUid, version: Option<Version>) -> Result<bool, Ended> {
        let deployer = &self.management.deployer;
        let Some(state) = deployer.state_since(app, version.unwrap_or(Version::REMOVED)).await? else {
            if let Some(known) = self.worker.forget(app) {
                worker::forget(&*self.management.records, &known.cursor).await?;
            }
            return Ok(false);
        };
        let state = &*state;
        if !self.worker.receiver.apps.contains(&state.app) {
            return Ok(false);
        }
        let mut stored = match self.worker.cursor(app) {
            Some(stored) => stored,
            None => self.unknown_cursor(state).await?,
        };
        let before = stored.cursor.seen;
        let notified = self.notify_of_deploys(state, &mut stored).await;
        let notified = match notified {
            Ok(notified) => self.notify_of_revocations(state, &mut stored).await.map(|revoked| notified || revoked),
            failed => failed,
        };
        let notified = match notified {
            Ok(notified) => self.notify_of_condition(state, &mut stored).await.map(|condition| notified || condition),
            failed => failed,
        };
        // After a failure of the store, the worker has the cursor that counts already.
        if !matches!(notified, Err(Ended::Store(_))) {
            let passed = |seen: Option<Revision>| seen.map_or(0, Revision::get);
            self.worker.keep(&stored);
            if passed(stored.cursor.seen).saturating_sub(passed(before)) >= UNSTORED_MAX {
                self.store(&mut stored).await?;
            }
        }
        notified
    }

    async fn notify_of_deploys(self, state: &AppState, stored: &mut StoredCursor) -> Result<bool, Ended> {
        let (mut archived, mut is_told, mut lost) = (Archived::new(), false, 0_u64);
        let notified = loop {
            match stored.cursor.next(state, &archived, &self.worker.receiver.events) {
                Next::Nothing => break Ok(is_told),
                Next::Read(revision) => {
                    let entry = self.management.deployer.ports().history.archived(state.app.uid, revision).await?;
                    // A notification shows no evidence but the states of several workloads, and many entries may be read before the receiver takes one: the
                    // cursor asks no more for those that it is past.
                    archived.retain(|revision, _| stored.cursor.is_before(*revision));
                    archived.insert(revision, entry.map(|entry| Arc::new(entry.without_logs())));
                }
                Next::Lost(_) => lost += 1,
                Next::Notify(deploy, event) => match self.notify(state, stored, deploy, event).await {
                    Ok(is_delivered) => is_told |= is_delivered,
                    Err(ended) => break Err(ended),
                },
            }
        };
        if lost > 0 {
            let (app, receiver) = (state.app.id.to_string(), self.worker.receiver.name.as_str());
            tracing::warn!(
                app,
                receiver,
                deploys = lost,
                "deploys were forgotten before a receiver was notified of them"
            );
        }
        notified
    }

    /// Notifies the receiver of one event, and stores the cursor. Returns `false` if the event was given up.
    async fn notify(
        self,
        state: &AppState,
        stored: &mut StoredCursor,
        deploy: Arc<Deploy>,
        event: EventKind,
    ) -> Result<bool, Ended> {
        let (app, revision) = (Arc::clone(&state.app), deploy.revision);
        let (receiver, asked_at) = (&self.worker.receiver.id, outbox::asked_at(&deploy, event));
        let (id, at) = match asked_at {
            Some(at) => (NotificationId::of_question(receiver, &app, revision, at), at),
            None => {
                let at = if event == EventKind::Accepted { deploy.created_at } else { deploy.updated_at };
                (NotificationId::of_deploy(receiver, &app, revision, event), at)
            }
        };
        let content = Content::Deploy { app, deploy, event };
        let reference = stored.cursor.reference(revision).map(str::to_owned);
        let notification = Notification {
            id,
            content,
            at,
            sent_at: self.management.deployer.time(),
            base_url: self.management.base_url.clone(),
        };
        let delivered = self.send(&notification, reference.as_deref()).await?;
        let is_delivered = delivered.is_some();
        stored.cursor.pass(revision, (event, asked_at), delivered.and_then(|delivered| delivered.reference));
        self.store(stored).await?;
        Ok(is_delivered)
    }

    /// Sends a notification. Returns `None` if it is given up because the receiver refuses it again and again: others
    /// follow it.
    async fn send(self, notification: &Notification, reference: Option<&str>) -> Result<Option<Delivered>, Ended> {
        let (receiver, secret) = (&self.worker.receiver, self.worker.secret());
        match self.management.send(self.ports, receiver, &secret, notification, reference).await {
            Ok(delivered) => Ok(Some(delivered)),
            Err(failure) if failure.is_final && self.is_refused_for_good(notification) => {
                let (app, event) = (notification.app().map(|app| app.id.to_string()), notification.event());
                let (receiver, event) = (receiver.name.as_str(), event.map(tracing::field::display));
                tracing::warn!(
                    receiver,
                    app,
                    event,
                    error = failure.message,
                    "giving up a notification that is refused"
                );
                self.write_failure(format!("a notification was given up: {}", failure.message)).await;
                Ok(None)
            }
            Err(failure) => Err(Ended::Failed(failure)),
        }
    }

    fn is_refused_for_good(self, notification: &Notification) -> bool {
        let now = self.management.deployer.ports().clock.elapsed();
        notification.app().is_some_and(|app| self.worker.is_refused_for_good(app.uid, &notification.id, now))
    }

    /// Notifies the receiver of verifications that were revoked since it was added.
    async fn notify_of_revocations(self, state: &AppState, stored: &mut StoredCursor) -> Result<bool, Ended> {
        let (receiver, known) = (&self.worker.receiver, stored.cursor.revoked);
        let mut is_told = false;
        for watch in state.watches.iter().filter(|watch| Some(watch.revision) > known) {
            let Some((fail, _)) = watch.revoked() else { continue };
            let is_wanted = receiver.events.contains(EventKind::VerificationRevoked) && fail.at >= receiver.added_at;
            let archived = match is_wanted {
                true => self.management.deployer.ports().history.archived(state.app.uid, watch.revision).await?,
                false => None,
            };
            let Some(deploy) = archived.map(|entry| Arc::new(entry.without_evidence())) else {
                stored.cursor.revoked = Some(watch.revision);
                continue;
            };
            let id = NotificationId::of_revocation(&receiver.id, &state.app, watch.revision);
            let content = Content::Revoked { app: Arc::clone(&state.app), deploy, fail: fail.clone() };
            let notification = Notification {
                id,
                content,
                at: fail.at,
                sent_at: self.management.deployer.time(),
                base_url: self.management.base_url.clone(),
            };
            is_told |= self.send(&notification, None).await?.is_some();
            stored.cursor.revoked = Some(watch.revision);
            self.store(stored).await?;
        }
        Ok(is_told)
    }

    /// Notifies the receiver of an app's condition, as far as that is news.
    async fn notify_of_condition(self, state: &AppState, stored: &mut StoredCursor) -> Result<bool, Ended> {
        let Some(condition) = self.management.deployer.observed_condition(state) else { return Ok(false) };
        // What a process that has just begun to look does not know yet is not over.
        let is_known = condition.degraded.is_some() || condition.drift.is_some() || condition.is_proven;
        let drift = self.notify_of_drift(state, condition.drift, stored).await?;
        Ok(is_known && self.notify_of_trouble(state, condition.degraded, stored).await? || drift)
    }

    async fn notify_of_drift(
        self,
        state: &AppState,
        seen: Option<Drift>,
        stored: &mut StoredCursor,
    ) -> Result<bool, Ended> {
        let hash = seen.as_ref().map(|drift| hash_of(state, &format!("{:?}/{}", drift.image, drift.message)));
        if stored.cursor.drift == hash || !self.worker.receiver.events.contains(EventKind::Drift) {
            return Ok(false);
        }
        let is_told = match seen {
            None => false,
            Some(Drift { image, message }) => {
                let number = stored.cursor.drifts.saturating_add(1);
                let id = NotificationId::of_drift(&self.worker.receiver.id, &state.app, number);
                let drift = DriftNews { image, message };
                let is_told = self.notify_now(id, Content::Drift { app: Arc::clone(&state.app), drift }).await?;
                stored.cursor.drifts = number;
                is_told
            }
        };
        stored.cursor.drift = hash;
        self.store(stored).await?;
        Ok(is_told)
    }

    /// Notifies the receiver of a trouble, once for as long as it lasts for the same reason.
    async fn notify_of_trouble(
        self,
        state: &AppState,
        seen: Option<Degraded>,
        stored: &mut StoredCursor,
    ) -> Result<bool, Ended> {
        let hash = seen.as_ref().map(|degraded| hash_of(state, degraded.reason.as_str()));
        if stored.cursor.trouble == hash || !self.worker.receiver.events.contains(EventKind::Degraded) {
            return Ok(false);
        }
        let is_told = match seen {
            None => false,
            Some(Degraded { reason, message, .. }) => {
                let number = stored.cursor.troubles.saturating_add(1);
                let id = NotificationId::of_trouble(&self.worker.receiver.id, &state.app, number);
                let degraded = DegradedNews { reason, message };
                let is_told = self.notify_now(id, Content::Degraded { app: Arc::clone(&state.app), degraded }).await?;
                stored.cursor.troubles = number;
                is_told
            }
        };
        stored.cursor.trouble = hash;
        self.store(stored).await?;
        Ok(is_told)
    }

    /// Notifies the receiver of what was observed now. Returns `false` if the notification was given up.
    async fn notify_now(self, id: NotificationId, content: Content) -> Result<bool, Ended> {
        let now = self.management.deployer.time();
        let base_url = self.management.base_url.clone();
        let notification = Notification { id, content, at: now, sent_at: now, base_url };
        Ok(self.send(&notification, None).await?.is_some())
    }
}

/// Returns a hash by which a condition of what is on the cluster now is known again.
fn hash_of(state: &AppState, condition: &str) -> String {
    let deploy = state.on_cluster().map(|deploy| deploy.revision.get());
    let hash = Sha256::digest(format!("{deploy:?}/{condition}"));
    rollhook_core::text::hex(&hash[..16])
}
