//! API tokens: the credentials of the management API, each with a role on a realm.
//!
//! The store has a token's SHA-256 as the key of its record, and nothing that opens anything. The record of a revoked
//! token that could do everything stays, so that a file that still has the token does not bring it back.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    ATTEMPTS, Deployer, Outcome, Principal,
    audit::{self, Subject},
    refused,
};
use crate::{
    access::{Action, Grant, Realm, TokenName},
    deploy::Actor,
    error::{Entity, Error, Result},
    ports::{NewRecord, Record, RecordKey, RecordKind, RecordStore},
    request::{Field, Refusal},
    time::Timestamp,
    token::Token,
};

/// The name of the token of the first start. It is the one that people share: its callers name themselves.
const ADMIN: &str = "admin";
/// The records per page of the search through all tokens.
const PAGE: usize = 200;
/// The most valid tokens of a store.
const TOKENS_MAX: usize = 2000;
/// Names that the history shows for others than holders of tokens.
const RESERVED: [&str; 2] = ["auto", "ci"];
/// How often the last use of a token is written down at most.
const USE_EVERY: Duration = Duration::from_secs(3600);

/// A request to make an API token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewApiToken {
    /// The name; no other token that is valid may have it.
    pub name: TokenName,
    /// The role and realm.
    pub grant: Grant,
    /// The time for which the token is valid; `None`: until it is revoked.
    pub ttl: Option<Duration>,
}

/// What a store says of a token that is to be its admin token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopted {
    /// The token is valid, and may do everything.
    Valid,
    /// The token was revoked.
    Revoked,
    /// The store knows another one.
    Other,
}

/// An API token, without what opens anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiToken {
    /// The name, which the history and the audit show.
    pub name: TokenName,
    /// The role and realm.
    pub grant: Grant,
    /// The maker.
    pub created_by: Actor,
    /// The time at which it was made.
    pub created_at: Timestamp,
    /// The end of its time.
    pub expires_at: Option<Timestamp>,
    /// The time of its last use, with an error of up to an hour.
    pub last_used_at: Option<Timestamp>,
}

/// The document of an API token's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    name: TokenName,
    #[serde(flatten)]
    grant: Grant,
    created_by: Actor,
    last_used_at: Option<Timestamp>,
    revoked_by: Option<Actor>,
}

impl Stored {
    fn admin(created_by: Actor) -> Result<Self> {
        let name = ADMIN.parse().map_err(|error| Error::corrupt("the name of the first token", error))?;
        Ok(Self { name, grant: Grant::ALL, created_by, last_used_at: None, revoked_by: None })
    }

    fn of(record: &Record) -> Result<Self> {
        serde_json::from_str(&record.document).map_err(|error| Error::corrupt("the record of an API token", error))
    }

    fn is_valid(&self) -> bool {
        self.revoked_by.is_none()
    }

    fn record(&self, key: RecordKey, ttl: Option<Duration>) -> Result<NewRecord> {
        let document =
            serde_json::to_string(self).map_err(|error| Error::corrupt("the record of an API token", error))?;
        Ok(NewRecord { key, document, ttl })
    }

    fn shown(self, record: &Record) -> ApiToken {
        ApiToken {
            name: self.name,
            grant: self.grant,
            created_by: self.created_by,
            created_at: record.created_at,
            expires_at: record.expires_at,
            last_used_at: self.last_used_at,
        }
    }
}

pub(super) fn key_of(hash: [u8; 32]) -> Result<RecordKey> {
    let key: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    key.parse().map_err(|error| Error::corrupt("the key of an API token", error))
}

pub(super) fn hash_of(key: &RecordKey) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    for (byte, digits) in hash.iter_mut().zip(key.as_str().as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(hash)
}

