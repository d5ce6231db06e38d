//! The stores keep what the ports promise.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use rollhook_conformance::{Can, Handles, Stores};
use rollhook_core::{app::AppUid, deploy::Revision, time::Timestamp};
use rollhook_sealing::KeyRing;
use rollhook_sqlite::SqliteStore;
use rusqlite::{Connection, Params};
use tempfile::TempDir;
use zeroize::Zeroizing;

struct Fresh {
    place: TempDir,
    now: Arc<AtomicI64>,
}

impl Fresh {
    fn store() -> Can<Self> {
        Ok(Self { place: tempfile::tempdir().unwrap(), now: Arc::new(AtomicI64::new(1_800_000_000_000)) })
    }

    fn ring() -> KeyRing {
        KeyRing::from_keys([("k0001".parse().unwrap(), Zeroizing::new([7; 32]))]).unwrap()
    }

    fn change(&self, statement: &str, parameters: impl Params) -> Can {
        let connection = Connection::open(self.place.path().join("store.db")).unwrap();
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
        let path = self.place.path().join("store.db");
        let store = Arc::new(SqliteStore::open_with_clock(path, Self::ring(), clock).await.unwrap());
        Handles { tokens: store.clone(), records: Some(store.clone()), history: store }
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
        for file in std::fs::read_dir(self.place.path()).unwrap() {
            bytes.extend(std::fs::read(file.unwrap().path()).unwrap());
        }
        Ok(bytes)
    }

    async fn move_secret(&self, from: AppUid, to: AppUid) -> Can {
        let statement = "INSERT OR REPLACE INTO tokens (app, sealed, created_at) \
                         SELECT (SELECT id FROM apps WHERE uid = ?2), sealed, created_at FROM tokens \
                         WHERE app = (SELECT id FROM apps WHERE uid = ?1)";
        self.change(statement, (bytes(from), bytes(to)))
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

rollhook_conformance::stores!(block_on, Fresh::store());
