//! The journal: the one way to a [`HistoryStore`].
//!
//! The journal remembers states by version, has one commit under way per app and joins the requests that wait for it,
//! joins commits of different apps where the store can, and decides again when another process was faster. A remembered
//! state is only a guess: a change made on it is committed if the store still has its version, and a request that would
//! change nothing is answered once a fresh read confirms it.
//!
//! Nothing here spawns: a commit under way is a future that all of its requests poll. If the last of them is dropped,
//! the commit is dropped, and the remembered states of its apps are forgotten.

mod commit;
mod observers;
mod states;

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures_util::future::BoxFuture;

use commit::{Request, RequestOutcome};
use observers::Observers;
use states::States;

use super::ATTEMPTS;
use crate::{
    app::AppUid,
    error::{Entity, Error, Result},
    ledger::{Admitted, AppState, Change, KeyLookup, KeyUse},
    ports::{
        AppChange, AppCommit, AppRef, Clock, DeployObserver, Heartbeat, HistoryStore, HistoryStoreExt, Loaded,
        StoreLimits, Version,
    },
    replica::ReplicaId,
    request::IdempotencyKey,
    time::Timestamp,
};

/// The outcome of deciding a request.
pub(super) enum Decision<T> {
    /// The change is committed, then the request is answered.
    Commit(T),
    /// Nothing is changed; the request is answered if the state is fresh.
    Answer(T),
    /// An earlier request of the same commit changed the same deploy: the request needs a commit of its own.
    NextCommit,
    /// The answer depends on the stored use of the idempotency key.
    ReadKey,
}

impl Decision<Admitted> {
    /// Returns the decision of an admission's outcome.
    pub(super) fn of(admitted: Admitted) -> Self {
        match admitted {
            Admitted::New { .. } => Self::Commit(admitted),
            Admitted::NextCommit => Self::NextCommit,
            Admitted::Replayed(_) | Admitted::KeyReused | Admitted::Outdated | Admitted::Full | Admitted::Locked(_) => {
                Self::Answer(admitted)
            }
        }
    }
}

impl<T> Decision<T> {
    pub(super) fn map<U>(self, map: impl FnOnce(T) -> U) -> Decision<U> {
        match self {
            Self::Commit(answer) => Decision::Commit(map(answer)),
            Self::Answer(answer) => Decision::Answer(map(answer)),
            Self::NextCommit => Decision::NextCommit,
            Self::ReadKey => Decision::ReadKey,
        }
    }
}

/// An app at some point in time.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) state: Arc<AppState>,
    /// The time of the store's clock at that point.
    pub(super) now: Timestamp,
}

impl Snapshot {
    pub(super) fn into_state(self) -> AppState {
        Arc::unwrap_or_clone(self.state)
    }
}

/// The journal of one store: see the module.
pub(super) struct Journal {
    store: Arc<dyn HistoryStore>,
    clock: Arc<dyn Clock>,
    limits: StoreLimits,
    observers: Observers,
    shared: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    states: States,
    waiting: HashMap<AppUid, VecDeque<Weak<Request>>>,
    /// The apps with waiting requests and no commit under way.
    ready: VecDeque<AppUid>,
    committing: BTreeSet<AppUid>,
    commits_under_way: usize,
    /// The store's clock at the last read, and the process's time of that read.
    time: Option<(Timestamp, Duration)>,
}

impl Journal {
    pub(super) fn new(
        store: Arc<dyn HistoryStore>,
        clock: Arc<dyn Clock>,
        observers: Vec<Arc<dyn DeployObserver>>,
    ) -> Arc<Self> {
        let limits = store.limits();
        let observers = Observers::new(observers, Arc::clone(&clock));
        Arc::new(Self { store, clock, limits, observers, shared: Mutex::default() })
    }

    /// Loads an app. Returns `None` if it is unknown.
    pub(super) async fn load(&self, app: AppRef<'_>) -> Result<Option<Snapshot>> {
        Ok(self.load_with_key(app, None).await?.map(|(snapshot, ..)| snapshot))
    }

    /// Returns an app as it was at most this long ago, or loads it. Returns `None` if it is unknown.
    pub(super) async fn recent(&self, app: AppUid, age: Duration) -> Result<Option<Snapshot>> {
        let known = {
            let shared = self.lock();
            let since = self.clock.elapsed().saturating_sub(age);
            let state = shared.states.get(app).filter(|known| known.read_at >= since).map(|known| known.state.clone());
            state.map(|state| Snapshot { state, now: self.time(&shared) })
        };
        match known {
            Some(snapshot) => Ok(Some(snapshot)),
            None => self.load(AppRef::Uid(app)).await,
        }
    }

