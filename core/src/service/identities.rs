//! Pipelines that prove themselves by id_tokens: the trusts of apps, the check of a token, and its binding to one call.
//!
//! A caller's token is judged from cheap to dear: by the trusts of the app that the call names, by its own claims, and
//! only then by a signature, for which an issuer may have to be called. Nothing is written before all of it fits.
//!
//! A stolen token could be sent again. So the first call that has an effect binds it to its app, idempotency key
//! and body: the same call may be repeated until the token's end, and every other one is refused.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{ATTEMPTS, Authorized, Deployer, Outcome, Principal, audit::Subject, auth::Reach, documents, refused};
use crate::{
    access::Action,
    app::{AppId, AppUid},
    deploy::{Actor, Trigger},
    error::Error,
    identity::{self, CLAIMS_BYTES_MAX, Claims, IdToken, LEEWAY, Mismatch, TRUSTS_MAX, Trust, TrustId},
    lock::LockRule,
    ports::{AppRef, Record, RecordKey, RecordKind, RecordStore},
    request::{Cause, IdempotencyKey, KeyHeader, Refusal},
    text::{hash_of, hex},
    time::Timestamp,
};

/// The most apps whose trusts are remembered; once there are more, all are forgotten.
const REMEMBERED: usize = 10_000;

/// The trusts of apps as they were last read.
#[derive(Default)]
pub(super) struct KnownTrusts(Mutex<HashMap<AppId, Remembered>>);

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
pub(super) struct Presented {
    /// Made of issuer and `jti`.
    key: RecordKey,
    /// The rest of its time, and the leeway.
    left: Duration,
    body: [u8; 32],
}

impl Presented {
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
    pub(super) fn uid(&self, app: &AppId) -> Option<AppUid> {
        self.remembered(app).map(|known| known.app)
    }

    fn remembered(&self, app: &AppId) -> Option<Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(app).cloned()
    }
}

impl Deployer {
    /// Returns the proof that an id_token is, for the app that it is presented to.
    ///
    /// # Errors
    /// [`Refusal::Unauthorized`], the same for every fault of the token; [`Refusal::StoreUnavailable`];
    /// [`Refusal::IssuerUnavailable`] for a token that fits and cannot be verified now.
    pub(super) async fn by_identity(&self, app: &AppId, token: &IdToken, body: &[u8]) -> Outcome<Authorized> {
        let (Some(records), Some(verifier)) = (&self.ports.records, &self.ports.identities) else {
            return Err(Refusal::Unauthorized);
        };
        let (record, stored) = self.read_trusts(&**records, app).await?.ok_or(Refusal::Unauthorized)?;
        let claims = token.claims();
        let trust = identity::fitting(&stored.trusts, claims, record.now).map_err(|mismatch| {
            refuse(app, &mismatch);
            Refusal::Unauthorized
        })?;
        match verifier.verify(trust.issuer(), token).await {
            Ok(true) => {}
            Ok(false) => {
                tracing::info!(%app, issuer = %trust.issuer(), "refused an id_token: no key of its issuer has signed it");
                return Err(Refusal::Unauthorized);
            }
            Err(error) => {
                let (issuer, error) = (trust.issuer(), error.chain());
                tracing::warn!(%app, %issuer, error, "reading the keys of an issuer failed");
                return Err(Refusal::IssuerUnavailable);
            }
        }
        // The trusts of a deleted app open nothing.
        let registered = self.journal.load(AppRef::Uid(stored.app)).await.map_err(refused)?;
        registered.filter(|found| found.state.app.id == *app).ok_or(Refusal::Unauthorized)?;
        let (Some(jti), Some(end)) = (claims.text("jti"), claims.time("exp")) else {
            return Err(Refusal::Unauthorized);
        };
        let key = RecordKey::of_hash(hash_of([trust.issuer().as_str(), &*jti]));
        let left = end.after(LEEWAY).since(record.now).max(Duration::from_millis(1));
        let presented = Presented { key, left, body: Sha256::digest(body).into() };
        let cause = Cause { trigger: Trigger::Webhook, actor: actor(trust, claims) };
        let (id, uid, presented) = (app.clone(), stored.app, Some(presented));
        Ok(Authorized { id, uid, cause, reach: Reach::Webhook, presented, locks: LockRule::Respected, trace: None })
    }

    /// Binds the id_token of a proof to the call with this key, and returns the key under which the call is made: a call
    /// by an id_token always has one.
    ///
    /// # Errors
    /// [`Refusal::Unauthorized`] if the token was used for another call; [`Refusal::StoreUnavailable`].
    pub(super) async fn bind_call(
        &self,
        access: &Authorized,
        key: Option<IdempotencyKey>,
    ) -> Outcome<Option<IdempotencyKey>> {
        let (Some(presented), Some(records)) = (&access.presented, &self.ports.records) else { return Ok(key) };
        let key = key.unwrap_or_else(|| presented.own_key());
        let used = Used { call: presented.call(access.uid, &key) };
        let written = async {
            let record = documents::encode(presented.key.clone(), &used, Some(presented.left))?;
            match records.write(RecordKind::IdToken, record, None).await {
                Err(Error::Conflict(_)) => {}
                written => return written.map(|_| true),
            }
            let before = documents::read(&**records, RecordKind::IdToken, &presented.key).await?;
            Ok(before.is_some_and(|(_, before): (Record, Used)| before == used))
        };
        if written.await.map_err(refused)? {
            return Ok(Some(key));
        }
        tracing::warn!(app = %access.id, actor = %access.cause.actor, "refused an id_token that was used for another call");
        Err(Refusal::Unauthorized)
    }

