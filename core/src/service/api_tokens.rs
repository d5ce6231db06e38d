//! API tokens: the credentials of the management API, each with a role on a realm.
//!
//! The store has a token's SHA-256 as the key of its record, and nothing that opens anything. A revoked token's record
//! stays for a time, so that a file that still has the token does not bring it back.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{ATTEMPTS, Deployer, Outcome, Principal, audit::Subject, refused};
use crate::{
    access::{Action, Grant, Realm, TokenName},
    deploy::Actor,
    error::{Entity, Error, Result},
    ports::{NewRecord, Record, RecordKey, RecordKind, RecordStore},
    request::Refusal,
    time::Timestamp,
    token::Token,
};

/// The name of the token of the first start. It is the one that people share: its callers name themselves.
const ADMIN: &str = "admin";
/// The records per page of the search through all tokens.
const PAGE: usize = 200;
/// The most tokens that are listed.
const TOKENS_MAX: usize = 2000;
/// How often the last use of a token is written down at most.
const USE_EVERY: Duration = Duration::from_secs(3600);
/// How long the record of a revoked token is kept.
const REVOKED_FOR: Duration = Duration::from_secs(365 * 24 * 3600);

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

/// Returns every token that is valid, newest first.
async fn valid(records: &dyn RecordStore) -> Result<Vec<(Record, Stored)>> {
    let (mut found, mut after) = (Vec::new(), None);
    for _ in 0..TOKENS_MAX / PAGE {
        let page = records.list(RecordKind::ApiToken, after, PAGE).await?;
        let is_last = page.len() < PAGE;
        after = page.last().map(Record::place);
        for record in page {
            let stored = Stored::of(&record)?;
            if stored.is_valid() {
                found.push((record, stored));
            }
        }
        if is_last {
            break;
        }
    }
    Ok(found)
}

/// Revokes a token: from now on it is refused everywhere.
async fn revoke(records: &dyn RecordStore, mut record: Record, mut stored: Stored, by: &Actor) -> Result<()> {
    for _ in 0..ATTEMPTS {
        let left = record.expires_at.map_or(REVOKED_FOR, |end| end.since(record.now));
        let revoked = Stored { revoked_by: Some(by.clone()), ..stored };
        let written = revoked.record(record.key.clone(), Some(left.max(Duration::from_secs(1))))?;
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
/// Those of the store.
pub async fn replace_admin_token(records: &dyn RecordStore, token: &Token, by: &Actor) -> Result<()> {
    let (key, admin) = (key_of(token.hash())?, Stored::admin(by.clone())?);
    let known = records.read(RecordKind::ApiToken, &key).await?.map(|record| record.version);
    records.write(RecordKind::ApiToken, admin.record(key.clone(), None)?, known).await?;
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
        let principal = Principal::new(claimed.unwrap_or(stored.name.as_str()), [stored.grant.clone()]);
        self.used(&**records, record, stored).await;
        Ok(principal)
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
        self.may_manage(principal, &wanted.name, &wanted.grant.realm).await?;
        let records = self.ports.records.as_ref().ok_or(Refusal::Unauthorized)?;
        let others = valid(&**records).await.map_err(refused)?;
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
        let written = async {
            let key = key_of(token.hash())?;
            records.write(RecordKind::ApiToken, stored.record(key.clone(), wanted.ttl)?, None).await?;
            records.read(RecordKind::ApiToken, &key).await
        };
        let record = written.await.map_err(refused)?.ok_or(Refusal::Internal)?;
        Ok((stored.shown(&record), token))
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
        self.may_manage(principal, name, &known.grant.realm).await?;
        let Some(records) = &self.ports.records else { return Ok(()) };
        for (record, stored) in valid(&**records).await.map_err(refused)? {
            if stored.name == *name {
                revoke(&**records, record, stored, principal.actor()).await.map_err(refused)?;
            }
        }
        Ok(())
    }

    async fn may_manage(&self, principal: &Principal, name: &TokenName, realm: &Realm) -> Outcome<()> {
        let is_allowed = principal.may(Action::ManageTokens, realm);
        let subject = Subject::new(format!("API token {name}"), realm.clone());
        self.audit(principal.actor(), Action::ManageTokens, subject, is_allowed).await
    }

    /// Returns whether this is a valid token that may do everything; a store that knows no such token keeps this one. A
    /// token that was revoked stays so.
    ///
    /// # Errors
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn adopt_admin_token(&self, token: &Token) -> Outcome<bool> {
        let Some(records) = &self.ports.records else { return Ok(false) };
        let adopted = async {
            let key = key_of(token.hash())?;
            let known = records.read(RecordKind::ApiToken, &key).await?;
            if let Some(known) = known {
                let stored = Stored::of(&known)?;
                return Ok(stored.is_valid() && stored.grant == Grant::ALL);
            }
            if has_admin(&**records).await? {
                return Ok(false);
            }
            let admin = Stored::admin(Actor::Service)?.record(key, None)?;
            match records.write(RecordKind::ApiToken, admin, None).await {
                // Another process that starts at the same time keeps the same file's token.
                Ok(_) | Err(Error::Conflict(_)) => Ok(true),
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
