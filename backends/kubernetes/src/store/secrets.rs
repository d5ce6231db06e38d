//! Tokens, each sealed in a Secret beside its app: `{app}-webhook`, which belongs to the `App` and goes with it.
//!
//! Secrets are never listed or watched, as no role can narrow that: each is read by its name. A caller is
//! let in only by a read that this very call has made, and is refused by what this replica remembers:
//!
//! ```text
//!   app unknown to the watch ─────────────── one read, if the budget allows ─▶ 401
//!   token not read since it was announced ── one read, for all who wait, ────╮
//!                                            a few apps' at a time           │
//!   does not fit what is remembered ──────── one read, if the budget allows ─┼▶ fits what was read? yes / 401
//!   fits what is remembered ──────────────── one read, shared ───────────────╯
//! ```
//!
//! A change is announced on the `App`, by an annotation, and so reaches the memory of every replica by the watch that
//! they have anyway. The [`Budget`] is one call per second: callers without a valid token cost no more than that,
//! however many they are. Beside it they can only cause the read that the first valid call would cause: one of an app's
//! token after a change, while at most [`FIRST_READS`] of those run. A token that could not be read is read again after
//! a second.
//!
//! Refusals tell nothing of which apps there are: a caller of an app is refused no sooner than a caller of a name that
//! no app has, a token that cannot be opened fits no caller, and while calls fail, all who are not let in are told so.

mod budget;
mod memory;
mod object;
mod outage;
mod registrations;
mod reseal;
mod shared;

use std::{future::ready, sync::Arc};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    error::Entity,
    ports::{Sealing, TokenMatcher, TokenStore, WebhookSecret},
    time::Timestamp,
    token::Token,
};
use rollhook_sealing::KeyRing;
use tokio::sync::Semaphore;

pub(crate) use self::{
    budget::Budget,
    memory::Memory,
    outage::Outage,
    registrations::{Registered, Registrations},
};
use self::{
    memory::{Recall, Stored},
    object::Maker,
    shared::again,
};
use super::{
    KubernetesStore, StoreClock,
    api::{self, ApiServer, Written},
};
use crate::bounded;

/// The number of attempts to write a Secret that others write at the same time.
const ATTEMPTS: u32 = 10;
/// The number of apps whose tokens are read at the same time while nothing is remembered of them. Callers wait in turn:
/// even if every app is called right after a start, a caller with a valid token waits about a second.
const FIRST_READS: usize = 4;

/// The Secrets of one cluster, and what is remembered of them.
pub(crate) struct Secrets {
    api: ApiServer,
    ring: Arc<KeyRing>,
    clock: StoreClock,
    budget: Budget,
    first_reads: Arc<Semaphore>,
    memory: Arc<Memory>,
    outage: Arc<Outage>,
}

/// The outcome of comparing a caller's token.
enum Tried {
    /// The token fits a secret that was read.
    Fits(WebhookSecret),
    /// The token does not fit, and the caller is refused.
    Refused,
    /// The same, without a call, or sooner than other callers are refused.
    RefusedByMemory,
}

impl Secrets {
    pub(crate) fn new(api: ApiServer, ring: Arc<KeyRing>, clock: StoreClock, memory: Arc<Memory>) -> Self {
        Self {
            api,
            ring,
            budget: Budget::new(clock.clone()),
            first_reads: Arc::new(Semaphore::new(FIRST_READS)),
            memory,
            outage: Arc::default(),
            clock,
        }
    }

    /// The keys that tokens are sealed with.
    pub(crate) fn ring(&self) -> &KeyRing {
        &self.ring
    }

    async fn put(&self, apps: &dyn Registrations, app: AppUid, token: &Token) -> Result<WebhookSecret> {
        let app = apps.read(app).await?.ok_or(Error::NotFound(Entity::App))?;
        let created_at = Timestamp::max(self.clock.now(), app.created_at);
        let secret = WebhookSecret::new(app.uid, token.clone(), created_at);
        let version = self.write(&app, &secret).await?;
        // A replica may refuse by an outdated token from now on, until its watch shows this.
        apps.announce(&app, Some(&version)).await?;
        Ok(secret)
    }

