//! A push as GitHub really sends it, signed as GitHub signs it, against the real binary.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test may")]

mod common;

use std::{fs, process::Command};

use common::{Call, Server};
use serde_json::Value;

/// GitHub's own examples of a push.
fn pushes() -> Result<Vec<Value>, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/payloads.sh");
    let output = Command::new("bash").arg(script).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!(
            "npm gives no payloads: {}",
            String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ")
        ));
    }
    let file = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let all: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let push = all.as_array().unwrap().iter().find(|kind| kind["name"] == "push").unwrap();
    Ok(push["examples"].as_array().unwrap().clone())
}

fn delivery(server: &Server, hook: &str, payload: &Value, id: &str) -> Call {
    server
        .call("POST", hook)
        .header("user-agent", "GitHub-Hookshot/044aadd")
        .header("x-github-event", "push")
        .header("x-github-delivery", id)
        .header("x-github-hook-id", "292430182")
        .json(payload)
}

#[test]
fn a_real_push_is_known_by_its_signature_alone() {
    let pushes = match pushes() {
        Ok(pushes) => pushes,
        Err(reason) => return common::skip("a_real_push_is_known_by_its_signature_alone", &reason),
    };
    assert!(!pushes.is_empty());
    let server = Server::start();
    let app = server.app("api");
    for (index, payload) in pushes.iter().enumerate() {
        let id = format!("72d3162e-cc78-11e3-81ab-4c9367dc09{index:02}");
        let call = delivery(&server, &app.hook, payload, &id);
        // A push names no image, so that an image app cannot deploy it; which is only told to who signed it.
        let reply = call.clone().sign(&app.token).header("x-hub-signature", "sha1=0000").expect(422);
        assert_eq!(reply.problem(), "invalid-image");
        call.clone().sign("another secret").expect(401);
        call.expect(401);
        let mut deploys = payload.clone();
        deploys["image"] = "r.example.com/api:v2".into();
        let call = delivery(&server, &app.hook, &deploys, &id).sign(&app.token);
        let first = call.expect(202);
        let again = call.expect(202);
        assert_eq!(again.header("idempotent-replayed"), Some("true"), "a redelivery is no second deploy");
        assert_eq!(again.json()["revision"], first.json()["revision"]);
    }
}
