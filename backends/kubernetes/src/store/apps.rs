//! The registrations.

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use kube::api::Preconditions;
use rollhook_core::{
    Error, Result,
    app::{App, AppId, AppUid},
    ports::{AppPage, Apps, Wake},
};

use super::{
    KubernetesStore,
    calls::{Written, create, delete, delete_all, get},
    codec,
    crd::{AppObject, UID_LABEL},
    load::{ATTEMPTS, Depth, contended},
    secrets::Registrations,
};

/// Apps that are read at the same time.
const AT_ONCE: usize = 8;

#[async_trait]
impl Apps for KubernetesStore {
    async fn create(&self, app: App) -> Result<App> {
        let app = App { guard: 0, created_at: self.clock.now(), ..app };
        let created = self.register(&app).await;
        if created.is_err() {
            self.tidy(app.id.namespace.as_str()).await;
        }
        created
    }

    async fn find(&self, id: &AppId) -> Result<Option<App>> {
        let at = self.clock.elapsed();
        let found = get(&self.calls.apps(id.namespace.as_str()), id.name.as_str()).await?;
        let Some(found) = found.filter(|app| app.metadata.deletion_timestamp.is_none()) else { return Ok(None) };
        let app = codec::app(&found)?;
        self.mirror.note_app(found.clone());
        self.mirror.note_read(app.uid, &found, at);
        Ok(Some(app))
    }

    async fn list(&self, page: AppPage) -> Result<Vec<App>> {
        self.ready().await?;
        let after = page.after.as_ref().map(|after| (after.namespace.as_str(), after.name.as_str()));
        let mut names = self.mirror.app_names();
        names.retain(|(namespace, name)| {
            page.namespace.as_ref().is_none_or(|wanted| wanted.as_str() == namespace)
                && after.is_none_or(|after| (namespace.as_str(), name.as_str()) > after)
        });
        names.sort_unstable();
        let reads: Vec<BoxFuture<'_, Result<Option<AppObject>>>> = names
            .iter()
            .map(|(namespace, name)| async move { get(&self.calls.apps(namespace), name).await }.boxed())
            .collect();
        let mut found = stream::iter(reads).buffered(AT_ONCE.min(page.limit.max(1)));
        let mut apps = Vec::new();
        while apps.len() < page.limit
            && let Some(object) = found.next().await
        {
            // It may have been removed a moment ago.
            if let Some(object) = object?.filter(|object| object.metadata.deletion_timestamp.is_none()) {
                apps.push(codec::app(&object)?);
            }
        }
        Ok(apps)
    }

    async fn update(&self, app: App) -> Result<App> {
        for _ in 0..ATTEMPTS {
            let loaded = self.load(app.uid, Depth::App).await?;
            let mut head = loaded.head.clone();
            if head.guard != app.guard {
                return Err(Error::Conflict("app"));
            }
            (head.holds, head.guard) = (app.holds.clone(), head.guard + 1);
            if app.is_polled() {
                head.work_since.get_or_insert(head.time(self.clock.now()));
            }
            let mut object = AppObject::clone(&loaded.app);
            object.spec.source = codec::source(&app.source, &object.spec.source)?;
            object.spec.policy = codec::policy(&app.policy, &object.spec.policy)?;
            if let Some(updated) = self.commit_object(&loaded, object, head).await? {
                return codec::app(&updated);
            }
        }
        Err(contended())
    }

    async fn remove(&self, uid: AppUid) -> Result<()> {
        let Some(app) = Registrations::read(self, uid).await? else { return Ok(()) };
        let namespace = app.id.namespace.as_str();
        // First of all nobody must get in.
        self.secrets.discard(&app).await?;
        let guard = Preconditions { uid: Some(app.object.clone()), resource_version: None };
        delete(&self.calls.apps(namespace), app.id.name.as_str(), guard).await?;
        self.mirror.forget_app(uid, u64::MAX);
        let _ = self.wakes.send(Wake::App(uid));
        if let Err(error) = delete_all(&self.calls.deploys(namespace), &format!("{UID_LABEL}={uid}")).await {
            // The App owns them, so that the cluster removes what is left; whoever meets one until then does too.
            tracing::warn!(app = %app.id, error = %error.chain(), "its history is left to the cluster");
        }
        self.tidy(namespace).await;
        Ok(())
    }
}

impl KubernetesStore {
    async fn register(&self, app: &App) -> Result<App> {
        let object = codec::app_object(app)?;
        let api = self.calls.apps(app.id.namespace.as_str());
        for _ in 0..ATTEMPTS {
            let pair = self.claim_pair(app).await?;
            let created = match create(&api, &object).await? {
                Written::Done(created) => created,
                Written::Conflict => return Err(Error::Conflict("app")),
                Written::Gone => return Err(Error::NotFound("namespace")),
            };
            if self.confirm_pair(app, pair).await? {
                self.mirror.note_app(created.clone());
                return codec::app(&created);
            }
            let guard = Preconditions { uid: created.metadata.uid.clone(), resource_version: None };
            delete(&api, app.id.name.as_str(), guard).await?;
        }
        Err(contended())
    }

    /// Leaves nothing behind of a namespace without apps; what is left all the same hurts nobody.
    async fn tidy(&self, namespace: &str) {
        if let Err(error) = self.release_pair(namespace).await {
            tracing::debug!(namespace, error = %error.chain(), "the namespace's Lease is left");
        }
    }
}
