//! The store suites, on the store in memory, with a clock that is moved by hand.

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
use rollhook_memory::MemoryStore;

struct InMemory {
    now: Arc<AtomicI64>,
    store: Arc<MemoryStore>,
}

impl InMemory {
    fn fresh() -> Can<Self> {
        let now = Arc::new(AtomicI64::new(1_700_000_000_000));
        let clock = Arc::clone(&now);
        let store = MemoryStore::new(Arc::new(move || Timestamp::from_millis(clock.load(Ordering::SeqCst))));
        Ok(Self { now, store: Arc::new(store) })
    }

    fn shift(&self, millis: i64) {
        self.now.fetch_add(millis, Ordering::SeqCst);
    }
}

#[async_trait]
impl Stores for InMemory {
    async fn open(&self) -> Handles {
        let configurations = Some(self.store.clone() as _);
        let records = Some(self.store.clone() as _);
        Handles { history: self.store.clone(), tokens: self.store.clone(), configurations, records }
    }

    async fn reopen(&self) -> Can<Handles> {
        Err(Lack::NotApplicable("nothing outlives the process"))
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

    async fn corrupt_state(&self, _: AppUid) -> Can {
        Err(Lack::NotApplicable("states are never written in a form that must be read again"))
    }

    async fn corrupt_entry(&self, _: AppUid, _: Revision) -> Can {
        Err(Lack::NotApplicable("entries are never written in a form that must be read again"))
    }

    async fn raw_bytes(&self) -> Can<Vec<u8>> {
        Err(Lack::NotApplicable("nothing is written anywhere"))
    }

    async fn move_secret(&self, _: AppUid, _: AppUid) -> Can {
        Err(Lack::NotApplicable("nothing is written anywhere"))
    }
}

rollhook_conformance::stores!(block_on, InMemory::fresh());

rollhook_conformance::model!(block_on, InMemory::fresh(), 500);
