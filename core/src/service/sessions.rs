//! Sessions of the console: each stands for an API token, and ends with it; or for a person whom a provider has
//! authenticated, with the grants that the person's groups have now.
//!
//! The store has a session's SHA-256 as the key of its record, so that no one who reads the store can take a session
//! over.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{Deployer, Outcome, Principal, api_tokens::key_of, auth::Proof, documents, refused};
use crate::{
    access::{Grant, GroupGrant, PrincipalKey},
    error::Error,
    ports::{Record, RecordKey, RecordKind},
    request::Refusal,
    text::{escaped, hex},
    time::Timestamp,
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

/// The document of a session's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Stored {
    /// A session of an API token.
    Token {
        /// The record of the API token that the session stands for.
        token: RecordKey,
        /// The name that a holder of the shared token gave itself.
        claimed: Option<String>,
    },
    /// A session of a person.
    Person {
        /// The provider's host and its own key of the person.
        subject: (String, String),
        /// The name that the history shows.
        person: String,
        /// The groups at the sign-in, of those that had a grant.
        groups: Vec<String>,
    },
}

impl Stored {
    /// Returns whether both are sessions of one token and name, or of one person.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Person { subject: one, .. }, Self::Person { subject: two, .. }) => one == two,
            _ => self == other,
        }
    }

    /// The longest time of the session.
    const fn longest(&self) -> Duration {
        match self {
            Self::Token { .. } => SESSION_MAX,
            Self::Person { .. } => PERSON_SESSION_MAX,
        }
    }
}

impl Deployer {
    /// Begins a session for an API token. `claimed` is the name that the caller gives itself, as in
    /// [`Deployer::authenticate`].
    ///
    /// # Errors
    /// [`Refusal::NoSession`] for a token of a cluster; as [`Deployer::authenticate`].
    pub async fn begin_session(&self, presented: &[u8], claimed: Option<&str>) -> Outcome<(SessionSecret, Principal)> {
        if self.is_reviewed(presented) {
            return Err(Refusal::NoSession);
        }
        let principal = self.authenticate(presented, claimed).await?;
        let stored = Stored::Token { token: key_of(presented), claimed: claimed.map(str::to_owned) };
        Ok((self.begin_stored(&stored, "", SESSION_IDLE).await?, principal))
    }

    /// Lets people of a provider in, with the grants of their groups. Only the first call counts.
    pub fn let_people_in(&self, sign_in: SignInGrants) {
        let _ = self.sign_in.set(sign_in);
    }

