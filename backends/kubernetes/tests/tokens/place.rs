//! An app in a namespace of the cluster, and replicas that know it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kube::Client;
use rollhook_conformance::{client, samples};
use rollhook_core::{
    app::{App, AppId},
    ports::{TokenStore, WebhookSecret},
    time::Timestamp,
};
use rollhook_kubernetes::{KubernetesStore, StoreClock, ensure_crds};
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
    pub(crate) store: KubernetesStore,
    pub(crate) calls: Calls,
    millis: Arc<AtomicU64>,
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
        let (calls, millis) = (Calls::default(), Arc::<AtomicU64>::default());
        let passed = millis.clone();
        let elapsed = move || Duration::from_millis(passed.load(Ordering::SeqCst));
        let clock = StoreClock::new(|| Timestamp::from_millis(1_795_250_000_000), elapsed);
        let client = calls.client(bed::config(&bed.state).await);
        let store = KubernetesStore::with_clock(client, &bed.namespace, ring(&["k0001"]), clock);
        Self { store, calls, millis }
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.millis.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// A caller who presents this token.
    pub(crate) async fn caller(&self, app: &AppId, seed: u8) -> Option<WebhookSecret> {
        let presented = samples::token(seed);
        let fits = |stored: Option<&WebhookSecret>| {
            stored.is_some_and(|stored| stored.token.matches(presented.expose().as_bytes()))
        };
        self.store.find_fitting(app, &fits).await.unwrap()
    }

    /// A caller who repeats the call until the token is known here.
    pub(crate) async fn let_in(&self, app: &AppId, seed: u8) {
        until_async("the token is let in", async || self.caller(app, seed).await.is_some()).await;
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
