//! The store in memory, with one promise broken.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use rollhook_conformance::{Can, Handles, Lack, Stores};
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    deploy::{Deploy, Revision},
    error::Entity,
    ledger::KeyUse,
    ports::{
        AppChange, AppCommit, AppPage, AppRef, Binding, Committed, DriverIdentity, Heartbeat, HistoryStore,
        HistoryStoreExt, ListedApp, Loaded, Page, Sealing, StoreLimits, TokenStore, Version, WebhookSecret,
    },
    replica::ReplicaId,
    request::IdempotencyKey,
    time::Timestamp,
    token::Token,
};
use rollhook_memory::MemoryStore;

/// A promise of a store that is broken here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StorePromise {
    /// All of them are kept.
    Kept,
    /// The version is checked and the change written as one step: here another thread gets in between.
    CommitIsOneStep,
    /// The keys of a removed app go with it: here they stay.
    KeysGo,
    /// A heartbeat counts for all of its time: here its last moment is left out.
    WholeTtl,
    /// A taken name is told before a taken namespace: here it is the other way round.
    AppBeforeNamespace,
    /// The keys of a registration are stored: here they are dropped.
    RegistrationKeepsKeys,
    /// The ended deploys of a registration are stored: here they are dropped.
    RegistrationKeepsEnded,
    /// An app's state is loaded as it was committed: here without the time of its registration.
    RegistrationTime,
    /// A heartbeat of the future counts from the next one on: here it does not count.
    FutureCounts,
    /// A token is stored with its time: here without.
    TokenTime,
    /// A commit that was answered is on the disk: here the last one is still to be written.
    CommitsAreDurable,
    /// A token that was put is on the disk: here it never gets there.
    TokensAreDurable,
    /// A page has no evidence: here it has.
    PagesLackEvidence,
    /// A fresh list has what others committed: here it is that of the first time.
    ListIsFresh,
}

/// A store in memory with a clock that is moved by hand; handles share it.
pub(crate) struct BrokenStore {
    promise: StorePromise,
    millis: Arc<AtomicI64>,
    memory: Arc<MemoryStore>,
    keys: Mutex<BTreeMap<(AppUid, String), KeyUse>>,
    heartbeats: Mutex<BTreeMap<String, (Timestamp, Duration)>>,
    /// The commits that were written, in their order.
    written: Mutex<Vec<AppCommit>>,
}

impl BrokenStore {
    pub(crate) fn new(promise: StorePromise) -> Arc<Self> {
        let millis = Arc::new(AtomicI64::new(1_700_000_000_000));
        let clock = Arc::clone(&millis);
        let memory = MemoryStore::new(Arc::new(move || Timestamp::from_millis(clock.load(Ordering::SeqCst))));
        let (keys, heartbeats, written) = Default::default();
        Arc::new(Self { promise, millis, memory: Arc::new(memory), keys, heartbeats, written })
    }

    /// Returns the store as it is on the disk.
    async fn stored(self: Arc<Self>) -> Arc<Self> {
        let lost = match self.promise {
            StorePromise::CommitsAreDurable => 1,
            StorePromise::TokensAreDurable => 0,
            _ => return self,
        };
        let stored = Self::new(self.promise);
        let mut written = self.written.lock().unwrap().clone();
        written.truncate(written.len() - lost);
        stored.memory.commit(written).await;
        stored
    }

    /// Checks the version, and then writes whatever is stored by then.
    async fn commit_in_two_steps(&self, commit: AppCommit) -> Result<Committed> {
        let AppCommit::Update(version, change) = commit else { return self.memory.commit_one(commit).await };
        let app = change.state.app.uid;
        let mut stored = self.version(app).await?;
        if stored != version {
            return Err(Error::Conflict(Entity::Version));
        }
        // A store that reads a file or asks a server takes longer than this.
        std::thread::yield_now();
        loop {
            match self.memory.commit_one(AppCommit::Update(stored, change.clone())).await {
                Err(Error::Conflict(Entity::Version)) => stored = self.version(app).await?,
                answer => return answer,
            }
        }
    }

