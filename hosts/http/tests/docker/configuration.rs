//! The configuration of an app from its first variable to the app's deletion, on a real engine: what runs has the values of the
//! revision that the history names, and no value is in what the server has written.

use std::{fs, thread};

use rollhook_testing::{
    App, Call, Connection, Server,
    beds::is_over,
    fixtures::Receiver,
    process::{Tracer, is_installed},
    server, skip, test_name, until,
};
use serde_json::{Value, json};

use crate::{
    bench::Bench,
    kills::{Moment, Way},
    values::{assert_absent, assert_absent_below, key_of, sealed_in, value},
};

/// A program that ends at once with a bad value.
const PROGRAM: &str = r#"case "$MODE" in *bad) exit 1;; esac; exec /app"#;

/// The server of a bench on this engine's socket, as talkative as it can be.
pub(crate) fn restarted(bench: &mut Bench, variables: &[(&str, &str)]) {
    bench.server.down();
    let start = bench.server.recipe().unlimited().variable("RUST_LOG", "trace");
    bench.server = variables.iter().fold(start, |start, (name, value)| start.variable(name, *value)).run();
}

fn started(bench: &Bench, name: &str) -> App {
    let network = bench.docker.network();
    let run = ["run", "-d", "--name", name, "--network", &network, "--restart", "unless-stopped", "app:v1", "sh", "-c"];
    bench.docker.run(&[&run[..], &[PROGRAM]].concat());
    bench.register(name, &json!({ "policy": { "settle": "0s" } }))
}

fn patch(server: &Server, app: &App, body: &Value) -> Call {
    server.manage("PATCH", &format!("{}/config", app.path)).json(body)
}

/// Sets the variable, and returns the deploy once it has ended.
fn set(bench: &Bench, app: &App, value: &str) -> Value {
    let answer = patch(&bench.server, app, &json!({ "set": { "MODE": value } })).expect(202).json();
    bench.ended(app, answer["revision"].as_u64().unwrap())
}

/// The value that the app's container runs with.
fn running(bench: &Bench, name: &str) -> Option<String> {
    let found = bench.inspect(name)?;
    let environment = found["Config"]["Env"].as_array()?.iter().filter_map(Value::as_str);
    environment.filter_map(|one| one.strip_prefix("MODE=")).map(str::to_owned).next()
}

fn back(bench: &Bench, app: &App, body: &Value) -> Value {
    let answer = bench.server.manage("POST", &format!("{}/rollback", app.path)).json(body).expect(202).json();
    let entry = bench.ended(app, answer["revision"].as_u64().unwrap());
    assert_eq!(entry["status"], "succeeded", "{entry}");
    entry
}

