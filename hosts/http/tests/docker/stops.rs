//! Stops and starts of apps.

use rollhook_testing::{App, server, test_name, until};
use serde_json::{Value, json};

use crate::bench::Bench;

impl Bench {
    /// Asks for a stop or a start, and returns its revision.
    fn ask(&self, app: &App, what: &str) -> u64 {
        let answer = self.server.manage("POST", &format!("{}/{what}", app.path)).expect(202).json();
        answer["revision"].as_u64().unwrap()
    }

    /// Stops or starts an app, and returns the entry of its end.
    fn scale(&self, app: &App, what: &str) -> Value {
        self.ended(app, self.ask(app, what))
    }

    fn shown(&self, app: &App) -> Value {
        self.server.manage("GET", &app.path).expect(200).json()
    }

    /// Asserts that the container is the only one of its app, and does not run.
    fn rests(&self, name: &str, when: &str) {
        assert_eq!(self.containers(name), [name], "{when}");
        assert!(!self.runs(name), "the container runs {when}");
    }

    fn image(&self, name: &str) -> Value {
        self.inspect(name).unwrap()["Config"]["Image"].clone()
    }
}

#[test]
fn stopped_app_stays_stopped_over_reboots_and_deploys_until_it_is_started() {
    let Some(mut bench) = Bench::own(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    // Of all policies, `always` starts again at a reboot what a person has stopped.
    bench.start(&name, &["--restart", "always", "-v", "/srv", "-e", "MODE=test", "--network-alias", "shop"], "app:v1");
    bench.docker.run(&["network", "create", "further"]);
    bench.docker.run(&["network", "connect", "--alias", "other", "further", &name]);
    let app = bench.register(&name, &json!({}));
    bench.succeeds(&app, "app:v2");
    let configured = |found: Value| {
        let networks = found["NetworkSettings"]["Networks"].as_object().unwrap().clone();
        let is_given = |alias: &&Value| ["shop", "other"].iter().any(|given| *alias == given);
        let aliases = |network: Value| {
            let aliases = network["Aliases"].as_array().cloned().unwrap_or_default();
            aliases.iter().filter(is_given).cloned().collect::<Vec<_>>()
        };
        let networks: Vec<_> = networks.into_iter().map(|(network, settings)| (network, aliases(settings))).collect();
        (found["HostConfig"].clone(), found["Config"]["Env"].clone(), found["Mounts"].clone(), networks)
    };
    let before = configured(bench.inspect(&name).unwrap());

    let stop = bench.scale(&app, "stop");
    assert_eq!(stop["status"], "succeeded", "{stop}");
    bench.rests(&name, "after the stop");
    for outage in ["stop", "kill"] {
        bench.docker.control(outage);
        bench.docker.control("start");
        until("the engine is back", || bench.inspect(&name).is_some());
        bench.rests(&name, "after a reboot");
    }
    bench.server.restart();
    let shown = bench.shown(&app);
    assert_eq!(
        (&shown["stopped"]["since"], &shown["drift"], &shown["degraded"]),
        (&json!(3), &json!(null), &json!(null))
    );

    let deploy = bench.succeeds(&app, "app:v1");
    let message = bench.entry(&app, deploy["revision"].as_u64().unwrap())["message"].clone();
    assert!(message.as_str().unwrap().contains("not started, as the app was stopped by revision 3"), "{message}");
    bench.rests(&name, "after a deploy");
    assert_eq!(bench.image(&name), "app:v1");
    bench.roll_back(&app);
    bench.rests(&name, "after a rollback");

    bench.docker.run(&["start", &name]);
    until("the change is shown", || bench.shown(&app)["drift"]["message"].is_string());
    let drift = bench.shown(&app)["drift"].clone();
    assert!(drift["message"].as_str().unwrap().contains("another party started the container"), "{drift}");
    assert_eq!(bench.scale(&app, "stop")["status"], "succeeded");
    bench.rests(&name, "after the second stop");

    let start = bench.scale(&app, "start");
    assert_eq!(start["status"], "succeeded", "{start}");
    assert_eq!((bench.version(&name), bench.containers(&name)), ("v2".to_owned(), vec![name.clone()]));
    assert_eq!(configured(bench.inspect(&name).unwrap()), before);
    let shown = bench.shown(&app);
    assert_eq!((&shown["stopped"], &shown["drift"]), (&json!(null), &json!(null)), "{shown}");
}

#[test]
fn start_that_fails_is_put_right_by_a_stop() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["--restart", "unless-stopped"], "app:v1");
    let app = bench.register(&name, &json!({ "policy": { "settle": "1s", "patience": "2s" } }));
    bench.scale(&app, "stop");
    // A command by hand is made of the container that is not started.
    assert_eq!(bench.cli().run(&format!("app run {name} -- echo by hand")).ok().out, "by hand\n");
    bench.rests(&name, "after a command");
    bench.succeeds(&app, "app:crash");
    let start = bench.scale(&app, "start");
    assert_eq!((&start["status"], &start["reason"]), (&json!("failed"), &json!("container-exited")), "{start}");
    assert!(start["evidence"]["log"].to_string().contains("no database"), "{start}");
    let restore = bench.ended(&app, 5);
    assert_eq!((&restore["status"], &restore["trigger"]), (&json!("succeeded"), &json!("rollback")), "{restore}");
    bench.rests(&name, "after the restore");
    bench.roll_back(&app);
    bench.rests(&name, "after the rollback");
    assert_eq!(bench.scale(&app, "start")["status"], "succeeded");
    assert_eq!((bench.version(&name), bench.containers(&name)), ("v1".to_owned(), vec![name.clone()]));
}

