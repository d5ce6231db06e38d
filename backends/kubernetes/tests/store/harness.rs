//! A cluster for one test at a time, its clocks, and what a test may do behind the stores' backs.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use http::Request;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Secret},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    client::{Body, ClientBuilder},
};
use rollhook_conformance::{Can, Handles, Lack, Stores, report, samples};
use rollhook_core::{
    Result,
    app::{App, AppUid},
    deploy::{Deploy, Revision, State},
    ports::{Admission, Admitted, Apps, Claim, Claimed, History, Page, Record, View, Wake},
    time::Timestamp,
};
use rollhook_kubernetes::{
    KubernetesStore, StoreClock,
    crd::{AppObject, DeployObject},
    ensure_crds,
};
use rollhook_sealing::KeyRing;
use serde_json::json;
use tokio::{
    sync::{Mutex as Turn, MutexGuard},
    time::Instant,
};
use tower::util::MapRequestLayer;
use zeroize::Zeroizing;

use crate::bed;

/// The namespace of the stores' own objects.
pub(crate) const OWN: &str = "rollhook-test";
const NAMESPACES: [&str; 8] =
    [OWN, "shop-test", "shop-prod", "shop-test-2", "a-b-c", "line-test", "race-test", "other-test"];

/// Runs a test on a cluster without apps, or says that it was skipped.
pub(crate) fn test(name: &str, body: impl AsyncFnOnce(&Fresh)) {
    bed::run(async {
        match Fresh::store().await {
            Err(lack) => report(&format!("{}/{name}", env!("CARGO_PKG_NAME")), Err(lack)),
            Ok(fresh) => body(&fresh).await,
        }
    });
}

/// A cluster without apps.
pub(crate) struct Fresh {
    state: &'static Path,
    pub(crate) client: Client,
    clock: Arc<Moved>,
    opened: Arc<Mutex<Vec<KubernetesStore>>>,
    _turn: MutexGuard<'static, ()>,
}

/// The machine's clocks, and how far a test has moved them.
struct Moved {
    start: Instant,
    wall: AtomicI64,
    passed: AtomicU64,
}

impl Fresh {
    pub(crate) async fn store() -> Can<Self> {
        static TURN: Turn<()> = Turn::const_new(());
        let turn = TURN.lock().await;
        let state = cluster().await.map_err(Lack::Skip)?;
        let client = client(state).await;
        ensure_crds(&client).await.unwrap();
        empty(&client).await;
        let clock = Moved { start: Instant::now(), wall: AtomicI64::new(0), passed: AtomicU64::new(0) };
        Ok(Self { state, client, clock: Arc::new(clock), opened: Arc::default(), _turn: turn })
    }

    /// Another handle on the store, as a further replica would open it.
    pub(crate) async fn handle(&self) -> KubernetesStore {
        let store = KubernetesStore::with_clock(client(self.state).await, OWN, ring(), self.store_clock());
        self.opened.lock().unwrap().push(store.clone());
        store
    }

    /// A handle each of whose requests goes through this.
    pub(crate) async fn handle_through(
        &self,
        each: impl Fn(Request<Body>) -> Request<Body> + Clone + Send + Sync + 'static,
    ) -> KubernetesStore {
        self.handle_in(OWN, each).await
    }

    /// The same, whose own objects are in this namespace.
    pub(crate) async fn handle_in(
        &self,
        namespace: &str,
        each: impl Fn(Request<Body>) -> Request<Body> + Clone + Send + Sync + 'static,
    ) -> KubernetesStore {
        KubernetesStore::with_clock(self.client_through(each).await, namespace, ring(), self.store_clock())
    }

    /// A client each of whose requests goes through this.
    pub(crate) async fn client_through(
        &self,
        each: impl Fn(Request<Body>) -> Request<Body> + Clone + Send + Sync + 'static,
    ) -> Client {
        let mut config = bed::config(self.state).await;
        config.default_retry = false;
        ClientBuilder::try_from(config).unwrap().with_layer(&MapRequestLayer::new(each)).build()
    }

