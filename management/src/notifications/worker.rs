//! The worker of one receiver: its queue of apps, its cursors, and how its deliveries go.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use event_listener::{Event, EventListener};
use sha2::{Digest as _, Sha256};

use rollhook_core::{app::AppUid, error::Result, ledger::AppState, ports::Version, service::Condition};

use crate::{
    notifications::{NotificationId, Receiver, ReceiverSecret, ReceiverStatus, outbox::Cursor},
    ports::{Record, RecordKey, RecordKind, RecordStore},
};

/// The refusals after which a notification is given up, so that it holds up its app no longer.
const REFUSALS_MAX: u32 = 20;
/// The time after which a refusal is the last one.
const REFUSED_MAX: Duration = Duration::from_secs(24 * 3600);

/// A cursor, and its version in the store.
#[derive(Clone)]
pub(super) struct StoredCursor {
    pub(super) cursor: Cursor,
    /// `None`: it is not stored.
    pub(super) version: Option<Version>,
}

impl StoredCursor {
    pub(super) fn read(cursor: Cursor, record: &Record) -> Self {
        Self { cursor, version: Some(record.version) }
    }

    /// Returns the key of the cursor's record.
    pub(super) fn key(cursor: &Cursor) -> RecordKey {
        RecordKey::of_hash(Sha256::digest(format!("{}/{}", cursor.receiver, cursor.app)).into())
    }
}

/// Removes a cursor's record.
pub(super) async fn forget(records: &dyn RecordStore, cursor: &Cursor) -> Result<()> {
    records.remove(RecordKind::ReceiverCursor, &StoredCursor::key(cursor)).await
}

/// A receiver's secret, and how it is sealed.
pub(super) struct Opened {
    pub(super) sealed: String,
    pub(super) secret: ReceiverSecret,
}

/// A receiver that is notified by this replica.
pub(super) struct Worker {
    pub(super) receiver: Receiver,
    shared: Mutex<Shared>,
    arrived: Event,
}

struct Shared {
    secret: Opened,
    cursors: BTreeMap<AppUid, StoredCursor>,
    /// The apps to be looked at, in order.
    queue: VecDeque<AppUid>,
    /// The least version of the state to look at for each of them; `None`: the state is read anew.
    versions: BTreeMap<AppUid, Option<Version>>,
    status: ReceiverStatus,
    /// The apps that are left alone for a while, because the receiver refuses a notification of them.
    aside: BTreeSet<AppUid>,
    /// The refusals of each app's notification that was refused last.
    refusals: BTreeMap<AppUid, Refusals>,
}

/// The refusals of one notification, since this process notifies.
struct Refusals {
    notification: NotificationId,
    /// The time of the first, as the clock's elapsed time.
    since: Duration,
    count: u32,
}

impl Refusals {
    /// Counts one more, and returns whether it is the last one.
    fn is_last(&mut self, now: Duration) -> bool {
        self.count = self.count.saturating_add(1);
        self.count >= REFUSALS_MAX || now.saturating_sub(self.since) >= REFUSED_MAX
    }
}

impl Worker {
    pub(super) fn new(
        receiver: Receiver,
        secret: Opened,
        cursors: BTreeMap<AppUid, StoredCursor>,
        status: ReceiverStatus,
    ) -> Self {
        let (queue, versions) = (VecDeque::new(), BTreeMap::new());
        let (aside, refusals) = (BTreeSet::new(), BTreeMap::new());
        let shared = Shared { secret, cursors, queue, versions, status, aside, refusals };
        Self { receiver, shared: Mutex::new(shared), arrived: Event::new() }
    }

    pub(super) fn secret(&self) -> ReceiverSecret {
        self.lock().secret.secret.clone()
    }

    /// Returns whether the worker has the secret that is sealed in this way.
    pub(super) fn knows(&self, sealed: &str) -> bool {
        self.lock().secret.sealed == sealed
    }

    pub(super) fn set_secret(&self, secret: Opened) {
        self.lock().secret = secret;
    }

    /// Has the worker look at an app.
    pub(super) fn put(&self, app: AppUid, version: Option<Version>) {
        {
            let shared = &mut *self.lock();
            match shared.versions.get_mut(&app) {
                Some(known) => *known = known.zip(version).map(|(known, version)| known.max(version)),
                None => {
                    shared.versions.insert(app, version);
                    shared.queue.push_back(app);
                }
            }
        }
        self.arrived.notify(usize::MAX);
    }

