//! API tokens: the credentials of the management API, each with a role on a realm.
//!
//! The store has a token's SHA-256 as the key of its record, and nothing that opens anything. The record of a revoked
//! token that could do everything stays, so that a file that still has the token does not bring it back.

use std::{net::IpAddr, pin::pin, time::Duration};

use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use rollhook_core::{
    deploy::Actor,
    error::{Entity, Error, Result},
    lock::PrincipalKey,
    request::{Field, Refusal as CoreRefusal},
    time::Timestamp,
    token::Token,
};

use crate::{
    ATTEMPTS, Management, Outcome, Refusal,
    access::{
        Action, Grant, KnownCaller, Place, Principal, Realm, Subject, TokenName, audit, cli_sessions, principal::Proof,
    },
    documents,
    ports::{Record, RecordKey, RecordKind, RecordStore},
    refused,
};

/// The name of the token of the first start. It is the one that people share: its callers name themselves.
const ADMIN: &str = "admin";
/// The tokens whose callers are recognised without having called.
const PAGE: usize = 200;
/// Returns the most valid tokens of a realm and all that it contains: the admin of an environment or a project does not
/// use up what all have.
const fn tokens_max(realm: &Realm) -> usize {
    match realm {
        Realm::Everything => 2000,
        Realm::Project { .. } => 500,
        Realm::Environment { .. } => 200,
    }
}
/// Names that the history shows for others than holders of tokens.
const RESERVED: [&str; 2] = ["auto", "ci"];
/// The time within which tokens count as made at the same time, by processes that do not see each other's yet.
const AT_ONCE: Duration = Duration::from_secs(60);
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