    async fn version(&self, app: AppUid) -> Result<Version> {
        let loaded = self.memory.load(AppRef::Uid(app), None).await?;
        Ok(loaded.ok_or(Error::NotFound(Entity::App))?.version)
    }

    async fn commit_and_note_keys(&self, commit: AppCommit) -> Result<Committed> {
        let app = commit.app();
        let keys = commit.change().map(|change| change.keys.clone()).unwrap_or_default();
        let committed = self.memory.commit_one(commit).await?;
        self.keys.lock().unwrap().extend(keys.into_iter().map(|write| ((app, write.key.key), write.made)));
        Ok(committed)
    }

    async fn commit_namespace_first(&self, commit: AppCommit) -> Result<Committed> {
        if let AppCommit::Register(change) = &commit {
            let app = &change.state.app;
            let all = AppPage::first(usize::MAX).of(app.id.namespace.clone());
            if self.memory.states(all).await?.iter().any(|other| other.app.project != app.project) {
                return Err(Error::Conflict(Entity::Namespace));
            }
        }
        self.memory.commit_one(commit).await
    }

    async fn commit_without_a_part(&self, mut commit: AppCommit) -> Result<Committed> {
        if let AppCommit::Register(change) = &mut commit {
            match self.promise {
                StorePromise::RegistrationKeepsKeys => change.keys.clear(),
                _ => change.ended.clear(),
            }
        }
        self.memory.commit_one(commit).await
    }

    fn timed(&self, secret: WebhookSecret) -> WebhookSecret {
        match self.promise {
            StorePromise::TokenTime => WebhookSecret { created_at: Timestamp::default(), ..secret },
            _ => secret,
        }
    }

    fn shift(&self, millis: i64) -> Can {
        self.millis.fetch_add(millis, Ordering::SeqCst);
        Ok(())
    }
}

#[async_trait]
impl HistoryStore for BrokenStore {
    async fn load(&self, app: AppRef<'_>, key: Option<&IdempotencyKey>) -> Result<Option<Loaded>> {
        let Some(mut loaded) = self.memory.load(app, key).await? else { return Ok(None) };
        if self.promise == StorePromise::RegistrationTime {
            Arc::make_mut(&mut loaded.state.app).created_at = Timestamp::default();
        }
        if let (StorePromise::KeysGo, Some(key), None) = (self.promise, key, loaded.key) {
            loaded.key = self.keys.lock().unwrap().get(&(loaded.state.app.uid, key.key.clone())).copied();
        }
        Ok(Some(loaded))
    }

    async fn commit(&self, commits: Vec<AppCommit>) -> Vec<Result<Committed>> {
        let mut answers = Vec::with_capacity(commits.len());
        for commit in commits {
            answers.push(match self.promise {
                StorePromise::CommitIsOneStep => self.commit_in_two_steps(commit).await,
                StorePromise::KeysGo => self.commit_and_note_keys(commit).await,
                StorePromise::AppBeforeNamespace => self.commit_namespace_first(commit).await,
                StorePromise::RegistrationKeepsKeys | StorePromise::RegistrationKeepsEnded => {
                    self.commit_without_a_part(commit).await
                }
                StorePromise::CommitsAreDurable | StorePromise::TokensAreDurable => {
                    self.written.lock().unwrap().push(commit.clone());
                    self.memory.commit_one(commit).await
                }
                _ => self.memory.commit_one(commit).await,
            });
        }
        answers
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        let mut deploys = self.memory.page(app, page).await?;
        if self.promise == StorePromise::PagesLackEvidence {
            for deploy in &mut deploys {
                *deploy = self.memory.archived(app, deploy.revision).await?.unwrap();
            }
        }
        Ok(deploys)
    }

