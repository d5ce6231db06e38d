//! Rollouts on a real Kubernetes, watched in a real browser: `testing/browser/rollout.mjs`.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use rollhook_testing::{
    beds::{Bed, FIRST},
    server, skip, test_name,
};
use serde_json::json;

use crate::browser::{self, Programs};

#[test]
fn rollouts_are_watched_live_by_a_deployer_in_two_tabs_and_by_a_viewer() {
    let test = test_name!();
    let Programs { browser: program, node, modules } = match Programs::find("playwright-core") {
        Ok(found) => found,
        Err(missing) => return skip(&test, missing),
    };
    let Some(bed) = Bed::cluster(server!(), &test) else { return };
    bed.kubectl.make("Deployment", "api", FIRST, json!({ "replicas": 4 }));
    bed.adopt("Deployment", "api", json!({ "settle": "1s" }));
    let token = |role: &str| {
        let wanted = json!({ "name": format!("a-{role}"), "role": role, "project": bed.project });
        let made = bed.manage("POST", "/api/v1/tokens").json(&wanted).expect(201).json();
        made["token"].as_str().unwrap().to_owned()
    };
    let arguments = json!({
        "address": bed.server().address.to_string(), "namespace": bed.kubectl.namespace, "program": program,
        "deployer": token("deployer"), "viewer": token("viewer"), "screenshots": browser::pictures(), "modules": modules,
    });
    let mut script = Command::new(node);
    script.arg(browser::script("rollout.mjs")).arg(arguments.to_string());
    let mut script =
        script.env("TMPDIR", bed.server().file("")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut answers, told) = (script.stdin.take().unwrap(), BufReader::new(script.stdout.take().unwrap()));
    for line in told.lines().map_while(Result::ok) {
        println!("{line}");
        if line == "ask: open the gate" {
            // The last pods of a rolling update are made once the first are ready.
            rollhook_testing::until("revision 2 has succeeded", || {
                bed.kubectl.open_gate("api");
                bed.manage("GET", &format!("/api/v1/apps/{}/api/deploys/2", bed.kubectl.namespace)).expect(200).json()["status"]
                    == "succeeded"
            });
            writeln!(answers, "opened").unwrap();
        }
    }
    assert!(script.wait().unwrap().success());
}
