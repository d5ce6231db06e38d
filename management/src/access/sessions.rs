//! Sessions of the console: each stands for an API token, and ends with it; or for a person whom a provider has
//! authenticated, with the grants that the person's groups have now.
//!
//! A secret of one kind is none of another: a browser's secret is no bearer token, and a command line's no cookie. A session
//! that another one lent ends with it, and no later than the sign-in that both stem from allows.
//!
//! The store has a session's SHA-256 as the key of its record, so that no one who reads the store can take a session
//! over.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::TryStreamExt;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use rollhook_core::{
    error::Error,
    lock::PrincipalKey,
    text::{escaped, hash_of, hex},
    time::Timestamp,
};

use crate::{
    Management, Outcome, Refusal,
    access::{
        Grant, GroupGrant, KnownCaller, Principal,
        api_tokens::key_of,
        cli_sessions,
        principal::Proof,
        session_list::{Ending, Entry},
    },
    documents,
    ports::{Record, RecordKey, RecordKind},
    refused,
};

/// The time without a call after which a session ends.
pub const SESSION_IDLE: Duration = Duration::from_secs(8 * 3600);
/// The longest time of a session.
pub const SESSION_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// How often a session's use is written down at most.
const USE_EVERY: Duration = Duration::from_secs(5 * 60);

/// The secret by which a browser proves its session: 64 hexadecimal digits.
pub type SessionSecret = Zeroizing<String>;

/// The longest time of a session of a person whom a provider has authenticated: the groups are those of the sign-in.
pub const PERSON_SESSION_MAX: Duration = Duration::from_secs(12 * 3600);

/// A person whom a provider has authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// The provider's own key of the person.
    pub subject: String,
    /// The name, as the provider states it.
    pub name: String,
    /// The provider's host.
    pub provider: String,
    /// The person's groups.
    pub groups: Vec<String>,
}

/// The provider that authenticates people, and what their groups may do.
#[derive(Clone, Debug)]
pub struct SignInGrants {
    /// The provider's host.
    pub provider: String,
    /// The grants of groups.
    pub grants: Arc<[GroupGrant]>,
}

impl SignInGrants {
    /// Returns the grants of a person of this provider who is in these groups.
    fn of(&self, provider: &str, groups: &[String]) -> Vec<Grant> {
        if self.provider == provider { GroupGrant::of_groups(&self.grants, groups) } else { Vec::new() }
    }
}

impl Person {
    /// Returns the name that the history shows. Names of API tokens and those that their holders give themselves never
    /// end like this.
    fn shown(&self) -> String {
        let name: String = escaped(&self.name).chars().take(NAME_MAX).collect();
        format!("{name} via {}", self.provider)
    }
}

/// The longest name of a person in the history, so that the provider's host stands behind it in any case.
const NAME_MAX: usize = 80;

/// The document of a session's record. Sessions of earlier versions have the holder alone: each stems from its own begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stored {
    #[serde(flatten)]
    pub(crate) holder: Holder,
    /// The session that lent this one; `None`: it was begun by a sign-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lent: Option<Lent>,
    /// Whether the session is in its holder's list.
    #[serde(default)]
    pub(crate) is_listed: bool,
}

/// The origin of a session that was lent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lent {
    /// The session that lent it.
    pub(crate) by: RecordKey,
    /// The time of the sign-in that both stem from.
    pub(crate) signed_in_at: Timestamp,
}

/// The token or person that a session stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Holder {
    /// An API token.
    Token {
        /// The record of the API token that the session stands for.
        token: RecordKey,
        /// The name that a holder of the shared token gave itself.
        claimed: Option<String>,
    },
    /// A person.
    Person {
        /// The provider's host and its own key of the person.
        subject: (String, String),
        /// The name that the history shows.
        person: String,
        /// The groups at the sign-in, of those that had a grant.
        groups: Vec<String>,
    },
}

