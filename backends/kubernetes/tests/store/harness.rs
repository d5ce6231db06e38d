//! A cluster for one test at a time, its clocks, and what a test may do behind the stores' backs.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{future::BoxFuture, stream::BoxStream};
use http::{Method, Request};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Secret},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    client::{Body, ClientBuilder},
};
use rollhook_conformance::{Can, Handles, Lack, Stores, client, report, samples};
use rollhook_core::{
    Result,
    app::AppUid,
    configuration::ConfigurationId,
    deploy::{Deploy, Revision, State},
    ports::{
        AppChange, AppCommit, AppPage, AppRef, Binding, Committed, DriverIdentity, Heartbeat, HistoryStore, ListedApp,
        Loaded, Page, StoreLimits,
    },
    replica::ReplicaId,
    request::IdempotencyKey,
    time::Timestamp,
};
use rollhook_kubernetes::{
    KubernetesStore, StoreClock,
    crd::{AppObject, DeployObject, RecordObject, deploy_name},
    ensure_crds,
};
use rollhook_sealing::KeyRing;
use rollhook_testing::{
    beds::{Kubectl, own_cluster_of_process, service},
    until_async,
};
use serde_json::{Value, json};
use tokio::{
    sync::{Mutex as Turn, MutexGuard},
    time::Instant,
};
use tower::{BoxError, Service, layer::layer_fn, util::MapRequestLayer};
use zeroize::Zeroizing;

use crate::bed;

/// The namespace of the stores' own objects.
pub(crate) const OWN: &str = "rollhook-test";

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
        let client = connect(state).await;
        ensure_crds(&client).await.unwrap();
        empty(&client).await;
        let clock = Moved { start: Instant::now(), wall: AtomicI64::new(0), passed: AtomicU64::new(0) };
        Ok(Self { state, client, clock: Arc::new(clock), opened: Arc::default(), _turn: turn })
    }

    /// Another handle on the store, as a further replica would open it.
    pub(crate) async fn handle(&self) -> KubernetesStore {
        let store = KubernetesStore::with_clock(connect(self.state).await, OWN, ring(), self.store_clock());
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

    /// A handle, and a switch that loses the answer to its next replacement of a `RollhookApp`, and goes off with that.
    pub(crate) async fn handle_losing_answers(&self) -> (KubernetesStore, Arc<AtomicBool>) {
        let lose = Arc::<AtomicBool>::default();
        let mut config = bed::config(self.state).await;
        config.default_retry = false;
        let switch = lose.clone();
        let layer = layer_fn(move |inner| Losing { inner, lose: switch.clone() });
        let client = ClientBuilder::try_from(config).unwrap().with_layer(&layer).build();
        (KubernetesStore::with_clock(client, OWN, ring(), self.store_clock()), lose)
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
        store.work(&[], 0).await.unwrap();
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

    pub(crate) async fn sync(&self) {
        let opened = self.opened.lock().unwrap().clone();
        for store in opened {
            store.sync().await.unwrap();
        }
    }

    /// The `AppDeploy`s of a namespace.
    pub(crate) fn deploys(&self, namespace: &str) -> Api<DeployObject> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The stored `RollhookApp`.
    pub(crate) async fn app(&self, app: AppUid) -> AppObject {
        let of_app = ListParams::default().labels(&format!("rollhook.dev/uid={app}"));
        Api::<AppObject>::all(self.client.clone()).list(&of_app).await.unwrap().items.remove(0)
    }

    /// The `AppDeploy` of a revision of `shop-test/api` once it shows this status.
    pub(crate) async fn shown(&self, revision: u64, status: &str) -> DeployObject {
        self.shown_of(&self.deploys("shop-test"), &deploy_name("api", revision), |shown| shown == status).await
    }

    /// Labels an `AppDeploy` of `shop-test`, as a person with kubectl does.
    pub(crate) async fn label_deploy(&self, name: &str, label: &str, value: &str) {
        let patch = json!({"metadata": {"labels": {label: value}}});
        self.deploys("shop-test").patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        self.sync().await;
    }

    /// Runs kubectl. Returns its output.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        Kubectl { state: self.state.to_owned(), namespace: String::new() }.run(arguments)
    }

    async fn shown_of(&self, api: &Api<DeployObject>, name: &str, is_wanted: impl Fn(&str) -> bool) -> DeployObject {
        until_async(name, async || match api.get_opt(name).await.unwrap() {
            Some(found) if is_wanted(&status(&found)) => Ok(found),
            other => Err(other),
        })
        .await
    }
}

/// The status that an `AppDeploy` shows.
pub(crate) fn status(object: &DeployObject) -> String {
    object.spec.0["state"]["status"].as_str().unwrap().to_owned()
}

