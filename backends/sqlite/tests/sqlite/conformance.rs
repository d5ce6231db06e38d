//! The stores keep what the ports promise.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use rollhook_conformance::{Can, Handles, Stores};
use rollhook_core::{app::AppUid, configuration::ConfigurationId, deploy::Revision, time::Timestamp};
use rollhook_sealing::KeyRing;
use rollhook_sqlite::SqliteStore;
use rusqlite::{Connection, Params};
use tempfile::TempDir;
use zeroize::Zeroizing;

struct Fresh {
    place: TempDir,
    /// How often the store has ended abruptly.
    ends: AtomicU32,
    now: Arc<AtomicI64>,
}

impl Fresh {
    fn store() -> Can<Self> {
        let fresh = Self {
            place: tempfile::tempdir().unwrap(),
            ends: AtomicU32::new(0),
            now: Arc::new(AtomicI64::new(1_800_000_000_000)),
        };
        fs::create_dir(fresh.directory()).unwrap();
        Ok(fresh)
    }

    fn directory(&self) -> PathBuf {
        self.place.path().join(self.ends.load(Ordering::SeqCst).to_string())
    }

    fn ring() -> KeyRing {
        KeyRing::from_keys([("k0001".parse().unwrap(), Zeroizing::new([7; 32]))]).unwrap()
    }

    fn change(&self, statement: &str, parameters: impl Params) -> Can {
        let connection = Connection::open(self.directory().join("store.db")).unwrap();
        assert_eq!(connection.execute(statement, parameters).unwrap(), 1);
        Ok(())
    }
}

fn bytes(app: AppUid) -> [u8; 16] {
    app.as_bits().to_be_bytes()
}

#[async_trait]
impl Stores for Fresh {
    async fn open(&self) -> Handles {
        let now = Arc::clone(&self.now);
        let clock = Arc::new(move || Timestamp::from_millis(now.load(Ordering::SeqCst)));
        let path = self.directory().join("store.db");
        let store = Arc::new(SqliteStore::open_with_clock(path, Self::ring(), clock).await.unwrap());
        Handles {
            tokens: store.clone(),
            configurations: Some(store.clone()),
            records: Some(store.clone()),
            history: store,
        }
    }

    /// Opens a copy of the files as they lie on the disk while the store is open: nothing was closed or checkpointed.
    async fn reopen(&self) -> Can<Handles> {
        let before = self.directory();
        self.ends.fetch_add(1, Ordering::SeqCst);
        fs::create_dir(self.directory()).unwrap();
        for file in fs::read_dir(before).unwrap().map(|file| file.unwrap()) {
            // The index of the log lies in memory that is shared, and is made anew.
            if !file.file_name().to_string_lossy().ends_with("-shm") {
                fs::copy(file.path(), self.directory().join(file.file_name())).unwrap();
            }
        }
        Ok(self.open().await)
    }

    async fn pause(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn advance(&self, time: Duration) -> Can {
        self.now.fetch_add(i64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
        Ok(())
    }

    async fn set_back(&self, time: Duration) -> Can {
        self.now.fetch_sub(i64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
        Ok(())
    }

    async fn corrupt_state(&self, app: AppUid) -> Can {
        self.change("UPDATE apps SET document = '{\"app\":' WHERE uid = ?1", [bytes(app)])
    }

    async fn corrupt_entry(&self, app: AppUid, revision: Revision) -> Can {
        let statement = "UPDATE deploys SET document = '{\"id\":' \
                         WHERE app = (SELECT id FROM apps WHERE uid = ?1) AND revision = ?2";
        self.change(statement, (bytes(app), i64::try_from(revision.get()).unwrap()))
    }

    async fn raw_bytes(&self) -> Can<Vec<u8>> {
        let mut bytes = Vec::new();
        for file in fs::read_dir(self.directory()).unwrap() {
            bytes.extend(fs::read(file.unwrap().path()).unwrap());
        }
        Ok(bytes)
    }

    async fn move_secret(&self, from: AppUid, to: AppUid) -> Can {
        let statement = "INSERT OR REPLACE INTO tokens (app, sealed, created_at) \
                         SELECT (SELECT id FROM apps WHERE uid = ?2), sealed, created_at FROM tokens \
                         WHERE app = (SELECT id FROM apps WHERE uid = ?1)";
        self.change(statement, (bytes(from), bytes(to)))
    }

    async fn move_configuration(&self, from: (AppUid, ConfigurationId), to: (AppUid, ConfigurationId)) -> Can {
        let of = |app: &str, id: &str| format!("app = (SELECT id FROM apps WHERE uid = {app}) AND id = {id}");
        let from_row = format!("SELECT sealed FROM configurations WHERE {}", of("?1", "?2"));
        let statement = format!("UPDATE configurations SET sealed = ({from_row}) WHERE {}", of("?3", "?4"));
        let id = |id: ConfigurationId| id.0.to_be_bytes();
        self.change(&statement, (bytes(from.0), id(from.1), bytes(to.0), id(to.1)))
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

rollhook_conformance::stores!(block_on, Fresh::store());
