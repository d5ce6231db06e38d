//! The verifier: keys of each issuer, read when they are needed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use openidconnect::core::CoreJsonWebKeySet;
use rollhook_core::{Error, Result, ports::Clock};
use rollhook_management::{
    keyless::{IdToken, Issuer},
    ports::IdentityVerifier,
};
use serde::Deserialize;

use crate::{
    Fetch, FetchError,
    keys::{Keys, Lookup},
    signature,
};

/// The longest time of one read of an issuer's keys.
const READ_TIME: Duration = Duration::from_secs(5);
/// The most issuers whose keys are kept; once there are more, all are forgotten.
const ISSUERS: usize = 1000;

/// Verifies id_tokens by the keys that their issuers publish.
pub struct OidcVerifier {
    fetch: Fetch,
    clock: Arc<dyn Clock>,
    issuers: Mutex<HashMap<Issuer, Arc<Cached>>>,
}

/// The keys of an issuer, and the turn of those who wait for a read of them.
#[derive(Default)]
struct Cached {
    keys: Mutex<Keys>,
    turn: tokio::sync::Mutex<()>,
}

/// The part of an issuer's description that tokens are verified by.
#[derive(Deserialize)]
struct Description {
    issuer: String,
    jwks_uri: String,
}

impl OidcVerifier {
    /// Returns a verifier that reads keys with this client.
    pub fn new(fetch: Fetch, clock: Arc<dyn Clock>) -> Self {
        Self { fetch, clock, issuers: Mutex::default() }
    }

    fn cached(&self, issuer: &Issuer) -> Arc<Cached> {
        let mut issuers = self.issuers.lock().unwrap_or_else(PoisonError::into_inner);
        if issuers.len() >= ISSUERS && !issuers.contains_key(issuer) {
            issuers.clear();
        }
        issuers.entry(issuer.clone()).or_default().clone()
    }

    /// Returns whether a known key fits; `None` if the issuer is to be called first.
    fn by_known(&self, cached: &Cached, token: &IdToken) -> Option<Result<bool>> {
        let keys = cached.keys.lock().unwrap_or_else(PoisonError::into_inner);
        match keys.look_up(token.key_id(), self.clock.elapsed()) {
            Lookup::Known(key) => {
                let key = key.clone();
                drop(keys);
                Some(Ok(signature::fits(&key, token)))
            }
            Lookup::Unknown => Some(Ok(false)),
            Lookup::Away => Some(Err(Error::unavailable("the issuer did not answer a moment ago", "called too often"))),
            Lookup::Read => None,
        }
    }

    /// Reads the keys of an issuer. A caller that goes away does not end the read.
    async fn read(&self, cached: &Arc<Cached>, issuer: &Issuer) -> Result<()> {
        let (fetch, clock) = (self.fetch.clone(), self.clock.clone());
        let (cached, issuer) = (cached.clone(), issuer.clone());
        let reading = tokio::spawn(async move {
            let read = tokio::time::timeout(READ_TIME, published(&fetch, &issuer)).await;
            let read = read.unwrap_or(Err(FetchError::TimedOut));
            let (set, outcome) = match read {
                Ok(set) => (Some(set), Ok(())),
                Err(error) => (None, Err(Error::unavailable(format!("reading the keys of {issuer}"), error))),
            };
            cached.keys.lock().unwrap_or_else(PoisonError::into_inner).take(set, clock.elapsed());
            outcome
        });
        reading.await.unwrap_or_else(|error| Err(Error::unavailable("reading the keys of an issuer", error)))
    }
}

/// Returns the keys that an issuer publishes.
async fn published(fetch: &Fetch, issuer: &Issuer) -> Result<CoreJsonWebKeySet, FetchError> {
    let place = format!("{}/.well-known/openid-configuration", issuer.as_str().trim_end_matches('/'));
    let description: Description = fetch.json(&place).await?;
    // OpenID Connect Discovery 1.0, section 4.3: a description is of the issuer that it names.
    if description.issuer != issuer.as_str() {
        return Err(FetchError::OtherIssuer);
    }
    fetch.json(&description.jwks_uri).await
}

#[async_trait]
impl IdentityVerifier for OidcVerifier {
    fn check(&self, issuer: &Issuer) -> Result<(), String> {
        self.fetch.check(issuer.as_str()).map_err(|error| format!("{error}."))
    }

    async fn verify(&self, issuer: &Issuer, token: &IdToken) -> Result<bool> {
        let cached = self.cached(issuer);
        if let Some(known) = self.by_known(&cached, token) {
            return known;
        }
        let _turn = cached.turn.lock().await;
        // Another caller may have read them meanwhile.
        if let Some(known) = self.by_known(&cached, token) {
            return known;
        }
        let read = self.read(&cached, issuer).await;
        // Right after a read nothing is read again: an old key is used even if the read has failed.
        match (self.by_known(&cached, token), read) {
            (Some(Ok(fits)), _) => Ok(fits),
            (_, Err(error)) | (Some(Err(error)), Ok(())) => Err(error),
            (None, Ok(())) => Ok(false),
        }
    }

    fn recognizes(&self, issuer: &Issuer, token: &IdToken) -> bool {
        let cached = self.cached(issuer);
        self.by_known(&cached, token).is_none_or(|known| known.unwrap_or(false))
    }
}
