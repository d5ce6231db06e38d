//! Webhook tokens as stores keep them: sealed for the app that they open, so that they open no other.

use std::collections::BTreeMap;

use rollhook_core::{Error, Result, app::AppUid, ports::WebhookSecret, time::Timestamp};

use crate::{KeyId, KeyRing};

/// Seals an app's tokens with the ring's newest key.
///
/// # Errors
/// `Unavailable` if the system gives no random bytes.
pub fn seal(ring: &KeyRing, secret: &WebhookSecret) -> Result<Vec<u8>> {
    Ok(ring.seal(secret.to_text().as_bytes(), &associated_data(secret.app))?)
}

/// Opens a stored token.
///
/// # Errors
/// `Denied` if the ring lacks its key; `Corrupt` if it was damaged or sealed for another app.
pub fn open(ring: &KeyRing, app: AppUid, sealed: &[u8], created_at: i64) -> Result<WebhookSecret> {
    let text = ring.open(sealed, &associated_data(app))?;
    let created_at = Timestamp::from_millis(created_at);
    let secret = std::str::from_utf8(&text).ok().and_then(|text| WebhookSecret::from_text(app, text, created_at));
    secret.ok_or_else(|| corrupt("a sealed text is no token"))
}

/// Seals a stored token anew; returns `None` if it is sealed with the newest key.
///
/// # Errors
/// As [`open`], also if the token is sealed with the newest key.
pub fn reseal(ring: &KeyRing, app: AppUid, sealed: &[u8]) -> Result<Option<Vec<u8>>> {
    let data = associated_data(app);
    let text = ring.open(sealed, &data)?;
    let is_newest = KeyRing::key_of(sealed)? == ring.primary();
    Ok(if is_newest { None } else { Some(ring.seal(&text, &data)?) })
}

/// Adds up sealed tokens by their keys. Each stands for a number of tokens; its beginning, up to the nonce, is enough.
///
/// # Errors
/// `Corrupt` if a token names no key.
pub fn usage(sealed: impl IntoIterator<Item = (impl AsRef<[u8]>, u64)>) -> Result<Vec<(KeyId, u64)>> {
    let mut counts = BTreeMap::new();
    for (sealed, count) in sealed {
        *counts.entry(KeyRing::key_of(sealed.as_ref())?).or_default() += count;
    }
    Ok(counts.into_iter().collect())
}

fn associated_data(app: AppUid) -> Vec<u8> {
    format!("webhook-token:{app}").into_bytes()
}

fn corrupt(what: &str) -> Error {
    Error::Corrupt { what: what.to_owned(), cause: None }
}