impl Holder {
    /// Returns whether both are one token with one name, or one person.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Person { subject: one, .. }, Self::Person { subject: two, .. }) => one == two,
            _ => self == other,
        }
    }

    /// The longest time of the holder's sessions, from the sign-in on.
    const fn longest(&self) -> Duration {
        match self {
            Self::Token { .. } => SESSION_MAX,
            Self::Person { .. } => PERSON_SESSION_MAX,
        }
    }

    /// The key of the list of the holder's sessions.
    pub(crate) fn list(&self) -> RecordKey {
        RecordKey::of_hash(match self {
            Self::Token { token, .. } => hash_of(["token", token.as_str()]),
            Self::Person { subject: (provider, subject), .. } => hash_of(["person", provider, subject]),
        })
    }

    /// The hash of the name that a holder of the shared token gave itself.
    pub(crate) fn claimed(&self) -> Option<RecordKey> {
        match self {
            Self::Token { claimed, .. } => claimed.as_deref().map(|name| RecordKey::of_hash(hash_of([name]))),
            Self::Person { .. } => None,
        }
    }
}

impl Stored {
    /// Returns a session that is begun by a sign-in.
    const fn begun(holder: Holder) -> Self {
        Self { holder, lent: None, is_listed: true }
    }

    /// The time of the sign-in that the session of this record stems from.
    pub(crate) fn signed_in_at(&self, record: &Record) -> Timestamp {
        self.lent.as_ref().map_or(record.created_at, |lent| lent.signed_in_at)
    }

    /// The time at which the session of this record has ended in any case.
    pub(crate) fn ends_at(&self, record: &Record) -> Timestamp {
        self.signed_in_at(record).after(self.holder.longest())
    }

    /// Returns the session's entry in the list of its holder.
    pub(crate) fn entry(&self, record: &Record) -> Entry {
        Entry {
            key: record.key.clone(),
            is_code: false,
            lent_by: self.lent.as_ref().map(|lent| lent.by.clone()),
            claimed: self.holder.claimed(),
            ends_at: self.ends_at(record),
        }
    }
}

fn key_of_person(provider: &str, subject: &str) -> PrincipalKey {
    PrincipalKey::of("person", &[provider, subject])
}

/// Returns the key of the record of a browser's session; `None` for a secret of another kind.
fn browser_key(secret: &str) -> Option<RecordKey> {
    (!cli_sessions::is_secret(secret.as_bytes())).then(|| key_of(secret.as_bytes()))
}

impl Management {
    /// Begins a session for an API token. `claimed` is the name that the caller gives itself, as in
    /// [`Management::authenticate`].
    ///
    /// # Errors
    /// [`Refusal::NoSession`] for a token of a cluster; as [`Management::authenticate`].
    pub async fn begin_session(&self, presented: &[u8], claimed: Option<&str>) -> Outcome<(SessionSecret, Principal)> {
        if self.is_reviewed(presented) {
            return Err(Refusal::NoSession);
        }
        let token = key_of(presented);
        let principal = self.principal_of(&token, claimed).await?;
        let holder = Holder::Token { token, claimed: claimed.map(str::to_owned) };
        Ok((self.begin_stored(&Stored::begun(holder), "", SESSION_IDLE, None).await?, principal))
    }

    /// Lets people of a provider in, with the grants of their groups. Only the first call counts.
    pub fn let_people_in(&self, sign_in: SignInGrants) {
        let _ = self.sign_in.set(sign_in);
    }

    /// Begins a session for a person whom a provider has authenticated.
    ///
    /// # Errors
    /// [`Unauthorized`](rollhook_core::request::Refusal::Unauthorized) for a person without grants; [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away.
    pub async fn begin_person_session(&self, person: Person) -> Outcome<SessionSecret> {
        let Some(sign_in) = self.sign_in.get() else { return Err(Refusal::UNAUTHORIZED) };
        if sign_in.of(&person.provider, &person.groups).is_empty() {
            return Err(Refusal::UNAUTHORIZED);
        }
        let has_grant = |group: &String| sign_in.grants.iter().any(|granted| granted.group == *group);
        let groups = person.groups.iter().filter(|group| has_grant(group)).cloned().collect();
        let shown = person.shown();
        tracing::info!(target: "rollhook::audit", actor = shown, "signed in");
        let subject = (person.provider, person.subject);
        let holder = Holder::Person { subject, person: shown, groups };
        self.begin_stored(&Stored::begun(holder), "", SESSION_IDLE, None).await
    }