fn keys(bench: &Bench, arguments: &[&str]) -> String {
    let output = bench.server.recipe().command().arg("keys").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn configuration_is_put_right_brought_back_and_sealed_anew_and_leaks_nowhere() {
    let Some(mut bench) = Bench::lent(server!(), &test_name!()) else { return };
    let collector = Receiver::start();
    restarted(&mut bench, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)]);
    let name = bench.name("web");
    let app = started(&bench, &name);
    assert_eq!(set(&bench, &app, &value("one"))["status"], "succeeded");
    assert_eq!(running(&bench, &name), Some(value("one")));

    // Two people at once, of whom both have seen revision 2.
    let calls = ["left", "right"].map(|person| {
        let body = json!({ "set": { "MODE": value(person) }, "if_current": 2 });
        let call = patch(&bench.server, &app, &body);
        (person, thread::spawn(move || call.send()))
    });
    let answers = calls.map(|(person, call)| (person, call.join().unwrap()));
    let (taken, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(_, reply)| reply.status == 202);
    let ([(taken, _)], [(_, refused)]) = (&taken[..], &refused[..]) else { panic!("one of both is taken") };
    let second = value(taken);
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert!(["not-redeployable", "current-changed"].contains(&refused.problem().as_str()), "{}", refused.text());
    assert_eq!(bench.ended(&app, 3)["status"], "succeeded");
    assert_eq!(running(&bench, &name).as_ref(), Some(&second));

    // A bad value is put right with the value before.
    let failed = set(&bench, &app, &value("bad"));
    assert_eq!((&failed["revision"], &failed["status"]), (&json!(4), &json!("failed")), "{failed}");
    let restored = bench.ended(&app, 5);
    assert_eq!((&restored["actor"], &restored["status"]), (&json!("auto"), &json!("succeeded")), "{restored}");
    assert_eq!(restored["configuration"], bench.entry(&app, 3)["configuration"]);
    assert_eq!(running(&bench, &name).as_ref(), Some(&second));

    // Without and with the configuration.
    bench.succeeds(&app, "app:v2");
    back(&bench, &app, &json!({ "revision": 2 }));
    assert_eq!((bench.version(&name).as_str(), running(&bench, &name).as_ref()), ("v1", Some(&second)));
    back(&bench, &app, &json!({ "revision": 2, "with_config": true }));
    assert_eq!(running(&bench, &name), Some(value("one")));

    // Sealed by a new key, and the old one is gone.
    let directory = bench.server.file("keys");
    let directory = directory.to_str().unwrap();
    let old: Vec<_> = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    keys(&bench, &["new", directory]);
    bench.server.restart();
    let store = format!("sqlite:{}", bench.server.file("rollhook.db").display());
    let rotated = keys(&bench, &["rotate", "--store", &store, "--key-dir", directory]);
    assert!(rotated.starts_with("sealed anew: "), "{rotated}");
    for file in old.iter().filter(|file| file.extension().is_some_and(|extension| extension == "key")) {
        fs::remove_file(file).unwrap();
    }
    bench.server.restart();
    back(&bench, &app, &json!({ "revision": 3, "with_config": true }));
    assert_eq!(running(&bench, &name).as_ref(), Some(&second));

    // No value but in the containers.
    let get = |path: &str| bench.server.manage("GET", path).send().text();
    for path in ["", "/deploys?limit=200", "/config", "/config?revision=2", "/deploys/4", "/deploys/4/events"] {
        assert_absent(path, get(&format!("{}{path}", app.path)).as_bytes());
    }
    assert_absent("the metrics", get("/metrics").as_bytes());
    assert_absent("the audit", get("/api/v1/audit").as_bytes());
    until("the traces are sent", || collector.sent().len() > 2);
    for sent in collector.sent() {
        assert_absent("a trace", &sent.bytes);
    }
    assert!(bench.server.log().contains("TRACE"));
    let database = bench.server.file("rollhook.db");
    assert!(sealed_in(&database) >= 3);
    assert_absent_below(bench.server.recipe().directory());

    // With the app all that is sealed goes, and its container goes on.
    bench.server.manage("DELETE", &app.path).expect(204);
    until("nothing that is sealed is left", || sealed_in(&database) == 0);
    assert_absent_below(bench.server.recipe().directory());
    assert_eq!(running(&bench, &name).as_ref(), Some(&second));
}

/// Whether a request to the engine changes something.
pub(crate) fn is_change(line: &str) -> bool {
    ["POST /", "PUT /", "DELETE /"].iter().any(|method| line.starts_with(method))
}

/// Changes the value on a server that is about to be killed. Returns whether the change was accepted, and whether the server has
/// ended and not the deploy.
fn change(bench: &Bench, app: &App, next: &str) -> (bool, bool) {
    let call = patch(&bench.server, app, &json!({ "set": { "MODE": next } })).header("idempotency-key", key_of(next));
    let send = |call: &Call| Connection::open(bench.server.address).and_then(|mut open| open.send(call)).ok();
    let Some(answer) = send(&call) else { return (false, true) };
    assert_eq!(answer.status, 202, "{}", answer.text());
    let entry = bench.server.manage("GET", &format!("{}/deploys/{}", app.path, answer.json()["revision"]));
    let is_killed = until("the deploy has ended, or the server", || match send(&entry) {
        Some(entry) => is_over(&entry.json()).then_some(false),
        None => Some(true),
    });
    (true, is_killed)
}

