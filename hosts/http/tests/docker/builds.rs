//! Git apps from push to running, on one machine: no cluster, and no registry.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use rollhook_testing::{Start, beds::Docker, fixtures::GitHost, server, server::git_source, test_name};
use serde_json::{Value, json};

use crate::bench::Bench;

/// Builds by the script that is given out, with the bed's engine.
fn building(start: Start) -> Start {
    let Ok(docker) = Docker::lent() else { return start };
    // The build's user is no member of the socket's group here.
    fs::set_permissions(docker.socket(), fs::Permissions::from_mode(0o666)).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/docker/build.sh");
    let script = fs::read_to_string(script).unwrap();
    let home = "export PATH=/usr/bin:$PATH HOME=/tmp";
    let host = format!("export DOCKER_HOST=unix://{}", docker.socket().display());
    let script = script.strip_prefix("#!/bin/sh\n").unwrap();
    start.builder(&format!("#!/bin/sh\n{home}\n{host}\n{script}"))
}

#[test]
fn git_app_is_built_run_and_rolled_back_without_a_registry() {
    let Some(bench) = Bench::lent(building(server!()), &test_name!()) else { return };
    let host = GitHost::start();
    let repository = host.repository("web");
    repository.commit("Dockerfile", "FROM app:v1\nCOPY version /www/version\n");
    let first = repository.commit("version", "one\n");
    let name = bench.name("web");
    let mut document = git_source(&host.url("web"));
    document["template"] = json!({ "port": 8080, "readiness_path": "/version", "network": bench.docker.network() });
    document["policy"] = json!({ "settle": "1s" });
    let app = bench.server.register(&name, &document);
    let push = |commit: &str| -> Value {
        let call = bench.server.post(&app, &json!({ "commit": commit })).header("idempotency-key", commit);
        let reply = call.repeat();
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    };
    push(&first);
    assert_eq!(bench.version(&name), "one");
    push(&repository.commit("version", "two\n"));
    assert_eq!(bench.version(&name), "two");
    let back = bench.roll_back(&app);
    assert_eq!((bench.version(&name), &back["commit"]), ("one".to_owned(), &json!(first)));

    let broken = repository.commit("Dockerfile", "FROM app:v1\nRUN [\"/bin/sh\", \"-c\", \"exit 3\"]\n");
    let reply = bench.server.post(&app, &json!({ "commit": broken })).header("idempotency-key", &broken).repeat();
    assert_eq!(reply.status, 424, "{}", reply.text());
    assert_eq!(reply.json()["deploy"]["reason"], "build-failed");
    assert_eq!(bench.version(&name), "one");
}
