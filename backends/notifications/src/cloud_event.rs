//! CloudEvents 1.0 in JSON, with the signatures of Standard Webhooks.

use http::Request;
use rollhook_https::SignedCall;
use rollhook_management::{
    notifications::{Content, EventKind, Notification, ReceiverSecret},
    ports::DeliveryFailure,
};
use serde_json::{Map, Value, json};

use crate::{answer::failure, facts};

/// Returns the call that posts an event to a receiver.
///
/// # Errors
/// If the URL or the secret cannot be used, which adding the receiver has checked.
pub(crate) fn request(
    url: &str,
    secret: &ReceiverSecret,
    notification: &Notification,
    event: &Value,
) -> Result<Request<Vec<u8>>, DeliveryFailure> {
    let body = event.to_string();
    let key = secret.signing_key();
    let key = key.ok_or_else(|| failure("the receiver's secret is not one of Standard Webhooks"))?;
    let message = SignedCall {
        id: notification.id.as_str(),
        sent_at: notification.sent_at,
        content_type: "application/cloudevents+json; charset=utf-8",
        body: &body,
    };
    message.request(url, &key).map_err(|_| failure("the receiver's URL cannot be called"))
}

/// Returns the event.
pub(crate) fn event(notification: &Notification) -> Value {
    let base_url = &notification.base_url;
    let (kind, source, subject, data) = match &notification.content {
        Content::Deploy { app, deploy, event } => {
            let path = facts::app_path(app);
            let mut data = facts::app(app);
            data.insert("event".to_owned(), json!(event.as_str()));
            data.extend(facts::deploy(deploy));
            data.insert("url".to_owned(), json!(format!("{base_url}{path}/deploys/{}", deploy.revision)));
            let subject = Some(format!("deploys/{}", deploy.revision));
            (format!("rollhook.deploy.{event}"), path, subject, data)
        }
        Content::Revoked { app, deploy, fail } => {
            let path = facts::app_path(app);
            let mut data = facts::app(app);
            data.insert("event".to_owned(), json!(EventKind::VerificationRevoked.as_str()));
            data.extend(facts::deploy(deploy));
            data.insert("check".to_owned(), json!(fail.check.as_str()));
            data.insert("message".to_owned(), json!(fail.message));
            data.insert("url".to_owned(), json!(format!("{base_url}{path}/deploys/{}", deploy.revision)));
            let subject = Some(format!("deploys/{}", deploy.revision));
            (format!("rollhook.deploy.{}", EventKind::VerificationRevoked), path, subject, data)
        }
        Content::Drift { app, drift } => {
            let path = facts::app_path(app);
            let mut data = facts::app(app);
            data.insert("event".to_owned(), json!("drift"));
            data.insert("message".to_owned(), json!(drift.message));
            data.extend(drift.image.as_ref().map(|image| ("image".to_owned(), json!(image.to_string()))));
            data.insert("url".to_owned(), json!(format!("{base_url}{path}")));
            ("rollhook.app.drift".to_owned(), path, None, data)
        }
        Content::Degraded { app, degraded } => {
            let path = facts::app_path(app);
            let mut data = facts::app(app);
            data.insert("event".to_owned(), json!("degraded"));
            data.insert("reason".to_owned(), json!(degraded.reason.as_str()));
            data.insert("message".to_owned(), json!(degraded.message));
            data.insert("url".to_owned(), json!(format!("{base_url}{path}")));
            ("rollhook.app.degraded".to_owned(), path, None, data)
        }
        Content::Test => {
            let data = facts::object(json!({ "message": "A test of this receiver." }));
            ("rollhook.test".to_owned(), "/api/v1".to_owned(), None, data)
        }
    };
    envelope(notification, &format!("{base_url}{source}"), &kind, subject, data.into())
}

/// Returns an event of this kind with what it says.
pub(crate) fn envelope(
    notification: &Notification,
    source: &str,
    kind: &str,
    subject: Option<String>,
    data: Value,
) -> Value {
    let mut event = Map::new();
    event.insert("specversion".to_owned(), json!("1.0"));
    event.insert("id".to_owned(), json!(notification.id.as_str()));
    event.insert("source".to_owned(), json!(source));
    event.insert("type".to_owned(), json!(kind));
    event.extend(subject.map(|subject| ("subject".to_owned(), json!(subject))));
    event.insert("time".to_owned(), json!(facts::time(notification.at)));
    event.insert("datacontenttype".to_owned(), json!("application/json"));
    event.insert("data".to_owned(), data);
    event.into()
}

#[cfg(test)]
mod tests;