    /// Begins a session, whose secret begins like this, in place of the code that it was redeemed by. The holder's oldest
    /// session makes room for one too many.
    pub(crate) async fn begin_stored(
        &self,
        stored: &Stored,
        prefix: &str,
        ttl: Duration,
        redeemed: Option<&RecordKey>,
    ) -> Outcome<SessionSecret> {
        let secret = self.new_secret(prefix);
        let key = key_of(secret.as_bytes());
        let written = documents::encode(key.clone(), stored, Some(ttl)).map_err(refused)?;
        self.records.write(RecordKind::Session, written, None).await.map_err(refused)?;
        self.written.session();
        let record = self.records.read(RecordKind::Session, &key).await.map_err(refused)?.ok_or(Refusal::BUSY)?;
        self.enter(&stored.holder.list(), stored.entry(&record), redeemed).await?;
        self.known_callers.read(&key, self.caller_of(&stored.holder));
        Ok(secret)
    }

    /// Returns the caller that a new session's holder is, as far as this process knows.
    fn caller_of(&self, holder: &Holder) -> Option<KnownCaller> {
        match holder {
            Holder::Token { token, .. } => self.known_callers.of(token),
            Holder::Person { subject: (provider, subject), .. } => {
                Some(KnownCaller::new(key_of_person(provider, subject)))
            }
        }
    }

    /// Returns a new secret: the prefix and 64 hexadecimal digits.
    pub(crate) fn new_secret(&self, prefix: &str) -> SessionSecret {
        let mut bytes = Zeroizing::new([0; 32]);
        self.deployer.ports().rng.fill(bytes.as_mut_slice());
        let digits: SessionSecret = Zeroizing::new(hex(bytes.as_slice()));
        Zeroizing::new(format!("{prefix}{}", *digits))
    }

    /// Returns the principal of a session, as its API token is now.
    ///
    /// # Errors
    /// [`Unauthorized`](rollhook_core::request::Refusal::Unauthorized) if the session or its token has ended; [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store
    /// is away.
    pub async fn session(&self, secret: &str) -> Outcome<Principal> {
        let key = browser_key(secret).ok_or(Refusal::UNAUTHORIZED)?;
        self.session_of(&key).await
    }

    /// Returns the record of a session, unless it has ended.
    pub(crate) async fn living(&self, key: &RecordKey) -> Outcome<Option<(Record, Stored)>> {
        let read: Option<(Record, Stored)> =
            documents::read(&*self.records, RecordKind::Session, key).await.map_err(refused)?;
        Ok(read.filter(|(record, stored)| record.now < stored.ends_at(record)))
    }

    /// Returns the principal of the session with this record.
    pub(crate) async fn session_of(&self, key: &RecordKey) -> Outcome<Principal> {
        let proven = match self.living(key).await?.map(|(_, stored)| stored.holder) {
            Some(Holder::Token { token, claimed }) => self.principal_of(&token, claimed.as_deref()).await,
            // What the person's groups may do is asked anew: an operator who takes it away need not wait for the end.
            Some(Holder::Person { subject: (provider, subject), person, groups }) => {
                let grants = self.sign_in.get().map(|sign_in| sign_in.of(&provider, &groups)).unwrap_or_default();
                match grants.is_empty() {
                    true => Err(Refusal::UNAUTHORIZED),
                    false => Ok(Principal::new(&person, grants).known_as(key_of_person(&provider, &subject))),
                }
            }
            None => Err(Refusal::UNAUTHORIZED),
        };
        // A call that lasts ends with the session, and not only with what the session stands for.
        let proven = proven.map(|principal| principal.proven_by(Proof::Session(key.clone())));
        if proven.is_ok() || matches!(proven, Err(Refusal::UNAUTHORIZED)) {
            self.known_callers.read(key, proven.as_ref().ok().map(Principal::known_caller));
        }
        proven
    }