/// Returns every token that is valid, newest first. A record that cannot be read opens nothing; it is logged and left
/// out.
async fn valid(records: &dyn RecordStore) -> Result<Vec<(Record, Stored)>> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = records.list(RecordKind::ApiToken, after, PAGE).await?;
        let is_last = page.len() < PAGE;
        after = page.last().map(Record::place);
        for record in page {
            match Stored::of(&record) {
                Ok(stored) if stored.is_valid() => found.push((record, stored)),
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(record = %record.key, error = %error.chain(), "reading an API token failed");
                }
            }
        }
        if is_last {
            return Ok(found);
        }
    }
}

/// Revokes a token: from now on it is refused everywhere.
async fn revoke(records: &dyn RecordStore, mut record: Record, mut stored: Stored, by: &Actor) -> Result<()> {
    for _ in 0..ATTEMPTS {
        // Only a token that may do everything could be adopted again, from a file that still has it.
        if stored.grant != Grant::ALL {
            return records.remove(RecordKind::ApiToken, &record.key).await;
        }
        let revoked = Stored { revoked_by: Some(by.clone()), ..stored };
        let written = revoked.record(record.key.clone(), None)?;
        match records.write(RecordKind::ApiToken, written, Some(record.version)).await {
            // Its last use was written meanwhile.
            Err(Error::Conflict(_)) => {}
            other => return other.map(drop),
        }
        let Some(newer) = records.read(RecordKind::ApiToken, &record.key).await? else { return Ok(()) };
        (stored, record) = (Stored::of(&newer)?, newer);
    }
    Err(Error::Conflict(Entity::Version))
}

/// Makes this the admin token of a store in place of its former one, which is refused from then on.
///
/// # Errors
/// [`Error::Invalid`] for a token that was revoked; those of the store.
pub async fn replace_admin_token(records: &dyn RecordStore, token: &Token, by: &Actor) -> Result<()> {
    let (key, admin) = (key_of(token.hash())?, Stored::admin(by.clone())?);
    let known = records.read(RecordKind::ApiToken, &key).await?;
    if let Some(known) = &known
        && !Stored::of(known)?.is_valid()
    {
        return Err(Error::invalid("this token was revoked, and stays so: make a new one"));
    }
    let known = known.map(|record| record.version);
    records.write(RecordKind::ApiToken, admin.record(key.clone(), None)?, known).await?;
    audit::append(records, &key, by, "set the admin token").await?;
    for (record, stored) in valid(records).await? {
        if stored.name.as_str() == ADMIN && record.key != key {
            revoke(records, record, stored, by).await?;
        }
    }
    Ok(())
}

