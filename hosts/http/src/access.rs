//! API tokens, the audit, and who the caller is.

use http::StatusCode;
use rollhook_api::{Kind, Local, Operations, access::place, openapi};

use crate::{
    error_reply::ErrorReply,
    query::Query,
    reply::{self, Reply},
    router::Call,
};

/// The number of entries per page of the audit by default.
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

/// Answers `DELETE /tokens/{token}`.
pub(crate) async fn revoke(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    operations.revoke_token(&call.token()?).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// Answers `GET /audit`.
pub(crate) async fn audit(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    let query = Query::parse(call.uri.query(), &["limit", "after"])?;
    let limit = query.limit(PAGE, openapi::PAGE_MAX)?;
    let after = query
        .get::<String>("after")?
        .map(|text| place(&text).ok_or_else(|| ErrorReply::new(Kind::Malformed, "The query's after cannot be read.")));
    Ok(reply::json(StatusCode::OK, &operations.audit(after.transpose()?, limit).await?))
}

/// Answers `GET /whoami`.
pub(crate) async fn whoami(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    Query::parse(call.uri.query(), &[])?;
    Ok(reply::json(StatusCode::OK, &operations.whoami().await?))
}
