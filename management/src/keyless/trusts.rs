//! Pipelines that prove themselves by id_tokens: the trusts of apps, the check of a token, and its binding to one call.
//!
//! A caller's token is judged from cheap to dear: by the trusts of the app that the call names, by its own claims, and
//! only then by a signature, for which an issuer may have to be called. Nothing is written before all of it fits.
//!
//! A stolen token could be sent again. So the first call that has an effect binds it to its app, idempotency key
//! and body: the same call may be repeated until the token's end, and every other one is refused.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt, future::join_all};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use rollhook_core::{
    app::{App, AppId, AppUid},
    deploy::{Actor, Trigger},
    error::Error,
    ports::listed_id,
    request::{Cause, Field, IdempotencyKey, KeyHeader, Refusal as CoreRefusal},
    service::Authorized,
    text::{hash_of, hex},
    time::Timestamp,
};

use crate::{
    ATTEMPTS, Management, Outcome, Refusal,
    access::{Action, Place, Principal, Realm, Subject},
    documents,
    keyless::{
        self, CLAIMS_BYTES_MAX, Claims, IdToken, LEEWAY, Mismatch, TRUSTS_MAX, Trust, TrustId, WebhookProof,
        presented::WEBHOOK_ACTIONS,
    },
    ports::{Record, RecordKey, RecordKind},
    refused,
};

/// The most apps whose trusts are remembered; once there are more, all are forgotten.
const REMEMBERED: usize = 10_000;
/// The number of apps whose trusts are read in a second.
const READS: usize = 50;

/// The trusts of apps as they were last read.
#[derive(Default)]
pub(crate) struct KnownTrusts(Mutex<HashMap<AppId, Remembered>>);

/// An app's trusts as they were read, and the times of the store and of this process.
#[derive(Clone)]
struct Remembered {
    app: AppUid,
    trusts: Arc<[Trust]>,
    now: Timestamp,
    at: Duration,
}

/// The document of the record of an app's trusts, whose key is made of the app's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    /// The registration that the trusts belong to: a re-created app begins without any.
    app: AppUid,
    trusts: Vec<Trust>,
}

/// The document of the record of a used id_token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Used {
    /// The key that was made of the one call that the token is for.
    call: RecordKey,
}

/// An id_token that was verified, without its text.
#[derive(Clone, Debug)]
pub(crate) struct IdTokenUse {
    /// Made of issuer and `jti`.
    key: RecordKey,
    /// The rest of its time, and the leeway.
    left: Duration,
    body: [u8; 32],
}

impl IdTokenUse {
    /// Returns the key of a call that has none of its own: the same token is the same call.
    fn own_key(&self) -> IdempotencyKey {
        let key = format!("id-token-{}", self.key);
        IdempotencyKey { header: KeyHeader::IdempotencyKey, key, request: self.body }
    }

    /// Returns what the token is bound to.
    fn call(&self, app: AppUid, key: &IdempotencyKey) -> RecordKey {
        let body = hex(&self.body);
        RecordKey::of_hash(hash_of([&*app.to_string(), key.header.as_str(), &key.key, &body]))
    }
}

fn trusts_key(app: &AppId) -> RecordKey {
    RecordKey::of_hash(hash_of([&*app.to_string()]))
}

/// Returns the pipeline that these claims state. GitHub and GitLab name the same things differently.
fn actor(trust: &Trust, claims: &Claims) -> Actor {
    let first = |names: &[&str]| names.iter().find_map(|name| claims.text(name)).filter(|text| !text.is_empty());
    let repository = first(&["repository", "project_path", "repository_id", "project_id"]).unwrap_or_default();
    let (run, person) = (first(&["run_id", "pipeline_id"]), first(&["actor", "user_login"]));
    Actor::pipeline(trust.issuer().short_name(), &repository, run.as_deref(), person.as_deref())
}

impl KnownTrusts {
    fn remember(&self, app: &AppId, read: Option<(&Record, &Stored)>, at: Duration) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((record, stored)) = read.filter(|(_, stored)| !stored.trusts.is_empty()) else {
            known.remove(app);
            return;
        };
        if known.len() >= REMEMBERED {
            known.clear();
        }
        let trusts = stored.trusts.iter().cloned().collect();
        known.insert(app.clone(), Remembered { app: stored.app, trusts, now: record.now, at });
    }

    /// Returns the registration whose trusts were read.
    pub(crate) fn uid(&self, app: &AppId) -> Option<AppUid> {
        self.remembered(app).map(|known| known.app)
    }

    fn remembered(&self, app: &AppId) -> Option<Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(app).cloned()
    }
}