    /// A handle whose watches bring nothing after their first lists, as behind a connection that died unnoticed.
    pub(crate) async fn stuck(&self) -> KubernetesStore {
        let store = self.handle_through(watch_nothing).await;
        // A first call waits for the lists.
        store.claim(Claim { replica: samples::replica("nobody", 0), ttl: Duration::ZERO, limit: 0 }).await.unwrap();
        store
    }

    pub(crate) fn store_clock(&self) -> StoreClock {
        let (wall, passed) = (self.clock.clone(), self.clock.clone());
        let system = StoreClock::system();
        StoreClock::new(
            move || Timestamp::from_millis(system.now().as_millis() + wall.wall.load(Ordering::SeqCst)),
            move || passed.start.elapsed() + Duration::from_millis(passed.passed.load(Ordering::SeqCst)),
        )
    }

    pub(crate) async fn caught_up(&self) {
        let opened = self.opened.lock().unwrap().clone();
        for store in opened {
            store.caught_up().await.unwrap();
        }
    }

    /// The stored entry of a revision.
    pub(crate) async fn object(&self, app: AppUid, revision: Revision) -> DeployObject {
        let of_app = ListParams::default().labels(&format!("rollhook.dev/uid={app}"));
        let entries = Api::<DeployObject>::all(self.client.clone()).list(&of_app).await.unwrap();
        entries.into_iter().find(|entry| entry.spec.revision == revision.get()).unwrap()
    }

    /// The stored app.
    pub(crate) async fn app(&self, app: AppUid) -> AppObject {
        let of_app = ListParams::default().labels(&format!("rollhook.dev/uid={app}"));
        Api::<AppObject>::all(self.client.clone()).list(&of_app).await.unwrap().items.remove(0)
    }
}

/// The app that most tests are about.
pub(crate) async fn registered(store: &KubernetesStore) -> App {
    store.create(samples::app("shop", "test", "api")).await.unwrap()
}

/// A new entry of it.
pub(crate) async fn admit(store: &KubernetesStore, app: &App, tag: &str) -> Deploy {
    let admitted = store.admit(samples::admission(app, samples::draft(tag))).await.unwrap();
    let Admitted::New { deploy, .. } = admitted else { panic!("not new: {admitted:?}") };
    deploy
}

/// Its good end.
pub(crate) fn succeeded() -> State {
    State::Succeeded { note: None }
}

/// A watch selects nothing any more; other requests are as they were.
fn watch_nothing(mut request: Request<Body>) -> Request<Body> {
    if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
        let query: Vec<&str> = request.uri().query().unwrap_or_default().split('&').collect();
        let others = query.into_iter().filter(|pair| !pair.starts_with("labelSelector=")).collect::<Vec<_>>().join("&");
        let uri = format!("{}?{others}&labelSelector=nothing%3Dnever", request.uri().path());
        *request.uri_mut() = uri.parse().unwrap();
    }
    request
}

/// The API server of these tests.
async fn cluster() -> std::result::Result<&'static Path, &'static str> {
    static OWN_CLUSTER: OnceLock<std::result::Result<PathBuf, &'static str>> = OnceLock::new();
    let up = || bed::bring_up(&std::env::temp_dir().join(format!("rollhook-test-store.{}", std::process::id())));
    let state = OWN_CLUSTER.get_or_init(up).as_deref().map_err(|reason| *reason)?;
    let client = client(state).await;
    for name in NAMESPACES {
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        // It is there after the first time.
        let _ = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await;
    }
    Ok(state)
}

