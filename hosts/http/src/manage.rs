//! Apps: registering, listing, showing, changing and removing them, their webhooks and holds.

use futures_util::{StreamExt, stream};
use http::{HeaderValue, StatusCode, header::LOCATION};
use rollhook_api::{
    App, AppList, AppPatch, CreateApp, Deploy, Kind, Policy, Polling, Registered, Standing, Webhook, path,
};
use rollhook_core::{
    app::{AppId, Namespace},
    ports::{AppPage, View, WebhookSecret},
    service::Operator,
};
use serde_json::Value;

use crate::{
    body, deploys,
    failure::Failure,
    query::Query,
    reply::{self, Reply},
    router::Call,
};

/// Apps per page where nothing else is asked for, and at most.
const PAGE: (usize, usize) = (50, 200);
/// Views that are read at once for a list.
const AT_ONCE: usize = 8;

/// `POST /apps`.
pub(crate) async fn register(call: &Call, operator: &Operator) -> Result<Reply, Failure> {
    body::require_json(&call.headers)?;
    let wanted: CreateApp = body::object(&call.body.bytes)?;
    let registered = call.host.deployer.register(operator, wanted.parse()?, deploys::key(call, "register")?).await?;
    let view = view(call, operator, &registered.app.id).await?;
    let deploy = registered.deploy.as_ref();
    let deploy = deploy.map(|deploy| Deploy::of(&registered.app.id, deploy, Standing::of(&view)));
    let answer = Registered { app: App::of(&view), deploy, adopted: registered.adopted };
    let mut reply = reply::json(StatusCode::CREATED, &answer);
    if let Ok(location) = HeaderValue::from_str(&path::app(&registered.app.id)) {
        reply.headers_mut().insert(LOCATION, location);
    }
    Ok(reply)
}

/// `GET /apps`.
pub(crate) async fn list(call: &Call, operator: &Operator) -> Result<Reply, Failure> {
    let query = Query::parse(call.uri.query(), &["namespace", "after", "limit"])?;
    let limit = query.limit(PAGE.0, PAGE.1)?;
    let page = AppPage { namespace: query.get::<Namespace>("namespace")?, after: query.get::<AppId>("after")?, limit };
    let apps = call.host.deployer.apps(operator, page).await?;
    let next = apps.last().filter(|_| apps.len() == limit).map(|app| app.id.to_string());
    let views = apps.into_iter().map(|app| async move { view(call, operator, &app.id).await });
    let mut views = stream::iter(views).buffered(AT_ONCE);
    let mut apps = Vec::new();
    while let Some(view) = views.next().await {
        match view {
            Ok(view) => apps.push(App::of(&view)),
            // It was deleted since the list was read.
            Err(failure) if failure.kind() == Kind::AppNotFound => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(reply::json(StatusCode::OK, &AppList { apps, next }))
}

async fn view(call: &Call, operator: &Operator, id: &AppId) -> Result<View, Failure> {
    let access = call.host.deployer.open(operator, id).await?;
    Ok(call.host.deployer.view(&access).await?)
}

/// `GET /apps/{namespace}/{app}`.
pub(crate) async fn show(call: &Call, operator: &Operator) -> Result<Reply, Failure> {
    Query::parse(call.uri.query(), &[])?;
    Ok(reply::json(StatusCode::OK, &shown(call, operator, &call.app()?).await?))
}

/// One app, with what is known of its source and what its owner should decide.
async fn shown(call: &Call, operator: &Operator, id: &AppId) -> Result<App, Failure> {
    let deployer = &call.host.deployer;
    let access = deployer.open(operator, id).await?;
    let view = deployer.view(&access).await?;
    let polling = deployer.polled(view.app.uid).as_ref().map(Polling::of);
    let warning = deployer.warning(&access, &view.app).await?;
    Ok(App { polling, warning, ..App::of(&view) })
}

/// `PATCH /apps/{namespace}/{app}`.
pub(crate) async fn change(call: &Call, operator: &Operator) -> Result<Reply, Failure> {
    let id = call.app()?;
    body::require_json(&call.headers)?;
    let patch = patch(body::object(&call.body.bytes)?)?;
    call.host.deployer.change(operator, &id, patch.policy.parse()?, patch.source.parse()?).await?;
    Ok(reply::json(StatusCode::OK, &shown(call, operator, &id).await?))
}

/// Reads a merge patch, in which a null takes a field away: of a policy, that is back to the default.
fn patch(mut patch: Value) -> Result<AppPatch, Failure> {
    if patch.get("policy").or_else(|| patch.get("source")).is_none() {
        return Err(Failure::new(Kind::Malformed, "The body must have a policy or a source to change."));
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

/// `DELETE /apps/{namespace}/{app}`.
pub(crate) async fn delete(call: &Call, operator: &Operator) -> Result<Reply, Failure> {
    call.host.deployer.delete(operator, &call.app()?).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// `POST …/webhook`.
pub(crate) async fn enable(call: &Call, operator: &Operator) -> Result<Reply, Failure> {
    let id = call.app()?;
    let secret = call.host.deployer.enable_webhook(operator, &id).await?;
    Ok(with_token(call, &id, &secret))
}

/// `GET …/webhook`.
pub(crate) async fn webhook(call: &Call, operator: &Operator) -> Result<Reply, Failure> {
    let id = call.app()?;
    let secret = call.host.deployer.webhook(operator, &id).await?;
    Ok(with_token(call, &id, &secret))
}

/// `DELETE …/webhook`.
pub(crate) async fn disable(call: &Call, operator: &Operator) -> Result<Reply, Failure> {
    call.host.deployer.disable_webhook(operator, &call.app()?).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// The only answers that hold a token.
fn with_token(call: &Call, id: &AppId, secret: &WebhookSecret) -> Reply {
    let sealing = call.host.deployer.sealing();
    reply::json(StatusCode::OK, &Webhook::of(&call.host.base_url, id, secret, sealing))
}

/// `DELETE …/hold`.
pub(crate) async fn release(call: &Call, operator: &Operator) -> Result<Reply, Failure> {
    let id = call.app()?;
    call.host.deployer.release_hold(operator, &id).await?;
    Ok(reply::json(StatusCode::OK, &App::of(&view(call, operator, &id).await?)))
}

#[cfg(test)]
mod tests {
    use rollhook_core::request::Refusal;
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
        assert!(matches!(wrong, Refusal::InvalidField("policy.settle", _)));
    }
}
