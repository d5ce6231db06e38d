//! Apps with several containers, which change together.

use rollhook_testing::{App, Ended, server, test_name, until};
use serde_json::{Value, json};

use crate::bench::Bench;

/// Starts a web container and a worker, which may refuse versions, and registers both as one
/// app.
fn release(bench: &Bench, worker: &str, patience: &str) -> (String, String, App) {
    let [web, name] = ["web", "worker"].map(|name| bench.name(name));
    bench.start(&web, &["--restart", "unless-stopped"], "app:v1");
    let network = bench.docker.network();
    let run = ["run", "-d", "--name", &name, "--network", &network, "--restart", "unless-stopped", "app:v1"];
    bench.docker.run(&[&run[..], &["sh", "-c", worker]].concat());
    let workload = json!({ "kind": "container", "name": web, "also": [format!("container/{name}")] });
    let policy = json!({ "settle": "1s", "patience": patience });
    let app = bench.register(&web, &json!({ "workload": workload, "policy": policy }));
    (web, name, app)
}

/// The version that a container was made with.
pub(crate) fn made_with(bench: &Bench, name: &str) -> Value {
    let env = bench.inspect(name).unwrap()["Config"]["Env"].as_array().unwrap().clone();
    env.into_iter().find(|one| one.as_str().unwrap().starts_with("VERSION=")).unwrap_or_default()
}

const WORKS: &str = "touch /tmp/ready; sleep 1000";
const REFUSES: &str = "[ $VERSION = v1 ] || { echo no queue; exit 3; }; touch /tmp/ready; sleep 1000";

#[test]
fn containers_of_an_app_are_deployed_and_rolled_back_together() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let (web, worker, app) = release(&bench, WORKS, "1m");
    bench.succeeds(&app, "app:v2");
    assert_eq!((bench.version(&web), made_with(&bench, &worker)), ("v2".to_owned(), json!("VERSION=v2")));
    let shown = bench.cli().run(&format!("app show {web}")).ok().out;
    assert!(shown.contains(&format!("then container/{worker}")), "{shown}");
    bench.roll_back(&app);
    assert_eq!((bench.version(&web), made_with(&bench, &worker)), ("v1".to_owned(), json!("VERSION=v1")));
    assert_eq!((bench.containers(&web), bench.containers(&worker)), (vec![web.clone()], vec![worker.clone()]));
}

#[test]
fn worker_that_fails_is_named_and_the_web_container_is_put_back() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let (web, worker, app) = release(&bench, REFUSES, "3s");
    let before = bench.inspect(&worker).unwrap()["Id"].clone();
    let failed = bench.fails(&app, "app:v2");
    let message = failed["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("container/{worker}: ")), "{failed}");
    assert!(message.contains(&format!("container/{web} is complete")), "{failed}");
    // Reason, evidence and the worker's line say one thing, whether the container runs again by then or not.
    let evidence = &failed["evidence"];
    let container = evidence["container"].as_str().unwrap();
    assert!(container.starts_with(&worker) && message.contains(container), "{failed}");
    for said in [message, evidence["state"].as_str().unwrap(), evidence["workloads"][0]["message"].as_str().unwrap()] {
        assert!(said.contains("exited with code 3"), "{said}: {failed}");
    }
    assert_eq!(evidence["log"].as_array().unwrap().last(), Some(&json!("no queue")), "{failed}");
    assert_eq!(bench.ended(&app, 3)["status"], "succeeded");
    assert_eq!((bench.version(&web), made_with(&bench, &worker)), ("v1".to_owned(), json!("VERSION=v1")));
    assert_eq!(bench.inspect(&worker).unwrap()["Id"], before, "the old worker serves on");
    let wide = bench.cli().run(&format!("app history {web} -o wide")).ok().out;
    let restored = format!(
        "put right by itself: revision 3 rolled out revision 1 again, app:v1 in container/{worker} and container/{web}"
    );
    for line in [format!("container/{worker}: failed: "), format!("container/{web}: complete"), restored] {
        assert!(wide.contains(&format!("    {line}")), "{line}: {wide}");
    }
}

#[test]
fn engine_that_is_killed_between_the_two_is_waited_for() {
    let Some(bench) = Bench::own(server!(), &test_name!()) else { return };
    let (web, worker, app) = release(&bench, WORKS, "1m");
    bench.post(&app, "app:v2").expect(202);
    until("the worker's new container is there", || bench.containers(&worker).len() > 1);
    bench.docker.control("kill");
    bench.docker.control("start");
    let ended = bench.ended(&app, 2);
    assert_eq!(ended["status"], "succeeded", "{ended}");
    assert_eq!((bench.version(&web), made_with(&bench, &worker)), ("v2".to_owned(), json!("VERSION=v2")));
}

