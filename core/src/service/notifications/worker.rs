//! The worker of one receiver: its queue of apps, its cursors, and how its deliveries go.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use event_listener::{Event, EventListener};
use sha2::{Digest as _, Sha256};

use crate::{
    app::AppUid,
    engine::outbox::Cursor,
    error::Result,
    ledger::AppState,
    notification::{Receiver, ReceiverSecret},
    ports::{Record, RecordKey, RecordKind, RecordStore, Version},
    service::receivers::ReceiverStatus,
};

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

/// A receiver that is told by this replica.
pub(super) struct Worker {
    pub(super) receiver: Receiver,
    pub(super) secret: ReceiverSecret,
    shared: Mutex<Shared>,
    arrived: Event,
}

struct Shared {
    cursors: BTreeMap<AppUid, StoredCursor>,
    /// The apps to be looked at, in order.
    queue: VecDeque<AppUid>,
    /// The least version of the state to look at for each of them; `None`: the state is read anew.
    versions: BTreeMap<AppUid, Option<Version>>,
    status: ReceiverStatus,
}

impl Worker {
    pub(super) fn new(
        receiver: Receiver,
        secret: ReceiverSecret,
        cursors: BTreeMap<AppUid, StoredCursor>,
        status: ReceiverStatus,
    ) -> Self {
        let shared = Shared { cursors, queue: VecDeque::new(), versions: BTreeMap::new(), status };
        Self { receiver, secret, shared: Mutex::new(shared), arrived: Event::new() }
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

    /// The number of apps to be looked at.
    pub(super) fn waiting(&self) -> usize {
        self.lock().queue.len()
    }

    /// Resolves at the next arrival after this call.
    pub(super) fn listen(&self) -> EventListener {
        self.arrived.listen()
    }

    /// Returns whether the receiver may have to be told of something, as far as an app's state says.
    pub(super) fn may_have_news(&self, state: &AppState, has_drift: bool) -> bool {
        if !self.receiver.apps.contains(&state.app) {
            return false;
        }
        match self.lock().cursors.get(&state.app.uid) {
            Some(known) => known.cursor.is_behind(state) || has_drift || known.cursor.drift.is_some(),
            None => has_drift || state.updated_at >= self.receiver.added_at,
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
        self.lock().cursors.remove(&app)
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