    async fn archived(&self, app: AppUid, revision: Revision) -> Result<Option<Deploy>> {
        self.memory.archived(app, revision).await
    }

    async fn list(&self, page: AppPage) -> Result<Vec<ListedApp>> {
        if self.promise == StorePromise::ListIsFresh {
            let first = self.memory.list(AppPage::first(0)).await?;
            return Ok(first);
        }
        self.memory.list(page).await
    }

    async fn work(&self, alive: &[ReplicaId], limit: usize) -> Result<Vec<AppUid>> {
        self.memory.work(alive, limit).await
    }

    async fn heartbeat(&self, replica: &ReplicaId, ttl: Duration) -> Result<Heartbeat> {
        let Heartbeat { now, mut alive } = self.memory.heartbeat(replica, ttl).await?;
        let mut heartbeats = self.heartbeats.lock().unwrap();
        heartbeats.insert(replica.to_string(), (now, ttl));
        let counts = |at: Timestamp, ttl: Duration| match self.promise {
            StorePromise::WholeTtl => now.since(at) < ttl,
            StorePromise::FutureCounts => at <= now,
            _ => true,
        };
        alive.retain(|replica| heartbeats.get(&replica.to_string()).is_none_or(|(at, ttl)| counts(*at, *ttl)));
        Ok(Heartbeat { now, alive })
    }

    async fn bind_driver(&self, driver: &DriverIdentity, binding: Binding) -> Result<DriverIdentity> {
        self.memory.bind_driver(driver, binding).await
    }

    fn watch(&self) -> BoxStream<'static, AppChange> {
        self.memory.watch()
    }

    fn limits(&self) -> StoreLimits {
        self.memory.limits()
    }
}

#[async_trait]
impl TokenStore for BrokenStore {
    async fn put(&self, app: AppUid, token: &Token) -> Result<WebhookSecret> {
        self.memory.put(app, token).await.map(|secret| self.timed(secret))
    }

    async fn rotate(&self, app: AppUid, token: &Token, until: Timestamp) -> Result<WebhookSecret> {
        self.memory.rotate(app, token, until).await
    }

    async fn find(&self, app: &AppId) -> Result<Option<WebhookSecret>> {
        Ok(self.memory.find(app).await?.map(|secret| self.timed(secret)))
    }

    async fn remove(&self, app: AppUid) -> Result<()> {
        self.memory.remove(app).await
    }

    fn sealing(&self) -> Sealing {
        self.memory.sealing()
    }
}

/// A fresh broken store.
pub(crate) struct BrokenStores(pub(crate) Arc<BrokenStore>);

#[async_trait]
impl Stores for BrokenStores {
    async fn open(&self) -> Handles {
        let records = Some(self.0.memory.clone() as _);
        Handles { history: self.0.clone(), configurations: None, tokens: self.0.clone(), records }
    }

    async fn reopen(&self) -> Can<Handles> {
        Ok(Self(self.0.clone().stored().await).open().await)
    }

    async fn pause(&self, time: Duration) {
        self.0.shift(time.as_millis() as i64).unwrap();
    }

    async fn advance(&self, time: Duration) -> Can {
        self.0.shift(time.as_millis() as i64)
    }

    async fn set_back(&self, time: Duration) -> Can {
        self.0.shift(-(time.as_millis() as i64))
    }

    async fn corrupt_state(&self, _: AppUid) -> Can {
        Err(Lack::NotApplicable("nothing is serialized"))
    }

    async fn corrupt_entry(&self, _: AppUid, _: Revision) -> Can {
        Err(Lack::NotApplicable("nothing is serialized"))
    }

    async fn raw_bytes(&self) -> Can<Vec<u8>> {
        Err(Lack::NotApplicable("nothing is serialized"))
    }

    async fn move_secret(&self, _: AppUid, _: AppUid) -> Can {
        Err(Lack::NotApplicable("nothing is serialized"))
    }
}