/// The ended deploys that a `RollhookApp` still holds.
pub(crate) fn archiving(object: &AppObject) -> Vec<u64> {
    let archiving = object.status.as_ref().unwrap()["archiving"].as_array().unwrap();
    archiving.iter().map(|deploy| deploy["revision"].as_u64().unwrap()).collect()
}

/// Registers `shop-test/api`, the app that most tests are about.
pub(crate) async fn registered(store: &KubernetesStore) -> AppUid {
    client::register(store, samples::app("shop", "test", "api")).await.state.app.uid
}

/// Accepts a deploy of it.
pub(crate) async fn admit(store: &KubernetesStore, app: AppUid, tag: &str) -> Deploy {
    client::admit(store, app, samples::admission(samples::deploy(tag))).await
}

/// Ends a deploy of it.
pub(crate) async fn end(store: &KubernetesStore, app: AppUid, deploy: &Deploy, state: State) {
    client::record(store, app, vec![Deploy { touched: true, ..deploy.moved(state) }]).await;
}

/// A connection that loses the answer to a replacement of a `RollhookApp` while it is switched on.
#[derive(Clone)]
struct Losing<S> {
    inner: S,
    lose: Arc<AtomicBool>,
}

impl<S> Service<Request<Body>> for Losing<S>
where
    S: Service<Request<Body>>,
    S::Future: Send + 'static,
    S::Response: Send,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, std::result::Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<std::result::Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_commit = request.method() == Method::PUT && request.uri().path().contains("/rollhookapps/");
        let is_lost = is_commit && self.lose.swap(false, Ordering::SeqCst);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await.map_err(Into::into)?;
            if is_lost { Err("the connection was lost".into()) } else { Ok(answer) }
        })
    }
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
    let state = own_cluster_of_process()?;
    let client = connect(state).await;
    for name in samples::NAMESPACES.into_iter().chain([OWN]) {
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        // It is there after the first time.
        let _ = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await;
    }
    Ok(state)
}

