//! The pipelines that an app trusts.

use http::StatusCode;
use rollhook_api::{AddTrust, Local, Operations};

use crate::{
    error_reply::ErrorReply,
    query::Query,
    reply::{self, Reply},
    router::Call,
};

/// Answers `GET …/webhook/trusts`.
pub(crate) async fn list(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    Query::parse(call.uri.query(), &[])?;
    Ok(reply::json(StatusCode::OK, &operations.trusts(&call.app()?).await?))
}

/// Answers `POST …/webhook/trusts`.
pub(crate) async fn add(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    let trust: AddTrust = call.json()?;
    Ok(reply::json(StatusCode::OK, &operations.add_trust(&call.app()?, trust).await?))
}

/// Answers `DELETE …/webhook/trusts/{trust}`.
pub(crate) async fn remove(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    operations.remove_trust(&call.app()?, &call.trust()?).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}
