//! Apps: registering, listing, showing, changing and removing them, their webhooks and holds.

use http::{HeaderValue, StatusCode, header::LOCATION};
use rollhook_api::{AppPatch, CreateApp, Kind, Local, Operations, Policy, openapi};
use rollhook_core::ports::AppPage;
use serde_json::Value;

use crate::{
    body,
    error_reply::ErrorReply,
    query::Query,
    reply::{self, Reply},
    router::Call,
};

/// The number of apps per page: by default, and at most.
const PAGE: (usize, usize) = (50, openapi::PAGE_MAX);

/// Answers `POST /apps`.
pub(crate) async fn register(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    let wanted: CreateApp = call.json()?;
    let registered = operations.with_key(call.key("register")?).create(wanted).await?;
    let mut reply = reply::json(StatusCode::CREATED, &registered);
    reply.headers_mut().extend(HeaderValue::from_str(&registered.app.path()).map(|path| (LOCATION, path)));
    Ok(reply)
}

/// Answers `GET /apps`.
pub(crate) async fn list(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    let query = Query::parse(call.uri.query(), &["namespace", "after", "limit"])?;
    let (namespace, after) = (query.get("namespace")?, query.get("after")?);
    let page = AppPage { namespace, after, limit: query.limit(PAGE.0, PAGE.1)? };
    Ok(reply::json(StatusCode::OK, &operations.apps(page).await?))
}

/// Answers `GET /apps/{namespace}/{app}`.
pub(crate) async fn show(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    Query::parse(call.uri.query(), &[])?;
    Ok(reply::json(StatusCode::OK, &operations.app(&call.app()?).await?))
}

/// Answers `PATCH /apps/{namespace}/{app}`.
pub(crate) async fn change(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    let (id, patch) = (call.app()?, patch(call.json()?)?);
    Ok(reply::json(StatusCode::OK, &operations.change(&id, patch).await?))
}

/// Reads a merge patch, in which a null removes a member: a policy's member returns to its default.
fn patch(mut patch: Value) -> Result<AppPatch, ErrorReply> {
    if patch.get("policy").or_else(|| patch.get("source")).is_none() {
        return Err(ErrorReply::new(Kind::Malformed, "The body must have a policy or a source to change."));
    }
    let defaults = serde_json::to_value(Policy::of(&rollhook_core::app::Policy::default())).unwrap_or_default();
    if let Some(policy) = patch.get_mut("policy").and_then(Value::as_object_mut) {
        for (name, value) in policy.iter_mut().filter(|(_, value)| value.is_null()) {
            *value = defaults.get(name).cloned().unwrap_or_default();
        }
    }
    if let Some(credentials) = patch.get_mut("source").and_then(|source| source.get_mut("credentials"))
        && credentials.is_null()
    {
        *credentials = Value::String(String::new());
    }
    body::object(patch.to_string().as_bytes())
}

/// Answers `DELETE /apps/{namespace}/{app}`.
pub(crate) async fn delete(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    operations.delete(&call.app()?).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// Answers `POST …/webhook`.
pub(crate) async fn enable(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    Ok(reply::json(StatusCode::OK, &operations.enable_webhook(&call.app()?).await?))
}

/// Answers `POST …/webhook/rotate`.
pub(crate) async fn rotate(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    let (id, rotate) = (call.app()?, call.json_or_default()?);
    Ok(reply::json(StatusCode::OK, &operations.rotate_webhook(&id, rotate).await?))
}

/// Answers `GET …/webhook`.
pub(crate) async fn webhook(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    let is_masked = Query::parse(call.uri.query(), &["masked"])?.get("masked")?.unwrap_or(false);
    let (id, webhook) = (call.app()?, &operations);
    let webhook = if is_masked { webhook.masked_webhook(&id).await? } else { webhook.webhook(&id).await? };
    Ok(reply::json(StatusCode::OK, &webhook))
}

/// Answers `GET …/webhook/calls`.
pub(crate) async fn webhook_calls(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    Query::parse(call.uri.query(), &[])?;
    Ok(reply::json(StatusCode::OK, &operations.webhook_calls(&call.app()?).await?))
}

/// Answers `DELETE …/webhook`.
pub(crate) async fn disable(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    operations.disable_webhook(&call.app()?).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// Answers `DELETE …/hold`.
pub(crate) async fn release(call: &Call, operations: Local<ErrorReply>) -> Result<Reply, ErrorReply> {
    Ok(reply::json(StatusCode::OK, &operations.release_hold(&call.app()?).await?))
}

#[cfg(test)]
mod tests {
    use rollhook_core::request::{Field, Refusal};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_null_is_the_default() {
        let read = patch(json!({"policy": {"settle": null, "hold": "all"}})).unwrap().policy;
        assert_eq!(read.settle.as_deref(), Some("10s"));
        assert_eq!(read.hold.as_deref(), Some("all"));
        assert_eq!(read.on_failure, None);
        let read = patch(json!({"policy": {"poll": null}})).unwrap().policy;
        assert_eq!(read.poll.as_deref(), Some("off"));
        let read = patch(json!({"source": {"credentials": null}})).unwrap().source.parse().unwrap();
        assert_eq!(read.credentials, Some(None), "taken away");
        assert_eq!(patch(json!({})).unwrap_err().kind(), Kind::Malformed);
        assert_eq!(patch(json!({"policy": 7})).unwrap_err().kind(), Kind::Malformed);
        let wrong = patch(json!({"policy": {"settle": "soon"}})).unwrap().policy.parse().unwrap_err();
        assert!(matches!(wrong, Refusal::InvalidField(Field::PolicySettle, _)));
    }
}
