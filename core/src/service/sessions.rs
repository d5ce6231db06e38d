//! Sessions of the console: each stands for an API token, and ends with it.
//!
//! The store has a session's SHA-256 as the key of its record, so that no one who reads the store can take a session
//! over.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{Deployer, Outcome, Principal, api_tokens::key_of, documents, refused};
use crate::{
    error::Error,
    ports::{Record, RecordKey, RecordKind},
    request::Refusal,
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

/// The document of a session's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    /// The record of the API token that the session stands for.
    token: RecordKey,
    /// The name that a holder of the shared token gave itself.
    claimed: Option<String>,
}

impl Deployer {
    /// Begins a session for an API token. `claimed` is the name that the caller gives itself, as in
    /// [`Deployer::authenticate`].
    ///
    /// # Errors
    /// As [`Deployer::authenticate`].
    pub async fn begin_session(&self, presented: &[u8], claimed: Option<&str>) -> Outcome<(SessionSecret, Principal)> {
        let principal = self.authenticate(presented, claimed).await?;
        let Some(records) = &self.ports.records else { return Err(Refusal::Unauthorized) };
        let mut bytes = Zeroizing::new([0; 32]);
        self.ports.rng.fill(bytes.as_mut_slice());
        let secret: SessionSecret = Zeroizing::new(bytes.iter().map(|byte| format!("{byte:02x}")).collect());
        let key = key_of(secret.as_bytes());
        let written = async {
            let stored = Stored { token: key_of(presented), claimed: claimed.map(str::to_owned) };
            records.write(RecordKind::Session, documents::encode(key.clone(), &stored, Some(SESSION_IDLE))?, None).await
        };
        written.await.map_err(refused)?;
        self.recognition.read_secret(&key, true);
        Ok((secret, principal))
    }

    /// Returns the principal of a session, as its API token is now.
    ///
    /// # Errors
    /// [`Refusal::Unauthorized`] if the session or its token has ended; [`Refusal::StoreUnavailable`] while the store
    /// is away.
    pub async fn session(&self, secret: &str) -> Outcome<Principal> {
        let Some(records) = &self.ports.records else { return Err(Refusal::Unauthorized) };
        let key = key_of(secret.as_bytes());
        let read: Option<(Record, Stored)> =
            documents::read(&**records, RecordKind::Session, &key).await.map_err(refused)?;
        let is_young = |record: &Record| record.now.since(record.created_at) < SESSION_MAX;
        let proven = match read.filter(|(record, _)| is_young(record)) {
            Some((_, stored)) => self.principal_of(&stored.token, stored.claimed.as_deref()).await,
            None => Err(Refusal::Unauthorized),
        };
        if proven.is_ok() || matches!(proven, Err(Refusal::Unauthorized)) {
            self.recognition.read_secret(&key, proven.is_ok());
        }
        proven
    }

    /// Lets a session last for [`SESSION_IDLE`] from now on, but no longer than [`SESSION_MAX`] in all: to be called
    /// when a person does something. A use within five minutes of the last one is not written down.
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
            let ttl = SESSION_IDLE.min(left(record.created_at.after(SESSION_MAX)));
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

    /// Ends every session that stands for the same API token and the same claimed name as this one.
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
                if stored == like {
                    records.remove(RecordKind::Session, &record.key).await?;
                }
            }
            Ok(())
        };
        ended.await.map_err(refused)
    }
}
