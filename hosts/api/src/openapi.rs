//! The API described as OpenAPI 3.1, for clients that generate their code and for people who look things up.

pub(crate) mod described;
pub(crate) mod schemas;

use serde_json::{Map, Value, json};

use rollhook_core::{app::LABEL_MAX, request::KEY_MAX};

use self::described::{Described, endpoints};
use crate::{
    Operation,
    endpoint::{Credentials, open},
    operations::{ChangeConfiguration, ListActivity, ReadBuildLog, ReadRunLog, ReportDelivery},
    problem::Kind,
};

/// The most entries of a part of a list.
pub const PAGE_MAX: usize = 200;
/// The largest body of a call in bytes.
pub const BODY_MAX: usize = 1024 * 1024;

/// Returns the description.
pub fn document() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "rollhook",
            "version": env!("CARGO_PKG_VERSION"),
            "description": format!(
                "A deployment webhook service: CI builds and tests, rollhook deploys. A body is at most {BODY_MAX} bytes of \
                 UTF-8 JSON, without a Content-Encoding."
            ),
            "license": { "name": "MIT OR Apache-2.0" }
        },
        "security": [{ "apiToken": [] }],
        "paths": paths(),
        "components": {
            "securitySchemes": security_schemes(),
            "schemas": described::schemas(),
            "parameters": parameters(),
            "responses": { "Problem": problem() }
        }
    })
}

fn security_schemes() -> Value {
    let header =
        |name: &str, what: &str| json!({ "type": "apiKey", "in": "header", "name": name, "description": what });
    json!({
        "apiToken": { "type": "http", "scheme": "bearer", "description": "An API token, whose role on the app must allow the call." },
        "idToken": {
            "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
            "description": "An id_token of a pipeline that the app trusts."
        },
        "serviceToken": header("X-Service-Token", "The app's webhook token."),
        "bearerServiceToken": {
            "type": "http", "scheme": "bearer", "description": "The app's webhook token, as registries can send it."
        },
        "signature": header(
            "X-Hub-Signature-256",
            "sha256=<hex>: HMAC-SHA256 of the raw body, with the app's webhook token as the key."
        ),
        "gitlabToken": header("X-Gitlab-Token", "The app's webhook token, as GitLab sends it."),
        "standardWebhooks": header(
            "webhook-signature",
            "v1,<base64>: Standard Webhooks over webhook-id, webhook-timestamp (within 5 minutes) and the raw body, with \
             the webhook's signing_key, as GitLab sends it."
        ),
        "giteaSignature": header(
            "X-Gitea-Signature",
            "<hex>: HMAC-SHA256 of the raw body, with the app's webhook token as the key; X-Forgejo-Signature likewise."
        ),
        "bitbucketSignature": header(
            "X-Hub-Signature",
            "sha256=<hex>: HMAC-SHA256 of the raw body, with the app's webhook token as the key. What begins with sha1= \
             is ignored."
        )
    })
}

fn paths() -> Value {
    let mut paths = Map::new();
    for described in endpoints() {
        let endpoint = described.endpoint;
        let item = paths.entry(endpoint.path).or_insert_with(|| located(endpoint.path));
        item[endpoint.method.to_lowercase()] = operation(&described);
    }
    paths.into()
}

/// Returns the path's item with the parameters that are in the path.
fn located(path: &str) -> Value {
    let names = path.split(['{', '}']).skip(1).step_by(2);
    let parameters: Vec<_> = names.map(|name| reference("parameters", name)).collect();
    if parameters.is_empty() { json!({}) } else { json!({ "parameters": parameters }) }
}

