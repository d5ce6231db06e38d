//! Webhook tokens as stores keep them: sealed for the app that they open, so that they open no other.

use rollhook_core::{Error, Result, app::AppUid, ports::WebhookSecret, time::Timestamp};

use crate::KeyRing;

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
    Ok(ring.reseal(sealed, &associated_data(app))?)
}

fn associated_data(app: AppUid) -> Vec<u8> {
    format!("webhook-token:{app}").into_bytes()
}

fn corrupt(what: &str) -> Error {
    Error::Corrupt { what: what.to_owned(), cause: None }
}