    /// Has the worker look at the apps that it has cursors of and that were not found, to forget these.
    pub(super) fn put_all_but(&self, found: &BTreeSet<AppUid>) {
        let gone: Vec<_> = self.lock().cursors.keys().filter(|app| !found.contains(app)).copied().collect();
        for app in gone {
            self.put(app, None);
        }
    }

    /// Takes the next app that is none of the busy ones.
    pub(super) fn take(&self, busy: &BTreeSet<AppUid>) -> Option<(AppUid, Option<Version>)> {
        let shared = &mut *self.lock();
        let at = shared.queue.iter().position(|app| !busy.contains(app))?;
        let app = shared.queue.remove(at)?;
        Some((app, shared.versions.remove(&app).flatten()))
    }

    /// The number of apps to be looked at, now or later.
    pub(super) fn waiting(&self) -> usize {
        let shared = self.lock();
        let is_queued = |app: &&AppUid| shared.versions.contains_key(app);
        shared.queue.len() + shared.aside.iter().filter(|app| !is_queued(app)).count()
    }

    /// Leaves an app alone for a while.
    pub(super) fn put_aside(&self, app: AppUid) {
        self.lock().aside.insert(app);
    }

    /// Has the worker look at an app that was left alone.
    pub(super) fn put_back(&self, app: AppUid) {
        self.lock().aside.remove(&app);
        self.put(app, None);
    }

    /// Resolves at the next arrival after this call.
    pub(super) fn listen(&self) -> EventListener {
        self.arrived.listen()
    }

    /// Returns whether the receiver may have to be notified of something, as far as an app's state says.
    pub(super) fn may_have_news(&self, state: &AppState, condition: &Condition) -> bool {
        if !self.receiver.apps.contains(&state.app) {
            return false;
        }
        let is_unusual = *condition != Condition::default();
        match self.lock().cursors.get(&state.app.uid) {
            Some(StoredCursor { cursor, .. }) => {
                cursor.is_behind(state) || is_unusual || cursor.drift.is_some() || cursor.trouble.is_some()
            }
            None => is_unusual || state.updated_at >= self.receiver.added_at,
        }
    }

    pub(super) fn cursor(&self, app: AppUid) -> Option<StoredCursor> {
        self.lock().cursors.get(&app).cloned()
    }

    /// Returns the cursors as they are.
    pub(super) fn cursors(&self) -> BTreeMap<AppUid, StoredCursor> {
        self.lock().cursors.clone()
    }

    pub(super) fn keep(&self, cursor: &StoredCursor) {
        self.lock().cursors.insert(cursor.cursor.app, cursor.clone());
    }

    pub(super) fn forget(&self, app: AppUid) -> Option<StoredCursor> {
        let shared = &mut *self.lock();
        shared.refusals.remove(&app);
        shared.cursors.remove(&app)
    }

    /// Counts a refusal of a notification, and returns whether it is to be given up.
    pub(super) fn is_refused_for_good(&self, app: AppUid, notification: &NotificationId, now: Duration) -> bool {
        let refusals = &mut self.lock().refusals;
        let first = || Refusals { notification: notification.clone(), since: now, count: 0 };
        let refusals = refusals.entry(app).or_insert_with(first);
        if refusals.notification != *notification {
            *refusals = first();
        }
        refusals.is_last(now)
    }

    /// The number of refusals of an app's notification so far.
    pub(super) fn refusals(&self, app: AppUid) -> u32 {
        self.lock().refusals.get(&app).map_or(1, |refusals| refusals.count)
    }

    /// Changes the status, and returns it as it is then.
    pub(super) fn update_status(&self, change: impl FnOnce(&mut ReceiverStatus)) -> ReceiverStatus {
        let status = &mut self.lock().status;
        change(status);
        status.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_refusal_is_the_twentieth_or_the_first_after_a_day() {
        let receiver = "0123456789abcdef0123456789abcdef".parse().unwrap();
        let notification = NotificationId::of_test(&receiver, 7);
        let first = || Refusals { notification: notification.clone(), since: Duration::from_secs(9), count: 0 };
        let mut often = first();
        assert_eq!((1..=20).find(|second| often.is_last(Duration::from_secs(9 + second))), Some(20));
        let mut late = first();
        let day = 24 * 3600;
        assert!(!late.is_last(Duration::from_secs(9)) && !late.is_last(Duration::from_secs(8 + day)));
        assert!(late.is_last(Duration::from_secs(9 + day)));
    }
}
