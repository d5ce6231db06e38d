//! The whole service on memory and a simulated cluster, in one thread, under a clock that moves only when nothing else
//! can.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

use std::{
    collections::BTreeMap,
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{FutureExt, select_biased};
use rollhook_conformance::samples::{git_source, settings};
use rollhook_core::{
    app::{AppId, HoldPolicy, OnFailure, Policy, Source},
    deploy::{Commit, Deploy, Revision, State, Status},
    image::ImageRef,
    ledger::{AppState, Change, Record, check::check},
    ports::{AppCommit, AppRef, BranchReader, Clock, HistoryStore, HistoryStoreExt, Page, Rng},
    request::{DeployRequest, Registration, RollbackRequest},
    service::{Accepted, Authorized, Builder, Deployer, Outcome, Ports, Principal},
    source::AllowedSources,
    time::Timestamp,
};
use rollhook_memory::{MemoryStore, SimulatedBuilds, SimulatedCluster};
use serde_json::json;

/// How long a build takes.
pub const BUILD: Duration = Duration::from_secs(30);

/// A clock that the executor moves.
#[derive(Default)]
pub struct SimClock {
    now: Mutex<Duration>,
    sleepers: Mutex<BTreeMap<(Duration, u64), Waker>>,
    slept: AtomicU64,
}

impl SimClock {
    /// Moves to the next moment that somebody sleeps for; false where nobody does.
    fn advance(&self) -> bool {
        let Some(((at, _), waker)) = self.sleepers.lock().unwrap().pop_first() else { return false };
        let mut now = self.now.lock().unwrap();
        *now = at.max(*now);
        drop(now);
        waker.wake();
        true
    }
}

struct Sleep<'a> {
    clock: &'a SimClock,
    key: (Duration, u64),
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if *self.clock.now.lock().unwrap() >= self.key.0 {
            return Poll::Ready(());
        }
        self.clock.sleepers.lock().unwrap().insert(self.key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.clock.sleepers.lock().unwrap().remove(&self.key);
    }
}

#[async_trait]
impl Clock for SimClock {
    fn elapsed(&self) -> Duration {
        *self.now.lock().unwrap()
    }

    async fn sleep(&self, duration: Duration) {
        let at = self.elapsed() + duration;
        let key = (at, self.slept.fetch_add(1, Ordering::Relaxed));
        Sleep { clock: self, key }.await;
    }
}

/// Randomness that is the same in every run.
pub struct SimRng(AtomicU64);

impl SimRng {
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed.wrapping_mul(0x1234_5678_9abc_def1)))
    }
}

impl Rng for SimRng {
    fn fill(&self, bytes: &mut [u8]) {
        for byte in bytes {
            // SplitMix64.
            let seed = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            *byte = (mixed >> 56) as u8;
        }
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs a future to its end, moving the clock whenever it waits for nothing else.
pub fn block_on<T>(clock: &SimClock, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let flag = Arc::new(Flag(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&flag));
    for _ in 0..50_000_000 {
        if flag.0.swap(false, Ordering::SeqCst) {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return value;
            }
        } else {
            assert!(clock.advance(), "everybody waits, and nobody sleeps");
        }
    }
    panic!("no end in sight");
}

/// The service and all that it acts on.
pub struct World {
    pub clock: Arc<SimClock>,
    pub store: Arc<MemoryStore>,
    pub cluster: Arc<SimulatedCluster>,
    pub builds: Arc<SimulatedBuilds>,
    pub deployer: Arc<Deployer>,
    pub operator: Principal,
    pub skew: Arc<Mutex<i64>>,
}

impl World {
    /// One replica on an empty store, and a cluster where a rollout takes this long.
    pub fn new(delay: Duration) -> Self {
        let clock = Arc::new(SimClock::default());
        let skew = Arc::new(Mutex::new(0));
        let (time, offset) = (Arc::clone(&clock), Arc::clone(&skew));
        let store = Arc::new(MemoryStore::new(Arc::new(move || {
            Timestamp::from_millis(1_700_000_000_000 + *offset.lock().unwrap()).after(time.elapsed())
        })));
        let cluster = Arc::new(SimulatedCluster::new(Arc::clone(&clock) as Arc<dyn Clock>, delay));
        let builds = Arc::new(SimulatedBuilds::new(Arc::clone(&clock) as Arc<dyn Clock>, BUILD));
        let deployer = Arc::new(Deployer::new(ports(&clock, &store, &cluster, &builds, 1), "one"));
        Self { clock, store, cluster, builds, deployer, operator: Principal::trusted("alice"), skew }
    }