fn operation(described: &Described) -> Value {
    let endpoint = described.endpoint;
    let mut operation = match &described.answer {
        Some(schema) => call(endpoint.summary, endpoint.status, schema),
        None if endpoint.status == 204 => empty(endpoint.summary),
        None => open(endpoint.summary),
    };
    if let Some(schema) = &described.body {
        operation = sends(operation, schema, !endpoint.has_optional_body);
    }
    for parameter in &described.query {
        operation = with(operation, parameter.clone());
    }
    if endpoint.key.is_some() {
        operation = with(operation, reference("parameters", "idempotencyKey"));
    }
    if endpoint.waits {
        operation = waits(operation, endpoint.status);
    }
    match endpoint.credentials {
        Credentials::ApiToken => {}
        Credentials::Probe | Credentials::None | Credentials::LoginCode => operation["security"] = json!([]),
        Credentials::ApiTokenOrServiceToken => {
            operation["security"] = json!([{ "apiToken": [] }, { "serviceToken": [] }]);
        }
        Credentials::Webhook => operation = webhook(operation),
    }
    match endpoint {
        open::EVENTS => events(operation),
        ChangeConfiguration::ENDPOINT => config(operation),
        ReadBuildLog::ENDPOINT | ReadRunLog::ENDPOINT => log(operation),
        ListActivity::ENDPOINT | ReportDelivery::ENDPOINT => csv(operation),
        _ => operation,
    }
}

fn events(operation: Value) -> Value {
    let event = json!({
        "type": "object",
        "description": "One event of the stream.",
        "properties": {
            "event": { "const": "status" },
            "id": { "type": "string", "description": "The revision and the step, joined by a hyphen." },
            "data": { "type": "string", "description": "The entry as JSON: a Deploy." }
        }
    });
    let mut events = with(operation, reference("parameters", "lastEventId"));
    events["responses"]["200"]["content"] = json!({ "text/event-stream": { "schema": event } });
    events["responses"]["204"] = json!({ "description": "The deploy has ended, and the caller has seen its end." });
    events
}

fn config(mut operation: Value) -> Value {
    let content = |schema: Value| json!({ "application/json": { "schema": schema } });
    let deploy = || reference("schemas", "DeployAnswer");
    operation["description"] =
        "The change is a deploy of the image that runs, unless it is to wait for the next deploy, \
        nothing has been deployed yet, or the app has just this configuration already. No answer has a value."
            .into();
    operation["responses"]["202"]["content"] = content(deploy());
    operation["responses"]["200"] = json!({
        "description": "The deploy was waited for, and succeeded; or nothing is deployed now.",
        "content": content(json!({ "oneOf": [deploy(), reference("schemas", "ConfigKept")] }))
    });
    operation
}

fn log(mut log: Value) -> Value {
    log["responses"]["200"]["content"] = json!({ "text/plain": { "schema": { "type": "string" } } });
    log
}

fn csv(mut operation: Value) -> Value {
    operation["responses"]["200"]["content"]["text/csv"] = json!({ "schema": { "type": "string" } });
    operation["description"] = "With `Accept: text/csv`, the answer is a table for spreadsheets.".into();
    operation
}

fn webhook(mut operation: Value) -> Value {
    operation["description"] = "CI posts an image or a commit. GitHub, GitLab, Gitea, Forgejo and Bitbucket send their \
        own events, recognised by X-GitHub-Event, X-Gitlab-Event, X-Gitea-Event, X-Forgejo-Event or X-Event-Key: a push to the \
        branch of a git app builds and deploys the commit that it brought. Registries send their events: an app that follows \
        its repository reads it next. Each credential that is present must be valid."
        .into();
    let signatures = ["signature", "standardWebhooks", "giteaSignature", "bitbucketSignature"];
    let schemes = ["serviceToken", "bearerServiceToken", "gitlabToken", "idToken"].into_iter().chain(signatures);
    operation["security"] = schemes.map(|scheme| json!({ scheme: [] })).collect();
    operation["responses"]["200"] = json!({
        "description": "The deploy was waited for, and succeeded; or the event of a git host or a registry deploys nothing.",
        "content": { "application/json": { "schema": {
            "oneOf": [reference("schemas", "DeployAnswer"), reference("schemas", "PushAnswer")]
        } } }
    });
    let accepted = &mut operation["responses"]["202"];
    accepted["description"] =
        "The deploy is accepted: it is stored, and will end; or a registry sent an event that nothing proves.".into();
    accepted["content"]["application/json"]["schema"] =
        json!({ "oneOf": [reference("schemas", "DeployAnswer"), reference("schemas", "HintAnswer")] });
    let operation = with(operation, reference("parameters", "webhookId"));
    with(operation, reference("parameters", "githubDelivery"))
}

