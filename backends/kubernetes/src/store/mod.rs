//! Apps, their history and records in Kubernetes itself, as custom resources; webhook tokens and configurations in Secrets
//! beside them.
//!
//! ```text
//!   commit ──▶ replace RollhookApp (its version) the whole state: one compare-and-swap
//!                └▶ AppDeploy {app}-{n}         created and updated in the background; its end is certain
//!   load  ◀── RollhookApp, read anew            idempotency keys of archived deploys: the cache, completed where it lags
//!   page  ◀── RollhookApp, then the AppDeploys that are asked for
//!   list, work ◀── cache ◀── two watches       RollhookApps, and the metadata of AppDeploys
//!   write ──▶ create, replace ServerRecord     a third watch tells which records there are
//!   heartbeat ─▶ Lease per replica
//! ```
//!
//! An ended deploy stays in the `RollhookApp` until its `AppDeploy` tells its end. So each deploy of a state's revisions is in
//! the `RollhookApp` or in the archive, whatever crashed in between, and a reader knows which: a revision that the `RollhookApp` does
//! not hold has been archived before.

pub mod crd;

mod api;
mod app_record;
mod archive;
mod binding;
mod cache;
mod clock;
mod configurations;
mod error;
mod foreign_owner;
mod hand_made;
mod heartbeat;
mod install;
mod namespace_lock;
mod read;
#[cfg(feature = "management")]
mod records;
mod secrets;
mod sync;
mod watches;
mod write;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{
    FutureExt,
    future::join_all,
    stream::{self, BoxStream, StreamExt},
};
use rollhook_core::{
    Result,
    app::AppUid,
    deploy::{Deploy, Revision},
    ports::{
        AppChange, AppCommit, AppPage, AppRef, Binding, Committed, DriverIdentity, Heartbeat, HistoryStore, ListedApp,
        Loaded, Page, StoreLimits,
    },
    replica::ReplicaId,
    request::IdempotencyKey,
};
use rollhook_sealing::KeyRing;
use tokio::sync::broadcast::error::RecvError;

pub use clock::StoreClock;
pub(crate) use clock::calendar;
pub use install::ensure_crds;
use install::{RETRY, until_answered};

use crate::client::Cluster;
use api::{ApiServer, check_served};
use archive::Archive;
use cache::Cache;
use configurations::Configurations;
use crd::AppObject;
use foreign_owner::ForeignOwners;
use heartbeat::Leases;
#[cfg(feature = "management")]
use records::Records;
use secrets::Secrets;
use watches::{Changes, Tasks};

/// How long a connection may be silent: longer than a watch, which tells something at its end.
const QUIET: Duration = Duration::from_secs(15);

/// Apps, tokens, configurations and history in the cluster; clones share their connection and what it has seen.
#[derive(Clone)]
pub struct KubernetesStore {
    api: ApiServer,
    clock: StoreClock,
    cache: Arc<Cache>,
    changes: Changes,
    archive: Arc<Archive>,
    leases: Arc<Leases>,
    foreign_owners: Arc<ForeignOwners>,
    secrets: Arc<Secrets>,
    configurations: Arc<Configurations>,
    #[cfg(feature = "management")]
    records: Arc<Records>,
    _tasks: Arc<Tasks>,
}

impl KubernetesStore {
    /// Connects as `kubectl` would, or from inside a pod with its service account. Our own objects (Leases and records)
    /// are in the namespace that this connection has by default. One installation per cluster
    /// is meant, for apps are found in every namespace: its replicas, and command lines on the same store, should have
    /// one namespace here. Tokens and configurations are sealed with the ring's keys. The custom resources are installed where they are
    /// missing. While the API server does not answer, this waits for as long as `patience`, and says so.
    ///
    /// # Errors
    /// `Invalid` if there is no configuration, or one that cannot be used; as [`ensure_crds`].
    pub async fn connect(ring: KeyRing, patience: Duration) -> Result<Self> {
        let client = Cluster::connect_with_limit(QUIET).await?.into_client();
        if until_answered(patience, RETRY, || ensure_crds(&client)).await? {
            tracing::info!(
                group = crd::GROUP,
                "installed the custom resources RollhookApp, AppDeploy and ServerRecord"
            );
        }
        let namespace = client.default_namespace().to_owned();
        Ok(Self::new(client, &namespace, ring))
    }