impl Management {
    /// Returns the proof that an id_token is, for the app that it is presented to.
    ///
    /// # Errors
    /// [`Unauthorized`](rollhook_core::request::Refusal::Unauthorized), the same for every fault of the token; [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable);
    /// [`Refusal::IssuerUnavailable`] for a token that fits and cannot be verified now.
    pub(crate) async fn by_identity(&self, app: &AppId, token: &IdToken, body: &[u8]) -> Outcome<WebhookProof> {
        let verifier = self.identities.as_ref().ok_or(Refusal::UNAUTHORIZED)?;
        let (record, stored) = self.read_trusts(app).await?.ok_or(Refusal::UNAUTHORIZED)?;
        let claims = token.claims();
        let trust = keyless::fitting(&stored.trusts, claims, record.now).map_err(|mismatch| {
            self.log_mismatch(app, &mismatch);
            Refusal::UNAUTHORIZED
        })?;
        match verifier.verify(trust.issuer(), token).await {
            Ok(true) => {}
            Ok(false) => {
                let issuer = trust.issuer();
                self.log_refusal(|left_out| {
                    tracing::info!(%app, %issuer, left_out, "refused an id_token: no key of its issuer has signed it");
                });
                return Err(Refusal::UNAUTHORIZED);
            }
            Err(error) => {
                let (issuer, error) = (trust.issuer(), error.chain());
                self.log_refusal(|left_out| {
                    tracing::warn!(%app, %issuer, error, left_out, "reading the keys of an issuer failed");
                });
                return Err(Refusal::IssuerUnavailable);
            }
        }
        // The trusts of a deleted app open nothing.
        let registered = self.deployer.find_app(app).await?.filter(|found| found.app.uid == stored.app);
        let registered = registered.ok_or(Refusal::UNAUTHORIZED)?;
        let (Some(jti), Some(end)) = (claims.text("jti"), claims.time("exp")) else {
            return Err(Refusal::UNAUTHORIZED);
        };
        let key = RecordKey::of_hash(hash_of([trust.issuer().as_str(), &*jti]));
        let left = end.after(LEEWAY).since(record.now).max(Duration::from_millis(1));
        let id_token = IdTokenUse { key, left, body: Sha256::digest(body).into() };
        let cause = Cause { trigger: Trigger::Webhook, actor: actor(trust, claims) };
        let access = Authorized::allow(&registered.app, cause, &WEBHOOK_ACTIONS);
        Ok(WebhookProof { access, id_token: Some(id_token) })
    }

    /// Binds an id_token to the call with this key, and returns the key under which the call is made, as a call by an
    /// id_token always has one, and whether it was bound just now.
    ///
    /// # Errors
    /// [`Unauthorized`](rollhook_core::request::Refusal::Unauthorized) if the token was used for another call; [`Refusal::TooManyIdTokens`];
    /// [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable).
    pub(crate) async fn bind_id_token(
        &self,
        access: &Authorized,
        id_token: &IdTokenUse,
        key: Option<IdempotencyKey>,
    ) -> Outcome<(IdempotencyKey, bool)> {
        let caller = self.webhook_caller(access.app());
        if let Err(refusal) = self.used_tokens.check(&caller, self.deployer.ports().clock.elapsed()) {
            let bound = self.bound_id_token(access, id_token, key).await?;
            return bound.map(|key| (key, false)).ok_or(refusal);
        }
        let own = key.clone().unwrap_or_else(|| id_token.own_key());
        let used = Used { call: id_token.call(access.uid(), &own) };
        let record = documents::encode(id_token.key.clone(), &used, Some(id_token.left)).map_err(refused)?;
        match self.records.write(RecordKind::IdToken, record, None).await {
            Err(Error::Conflict(_)) => {
                let bound = self.bound_id_token(access, id_token, key).await?;
                bound.map(|key| (key, false)).ok_or(Refusal::UNAUTHORIZED)
            }
            written => {
                // Also one whose answer was lost may have been written.
                self.used_tokens.used(&caller, self.deployer.ports().clock.elapsed());
                written.map(|_| (own, true)).map_err(refused)
            }
        }
    }

