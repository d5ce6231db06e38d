//! Each registry's events in the form that it documents or records, with values of our own. Those of CNCF Distribution in
//! `tests/recorded` were sent by the program itself: docker-registry 2.8.2 of Debian, to which an image, an image
//! without a tag and an index were pushed, from which the first was pulled, and the second deleted.

use http::{HeaderName, HeaderValue};
use proptest::prelude::*;
use rollhook_core::time::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::{Call, Request};

const RECORDED: &str = include_str!("../../tests/recorded/distribution.json");
const JSON: &str = "application/json";
const CLOUD_EVENT: &str = "application/cloudevents+json";
const ENVELOPE: &str = "application/vnd.docker.distribution.events.v1+json";
const DIGEST: &str = "sha256:b62c603a7e5563f6020279847e501616a775b9fc5c9a620a8ffe4d440d68aa4d";

fn headers(kind: &str, event: Option<(&'static str, &str)>) -> HeaderMap {
    let event = event.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
    let kind = (CONTENT_TYPE, HeaderValue::from_str(kind).unwrap());
    [kind].into_iter().chain(event).collect()
}

fn read(kind: &str, body: &Value) -> Option<RegistryEvent> {
    registry_event(&headers(kind, None), body.to_string().as_bytes()).unwrap()
}

/// Returns the registry of an event, and its images as people write them.
fn shown(event: Option<RegistryEvent>) -> (&'static str, Vec<String>) {
    let RegistryEvent { registry, images } = event.expect("an event");
    let image = |PushedImage { repository, tag }| match tag {
        Some(tag) => format!("{repository}:{tag}"),
        None => repository,
    };
    (registry, images.into_iter().map(image).collect())
}

fn pushed(kind: &str, body: &Value) -> (&'static str, Vec<String>) {
    shown(read(kind, body))
}

fn package(header: &'static str, event: &str, body: &Value) -> (&'static str, Vec<String>) {
    shown(registry_event(&headers(JSON, Some((header, event))), body.to_string().as_bytes()).unwrap())
}

/// From the documentation.
fn docker_hub() -> Value {
    json!({
        "callback_url": "https://registry.hub.docker.com/u/shop/api/hook/2141b5bi5i5b02bec211i4eeih0242eg11000a/",
        "push_data": { "pushed_at": 1_732_902_419, "pusher": "shop", "tag": "v1.4.0" },
        "repository": {
            "comment_count": 0, "date_created": 1_417_494_799, "description": "", "dockerfile": "FROM scratch\n",
            "full_description": "The API of the shop.", "is_official": false, "is_private": true, "is_trusted": true,
            "name": "api", "namespace": "shop", "owner": "shop", "repo_name": "shop/api",
            "repo_url": "https://registry.hub.docker.com/u/shop/api/", "star_count": 0, "status": "Active"
        }
    })
}

/// From the documentation, in the default form.
fn harbor(kind: &str) -> Value {
    json!({
        "type": kind, "occur_at": 1_732_902_419, "operator": "robot$ci",
        "event_data": {
            "resources": [
                { "digest": DIGEST, "tag": "v1.4.0", "resource_url": "harbor.example.com/shop/api:v1.4.0" }
            ],
            "repository": {
                "date_created": 1_732_902_419, "name": "api", "namespace": "shop", "repo_full_name": "shop/api",
                "repo_type": "private"
            }
        }
    })
}

/// From Harbor's own description of the form.
fn harbor_cloud_event(kind: &str) -> Value {
    json!({
        "specversion": "1.0", "requestid": "2eedfab8-61d3-4f3c-8ec3-8f82d1ec4c84",
        "id": "4b2f89a6-548d-4c12-9993-a1f5790b97d2", "source": "/projects/1/webhook/policies/3", "type": kind,
        "datacontenttype": "application/json", "time": "2026-11-29T17:46:59Z", "operator": "robot$ci",
        "data": harbor("")["event_data"]
    })
}

/// From the documentation.
fn quay(tags: &Value) -> Value {
    json!({
        "name": "api", "repository": "shop/api", "namespace": "shop", "docker_url": "quay.io/shop/api",
        "homepage": "https://quay.io/repository/shop/api", "updated_tags": tags
    })
}

/// From the documentation.
fn acr(action: &str) -> Value {
    json!({
        "id": "cb8c3971-9adc-488b-bdd8-43cbb4974ff5", "timestamp": "2026-11-29T17:46:59.343145347Z", "action": action,
        "target": {
            "mediaType": "application/vnd.docker.distribution.manifest.v2+json", "size": 524, "digest": DIGEST,
            "length": 524, "repository": "api", "tag": "v1.4.0"
        },
        "request": {
            "id": "3cbb6949-7549-4fa1-86cd-a6d5451dffc7", "host": "shop.azurecr.io", "method": "PUT",
            "useragent": "docker/29.0.0 (linux)"
        }
    })
}

/// From the documentation: `member` is the event's name.
fn github(member: &str, kind: &str, tag: &str) -> Value {
    let version = json!({
        "id": 57_755_791, "version": DIGEST, "name": DIGEST, "description": "", "summary": "", "manifest": "",
        "target_commitish": "main", "metadata": [],
        "container_metadata": {
            "tag": { "name": tag, "digest": DIGEST }, "labels": { "revision": "" },
            "manifest": { "digest": DIGEST, "uri": format!("repositories/Shop/api/manifests/{DIGEST}"), "size": 1782 }
        },
        "package_files": [], "package_url": format!("ghcr.io/Shop/api:{tag}")
    });
    json!({
        "action": "published",
        member: {
            "id": 10_696, "name": "api", "namespace": "Shop", "description": null, "ecosystem": kind,
            "package_type": kind, "owner": { "login": "Shop", "id": 21_031_067, "type": "Organization" },
            "package_version": version,
            "registry": { "name": "GitHub CONTAINER registry", "type": "CONTAINER", "vendor": "GitHub Inc" }
        },
        "repository": { "id": 185_882_436, "full_name": "Shop/monorepo" }, "sender": { "login": "octocat" }
    })
}

/// From the form that Gitea's API describes.
fn gitea(action: &str, kind: &str, version: &str) -> Value {
    json!({
        "action": action, "repository": null, "organization": null, "sender": { "login": "ci" },
        "package": {
            "id": 7, "owner": { "id": 1, "login": "Shop", "username": "Shop" }, "repository": null,
            "creator": { "id": 2, "login": "ci" }, "type": kind, "name": "backend/api", "version": version,
            "html_url": "https://git.example.com/Shop/-/packages/container/backend%2Fapi/main",
            "created_at": "2026-11-29T17:46:59Z"
        }
    })
}

#[test]
fn docker_hub_names_repository_and_tag() {
    assert_eq!(pushed(JSON, &docker_hub()), (DOCKER_HUB, vec!["shop/api:v1.4.0".to_owned()]));
    let mut untagged = docker_hub();
    untagged["push_data"] = json!({ "pushed_at": 1_732_902_419 });
    assert_eq!(pushed("application/json; charset=utf-8", &untagged).1, ["shop/api"]);
}

#[test]
fn harbor_has_two_forms_and_an_artifact_without_a_tag_has_its_digest_there() {
    let image = vec!["shop/api:v1.4.0".to_owned()];
    assert_eq!(pushed(JSON, &harbor("PUSH_ARTIFACT")), (HARBOR, image.clone()));
    assert_eq!(pushed(CLOUD_EVENT, &harbor_cloud_event("harbor.artifact.pushed")), (HARBOR, image));
    for other in ["PULL_ARTIFACT", "DELETE_ARTIFACT", "SCANNING_COMPLETED", "QUOTA_EXCEED", "REPLICATION"] {
        assert_eq!(pushed(JSON, &harbor(other)), (HARBOR, vec![]), "{other}");
    }
    assert_eq!(pushed(CLOUD_EVENT, &harbor_cloud_event("harbor.scan.completed")), (HARBOR, vec![]));
    let mut untagged = harbor("PUSH_ARTIFACT");
    untagged["event_data"]["resources"][0]["tag"] = DIGEST.into();
    assert_eq!(pushed(JSON, &untagged).1, ["shop/api"]);
    assert_eq!(read(CLOUD_EVENT, &harbor_cloud_event("com.example.pushed")), None, "another sender's event");
    assert_eq!(read(JSON, &harbor_cloud_event("harbor.artifact.pushed")), None);
}

#[test]
fn quay_lists_tags_and_its_other_events_have_none() {
    let images = vec!["shop/api:latest".to_owned(), "shop/api:v1.4.0".to_owned()];
    assert_eq!(pushed(JSON, &quay(&json!(["latest", "v1.4.0"]))), (QUAY, images.clone()));
    let older = json!({ "latest": "b750fe79269d2ec9a3c593ef05b4332b", "v1.4.0": "b750fe79269d2ec9a3c593ef05b4332b" });
    assert_eq!(pushed(JSON, &quay(&older)), (QUAY, images));
    let mut build = quay(&Value::Null);
    build["build_id"] = "296ec063-5f86-4706-a469-f0a400bf9df2".into();
    build["docker_tags"] = json!(["main"]);
    assert_eq!(pushed(JSON, &build), (QUAY, vec![]));
}

#[test]
fn azure_sends_one_notification_and_tests_with_a_ping() {
    assert_eq!(pushed(JSON, &acr("push")), (ACR, vec!["api:v1.4.0".to_owned()]));
    for other in ["delete", "quarantine", "chart_push"] {
        assert_eq!(pushed(JSON, &acr(other)), (ACR, vec![]), "{other}");
    }
    let mut ping = acr("ping");
    ping["target"] = Value::Null;
    ping["request"] = Value::Null;
    assert_eq!(pushed(JSON, &ping), (ACR, vec![]));
}

#[test]
fn distribution_notifies_of_layers_and_pulls_too_as_recorded() {
    let recorded: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
    let images: Vec<_> = recorded.iter().flat_map(|envelope| pushed(ENVELOPE, envelope).1).collect();
    assert_eq!(images, ["shop/api:v1.4.0", "shop/api", "shop/api:main"]);
    let events: Vec<_> = recorded.iter().flat_map(|envelope| envelope["events"].as_array().unwrap()).collect();
    assert_eq!(pushed(ENVELOPE, &json!({ "events": events })), (DISTRIBUTION, images), "in one envelope");
    let documented = "Application/vnd.docker.distribution.events.v2+json";
    assert_eq!(pushed(documented, &recorded[1]).1, ["shop/api:v1.4.0"]);
    assert_eq!(pushed(ENVELOPE, &json!({})), (DISTRIBUTION, vec![]));
    assert_eq!(read(JSON, &recorded[1]), None, "it is known by its type");
}

#[test]
fn github_reports_a_package_twice_and_an_image_without_a_tag_too() {
    for event in ["package", "registry_package"] {
        let read = |body: &Value| package("x-github-event", event, body);
        assert_eq!(read(&github(event, "CONTAINER", "v1.4.0")), (GHCR, vec!["shop/api:v1.4.0".to_owned()]));
        assert_eq!(read(&github(event, "container", "")), (GHCR, vec!["shop/api".to_owned()]));
        assert_eq!(read(&github(event, "npm", "v1.4.0")), (GHCR, vec![]));
        let mut deleted = github(event, "CONTAINER", "v1.4.0");
        deleted["action"] = "deleted".into();
        assert_eq!(read(&deleted), (GHCR, vec![]));
        let mut named = github(event, "CONTAINER", "v1.4.0");
        named[event]["package_version"] = json!({ "container_metadata": null });
        assert_eq!(read(&named), (GHCR, vec!["shop/api".to_owned()]));
        named[event]["package_version"] = Value::Null;
        assert_eq!(read(&named), (GHCR, vec!["shop/api".to_owned()]));
    }
    let push = headers(JSON, Some(("x-github-event", "push")));
    assert_eq!(registry_event(&push, b"{").unwrap(), None, "the event of a git host");
}

#[test]
fn gitea_and_forgejo_report_packages() {
    for (header, registry) in [("x-gitea-event", GITEA), ("x-forgejo-event", FORGEJO)] {
        let read = |body: &Value| package(header, "package", body);
        assert_eq!(read(&gitea("created", "container", "main")), (registry, vec!["shop/backend/api:main".to_owned()]));
        assert_eq!(read(&gitea("created", "container", DIGEST)), (registry, vec!["shop/backend/api".to_owned()]));
        assert_eq!(read(&gitea("created", "npm", "1.0.0")), (registry, vec![]));
        assert_eq!(read(&gitea("deleted", "container", "main")), (registry, vec![]));
    }
}

#[test]
fn call_of_ci_is_no_event_whatever_else_it_says() {
    for event in [docker_hub(), harbor("PUSH_ARTIFACT"), quay(&json!(["main"])), acr("push")] {
        for member in ["image", "commit"] {
            let mut body = event.clone();
            body[member] = "registry.example.com/api:v2".into();
            let (headers, body) = (headers(JSON, None), body.to_string());
            let call = Call::new(&headers, body.as_bytes(), Timestamp::from_millis(0));
            assert!(matches!(call.request().unwrap(), (Request::Deploy(_), None)), "{body}");
        }
    }
    for text in ["", "{", "[]", "null", "{}", r#"{"action":"push"}"#, r#"{"repository":{},"type":"PUSH_ARTIFACT"}"#] {
        assert_eq!(registry_event(&headers(JSON, None), text.as_bytes()).unwrap(), None, "{text}");
    }
    let text = headers("text/plain", None);
    assert_eq!(registry_event(&text, docker_hub().to_string().as_bytes()).unwrap(), None);
}

#[test]
fn event_has_no_key_and_says_whether_its_registry_signs() {
    for (event, is_unsigned) in
        [(docker_hub(), true), (quay(&json!(["main"])), true), (harbor("PUSH_ARTIFACT"), false), (acr("push"), false)]
    {
        let mut headers = headers(JSON, None);
        headers.insert("idempotency-key", HeaderValue::from_static("run-7"));
        let body = event.to_string();
        let call = Call::new(&headers, body.as_bytes(), Timestamp::from_millis(0));
        let (Request::RegistryEvent(event), None) = call.request().unwrap() else { panic!("an event without a key") };
        assert_eq!(event.is_unsigned(), is_unsigned, "{}", event.registry);
    }
}

#[test]
fn text_that_is_no_repository_or_tag_is_left_out() {
    let named = |repository: Value| {
        let mut body = docker_hub();
        body["repository"]["repo_name"] = repository;
        pushed(JSON, &body).1
    };
    let long = "a".repeat(PATH_MAX + 1);
    for bad in ["", "/", "a//b", "../etc", "A/b", "a b", "a:tag", "a:tag@x", "a\n", "é", &long, "a/../b"] {
        assert!(named(bad.into()).is_empty(), "{bad}");
    }
    for bad in [Value::Null, json!(7), json!(["a"]), json!({ "a": 1 })] {
        assert!(named(bad.clone()).is_empty(), "{bad}");
    }
    assert_eq!(named("a".repeat(PATH_MAX).into()).len(), 1);
    for bad in [json!(""), json!("-a"), json!("a/b"), json!("a".repeat(129)), json!(7), Value::Null] {
        let mut body = docker_hub();
        body["push_data"]["tag"] = bad.clone();
        assert_eq!(pushed(JSON, &body).1, ["shop/api"], "{bad}");
    }
}

#[test]
fn images_are_bounded() {
    let tags: Vec<_> = (0..1_000).map(|index| format!("v{index}")).collect();
    assert_eq!(pushed(JSON, &quay(&json!(tags))).1.len(), IMAGES_MAX);
    let object: Value = tags.iter().map(|tag| (tag.clone(), json!(""))).collect::<serde_json::Map<_, _>>().into();
    assert_eq!(pushed(JSON, &quay(&object)).1.len(), IMAGES_MAX);
    let recorded: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
    let events = vec![recorded[1]["events"][0].clone(); 1_000];
    assert_eq!(pushed(ENVELOPE, &json!({ "events": events })).1.len(), IMAGES_MAX);
    let mut body = harbor("PUSH_ARTIFACT");
    body["event_data"]["resources"] = vec![body["event_data"]["resources"][0].clone(); 1_000].into();
    assert_eq!(pushed(JSON, &body).1.len(), IMAGES_MAX);
}

#[test]
fn body_of_a_type_or_header_that_cannot_be_read_is_its_senders_mistake() {
    for body in ["", "{", "[]", r#"{"events":{}}"#, r#"{"events":["push"]}"#] {
        assert!(registry_event(&headers(ENVELOPE, None), body.as_bytes()).is_err(), "{body}");
    }
    let package = headers(JSON, Some(("x-github-event", "package")));
    for body in ["", "{", "[]", r#"{"package":7}"#, r#"{"package":{},"registry_package":{}}"#] {
        assert!(registry_event(&package, body.as_bytes()).is_err(), "{body}");
    }
    assert_eq!(shown(registry_event(&package, b"{}").unwrap()), (GHCR, vec![]));
}

/// All kinds of calls that may be an event.
fn kinds() -> Vec<HeaderMap> {
    let packages = [("x-github-event", "package"), ("x-gitea-event", "package"), ("x-forgejo-event", "package")];
    let plain = [JSON, CLOUD_EVENT, ENVELOPE].map(|kind| headers(kind, None));
    packages.map(|event| headers(JSON, Some(event))).into_iter().chain(plain).collect()
}

fn samples() -> Vec<Value> {
    let mut recorded: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
    recorded.extend([
        docker_hub(),
        harbor("PUSH_ARTIFACT"),
        harbor_cloud_event("harbor.artifact.pushed"),
        quay(&json!(["main"])),
        acr("push"),
        github("package", "CONTAINER", "main"),
        gitea("created", "container", "main"),
    ]);
    recorded
}

/// Replaces the value at the place that is reached after so many others, from the outside in.
fn replace(value: &mut Value, place: &mut usize, with: &Value) {
    if *place == 0 {
        *value = with.clone();
    }
    *place = place.wrapping_sub(1);
    match value {
        Value::Object(members) => members.values_mut().for_each(|member| replace(member, place, with)),
        Value::Array(elements) => elements.iter_mut().for_each(|element| replace(element, place, with)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_sound(body: &[u8]) {
    for headers in kinds() {
        let Ok(Some(event)) = registry_event(&headers, body) else { continue };
        assert!(event.images.len() <= IMAGES_MAX);
        for PushedImage { repository, .. } in event.images {
            let image: ImageRef = format!("registry.example.com/{repository}").parse().unwrap();
            assert!(repository.len() <= PATH_MAX && image.tag().is_none() && image.digest().is_none());
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        is_sound(&body);
    }

    #[test]
    fn event_with_any_value_at_any_place_is_read_without_a_panic(
        which in 0_usize..13,
        place in 0_usize..60,
        with in prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,8}".prop_map(Value::from),
            "[a-z/:@.]{0,300}".prop_map(Value::from),
            prop::collection::vec("[a-z]{0,2}", 0..3).prop_map(Value::from),
            Just(json!({ "repository": "a", "tag": {}, "name": [] })),
        ],
    ) {
        let mut body = samples().swap_remove(which);
        replace(&mut body, &mut place.clone(), &with);
        is_sound(body.to_string().as_bytes());
    }

    #[test]
    fn event_that_breaks_off_or_was_garbled_is_read_without_a_panic(
        which in 0_usize..13,
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut body = samples().swap_remove(which).to_string().into_bytes();
        let at = at.index(body.len());
        is_sound(&body[..at]);
        body[at] = byte;
        is_sound(&body);
    }
}
