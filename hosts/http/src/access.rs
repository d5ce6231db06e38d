//! API tokens, sessions, the audit, and who the caller is.

use http::StatusCode;
use rollhook_api::{Kind, Local, LoggedIn, Login, Operations, access::place, openapi, sessions::ACTOR_MAX};
use rollhook_management::ports::RecordPlace;

use crate::{
    error_reply::ErrorReply,
    query::Query,
    reply::{self, Reply},
    router::Call,
};

/// The number of entries per page by default.
const PAGE: usize = 50;

/// Answers `POST /tokens`.
pub(crate) async fn create(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    Ok(reply::json(StatusCode::CREATED, &operations.create_token(call.json()?).await?))
}

/// Answers `GET /tokens`.
pub(crate) async fn tokens(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    Query::parse(call.uri.query(), &[])?;
    Ok(reply::json(StatusCode::OK, &operations.tokens().await?))
}

/// Answers `DELETE /tokens/{name}`.
pub(crate) async fn revoke(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    operations.revoke_token(&call.token()?).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// Answers `GET /sessions`.
pub(crate) async fn sessions(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    let (after, limit) = part(call)?;
    Ok(reply::json(StatusCode::OK, &operations.sessions(after, limit).await?))
}

/// Answers `DELETE /sessions`.
pub(crate) async fn end_sessions(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    let actor: Option<String> = Query::parse(call.uri.query(), &["actor"])?.get("actor")?;
    let actor = actor.filter(|actor| (1..=ACTOR_MAX).contains(&actor.chars().count()));
    let actor = actor.ok_or_else(|| {
        ErrorReply::new(
            Kind::Malformed,
            "The query must have an actor: the token or person whose sessions are to end, in at most 512 characters.",
        )
    })?;
    Ok(reply::json(StatusCode::OK, &operations.end_sessions(&actor).await?))
}

/// Answers `DELETE /sessions/{session}`.
pub(crate) async fn end_session(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    operations.end_session(&call.session()?).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// Answers `GET /audit`.
pub(crate) async fn audit(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    let (after, limit) = part(call)?;
    Ok(reply::json(StatusCode::OK, &operations.audit(after, limit).await?))
}

/// Returns the part of a list that the query names: the place that it begins after, and the number of its entries.
fn part(call: &Call) -> Result<(Option<RecordPlace>, usize), ErrorReply> {
    let query = Query::parse(call.uri.query(), &["limit", "after"])?;
    let limit = query.limit(PAGE, openapi::PAGE_MAX)?;
    let after = query
        .get::<String>("after")?
        .map(|text| place(&text).ok_or_else(|| ErrorReply::new(Kind::Malformed, "The query's after cannot be read.")));
    Ok((after.transpose()?, limit))
}

/// Answers `POST /login`: by a code, and no other credential.
pub(crate) async fn login(call: &Call) -> Result<Reply, ErrorReply> {
    let Login { code, verifier } = call.json()?;
    let redeemed = call.state.management.redeem_code(&code, &verifier).await;
    let (token, principal) = redeemed.map_err(|refusal| ErrorReply::from(refusal).redacted())?;
    call.in_call.known();
    let logged_in = LoggedIn { token: token.to_string(), actor: principal.actor().to_string() };
    Ok(reply::json(StatusCode::OK, &logged_in))
}

/// Answers `GET /whoami`.
pub(crate) async fn whoami(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    Query::parse(call.uri.query(), &[])?;
    Ok(reply::json(StatusCode::OK, &operations.whoami().await?))
}