    /// Returns the key under which an id_token was bound to the call with this key; `None` if it was bound to none.
    ///
    /// # Errors
    /// As [`Management::bind_id_token`].
    pub(crate) async fn bound_id_token(
        &self,
        access: &Authorized,
        id_token: &IdTokenUse,
        key: Option<IdempotencyKey>,
    ) -> Outcome<Option<IdempotencyKey>> {
        let key = key.unwrap_or_else(|| id_token.own_key());
        let before = documents::read(&*self.records, RecordKind::IdToken, &id_token.key).await.map_err(refused)?;
        let Some((_, before)): Option<(Record, Used)> = before else { return Ok(None) };
        if before == (Used { call: id_token.call(access.uid(), &key) }) {
            return Ok(Some(key));
        }
        let (app, actor) = (access.app(), access.actor());
        self.log_refusal(|left_out| {
            tracing::warn!(%app, %actor, left_out, "refused an id_token that was used for another call");
        });
        Err(Refusal::UNAUTHORIZED)
    }

    fn log_mismatch(&self, app: &AppId, mismatch: &Mismatch) {
        if *mismatch == Mismatch::Issuer {
            tracing::debug!(%app, reason = %mismatch, "refused an id_token");
        } else {
            self.log_refusal(|left_out| tracing::info!(%app, reason = %mismatch, left_out, "refused an id_token"));
        }
    }

    /// Writes a line about an id_token, of which the log has a bounded number: anyone can send one that names an app's trust.
    fn log_refusal(&self, line: impl FnOnce(Option<u64>)) {
        self.identity_lines.write(self.deployer.ports().clock.elapsed(), line);
    }

    /// Returns whether an id_token fits the app's trusts as they were last read, and is worth a read of the store.
    pub(crate) fn recognizes_identity(&self, app: &AppId, token: &IdToken) -> bool {
        let (Some(verifier), Some(known)) = (&self.identities, self.trusts.remembered(app)) else {
            return false;
        };
        let now = known.now.after(self.deployer.ports().clock.elapsed().saturating_sub(known.at));
        keyless::fitting(&known.trusts, token.claims(), now)
            .is_ok_and(|trust| verifier.recognizes(trust.issuer(), token))
    }

    /// Reads an app's trusts, so that its callers are recognised.
    pub(crate) async fn remember_trusts(&self, app: &AppId) {
        if self.identities.is_some() {
            // Trusts that cannot be read now are read for their app's first caller.
            let _ = self.read_trusts(app).await;
        }
    }

    /// Reads the trusts of each app once, fifty in a second.
    pub(crate) async fn read_all_trusts(&self) {
        if self.identities.is_none() {
            return;
        }
        let mut pages = pin!(self.deployer.all_apps());
        while let Some(apps) = pages.next().await {
            for some in apps.chunks(READS) {
                join_all(some.iter().map(|app| self.remember_trusts(listed_id(app)))).await;
                self.deployer.ports().clock.sleep(Duration::from_secs(1)).await;
            }
        }
    }

    async fn read_trusts(&self, app: &AppId) -> Outcome<Option<(Record, Stored)>> {
        let read = documents::read(&*self.records, RecordKind::Trusts, &trusts_key(app)).await.map_err(refused)?;
        self.trusts.remember(
            app,
            read.as_ref().map(|(record, stored)| (record, stored)),
            self.deployer.ports().clock.elapsed(),
        );
        Ok(read)
    }

    /// Returns the pipelines that an app trusts.
    ///
    /// # Errors
    /// [`AppNotFound`](rollhook_core::request::Refusal::AppNotFound); [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away.
    pub async fn trusts(&self, principal: &Principal, id: &AppId) -> Outcome<Vec<Trust>> {
        let app = self.readable_app(principal, id).await?;
        let read = self.read_trusts(id).await?.filter(|(_, stored)| stored.app == app.uid);
        Ok(read.map(|(_, stored)| stored.trusts).unwrap_or_default())
    }

