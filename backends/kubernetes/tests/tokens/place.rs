//! An app in a namespace of the cluster, and replicas that know it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use kube::Client;
use rollhook_conformance::{client, samples};
use rollhook_core::{
    app::{App, AppId},
    ports::{Clock, Rng, TokenStore},
    request::Refusal,
    service::{Authorized, Deployer, Ports},
    token::Credentials,
};
use rollhook_kubernetes::{KubernetesStore, ensure_crds};
use rollhook_memory::SimulatedCluster;
use rollhook_sealing::{KEY_BYTES, KeyRing};
use rollhook_testing::until_async;
use zeroize::Zeroizing;

use crate::{
    bed::{self, Bed},
    call_counter::Calls,
};

/// A store with an app.
pub(crate) struct Place {
    pub(crate) store: KubernetesStore,
    pub(crate) app: Arc<App>,
}

/// A replica whose calls are counted, and for which time passes when it is told to.
pub(crate) struct Replica {
    deployer: Deployer,
    pub(crate) calls: Calls,
    clock: Arc<HandClock>,
}

/// A clock that moves by hand, and on which nothing sleeps.
#[derive(Default)]
struct HandClock(AtomicU64);

#[async_trait]
impl Clock for HandClock {
    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }

    async fn sleep(&self, _: Duration) {
        tokio::task::yield_now().await;
    }
}

impl Place {
    /// Registers `api` in the bed's namespace.
    pub(crate) async fn of(bed: &Bed) -> Self {
        ensure_crds(&bed.client).await.unwrap();
        let store = store(bed, &["k0001"]);
        let (project, environment) = bed.namespace.rsplit_once('-').unwrap();
        let app = client::register(&store, samples::app(project, environment, "api")).await.state.app;
        Self { store, app }
    }

    /// Enables the webhook anew.
    pub(crate) async fn enable(&self, seed: u8) {
        self.store.put(self.app.uid, &samples::token(seed)).await.unwrap();
    }
}

impl Replica {
    /// A further replica on the same cluster.
    pub(crate) async fn of(bed: &Bed) -> Self {
        let (calls, clock) = (Calls::default(), Arc::<HandClock>::default());
        let client = calls.client(bed::config(&bed.state).await);
        let store = Arc::new(KubernetesStore::new(client, &bed.namespace, ring(&["k0001"])));
        let rollouts = Arc::new(SimulatedCluster::new(clock.clone(), Duration::ZERO));
        let ports = Ports::new(store.clone(), store, rollouts, clock.clone(), Arc::new(NotRandom));
        Self { deployer: Deployer::new(ports, "two"), calls, clock }
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.clock.0.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// A caller who presents this token. Returns `None` if it is refused.
    pub(crate) async fn caller(&self, app: &AppId, seed: u8) -> Option<Authorized> {
        let credentials = Credentials::token(samples::token(seed).expose().as_bytes());
        match self.deployer.authorize(app, &credentials, b"{}").await {
            Err(refusal) if refusal != Refusal::Unauthorized => panic!("{refusal:?}"),
            answer => answer.ok(),
        }
    }

    /// A caller who repeats the call until the token is known here.
    pub(crate) async fn let_in(&self, app: &AppId, seed: u8) {
        until_async("the token is let in", async || self.caller(app, seed).await.is_some()).await;
    }
}

/// Randomness that no test here needs.
struct NotRandom;

impl Rng for NotRandom {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

/// A store of this namespace that has these keys.
pub(crate) fn store(bed: &Bed, keys: &[&str]) -> KubernetesStore {
    KubernetesStore::new(Client::clone(&bed.client), &bed.namespace, ring(keys))
}

fn ring(keys: &[&str]) -> KeyRing {
    let key = |id: &&str| (id.parse().unwrap(), Zeroizing::new([id.as_bytes()[4]; KEY_BYTES]));
    KeyRing::from_keys(keys.iter().map(key)).unwrap()
}