    async fn rotate(
        &self,
        apps: &dyn Registrations,
        app: AppUid,
        token: &Token,
        until: Timestamp,
    ) -> Result<WebhookSecret> {
        let app = apps.read(app).await?.ok_or(Error::NotFound(Entity::App))?;
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
                    // Left behind by an earlier app of this name, whose `App` is gone. It is not overwritten: the
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

    async fn remove(&self, apps: &dyn Registrations, app: AppUid) -> Result<()> {
        let Some(app) = apps.read(app).await? else { return Ok(()) };
        self.discard(&app).await?;
        apps.announce(&app, None).await
    }

    /// Deletes the app's Secret, if there is one and it is this registration's.
    pub(crate) async fn discard(&self, app: &Registered) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let ours = self.object(&app.id).await?.filter(|secret| object::maker(secret) == Maker::Rollhook(app.uid));
            let Some(secret) = ours else {
                self.memory.forget(&app.id);
                return Ok(());
            };
            self.delete(&app.id, &secret).await?;
        }
        Err(Error::Conflict(Entity::Object))
    }

    /// Deletes just this version of a Secret. Callers read again to learn whether it was still there.
    async fn delete(&self, app: &AppId, secret: &Secret) -> Result<()> {
        api::delete(&self.within(app), &secret.metadata).await.map(drop)
    }

    async fn find(&self, apps: &dyn Registrations, id: &AppId) -> Result<Option<WebhookSecret>> {
        let known = match apps.known(id).await? {
            None => apps.look_up(id).await?,
            known => known,
        };
        let Some(app) = known else { return Ok(None) };
        match self.read(&app, ready(())).await? {
            // The watch may lag behind a registration that was made anew.
            Stored::Token(secret) if secret.app != app.uid => {
                let now = apps.look_up(id).await?.map(|app| app.uid);
                Ok(Some(secret).filter(|secret| Some(secret.app) == now))
            }
            Stored::Token(secret) => Ok(Some(secret)),
            Stored::Nothing => Ok(None),
            Stored::Unopened(failure) => Err(again(&failure)),
        }
    }

    async fn find_fitting(
        &self,
        apps: &dyn Registrations,
        id: &AppId,
        fits: TokenMatcher<'_>,
    ) -> Result<Option<WebhookSecret>> {
        match self.try_fitting(apps, id, fits).await? {
            Tried::Fits(secret) => return Ok(Some(secret)),
            Tried::Refused => return Ok(None),
            Tried::RefusedByMemory => {}
        }
        // Memory may be about to be corrected by the watch: another replica may just have registered the app, or
        // enabled its webhook. The delay is the same for all that are refused so, and tells them nothing.
        tokio::time::sleep(self.clock.lag()).await;
        if let Tried::Fits(secret) = self.try_fitting(apps, id, fits).await? {
            return Ok(Some(secret));
        }
        Ok(None)
    }

    async fn try_fitting(&self, apps: &dyn Registrations, id: &AppId, fits: TokenMatcher<'_>) -> Result<Tried> {
        let refuse = |secret: Option<&WebhookSecret>| !fits(secret);
        let (known, paid) = match apps.known(id).await? {
            None if self.budget.take_now() => (self.look_up(apps, id).await?, true),
            known => (known, false),
        };
        let Some(app) = known else {
            refuse(None);
            return self.refused(paid);
        };
        let (read, paid) = match self.memory.slot(id).recall(&app, self.clock.elapsed()) {
            Recall::Nothing => {
                // The callers after this one are refused by the result of this read.
                let paid = self.budget.take_now() || paid;
                (self.read(&app, self.first_reads.clone().acquire_owned()).await?, paid)
            }
            Recall::Token(secret) if !refuse(secret.as_ref()) || self.budget.take_now() => {
                (self.read(&app, ready(())).await?, true)
            }
            Recall::Token(_) => return self.refused(false),
            Recall::Failed(failure) => return Err(again(&failure)),
        };
        match read {
            // What is sealed for another registration of the name opens nothing.
            Stored::Token(secret) if secret.app == app.uid && !refuse(Some(&secret)) => return Ok(Tried::Fits(secret)),
            Stored::Token(_) => {}
            Stored::Nothing => drop(refuse(None)),
            Stored::Unopened(failure) => {
                refuse(None);
                tracing::error!(app = %id, error = %failure.chain(), "refusing a call: the app's token cannot be opened");
            }
        }
        self.refused(paid)
    }

    /// The app of this name, by one call. One that cannot be read is no app to its callers.
    async fn look_up(&self, apps: &dyn Registrations, id: &AppId) -> Result<Option<Registered>> {
        match self.outage.noted(apps.look_up(id).await, self.clock.elapsed()) {
            Err(error @ Error::Corrupt { .. }) => {
                tracing::error!(app = %id, error = %error.chain(), "refusing a call: the app cannot be read");
                Ok(None)
            }
            looked => looked,
        }
    }

    /// A refusal: after a call within the budget, or one that memory makes, and must not come sooner for a known app.
    fn refused(&self, paid: bool) -> Result<Tried> {
        if paid {
            return Ok(Tried::Refused);
        }
        self.outage.check(self.clock.elapsed())?;
        Ok(Tried::RefusedByMemory)
    }

    /// Reads the app's token once it is its turn, and remembers it.
    async fn read<Turn: Send>(
        &self,
        app: &Registered,
        turn: impl Future<Output = Turn> + Send + 'static,
    ) -> Result<Stored> {
        let slot = self.memory.slot(&app.id);
        let (api, ring, clock) = (self.within(&app.id), self.ring.clone(), self.clock.clone());
        let (app, seen, outage) = (app.clone(), slot.clone(), self.outage.clone());
        let read = async move {
            let found = api::get(&api, &object::name(&app.id)).await;
            let read = outage.noted(found, clock.elapsed()).map_err(Arc::new).map(|found| match found {
                None => Stored::Nothing,
                Some(secret) => Stored::of(object::open(&ring, &secret)),
            });
            seen.remember(&app, read.clone(), clock.elapsed());
            read.map_err(|failure| again(&failure))
        };
        slot.reads.read(turn, read).await
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
        bounded(self.secrets.find(self, app)).await
    }

    async fn find_fitting(&self, app: &AppId, fits: TokenMatcher<'_>) -> Result<Option<WebhookSecret>> {
        bounded(self.secrets.find_fitting(self, app, fits)).await
    }

    async fn remove(&self, app: AppUid) -> Result<()> {
        bounded(self.secrets.remove(self, app)).await
    }

    fn sealing(&self) -> Sealing {
        Sealing::Sealed
    }
}

#[cfg(test)]
mod tests;
