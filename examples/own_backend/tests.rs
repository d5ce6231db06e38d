//! The conformance suite: the store keeps every promise of the ports. Each case has a file of its own.

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
use rollhook::{app::AppUid, deploy::Revision, sealing::KeyRing, time::Timestamp};
use rollhook_conformance::{Can, Handles, Lack, Stores, block_on};
use serde_json::Value;
use tempfile::TempDir;

use crate::file::JsonStore;

/// An empty file, and a clock that a case moves.
struct Fresh {
    root: TempDir,
    /// How often the store has ended abruptly.
    ends: AtomicU32,
    millis: Arc<AtomicI64>,
}

impl Fresh {
    fn store() -> Can<Self> {
        let (root, millis) = (tempfile::tempdir().unwrap(), Arc::new(AtomicI64::new(1_700_000_000_000)));
        let fresh = Self { root, ends: AtomicU32::new(0), millis };
        fs::create_dir(fresh.directory()).unwrap();
        Ok(fresh)
    }

    fn directory(&self) -> PathBuf {
        self.root.path().join(self.ends.load(Ordering::SeqCst).to_string())
    }

    fn file(&self) -> PathBuf {
        self.directory().join("store.json")
    }

    fn edit(&self, edit: impl FnOnce(&mut Value)) -> Can {
        let mut apps: Value = serde_json::from_slice(&fs::read(self.file()).unwrap()).unwrap();
        edit(&mut apps["apps"]);
        fs::write(self.file(), serde_json::to_vec(&apps).unwrap()).unwrap();
        Ok(())
    }

    fn move_clock(&self, millis: i64) -> Can {
        self.millis.fetch_add(millis, Ordering::SeqCst);
        Ok(())
    }
}

#[async_trait]
impl Stores for Fresh {
    async fn open(&self) -> Handles {
        let millis = Arc::clone(&self.millis);
        let clock = move || Timestamp::from_millis(millis.load(Ordering::SeqCst));
        let store = Arc::new(JsonStore::open(&self.directory(), KeyRing::of_key([7; 32]), Arc::new(clock)));
        // This store keeps no records: the platform authenticates people by itself.
        Handles { history: store.clone(), tokens: store, configurations: None, records: None }
    }

    /// Opens a copy of the file as it lies on the disk.
    async fn reopen(&self) -> Can<Handles> {
        let before = self.file();
        self.ends.fetch_add(1, Ordering::SeqCst);
        fs::create_dir(self.directory()).unwrap();
        fs::copy(before, self.file()).unwrap();
        Ok(self.open().await)
    }

    async fn pause(&self, time: Duration) {
        self.move_clock(time.as_millis() as i64).unwrap();
    }

    async fn advance(&self, time: Duration) -> Can {
        self.move_clock(time.as_millis() as i64)
    }

    async fn set_back(&self, time: Duration) -> Can {
        self.move_clock(-(time.as_millis() as i64))
    }

    async fn corrupt_state(&self, app: AppUid) -> Can {
        self.edit(|apps| apps[app.to_string()]["state"]["latest"] = "sabotage".into())
    }

    async fn corrupt_entry(&self, app: AppUid, revision: Revision) -> Can {
        self.edit(|apps| apps[app.to_string()]["archive"][revision.to_string()]["trigger"] = "sabotage".into())
    }

    async fn raw_bytes(&self) -> Can<Vec<u8>> {
        fs::read(self.file()).map_err(|_| Lack::Skip("nothing is stored"))
    }

    async fn move_secret(&self, from: AppUid, to: AppUid) -> Can {
        self.edit(|apps| apps[to.to_string()]["token"] = apps[from.to_string()]["token"].clone())
    }
}

rollhook_conformance::stores!(block_on, Fresh::store());

// Each operation of a sequence replaces the file, so that a few dozen sequences take seconds.
rollhook_conformance::model!(block_on, Fresh::store(), 32);
