//! The store's one lock, and the maps behind it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use rollhook_core::{
    app::{AppId, AppName, AppUid, Namespace},
    configuration::{ConfigurationId, Variables},
    deploy::{Deploy, Revision},
    ledger::{AppState, KeyUse},
    ports::{AppRef, DriverIdentity, StoredConfiguration, Version, WallClock, WebhookSecret, steady},
    request::KeyHeader,
    time::Timestamp,
};

use crate::notifier::Notifier;
#[cfg(feature = "management")]
use crate::records::Records;

/// Apps, their history, their secrets and records, in memory; clones of its `Arc` are handles on one store.
pub struct MemoryStore {
    clock: WallClock,
    tables: Mutex<Tables>,
    pub(crate) notifier: Arc<Notifier>,
}

impl MemoryStore {
    /// An empty store on this clock.
    pub fn new(clock: WallClock) -> Self {
        Self { clock, tables: Mutex::default(), notifier: Arc::default() }
    }

    /// An empty store on the system's time.
    #[expect(clippy::disallowed_methods, reason = "a store's clock is the wall clock")]
    pub fn on_system_time() -> Self {
        let start = Instant::now();
        Self::new(steady(Arc::new(|| SystemTime::now().into()), move || start.elapsed()))
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Ignores poisoning: no write can panic while its data is half changed.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The contents of the store.
#[derive(Default)]
pub(crate) struct Tables {
    pub(crate) apps: BTreeMap<AppUid, Stored>,
    pub(crate) namespaces: BTreeMap<Namespace, BTreeMap<AppName, AppUid>>,
    pub(crate) replicas: BTreeMap<String, Life>,
    pub(crate) driver: Option<DriverIdentity>,
    #[cfg(feature = "management")]
    pub(crate) records: Records,
    /// The number of commits, of which each makes a version.
    pub(crate) commits: u64,
}

/// A key's header and text.
pub(crate) type KeyName = (KeyHeader, String);

/// An app with all that belongs to it.
pub(crate) struct Stored {
    pub(crate) state: AppState,
    pub(crate) version: Version,
    pub(crate) archive: BTreeMap<Revision, Arc<Deploy>>,
    pub(crate) keys: BTreeMap<KeyName, KeyUse>,
    /// The uses of keys by the time at which they expire.
    pub(crate) expiring: BTreeSet<(Timestamp, KeyName)>,
    pub(crate) secret: Option<WebhookSecret>,
    pub(crate) configurations: BTreeMap<ConfigurationId, (Variables, StoredConfiguration)>,
}

/// The last heartbeat of a replica's name.
pub(crate) struct Life {
    pub(crate) boot: u64,
    pub(crate) heartbeat_at: Timestamp,
    pub(crate) ttl: Duration,
}

impl Tables {
    pub(crate) fn app(&self, app: AppRef<'_>) -> Option<&Stored> {
        let uid = match app {
            AppRef::Uid(uid) => uid,
            AppRef::Name(AppId { namespace, name }) => *self.namespaces.get(namespace)?.get(name)?,
        };
        self.apps.get(&uid)
    }
}