async fn client(state: &Path) -> Client {
    let mut config = bed::config(state).await;
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// Removes what the test before has left.
async fn empty(client: &Client) {
    let (every, ours) = (ListParams::default(), ListParams::default().labels("rollhook.dev/uid"));
    let delete = DeleteParams::default();
    for namespace in NAMESPACES {
        let apps: Api<AppObject> = Api::namespaced(client.clone(), namespace);
        apps.delete_collection(&delete, &every).await.unwrap();
        let deploys: Api<DeployObject> = Api::namespaced(client.clone(), namespace);
        deploys.delete_collection(&delete, &every).await.unwrap();
        let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
        leases.delete_collection(&delete, &every).await.unwrap();
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        secrets.delete_collection(&delete, &ours).await.unwrap();
        let _ = secrets.delete("rollhook-operator", &delete).await;
    }
}

fn ring() -> KeyRing {
    KeyRing::from_keys([("k0001".parse().unwrap(), Zeroizing::new([7; 32]))]).unwrap()
}

#[async_trait]
impl Stores for Fresh {
    async fn open(&self) -> Handles {
        let store = Arc::new(self.handle().await);
        let history = Arc::new(Patient { store: store.clone(), opened: self.opened.clone() });
        Handles { apps: store.clone(), tokens: store, history }
    }

    async fn pause(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn advance(&self, time: Duration) -> Can {
        // What has happened, has happened before.
        self.caught_up().await;
        let millis = u64::try_from(time.as_millis()).unwrap();
        self.clock.passed.fetch_add(millis, Ordering::SeqCst);
        self.clock.wall.fetch_add(i64::try_from(millis).unwrap(), Ordering::SeqCst);
        Ok(())
    }

    async fn set_back(&self, time: Duration) -> Can {
        self.clock.wall.fetch_sub(i64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
        Ok(())
    }

    async fn corrupt_entry(&self, app: AppUid, revision: Revision) -> Can {
        let entry = self.object(app, revision).await;
        let api: Api<DeployObject> = Api::namespaced(self.client.clone(), &entry.namespace().unwrap());
        let patch = json!({"spec": {"image": "no image at all"}});
        api.patch(&entry.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        self.caught_up().await;
        Ok(())
    }

    async fn raw_bytes(&self) -> Can<Vec<u8>> {
        let every = ListParams::default();
        let apps: Vec<AppObject> = Api::all(self.client.clone()).list(&every).await.unwrap().items;
        let deploys: Vec<DeployObject> = Api::all(self.client.clone()).list(&every).await.unwrap().items;
        let secrets: Vec<Secret> = Api::all(self.client.clone()).list(&every).await.unwrap().items;
        let mut bytes = serde_json::to_vec(&(apps, deploys, &secrets)).unwrap();
        for value in secrets.into_iter().flat_map(|secret| secret.data.unwrap_or_default().into_values()) {
            bytes.extend(value.0);
        }
        Ok(bytes)
    }

    async fn move_secret(&self, from: AppUid, to: AppUid) -> Can {
        let secrets: Vec<Secret> = Api::all(self.client.clone()).list(&ListParams::default()).await.unwrap().items;
        let of = |app: AppUid| {
            let app = app.to_string();
            secrets.iter().find(|secret| secret.labels().get("rollhook.dev/uid") == Some(&app)).unwrap()
        };
        let moved = Secret { data: of(from).data.clone(), ..of(to).clone() };
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &moved.namespace().unwrap());
        api.replace(&moved.name_any(), &PostParams::default(), &moved).await.unwrap();
        Ok(())
    }
}

/// A history that is asked for work, or told of it, only once the watches have brought what was written before: a
/// replica may learn of work a moment later, which the suite does not wait for.
struct Patient {
    store: Arc<KubernetesStore>,
    opened: Arc<Mutex<Vec<KubernetesStore>>>,
}

impl Patient {
    async fn caught_up(&self) -> Result<()> {
        let opened = self.opened.lock().unwrap().clone();
        for store in opened {
            store.caught_up().await?;
        }
        Ok(())
    }
}

#[async_trait]
impl History for Patient {
    async fn admit(&self, admission: Admission) -> Result<Admitted> {
        self.store.admit(admission).await
    }

    async fn record(&self, record: Record) -> Result<()> {
        if record.claim.is_some() {
            self.caught_up().await?;
        }
        self.store.record(record).await
    }

    async fn view(&self, app: AppUid) -> Result<View> {
        self.store.view(app).await
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        self.store.page(app, page).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.caught_up().await?;
        self.store.claim(claim).await
    }

    fn wakes(&self) -> BoxStream<'static, Wake> {
        self.store.wakes()
    }
}
