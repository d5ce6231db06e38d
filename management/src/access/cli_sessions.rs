//! Signing a command line in: a person who is signed in to the console lends it a session of its own.
//!
//! The command line makes a secret, and shows the console its hash. The console hands out a code, which is worth
//! something to the holder of that secret alone (as PKCE has it, RFC 7636), once and for a minute. The code buys a session
//! like the person's: with the same grants, or of the same API token, ended by the same sign-out, and no later than the
//! sign-in allows that the person's session stems from.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use rollhook_core::error::Error;

use crate::{
    Management, Outcome, Refusal,
    access::{
        Principal, SessionSecret,
        api_tokens::key_of,
        session_list::Entry,
        sessions::{Lent, Stored as StoredSession},
    },
    documents,
    ports::{Record, RecordKey, RecordKind},
    refused,
};

/// The time in which a code must be redeemed.
const CODE_TTL: Duration = Duration::from_secs(60);
/// The time of a command line's session.
pub const LOGIN_MAX: Duration = Duration::from_secs(12 * 3600);
/// The first characters of a command line's secret, which a bearer token may be; a browser's may not.
const PREFIX: &str = "rhl_";

/// Returns whether this is a command line's secret by its first characters: it is a bearer token, and no browser's.
pub(crate) fn is_secret(presented: &[u8]) -> bool {
    presented.starts_with(PREFIX.as_bytes())
}

/// The document of a code's record.
#[derive(Serialize, Deserialize)]
struct Stored {
    /// SHA-256 of the command line's secret.
    challenge: RecordKey,
    /// The session that lends. Codes of earlier versions have none, and open nothing.
    lender: Option<RecordKey>,
}

impl Management {
    /// Returns a code for a session like this one. `challenge` is the SHA-256 of the secret of whoever may redeem it, in
    /// hexadecimal digits. A session's oldest code makes room for one too many.
    ///
    /// # Errors
    /// [`Unauthorized`](rollhook_core::request::Refusal::Unauthorized) if the session has ended, or may lend none; [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away.
    pub async fn lend_session(&self, secret: &str, challenge: &RecordKey) -> Outcome<SessionSecret> {
        let principal = self.session(secret).await?;
        let lender = key_of(secret.as_bytes());
        let (record, session) = self.living(&lender).await?.ok_or(Refusal::UNAUTHORIZED)?;
        let (list, own) = (session.holder.list(), session.entry(&record));
        if !session.is_listed {
            self.list_earlier(&list, (record, session)).await?;
        }
        let code = self.new_secret("");
        let key = key_of(code.as_bytes());
        let stored = Stored { challenge: challenge.clone(), lender: Some(lender.clone()) };
        let written = documents::encode(key.clone(), &stored, Some(CODE_TTL)).map_err(refused)?;
        self.records.write(RecordKind::LoginCode, written, None).await.map_err(refused)?;
        // The code itself ends sooner, by its record.
        let entry = Entry { key, is_code: true, lent_by: Some(lender), ..own };
        self.enter(&list, entry, None).await?;
        tracing::info!(target: "rollhook::audit", actor = %principal.actor(), "signed a command line in");
        Ok(code)
    }

    /// Lists a session that an earlier version began.
    async fn list_earlier(&self, list: &RecordKey, (record, session): (Record, StoredSession)) -> Outcome<()> {
        let entry = session.entry(&record);
        let ttl = record.expires_at.map(|end| end.since(record.now));
        let listed = StoredSession { is_listed: true, ..session };
        let written = documents::encode(record.key, &listed, ttl).map_err(refused)?;
        self.records.write(RecordKind::Session, written, Some(record.version)).await.map_err(refused)?;
        self.enter(list, entry, None).await
    }

    /// Begins the session that a code stands for. Returns its secret, a bearer token, and its principal.
    ///
    /// # Errors
    /// [`Unauthorized`](rollhook_core::request::Refusal::Unauthorized) for an unknown or used code, for another secret than the code was made for, and if
    /// the session that lends has ended; [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away.
    pub async fn redeem_code(&self, code: &str, verifier: &str) -> Outcome<(SessionSecret, Principal)> {
        let key = key_of(code.as_bytes());
        let read: Option<(Record, Stored)> =
            documents::read(&*self.records, RecordKind::LoginCode, &key).await.map_err(refused)?;
        let (record, stored) = read.ok_or(Refusal::UNAUTHORIZED)?;
        self.use_up(record, &stored).await?;
        if RecordKey::of_hash(Sha256::digest(verifier).into()) != stored.challenge {
            return Err(Refusal::UNAUTHORIZED);
        }
        let lender = stored.lender.ok_or(Refusal::UNAUTHORIZED)?;
        let (record, session) = self.living(&lender).await?.ok_or(Refusal::UNAUTHORIZED)?;
        let ttl = LOGIN_MAX.min(session.ends_at(&record).since(record.now));
        let lent = Some(Lent { by: lender, signed_in_at: session.signed_in_at(&record) });
        let session = StoredSession { lent, is_listed: true, ..session };
        let secret = self.begin_stored(&session, PREFIX, ttl, Some(&key)).await?;
        let principal = self.session_of(&key_of(secret.as_bytes())).await?;
        Ok((secret, principal))
    }

    /// Uses a code up: one wrong guess does, and of two calls at the same time one goes on.
    async fn use_up(&self, record: Record, stored: &Stored) -> Outcome<()> {
        let claim = documents::encode(record.key.clone(), stored, Some(CODE_TTL)).map_err(refused)?;
        match self.records.write(RecordKind::LoginCode, claim, Some(record.version)).await {
            Ok(_) => self.records.remove(RecordKind::LoginCode, &record.key).await.map_err(refused),
            Err(Error::Conflict(_)) => Err(Refusal::UNAUTHORIZED),
            Err(error) => Err(refused(error)),
        }
    }
}
