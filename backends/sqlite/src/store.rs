//! The store: senders of calls to the threads that own the connections.

use std::{
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Instant, SystemTime},
};

use rollhook_core::{
    Error, Result,
    ports::{WallClock, steady},
};
use rollhook_sealing::KeyRing;
use rollhook_sql::{Hints, located};

use crate::{
    call::{Calls, Clocks},
    connection, reader,
    writer::Writer,
};

/// Apps, deploys, tokens, configurations and records in one SQLite file; clones share its connections.
#[derive(Clone)]
pub struct SqliteStore {
    pub(crate) writer: Calls,
    /// Reads of one row: several per request, and quick.
    pub(crate) reader: Calls,
    /// Reads of many rows, apart from those that must be quick.
    pub(crate) long_reader: Calls,
    pub(crate) hints: Hints,
    pub(crate) ring: Arc<KeyRing>,
    commits: Arc<AtomicU64>,
}

impl SqliteStore {
    /// Opens the file, which is created with mode 0600 if it is missing. The ring's keys seal tokens and
    /// configurations.
    ///
    /// # Errors
    /// `Unavailable` if the file cannot be opened, `Corrupt` if it is no database, `Invalid` if a newer version or
    /// another program wrote it.
    #[expect(clippy::disallowed_methods, reason = "a store's clock is the wall clock")]
    pub async fn open(path: impl AsRef<Path>, ring: KeyRing) -> Result<Self> {
        let start = Instant::now();
        let wall: WallClock = Arc::new(|| SystemTime::now().into());
        let stored = steady(wall.clone(), move || start.elapsed());
        Self::open_with_clocks(path, ring, stored, wall).await
    }

    /// Opens the file with another clock than the machine's.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub async fn open_with_clock(path: impl AsRef<Path>, ring: KeyRing, clock: WallClock) -> Result<Self> {
        Self::open_with_clocks(path, ring, clock.clone(), clock).await
    }

    /// Opens the file with a clock for what is stored and expires, and one for heartbeats, which all processes on the
    /// file must share.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub async fn open_with_clocks(
        path: impl AsRef<Path>,
        ring: KeyRing,
        stored: WallClock,
        wall: WallClock,
    ) -> Result<Self> {
        let path = path.as_ref();
        let opened = Self::try_open(path, ring, Clocks { stored, wall }).await;
        opened.map_err(|error| located(&path.display().to_string(), error))
    }

    async fn try_open(path: &Path, ring: KeyRing, clocks: Clocks) -> Result<Self> {
        connection::create(path)?;
        let (hints, commits) = (Hints::default(), Arc::<AtomicU64>::default());
        let no_thread = |error| Error::unavailable("a thread for the database cannot be started", error);
        let writer = Writer::new(path, clocks.clone(), hints.clone(), Arc::clone(&commits));
        let (writer, opened) = writer.start().map_err(no_thread)?;
        opened.await.map_err(|error| Error::unavailable("the database cannot be opened", error))??;
        let reader = reader::start(path, &clocks).map_err(no_thread)?;
        let long_reader = reader::start(path, &clocks).map_err(no_thread)?;
        Ok(Self { writer, reader, long_reader, hints, ring: Arc::new(ring), commits })
    }

    /// Returns SQLite's `journal_mode` and `synchronous` of the writing connection: with `("wal", 2)`, a commit that
    /// was answered survives a power loss.
    ///
    /// # Errors
    /// `Unavailable` if the file is out of reach or locked.
    pub async fn durability(&self) -> Result<(String, i64)> {
        self.writer
            .run(|session| {
                let mode = session.connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
                let synchronous = session.connection.pragma_query_value(None, "synchronous", |row| row.get(0))?;
                Ok(Ok((mode, synchronous)))
            })
            .await
    }

    /// Returns the number of transactions that this handle and its clones have committed; calls that wait share one.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("keys", &self.ring).field("commits", &self.commits()).finish()
    }
}