#[test]
fn web_and_worker_are_made_of_one_image_with_commands_of_their_own() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let [web, worker] = ["web", "worker"].map(|name| bench.name(name));
    let cli = bench.cli().with("ROLLHOOK_PROJECT", "shop").with("ROLLHOOK_ENVIRONMENT", "test");
    let made =
        format!("--image app:v1 --network {} --port 8080 --env MODE=live --label team=shop", bench.docker.network());
    let workloads =
        format!("--workload container/{web} --workload +container/{worker} --settle 1s --patience 3s --wait");
    let jobs = "echo \"jobs of $VERSION\"; [ $VERSION != crash ] && sleep 1000";
    let mut create = cli.command(&format!("app create {web} {made} {workloads} --command"));
    let created: Ended = create.arg(format!("{worker}=sh -c '{jobs}'")).output().unwrap().into();
    created.ok();

    let app = App::new("shop-test", &web, String::new());
    let app = App { token: bench.server.enable(&app.path), ..app };
    let commands = |name: &str| bench.inspect(name).unwrap()["Config"]["Cmd"].clone();
    let of_worker = json!(["sh", "-c", jobs]);
    let both = |version: &str| {
        assert_eq!(
            (bench.version(&web), made_with(&bench, &worker)),
            (version.to_owned(), json!(format!("VERSION={version}")))
        );
        assert_eq!((commands(&web), commands(&worker)), (json!(["/app"]), of_worker.clone()), "{version}");
    };
    both("v1");
    let found = bench.inspect(&worker).unwrap();
    assert!(found["Config"]["Env"].as_array().unwrap().contains(&json!("MODE=live")), "{found}");
    assert!(found["Config"]["Labels"].get("team").is_none() && found["Config"]["ExposedPorts"].is_null(), "{found}");
    bench.succeeds(&app, "app:v2");
    both("v2");
    let failed = bench.fails(&app, "app:crash");
    assert_eq!(bench.ended(&app, failed["revision"].as_u64().unwrap() + 1)["status"], "succeeded");
    both("v2");
    bench.roll_back(&app);
    both("v1");
    // One that is gone is made anew by its command.
    bench.docker.run(&["rm", "-f", &worker]);
    bench.succeeds(&app, "app:v2");
    both("v2");
    let shown = cli.run(&format!("app show {web}")).ok().out;
    assert!(shown.contains(&format!("together with container/{worker} (sh -c ")), "{shown}");
}

#[test]
fn first_version_whose_worker_had_a_wrong_command_is_put_right_by_another_one() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let [web, worker] = ["web", "worker"].map(|name| bench.name(name));
    let cli = bench.cli().with("ROLLHOOK_PROJECT", "shop").with("ROLLHOOK_ENVIRONMENT", "test");
    let create = format!(
        "app create {web} --image app:v1 --network {} --port 8080 --workload container/{web} --workload +container/{worker} \
         --command {worker}=bin/wrong --settle 1s --patience 3s --wait",
        bench.docker.network()
    );
    cli.run(&create).exits(3);
    let set = |command: &str| -> Ended {
        let mut set = cli.command(&format!("app set {web} --wait --command"));
        set.arg(command).output().unwrap().into()
    };
    for (command, words) in [
        ("jobs='sleep 1000'", "none of them"),
        (&format!("{worker}="), "must be NAME=COMMAND"),
        (&format!("{worker}=''"), "must have for each container"),
    ] {
        let refused = set(command);
        assert!(refused.code != 0 && refused.err.contains("--command: ") && refused.err.contains(words), "{refused:?}");
    }
    set(&format!("{worker}=sleep 1000")).ok();
    let commands = |name: &str| bench.inspect(name).unwrap()["Config"]["Cmd"].clone();
    assert_eq!((commands(&web), commands(&worker)), (json!(["/app"]), json!(["sleep", "1000"])));
    let only = |name: &String| vec![name.clone()];
    assert_eq!((bench.containers(&web), bench.containers(&worker)), (only(&web), only(&worker)), "nothing is left");
    let history = cli.run(&format!("app history {web}")).ok().out;
    assert!(
        history.lines().nth(1).is_some_and(|newest| newest.starts_with('2') && newest.contains("config")),
        "{history}"
    );

    // It stays with later deploys, and the restore of a change that fails brings it back.
    let app = App::new("shop-test", &web, String::new());
    let app = App { token: bench.server.enable(&app.path), ..app };
    bench.succeeds(&app, "app:v2");
    assert_eq!((bench.version(&web), commands(&worker)), ("v2".to_owned(), json!(["sleep", "1000"])));
    set(&format!("{worker}=bin/wrong")).exits(3);
    assert_eq!(bench.ended(&app, 5)["status"], "succeeded");
    assert_eq!((bench.version(&web), commands(&worker)), ("v2".to_owned(), json!(["sleep", "1000"])));
    set(&format!("{web}='/app'")).ok();
    let listed = cli.run(&format!("app config list {web}")).ok().out;
    assert!(listed.contains(&format!("{web}=/app, {worker}=sleep 1000")), "{listed}");
    bench.roll_back(&app);
    assert_eq!((bench.version(&web), commands(&worker)), ("v1".to_owned(), json!(["sleep", "1000"])));
}
