use http::HeaderMap;
use rollhook_core::deploy::{Actor, State};

use super::*;
use crate::samples;

fn told(content: Content) -> String {
    text(&samples::notification(content))
}

#[test]
fn message_says_what_happened_and_why() {
    let page = "https://rollhook.example.com/apps/shop-test/api/deploys";
    let details = |tag: &str| format!("`r.example.com/api:{tag}` (commit def456abc0def456abc0def456abc0def456abc0)");
    let accepted = format!(":inbox_tray: <{page}/4|shop-test/api #4> was accepted: {} by ci", details("v4"));
    assert_eq!(told(samples::accepted()), accepted);
    let failed = format!(":x: <{page}/4|shop-test/api #4> *failed*: {} by ci\nImagePullBackOff", details("v4"));
    assert_eq!(told(samples::failed()), failed);
    let of_several = told(samples::failed_of_several());
    let states =
        "\nCrashLoopBackOff\n• Deployment/worker: failed\n• Deployment/web: complete\n• CronJob/nightly: not touched";
    assert!(of_several.ends_with(states), "{of_several}");
    let noted = told(samples::of(samples::deploy(4, State::Succeeded { note: Some("hunter2".to_owned()) })));
    assert!(noted.contains("succeeded") && !noted.contains("hunter2"), "{noted}");
    let put_right = told(samples::put_right());
    assert!(put_right.contains("has put a failed rollout right") && !put_right.contains("hunter2"), "{put_right}");
}

#[test]
fn text_from_outside_mentions_nobody() {
    let mut deploy = samples::deploy(4, State::Queued);
    deploy.actor = Actor::person("<!channel> & co");
    let text = told(samples::of(deploy));
    assert!(text.contains("&lt;!channel&gt; &amp; co"), "{text}");
}

#[test]
fn answers_are_told_apart_by_their_content() {
    let answer = |body: &str| {
        let (host, body) = ("slack.com".to_owned(), body.as_bytes().to_vec());
        outcome(&Answer { host, may_be_repeated: true, status: StatusCode::OK, headers: HeaderMap::new(), body })
    };
    let sent = Message::new("C0123", "1503435956.000247").unwrap();
    let ok = r#"{"ok":true,"channel":"C0123","ts":"1503435956.000247","message":{"text":"x"}}"#;
    assert_eq!(Message::of_reference(&sent.reference()), Some(sent.clone()));
    assert_eq!(answer(ok), Ok(Outcome::Sent(sent)));
    assert_eq!(answer(r#"{"ok":false,"error":"message_not_found"}"#), Ok(Outcome::Gone));
    for error in ["invalid_auth", "channel_not_found", "not_in_channel", "ratelimited"] {
        let failed = answer(&format!(r#"{{"ok":false,"error":"{error}"}}"#)).unwrap_err();
        assert!(failed.message == format!("slack.com answered {error}") && !failed.is_final, "{failed:?}");
    }
    let many = ok.replace(r#"{"text":"x"}"#, &format!("[0{}]", ",0".repeat(100_000)));
    assert!(answer(&many).unwrap_err().message.contains("none of Slack's"), "it is not read");
    for foreign in ["<html>", "{}", r#"{"ok":true}"#, r#"{"ok":true,"channel":"a b","ts":"1"}"#] {
        assert!(answer(foreign).unwrap_err().message.contains("none of Slack's"), "{foreign}");
    }
}
