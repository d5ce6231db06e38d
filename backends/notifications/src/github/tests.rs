use rollhook_core::deploy::{Reason, State};

use super::*;
use crate::samples;

/// Returns the bodies of the three calls on an event: the deployment, its status, and the commit's.
fn bodies(content: Content) -> [Value; 3] {
    let notification = samples::notification(content);
    let Content::Deploy { app, deploy, event } = &notification.content else { panic!("an event of a deploy") };
    let told = Told { notification: &notification, app, deploy, event: *event };
    [deployment_body(told, deploy.commit.as_ref().unwrap().as_str()), deployment_status(told), commit_status(told)]
}

#[test]
fn statuses_have_the_reason_and_the_link_and_no_words_of_a_container_or_a_registry() {
    let says = || "Container api printed: PASSWORD=hunter2, and 10.0.0.7 refused".to_owned();
    let failed = |reason| State::Failed { reason: Reason::new(reason), message: says(), evidence: None };
    let cancelled = |reason| State::Cancelled { reason: Reason::new(reason), message: says() };
    for (state, description) in [
        (failed("ImagePullBackOff"), "shop-test/api #4 failed: ImagePullBackOff"),
        (failed(Reason::BUILD_FAILED), "shop-test/api #4 failed: build-failed"),
        (cancelled(Reason::CANCELLED), "shop-test/api #4 was cancelled"),
        (cancelled(Reason::APP_DELETED), "shop-test/api #4 was cancelled: app-deleted"),
        (State::Succeeded { note: Some(says()) }, "shop-test/api #4 succeeded"),
    ] {
        let [deployment, status, of_commit] = bodies(samples::of(samples::deploy(4, state)));
        assert_eq!((&status["description"], &of_commit["description"]), (&json!(description), &json!(description)));
        let page = "https://rollhook.example.com/apps/shop-test/api/deploys/4";
        assert_eq!((&status["log_url"], &of_commit["target_url"]), (&json!(page), &json!(page)));
        let all = format!("{deployment}{status}{of_commit}");
        assert!(!all.contains("hunter2") && !all.contains("10.0.0.7") && !all.contains("r.example.com"), "{all}");
    }
}

#[test]
fn success_of_one_app_leaves_the_deployments_of_the_others_active() {
    let [_, status, of_commit] = bodies(samples::put_right());
    assert_eq!((&status["state"], &status["auto_inactive"]), (&json!("success"), &json!(false)));
    assert!(of_commit.get("auto_inactive").is_none(), "{of_commit}");
}

#[test]
fn revoked_verification_is_a_failure_of_the_deployment_and_of_the_commit() {
    let deploy = samples::deploy(4, State::Succeeded { note: None });
    let event = EventKind::VerificationRevoked;
    let notification = samples::notification(samples::of(deploy));
    let Content::Deploy { app, deploy, .. } = &notification.content else { panic!("an event of a deploy") };
    let told = Told { notification: &notification, app, deploy, event };
    for status in [deployment_status(told), commit_status(told)] {
        let description = "shop-test/api #4 failed a check after it had succeeded";
        assert_eq!((&status["state"], &status["description"]), (&json!("failure"), &json!(description)));
    }
}

#[test]
fn deployments_are_searched_by_the_task_of_their_app() {
    let mut app = App::clone(&samples::app());
    let [deployment, ..] = bodies(samples::accepted());
    assert_eq!(deployment["task"], "deploy:shop-test/api");
    assert_eq!(search(&app, "def456"), "sha=def456&task=deploy%3Ashop-test%2Fapi&environment=test&per_page=30");
    app.id = format!("{}/{}", "n".repeat(63), "a".repeat(63)).parse().unwrap();
    assert_eq!(task(&app).len(), 100);
}

#[test]
fn payload_of_very_many_values_is_none_of_ours_and_is_not_read() {
    let ours = json!({ "rollhook": { "app": "shop-test/api", "uid": "7", "revision": 4 } });
    assert!(is_payload(&ours, &ours) && is_payload(&json!(ours.to_string()), &ours));
    let padded = format!(r#"{{"rollhook":[0{}],{}"#, ",0".repeat(100_000), &ours.to_string()[1..]);
    assert_eq!(serde_json::from_str::<Value>(&padded).unwrap(), ours, "of equal names, the last one counts");
    assert!(!is_payload(&json!(padded), &ours));
}
