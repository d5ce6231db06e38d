//! Configurations, each sealed in a Secret beside its app, which belongs to the `RollhookApp` and goes with it, as the index of
//! them does.
//!
//! ```text
//!   put    ──▶ note it in the index ──▶ announce the bytes ──▶ create {app}-variables-{id}
//!   get    ──▶ {app}-variables-{id}
//!   list   ──▶ the index, {app}-variables
//!   bytes  ──▶ what is announced of the environment's apps, from the watch
//!   remove ──▶ delete {app}-variables-{id} ──▶ take it out of the index ──▶ announce the bytes
//! ```

mod bytes;
mod index;
mod object;
mod reseal;

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid, Namespace},
    configuration::{ConfigurationId, Variables},
    error::Entity,
    ports::{ConfigurationStore, StoredConfiguration},
};
use rollhook_sealing::{KeyRing, configuration};

pub(crate) use self::bytes::announced;
use self::index::{Entry, Index};
use super::{
    KubernetesStore, StoreClock,
    api::{self, ApiServer, Written},
    secrets::{
        ATTEMPTS, Maker, Registered,
        object::{in_the_way, maker, maker_of, owned},
    },
};
use crate::bounded;

/// The most Secrets that are read or deleted at the same time.
const AT_ONCE: usize = 8;

/// The configurations of one cluster.
pub(crate) struct Configurations {
    api: ApiServer,
    ring: Arc<KeyRing>,
    clock: StoreClock,
}

impl Configurations {
    pub(crate) fn new(api: ApiServer, ring: Arc<KeyRing>, clock: StoreClock) -> Self {
        Self { api, ring, clock }
    }

    /// Notes a configuration in the index; returns the Secret that is to be created.
    async fn note(&self, app: &Registered, id: ConfigurationId, variables: &Variables) -> Result<Secret> {
        let (ring, uid, variables) = (self.ring.clone(), app.uid, variables.clone());
        let sealed = beside(move || configuration::seal(&ring, uid, id, &variables)).await?;
        let entry = Entry {
            bytes: sealed.bytes.len() as u64,
            created_at: self.clock.now().max(app.created_at),
            key: sealed.key.to_string(),
        };
        let note = |index: &mut Index| {
            let before = index.0.len();
            index.0.entry(id).or_insert_with(|| entry.clone());
            index.0.len() > before
        };
        self.change(app, note).await?;
        Ok(object::of(app, id, sealed.bytes))
    }

    /// Creates a Secret, unless it is there.
    async fn create(&self, app: &Registered, object: &Secret) -> Result<()> {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        for _ in 0..ATTEMPTS {
            if let Written::Done(_) = api::create(&self.within(&app.id), object).await? {
                return Ok(());
            }
            if self.own(app, name).await?.is_some() {
                return Ok(());
            }
        }
        Err(Error::Conflict(Entity::Object))
    }

    async fn get(&self, app: &Registered, id: ConfigurationId) -> Result<Option<Variables>> {
        let Some(found) = api::get(&self.within(&app.id), &object::name(&app.id, id)).await? else { return Ok(None) };
        if maker(&found) != Maker::Rollhook(app.uid) {
            return Ok(None);
        }
        let (ring, uid, sealed) = (self.ring.clone(), app.uid, object::sealed(found)?);
        beside(move || configuration::open(&ring, uid, id, &sealed)).await.map(Some)
    }

    /// Reads the app's index.
    async fn index(&self, app: &Registered) -> Result<Index> {
        let found: Option<Secret> = api::get(&self.within(&app.id), &object::index_name(&app.id)).await?;
        let ours = found.filter(|secret| maker(secret) == Maker::Rollhook(app.uid));
        ours.as_ref().map_or_else(|| Ok(Index::default()), Index::read)
    }

    /// Changes the app's index, unless the change says that there is nothing to do.
    async fn change(&self, app: &Registered, change: impl Fn(&mut Index) -> bool + Send + Sync) -> Result<()> {
        let name = object::index_name(&app.id);
        for _ in 0..ATTEMPTS {
            let present = self.own(app, &name).await?;
            let mut index = present.as_ref().map_or_else(|| Ok(Index::default()), Index::read)?;
            if !change(&mut index) {
                return Ok(());
            }
            let is_new = present.is_none();
            let mut object = present.unwrap_or_else(|| owned(app, name.clone()));
            index.fill(&mut object)?;
            let api = self.within(&app.id);
            let written = if is_new { api::create(&api, &object).await? } else { api::replace(&api, &object).await? };
            if let Written::Done(_) = written {
                return Ok(());
            }
        }
        Err(Error::Conflict(Entity::Object))
    }

