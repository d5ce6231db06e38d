//! Tokens, each sealed in a Secret beside its app: `{app}-webhook`, which belongs to the `RollhookApp` and goes with it.
//!
//! Secrets are never listed or watched, as no role can narrow that: each is read by its name. A change is announced on
//! the `RollhookApp`, by an annotation, and so reaches every replica by the watch that they have anyway. It is the token's mark,
//! by which the service refuses callers without a read.

pub(crate) mod object;
mod reads;
mod registrations;
mod reseal;

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    error::Entity,
    ports::{Sealing, TokenMark, TokenMatcher, TokenStore, WebhookSecret},
    time::Timestamp,
    token::Token,
};
use rollhook_sealing::KeyRing;

use self::reads::Reads;
pub(crate) use self::{object::Maker, registrations::Registered};
use super::{
    KubernetesStore, StoreClock,
    api::{self, ApiServer, Written},
};
use crate::bounded;

/// The number of attempts to write a Secret that others write at the same time.
pub(crate) const ATTEMPTS: u32 = 10;

/// The Secrets of one cluster.
pub(crate) struct Secrets {
    api: ApiServer,
    ring: Arc<KeyRing>,
    clock: StoreClock,
    reads: Reads,
}

impl Secrets {
    pub(crate) fn new(api: ApiServer, ring: Arc<KeyRing>, clock: StoreClock) -> Self {
        Self { reads: Reads::new(api.clone()), api, ring, clock }
    }

    /// The keys that tokens are sealed with.
    pub(crate) fn ring(&self) -> &KeyRing {
        &self.ring
    }

    async fn put(&self, apps: &KubernetesStore, app: AppUid, token: &Token) -> Result<WebhookSecret> {
        let app = apps.registered(app).await?.ok_or(Error::NotFound(Entity::App))?;
        let created_at = Timestamp::max(self.clock.now(), app.created_at);
        let secret = WebhookSecret::new(app.uid, token.clone(), created_at);
        let version = self.write(&app, &secret).await?;
        // A replica may refuse by an outdated token from now on, until its watch shows this.
        apps.announce(&app, Some(&version)).await?;
        Ok(secret)
    }

    async fn rotate(
        &self,
        apps: &KubernetesStore,
        app: AppUid,
        token: &Token,
        until: Timestamp,
    ) -> Result<WebhookSecret> {
        let app = apps.registered(app).await?.ok_or(Error::NotFound(Entity::App))?;
        for _ in 0..ATTEMPTS {
            let stored = self.object(&app.id).await?;
            let ours = stored.filter(|secret| object::maker(secret) == Maker::Rollhook(app.uid));
            let mut object = ours.ok_or(Error::NotFound(Entity::Object))?;
            let present = object::open(&self.ring, &object)?.ok_or(Error::NotFound(Entity::Object))?;
            let created_at = present.created_at.max(self.clock.now());
            let secret = present.rotated(token.clone(), until, created_at);
            object::fill(&self.ring, &mut object, &secret)?;
            if let Written::Done(written) = api::replace(&self.within(&app.id), &object).await? {
                apps.announce(&app, written.metadata.resource_version.as_deref()).await?;
                return Ok(secret);
            }
        }
        Err(Error::Conflict(Entity::Object))
    }

    /// Writes the Secret, and returns its version.
    async fn write(&self, app: &Registered, secret: &WebhookSecret) -> Result<String> {
        for _ in 0..ATTEMPTS {
            let written = match self.object(&app.id).await? {
                None => api::create(&self.within(&app.id), &object::sealed(&self.ring, app, secret)?).await?,
                Some(mut present) => match object::maker(&present) {
                    Maker::Rollhook(uid) if uid == app.uid => {
                        object::fill(&self.ring, &mut present, secret)?;
                        api::replace(&self.within(&app.id), &present).await?
                    }
                    // Left behind by an earlier app of this name, whose `RollhookApp` is gone. It is not overwritten: the
                    // cluster may be about to remove it for that.
                    Maker::Rollhook(_) => {
                        self.delete(&app.id, &present).await?;
                        continue;
                    }
                    Maker::Other => {
                        return Err(object::in_the_way(app.id.namespace.as_str(), &object::name(&app.id)));
                    }
                },
            };
            if let Written::Done(written) = written {
                return Ok(written.metadata.resource_version.unwrap_or_default());
            }
        }
        Err(Error::Conflict(Entity::Object))
    }