#[test]
fn service_of_a_compose_project_and_a_worker_stop_and_start_together() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let (service, project, worker) = (bench.name("web"), bench.name("shop"), bench.name("worker"));
    let web = format!("{project}-web-1");
    let labels = [("project", &project), ("service", &service)];
    let labels = labels.map(|(label, value)| format!("--label=com.docker.compose.{label}={value}"));
    bench.start(&web, &[&*labels[0], &*labels[1], "--restart", "unless-stopped"], "app:v1");
    bench.start(&worker, &[], "app:v1");
    let workload = json!({
        "kind": "compose", "name": format!("{project}/{service}"), "also": [format!("container/{worker}")],
    });
    let app = bench.register(&service, &json!({ "workload": workload }));
    assert_eq!(bench.scale(&app, "stop")["status"], "succeeded");
    bench.rests(&web, "after the stop");
    bench.rests(&worker, "after the stop");
    bench.succeeds(&app, "app:v2");
    bench.rests(&web, "after a deploy");
    bench.rests(&worker, "after a deploy");
    assert_eq!(bench.scale(&app, "start")["status"], "succeeded");
    assert_eq!((bench.version(&web), bench.version(&worker)), ("v2".to_owned(), "v2".to_owned()));
    let shown = bench.inspect(&web).unwrap()["Config"]["Labels"].clone();
    assert_eq!(shown["com.docker.compose.service"], json!(service), "{shown}");
}

#[test]
fn server_that_is_killed_in_a_stop_or_a_start_ends_it_after_its_restart() {
    let Some(mut bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["--restart", "unless-stopped"], "app:v1");
    let app = bench.register(&name, &json!({}));
    for what in ["stop", "start", "stop"] {
        let revision = bench.ask(&app, what);
        until("it has its claim or container", || {
            bench.containers(&name).len() > 1 || bench.entry(&app, revision)["status"] == "succeeded"
        });
        bench.server.restart();
        assert_eq!(bench.ended(&app, revision)["status"], "succeeded");
        assert_eq!((bench.containers(&name), bench.runs(&name)), (vec![name.clone()], what == "start"));
    }
    let volumes = bench.docker.run(&["volume", "ls", "-q", "--filter", &format!("name={name}")]);
    assert_eq!(volumes, "", "no claim is left");
}
