//! The whole service on memory and a simulated cluster, in one thread, under a clock that moves only when nothing else
//! can.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "the core and the management plane use their parts")]

mod executor;
mod values;

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{FutureExt, select_biased};
use rollhook_core::{
    action::Action,
    app::{AppId, Policy},
    deploy::{Actor, Deploy, Revision, Status},
    ledger::{AppState, Change, Record, check::check},
    ports::{AppCommit, AppRef, BranchReader, Clock, HistoryStore, HistoryStoreExt, Page},
    request::{DeployRequest, Registration, RollbackRequest},
    service::{Accepted, Authorized, BuildPorts, Deployer, Outcome, Ports},
    time::Timestamp,
};
use rollhook_memory::{MemoryStore, SimulatedBuilds, SimulatedCluster, SimulatedRegistry, SimulatedVerifier};
use rollhook_workloads::Workloads;

pub use executor::{SimClock, SimRng, block_on};
pub use values::{api, digest, git, hold_all, image, leave, reason, registration, request, sha, statuses, tag};

/// How long a build takes.
pub const BUILD: Duration = Duration::from_secs(30);

/// The service and all that it acts on.
pub struct World {
    pub clock: Arc<SimClock>,
    pub store: Arc<MemoryStore>,
    pub cluster: Arc<SimulatedCluster>,
    pub builds: Arc<SimulatedBuilds>,
    pub verifier: Arc<SimulatedVerifier>,
    pub deployer: Arc<Deployer>,
    pub operator: Actor,
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
        let verifier = Arc::new(SimulatedVerifier::new(Arc::clone(&clock) as Arc<dyn Clock>));
        let ports = ports(&clock, &store, &cluster, &builds, &verifier, 1);
        let deployer = Arc::new(Deployer::new(ports, "one"));
        Self { clock, store, cluster, builds, verifier, deployer, operator: Actor::person("alice"), skew }
    }

    /// Another process on the same store and cluster.
    pub fn replica(&self, name: &str, seed: u64) -> Arc<Deployer> {
        Arc::new(Deployer::new(self.ports(seed), name))
    }

    /// The ports of another process on the same store and cluster.
    pub fn ports(&self, seed: u64) -> Ports {
        ports(&self.clock, &self.store, &self.cluster, &self.builds, &self.verifier, seed)
    }

    /// Another process, and the registry that it reads.
    pub fn replica_with_registry(&self, name: &str) -> (Arc<SimulatedRegistry>, Deployer) {
        let registry = Arc::new(SimulatedRegistry::new(Arc::clone(&self.clock) as Arc<dyn Clock>));
        let ports = self.ports(9).with(|ports| ports.registry = Some(registry.clone()));
        (registry, Deployer::new(ports, name))
    }

    /// Another process that reads branches in its own way.
    pub fn replica_with_branches(&self, name: &str, branches: Arc<dyn BranchReader>) -> Deployer {
        let builder = BuildPorts::new(self.builds.clone(), branches);
        Deployer::new(self.ports(9).with(|ports| ports.builder = Some(builder)), name)
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
                end = engine => panic!("the engine has stopped: {end:?}"),
                value = scenario => value,
            }
        })
    }

    /// Runs a scenario without an engine.
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
        self.registered(registration(name, policy)).await
    }

    /// Registers the git app `shop-test/api`, of which nothing runs.
    pub async fn git_app(&self, policy: Policy) -> Authorized {
        self.registered(git("api", policy)).await
    }

    /// Registers the git app `shop-test/api`, and waits until revision 1 runs, built from `a1`.
    pub async fn built_app(&self, policy: Policy) -> Authorized {
        let access = self.git_app(policy).await;
        self.deploy_commit(&access, "a1").await.unwrap();
        assert_eq!(self.ended(&access, 1).await.status(), Status::Succeeded);
        access
    }

    pub async fn registered(&self, wanted: Registration) -> Authorized {
        let registered = self.deployer.register(&self.operator, wanted, None).await.unwrap();
        self.access(&registered.app.app.id).await
    }

    /// The operator's proof for an app, of every action.
    pub async fn access(&self, id: &AppId) -> Authorized {
        self.deployer.allow(self.operator.clone(), id, Action::ALL).await.unwrap()
    }

    /// The access that the app's webhook token gives.
    pub async fn webhook(&self, access: &Authorized) -> Authorized {
        let secret = self.deployer.enable_webhook(access).await.unwrap();
        let credentials = rollhook_core::token::Credentials::token(secret.token.expose().as_bytes());
        self.deployer.authorize(access.app(), &credentials, b"{}").await.unwrap()
    }

    pub async fn deploy(&self, access: &Authorized, image: &str) -> Outcome<Accepted> {
        self.deployer.submit(access, request(image)).await
    }

    /// Deploys the commit of these first digits.
    pub async fn deploy_commit(&self, access: &Authorized, digits: &str) -> Outcome<Accepted> {
        let request = DeployRequest::commit(sha(digits));
        self.deployer.submit(access, request).await
    }

    /// Deploys and waits for the end.
    pub async fn deployed(&self, access: &Authorized, image: &str) -> Deploy {
        let revision = self.deploy(access, image).await.unwrap().deploy.revision;
        self.ended(access, revision.get()).await
    }

    /// Rolls the app of a proof back, by the operator's own proof.
    pub async fn rollback(&self, access: &Authorized) -> Outcome<Accepted> {
        self.deployer.rollback(&self.access(access.app()).await, RollbackRequest::default()).await
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
        let page = Page::newest(100_000);
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

    /// The revisions whose build was begun, in order.
    pub fn begun(&self) -> Vec<u64> {
        self.builds.begun().iter().map(|begun| begun.stamp.revision.get()).collect()
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
    verifier: &Arc<SimulatedVerifier>,
    seed: u64,
) -> Ports {
    let rollouts = Arc::new(Workloads::over(cluster.clone()));
    let ports = Ports::new(store.clone(), store.clone(), rollouts, clock.clone(), Arc::new(SimRng::new(seed)));
    ports.with(|ports| {
        ports.configurations = Some(store.clone());
        ports.verifier = Some(verifier.clone());
        ports.builder = Some(BuildPorts::new(builds.clone(), builds.clone()));
    })
}
