//! Signing a command line in: a person who is signed in to the console lends it a session of its own.
//!
//! The command line makes a secret, and shows the console its hash. The console hands out a code, which is worth
//! something to the holder of that secret alone (as PKCE has it, RFC 7636), once and for a minute. The code buys a session
//! like the person's: with the same grants, or of the same API token, and ended by the same sign-out.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Deployer, Outcome, Principal, SessionSecret, api_tokens::key_of, documents, refused, sessions};
use crate::{
    ports::{Record, RecordKey, RecordKind},
    request::Refusal,
};

/// The time in which a code must be redeemed.
const CODE_TTL: Duration = Duration::from_secs(60);
/// The time of a command line's session.
pub const LOGIN_MAX: Duration = Duration::from_secs(12 * 3600);
/// The first characters of a command line's secret, which a bearer token may be; a browser's may not.
pub(super) const PREFIX: &str = "rhl_";

/// The document of a code's record.
#[derive(Serialize, Deserialize)]
struct Stored {
    /// SHA-256 of the command line's secret.
    challenge: RecordKey,
    session: sessions::Stored,
}

impl Deployer {
    /// Returns a code for a session like this one. `challenge` is the SHA-256 of the secret of whoever may redeem it, in
    /// hexadecimal digits.
    ///
    /// # Errors
    /// [`Refusal::Unauthorized`] if the session has ended; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn lend_session(&self, secret: &str, challenge: &RecordKey) -> Outcome<SessionSecret> {
        let Some(records) = &self.ports.records else { return Err(Refusal::Unauthorized) };
        let principal = self.session(secret).await?;
        let read = documents::read(&**records, RecordKind::Session, &key_of(secret.as_bytes())).await;
        let (_, session): (Record, sessions::Stored) = read.map_err(refused)?.ok_or(Refusal::Unauthorized)?;
        let code = self.new_secret("");
        let stored = Stored { challenge: challenge.clone(), session };
        let record = documents::encode(key_of(code.as_bytes()), &stored, Some(CODE_TTL)).map_err(refused)?;
        records.write(RecordKind::LoginCode, record, None).await.map_err(refused)?;
        tracing::info!(target: "rollhook::audit", actor = %principal.actor(), "signed a command line in");
        Ok(code)
    }

    /// Begins the session that a code stands for. Returns its secret, a bearer token, and its principal.
    ///
    /// # Errors
    /// [`Refusal::Unauthorized`] for an unknown or used code, and for another secret than the code was made for;
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn redeem_code(&self, code: &str, verifier: &str) -> Outcome<(SessionSecret, Principal)> {
        let Some(records) = &self.ports.records else { return Err(Refusal::Unauthorized) };
        let key = key_of(code.as_bytes());
        let read: Option<(Record, Stored)> =
            documents::read(&**records, RecordKind::LoginCode, &key).await.map_err(refused)?;
        let (_, stored) = read.ok_or(Refusal::Unauthorized)?;
        // One wrong guess uses the code up.
        records.remove(RecordKind::LoginCode, &key).await.map_err(refused)?;
        if RecordKey::of_hash(Sha256::digest(verifier).into()) != stored.challenge {
            return Err(Refusal::Unauthorized);
        }
        let secret = self.begin_stored(&stored.session, PREFIX, LOGIN_MAX).await?;
        let principal = self.session(&secret).await?;
        Ok((secret, principal))
    }
}