    /// Returns whether an id_token fits the app's trusts as they were last read, and is worth a read of the store.
    pub(super) fn recognizes_identity(&self, app: &AppId, token: &IdToken) -> bool {
        let (Some(verifier), Some(known)) = (&self.ports.identities, self.trusts.remembered(app)) else {
            return false;
        };
        let now = known.now.after(self.ports.clock.elapsed().saturating_sub(known.at));
        identity::fitting(&known.trusts, token.claims(), now)
            .is_ok_and(|trust| verifier.recognizes(trust.issuer(), token))
    }

    /// Reads an app's trusts, so that its callers are recognised.
    pub(super) async fn remember_trusts(&self, app: &AppId) {
        let (Some(records), Some(_)) = (&self.ports.records, &self.ports.identities) else { return };
        // Trusts that cannot be read now are read for their app's first caller.
        let _ = self.read_trusts(&**records, app).await;
    }

    async fn read_trusts(&self, records: &dyn RecordStore, app: &AppId) -> Outcome<Option<(Record, Stored)>> {
        let read = documents::read(records, RecordKind::Trusts, &trusts_key(app)).await.map_err(refused)?;
        self.trusts.remember(app, read.as_ref().map(|(record, stored)| (record, stored)), self.ports.clock.elapsed());
        Ok(read)
    }

    /// Returns the pipelines that an app trusts.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn trusts(&self, principal: &Principal, id: &AppId) -> Outcome<Vec<Trust>> {
        let access = self.open_for(Action::Read, principal, id).await?;
        let Some(records) = &self.ports.records else { return Ok(Vec::new()) };
        let read = self.read_trusts(&**records, id).await?.filter(|(_, stored)| stored.app == access.uid);
        Ok(read.map(|(_, stored)| stored.trusts).unwrap_or_default())
    }

    /// Lets a pipeline call an app's webhook by its id_tokens. A trust that the app has already stays as it is.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`], [`Refusal::AppNotFound`], [`Refusal::TooManyTrusts`]; [`Refusal::InvalidField`] for an
    /// issuer that cannot be called; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn add_trust(&self, principal: &Principal, id: &AppId, trust: Trust) -> Outcome<()> {
        let access = self.open_trusts(principal, id, "added", &trust.id()).await?;
        if let Some(Err(reason)) = self.ports.identities.as_ref().map(|verifier| verifier.check(trust.issuer())) {
            return Err(Refusal::InvalidField(crate::request::Field::TrustIssuer, reason));
        }
        self.change_trusts(&access, |trusts| {
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
    /// [`Refusal::TrustNotFound`]; as [`Deployer::add_trust`].
    pub async fn remove_trust(&self, principal: &Principal, id: &AppId, trust: &TrustId) -> Outcome<()> {
        let access = self.open_trusts(principal, id, "removed", trust).await?;
        self.change_trusts(&access, |trusts| {
            let before = trusts.len();
            trusts.retain(|known| known.id() != *trust);
            if trusts.len() < before { Ok(()) } else { Err(Refusal::TrustNotFound(trust.clone())) }
        })
        .await
    }

    /// Ends the trust in all pipelines.
    pub(super) async fn forget_trusts(&self, access: &Authorized) -> Outcome<()> {
        let Some(records) = &self.ports.records else { return Ok(()) };
        records.remove(RecordKind::Trusts, &trusts_key(&access.id)).await.map_err(refused)
    }

    /// Returns a principal's proof for one app if it may change the app's trusts. The audit has the change before it is
    /// made.
    async fn open_trusts(&self, principal: &Principal, id: &AppId, act: &str, trust: &TrustId) -> Outcome<Authorized> {
        let access = self.open(principal, id).await?;
        let subject = Subject::new(format!("app {id}, trust {trust} {act}"), access.realm());
        let granted = self.reaches(&access, Action::ChangeTrusts).await?;
        self.audit(principal.actor(), Action::ChangeTrusts, subject, granted).await?;
        Ok(access)
    }

    async fn change_trusts(&self, access: &Authorized, change: impl Fn(&mut Vec<Trust>) -> Outcome<()>) -> Outcome<()> {
        let Some(records) = &self.ports.records else {
            return Err(Refusal::StoreRefused("This program keeps no records, and so no trusts.".to_owned()));
        };
        let key = trusts_key(&access.id);
        for _ in 0..ATTEMPTS {
            let read = self.read_trusts(&**records, &access.id).await?;
            let (version, before) = match read {
                Some((record, stored)) if stored.app == access.uid => (Some(record.version), stored.trusts),
                // Those of an app of this name that was deleted.
                Some((record, _)) => (Some(record.version), Vec::new()),
                None => (None, Vec::new()),
            };
            let mut trusts = before.clone();
            change(&mut trusts)?;
            if trusts == before {
                return Ok(());
            }
            let stored = Stored { app: access.uid, trusts };
            let record = documents::encode(key.clone(), &stored, None).map_err(refused)?;
            match records.write(RecordKind::Trusts, record, version).await {
                Err(Error::Conflict(_)) => {}
                written => {
                    written.map_err(refused)?;
                    // Its callers are recognised from the first call on.
                    self.remember_trusts(&access.id).await;
                    return Ok(());
                }
            }
        }
        Err(Refusal::Busy)
    }
}

fn refuse(app: &AppId, mismatch: &Mismatch) {
    // Anyone can send a token of another issuer.
    if *mismatch == Mismatch::Issuer {
        tracing::debug!(%app, reason = %mismatch, "refused an id_token");
    } else {
        tracing::info!(%app, reason = %mismatch, "refused an id_token");
    }
}
