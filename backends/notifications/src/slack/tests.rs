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
fn commit_and_version_link_to_the_addresses_of_the_labels() {
    let found = samples::found("4f1a77b");
    let source = "<https://git.example.com/shop/api|4f1a77b>";
    let version = "version <https://api.example.com/?a=1&amp;b=%7C|1.2>";
    let text = told(samples::of(found.clone()));
    assert!(text.contains(&format!(" (commit {source} as the image says, {version}) by auto")), "{text}");
    let posted = |commit: &str| told(samples::of(Deploy { commit: commit.parse().ok(), ..found.clone() }));
    let same = posted("4f1a77b");
    assert!(same.contains(&format!(" (commit {source}, {version})")), "{same}");
    let other = posted("abc123f");
    assert!(other.contains(&format!(" (commit abc123f, {version})")), "{other}");
}

#[test]
fn labels_that_are_no_version_and_no_address_are_left_out() {
    let labels = ImageLabels::default().with(|labels| {
        labels.version = Some("<!channel>\n1".to_owned());
        labels.source = Some("git@git.example.com:shop/api".to_owned());
        labels.url = Some("javascript:alert(1)".to_owned());
    });
    let text = told(samples::of(Deploy { commit: "abc123f".parse().ok(), ..samples::labelled(labels) }));
    assert!(text.contains(" (commit abc123f) by auto"), "{text}");
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
