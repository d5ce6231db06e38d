//! The store as its users hold it: channels to the tasks that own the connections.

use std::{
    collections::hash_map::RandomState,
    fmt,
    hash::BuildHasher,
    sync::{Arc, atomic::AtomicBool},
};

use rollhook_core::{Error, Result, ports::Wake};
use rollhook_sealing::KeyRing;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::{broadcast, mpsc, watch};

use crate::{
    address,
    ask::Asked,
    housekeeping,
    lane::{self, Shared},
    lookup::Lookup,
    operator::HashCall,
    schema,
    views::ViewCall,
    write::Write,
};

/// Wakes that a listener may be behind with before it is told [`Wake::Any`] instead.
const WAKES: usize = 1024;
/// Batches of writes under way at once: one is made while the server waits for its disk with the other.
const WRITERS: usize = 2;

/// Apps, tokens and history in one PostgreSQL database; clones share its connections. There are at most nine, and those
/// that are not used are closed.
#[derive(Clone)]
pub struct PostgresStore {
    pub(crate) writes: mpsc::Sender<Write>,
    /// Lookups by name: one per request, and quick.
    pub(crate) lookups: mpsc::Sender<Lookup>,
    pub(crate) views: mpsc::Sender<ViewCall>,
    /// The management token, which every management call is checked against.
    pub(crate) operator: mpsc::Sender<HashCall>,
    /// Lists, which may be long, apart from what must be quick.
    pub(crate) pages: mpsc::Sender<Asked>,
    /// Claims, and what seldom comes.
    pub(crate) rare: mpsc::Sender<Asked>,
    pub(crate) shared: Shared,
    pub(crate) ring: Arc<KeyRing>,
    pub(crate) listening: Arc<AtomicBool>,
    /// Its end tells the tasks that serve no channel that nobody holds the store any more.
    pub(crate) closing: Arc<watch::Sender<()>>,
}

impl PostgresStore {
    /// Connects to the database that the URL names, and brings its schema `rollhook` to this version. Tokens are sealed
    /// with the ring's keys. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// `Invalid` where the URL cannot be used, or the schema is a newer version's or another program's; `Denied` where
    /// the database refuses the user; `Unavailable` where the server is away. None of them shows the password.
    pub async fn connect(url: &str, ring: KeyRing) -> Result<Self> {
        let options = address::parse(url)?;
        schema::migrate(&options).await.map_err(|error| naming(&options, error))?;
        let (wakes, _) = broadcast::channel::<Wake>(WAKES);
        let shared = Shared { options: Arc::new(options), wakes, sender: sender().into() };
        let rare = lane::open(1, &shared);
        let closing = Arc::new(watch::Sender::new(()));
        tokio::spawn(housekeeping::run(rare.downgrade(), closing.subscribe()));
        Ok(Self {
            writes: lane::open(WRITERS, &shared),
            lookups: lane::open(1, &shared),
            views: lane::open(1, &shared),
            operator: lane::open(1, &shared),
            pages: lane::open(1, &shared),
            rare,
            shared,
            ring: Arc::new(ring),
            listening: Arc::default(),
            closing,
        })
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("keys", &self.ring).finish_non_exhaustive()
    }
}

/// A word that no other handle has; that two had the same would cost one of them a hint.
fn sender() -> String {
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}

/// The error with the database's place before what is wrong with it.
fn naming(options: &PgConnectOptions, mut error: Error) -> Error {
    if let Error::Denied { what, .. }
    | Error::Invalid { what, .. }
    | Error::Unavailable { what, .. }
    | Error::Corrupt { what, .. } = &mut error
    {
        let place = address::place(options);
        *what = format!("{place}: {what}");
    }
    error
}
