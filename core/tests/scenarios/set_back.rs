//! A store that is set back while the service runs, as by restoring a backup: what is stored is believed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use rollhook_core::{
    Result,
    action::Action,
    app::{AppUid, Policy},
    deploy::{Deploy, Revision, Status},
    ledger::Change,
    ports::{
        AppChange, AppCommit, AppPage, AppRef, Binding, Committed, DriverIdentity, Heartbeat, HistoryStore,
        HistoryStoreExt, ListedApp, Loaded, Page,
    },
    replica::ReplicaId,
    request::IdempotencyKey,
    service::{Authorized, Deployer},
};
use rollhook_memory::MemoryStore;

use crate::world::{self, World, api};

/// A store in whose place its backup is put.
struct Restored {
    store: Arc<MemoryStore>,
    backup: Arc<MemoryStore>,
    is_restored: AtomicBool,
}

impl Restored {
    fn now(&self) -> &MemoryStore {
        if self.is_restored.load(Ordering::Relaxed) { &self.backup } else { &self.store }
    }
}

#[async_trait]
impl HistoryStore for Restored {
    async fn load(&self, app: AppRef<'_>, key: Option<&IdempotencyKey>) -> Result<Option<Loaded>> {
        self.now().load(app, key).await
    }

    async fn commit(&self, commits: Vec<AppCommit>) -> Vec<Result<Committed>> {
        self.now().commit(commits).await
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        self.now().page(app, page).await
    }

    async fn archived(&self, app: AppUid, revision: Revision) -> Result<Option<Deploy>> {
        self.now().archived(app, revision).await
    }

    async fn list(&self, page: AppPage) -> Result<Vec<ListedApp>> {
        self.now().list(page).await
    }

    async fn work(&self, alive: &[ReplicaId], limit: usize) -> Result<Vec<AppUid>> {
        self.now().work(alive, limit).await
    }

    async fn heartbeat(&self, replica: &ReplicaId, ttl: Duration) -> Result<Heartbeat> {
        self.now().heartbeat(replica, ttl).await
    }

    async fn bind_driver(&self, driver: &DriverIdentity, binding: Binding) -> Result<DriverIdentity> {
        self.now().bind_driver(driver, binding).await
    }

    fn watch(&self) -> BoxStream<'static, AppChange> {
        self.now().watch()
    }
}

/// An app that was backed up when it ran revision 1, and runs revision 3 by now.
async fn restored(world: &World, store: &Restored, deployer: &Deployer) -> Authorized {
    let access = world.register("api", Policy::default()).await;
    let access = deployer.allow(world.operator.clone(), access.app(), Action::ALL).await.unwrap();
    let ended = async |revision: u64| {
        world.sleep(60).await;
        let entry = deployer.entry(&access, Revision::new(revision).unwrap()).await.unwrap();
        assert_eq!(entry.status(), Status::Succeeded);
    };
    ended(1).await;
    let backup = world.store.load(AppRef::Uid(access.uid()), None).await.unwrap().unwrap();
    let mut change = Change::register((*backup.state.app).clone());
    change.state = backup.state;
    change.ended.extend(change.state.current.clone());
    store.backup.commit_one(AppCommit::Register(Box::new(change))).await.unwrap();
    for revision in [2, 3] {
        deployer.submit(&access, world::request(&api(&format!("v{revision}")))).await.unwrap();
        ended(revision).await;
    }
    store.is_restored.store(true, Ordering::Relaxed);
    world.sleep(1).await;
    access
}

fn in_a_restored_store(scenario: impl AsyncFnOnce(&World, &Deployer, Authorized)) {
    let world = World::new(Duration::from_secs(1));
    let (clock, skew) = (Arc::clone(&world.clock), Arc::clone(&world.skew));
    let backup = Arc::new(MemoryStore::new(Arc::new(move || {
        use rollhook_core::{ports::Clock, time::Timestamp};
        Timestamp::from_millis(1_700_000_000_000 + *skew.lock().unwrap()).after(clock.elapsed())
    })));
    let store = Arc::new(Restored { store: world.store.clone(), backup, is_restored: AtomicBool::new(false) });
    let deployer = Deployer::new(world.ports(9).with(|ports| ports.history = store.clone()), "two");
    world.run_beside(&deployer, async {
        let access = restored(&world, &store, &deployer).await;
        scenario(&world, &deployer, access).await;
    });
}

#[test]
fn state_that_was_set_back_is_shown() {
    in_a_restored_store(async |world, deployer, access| {
        let mut latest = Vec::new();
        for _ in 0..3 {
            latest.push(deployer.state(&access).await.unwrap().latest.unwrap().get());
            world.sleep(1).await;
        }
        assert_eq!(latest, [3, 1, 1], "one read may have been answered by what lags behind");
    });
}

#[test]
fn deploy_on_a_store_that_was_set_back_is_accepted_and_ends() {
    in_a_restored_store(async |world, deployer, access| {
        let accepted = deployer.submit(&access, world::request(&api("v4"))).await.unwrap();
        assert_eq!(accepted.deploy.revision.get(), 2, "it follows what is stored");
        world.sleep(60).await;
        let entry = deployer.entry(&access, accepted.deploy.revision).await.unwrap();
        assert!(entry.is_terminal(), "{:?}", entry.state);
    });
}