    /// Returns an app's remembered state if it is of this version or a higher one, or loads it. Returns `None` if the
    /// app is unknown.
    pub(super) async fn since(&self, app: AppUid, version: Version) -> Result<Option<Snapshot>> {
        let known = {
            let shared = self.lock();
            let state =
                shared.states.get(app).filter(|known| known.version >= version).map(|known| known.state.clone());
            state.map(|state| Snapshot { state, now: self.time(&shared) })
        };
        match known {
            Some(snapshot) => Ok(Some(snapshot)),
            None => self.load(AppRef::Uid(app)).await,
        }
    }

    /// Returns the remembered state of an app, which may be outdated.
    pub(super) fn remembered(&self, app: AppUid) -> Option<Arc<AppState>> {
        self.lock().states.get(app).map(|known| Arc::clone(&known.state))
    }

    /// Returns whether the hint is about a commit that this process knows.
    pub(super) fn is_known(&self, change: &AppChange) -> bool {
        match change {
            AppChange::App(app, version) => self.lock().states.get(*app).is_some_and(|known| known.version >= *version),
            AppChange::Any => false,
        }
    }

    /// Decides a request on the app's state, and commits the change. The decision may be made several times, each on
    /// another state.
    ///
    /// # Errors
    /// `NotFound` if the app is unknown, `Conflict` if other processes were faster again and again; `Unavailable`: the
    /// commit may have been written.
    pub(super) async fn update<T: Send + 'static>(
        self: &Arc<Self>,
        app: AppUid,
        key: Option<&IdempotencyKey>,
        mut decide: impl FnMut(&mut Change, KeyLookup, Timestamp) -> Decision<T> + Send + 'static,
    ) -> Result<(T, Snapshot)> {
        let value = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&value);
        let decide = move |change: &mut Change, lookup, now| {
            let mut answer = None;
            let decision = decide(change, lookup, now).map(|decided| answer = Some(decided));
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = answer;
            decision
        };
        let request = Arc::new(Request::new(app, Box::new(decide)));
        let mut fresh = self.lock().states.get(app).is_none();
        let mut read_key = false;
        for _ in 0..ATTEMPTS {
            if fresh || read_key {
                let key = key.filter(|_| read_key);
                let Some((_, used, version)) = self.load_with_key(AppRef::Uid(app), key).await? else {
                    return Err(Error::NotFound(Entity::App));
                };
                request.confirm(key.map(|_| used), version);
            }
            match self.settle(&request).await {
                RequestOutcome::Done(snapshot) => {
                    let answer = value.lock().unwrap_or_else(PoisonError::into_inner).take();
                    return answer.map(|answer| (answer, snapshot)).ok_or(Error::Conflict(Entity::Version));
                }
                RequestOutcome::Again => fresh = true,
                RequestOutcome::ReadKey => read_key = true,
                RequestOutcome::Failed(error) => return Err(error),
            }
        }
        Err(Error::Conflict(Entity::Version))
    }

    /// Registers an app, with the first change of its state.
    pub(super) async fn register(&self, change: Change) -> Result<Snapshot> {
        let change = Arc::new(change);
        let commit = self.observers.begin(None, Arc::clone(&change));
        let answer = self.store.commit_one(AppCommit::Register(Box::new(Change::clone(&change)))).await;
        commit.answered(&answer);
        let committed = answer?;
        let mut shared = self.lock();
        self.note_time(&mut shared, committed.now);
        let (state, read_at) = (Arc::new(Arc::unwrap_or_clone(change).state), self.clock.elapsed());
        let state = shared.states.remember(state, committed.version, read_at);
        Ok(Snapshot { state, now: committed.now })
    }

    /// Removes an app; a missing app is no error.
    ///
    /// # Errors
    /// `Conflict` if the app has unfinished deploys or an unfinished run by hand, or another call changed it meanwhile.
    pub(super) async fn remove(&self, app: AppUid) -> Result<()> {
        if let Some(loaded) = self.store.load(AppRef::Uid(app), None).await? {
            if !loaded.state.unfinished.is_empty() || loaded.state.runs.unfinished.is_some() {
                return Err(Error::Conflict(Entity::Version));
            }
            match self.store.commit_one(AppCommit::Remove(app, loaded.version)).await {
                Ok(_) | Err(Error::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.removed(app);
        Ok(())
    }

    /// Forgets an app that was removed.
    pub(super) fn removed(&self, app: AppUid) {
        self.lock().states.forget(app);
        self.observers.removed(app);
    }

    /// Returns the store's clock now, if it was ever read.
    pub(super) fn now(&self) -> Option<Timestamp> {
        let shared = self.lock();
        shared.time.map(|_| self.time(&shared))
    }

    /// Records that this replica is alive, and returns all living ones.
    pub(super) async fn heartbeat(&self, replica: &ReplicaId, ttl: Duration) -> Result<Heartbeat> {
        let heartbeat = self.store.heartbeat(replica, ttl).await?;
        self.note_time(&mut self.lock(), heartbeat.now);
        Ok(heartbeat)
    }

    async fn load_with_key(
        &self,
        app: AppRef<'_>,
        key: Option<&IdempotencyKey>,
    ) -> Result<Option<(Snapshot, Option<KeyUse>, Version)>> {
        let asked_at = self.clock.elapsed();
        let loaded = self.store.load(app, key).await?;
        let Some(Loaded { state, version, key, now }) = loaded else {
            if let AppRef::Uid(app) = app {
                self.lock().states.forget(app);
            }
            return Ok(None);
        };
        let state = {
            let mut shared = self.lock();
            self.note_time(&mut shared, now);
            // A read older than a commit that this process knows is outdated.
            shared.states.remember(Arc::new(state), version, asked_at)
        };
        self.observers.loaded(&*self.store, &state, version).await;
        Ok(Some((Snapshot { state, now }, key, version)))
    }

    /// Waits until the request is decided, and polls the commit that it belongs to.
    async fn settle(self: &Arc<Self>, request: &Arc<Request>) -> RequestOutcome {
        self.lock().enqueue(request);
        self.start();
        loop {
            let listener = request.listen();
            if let Some(outcome) = request.take_outcome() {
                return outcome;
            }
            match request.commit_future() {
                Some(commit_future) => commit_future.await,
                None => listener.await,
            }
        }
    }

    /// Starts commits while there are requests and room for them.
    fn start(self: &Arc<Self>) {
        loop {
            // Requests are answered after the lock was released: the last one of a commit may be dropped then, and its
            // end takes the lock.
            let Some((batch, unknown)) = self.lock().next_batch(&self.limits) else { return };
            for request in unknown.iter().filter_map(Weak::upgrade) {
                request.decided(RequestOutcome::Again);
            }
            if !batch.is_empty() {
                commit::start(self, batch);
            }
        }
    }

    fn time(&self, shared: &Shared) -> Timestamp {
        let (read, at) = shared.time.unwrap_or_default();
        read.after(self.clock.elapsed().saturating_sub(at))
    }

    fn note_time(&self, shared: &mut Shared, now: Timestamp) {
        shared.time = Some((now, self.clock.elapsed()));
    }

    /// A poisoned lock is usable: no code that could panic leaves the state half changed.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn enqueue(&mut self, request: &Arc<Request>) {
        let waiting = self.waiting.entry(request.app).or_default();
        waiting.push_back(Arc::downgrade(request));
        if waiting.len() == 1 && !self.committing.contains(&request.app) {
            self.ready.push_back(request.app);
        }
    }

    /// Returns the requests of the next commit, and those whose app's state is unknown. Returns `None` if no request
    /// waits, or there is no room for another commit.
    fn next_batch(&mut self, limits: &StoreLimits) -> Option<(Vec<commit::AppBatch>, Vec<Weak<Request>>)> {
        if self.ready.is_empty() || self.commits_under_way >= limits.commits_at_once.max(1) {
            return None;
        }
        let (mut batch, mut unknown) = (Vec::new(), Vec::new());
        while batch.len() < limits.apps_per_commit.max(1)
            && let Some(app) = self.ready.pop_front()
        {
            let waiting = self.waiting.remove(&app).into_iter().flatten();
            let requests: Vec<_> = waiting.filter(|request| request.strong_count() > 0).collect();
            if requests.is_empty() {
                continue;
            }
            match self.states.used(app) {
                Some(known) => {
                    let (state, version) = (Arc::clone(&known.state), known.version);
                    self.committing.insert(app);
                    batch.push(commit::AppBatch { app, state, version, requests });
                }
                None => unknown.extend(requests),
            }
        }
        self.commits_under_way += usize::from(!batch.is_empty());
        Some((batch, unknown))
    }

    /// Ends a commit; requests that it left over wait for the next one. A dropped commit may have been written.
    fn commit_ended(&mut self, apps: &[AppUid], is_dropped: bool) {
        self.commits_under_way = self.commits_under_way.saturating_sub(1);
        for app in apps {
            if is_dropped {
                self.states.forget(*app);
            }
            self.committing.remove(app);
            if self.waiting.get(app).is_some_and(|waiting| !waiting.is_empty()) {
                self.ready.push_back(*app);
            }
        }
    }
}

type Decide = Box<dyn FnMut(&mut Change, KeyLookup, Timestamp) -> Decision<()> + Send>;
type CommitFuture = futures_util::future::Shared<BoxFuture<'static, ()>>;
