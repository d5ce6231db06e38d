//! Idempotency keys in headers.

use http::{HeaderMap, HeaderName};
use rollhook_core::{
    request::{IdempotencyKey, KeyHeader},
    text::hex,
};
use sha2::{Digest, Sha256};

use crate::{Error, credentials};

/// The headers of a webhook's call that may carry its key.
const KEYS: &[KeyHeader] = &[KeyHeader::IdempotencyKey, KeyHeader::WebhookId, KeyHeader::Delivery];
/// The key of a signed message of Standard Webhooks: the one header that its signature covers.
const SIGNED_KEY: &[KeyHeader] = &[KeyHeader::WebhookId];

/// Returns the headers that may carry the call's key. A signed message that was observed could be sent again with
/// another `Idempotency-Key`, which would be another deploy.
///
/// The key of a push is the id under which the host repeats a delivery: GitHub redelivers under the same
/// `X-GitHub-Delivery` ("Best practices for using webhooks"), GitLab retries under the same `Idempotency-Key` and
/// `webhook-id` ("Delivery headers"). Gitea and Forgejo redeliver under another, and Bitbucket promises nothing of its
/// `X-Request-UUID`: there the core knows a push by its commits.
pub(crate) fn accepted(headers: &HeaderMap) -> &'static [KeyHeader] {
    if credentials::is_signed_message(headers) { SIGNED_KEY } else { KEYS }
}

/// Returns the key of a deploy that a signature over its body alone opens: the body itself, for the time of an
/// `Idempotency-Key`. Headers are not signed, so that whoever has observed the call could repeat it under another key.
pub(crate) fn of_signed_body(body: &[u8]) -> IdempotencyKey {
    let request: [u8; 32] = Sha256::digest(body).into();
    IdempotencyKey { header: KeyHeader::IdempotencyKey, key: format!("signed-{}", hex(&request)), request }
}

/// Returns the idempotency key of a call of this operation with this body. Of several headers, the first in `accepted`
/// counts.
///
/// # Errors
/// [`Error::Key`] if the header is present and not a key.
pub fn key(
    headers: &HeaderMap,
    accepted: &[KeyHeader],
    operation: &str,
    body: &[u8],
) -> Result<Option<IdempotencyKey>, Error> {
    for header in accepted {
        let mut lines = headers.get_all(HeaderName::from_static(name(*header))).iter();
        let Some(line) = lines.next() else { continue };
        let invalid = |why: &str| Error::Key(name(*header), why.to_owned());
        if lines.next().is_some() {
            return Err(invalid("must be sent once"));
        }
        let text = line.to_str().map_err(|_| invalid("must be 1 to 255 visible ASCII characters"))?;
        let request = Sha256::new().chain_update(operation).chain_update([0]).chain_update(body).finalize();
        return IdempotencyKey::new(*header, text, request.into())
            .map(Some)
            .map_err(|error| invalid(&error.to_string()));
    }
    Ok(None)
}

/// Returns the header that carries a key.
const fn name(header: KeyHeader) -> &'static str {
    match header {
        KeyHeader::IdempotencyKey => "idempotency-key",
        KeyHeader::WebhookId => "webhook-id",
        KeyHeader::Delivery => "x-github-delivery",
    }
}
