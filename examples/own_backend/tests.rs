//! The backend keeps every promise of the ports: the conformance suite, on a file of its own per case.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use rollhook_conformance::{Can, Handles, Lack, Stores, block_on};
use rollhook_core::{app::AppUid, deploy::Revision, time::Timestamp};
use tempfile::TempDir;

use crate::store::JsonStore;

struct OnFile {
    directory: TempDir,
    now: Arc<AtomicI64>,
}

impl OnFile {
    fn fresh() -> Can<Self> {
        Ok(Self { directory: tempfile::tempdir().unwrap(), now: Arc::new(AtomicI64::new(1_700_000_000_000)) })
    }

    fn shift(&self, millis: i64) {
        self.now.fetch_add(millis, Ordering::SeqCst);
    }

    fn edit(&self, edit: impl FnOnce(&mut serde_json::Value)) {
        let path = self.directory.path().join("store.json");
        let mut value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        edit(&mut value);
        std::fs::write(path, serde_json::to_vec(&value).unwrap()).unwrap();
    }
}

#[async_trait]
impl Stores for OnFile {
    async fn open(&self) -> Handles {
        let now = Arc::clone(&self.now);
        let now = Arc::new(move || Timestamp::from_millis(now.load(Ordering::SeqCst)));
        let store = Arc::new(JsonStore::open(&self.directory.path().join("store.json"), &[7; 32], now));
        Handles { apps: store.clone(), tokens: store.clone(), history: store }
    }

    async fn pause(&self, time: Duration) {
        self.shift(time.as_millis() as i64);
    }

    async fn advance(&self, time: Duration) -> Can {
        self.shift(time.as_millis() as i64);
        Ok(())
    }

    async fn set_back(&self, time: Duration) -> Can {
        self.shift(-(time.as_millis() as i64));
        Ok(())
    }

    async fn corrupt_entry(&self, app: AppUid, revision: Revision) -> Can {
        let index = (revision.get() - 1) as usize;
        self.edit(|file| file["ledgers"][app.to_string()]["entries"][index]["trigger"] = "sabotage".into());
        Ok(())
    }

    async fn raw_bytes(&self) -> Can<Vec<u8>> {
        std::fs::read(self.directory.path().join("store.json")).map_err(|_| Lack::Skip("nothing was stored"))
    }

    async fn move_secret(&self, from: AppUid, to: AppUid) -> Can {
        self.edit(|file| {
            let token = file["ledgers"][from.to_string()]["token"].clone();
            file["ledgers"][to.to_string()]["token"] = token;
        });
        Ok(())
    }
}

rollhook_conformance::stores!(block_on, OnFile::fresh());