    /// Another process on the same store and cluster.
    pub fn replica(&self, name: &str, seed: u64) -> Arc<Deployer> {
        Arc::new(Deployer::new(self.ports(seed), name))
    }

    /// The ports of another process on the same store and cluster.
    pub fn ports(&self, seed: u64) -> Ports {
        ports(&self.clock, &self.store, &self.cluster, &self.builds, seed)
    }

    /// Another process that reads branches in its own way.
    pub fn replica_with_branches(&self, name: &str, branches: Arc<dyn BranchReader>) -> Deployer {
        let builder = Builder { builds: Arc::clone(&self.builds) as _, branches, sources: AllowedSources::default() };
        Deployer::new(Ports { builder: Some(builder), ..self.ports(9) }, name)
    }

    /// Runs a scenario while the engine runs beside it.
    pub fn run<T>(&self, scenario: impl Future<Output = T>) -> T {
        self.run_beside(&self.deployer, scenario)
    }

    /// Runs a scenario while this engine runs beside it.
    pub fn run_beside<T>(&self, engine: &Deployer, scenario: impl Future<Output = T>) -> T {
        block_on(&self.clock, async {
            let mut engine = pin!(engine.run(std::future::pending()).fuse());
            let mut scenario = pin!(scenario.fuse());
            select_biased! {
                () = engine => unreachable!("nobody shuts the engine down"),
                value = scenario => value,
            }
        })
    }

    /// Runs a scenario with nobody driving.
    pub fn idle<T>(&self, scenario: impl Future<Output = T>) -> T {
        block_on(&self.clock, scenario)
    }

    pub async fn sleep(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
    }

    /// Registers `shop-test/NAME`, made with image `api:v1`, and waits until that runs.
    pub async fn app(&self, name: &str, policy: Policy) -> Authorized {
        let access = self.register(name, policy).await;
        self.ended(&access, 1).await;
        access
    }

    pub async fn register(&self, name: &str, policy: Policy) -> Authorized {
        let wanted = registration(name, policy);
        let registered = self.deployer.register(&self.operator, wanted, None).await.unwrap();
        self.deployer.open(&self.operator, &registered.app.app.id).await.unwrap()
    }

    /// The access that the app's webhook token gives.
    pub async fn webhook(&self, id: &AppId) -> Authorized {
        let secret = self.deployer.enable_webhook(&self.operator, id).await.unwrap();
        let credentials = rollhook_core::token::Credentials::token(secret.token.expose().as_bytes());
        self.deployer.authorize(id, &credentials, b"{}").await.unwrap()
    }

    pub async fn deploy(&self, access: &Authorized, image: &str) -> Outcome<Accepted> {
        self.deployer.submit(access, request(image)).await
    }

    /// Deploys and waits for the end.
    pub async fn deployed(&self, access: &Authorized, image: &str) -> Deploy {
        let revision = self.deploy(access, image).await.unwrap().deploy.revision;
        self.ended(access, revision.get()).await
    }

    pub async fn rollback(&self, access: &Authorized) -> Outcome<Accepted> {
        self.deployer.rollback(&self.operator, access.app(), RollbackRequest::default()).await
    }

    /// Rolls back and waits for the end.
    pub async fn rolled_back(&self, access: &Authorized) -> Deploy {
        let revision = self.rollback(access).await.unwrap().deploy.revision;
        self.ended(access, revision.get()).await
    }

    /// The entry once it has ended, within two hours.
    pub async fn ended(&self, access: &Authorized, revision: u64) -> Deploy {
        let revision = Revision::new(revision).unwrap();
        let mut seen = 0;
        for _ in 0..10_000 {
            let changed = self.deployer.changed(access, revision, seen, Duration::from_secs(10)).await;
            let (_, entry) = changed.unwrap();
            if entry.is_terminal() {
                return entry;
            }
            seen = entry.step;
        }
        panic!("revision {revision} never ends");
    }

    pub async fn entry(&self, access: &Authorized, revision: u64) -> Deploy {
        self.deployer.entry(access, Revision::new(revision).unwrap()).await.unwrap()
    }

    pub async fn view(&self, access: &Authorized) -> AppState {
        self.deployer.state(access).await.unwrap()
    }

    /// Commits what the ledger makes of the app, past the service.
    pub async fn commit(&self, access: &Authorized, make: impl FnOnce(&mut Change, Timestamp)) {
        let loaded = self.store.load(AppRef::Uid(access.uid()), None).await.unwrap().unwrap();
        let mut change = Change::on(loaded.state);
        make(&mut change, loaded.now);
        let commit = AppCommit::Update(loaded.version, Box::new(change));
        self.store.commit_one(commit).await.unwrap();
    }