impl Deployer {
    /// Returns the principal that an API token proves, by one read of the store. `claimed` is the name that the caller
    /// gives itself, which counts for the token that people share alone.
    ///
    /// # Errors
    /// [`Refusal::Unauthorized`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn authenticate(&self, presented: &[u8], claimed: Option<&str>) -> Outcome<Principal> {
        let key = key_of(Sha256::digest(presented).into()).map_err(refused)?;
        self.principal_of(&key, claimed).await
    }

    /// Returns the principal of the API token with this record.
    pub(super) async fn principal_of(&self, key: &RecordKey, claimed: Option<&str>) -> Outcome<Principal> {
        let Some(records) = &self.ports.records else { return Err(Refusal::Unauthorized) };
        let read = async {
            let record = records.read(RecordKind::ApiToken, key).await?;
            record.map(|record| Stored::of(&record).map(|stored| (record, stored))).transpose()
        };
        let valid = read.await.map_err(refused)?.filter(|(_, stored)| stored.is_valid());
        if let Some(hash) = hash_of(key) {
            self.recognition.read_secret(hash, valid.is_some());
        }
        let (record, stored) = valid.ok_or(Refusal::Unauthorized)?;
        let claimed = claimed.filter(|_| stored.name.as_str() == ADMIN && stored.grant == Grant::ALL);
        // What a person says of itself stands beside what its token proves.
        let name = claimed.map_or_else(|| stored.name.to_string(), |claimed| format!("{claimed} ({})", stored.name));
        let principal = Principal::new(&name, [stored.grant.clone()]);
        let principal = principal.proven_by(key.clone(), claimed);
        self.used(&**records, record, stored).await;
        Ok(principal)
    }

    /// Returns the principal as the store knows its token now: for a call that lasts, such as a stream.
    ///
    /// # Errors
    /// As [`Deployer::authenticate`].
    pub async fn confirm(&self, principal: &Principal) -> Outcome<Principal> {
        match principal.proof() {
            Some((key, claimed)) => self.principal_of(key, claimed.as_deref()).await,
            None => Ok(principal.clone()),
        }
    }

    /// Writes down that a token was used, unless that was done lately. A failure is made up for by the next use.
    async fn used(&self, records: &dyn RecordStore, record: Record, stored: Stored) {
        if stored.last_used_at.is_some_and(|used| record.now.since(used) < USE_EVERY) {
            return;
        }
        let ttl = record.expires_at.map(|end| end.since(record.now));
        let used = Stored { last_used_at: Some(record.now), ..stored };
        let Ok(used) = used.record(record.key, ttl) else { return };
        if let Err(error) = records.write(RecordKind::ApiToken, used, Some(record.version)).await {
            tracing::debug!(error = %error.chain(), "writing the last use of an API token failed");
        }
    }

    /// Returns whether this is an API token that was valid when this process last read it, which proves nothing: see
    /// [`Deployer::authenticate`].
    pub fn recognizes_api_token(&self, presented: &[u8]) -> bool {
        self.recognition.is_secret(presented)
    }

    /// Reads the newest API tokens, so that their callers are recognised.
    pub(super) async fn recognize_api_tokens(&self) -> Outcome<()> {
        let Some(records) = &self.ports.records else { return Ok(()) };
        for record in records.list(RecordKind::ApiToken, None, PAGE).await.map_err(refused)? {
            let is_valid = Stored::of(&record).is_ok_and(|stored| stored.is_valid());
            if let Some(hash) = hash_of(&record.key) {
                self.recognition.read_secret(hash, is_valid);
            }
        }
        Ok(())
    }

    /// Makes an API token. It is returned this once.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`] unless the principal is an admin of all that the token is for; [`Refusal::TokenExists`];
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn create_api_token(&self, principal: &Principal, wanted: NewApiToken) -> Outcome<(ApiToken, Token)> {
        let act = format!("made: {}", wanted.grant);
        self.may_manage(principal, &wanted.name, &act, &wanted.grant.realm).await?;
        let records = self.ports.records.as_ref().ok_or(Refusal::Unauthorized)?;
        let is_reserved =
            RESERVED.contains(&wanted.name.as_str()) || (wanted.name.as_str() == ADMIN && wanted.grant != Grant::ALL);
        if is_reserved {
            let rule = "must be another one: the history shows this name for others".to_owned();
            return Err(Refusal::InvalidField(Field::TokenName, format!("{rule}.")));
        }
        let others = valid(&**records).await.map_err(refused)?;
        if others.len() >= TOKENS_MAX {
            return Err(Refusal::TooManyTokens(TOKENS_MAX));
        }
        if others.iter().any(|(_, other)| other.name == wanted.name) {
            return Err(Refusal::TokenExists(wanted.name));
        }
        let token = self.new_token();
        let stored = Stored {
            name: wanted.name,
            grant: wanted.grant,
            created_by: principal.actor().clone(),
            last_used_at: None,
            revoked_by: None,
        };
        let key = key_of(token.hash()).map_err(refused)?;
        let written = stored.record(key.clone(), wanted.ttl).map_err(refused)?;
        records.write(RecordKind::ApiToken, written, None).await.map_err(refused)?;
        // Of two that were made under one name at the same time, the older one stays.
        let named = valid(&**records).await.map_err(refused)?;
        let oldest =
            named.iter().filter(|(_, other)| other.name == stored.name).map(|(record, _)| record.place()).min();
        let Some((record, _)) = named.iter().find(|(record, _)| record.key == key) else {
            return Err(Refusal::Internal);
        };
        if oldest.is_some_and(|oldest| oldest.key != key) {
            records.remove(RecordKind::ApiToken, &key).await.map_err(refused)?;
            return Err(Refusal::TokenExists(stored.name));
        }
        Ok((stored.shown(record), token))
    }

    /// Returns the valid API tokens of the realms whose admin the principal is, newest first.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn api_tokens(&self, principal: &Principal) -> Outcome<Vec<ApiToken>> {
        self.permit_somewhere(principal, Action::ManageTokens).await?;
        let Some(records) = &self.ports.records else { return Ok(Vec::new()) };
        let tokens = valid(&**records).await.map_err(refused)?.into_iter();
        let theirs = tokens.filter(|(_, stored)| principal.may(Action::ManageTokens, &stored.grant.realm));
        Ok(theirs.map(|(record, stored)| stored.shown(&record)).collect())
    }

    /// Revokes an API token: from then on it is refused, by every replica.
    ///
    /// # Errors
    /// [`Refusal::TokenNotFound`], also for a token of another realm; [`Refusal::Forbidden`];
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn revoke_api_token(&self, principal: &Principal, name: &TokenName) -> Outcome<()> {
        let known = self.api_tokens(principal).await?.into_iter().find(|token| token.name == *name);
        let known = known.ok_or_else(|| Refusal::TokenNotFound(name.clone()))?;
        self.may_manage(principal, name, "revoked", &known.grant.realm).await?;
        let Some(records) = &self.ports.records else { return Ok(()) };
        for (record, stored) in valid(&**records).await.map_err(refused)? {
            if stored.name == *name && principal.may(Action::ManageTokens, &stored.grant.realm) {
                revoke(&**records, record, stored, principal.actor()).await.map_err(refused)?;
            }
        }
        Ok(())
    }

    async fn may_manage(&self, principal: &Principal, name: &TokenName, act: &str, realm: &Realm) -> Outcome<()> {
        let is_allowed = principal.may(Action::ManageTokens, realm);
        let subject = Subject::new(format!("API token {name}, {act}"), realm.clone());
        self.audit(principal.actor(), Action::ManageTokens, subject, is_allowed).await
    }

    /// Makes this the token that may do everything of a store that knows none. A token that was revoked stays so.
    ///
    /// # Errors
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn adopt_admin_token(&self, token: &Token) -> Outcome<Adopted> {
        let Some(records) = &self.ports.records else { return Ok(Adopted::Other) };
        let adopted = async {
            let key = key_of(token.hash())?;
            if let Some(known) = records.read(RecordKind::ApiToken, &key).await? {
                let stored = Stored::of(&known)?;
                return Ok(match stored.is_valid() {
                    true if stored.grant == Grant::ALL => Adopted::Valid,
                    true => Adopted::Other,
                    false => Adopted::Revoked,
                });
            }
            if has_admin(&**records).await? {
                return Ok(Adopted::Other);
            }
            let admin = Stored::admin(Actor::Service)?.record(key, None)?;
            match records.write(RecordKind::ApiToken, admin, None).await {
                // Another process that starts at the same time keeps the same file's token.
                Ok(_) | Err(Error::Conflict(_)) => Ok(Adopted::Valid),
                Err(error) => Err(error),
            }
        };
        adopted.await.map_err(refused)
    }

    /// Returns whether the store knows a valid token that may do everything.
    ///
    /// # Errors
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn has_admin_token(&self) -> Outcome<bool> {
        let Some(records) = &self.ports.records else { return Ok(false) };
        has_admin(&**records).await.map_err(refused)
    }
}

async fn has_admin(records: &dyn RecordStore) -> Result<bool> {
    Ok(valid(records).await?.iter().any(|(_, stored)| stored.grant == Grant::ALL))
}