    /// Begins a session for a person whom a provider has authenticated.
    ///
    /// # Errors
    /// [`Refusal::Unauthorized`] for a person without grants; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn begin_person_session(&self, person: Person) -> Outcome<SessionSecret> {
        let Some(sign_in) = self.sign_in.get() else { return Err(Refusal::Unauthorized) };
        if sign_in.of(&person.provider, &person.groups).is_empty() {
            return Err(Refusal::Unauthorized);
        }
        let has_grant = |group: &String| sign_in.grants.iter().any(|granted| granted.group == *group);
        let groups = person.groups.iter().filter(|group| has_grant(group)).cloned().collect();
        let shown = person.shown();
        tracing::info!(target: "rollhook::audit", actor = shown, "signed in");
        let subject = (person.provider, person.subject);
        self.begin_stored(&Stored::Person { subject, person: shown, groups }, "", SESSION_IDLE).await
    }

    /// Begins a session, whose secret begins like this.
    pub(super) async fn begin_stored(&self, stored: &Stored, prefix: &str, ttl: Duration) -> Outcome<SessionSecret> {
        let Some(records) = &self.ports.records else { return Err(Refusal::Unauthorized) };
        let secret = self.new_secret(prefix);
        let key = key_of(secret.as_bytes());
        let record = documents::encode(key.clone(), stored, Some(ttl)).map_err(refused)?;
        records.write(RecordKind::Session, record, None).await.map_err(refused)?;
        self.recognition.read_secret(&key, true);
        Ok(secret)
    }

    /// Returns a new secret: the prefix and 64 hexadecimal digits.
    pub(super) fn new_secret(&self, prefix: &str) -> SessionSecret {
        let mut bytes = Zeroizing::new([0; 32]);
        self.ports.rng.fill(bytes.as_mut_slice());
        let digits: SessionSecret = Zeroizing::new(hex(bytes.as_slice()));
        Zeroizing::new(format!("{prefix}{}", *digits))
    }

    /// Returns the principal of a session, as its API token is now.
    ///
    /// # Errors
    /// [`Refusal::Unauthorized`] if the session or its token has ended; [`Refusal::StoreUnavailable`] while the store
    /// is away.
    pub async fn session(&self, secret: &str) -> Outcome<Principal> {
        self.session_of(&key_of(secret.as_bytes())).await
    }

    /// Returns the principal of the session with this record.
    pub(super) async fn session_of(&self, key: &RecordKey) -> Outcome<Principal> {
        let Some(records) = &self.ports.records else { return Err(Refusal::Unauthorized) };
        let read: Option<(Record, Stored)> =
            documents::read(&**records, RecordKind::Session, key).await.map_err(refused)?;
        let is_young = |(record, stored): &(Record, Stored)| record.now.since(record.created_at) < stored.longest();
        let proven = match read.filter(is_young) {
            Some((_, Stored::Token { token, claimed })) => self.principal_of(&token, claimed.as_deref()).await,
            // What the person's groups may do is asked anew: an operator who takes it away need not wait for the end.
            Some((_, Stored::Person { subject: (provider, subject), person, groups })) => {
                let grants = self.sign_in.get().map(|sign_in| sign_in.of(&provider, &groups)).unwrap_or_default();
                match grants.is_empty() {
                    true => Err(Refusal::Unauthorized),
                    false => Ok(Principal::new(&person, grants)
                        .known_as(PrincipalKey::of("person", &[&provider, &subject]))
                        .proven_by(Proof::Session(key.clone()))),
                }
            }
            None => Err(Refusal::Unauthorized),
        };
        if proven.is_ok() || matches!(proven, Err(Refusal::Unauthorized)) {
            self.recognition.read_secret(key, proven.is_ok());
        }
        proven
    }

    /// Lets a session last for [`SESSION_IDLE`] from now on, but no longer than [`SESSION_MAX`] in all, or a
    /// person's for [`PERSON_SESSION_MAX`]: to be called when a person does something. A use within five minutes of the last one is not written down.
    ///
    /// # Errors
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn keep_session(&self, secret: &str) -> Outcome<()> {
        let Some(records) = &self.ports.records else { return Ok(()) };
        let kept = async {
            let key = key_of(secret.as_bytes());
            let read: Option<(Record, Stored)> = documents::read(&**records, RecordKind::Session, &key).await?;
            let Some((record, stored)) = read else { return Ok(()) };
            let left = |end: Timestamp| end.since(record.now);
            let ttl = SESSION_IDLE.min(left(record.created_at.after(stored.longest())));
            if record.expires_at.map_or(Duration::ZERO, left) + USE_EVERY >= ttl {
                return Ok(());
            }
            let kept = documents::encode(key, &stored, Some(ttl))?;
            match records.write(RecordKind::Session, kept, Some(record.version)).await {
                // Another call of the session has kept it, or it has ended.
                Ok(_) | Err(Error::Conflict(_)) => Ok(()),
                Err(error) => Err(error),
            }
        };
        kept.await.map_err(refused)
    }

    /// Returns whether this was a session when this process last read it, which proves nothing: see
    /// [`Deployer::session`].
    pub fn recognizes_session(&self, secret: &str) -> bool {
        self.recognition.is_secret(secret.as_bytes())
    }

    /// Ends a session, on every replica.
    ///
    /// # Errors
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn end_session(&self, secret: &str) -> Outcome<()> {
        let Some(records) = &self.ports.records else { return Ok(()) };
        records.remove(RecordKind::Session, &key_of(secret.as_bytes())).await.map_err(refused)
    }

    /// Ends every session that stands for the same API token and the same claimed name, or the same person, as this one.
    ///
    /// # Errors
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn end_sessions_like(&self, secret: &str) -> Outcome<()> {
        let Some(records) = &self.ports.records else { return Ok(()) };
        let ended = async {
            let key = key_of(secret.as_bytes());
            let read: Option<(Record, Stored)> = documents::read(&**records, RecordKind::Session, &key).await?;
            let Some((_, like)) = read else { return Ok(()) };
            for (record, stored) in documents::all::<Stored>(&**records, RecordKind::Session).await? {
                if stored.is_like(&like) {
                    records.remove(RecordKind::Session, &record.key).await?;
                }
            }
            Ok(())
        };
        ended.await.map_err(refused)
    }
}
