//! The calls of the management API, and the roles that may make them.

pub(crate) mod flood;

use serde_json::{Value, json};

/// Each call of the API, the body that it is made with, and whether viewer, deployer and admin of the app may make it.
pub(crate) fn calls(name: &str) -> Vec<(&'static str, &'static str, Value, [bool; 3])> {
    let (all, deployers, admins) = ([true, true, true], [false, true, true], [false, false, true]);
    let app = format!("/api/v1/apps/shop-test/{name}");
    let at = |rest: &str| -> &'static str { Box::leak(format!("{app}{rest}").into_boxed_str()) };
    let image = json!({ "image": "r.example.com/api:2" });
    let trust = json!({ "issuer": "https://gitlab.com", "audience": "rollhook", "claims": { "project_id": "7" } });
    let check = json!({ "kind": "http", "settings": { "url": "https://shop.example.com/" } });
    let receiver = json!({
        "name": format!("r-{name}"), "kind": "webhook", "url": "https://hooks.example.com/", "project": "shop",
        "environment": "test", "events": ["failed"]
    });
    let signed = json!({ "require_signature": ["issuer=https://id.example.com,subject=ada@example.com"] });
    let other =
        json!({ "project": "shop", "environment": "test", "app": format!("{name}-2"), "image": "r.example.com/b:1" });
    vec![
        ("GET", at(""), Value::Null, all),
        ("GET", at("/deploys"), Value::Null, all),
        ("GET", at("/deploys/1"), Value::Null, all),
        ("GET", at("/deploys/1/events"), Value::Null, all),
        ("GET", at("/deploys/1/log"), Value::Null, all),
        ("GET", "/api/v1/apps", Value::Null, all),
        ("GET", "/api/v1/whoami", Value::Null, all),
        ("POST", at("/deploys"), image, deployers),
        ("POST", at("/deploys"), json!({ "same": true }), deployers),
        ("POST", at("/stop"), json!({}), deployers),
        ("POST", at("/start"), Value::Null, deployers),
        ("POST", at("/stop"), json!({ "break_glass": "an outage" }), admins),
        ("POST", at("/rebuild"), json!({}), deployers),
        ("POST", at("/deploys/1/cancel"), Value::Null, deployers),
        ("GET", at("/rollback"), Value::Null, deployers),
        ("POST", at("/rollback"), json!({}), deployers),
        ("POST", at("/promote"), json!({ "from": { "project": "shop", "environment": "prod" } }), deployers),
        ("DELETE", at("/hold"), Value::Null, deployers),
        ("PUT", at("/lock"), json!({ "reason": "a freeze" }), deployers),
        ("DELETE", at("/lock"), Value::Null, deployers),
        ("PUT", "/api/v1/locks/shop/test", json!({ "reason": "a freeze" }), deployers),
        ("DELETE", "/api/v1/locks/shop/test", Value::Null, deployers),
        ("GET", "/api/v1/locks", Value::Null, all),
        ("GET", "/api/v1/activity", Value::Null, all),
        ("GET", "/api/v1/report", Value::Null, all),
        ("POST", at("/deploys"), json!({ "image": "r.example.com/api:3", "break_glass": "an outage" }), admins),
        ("POST", at("/webhook/rotate"), json!({ "overlap": "1m" }), deployers),
        ("GET", at("/webhook?masked=true"), Value::Null, all),
        ("POST", at("/webhook"), Value::Null, deployers),
        ("GET", at("/webhook"), Value::Null, deployers),
        ("GET", at("/webhook/trusts"), Value::Null, all),
        ("POST", at("/webhook/trusts"), trust, admins),
        ("DELETE", at("/webhook/trusts/0123456789abcdef"), Value::Null, admins),
        ("DELETE", at("/webhook"), Value::Null, admins),
        ("POST", "/api/v1/apps", other, admins),
        ("PATCH", at(""), json!({ "policy": { "settle": "1s" } }), admins),
        // No registry is on this machine, so that none is called.
        ("GET", at("/image?reference=localhost/api:v1"), Value::Null, deployers),
        ("GET", at("/checks"), Value::Null, all),
        ("PUT", at("/checks/front"), check, admins),
        ("POST", at("/checks/nothing/test"), Value::Null, deployers),
        ("DELETE", at("/checks/front"), Value::Null, admins),
        ("PUT", "/api/v1/requirements/shop/test", signed.clone(), admins),
        ("DELETE", "/api/v1/requirements/shop/test", Value::Null, admins),
        // An admin of one environment sets none on the whole project.
        ("PUT", "/api/v1/requirements/shop", signed, [false; 3]),
        ("DELETE", "/api/v1/requirements/shop", Value::Null, [false; 3]),
        ("GET", "/api/v1/requirements", Value::Null, admins),
        ("GET", "/api/v1/tokens", Value::Null, admins),
        ("GET", "/api/v1/audit", Value::Null, admins),
        ("DELETE", "/api/v1/tokens/nothing", Value::Null, admins),
        ("GET", "/api/v1/receivers", Value::Null, admins),
        ("POST", "/api/v1/receivers", receiver, admins),
        ("POST", "/api/v1/receivers/nothing/test", Value::Null, admins),
        ("DELETE", "/api/v1/receivers/nothing", Value::Null, admins),
        ("DELETE", at(""), Value::Null, admins),
    ]
}