/// The standing of a token that is to be a store's admin token.
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
    /// The party that made the token.
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

    fn is_valid(&self) -> bool {
        self.revoked_by.is_none()
    }

    /// Returns the principal of the token with this record.
    fn principal(&self, key: &RecordKey, claimed: Option<&str>) -> Principal {
        let principal = Principal::new(&self.shown_name(claimed), [self.grant.clone()]);
        principal.known_as(PrincipalKey::of("token", &[key.as_str()])).known_in(self.grant.realm.clone())
    }

    /// Returns the caller of the token with this record; `None` if the token is not valid.
    fn known_caller(&self, key: &RecordKey) -> Option<KnownCaller> {
        self.is_valid().then(|| self.principal(key, None).known_caller())
    }

    /// Returns the name that a caller gave itself, if it counts: with the token that people share alone.
    fn counted<'a>(&self, claimed: Option<&'a str>) -> Option<&'a str> {
        claimed.filter(|_| self.name.as_str() == ADMIN && self.grant == Grant::ALL)
    }

    /// Returns the name that the history shows. What a person says of itself stands beside what its token proves.
    fn shown_name(&self, claimed: Option<&str>) -> String {
        self.counted(claimed).map_or_else(|| self.name.to_string(), |claimed| format!("{claimed} ({})", self.name))
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

/// Returns the key of the record of a token or a session.
pub(crate) fn key_of(secret: &[u8]) -> RecordKey {
    RecordKey::of_hash(Sha256::digest(secret).into())
}

/// Returns every token that is valid, newest first. A record that cannot be read opens nothing.
async fn valid(records: &dyn RecordStore) -> Result<Vec<(Record, Stored)>> {
    let mut tokens = documents::all(records, RecordKind::ApiToken).await?;
    tokens.retain(|(_, stored): &(Record, Stored)| stored.is_valid());
    Ok(tokens)
}

/// Returns the valid tokens that were made later than the one of this key, or at about the same time, and that one.
async fn made_lately(records: &dyn RecordStore, key: &RecordKey) -> Result<Vec<(Record, Stored)>> {
    let (mut found, mut made) = (Vec::new(), None);
    let mut pages = pin!(documents::pages(records, RecordKind::ApiToken));
    while let Some(page) = pages.try_next().await? {
        let last = page.last().map(|record| record.created_at);
        for record in page {
            if record.key == *key {
                made = Some(record.created_at);
            }
            if let Ok(stored) = documents::decode::<Stored>(&record)
                && stored.is_valid()
            {
                found.push((record, stored));
            }
        }
        if made.zip(last).is_some_and(|(made, last)| last.after(AT_ONCE) < made) {
            break;
        }
    }
    Ok(found)
}

/// Revokes a token: from now on it is refused everywhere.
async fn revoke(records: &dyn RecordStore, mut record: Record, mut stored: Stored, by: &Actor) -> Result<()> {
    for _ in 0..ATTEMPTS {
        // Only a token that may do everything could be adopted again, from a file that still has it.
        if stored.grant != Grant::ALL {
            return records.remove(RecordKind::ApiToken, &record.key).await;
        }
        let revoked = Stored { revoked_by: Some(by.clone()), ..stored };
        let written = documents::encode(record.key.clone(), &revoked, None)?;
        match records.write(RecordKind::ApiToken, written, Some(record.version)).await {
            // Its last use was written meanwhile.
            Err(Error::Conflict(_)) => {}
            other => return other.map(drop),
        }
        let newer = documents::read(records, RecordKind::ApiToken, &record.key).await?;
        let Some(newer) = newer else { return Ok(()) };
        (record, stored) = newer;
    }
    Err(Error::Conflict(Entity::Version))
}

/// Makes this the admin token of a store in place of its former one, which is refused from then on.
///
/// # Errors
/// [`Error::Invalid`] for a token that was revoked; those of the store.
pub async fn replace_admin_token(records: &dyn RecordStore, token: &Token, by: &Actor) -> Result<()> {
    let (key, admin) = (RecordKey::of_hash(token.hash()), Stored::admin(by.clone())?);
    let known: Option<(Record, Stored)> = documents::read(records, RecordKind::ApiToken, &key).await?;
    if known.as_ref().is_some_and(|(_, stored)| !stored.is_valid()) {
        return Err(Error::invalid("this token was revoked, and stays so: make a new one"));
    }
    let known = known.map(|(record, _)| record.version);
    records.write(RecordKind::ApiToken, documents::encode(key.clone(), &admin, None)?, known).await?;
    audit::append(records, &key, by, "set the admin token").await?;
    for (record, stored) in valid(records).await? {
        if stored.name.as_str() == ADMIN && record.key != key {
            revoke(records, record, stored, by).await?;
        }
    }
    Ok(())
}

impl Management {
    /// Returns the principal that an API token, or a command line's session, proves, by one read of the store; a session of
    /// a token by one more. A token of a cluster is the cluster's to judge. `claimed` is the name that the caller
    /// gives itself, which counts for the token that people share alone.
    ///
    /// # Errors
    /// [`Unauthorized`](rollhook_core::request::Refusal::Unauthorized); [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away, [`Refusal::ReviewUnavailable`]
    /// while the cluster is.
    pub async fn authenticate(&self, presented: &[u8], claimed: Option<&str>) -> Outcome<Principal> {
        self.authenticate_from(None, presented, claimed).await
    }

    /// Returns what [`Management::authenticate`] does, for a caller in this network, which has its share of what a cluster
    /// is asked about strangers.
    ///
    /// # Errors
    /// As [`Management::authenticate`].
    pub async fn authenticate_from(
        &self,
        network: Option<IpAddr>,
        presented: &[u8],
        claimed: Option<&str>,
    ) -> Outcome<Principal> {
        if let Some(reviewed) = self.by_review(presented, network).await {
            return reviewed;
        }
        let key = key_of(presented);
        if cli_sessions::is_secret(presented) {
            return self.session_of(&key).await;
        }
        self.principal_of(&key, claimed).await
    }

    /// Returns the principal of the API token with this record.
    pub(crate) async fn principal_of(&self, key: &RecordKey, claimed: Option<&str>) -> Outcome<Principal> {
        let read = documents::read(&*self.records, RecordKind::ApiToken, key).await.map_err(refused)?;
        let valid = read.filter(|(_, stored): &(Record, Stored)| stored.is_valid());
        self.known_callers.read(key, valid.as_ref().and_then(|(_, stored)| stored.known_caller(key)));
        let (record, stored) = valid.ok_or(Refusal::UNAUTHORIZED)?;
        let claimed = stored.counted(claimed);
        let principal = stored.principal(key, claimed);
        let principal = principal.proven_by(Proof::Token(key.clone(), claimed.map(str::to_owned)));
        self.used(record, stored).await;
        Ok(principal)
    }

    /// Returns the actor that the history names for the API token with this record; `None` if it is not valid.
    pub(crate) async fn name_of_token(&self, key: &RecordKey, claimed: Option<&str>) -> Outcome<Option<Actor>> {
        let read = documents::read(&*self.records, RecordKind::ApiToken, key).await.map_err(refused)?;
        let valid = read.filter(|(_, stored): &(Record, Stored)| stored.is_valid());
        Ok(valid.map(|(_, stored)| Actor::person(&stored.shown_name(claimed))))
    }

    /// Returns the principal as the store knows its token or session now: for a call that lasts, such as a stream.
    ///
    /// # Errors
    /// As [`Management::authenticate`].
    pub async fn confirm(&self, principal: &Principal) -> Outcome<Principal> {
        match principal.proof() {
            Some(Proof::Token(key, claimed)) => self.principal_of(key, claimed.as_deref()).await,
            Some(Proof::Session(key)) => self.session_of(key).await,
            Some(Proof::Reviewed(token)) => {
                self.by_review(token.expose().as_bytes(), None).await.unwrap_or(Err(Refusal::UNAUTHORIZED))
            }
            None => Ok(principal.clone()),
        }
    }

    /// Writes down that a token was used, unless that was done lately. A failure is made up for by the next use.
    async fn used(&self, record: Record, stored: Stored) {
        if stored.last_used_at.is_some_and(|used| record.now.since(used) < USE_EVERY) {
            return;
        }
        let ttl = record.expires_at.map(|end| end.since(record.now));
        let used = Stored { last_used_at: Some(record.now), ..stored };
        let write = async {
            self.records
                .write(RecordKind::ApiToken, documents::encode(record.key, &used, ttl)?, Some(record.version))
                .await
        };
        if let Err(error) = write.await {
            tracing::debug!(error = %error.chain(), "writing the last use of an API token failed");
        }
    }

    /// Returns whether this is an API token that was valid when this process last read it, which proves nothing: see
    /// [`Management::authenticate`].
    pub fn recognizes_api_token(&self, presented: &[u8]) -> bool {
        self.known_callers.contain(presented)
    }

    /// Returns the caller of an API token, a session or a token of a cluster, as this process last read it: what the caller
    /// holds is counted by it. It proves nothing: see [`Management::authenticate`].
    pub fn known_caller(&self, presented: &[u8]) -> Option<KnownCaller> {
        let known = self.known_callers.of(&key_of(presented))?;
        Some(self.known_namespaces.resolve(known))
    }

    /// Reads the newest API tokens, so that their callers are recognised.
    pub(crate) async fn recognize_api_tokens(&self) -> Outcome<()> {
        for record in self.records.list(RecordKind::ApiToken, None, PAGE).await.map_err(refused)? {
            let stored: Option<Stored> = documents::decode(&record).ok();
            self.known_callers.read(&record.key, stored.and_then(|stored| stored.known_caller(&record.key)));
        }
        Ok(())
    }

    /// Makes an API token. It is returned this once.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`] unless the principal is an admin of all that the token is for; [`Refusal::TokenExists`];
    /// [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away.
    pub async fn create_api_token(&self, principal: &Principal, wanted: NewApiToken) -> Outcome<(ApiToken, Token)> {
        let act = format!("made: {}", wanted.grant);
        self.may_manage(principal, &wanted.name, &act, &wanted.grant.realm).await?;
        let is_reserved =
            RESERVED.contains(&wanted.name.as_str()) || (wanted.name.as_str() == ADMIN && wanted.grant != Grant::ALL);
        if is_reserved {
            let rule = "must be another one: the history shows this name for others.";
            return Err(CoreRefusal::InvalidField(Field::TokenName, rule.to_owned()).into());
        }
        let counting = self.counting.turn(principal).await;
        let others = valid(&*self.records).await.map_err(refused)?;
        for realm in wanted.grant.realm.and_containing() {
            let most = tokens_max(&realm);
            if others.iter().filter(|(_, other)| realm.contains(&other.grant.realm)).count() >= most {
                return Err(Refusal::TooManyTokens(most, realm));
            }
        }
        if others.iter().any(|(_, other)| other.name == wanted.name) {
            return Err(Refusal::TokenExists(wanted.name));
        }
        let token = self.deployer.new_token();
        let stored = Stored {
            name: wanted.name,
            grant: wanted.grant,
            created_by: principal.actor().clone(),
            last_used_at: None,
            revoked_by: None,
        };
        let key = RecordKey::of_hash(token.hash());
        let written = documents::encode(key.clone(), &stored, wanted.ttl).map_err(refused)?;
        self.records.write(RecordKind::ApiToken, written, None).await.map_err(refused)?;
        drop(counting);
        // Of two that were made under one name at the same time, the older one stays.
        let named = made_lately(&*self.records, &key).await.map_err(refused)?;
        let oldest =
            named.iter().filter(|(_, other)| other.name == stored.name).map(|(record, _)| record.place()).min();
        let Some((record, _)) = named.iter().find(|(record, _)| record.key == key) else {
            return Err(Refusal::INTERNAL);
        };
        if oldest.is_some_and(|oldest| oldest.key != key) {
            self.records.remove(RecordKind::ApiToken, &key).await.map_err(refused)?;
            return Err(Refusal::TokenExists(stored.name));
        }
        Ok((stored.shown(record), token))
    }

    /// Returns the valid API tokens of the realms whose admin the principal is, newest first.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`]; [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away.
    pub async fn api_tokens(&self, principal: &Principal) -> Outcome<Vec<ApiToken>> {
        let realms = self.permit_somewhere(principal, Action::ManageTokens).await?;
        let _turn = self.record_lists.turn(principal).await;
        let tokens = valid(&*self.records).await.map_err(refused)?.into_iter();
        let theirs = tokens.filter(|(_, stored)| realms.contain(&stored.grant.realm));
        Ok(theirs.map(|(record, stored)| stored.shown(&record)).collect())
    }

    /// Revokes an API token: from then on it is refused, by every replica.
    ///
    /// # Errors
    /// [`Refusal::TokenNotFound`], also for a token of another realm; [`Refusal::Forbidden`];
    /// [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away.
    pub async fn revoke_api_token(&self, principal: &Principal, name: &TokenName) -> Outcome<()> {
        let realms = self.permit_somewhere(principal, Action::ManageTokens).await?;
        let turn = self.record_lists.turn(principal).await;
        let mut named = valid(&*self.records).await.map_err(refused)?;
        drop(turn);
        named.retain(|(_, stored)| stored.name == *name && realms.contain(&stored.grant.realm));
        let (_, known) = named.first().ok_or_else(|| Refusal::TokenNotFound(name.clone()))?;
        self.may_manage(principal, name, "revoked", &known.grant.realm).await?;
        for (record, stored) in named {
            revoke(&*self.records, record, stored, principal.actor()).await.map_err(refused)?;
        }
        Ok(())
    }

    async fn may_manage(&self, principal: &Principal, name: &TokenName, act: &str, realm: &Realm) -> Outcome<()> {
        let granted = self.may(principal, Action::ManageTokens, Place::realm(realm)).await?;
        let subject = Subject::new(format!("API token {name}, {act}"), realm.clone());
        self.audit(principal, Action::ManageTokens, subject, granted).await
    }

    /// Makes this the token that may do everything of a store that knows none. A token that was revoked stays so.
    ///
    /// # Errors
    /// [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away.
    pub async fn adopt_admin_token(&self, token: &Token) -> Outcome<Adopted> {
        let adopted = async {
            let key = RecordKey::of_hash(token.hash());
            let known: Option<(Record, Stored)> = documents::read(&*self.records, RecordKind::ApiToken, &key).await?;
            if let Some((record, stored)) = known {
                // Its caller is recognised from the start, however many strangers call then.
                self.known_callers.read(&record.key, stored.known_caller(&record.key));
                return Ok(match stored.is_valid() {
                    true if stored.grant == Grant::ALL => Adopted::Valid,
                    true => Adopted::Other,
                    false => Adopted::Revoked,
                });
            }
            if has_admin(&*self.records).await? {
                return Ok(Adopted::Other);
            }
            let admin = documents::encode(key, &Stored::admin(Actor::Service)?, None)?;
            match self.records.write(RecordKind::ApiToken, admin, None).await {
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
    /// [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away.
    pub async fn has_admin_token(&self) -> Outcome<bool> {
        has_admin(&*self.records).await.map_err(refused)
    }
}

async fn has_admin(records: &dyn RecordStore) -> Result<bool> {
    Ok(valid(records).await?.iter().any(|(_, stored)| stored.grant == Grant::ALL))
}
