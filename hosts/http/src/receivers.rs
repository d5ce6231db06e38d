//! Receivers of notifications.

use http::StatusCode;
use rollhook_api::{Local, Operations};

use crate::{
    error_reply::ErrorReply,
    query::Query,
    reply::{self, Reply},
    router::Call,
};

/// Answers `GET /receivers`.
pub(crate) async fn list(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    Query::parse(call.uri.query(), &[])?;
    Ok(reply::json(StatusCode::OK, &operations.receivers().await?))
}

/// Answers `POST /receivers`.
pub(crate) async fn add(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    Ok(reply::json(StatusCode::CREATED, &operations.add_receiver(call.json()?).await?))
}

/// Answers `DELETE /receivers/{receiver}`.
pub(crate) async fn remove(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    operations.remove_receiver(&call.receiver()?).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// Answers `POST /receivers/{receiver}/test`.
pub(crate) async fn test(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    let receiver = call.receiver()?;
    call.state.limits.test(&receiver)?;
    let tested = operations.test_receiver(&receiver).await?;
    call.state.limits.tested(&receiver);
    Ok(reply::json(StatusCode::OK, &tested))
}

/// Answers `POST /receivers/{receiver}/rotate`.
pub(crate) async fn rotate(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    let (receiver, rotate) = (call.receiver()?, call.json_or_default()?);
    Ok(reply::json(StatusCode::OK, &operations.rotate_receiver(&receiver, rotate).await?))
}
