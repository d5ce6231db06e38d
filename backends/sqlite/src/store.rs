//! The store as its users hold it: channels to the tasks that own the connections.

use std::{
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use rollhook_core::{Error, Result, ports::Wake, time::Timestamp};
use rollhook_sealing::KeyRing;
use sqlx::SqliteConnection;
use tokio::sync::{broadcast, mpsc};

use crate::{
    clock::StoreClock,
    connection::{BUSY_TIMEOUT, Link, prepare},
    error::{Failure, classify},
    job::call,
    reader::{Read, Reader},
    schema,
    writer::{Op, Write, Writer},
};

/// Calls that may wait in a channel before their callers wait to put more into it.
const WAITING: usize = 4096;
/// Wakes that a listener may be behind with before it is told [`Wake::Any`] instead.
const WAKES: usize = 1024;

/// Apps, tokens and history in one SQLite file; clones share its connections.
#[derive(Clone)]
pub struct SqliteStore {
    pub(crate) writer: mpsc::Sender<Op>,
    /// Lookups by name: one per request, and quick.
    pub(crate) lookups: mpsc::Sender<Read>,
    pub(crate) views: mpsc::Sender<Read>,
    /// Lists, which may be long, apart from what must be quick.
    pub(crate) pages: mpsc::Sender<Read>,
    pub(crate) wakes: broadcast::Sender<Wake>,
    pub(crate) ring: Arc<KeyRing>,
    commits: Arc<AtomicU64>,
}

impl SqliteStore {
    /// Opens the file, made with mode 0600 where it is missing, and brings it to this version's schema. Tokens are
    /// sealed with the ring's keys.
    ///
    /// # Errors
    /// `Unavailable` where the file cannot be opened, `Corrupt` where it is no database, `Invalid` where a newer version
    /// or another program wrote it.
    pub async fn open(path: impl AsRef<Path>, ring: KeyRing) -> Result<Self> {
        Self::open_with_clock(path, ring, StoreClock::system()).await
    }

    /// Opens the file with a clock of one's own.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub async fn open_with_clock(path: impl AsRef<Path>, ring: KeyRing, clock: StoreClock) -> Result<Self> {
        let path = path.as_ref();
        let link = open_writer(path).await.map_err(|error| naming(path, error))?;
        let (writer, calls) = mpsc::channel(WAITING);
        let (wakes, _) = broadcast::channel(WAKES);
        let commits = Arc::default();
        let lane = || {
            let (lane, calls) = mpsc::channel(WAITING);
            tokio::spawn(Reader { link: Link::reader(path), calls, clock: clock.clone() }.run());
            lane
        };
        let (lookups, views, pages) = (lane(), lane(), lane());
        let task = Writer {
            link,
            calls,
            wakes: wakes.clone(),
            clock,
            commits: Arc::clone(&commits),
            housekeeping: Default::default(),
        };
        tokio::spawn(task.run());
        Ok(Self { writer, lookups, views, pages, wakes, ring: Arc::new(ring), commits })
    }

    /// SQLite's `journal_mode` and `synchronous` as the writing connection has them: `("wal", 2)` means that what was
    /// answered survives a power loss.
    ///
    /// # Errors
    /// `Unavailable` where the file is away or locked.
    pub async fn durability(&self) -> Result<(String, i64)> {
        self.write(Durability).await
    }

    /// Number of transactions that this handle has committed; lower than the number of writes where they shared some.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    pub(crate) async fn write<W: Write>(&self, write: W) -> Result<W::Output> {
        call(&self.writer, write, |job| Op::Rare(Box::new(job))).await
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("keys", &self.ring).field("commits", &self.commits()).finish()
    }
}

async fn open_writer(path: &Path) -> Result<Link> {
    prepare(path)?;
    let mut link = Link::writer(path);
    schema::migrate(first_connection(&mut link).await?).await?;
    Ok(link)
}

/// The error with the file's name before what is wrong with it.
fn naming(path: &Path, mut error: Error) -> Error {
    if let Error::Denied { what, .. }
    | Error::Invalid { what, .. }
    | Error::Unavailable { what, .. }
    | Error::Corrupt { what, .. } = &mut error
    {
        *what = format!("{}: {what}", path.display());
    }
    error
}

/// Changing a new file to WAL mode needs it alone, which SQLite does not wait for by itself.
async fn first_connection(link: &mut Link) -> Result<&mut SqliteConnection> {
    const STEP: Duration = Duration::from_millis(50);
    let mut waited = Duration::ZERO;
    loop {
        match link.get().await.map(drop).map_err(Failure::from) {
            Err(failure) if failure.is_busy() && waited < BUSY_TIMEOUT => {
                tokio::time::sleep(STEP).await;
                waited += STEP;
            }
            Err(failure) => return Err(failure.to_error()),
            Ok(()) => return link.get().await.map_err(classify),
        }
    }
}

struct Durability;

#[async_trait]
impl Write for Durability {
    type Output = (String, i64);

    async fn write(
        &self,
        connection: &mut SqliteConnection,
        _: Timestamp,
    ) -> sqlx::Result<Result<Self::Output, Error>> {
        let mode = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *connection).await?;
        let synchronous = sqlx::query_scalar("PRAGMA synchronous").fetch_one(connection).await?;
        Ok(Ok((mode, synchronous)))
    }
}
