//! The secrets and signatures in the headers of a webhook's call; the core checks them.

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use rollhook_core::{
    time::Timestamp,
    token::{Credential, Credentials, NotAToken, Signature, SignedMessage, Token},
};
use zeroize::Zeroizing;

/// The headers that carry the token itself: rollhook's own, and GitLab's. Beside them, `Authorization: Bearer` may.
const TOKENS: [&str; 2] = ["x-service-token", "x-gitlab-token"];
/// GitHub's signature, which Gitea and Forgejo send as well.
const SIGNATURE: &str = "x-hub-signature-256";
/// Bitbucket's HMAC-SHA256. GitHub's header of this name is HMAC-SHA1, which is no credential here.
const HUB_SIGNATURE: &str = "x-hub-signature";
/// The signatures that are hexadecimal digits alone.
const BARE_SIGNATURES: [&str; 2] = ["x-gitea-signature", "x-forgejo-signature"];
/// The signature of Standard Webhooks, and the headers that are signed beside the body. Without a signature these are
/// no credentials: callers may send `webhook-id` as an idempotency key.
const MESSAGE_SIGNATURE: &str = "webhook-signature";
const MESSAGE_ID: &str = "webhook-id";
const MESSAGE_TIME: &str = "webhook-timestamp";

/// Returns the secrets and signatures of a webhook's caller; `now` is the wall clock's time, with which the time of a
/// signed message is compared. A header that is repeated, or not ASCII, is invalid, not absent.
pub fn credentials(headers: &HeaderMap, now: Timestamp) -> Credentials {
    let token = |text: &str| Ok(Credential::Token(Zeroizing::new(text.as_bytes().to_vec())));
    let named = |text: &str| text.parse::<Signature>().map(Credential::Signature);
    let bare = |text: &str| Signature::bare(text).map(Credential::Signature);
    let named_tokens = TOKENS.iter().filter_map(|name| once(headers, name));
    let tokens = named_tokens.chain(bearer_token(headers)).map(|text| text.and_then(token));
    let named = [once(headers, SIGNATURE), hub_signature(headers)].into_iter().flatten().map(|t| t.and_then(named));
    let bare = BARE_SIGNATURES.iter().filter_map(|name| once(headers, name)).map(|text| text.and_then(bare));
    let message = once(headers, MESSAGE_SIGNATURE).map(|signature| signed_message(headers, signature?, now));
    tokens.chain(named).chain(bare).chain(message).collect()
}

/// Returns whether the call is a signed message of Standard Webhooks.
pub(crate) fn is_signed_message(headers: &HeaderMap) -> bool {
    headers.contains_key(MESSAGE_SIGNATURE)
}

/// Returns the text of a header that may be sent once; `None` if there is none. One that is repeated, or not ASCII, is
/// `Err(NotAToken)`.
pub fn once<'a>(headers: &'a HeaderMap, name: &str) -> Option<Result<&'a str, NotAToken>> {
    single(headers.get_all(name).iter())
}

/// Returns the webhook's token in `Authorization: Bearer`, a header that registries can send. Another secret there, such
/// as an id_token, does not begin as a token does, and is no credential here; neither is another scheme.
fn bearer_token(headers: &HeaderMap) -> Option<Result<&str, NotAToken>> {
    let is_token = |line: &HeaderValue| {
        let text = String::from_utf8_lossy(line.as_bytes());
        bearer(&text).is_some_and(|secret| secret.starts_with(Token::PREFIX))
    };
    headers.get_all(AUTHORIZATION).iter().any(is_token).then_some(())?;
    Some(once(headers, AUTHORIZATION.as_str())?.and_then(|text| bearer(text).ok_or(NotAToken)))
}

/// Returns the secret of an `Authorization` header; `None` if its scheme is another one than `Bearer`.
pub fn bearer(text: &str) -> Option<&str> {
    let (scheme, secret) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

/// Returns `X-Hub-Signature` without its lines of SHA-1.
fn hub_signature(headers: &HeaderMap) -> Option<Result<&str, NotAToken>> {
    let legacy = |line: &&HeaderValue| line.as_bytes().starts_with(b"sha1=");
    single(headers.get_all(HUB_SIGNATURE).iter().filter(|line| !legacy(line)))
}

fn signed_message(headers: &HeaderMap, signature: &str, now: Timestamp) -> Result<Credential, NotAToken> {
    let beside = |name| once(headers, name).ok_or(NotAToken)?;
    SignedMessage::new(beside(MESSAGE_ID)?, beside(MESSAGE_TIME)?, signature, now).map(Credential::Message)
}

fn single<'a>(mut lines: impl Iterator<Item = &'a HeaderValue>) -> Option<Result<&'a str, NotAToken>> {
    let first = lines.next()?;
    Some(if lines.next().is_some() { Err(NotAToken) } else { first.to_str().map_err(|_| NotAToken) })
}
