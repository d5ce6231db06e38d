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

mod budget;
mod memory;
mod object;
mod operator;
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

pub(crate) use self::registrations::{Registered, Registrations};
use self::{
    budget::Budget,
    memory::{Memory, Recall},
    object::Maker,
    operator::Operator,
    shared::again,
};
use super::{
    KubernetesStore, StoreClock,
    api::{self, ApiServer, Written},
};
use crate::bounded;

pub(crate) use self::operator::NAME as OPERATOR_SECRET;

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
    memory: Memory,
    operator: Operator,
}

impl Secrets {
    pub(crate) fn new(api: ApiServer, ring: Arc<KeyRing>, clock: StoreClock) -> Self {
        Self {
            api,
            ring,
            budget: Budget::new(clock.clone()),
            first_reads: Arc::new(Semaphore::new(FIRST_READS)),
            memory: Memory::default(),
            operator: Operator::new(clock.clone()),
            clock,
        }
    }

    /// The keys that tokens are sealed with.
    pub(crate) fn ring(&self) -> &KeyRing {
        &self.ring
    }

    async fn put(&self, apps: &dyn Registrations, app: AppUid, token: &Token) -> Result<WebhookSecret> {
        let app = apps.read(app).await?.ok_or(Error::NotFound(Entity::App))?;
        let secret = WebhookSecret {
            app: app.uid,
            token: token.clone(),
            created_at: Timestamp::max(self.clock.now(), app.created_at),
        };
        let version = self.write(&app, &secret).await?;
        // A replica may refuse by an outdated token from now on, until its watch shows this.
        apps.announce(&app, Some(&version)).await?;
        Ok(secret)
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
        let read = self.read(&app, ready(())).await?;
        match &read {
            // The watch may lag behind a registration that was made anew.
            Some(secret) if secret.app != app.uid => {
                let now = apps.look_up(id).await?.map(|app| app.uid);
                Ok(read.filter(|secret| Some(secret.app) == now))
            }
            Some(_) | None => Ok(read),
        }
    }

    async fn find_fitting(
        &self,
        apps: &dyn Registrations,
        id: &AppId,
        fits: TokenMatcher<'_, Token>,
    ) -> Result<Option<WebhookSecret>> {
        if let Some(decided) = self.try_fitting(apps, id, fits).await? {
            return Ok(decided);
        }
        // Refused by memory alone, which the watch may be about to correct: another replica may just have registered
        // the app, or enabled its webhook. The delay is the same for all that are refused so, and tells them nothing.
        tokio::time::sleep(self.clock.lag()).await;
        Ok(self.try_fitting(apps, id, fits).await?.flatten())
    }

    /// The answer of a read. Returns `None` if nothing was read, and memory refuses the caller.
    async fn try_fitting(
        &self,
        apps: &dyn Registrations,
        id: &AppId,
        fits: TokenMatcher<'_, Token>,
    ) -> Result<Option<Option<WebhookSecret>>> {
        let refuse = |secret: Option<&WebhookSecret>| !fits(secret.map(|secret| &secret.token));
        let (known, looked) = match apps.known(id).await? {
            None if self.budget.take_now() => (apps.look_up(id).await?, true),
            known => (known, false),
        };
        let Some(app) = known else {
            refuse(None);
            return Ok(looked.then_some(None));
        };
        let read = match self.memory.slot(id).recall(&app, self.clock.elapsed()) {
            Recall::Nothing => {
                // The callers after this one are refused by the result of this read.
                self.budget.take_now();
                self.read(&app, self.first_reads.clone().acquire_owned()).await?
            }
            Recall::Token(secret) if !refuse(secret.as_ref()) || self.budget.take_now() => {
                self.read(&app, ready(())).await?
            }
            Recall::Token(_) => return Ok(None),
            Recall::Failed(failure) => return Err(again(&failure)),
        };
        // What is sealed for another registration of the name opens nothing.
        let read = read.filter(|secret| secret.app == app.uid);
        Ok(Some(read.filter(|secret| !refuse(Some(secret)))))
    }

    /// Reads the app's token once it is its turn, and remembers it.
    async fn read<Turn: Send>(
        &self,
        app: &Registered,
        turn: impl Future<Output = Turn> + Send + 'static,
    ) -> Result<Option<WebhookSecret>> {
        let slot = self.memory.slot(&app.id);
        let (api, ring, clock) = (self.within(&app.id), self.ring.clone(), self.clock.clone());
        let (app, seen) = (app.clone(), slot.clone());
        let read = async move {
            let found = api::get(&api, &object::name(&app.id)).await;
            let read = found.and_then(|found| found.map_or(Ok(None), |secret| object::open(&ring, &secret)));
            let read = read.map_err(Arc::new);
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

    async fn find(&self, app: &AppId) -> Result<Option<WebhookSecret>> {
        bounded(self.secrets.find(self, app)).await
    }

    async fn find_fitting(&self, app: &AppId, fits: TokenMatcher<'_, Token>) -> Result<Option<WebhookSecret>> {
        bounded(self.secrets.find_fitting(self, app, fits)).await
    }

    async fn remove(&self, app: AppUid) -> Result<()> {
        bounded(self.secrets.remove(self, app)).await
    }

    async fn operator_hash(&self) -> Result<Option<[u8; 32]>> {
        let secrets = &self.secrets;
        bounded(secrets.operator.hash(&secrets.api)).await
    }

    async fn operator_fitting(&self, fits: TokenMatcher<'_, [u8; 32]>) -> Result<bool> {
        let secrets = &self.secrets;
        bounded(secrets.operator.fitting(&secrets.api, fits)).await
    }

    async fn set_operator_hash(&self, hash: [u8; 32]) -> Result<()> {
        let secrets = &self.secrets;
        bounded(secrets.operator.set(&secrets.api, hash)).await
    }

    fn sealing(&self) -> Sealing {
        Sealing::Sealed
    }
}

#[cfg(test)]
mod tests;
