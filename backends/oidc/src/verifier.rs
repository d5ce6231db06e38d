//! The verifier: keys of each issuer, read when they are needed.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use openidconnect::core::CoreJsonWebKeySet;
use rollhook_core::{Error, Result, ports::Clock};
use rollhook_management::{
    Recent,
    keyless::{IdToken, Issuer},
    ports::{IdentityVerifier, SignatureCheck},
};
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::{
    Fetch, FetchError,
    issuer_keys::{IssuerKeys, KeySet},
};

/// The most issuers whose keys are kept; of more, those that were asked for least lately are forgotten.
const ISSUERS: usize = 500;
/// The longest set of keys, in bytes, and the most keys of one.
const KEYS_BYTES: usize = 64 * 1024;
const KEYS: usize = 50;
/// The issuers that are read at once: those whose keys are known have turns of their own, so that issuers which never
/// answer do not keep them from being read again.
const READS: usize = 8;

/// Verifies id_tokens by the keys that their issuers publish.
pub struct OidcVerifier {
    fetch: Fetch,
    clock: Arc<dyn Clock>,
    issuers: Mutex<Recent<Issuer, Arc<IssuerKeys>>>,
    /// The turns to read issuers without known keys, and with them.
    turns: [Arc<Semaphore>; 2],
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
        let turns = [READS, READS].map(|reads| Arc::new(Semaphore::new(reads)));
        Self { fetch, clock, issuers: Mutex::new(Recent::new(ISSUERS)), turns }
    }

    fn keys_of(&self, issuer: &Issuer) -> Arc<IssuerKeys> {
        let mut issuers = self.issuers.lock().unwrap_or_else(PoisonError::into_inner);
        issuers.used(issuer, || Arc::new(IssuerKeys::new(self.clock.clone())), |keys| Arc::clone(keys))
    }
}

/// Reads the keys of an issuer, once it has a turn.
async fn read(fetch: Fetch, issuer: Issuer, turns: Arc<Semaphore>) -> Result<KeySet> {
    let _turn = turns.acquire_owned().await;
    let read = published(&fetch, &issuer).await;
    read.map(KeySet::new).map_err(|error| Error::unavailable(format!("reading the keys of {issuer}"), error))
}

/// Returns the keys that an issuer publishes.
async fn published(fetch: &Fetch, issuer: &Issuer) -> Result<CoreJsonWebKeySet, FetchError> {
    let place = format!("{}/.well-known/openid-configuration", issuer.as_str().trim_end_matches('/'));
    let description: Description = fetch.json_of(&place, KEYS_BYTES).await?;
    // OpenID Connect Discovery 1.0, section 4.3: a description is of the issuer that it names.
    if description.issuer != issuer.as_str() {
        return Err(FetchError::OtherIssuer);
    }
    let mut published: serde_json::Value = fetch.json_of(&description.jwks_uri, KEYS_BYTES).await?;
    if let Some(keys) = published.get_mut("keys").and_then(serde_json::Value::as_array_mut) {
        keys.truncate(KEYS);
    }
    serde_json::from_value(published).map_err(|error| FetchError::Document(description.jwks_uri, error))
}

#[async_trait]
impl IdentityVerifier for OidcVerifier {
    fn check(&self, issuer: &Issuer) -> Result<(), String> {
        self.fetch.check(issuer.as_str()).map_err(|error| format!("{error}."))
    }

    async fn verify(&self, issuer: &Issuer, token: &IdToken) -> Result<bool> {
        let keys = self.keys_of(issuer);
        let turns = self.turns[usize::from(keys.are_known())].clone();
        let (fetch, called) = (self.fetch.clone(), issuer.clone());
        let checked = keys.check(token, || read(fetch, called, turns)).await?;
        Ok(checked == SignatureCheck::Valid)
    }

    fn recognizes(&self, issuer: &Issuer, token: &IdToken) -> bool {
        let known = self.keys_of(issuer).by_known(token);
        known.is_none_or(|known| matches!(known, Ok(SignatureCheck::Valid)))
    }
}
