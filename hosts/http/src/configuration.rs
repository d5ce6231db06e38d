//! Changes of configurations: no text of their bodies is repeated or traced, as it may be a secret.

use http::{StatusCode, header::HeaderValue};
use rollhook_api::{ConfigAnswer, ConfigPatch, Local, operations::ChangeConfiguration};
use rollhook_core::request::{IdempotencyKey, KeyHeader};

use crate::{
    answer, auth, body,
    call::Call,
    error_reply::ErrorReply,
    headers,
    reply::{self, Reply},
};

/// Answers `PATCH …/config`.
pub(crate) async fn change(call: &Call, caller: Local) -> Result<Reply, ErrorReply> {
    let (id, patch) = (call.app()?, body::confidential::<ConfigPatch>(&call.headers, &call.body.bytes())?);
    let caller = caller.with_key(key(call)?);
    call.body.release();
    match caller.call(ChangeConfiguration, &id, patch).await? {
        ConfigAnswer::Deploy(answer) => answer::accepted(call, *answer, caller.open(&id)).await,
        ConfigAnswer::Kept(kept) => {
            let mut reply = reply::json(StatusCode::OK, &kept);
            reply.headers_mut().extend(kept.replayed.then_some((answer::REPLAYED, HeaderValue::from_static("true"))));
            Ok(reply)
        }
    }
}

/// Returns the call's idempotency key. The store keeps a hash of its request: with the caller's token in it, no value of the
/// body can be guessed by it. A repeat has the same token.
fn key(call: &Call) -> Result<Option<IdempotencyKey>, ErrorReply> {
    let operation = format!("{}\0{}", call.endpoint.key.unwrap_or_default(), auth::presented(&call.headers));
    headers::key(&call.headers, &[KeyHeader::IdempotencyKey], &operation, &call.body.bytes())
}