    /// Records these states of deploys, past the service.
    pub async fn record(&self, access: &Authorized, changes: Vec<Deploy>) {
        let record = Record { changes, ..Record::default() };
        self.commit(access, |change, now| change.record(record, now).unwrap()).await;
    }

    /// The store's clock.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + *self.skew.lock().unwrap()).after(self.clock.elapsed())
    }

    /// The whole history, oldest first, which must keep the rules.
    pub async fn history(&self, access: &Authorized) -> Vec<Deploy> {
        let page = Page { before: None, succeeded: false, limit: 100_000 };
        let (view, mut history) = self.deployer.history(access, page).await.unwrap();
        history.reverse();
        assert_eq!(check(&history, &view), Vec::new());
        history
    }

    /// Waits until nothing is unfinished and nothing is owed, and returns the history.
    pub async fn quiet(&self, access: &Authorized) -> Vec<Deploy> {
        for _ in 0..10_000 {
            self.sleep(5).await;
            let before = self.history(access).await;
            if before.iter().all(Deploy::is_terminal) {
                self.sleep(5).await;
                let after = self.history(access).await;
                if before == after {
                    return after;
                }
            }
        }
        panic!("it never gets quiet");
    }

    /// The revisions that changed the cluster, in order.
    pub fn effects(&self) -> Vec<u64> {
        self.cluster.effects().iter().map(|effect| effect.stamp.revision.get()).collect()
    }
}

fn ports(
    clock: &Arc<SimClock>,
    store: &Arc<MemoryStore>,
    cluster: &Arc<SimulatedCluster>,
    builds: &Arc<SimulatedBuilds>,
    seed: u64,
) -> Ports {
    Ports {
        tokens: Arc::clone(store) as _,
        history: Arc::clone(store) as _,
        records: Some(Arc::clone(store) as _),
        rollouts: Arc::clone(cluster) as _,
        builder: Some(Builder {
            builds: Arc::clone(builds) as _,
            branches: Arc::clone(builds) as _,
            sources: AllowedSources::default(),
        }),
        clock: Arc::clone(clock) as _,
        rng: Arc::new(SimRng::new(seed)),
    }
}

pub fn registration(name: &str, policy: Policy) -> Registration {
    Registration {
        project: "shop".parse().unwrap(),
        environment: "test".parse().unwrap(),
        name: name.parse().unwrap(),
        source: Source::Image,
        target: settings(json!({ "template": { "replicas": 2 } })),
        image: Some(image("registry.example.com/api:v1")),
        policy,
        take_over: false,
    }
}

/// The registration of a git app, of the one source that the scenarios have.
pub fn git(name: &str, policy: Policy) -> Registration {
    Registration { source: Source::Git(git_source()), image: None, ..registration(name, policy) }
}

/// A commit of these first digits, in full.
pub fn sha(digits: &str) -> Commit {
    format!("{digits:0<40}").parse().unwrap()
}

pub fn image(text: &str) -> ImageRef {
    text.parse().unwrap()
}

pub fn api(tag: &str) -> String {
    format!("registry.example.com/api:{tag}")
}

/// Why an entry ended, as a code and a sentence.
pub fn reason(deploy: &Deploy) -> (String, String) {
    match &deploy.state {
        State::Failed { reason, message, .. } | State::Cancelled { reason, message } => {
            (reason.to_string(), message.clone())
        }
        State::Queued
        | State::Building { .. }
        | State::RollingOut { .. }
        | State::Succeeded { .. }
        | State::Superseded { .. } => panic!("{:?} has no reason", deploy.state),
    }
}

pub fn request(text: &str) -> DeployRequest {
    let commit: Commit = "abc123f".parse().unwrap();
    DeployRequest { image: Some(image(text)), commit: Some(commit), key: None }
}

/// The last word of an image's tag.
pub fn tag(deploy: &Deploy) -> String {
    deploy.image.as_ref().and_then(|image| image.tag().map(str::to_owned)).unwrap_or_default()
}

pub fn statuses(history: &[Deploy]) -> Vec<(u64, Status)> {
    history.iter().map(|deploy| (deploy.revision.get(), deploy.status())).collect()
}

pub fn leave() -> Policy {
    Policy { on_failure: OnFailure::Leave, ..Policy::default() }
}

pub fn hold_all() -> Policy {
    Policy { hold: HoldPolicy::All, ..Policy::default() }
}
