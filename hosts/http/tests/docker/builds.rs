//! Git apps from push to running, on one machine: no cluster, no registry, and no further setting.

use rollhook_testing::{App, Start, fixtures::GitHost, server, server::git_source, test_name, until};
use serde_json::{Value, json};

use crate::bench::Bench;

/// A server whose sources may be on this machine, as those of tests are; the engine builds.
pub(crate) fn building(start: Start) -> Start {
    let data = start.directory().to_owned();
    start.variable("XDG_DATA_HOME", data).arguments(["--allow-local-sources"])
}

/// Registers a git app that serves its version.
pub(crate) fn git_app(bench: &Bench, host: &GitHost, name: &str) -> App {
    let mut document = git_source(&host.url("web"));
    document["git"]["image_repository"] = json!(format!("{name}/web"));
    document["template"] = json!({ "port": 8080, "readiness_path": "/version", "network": bench.docker.network() });
    document["policy"] = json!({ "settle": "1s" });
    bench.server.register(name, &document)
}

#[test]
fn git_app_is_built_run_and_rolled_back_without_a_registry() {
    let Some(bench) = Bench::lent(building(server!()), &test_name!()) else { return };
    let host = GitHost::start();
    let repository = host.repository("web");
    repository.commit("Dockerfile", "FROM app:v1\nCOPY version /www/version\n");
    let first = repository.commit("version", "one\n");
    let name = bench.name("web");
    let app = git_app(&bench, &host, &name);
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

#[test]
fn build_of_a_killed_server_ends_and_begins_anew_with_the_next_one() {
    let Some(mut bench) = Bench::lent(building(server!()), &test_name!()) else { return };
    let host = GitHost::start();
    let repository = host.repository("web");
    let name = bench.name("web");
    let step = format!("RUN sleep 600; echo {name}");
    let commit = repository.commit("Dockerfile", &format!("FROM app:v1\n{step}\n"));
    let app = git_app(&bench, &host, &name);
    let steps = |bench: &Bench| -> usize {
        let listed = bench.docker.run(&["ps", "--no-trunc", "--format", "{{.Command}}"]);
        listed.lines().filter(|command| command.contains(&format!("echo {name}"))).count()
    };
    let answer = bench.server.post(&app, &json!({ "commit": commit })).expect(202).json();
    until("the step runs", || steps(&bench) == 1);
    bench.server.down();
    until("the step has ended with its server", || steps(&bench) == 0);
    bench.server.restart();
    until("the step runs again", || steps(&bench) == 1);
    let revision = answer["revision"].as_u64().unwrap();
    bench.server.manage("POST", &format!("{}/deploys/{revision}/cancel", app.path)).send();
    assert_eq!(bench.ended(&app, revision)["status"], "cancelled");
    until("the step has ended", || steps(&bench) == 0);
}

#[test]
fn images_of_old_versions_are_removed_and_that_of_a_rollback_stays() {
    let start = building(server!()).variable("ROLLHOOK_KEEP_IMAGES", "2");
    let Some(bench) = Bench::lent(start, &test_name!()) else { return };
    let host = GitHost::start();
    let repository = host.repository("web");
    repository.commit("Dockerfile", "FROM app:v1\nCOPY version /www/version\n");
    let name = bench.name("web");
    let app = git_app(&bench, &host, &name);
    let tags = || -> Vec<String> {
        let listed = bench.docker.run(&["images", "--format", "{{.Tag}}", &format!("{name}/web")]);
        listed.lines().map(str::to_owned).collect()
    };
    let commits = ["one", "two", "three"].map(|version| {
        // Images of the same content would be one, with the names of other tests.
        let commit = repository.commit("version", &format!("{name} {version}\n"));
        let call = bench.server.post(&app, &json!({ "commit": commit })).header("idempotency-key", &commit);
        assert_eq!(call.repeat().status, 200);
        commit
    });
    until("the first image is gone", || !tags().contains(&commits[0]));
    assert!(tags().contains(&commits[1]) && tags().contains(&commits[2]), "{:?}", tags());
    bench.roll_back(&app);
    assert_eq!(bench.version(&name), format!("{name} two"));
    assert!(tags().contains(&commits[2]), "a rollback from this one may lead there: {:?}", tags());
}
