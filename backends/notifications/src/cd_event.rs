//! CDEvents 0.5: what runs where, as an event of the continuous delivery tools' own vocabulary, in a CloudEvent.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rollhook_core::{
    app::App,
    deploy::{Deploy, Revision, Scale},
};
use rollhook_management::notifications::{Content, EventKind, Notification};
use serde_json::{Map, Value, json};

use crate::{cloud_event, facts};

/// The version of the specification.
const SPECVERSION: &str = "0.5.1";

/// Returns the event in the envelope of a CloudEvent, or why there is none.
///
/// # Errors
/// The sentence for people.
pub(crate) fn event(notification: &Notification) -> Result<Value, &'static str> {
    let (kind, subject, facts) = match &notification.content {
        Content::Deploy { app, deploy, event } => {
            let predicate = predicate(deploy, *event).ok_or("CDEvents has no event of a service for it")?;
            let artifact = artifact(deploy).ok_or("the deploy has no image")?;
            let content = json!({
                "environment": { "id": app.id.namespace.to_string(), "source": notification.base_url },
                "artifactId": artifact,
            });
            (
                format!("dev.cdevents.service.{predicate}.0.3.0"),
                subject(notification, app, &content),
                facts::deploy(deploy),
            )
        }
        Content::Revoked { .. } | Content::Drift { .. } | Content::Degraded { .. } => {
            return Err("CDEvents has no event of a service for it");
        }
        Content::Test => {
            let subject = json!({ "id": "rollhook", "source": notification.base_url, "type": "rollhook-receiver",
                                  "content": { "message": "A test of this receiver." } });
            ("dev.cdeventsx.rollhook-receiver.tested.0.1.0".to_owned(), subject, Map::new())
        }
    };
    let context = json!({
        "specversion": SPECVERSION,
        "id": notification.id.as_str(),
        "source": notification.base_url,
        "type": kind,
        "timestamp": facts::time(notification.at),
    });
    let name = subject["id"].as_str().map(str::to_owned);
    let mut data = json!({ "context": context, "subject": subject });
    if !facts.is_empty() {
        (data["customData"], data["customDataContentType"]) = (facts.into(), json!("application/json"));
    }
    Ok(cloud_event::envelope(notification, &notification.base_url, &kind, name, data))
}

/// Returns what happened to the service; `None` if it runs what it ran.
fn predicate(deploy: &Deploy, event: EventKind) -> Option<&'static str> {
    match event {
        EventKind::Succeeded if deploy.scale == Scale::Stop => None,
        EventKind::Succeeded if deploy.revision == Revision::FIRST => Some("deployed"),
        EventKind::Succeeded => Some("upgraded"),
        EventKind::PutRight | EventKind::RolledBack => Some("rolledback"),
        EventKind::Accepted
        | EventKind::Building
        | EventKind::Releasing
        | EventKind::RollingOut
        | EventKind::Verifying
        | EventKind::AwaitingDecision
        | EventKind::Failed
        | EventKind::Superseded
        | EventKind::Cancelled
        | EventKind::VerificationRevoked
        | EventKind::Drift
        | EventKind::Degraded => None,
    }
}

fn subject(notification: &Notification, app: &App, content: &Value) -> Value {
    let source = format!("{}{}", notification.base_url, facts::app_path(app));
    json!({ "id": app.id.to_string(), "source": source, "content": content })
}

/// Returns the package URL of what runs: by its digest, if that is known.
fn artifact(deploy: &Deploy) -> Option<String> {
    let image = deploy.image.as_ref()?;
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let repository = image.canonical_repository();
    let name = repository.rsplit('/').next().unwrap_or_default();
    let digest = image.digest().or(deploy.digest.as_ref()).map(|digest| format!("@{}", encoded(&digest.to_string())));
    let tag = image.tag().map(|tag| format!("&tag={tag}")).unwrap_or_default();
    // Of a package URL's parts, a repository has no character to encode but its slashes and a port's colon.
    Some(format!("pkg:oci/{name}{}?repository_url={repository}{tag}", digest.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use cdevents_sdk::CDEvent;
    use rollhook_core::deploy::State;

    use super::*;
    use crate::samples;

    fn sent(content: Content) -> Result<Value, &'static str> {
        event(&samples::notification(content))
    }

    /// Returns the event as the specification's own library reads it.
    fn read(event: &Value) -> CDEvent {
        serde_json::from_value(event["data"].clone()).unwrap()
    }

    #[test]
    fn a_service_is_deployed_upgraded_and_rolled_back() {
        for (number, event, wanted) in [
            (1, EventKind::Succeeded, "dev.cdevents.service.deployed.0.3.0"),
            (4, EventKind::Succeeded, "dev.cdevents.service.upgraded.0.3.0"),
            (4, EventKind::RolledBack, "dev.cdevents.service.rolledback.0.3.0"),
            (4, EventKind::PutRight, "dev.cdevents.service.rolledback.0.3.0"),
        ] {
            let deploy = samples::deploy(number, State::Succeeded { note: None });
            let sent = sent(Content::Deploy { app: samples::app(), deploy: deploy.into(), event }).unwrap();
            let read = read(&sent);
            assert_eq!(read.ty(), wanted);
            assert_eq!((&sent["type"], &sent["subject"]), (&json!(wanted), &json!("shop-test/api")));
            let again = serde_json::to_value(&read).unwrap();
            assert_eq!(again["subject"]["content"], sent["data"]["subject"]["content"], "nothing is lost on the way");
            assert_eq!(again["context"]["specversion"], SPECVERSION);
        }
    }

    #[test]
    fn an_artifact_is_a_package_url() {
        let mut deploy = samples::deploy(4, State::Succeeded { note: None });
        assert_eq!(artifact(&deploy).unwrap(), "pkg:oci/api?repository_url=r.example.com/api&tag=v4");
        let digest = format!("sha256:{}", "0b".repeat(32));
        deploy.digest = digest.parse().ok();
        let encoded = digest.replace(':', "%3A");
        let wanted = format!("pkg:oci/api@{encoded}?repository_url=r.example.com/api&tag=v4");
        assert_eq!(artifact(&deploy).unwrap(), wanted);
        deploy.image = format!("r.example.com:5000/shop/web@{digest}").parse().ok();
        let wanted = format!("pkg:oci/web@{encoded}?repository_url=r.example.com:5000/shop/web");
        assert_eq!(artifact(&deploy).unwrap(), wanted);
    }

    #[test]
    fn what_changes_no_service_is_not_sent_and_a_test_is() {
        assert!(sent(samples::accepted()).is_err() && sent(samples::failed()).is_err());
        assert_eq!(sent(Content::Test).unwrap()["type"], "dev.cdeventsx.rollhook-receiver.tested.0.1.0");
    }
}