fn open(summary: &str) -> Value {
    json!({ "summary": summary, "responses": { "200": { "description": "Done." }, "default": failure() } })
}

fn call(summary: &str, status: u16, schema: &str) -> Value {
    let content = json!({ "application/json": { "schema": reference("schemas", schema) } });
    let description = if status == 202 { "The deploy is accepted: it is stored, and will end." } else { "Done." };
    json!({
        "summary": summary,
        "responses": { status.to_string(): { "description": description, "content": content }, "default": failure() }
    })
}

fn empty(summary: &str) -> Value {
    json!({ "summary": summary, "responses": { "204": { "description": "Done." }, "default": failure() } })
}

fn sends(mut operation: Value, schema: &str, is_required: bool) -> Value {
    let content = json!({ "application/json": { "schema": reference("schemas", schema) } });
    operation["requestBody"] = json!({ "required": is_required, "content": content });
    operation
}

fn waits(operation: Value, status: u16) -> Value {
    let mut operation = with(operation, reference("parameters", "prefer"));
    if status != 202 {
        return operation;
    }
    let content = operation["responses"]["202"]["content"].clone();
    operation["responses"]["200"] =
        json!({ "description": "The deploy was waited for, and succeeded.", "content": content });
    let failed = json!({ "application/problem+json": { "schema": reference("schemas", "Problem") } });
    operation["responses"]["424"] =
        json!({ "description": "The deploy was waited for, and did not succeed.", "content": failed });
    operation
}

fn with(mut operation: Value, parameter: Value) -> Value {
    let known = operation["parameters"].as_array().cloned().unwrap_or_default();
    operation["parameters"] = known.into_iter().chain([parameter]).collect();
    operation
}

fn reference(part: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{part}/{name}") })
}

fn failure() -> Value {
    reference("responses", "Problem")
}

fn problem() -> Value {
    let kinds: Vec<String> = Kind::ALL
        .iter()
        .map(|kind| {
            let (slug, status, title) = kind.parts();
            format!("- `/problems/{slug}` ({status}): {title}")
        })
        .collect();
    json!({
        "description": format!("A problem; a client can act on its `type` alone.\n\n{}", kinds.join("\n")),
        "content": { "application/problem+json": { "schema": reference("schemas", "Problem") } }
    })
}

