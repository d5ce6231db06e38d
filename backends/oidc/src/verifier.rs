//! The verifier: keys of each issuer, read when they are needed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use openidconnect::core::CoreJsonWebKeySet;
use rollhook_core::{Error, Result, ports::Clock};
use rollhook_management::{
    keyless::{IdToken, Issuer},
    ports::{IdentityVerifier, SignatureCheck},
};
use serde::Deserialize;

use crate::{
    Fetch, FetchError,
    issuer_keys::{IssuerKeys, KeySet},
};

/// The most issuers whose keys are kept; once there are more, all are forgotten.
const ISSUERS: usize = 1000;

/// Verifies id_tokens by the keys that their issuers publish.
pub struct OidcVerifier {
    fetch: Fetch,
    clock: Arc<dyn Clock>,
    issuers: Mutex<HashMap<Issuer, Arc<IssuerKeys>>>,
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

    fn keys_of(&self, issuer: &Issuer) -> Arc<IssuerKeys> {
        let mut issuers = self.issuers.lock().unwrap_or_else(PoisonError::into_inner);
        if issuers.len() >= ISSUERS && !issuers.contains_key(issuer) {
            issuers.clear();
        }
        let new = || Arc::new(IssuerKeys::new(self.clock.clone()));
        issuers.entry(issuer.clone()).or_insert_with(new).clone()
    }
}

/// Reads the keys of an issuer.
async fn read(fetch: Fetch, issuer: Issuer) -> Result<KeySet> {
    let read = published(&fetch, &issuer).await;
    read.map(KeySet::new).map_err(|error| Error::unavailable(format!("reading the keys of {issuer}"), error))
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
        let (fetch, called) = (self.fetch.clone(), issuer.clone());
        let checked = self.keys_of(issuer).check(token, || read(fetch, called)).await?;
        Ok(checked == SignatureCheck::Valid)
    }

    fn recognizes(&self, issuer: &Issuer, token: &IdToken) -> bool {
        let known = self.keys_of(issuer).by_known(token);
        known.is_none_or(|known| matches!(known, Ok(SignatureCheck::Valid)))
    }
}
