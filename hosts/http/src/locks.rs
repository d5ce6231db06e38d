//! Locks of apps and environments.

use http::{Method, StatusCode};
use rollhook_api::{Local, Operations};

use crate::{
    error_reply::ErrorReply,
    query::Query,
    reply::{self, Reply},
    router::Call,
};

/// Answers `PUT` and `DELETE …/lock`.
pub(crate) async fn of_app(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    let id = call.app()?;
    let app = match call.method {
        Method::PUT => operations.lock(&id, call.json()?).await?,
        _ => operations.unlock(&id).await?,
    };
    Ok(reply::json(StatusCode::OK, &app))
}

/// Answers `GET /locks`.
pub(crate) async fn list(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    Query::parse(call.uri.query(), &[])?;
    Ok(reply::json(StatusCode::OK, &operations.locked_environments().await?))
}

/// Answers `PUT` and `DELETE /locks/{project}/{environment}`.
pub(crate) async fn of_environment(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    let (project, environment) = call.environment()?;
    if call.method == Method::PUT {
        let locked = operations.lock_environment(&project, &environment, call.json()?).await?;
        return Ok(reply::json(StatusCode::OK, &locked));
    }
    operations.unlock_environment(&project, &environment).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}
