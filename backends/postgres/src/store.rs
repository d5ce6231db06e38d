//! The store.

use std::{
    collections::hash_map::RandomState,
    fmt,
    hash::BuildHasher,
    sync::{Arc, atomic::AtomicBool},
};

use rollhook_core::Result;
use rollhook_sealing::KeyRing;
use rollhook_sql::{Hints, located};
use sqlx::postgres::PgConnectOptions;
use tokio::sync::watch;

use crate::{address, connections::Connections, housekeeping, lookup::Lookups, schema};

/// The most commits at the same time: one is prepared while the server waits for its disk with the other. More of them
/// would be smaller, and so dearer.
pub(crate) const COMMITS: usize = 2;

/// Apps, tokens, configurations, history and records in one PostgreSQL database; clones share its connections. There are at
/// most eleven, and those that are not used are closed.
#[derive(Clone)]
pub struct PostgresStore {
    pub(crate) writes: Connections,
    pub(crate) reads: Connections,
    /// Lookups that every request begins with, apart from reads that may be long.
    pub(crate) lookups: Lookups,
    pub(crate) options: Arc<PgConnectOptions>,
    pub(crate) hints: Hints,
    /// The word that marks this store's own notifications.
    pub(crate) sender: Arc<str>,
    pub(crate) ring: Arc<KeyRing>,
    pub(crate) is_listening: Arc<AtomicBool>,
    /// Its end tells the tasks in the background that the last clone is gone.
    pub(crate) closing: Arc<watch::Sender<()>>,
}

impl PostgresStore {
    /// Connects to the database that the URL names, and brings its schema `rollhook` to this version. Tokens and
    /// configurations are sealed with the ring's keys. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// `Invalid` if the URL cannot be used, or the schema is of another version or another program; `Denied` if the
    /// database refuses the user; `Unavailable` while the server is away. None of them shows the password.
    pub async fn connect(url: &str, ring: KeyRing) -> Result<Self> {
        let options = address::parse(url)?;
        if address::may_be_plain(&options) {
            tracing::warn!(
                database = address::place(&options),
                "connecting to the database without requiring TLS: passwords and history may cross the network in the \
                 clear; add sslmode=verify-full to its URL"
            );
        }
        schema::migrate(&options).await.map_err(|error| located(&address::place(&options), error))?;
        let options = Arc::new(options);
        let connections = |most| Connections::new(&options, most);
        let (writes, reads, lookups, closing) =
            (connections(COMMITS + 2), connections(4), connections(2), Arc::default());
        let store = Self {
            lookups: Lookups::start(lookups.clone()),
            hints: Hints::default(),
            // Two handles with the same word would only miss each other's hints.
            sender: format!("{:016x}", RandomState::new().hash_one(std::process::id())).into(),
            ring: Arc::new(ring),
            is_listening: Arc::default(),
            writes,
            reads,
            options,
            closing,
        };
        let all = [store.writes.clone(), store.reads.clone(), lookups];
        tokio::spawn(housekeeping::run(all, store.closing.subscribe()));
        Ok(store)
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("keys", &self.ring).finish_non_exhaustive()
    }
}
