//! The keys of one issuer, read when a token needs them, and the turn of those who wait for a read.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use openidconnect::core::CoreJsonWebKeySet;
use rollhook_core::{Error, Result, ports::Clock};
use rollhook_management::{keyless::IdToken, ports::SignatureCheck};

use crate::{
    keys::{Keys, Lookup},
    signature,
};

/// The longest time of one read of an issuer's keys.
const READ_TIME: Duration = Duration::from_secs(5);

/// The keys that an issuer publishes (RFC 7517).
pub struct KeySet(CoreJsonWebKeySet);

impl KeySet {
    pub(crate) const fn new(set: CoreJsonWebKeySet) -> Self {
        Self(set)
    }

    /// Reads a set of keys as issuers publish it. Keys of unknown types are left out.
    ///
    /// # Errors
    /// `Corrupt` if it is none.
    pub fn parse(text: &str) -> Result<Self> {
        serde_json::from_str(text).map(Self).map_err(|error| Error::corrupt("the keys of an issuer", error))
    }
}

/// The keys of one issuer. They are read once a minute at most after a read that succeeded, and once in five seconds after
/// one that failed, whatever tokens come in.
pub struct IssuerKeys {
    clock: Arc<dyn Clock>,
    keys: Mutex<Keys>,
    turn: tokio::sync::Mutex<()>,
}

impl IssuerKeys {
    /// Returns the keys of an issuer, of which none is known yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, keys: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Returns whether keys were read before.
    pub(crate) fn are_known(&self) -> bool {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).are_known()
    }

    /// Returns whether a known key made the token's signature; `None` if the issuer is to be called first.
    pub(crate) fn by_known(&self, token: &IdToken) -> Option<Result<SignatureCheck>> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        match keys.look_up(token.key_id(), self.clock.elapsed()) {
            Lookup::Known(key) => {
                let key = key.clone();
                drop(keys);
                let fits = signature::fits(&key, token);
                Some(Ok(if fits { SignatureCheck::Valid } else { SignatureCheck::Invalid }))
            }
            Lookup::Unknown => Some(Ok(SignatureCheck::Unknown)),
            Lookup::Away => Some(Err(Error::unavailable("the issuer did not answer a moment ago", "called too often"))),
            Lookup::Read => None,
        }
    }

    /// Returns whether a key of the issuer made the token's signature; `read` reads the keys that it publishes.
    ///
    /// # Errors
    /// If the key is not known and the issuer's keys cannot be read now.
    pub async fn check<R>(self: &Arc<Self>, token: &IdToken, read: impl FnOnce() -> R + Send) -> Result<SignatureCheck>
    where
        R: Future<Output = Result<KeySet>> + Send + 'static,
    {
        if let Some(known) = self.by_known(token) {
            return known;
        }
        let _turn = self.turn.lock().await;
        // Another caller may have read them meanwhile.
        if let Some(known) = self.by_known(token) {
            return known;
        }
        let read = self.take(read()).await;
        // Right after a read nothing is read again: an old key is used even if the read has failed.
        match (self.by_known(token), read) {
            (Some(Ok(check)), _) => Ok(check),
            (_, Err(error)) | (Some(Err(error)), Ok(())) => Err(error),
            (None, Ok(())) => Ok(SignatureCheck::Unknown),
        }
    }

    /// Takes the keys that a read returns. A caller that goes away does not end the read.
    async fn take(self: &Arc<Self>, read: impl Future<Output = Result<KeySet>> + Send + 'static) -> Result<()> {
        let keys = self.clone();
        let reading = tokio::spawn(async move {
            let read = tokio::time::timeout(READ_TIME, read).await;
            let read = read.unwrap_or_else(|error| Err(Error::unavailable("reading the keys of an issuer", error)));
            let (set, outcome) = match read {
                Ok(KeySet(set)) => (Some(set), Ok(())),
                Err(error) => (None, Err(error)),
            };
            keys.keys.lock().unwrap_or_else(PoisonError::into_inner).take(set, keys.clock.elapsed());
            outcome
        });
        reading.await.unwrap_or_else(|error| Err(Error::unavailable("reading the keys of an issuer", error)))
    }
}
