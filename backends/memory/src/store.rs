//! The store's one lock, and what lies behind it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use rollhook_core::{
    Error, Result,
    app::{App, AppId, AppName, AppUid, Environment, Namespace, Project},
    ports::WebhookSecret,
    time::Timestamp,
};

use crate::{claims::Claims, entries::Entries, keys::Keys, wakes::Wakes};

/// Where a store's time comes from.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Registrations, secrets and history, in memory; clones of its `Arc` are handles on one store.
pub struct MemoryStore {
    now: Now,
    state: Mutex<State>,
    pub(crate) wakes: Arc<Wakes>,
}

impl MemoryStore {
    /// An empty store whose clock is this function.
    pub fn new(now: Now) -> Self {
        Self { now, state: Mutex::default(), wakes: Arc::default() }
    }

    /// An empty store on the system's time.
    #[expect(clippy::disallowed_methods, reason = "a store's clock is the wall clock")]
    pub fn on_system_time() -> Self {
        Self::new(Arc::new(|| {
            let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
            Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
        }))
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// No write leaves its data half changed before it could panic, so that a poisoned lock is no reason to stop.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything that the store knows.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) spaces: BTreeMap<Namespace, Space>,
    pub(crate) ledgers: BTreeMap<AppUid, Ledger>,
    pub(crate) claims: Claims,
    pub(crate) operator_hash: Option<[u8; 32]>,
}

/// A namespace that has apps, and the pair that it belongs to for as long.
pub(crate) struct Space {
    pub(crate) project: Project,
    pub(crate) environment: Environment,
    pub(crate) apps: BTreeMap<AppName, AppUid>,
}

/// All that belongs to one registration.
pub(crate) struct Ledger {
    pub(crate) app: App,
    pub(crate) secret: Option<WebhookSecret>,
    pub(crate) entries: Entries,
    pub(crate) keys: Keys,
    /// The latest time that was stored, below which none may follow.
    pub(crate) written: Timestamp,
}

impl State {
    pub(crate) fn ledger(&self, uid: AppUid) -> Result<&Ledger> {
        self.ledgers.get(&uid).ok_or(Error::NotFound("app"))
    }

    pub(crate) fn ledger_mut(&mut self, uid: AppUid) -> Result<&mut Ledger> {
        self.ledgers.get_mut(&uid).ok_or(Error::NotFound("app"))
    }

    pub(crate) fn named(&self, id: &AppId) -> Option<&Ledger> {
        self.ledgers.get(self.spaces.get(&id.namespace)?.apps.get(&id.name)?)
    }
}

impl Ledger {
    pub(crate) fn new(app: App) -> Self {
        let written = app.created_at;
        Self { app, secret: None, entries: Entries::default(), keys: Keys::default(), written }
    }

    /// The app's own time: the store's clock, but never before what was stored.
    pub(crate) fn time(&self, now: Timestamp) -> Timestamp {
        self.written.max(now)
    }

    /// The time to store with a write.
    pub(crate) fn stamp(&mut self, now: Timestamp) -> Timestamp {
        self.written = self.time(now);
        self.written
    }
}