    /// Lets a pipeline call an app's webhook by its id_tokens. A trust that the app has already stays as it is.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`], [`AppNotFound`](rollhook_core::request::Refusal::AppNotFound), [`Refusal::TooManyTrusts`]; [`InvalidField`](rollhook_core::request::Refusal::InvalidField) for an
    /// issuer that cannot be called; [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away.
    pub async fn add_trust(&self, principal: &Principal, id: &AppId, trust: Trust) -> Outcome<()> {
        let app = self.open_trusts(principal, id, "added", &trust.id()).await?;
        if let Some(Err(reason)) = self.identities.as_ref().map(|verifier| verifier.check(trust.issuer())) {
            return Err(CoreRefusal::InvalidField(Field::TrustIssuer, reason).into());
        }
        self.change_trusts(&app, |trusts| {
            if trusts.contains(&trust) {
                return Ok(());
            }
            // All of them are one record.
            let length =
                |trust: &Trust| trust.claims().iter().map(|(name, text)| name.len() + text.len()).sum::<usize>();
            let all = trusts.iter().map(length).sum::<usize>() + length(&trust);
            if trusts.len() >= TRUSTS_MAX || all > CLAIMS_BYTES_MAX {
                return Err(Refusal::TooManyTrusts);
            }
            trusts.push(trust.clone());
            Ok(())
        })
        .await
    }

    /// Ends the trust in a pipeline: its id_tokens are refused from then on, by every replica.
    ///
    /// # Errors
    /// [`Refusal::TrustNotFound`]; as [`Management::add_trust`].
    pub async fn remove_trust(&self, principal: &Principal, id: &AppId, trust: &TrustId) -> Outcome<()> {
        let app = self.open_trusts(principal, id, "removed", trust).await?;
        self.change_trusts(&app, |trusts| {
            let before = trusts.len();
            trusts.retain(|known| known.id() != *trust);
            if trusts.len() < before { Ok(()) } else { Err(Refusal::TrustNotFound(trust.clone())) }
        })
        .await
    }

    /// Removes the trust in pipelines of an app that was deleted, unless another one has its name by now.
    pub(crate) async fn forget_trusts_of(&self, app: &AppId, uid: AppUid) -> Outcome<()> {
        match self.read_trusts(app).await? {
            Some((_, stored)) if stored.app == uid => self.forget_trusts(app).await,
            Some(_) | None => Ok(()),
        }
    }

    /// Ends the trust in all pipelines.
    pub(crate) async fn forget_trusts(&self, app: &AppId) -> Outcome<()> {
        self.records.remove(RecordKind::Trusts, &trusts_key(app)).await.map_err(refused)
    }

    /// Returns an app whose trusts the principal may change. The audit has the change before it is made.
    async fn open_trusts(&self, principal: &Principal, id: &AppId, act: &str, trust: &TrustId) -> Outcome<Arc<App>> {
        let app = self.readable_app(principal, id).await?;
        let realm = Realm::of_app(&app);
        let granted = self.may(principal, Action::ChangeTrusts, Place::app(id, &realm)).await?;
        let subject = Subject::new(format!("app {id}, trust {trust} {act}"), realm);
        self.audit(principal, Action::ChangeTrusts, subject, granted).await?;
        Ok(app)
    }

    async fn change_trusts(&self, app: &App, change: impl Fn(&mut Vec<Trust>) -> Outcome<()>) -> Outcome<()> {
        let key = trusts_key(&app.id);
        for _ in 0..ATTEMPTS {
            let read = self.read_trusts(&app.id).await?;
            let (version, before) = match read {
                Some((record, stored)) if stored.app == app.uid => (Some(record.version), stored.trusts),
                // Those of an app of this name that was deleted.
                Some((record, _)) => (Some(record.version), Vec::new()),
                None => (None, Vec::new()),
            };
            let mut trusts = before.clone();
            change(&mut trusts)?;
            if trusts == before {
                return Ok(());
            }
            let stored = Stored { app: app.uid, trusts };
            let record = documents::encode(key.clone(), &stored, None).map_err(refused)?;
            match self.records.write(RecordKind::Trusts, record, version).await {
                Err(Error::Conflict(_)) => {}
                written => {
                    written.map_err(refused)?;
                    // Its callers are recognised from the first call on.
                    self.remember_trusts(&app.id).await;
                    return Ok(());
                }
            }
        }
        Err(Refusal::BUSY)
    }
}
