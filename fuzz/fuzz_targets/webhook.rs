//! The webhook's body, which may be any other call's too: a request that is exactly what was posted and can be shown,
//! or a refusal that gives nothing away and is the caller's to mend. Never a panic.

#![no_main]

use std::sync::LazyLock;

use http::{HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use rollhook_api::Kind;
use rollhook_core::{
    app::{App, Source},
    delivery::Event,
    deploy::{Actor, Trigger},
    image::ImageRef,
    ledger::{
        admission,
        push::{self, PushRequest},
    },
    request::{Cause, DeployRequest, Field},
    text::json_values,
};
use rollhook_fuzz::{
    assert_clean,
    server::{self, Refused},
};
use serde_json::Value;

/// An app of each source; its webhook may deploy from two places.
static APPS: LazyLock<[App; 2]> = LazyLock::new(|| {
    let app = |source: Value| {
        let app = serde_json::json!({
            "id": {"namespace": "shop-test", "name": "api"}, "uid": "0".repeat(32), "project": "shop",
            "environment": "test", "source": source,
            "target": {"settings": {"kind": "Deployment", "name": "api", "containers": ["api"]}},
            "policy": {"repositories": ["registry.example.com/*", "nginx"]}, "holds": [],
            "locks": {"app": null, "environment": null, "sequence": 0}, "created_at": 0,
        });
        serde_json::from_value(app).expect("an app")
    };
    let git = serde_json::json!({
        "kind": "git", "url": "https://git.example.com/api", "branch": "main", "dockerfile": "Dockerfile",
        "context": ".", "image_repository": "registry.example.com/api",
    });
    [app(serde_json::json!({"kind": "image"})), app(git)]
});

/// The events by which each git host tells of a push.
const EVENTS: [(&str, &str); 5] = [
    ("x-github-event", "push"),
    ("x-gitlab-event", "Push Hook"),
    ("x-gitea-event", "push"),
    ("x-event-key", "repo:push"),
    ("x-event-key", "repo:refs_changed"),
];

/// The type of a registry's event, and the header that some have.
const REGISTRIES: [(&str, &str, &str); 5] = [
    ("application/json", "x-other", ""),
    ("application/cloudevents+json", "x-other", ""),
    ("application/vnd.docker.distribution.events.v1+json", "x-other", ""),
    ("application/json", "x-github-event", "package"),
    ("application/json", "x-gitea-event", "package"),
];

fuzz_target!(|body: &[u8]| {
    match server::deploy_request(body) {
        Ok(request) => {
            is_what_was_posted(body, &request);
            for app in APPS.iter() {
                decided(app, &request);
            }
        }
        Err(refused) => is_the_callers(body, &refused),
    }
    for (name, event) in EVENTS {
        told(name, event, body);
    }
    for (kind, name, event) in REGISTRIES {
        reported(kind, name, event, body);
    }
    if let Some(refused) = server::refused_by_hand(body) {
        assert_clean(&refused.problem.detail, "");
    }
    for refused in server::other_requests(body) {
        let has_many_values = json_values(body) > 1_500;
        assert_eq!(refused.kind, if has_many_values { Kind::BodyTooLarge } else { Kind::Malformed });
        assert_clean(&refused.problem.detail, "");
    }
});

/// A git host's call is read, or refused as its sender's mistake; what comes of it names whole commits, and is clean.
fn told(name: &'static str, event: &'static str, body: &[u8]) {
    let json = [("content-type", "application/json"), (name, event)];
    let headers = json.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    let delivery = match server::delivery(&headers.into_iter().collect(), body) {
        Ok(delivery) => delivery.expect("a git host calls"),
        Err(refused) => {
            let expected = matches!(refused.kind, Kind::Malformed | Kind::InvalidCommit | Kind::BodyTooLarge);
            assert!(expected, "{refused:?}");
            return assert_clean(&refused.problem.detail, "");
        }
    };
    let Event::Push(moved) = &delivery.event else { panic!("{delivery:?}") };
    for head in moved.updates.iter().filter_map(|change| change.head.as_ref()) {
        let sha = head.commit.as_str();
        assert!(matches!(sha.len(), 40 | 64) && sha.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
    }
    for app in APPS.iter() {
        match push::requested(app, &delivery) {
            Ok(PushRequest::Ignore(why)) => assert_clean(&why, &String::from_utf8_lossy(body)),
            Ok(PushRequest::Build(pushed)) => assert!(app.source != Source::Image && pushed.commit.is_sha()),
            Err(refusal) => assert_eq!(server::refusal(refusal).kind, Kind::WrongKind),
        }
    }
    let actor = Actor::git_host(delivery.host, moved.pusher.as_deref());
    assert!(!actor.to_string().contains(char::is_control));
}

/// A registry's event is read, or refused as its sender's mistake; it names repositories and tags that can be.
fn reported(kind: &'static str, name: &'static str, event: &'static str, body: &[u8]) {
    let headers = [("content-type", kind), (name, event)];
    let headers = headers.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    match server::registry_event(&headers.into_iter().collect(), body) {
        Ok(event) => {
            let images = event.map(|event| event.images).unwrap_or_default();
            assert!(images.len() <= 100);
            for image in images {
                let tag = image.tag.map(|tag| format!(":{tag}")).unwrap_or_default();
                let named = format!("registry.example.com/{}{tag}", image.repository);
                assert_eq!(named.parse::<ImageRef>().expect("an image").to_string(), named);
            }
        }
        Err(refused) => {
            assert_eq!(refused.kind, Kind::Malformed);
            assert_clean(&refused.problem.detail, "");
        }
    }
}

fn is_the_callers(body: &[u8], refused: &Refused) {
    let detail = &refused.problem.detail;
    let posted = serde_json::from_slice::<Value>(body);
    match refused.kind {
        Kind::Malformed => {
            assert_clean(detail, "");
            let read = posted.is_ok_and(|posted| posted.is_object());
            assert!(!read || detail.contains("duplicate field"), "it is a JSON object: {detail}");
        }
        Kind::InvalidImage | Kind::InvalidCommit => {
            // None for a number beyond all numbers, in a field that nobody looks at.
            let field = if refused.kind == Kind::InvalidImage { "image" } else { "commit" };
            if let Ok(posted) = posted {
                assert_clean(detail, posted[field].as_str().unwrap_or_default());
            }
        }
        Kind::InvalidField => {
            let named = ["committed_at", "sequence"].into_iter().find(|field| detail.starts_with(field));
            let field = named.expect("another field of the body");
            if let Ok(posted) = posted {
                assert_clean(detail, posted[field].as_str().unwrap_or_default());
            }
        }
        _ => panic!("{refused:?}"),
    }
}

fn is_what_was_posted(body: &[u8], request: &DeployRequest) {
    let image = request.image.as_ref().map(ToString::to_string);
    let commit = request.commit.as_ref().map(ToString::to_string);
    if let Ok(posted) = serde_json::from_slice::<Value>(body) {
        assert_eq!((image.as_deref(), commit.as_deref()), (posted["image"].as_str(), posted["commit"].as_str()));
    }
    if let (Some(sequence), Ok(posted)) = (request.order.sequence(), serde_json::from_slice::<Value>(body)) {
        let digits = posted["sequence"].as_str().map_or_else(|| posted["sequence"].to_string(), str::to_owned);
        assert_eq!(sequence.to_string(), digits);
    }
    // What is accepted is shown as it was given.
    for shown in [image, commit].into_iter().flatten() {
        assert!(!shown.contains(char::is_control) && shown.trim() == shown && !shown.is_empty(), "{shown:?}");
    }
    assert!(request.commit.as_ref().is_none_or(|commit| commit.as_str().chars().count() <= 128));
}

fn decided(app: &App, request: &DeployRequest) {
    let cause = Cause { trigger: Trigger::Webhook, actor: Actor::Ci };
    match (&app.source, admission::deploy(app, request, &cause)) {
        (Source::Image, Ok(decided)) => {
            let image = decided.deploy.image.expect("an image app deploys an image");
            assert!(image.tag().is_some() || image.digest().is_some(), "{image} could be anything");
            let full = image.canonical_repository();
            assert!(full == "docker.io/library/nginx" || full.starts_with("registry.example.com/"), "{full}");
            assert_eq!((Some(image), decided.deploy.commit), (request.image.clone(), request.commit.clone()));
        }
        (Source::Git(_), Ok(decided)) => {
            let commit = decided.deploy.commit.expect("a git app builds a commit");
            let sha = commit.as_str();
            assert!((7..=64).contains(&sha.len()) && sha.bytes().all(|byte| byte.is_ascii_hexdigit()), "{sha}");
            assert_eq!(
                (decided.deploy.image, decided.ignored.contains(&Field::Image)),
                (None, request.image.is_some())
            );
        }
        (Source::Image | Source::Git(_), Err(refusal)) => {
            let problem = server::refusal(refusal).problem;
            assert!(!problem.detail.is_empty() && !problem.detail.contains(char::is_control));
        }
    }
}