    /// A store through this client, whose own objects are in this namespace. Its tasks run until the last clone is
    /// dropped.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(client: kube::Client, namespace: &str, ring: KeyRing) -> Self {
        Self::with_clock(client, namespace, ring, StoreClock::system())
    }

    /// A store as [`KubernetesStore::new`] makes it, with clocks of one's own.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn with_clock(client: kube::Client, namespace: &str, ring: KeyRing, clock: StoreClock) -> Self {
        let api = ApiServer::new(client, namespace);
        let (cache, changes) = (Arc::new(Cache::new(clock.clone())), Changes::new());
        let archive = Arc::new(Archive::new(api.clone(), cache.clone()));
        let tasks = Tasks::start(&api, &cache, &changes, &archive);
        #[cfg(feature = "management")]
        let records = Arc::new(Records::new(api.clone(), clock.clone()));
        #[cfg(feature = "management")]
        let tasks = tasks.and_of(&records, &api, &cache);
        let ring = Arc::new(ring);
        Self {
            configurations: Arc::new(Configurations::new(api.clone(), ring.clone(), clock.clone())),
            secrets: Arc::new(Secrets::new(api.clone(), ring, clock.clone())),
            #[cfg(feature = "management")]
            records,
            api,
            clock,
            cache,
            changes,
            archive,
            leases: Arc::default(),
            foreign_owners: Arc::default(),
            _tasks: Arc::new(tasks),
        }
    }
}

#[async_trait]
impl HistoryStore for KubernetesStore {
    async fn load(&self, app: AppRef<'_>, key: Option<&IdempotencyKey>) -> Result<Option<Loaded>> {
        self.read(app, key).boxed().await
    }

    async fn commit(&self, commits: Vec<AppCommit>) -> Vec<Result<Committed>> {
        join_all(commits.into_iter().map(|commit| self.write(commit).boxed())).await
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        self.ready().await?;
        match self.read_uid(app).boxed().await? {
            Some(record) => self.archive.page(&record, page).boxed().await,
            None => Ok(Vec::new()),
        }
    }

    async fn archived(&self, app: AppUid, revision: Revision) -> Result<Option<Deploy>> {
        self.ready().await?;
        match self.read_uid(app).boxed().await? {
            Some(record) => self.archive.one(&record, revision).boxed().await,
            None => Ok(None),
        }
    }

    async fn list(&self, page: AppPage) -> Result<Vec<ListedApp>> {
        self.ready().await?;
        if page.is_fresh {
            return self.list_anew(page).boxed().await;
        }
        let listed = self.cache.list(&page);
        // Without its definition the cluster has no apps: that is no empty list.
        if listed.is_empty() && self.cache.is_empty() {
            check_served::<AppObject>(&self.api.all()).await?;
        }
        Ok(listed)
    }

    async fn work(&self, alive: &[ReplicaId], limit: usize) -> Result<Vec<AppUid>> {
        self.ready().await?;
        Ok(self.waiting(alive, limit).boxed().await)
    }

    async fn heartbeat(&self, replica: &ReplicaId, ttl: Duration) -> Result<Heartbeat> {
        self.beat(replica, ttl).boxed().await
    }

    async fn bind_driver(&self, driver: &DriverIdentity, binding: Binding) -> Result<DriverIdentity> {
        self.bind(driver, binding).boxed().await
    }

    fn watch(&self) -> BoxStream<'static, AppChange> {
        let changes = stream::unfold(self.changes.subscribe(), async |mut changes| match changes.recv().await {
            Ok(change) => Some((change, changes)),
            Err(RecvError::Lagged(_)) => Some((AppChange::Any, changes)),
            Err(RecvError::Closed) => None,
        });
        changes.boxed()
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits { apps_per_commit: 1, commits_at_once: 64 }
    }
}

impl fmt::Debug for KubernetesStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubernetesStore")
            .field("namespace", &self.api.namespace())
            .field("keys", &self.secrets.ring())
            .finish()
    }
}