fn parameters() -> Value {
    let parameter = |place: &str, name: &str, schema: Value, what: &str| json!({ "in": place, "name": name, "required": place == "path", "schema": schema, "description": what });
    let label = || json!({ "type": "string", "pattern": schemas::LABEL, "maxLength": LABEL_MAX });
    let such_as = |example: &str| json!({ "type": "string", "pattern": schemas::LABEL, "maxLength": LABEL_MAX, "examples": [example] });
    let number = |least: u64| json!({ "type": "integer", "minimum": least });
    let key = || json!({ "type": "string", "minLength": 1, "maxLength": KEY_MAX, "pattern": "^[ -~]+$" });
    let text = || json!({ "type": "string" });
    json!({
        "namespace": parameter("path", "namespace", such_as("shop-test"), "Project and environment, joined by a hyphen."),
        "app": parameter("path", "app", such_as("api"), "The app's name."),
        "project": parameter("path", "project", such_as("shop"), "The project."),
        "environment": parameter("path", "environment", such_as("test"), "The project's environment."),
        "name": parameter("path", "name", label(), "The API token's name."),
        "receiver": parameter("path", "receiver", label(), "The receiver's name."),
        "instance": parameter("path", "instance", json!({ "type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,320}$" }), "The instance's name or id."),
        "session": parameter("path", "session", json!({ "type": "string", "pattern": "^[0-9a-f]{16}$" }), "The session's id."),
        "trust": parameter("path", "trust", json!({ "type": "string", "pattern": "^[0-9a-f]{16}$" }), "The trust's id."),
        "revision": parameter("path", "revision", number(1), "The entry's number."),
        "check": parameter("path", "check", label(), "The check's name."),
        "run": parameter("path", "run", number(1), "The run's number."),
        "prefer": parameter("header", "Prefer", text(), "`wait=N`: answer once it has ended, after N seconds (at most 50) in any case."),
        "idempotencyKey": parameter("header", "Idempotency-Key", key(), "Repeating the call with this key does not repeat its effect for 24 hours; of a command by hand, as long as its run is remembered."),
        "webhookId": parameter("header", "webhook-id", key(), "Taken for the key where there is no Idempotency-Key; kept for 7 days."),
        "githubDelivery": parameter("header", "X-GitHub-Delivery", key(), "Taken for the key where there is no other; kept for 7 days."),
        "lastEventId": parameter("header", "Last-Event-ID", text(), "The id of the event that was seen last.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stated_bounds_are_those_that_are_enforced() {
        use rollhook_core::{
            app::{AppName, Namespace, Project},
            deploy::Commit,
            request::{IdempotencyKey, KeyHeader},
            source::{Branch, RelativePath},
        };
        let document = document();
        let enforced = |place: &str, accepts: &dyn Fn(&str) -> bool| {
            let longest = document.pointer(&format!("/components/{place}/maxLength")).and_then(Value::as_u64);
            let longest = usize::try_from(longest.unwrap_or_else(|| panic!("{place} states no bound"))).unwrap();
            assert!(accepts(&"a".repeat(longest)) && !accepts(&"a".repeat(longest + 1)), "{place}");
        };
        enforced("schemas/CreateApp/properties/project", &|text| text.parse::<Project>().is_ok());
        enforced("schemas/CreateApp/properties/app", &|text| text.parse::<AppName>().is_ok());
        enforced("schemas/DeployPost/properties/commit", &|text| text.parse::<Commit>().is_ok());
        enforced("schemas/Rebuild/properties/commit", &|text| text.parse::<Commit>().is_ok());
        for whole in ["GitChoice", "SourcePatch"] {
            enforced(&format!("schemas/{whole}/properties/branch"), &|text| text.parse::<Branch>().is_ok());
            enforced(&format!("schemas/{whole}/properties/context"), &|text| text.parse::<RelativePath>().is_ok());
        }
        enforced("parameters/namespace/schema", &|text| text.parse::<Namespace>().is_ok());
        for name in ["idempotencyKey", "webhookId", "githubDelivery"] {
            enforced(&format!("parameters/{name}/schema"), &|text| {
                IdempotencyKey::new(KeyHeader::IdempotencyKey, text, [0; 32]).is_ok()
            });
        }
    }

    #[test]
    fn stated_patterns_and_ranges_are_those_that_are_enforced() {
        use rollhook_core::{
            app::{AppUrl, KEEP, ReleaseGroup},
            deploy::Commit,
            image::{ImageRef, Repositories, TAG_MAX},
            source::ImageRepository,
        };
        let document = document();
        let enforced = |place: &str, accepts: &dyn Fn(&str) -> bool, good: &[&str], bad: &[&str]| {
            let pattern = document.pointer(&format!("/components/schemas/{place}/pattern")).and_then(Value::as_str);
            let pattern = regex::Regex::new(pattern.unwrap_or_else(|| panic!("{place} states no pattern"))).unwrap();
            for (texts, is_good) in [(good, true), (bad, false)] {
                for text in texts {
                    assert_eq!((accepts(text), pattern.is_match(text)), (is_good, is_good), "{place}: {text}");
                }
            }
        };
        let (hex, longest) = ("a".repeat(64), format!("a:{}", "t".repeat(TAG_MAX)));
        let too_long = format!("{longest}t");
        let repositories =
            ["nginx", "shop/api", "r.example.com/api", "localhost:5000/a/b__c", "[::1]:80/a.b---c", "R:1/a"];
        let no_repositories = ["", "API", "R/a", "a/", "/a", "a//b", "a_/b", "-a", "a b", "r.example.com:x/a", "a___b"];
        let pinned = format!("r.example.com/api:v1@sha256:{hex}");
        let images = [&repositories[..], &["nginx:1.27", &pinned, &longest]].concat();
        let no_images = [&no_repositories[..], &["a:", "a:-b", &too_long, &pinned[1..80], "a@sha256:1"]].concat();
        for place in ["DeployPost/properties/image", "CreateApp/properties/image"] {
            enforced(place, &|text| text.parse::<ImageRef>().is_ok(), &images, &no_images);
        }
        for place in ["GitChoice/properties/image_repository", "SourcePatch/properties/image_repository"] {
            let no_repositories = [&no_repositories[..], &["nginx:1.27"]].concat();
            enforced(place, &|text| text.parse::<ImageRepository>().is_ok(), &repositories, &no_repositories);
        }
        let entries = [&repositories[..], &["r.example.com/*", "shop/*", "[::1]:80/*"]].concat();
        let no_entries = [&no_repositories[..], &["*", "a/*/b", "nginx:1.27"]].concat();
        let allows = |text: &str| Repositories::try_from(vec![text.to_owned()]).is_ok();
        enforced("PolicyPatch/properties/repositories/items", &allows, &entries, &no_entries);
        for place in ["DeployPost/properties/commit", "Rebuild/properties/commit"] {
            enforced(place, &|text| text.parse::<Commit>().is_ok(), &["a", "def456a", "release 7"], &["", " a", "a "]);
        }
        let is_duration = |text: &str| crate::duration::parse(text).is_some();
        for name in ["settle", "patience", "ready_within", "rollout_deadline", "build_deadline", "release_deadline"] {
            let place = format!("PolicyPatch/properties/{name}");
            enforced(&place, &is_duration, &["0s", "500ms", "10m", "168h"], &["", "10", "1.5s", "1d", "1m30s"]);
        }
        let is_interval = |text: &str| text == "off" || is_duration(text);
        enforced("PolicyPatch/properties/poll", &is_interval, &["off", "5m"], &["", "on", "5", "off5m"]);
        let is_group = |text: &str| text.is_empty() || text.parse::<ReleaseGroup>().is_ok();
        let is_url = |text: &str| text.is_empty() || text.parse::<AppUrl>().is_ok();
        let urls = ["", "https://shop.example.com", "http://10.0.0.7:8080/a?b=c#d"];
        enforced(
            "PolicyPatch/properties/url",
            &is_url,
            &urls,
            &["shop.example.com", "https://a@b", "https://a b", "ftp://a"],
        );
        enforced("PolicyPatch/properties/release_group", &is_group, &["", "orders", "a-1"], &["A", "-a", "a-", "a b"]);
        let keep = &document["components"]["schemas"]["PolicyPatch"]["properties"]["keep"];
        assert_eq!((&keep["minimum"], &keep["maximum"]), (&json!(KEEP.start()), &json!(KEEP.end())));
    }

    #[test]
    fn every_reference_resolves() {
        fn walk(value: &Value, document: &Value) {
            match value {
                Value::Object(members) => {
                    if let Some(Value::String(target)) = members.get("$ref") {
                        let pointer = target.strip_prefix('#').unwrap();
                        assert!(document.pointer(pointer).is_some(), "{target}");
                    }
                    members.values().for_each(|value| walk(value, document));
                }
                Value::Array(items) => items.iter().for_each(|value| walk(value, document)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        let document = document();
        walk(&document, &document);
    }
}
