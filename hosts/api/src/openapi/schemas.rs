//! The types of the API as JSON Schema.

use serde_json::{Map, Value, json};

/// Every type by its name.
pub(super) fn schemas() -> Value {
    let mut schemas = Map::new();
    let mut add = |name: &str, schema: Value| schemas.insert(name.to_owned(), schema);
    add("Problem", problem());
    add("CreateApp", create_app());
    add("AppPatch", object(&[], json!({ "policy": policy(), "source": object(&[], source()) })));
    add("Policy", policy());
    add("App", app());
    add("AppList", object(&["apps"], json!({ "apps": list(to("App")), "next": text() })));
    add(
        "Registered",
        object(&["app", "adopted"], json!({ "app": to("App"), "deploy": to("Deploy"), "adopted": flag() })),
    );
    add("Webhook", webhook());
    add("DeployPost", object(&[], json!({ "image": text(), "commit": text() })));
    add("DeployAnswer", answer(json!({})));
    add("PushAnswer", nothing_done());
    add("Deploy", deploy());
    add("DeployList", object(&["deploys"], json!({ "deploys": list(to("Deploy")), "next": number() })));
    add("Rebuild", object(&[], json!({ "commit": text() })));
    add("Rollback", object(&[], json!({ "revision": number(), "if_current": number() })));
    let to =
        object(&["revision", "image", "commit"], json!({ "revision": number(), "image": maybe(), "commit": maybe() }));
    add("RollbackAnswer", answer(json!({ "to": to, "note": text() })));
    let from = object(&["project", "environment"], json!({ "project": text(), "environment": text() }));
    add("Promote", object(&["from"], json!({ "from": from })));
    Value::Object(schemas)
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties })
}

fn to(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn maybe() -> Value {
    json!({ "type": ["string", "null"] })
}

fn flag() -> Value {
    json!({ "type": "boolean" })
}

fn number() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

fn time() -> Value {
    json!({ "type": "string", "format": "date-time" })
}

fn one_of(words: &[&str]) -> Value {
    json!({ "type": "string", "enum": words })
}

fn trigger() -> Value {
    one_of(&["webhook", "manual", "promotion", "rollback", "git"])
}

fn status() -> Value {
    one_of(&["queued", "building", "rolling_out", "succeeded", "failed", "superseded", "cancelled"])
}

fn problem() -> Value {
    let members = json!({
        "type": text(), "title": text(), "status": number(), "detail": text(), "request_id": text()
    });
    object(&["type", "title", "status", "detail"], members)
}

fn policy() -> Value {
    object(
        &[],
        json!({
            "on_failure": one_of(&["restore", "leave"]),
            "hold": one_of(&["automatic", "all"]),
            "settle": text(),
            "rollout_deadline": text(),
            "build_deadline": text(),
            "repositories": list(text()),
            "poll": text()
        }),
    )
}

fn source() -> Value {
    json!({
        "url": text(), "branch": text(), "dockerfile": text(), "context": text(), "image_repository": text(),
        "credentials": text()
    })
}

fn create_app() -> Value {
    let workload = json!({ "kind": text(), "name": text(), "containers": list(text()) });
    let template = json!({
        "replicas": number(), "port": number(), "pull_secret": text(), "readiness_path": text(),
        "env": { "type": "object", "additionalProperties": text() }
    });
    object(
        &["project", "environment", "app"],
        json!({
            "project": text(),
            "environment": text(),
            "app": text(),
            "git": object(&["url", "image_repository"], source()),
            "workload": object(&[], workload),
            "image": text(),
            "template": object(&[], template),
            "policy": policy(),
            "take_over": flag()
        }),
    )
}

fn app() -> Value {
    let mut members = source();
    members["kind"] = one_of(&["image", "git"]);
    let source = object(&["kind"], members);
    let workload = object(&[], json!({ "kind": text(), "name": text(), "containers": list(text()) }));
    let hold = object(&["by"], json!({ "by": number(), "image": maybe(), "digest": maybe(), "commit": maybe() }));
    let entry = json!({ "anyOf": [to("Deploy"), { "type": "null" }] });
    let members = json!({
        "namespace": text(), "app": text(), "project": text(), "environment": text(), "uid": text(),
        "source": source, "workload": workload, "policy": policy(), "holds": list(hold),
        "current": entry, "on_cluster": entry, "unfinished": list(number()), "created_at": time()
    });
    let mut app = everything(members);
    let polling = json!({
        "at": time(), "since": time(), "head": text(), "held_by": number(), "trouble": text()
    });
    app["properties"]["polling"] = object(&["at", "since"], polling);
    app["properties"]["warning"] = text();
    app
}

/// An object whose members are always all there.
fn everything(members: Value) -> Value {
    let names: Vec<String> = members.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    json!({ "type": "object", "required": names, "properties": members })
}

fn webhook() -> Value {
    object(
        &["url", "token", "signing_key", "created_at", "sealing"],
        json!({
            "url": text(), "token": text(), "signing_key": text(), "created_at": time(),
            "sealing": one_of(&["sealed", "cluster", "memory"]), "note": text()
        }),
    )
}

fn nothing_done() -> Value {
    everything(json!({
        "namespace": text(), "app": text(), "deployed": { "type": "boolean", "const": false }, "message": text()
    }))
}

fn answer(more: Value) -> Value {
    let mut members = json!({
        "namespace": text(), "app": text(), "revision": number(), "image": maybe(), "commit": maybe(),
        "trigger": trigger(), "status": status(), "url": text(), "superseded_by": number(),
        "superseded": list(number()), "ignored": list(text()), "reason": text(), "message": text()
    });
    if let (Some(members), Value::Object(more)) = (members.as_object_mut(), more) {
        members.extend(more);
    }
    object(&["namespace", "app", "revision", "image", "commit", "trigger", "status", "url"], members)
}

fn deploy() -> Value {
    let from = object(&["revision"], json!({ "namespace": text(), "app": text(), "revision": number() }));
    let evidence =
        json!({ "container": maybe(), "pod": maybe(), "state": maybe(), "events": list(text()), "log": list(text()) });
    object(
        &[
            "namespace",
            "app",
            "revision",
            "image",
            "commit",
            "trigger",
            "actor",
            "status",
            "current",
            "on_cluster",
            "adopted",
            "effective",
            "step",
            "created_at",
            "updated_at",
            "url",
        ],
        json!({
            "namespace": text(), "app": text(), "revision": number(), "image": maybe(), "commit": maybe(),
            "trigger": trigger(), "actor": text(), "status": status(), "current": flag(), "on_cluster": flag(),
            "adopted": flag(), "effective": number(), "from": from, "digest": text(), "reason": text(),
            "message": text(), "superseded_by": number(), "evidence": object(&[], evidence), "step": number(),
            "created_at": time(), "updated_at": time(), "url": text()
        }),
    )
}
