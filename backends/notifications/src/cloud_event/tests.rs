use rollhook_core::{
    deploy::{CheckFail, Deploy, Reason},
    time::Timestamp,
};
use rollhook_management::notifications::{DegradedNews, DriftNews, EventKind, NotificationId};

use super::*;
use crate::samples;

fn told(content: Content) -> Value {
    event(&samples::notification(content))
}

#[test]
fn events_are_told_with_the_facts_that_a_receiver_needs() {
    insta::assert_json_snapshot!("accepted", told(samples::accepted()));
    insta::assert_json_snapshot!("failed", told(samples::failed()));
    insta::assert_json_snapshot!("failed_of_several", told(samples::failed_of_several()));
    insta::assert_json_snapshot!("put_right", told(samples::put_right()));
    let drift = DriftNews { image: Some("r.example.com/api:hotfix".parse().unwrap()), message: "Changed.".to_owned() };
    insta::assert_json_snapshot!("drift", told(Content::Drift { app: samples::app(), drift }));
    let (reason, message) = (Reason::new("CrashLoopBackOff"), "It exited with code 7.".to_owned());
    let degraded = DegradedNews { reason, message };
    insta::assert_json_snapshot!("degraded", told(Content::Degraded { app: samples::app(), degraded }));
    let Content::Deploy { app, deploy, .. } = samples::put_right() else { panic!("no deploy") };
    let message = "The check errors failed 3 times in a row: 0.1, expected <= 0.01.".to_owned();
    let fail = CheckFail { at: Timestamp::from_millis(0), check: "errors".parse().unwrap(), message };
    insta::assert_json_snapshot!("verification_revoked", told(Content::Revoked { app, deploy, fail }));
    insta::assert_json_snapshot!("test", told(Content::Test));
}

#[test]
fn commit_is_the_posted_one_or_else_that_of_the_label_beside_the_labels() {
    let data = |deploy| told(samples::of(deploy))["data"].clone();
    let found = data(samples::found("4f1a77b"));
    let labels = json!({
        "revision": "4f1a77b", "version": "1.2", "source": "https://git.example.com/shop/api",
        "url": "https://api.example.com/?a=1&b=|",
    });
    assert_eq!((&found["commit"], &found["labels"]), (&json!("4f1a77b"), &labels));
    let posted = data(Deploy { commit: "abc123f".parse().ok(), ..samples::found("4f1a77b") });
    assert_eq!((&posted["commit"], &posted["labels"]), (&json!("abc123f"), &labels));
}

#[test]
fn evidence_is_not_told() {
    for failed in [samples::failed(), samples::failed_of_several()] {
        assert!(!told(failed).to_string().contains("hunter2"));
    }
}

#[test]
fn call_has_the_headers_of_standard_webhooks() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();
    let notification = samples::notification(samples::failed());
    let request = request("https://hooks.example.com/x", &secret, &notification, &event(&notification)).unwrap();
    let header = |name| request.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("webhook-timestamp"), "1767323060");
    assert_eq!(header("webhook-id"), notification.id.as_str());
    let body = std::str::from_utf8(request.body()).unwrap();
    assert!(header("webhook-signature").starts_with("v1,"));
    assert_eq!(header("content-type"), "application/cloudevents+json; charset=utf-8");
    assert_eq!(serde_json::from_str::<Value>(body).unwrap()["id"], notification.id.as_str());
}

#[test]
fn ids_differ_by_event_and_stay_for_every_attempt() {
    let (app, receiver) = (samples::app(), "0123456789abcdef0123456789abcdef".parse().unwrap());
    let id = |number, event| {
        NotificationId::of_deploy(&receiver, &app, rollhook_core::deploy::Revision::new(number).unwrap(), event)
    };
    assert_eq!(id(1, EventKind::Failed), id(1, EventKind::Failed));
    assert_ne!(id(1, EventKind::Failed), id(1, EventKind::Accepted));
    assert_ne!(id(1, EventKind::Failed), id(2, EventKind::Failed));
    assert_eq!(facts::time(Timestamp::from_millis(i64::MAX)).len(), facts::time(Timestamp::default()).len());
}