    async fn remove(&self, apps: &KubernetesStore, app: AppUid) -> Result<()> {
        let Some(app) = apps.registered(app).await? else { return Ok(()) };
        self.discard(&app).await?;
        apps.announce(&app, None).await
    }

    /// Deletes the app's Secret, if there is one and it is this registration's.
    pub(crate) async fn discard(&self, app: &Registered) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let ours = self.object(&app.id).await?.filter(|secret| object::maker(secret) == Maker::Rollhook(app.uid));
            let Some(secret) = ours else { return Ok(()) };
            self.delete(&app.id, &secret).await?;
        }
        Err(Error::Conflict(Entity::Object))
    }

    /// Deletes just this version of a Secret. Callers read again to learn whether it was still there.
    async fn delete(&self, app: &AppId, secret: &Secret) -> Result<()> {
        api::delete(&self.within(app), &secret.metadata).await.map(drop)
    }

    /// Returns the app's token, or why it cannot be opened.
    async fn find(&self, apps: &KubernetesStore, id: &AppId) -> Result<Result<Option<WebhookSecret>>> {
        let known = match apps.known(id).await? {
            None => apps.look_up(id).await?,
            known => known,
        };
        let Some(app) = known else { return Ok(Ok(None)) };
        let Some(object) = self.reads.read(id).await? else { return Ok(Ok(None)) };
        let opened = object::open(&self.ring, &object);
        let Ok(Some(secret)) = &opened else { return Ok(opened) };
        // What is sealed for another registration of the name opens nothing; the watch may lag behind a new one.
        let is_now = secret.app == app.uid || apps.look_up(id).await?.is_some_and(|now| now.uid == secret.app);
        Ok(opened.map(|secret| secret.filter(|_| is_now)))
    }

    /// Returns the app's token if it fits. One that cannot be opened, or whose app cannot be read, fits no caller: who is
    /// refused must not learn that there is one.
    async fn find_fitting(
        &self,
        apps: &KubernetesStore,
        id: &AppId,
        fits: TokenMatcher<'_>,
    ) -> Result<Option<WebhookSecret>> {
        let opened = match self.find(apps, id).await {
            Err(error @ Error::Corrupt { .. }) => Err(error),
            found => found?,
        };
        let secret = opened.unwrap_or_else(|error| {
            tracing::error!(app = %id, error = %error.chain(), "refusing a call: the app's token cannot be opened");
            None
        });
        let fit = fits(secret.as_ref());
        Ok(secret.filter(|_| fit))
    }

    async fn mark(&self, apps: &KubernetesStore, id: &AppId) -> Result<TokenMark> {
        let seen = apps.known(id).await?.and_then(|app| Some((app.uid, app.webhook?)));
        Ok(seen.map_or(TokenMark::NoToken, |(uid, version)| TokenMark::Token(format!("{uid}/{version}"))))
    }

    async fn object(&self, app: &AppId) -> Result<Option<Secret>> {
        api::get(&self.within(app), &object::name(app)).await
    }

    fn within(&self, app: &AppId) -> Api<Secret> {
        self.api.within(app.namespace.as_str())
    }
}

#[async_trait]
impl TokenStore for KubernetesStore {
    async fn put(&self, app: AppUid, token: &Token) -> Result<WebhookSecret> {
        bounded(self.secrets.put(self, app, token)).await
    }

    async fn rotate(&self, app: AppUid, token: &Token, until: Timestamp) -> Result<WebhookSecret> {
        bounded(self.secrets.rotate(self, app, token, until)).await
    }

    async fn find(&self, app: &AppId) -> Result<Option<WebhookSecret>> {
        bounded(self.secrets.find(self, app)).await?
    }

    async fn find_fitting(&self, app: &AppId, fits: TokenMatcher<'_>) -> Result<Option<WebhookSecret>> {
        bounded(self.secrets.find_fitting(self, app, fits)).await
    }

    async fn mark(&self, app: &AppId) -> Result<TokenMark> {
        self.secrets.mark(self, app).await
    }

    async fn remove(&self, app: AppUid) -> Result<()> {
        bounded(self.secrets.remove(self, app)).await
    }

    fn sealing(&self) -> Sealing {
        Sealing::Sealed
    }
}