    /// Reads a Secret of this registration. One that an earlier app of this name has left behind is deleted: the cluster may be
    /// about to do so.
    ///
    /// # Errors
    /// `Invalid` if another program made it.
    async fn own(&self, app: &Registered, name: &str) -> Result<Option<Secret>> {
        let api = self.within(&app.id);
        let Some(found) = api::get::<Secret>(&api, name).await? else { return Ok(None) };
        match maker(&found) {
            Maker::Rollhook(uid) if uid == app.uid => Ok(Some(found)),
            Maker::Rollhook(_) => api::delete(&api, &found.metadata).await.map(|_| None),
            Maker::Other => Err(in_the_way(app.id.namespace.as_str(), name)),
        }
    }

    async fn remove(&self, app: &Registered, ids: &[ConfigurationId]) -> Result<()> {
        let deletions: Vec<BoxFuture<'_, Result<()>>> = ids.iter().map(|id| self.delete(app, *id).boxed()).collect();
        stream::iter(deletions).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        let forget = |index: &mut Index| {
            let before = index.0.len();
            index.0.retain(|id, _| !ids.contains(id));
            index.0.len() < before
        };
        self.change(app, forget).await
    }

    /// Deletes the Secret of a configuration, if there is one and it is this registration's.
    async fn delete(&self, app: &Registered, id: ConfigurationId) -> Result<()> {
        let (api, name) = (self.within(&app.id), object::name(&app.id, id));
        for _ in 0..ATTEMPTS {
            let found = api::get_metadata(&api, &name).await?;
            let Some(ours) = found.filter(|metadata| maker_of(metadata) == Maker::Rollhook(app.uid)) else {
                return Ok(());
            };
            match api::delete(&api, &ours).await? {
                Written::Done(()) | Written::Gone => return Ok(()),
                Written::Conflict => {}
            }
        }
        Err(Error::Conflict(Entity::Object))
    }

    fn within(&self, app: &AppId) -> Api<Secret> {
        self.api.within(app.namespace.as_str())
    }
}

#[async_trait]
impl ConfigurationStore for KubernetesStore {
    async fn put(&self, app: AppUid, id: ConfigurationId, variables: &Variables) -> Result<()> {
        let put = async {
            let app = self.registered(app).await?.ok_or(Error::NotFound(Entity::App))?;
            let secret = self.configurations.note(&app, id, variables).await?;
            self.announce_bytes(&app).await?;
            self.configurations.create(&app, &secret).await
        };
        bounded(put).await
    }

    async fn get(&self, app: AppUid, id: ConfigurationId) -> Result<Option<Variables>> {
        let get = async {
            match self.registered(app).await? {
                Some(app) => self.configurations.get(&app, id).await,
                None => Ok(None),
            }
        };
        bounded(get).await
    }

    async fn list(&self, app: AppUid) -> Result<Vec<StoredConfiguration>> {
        let list = async {
            match self.registered(app).await? {
                Some(app) => self.configurations.index(&app).await.map(Index::listed),
                None => Ok(Vec::new()),
            }
        };
        bounded(list).await
    }

    async fn bytes_of(&self, namespace: &Namespace) -> Result<u64> {
        let known = bounded(self.known_of(namespace)).await?;
        Ok(known.iter().fold(0, |sum, app| sum.saturating_add(app.configuration_bytes)))
    }

    async fn remove(&self, app: AppUid, ids: &[ConfigurationId]) -> Result<()> {
        let remove = async {
            let Some(app) = self.registered(app).await? else { return Ok(()) };
            self.configurations.remove(&app, ids).await?;
            match self.announce_bytes(&app).await {
                // They are gone with it.
                Err(Error::NotFound(_)) => Ok(()),
                announced => announced,
            }
        };
        bounded(remove).await
    }
}

/// Does work on long values beside the event loop, and returns what it does.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Error::unavailable("sealing a configuration was cut off", error)))
}