async fn connect(state: &Path) -> Client {
    let mut config = bed::config(state).await;
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// Removes what the test before has left.
async fn empty(client: &Client) {
    let (every, ours) = (ListParams::default(), ListParams::default().labels("rollhook.dev/uid"));
    let delete = DeleteParams::default();
    for namespace in samples::NAMESPACES.into_iter().chain([OWN]) {
        let apps: Api<AppObject> = Api::namespaced(client.clone(), namespace);
        apps.delete_collection(&delete, &every).await.unwrap();
        let deploys: Api<DeployObject> = Api::namespaced(client.clone(), namespace);
        deploys.delete_collection(&delete, &every).await.unwrap();
        let records: Api<RecordObject> = Api::namespaced(client.clone(), namespace);
        records.delete_collection(&delete, &every).await.unwrap();
        let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
        leases.delete_collection(&delete, &every).await.unwrap();
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        secrets.delete_collection(&delete, &ours).await.unwrap();
    }
}

/// Waits until the API server, which was ready before, has the storage of custom resources again.
async fn until_answered(client: &Client) {
    let one = ListParams::default().limit(1);
    let (apps, deploys, records): (Api<AppObject>, Api<DeployObject>, Api<RecordObject>) = (
        Api::namespaced(client.clone(), OWN),
        Api::namespaced(client.clone(), OWN),
        Api::namespaced(client.clone(), OWN),
    );
    for _ in 0..600 {
        if apps.list(&one).await.is_ok() && deploys.list(&one).await.is_ok() && records.list(&one).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the API server's storage does not come back");
}

fn ring() -> KeyRing {
    KeyRing::from_keys([("k0001".parse().unwrap(), Zeroizing::new([7; 32]))]).unwrap()
}

#[async_trait]
impl Stores for Fresh {
    async fn open(&self) -> Handles {
        let store = self.handle().await;
        Handles {
            history: Arc::new(Synced(store.clone())),
            tokens: Arc::new(store.clone()),
            configurations: Some(Arc::new(store.clone())),
            records: Some(Arc::new(store)),
        }
    }

    /// Kills the database of the cluster, and then the API server, and starts them again.
    async fn reopen(&self) -> Can<Handles> {
        for name in ["etcd", "apiserver"] {
            service(self.state, name, "stop");
            service(self.state, name, "start");
        }
        self.opened.lock().unwrap().clear();
        until_answered(&self.client).await;
        Ok(self.open().await)
    }

    async fn pause(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn advance(&self, time: Duration) -> Can {
        // Everything so far was seen before.
        self.sync().await;
        let millis = u64::try_from(time.as_millis()).unwrap();
        self.clock.passed.fetch_add(millis, Ordering::SeqCst);
        self.clock.wall.fetch_add(i64::try_from(millis).unwrap(), Ordering::SeqCst);
        Ok(())
    }

    async fn set_back(&self, time: Duration) -> Can {
        self.clock.wall.fetch_sub(i64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
        Ok(())
    }

    async fn corrupt_state(&self, app: AppUid) -> Can {
        self.patch_app(&self.app(app).await, json!({"spec": {"created_at": "at no time"}})).await;
        Ok(())
    }

    async fn corrupt_entry(&self, app: AppUid, revision: Revision) -> Can {
        let object = self.app(app).await;
        let api = self.deploys(&object.namespace().unwrap());
        let name = deploy_name(&object.name_any(), revision.get());
        self.shown_of(&api, &name, |status| !["queued", "building", "rolling_out"].contains(&status)).await;
        let damage = json!({"spec": {"image": "no image at all"}});
        api.patch(&name, &PatchParams::default(), &Patch::Merge(damage)).await.unwrap();
        // The next commit would do the same: the deploy is archived.
        let mut archiving = object.status.as_ref().unwrap()["archiving"].as_array().unwrap().clone();
        archiving.retain(|deploy| deploy["revision"].as_u64() != Some(revision.get()));
        self.patch_app(&object, json!({"status": {"archiving": archiving}})).await;
        Ok(())
    }

    async fn raw_bytes(&self) -> Can<Vec<u8>> {
        let every = ListParams::default();
        let apps: Vec<AppObject> = Api::all(self.client.clone()).list(&every).await.unwrap().items;
        let deploys: Vec<DeployObject> = Api::all(self.client.clone()).list(&every).await.unwrap().items;
        let secrets: Vec<Secret> = Api::all(self.client.clone()).list(&every).await.unwrap().items;
        let records: Vec<RecordObject> = Api::all(self.client.clone()).list(&every).await.unwrap().items;
        let mut bytes = serde_json::to_vec(&(apps, deploys, records, &secrets)).unwrap();
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

    async fn move_configuration(&self, from: (AppUid, ConfigurationId), to: (AppUid, ConfigurationId)) -> Can {
        let secrets: Vec<Secret> = Api::all(self.client.clone()).list(&ListParams::default()).await.unwrap().items;
        let of = |(app, id): (AppUid, ConfigurationId)| {
            let (app, end) = (app.to_string(), format!("-variables-{id}"));
            let is_of = |secret: &&Secret| secret.labels().get("rollhook.dev/uid") == Some(&app);
            secrets.iter().filter(is_of).find(|secret| secret.name_any().ends_with(&end)).unwrap()
        };
        let moved = Secret { data: of(from).data.clone(), ..of(to).clone() };
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &moved.namespace().unwrap());
        api.replace(&moved.name_any(), &PostParams::default(), &moved).await.unwrap();
        Ok(())
    }
}

impl Fresh {
    /// Merges a patch into a `RollhookApp`, as a person with kubectl does.
    pub(crate) async fn patch_app(&self, object: &AppObject, patch: Value) {
        let api: Api<AppObject> = Api::namespaced(self.client.clone(), &object.namespace().unwrap());
        api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        self.sync().await;
    }
}

/// A store that is asked for lists, for work and for the living only once the watches have brought what was written
/// before: a replica may learn of it a moment later, which the suite does not wait for.
struct Synced(KubernetesStore);

#[async_trait]
impl HistoryStore for Synced {
    async fn load(&self, app: AppRef<'_>, key: Option<&IdempotencyKey>) -> Result<Option<Loaded>> {
        self.0.load(app, key).await
    }

    async fn commit(&self, commits: Vec<AppCommit>) -> Vec<Result<Committed>> {
        self.0.commit(commits).await
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        self.0.page(app, page).await
    }

    async fn archived(&self, app: AppUid, revision: Revision) -> Result<Option<Deploy>> {
        self.0.archived(app, revision).await
    }

    async fn list(&self, page: AppPage) -> Result<Vec<ListedApp>> {
        self.0.sync().await?;
        self.0.list(page).await
    }

    async fn work(&self, alive: &[ReplicaId], limit: usize) -> Result<Vec<AppUid>> {
        self.0.sync().await?;
        self.0.work(alive, limit).await
    }

    async fn heartbeat(&self, replica: &ReplicaId, ttl: Duration) -> Result<Heartbeat> {
        self.0.sync().await?;
        self.0.heartbeat(replica, ttl).await
    }

    async fn bind_driver(&self, driver: &DriverIdentity, binding: Binding) -> Result<DriverIdentity> {
        self.0.bind_driver(driver, binding).await
    }

    fn watch(&self) -> BoxStream<'static, AppChange> {
        self.0.watch()
    }

    fn limits(&self) -> StoreLimits {
        self.0.limits()
    }
}