    /// Lets a session last for [`SESSION_IDLE`] from now on, but no longer than [`SESSION_MAX`] in all, or a
    /// person's for [`PERSON_SESSION_MAX`]: to be called when a person does something. A use within five minutes of the last one is not written down.
    ///
    /// # Errors
    /// [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away.
    pub async fn keep_session(&self, secret: &str) -> Outcome<()> {
        let kept = async {
            let Some(key) = browser_key(secret) else { return Ok(()) };
            let read: Option<(Record, Stored)> = documents::read(&*self.records, RecordKind::Session, &key).await?;
            let Some((record, stored)) = read else { return Ok(()) };
            let left = |end: Timestamp| end.since(record.now);
            let ttl = SESSION_IDLE.min(left(stored.ends_at(&record)));
            if record.expires_at.map_or(Duration::ZERO, left) + USE_EVERY >= ttl {
                return Ok(());
            }
            let kept = documents::encode(key, &stored, Some(ttl))?;
            match self.records.write(RecordKind::Session, kept, Some(record.version)).await {
                // Another call of the session has kept it, or it has ended.
                Ok(_) | Err(Error::Conflict(_)) => Ok(()),
                Err(error) => Err(error),
            }
        };
        kept.await.map_err(refused)
    }

    /// Returns whether this was a session when this process last read it, which proves nothing: see
    /// [`Management::session`].
    pub fn recognizes_session(&self, secret: &str) -> bool {
        browser_key(secret).is_some() && self.known_callers.contain(secret.as_bytes())
    }

    /// Ends a session and what it lent, on every replica.
    ///
    /// # Errors
    /// [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away,
    /// [`Busy`](rollhook_core::request::Refusal::Busy) while others sign in and out: the call can be repeated.
    pub async fn end_session(&self, secret: &str) -> Outcome<()> {
        let Some((key, stored)) = self.ending(secret).await? else { return Ok(()) };
        self.end_listed(&stored.holder.list(), &key).await
    }

    /// Ends every session, command lines' too, and every login code that stands for the same API token and the same
    /// claimed name, or the same person, as this one, which ends last: a call that failed can be repeated.
    ///
    /// # Errors
    /// As [`Management::end_session`].
    pub async fn end_sessions_like(&self, secret: &str) -> Outcome<()> {
        let Some((key, like)) = self.ending(secret).await? else { return Ok(()) };
        let claimed = like.holder.claimed();
        if self.end_others(&like.holder.list(), &key, Ending::Everywhere(claimed.as_ref())).await? {
            self.end_unlisted(&key, &like.holder).await?;
        }
        self.end_own(&key).await
    }

    /// Ends the other sessions of a holder that are in no list, as an earlier version began them: such end within a week.
    async fn end_unlisted(&self, own: &RecordKey, holder: &Holder) -> Outcome<()> {
        // The holders of tokens that this process does not know, such as revoked ones, are one caller.
        let unknown = || KnownCaller::new(PrincipalKey::of("sessions", &[]));
        let _turn = self.session_scans.turn_of(self.caller_of(holder).unwrap_or_else(unknown)).await;
        let mut pages = pin!(documents::pages(&*self.records, RecordKind::Session));
        while let Some(page) = pages.try_next().await.map_err(refused)? {
            for record in page {
                let Ok(stored) = documents::decode::<Stored>(&record) else { continue };
                if !stored.is_listed && stored.holder.is_like(holder) && record.key != *own {
                    self.records.remove(RecordKind::Session, &record.key).await.map_err(refused)?;
                    self.known_callers.read(&record.key, None);
                }
            }
        }
        Ok(())
    }

    /// Returns the session that is to end; `None` if there is none.
    async fn ending(&self, secret: &str) -> Outcome<Option<(RecordKey, Stored)>> {
        let Some(key) = browser_key(secret) else { return Ok(None) };
        let read: Option<(Record, Stored)> =
            documents::read(&*self.records, RecordKind::Session, &key).await.map_err(refused)?;
        Ok(read.map(|(_, stored)| (key, stored)))
    }
}