/// Asserts that a server which was killed in a change ends what it accepted, that the history names what runs, and that the
/// same call again is the same change.
fn assert_one_of(bench: &mut Bench, app: &App, name: &str, (before, next): (&str, &str), accepted: bool) {
    bench.server.restart();
    let history = until("the history has ended", || {
        let list = bench.server.manage("GET", &format!("{}/deploys?limit=200", app.path)).expect(200).json();
        list["deploys"].as_array().unwrap().iter().all(is_over).then_some(list)
    });
    let runs = running(bench, name).unwrap();
    assert!([before, next].contains(&&*runs), "another value runs");
    assert!(!accepted || runs == next, "the accepted change is brought to its end: {history}");
    let newest = &history["deploys"][0];
    assert_eq!((&newest["status"], &newest["current"]), (&json!("succeeded"), &json!(true)), "{history}");
    let again = patch(&bench.server, app, &json!({ "set": { "MODE": next } })).header("idempotency-key", key_of(next));
    let again = again.header("prefer", "wait=50").expect(200).json();
    let configurations = bench.server.manage("GET", &format!("{}/config", app.path)).expect(200).json();
    assert_eq!(again["revision"], configurations["revision"], "{again}");
    assert_eq!(running(bench, name).as_deref(), Some(next));
    assert_eq!(bench.containers(name), [name]);
}

#[test]
fn server_killed_at_every_other_step_of_a_change_runs_with_what_the_history_says() {
    killed_at_steps(&test_name!(), 0);
}

#[test]
fn server_killed_at_the_steps_between_these_runs_with_what_the_history_says() {
    killed_at_steps(&test_name!(), 1);
}

/// Kills servers before the first change of the engine and after each, of which every other one is left out.
fn killed_at_steps(test: &str, first: usize) {
    let Some(mut bench) = Bench::lent(server!(), test) else { return };
    let name = bench.name("web");
    let app = started(&bench, &name);
    let socket = bench.server.file("engine.sock");
    let way = Way::lay_to_socket(&bench.docker.socket(), &socket, is_change);
    restarted(&mut bench, &[("DOCKER_HOST", &format!("unix://{}", socket.display()))]);
    let mut value_before = value("first");
    set(&bench, &app, &value_before);
    let mut kills = 0;
    for moment in Moment::every_other(first) {
        let next = value(&format!("engine-{}-{}", moment.change, moment.is_after));
        way.arm(bench.server.pid(), moment);
        let (accepted, _) = change(&bench, &app, &next);
        let is_over = way.disarm();
        if !is_over {
            assert_one_of(&mut bench, &app, &name, (&value_before, &next), accepted);
            kills += 1;
        }
        value_before = next;
        if is_over {
            break;
        }
    }
    assert!(kills >= 3, "made, started, the old one stopped and removed, named: {kills}");
    assert_absent_below(bench.server.recipe().directory());
    bench.server.manage("DELETE", &app.path).expect(204);
    until("nothing that is sealed is left", || sealed_in(&bench.server.file("rollhook.db")) == 0);
}

#[test]
fn server_killed_at_each_write_of_a_change_stores_all_of_it_or_nothing() {
    if !is_installed("strace") {
        return skip(&test_name!(), "strace is not installed");
    }
    let Some(mut bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    let app = started(&bench, &name);
    restarted(&mut bench, &[]);
    let mut value_before = value("first");
    set(&bench, &app, &value_before);
    for time in 1..=20 {
        let next = value(&format!("write-{time}"));
        // Before what it has written to its store is durable.
        let strace = Tracer::attach(bench.server.pid(), "fdatasync,fsync", time);
        let (accepted, is_killed) = change(&bench, &app, &next);
        if !is_killed {
            strace.detach();
            assert!(time > 3, "put, accepted, begun and ended: {time}");
            break;
        }
        strace.wait();
        bench.server.down();
        assert_one_of(&mut bench, &app, &name, (&value_before, &next), accepted);
        value_before = next;
    }
    assert_absent_below(bench.server.recipe().directory());
}
