//! Release commands on a real engine: what they run with, and that they run once.

use std::sync::Arc;

use rollhook_conformance::{Lack, report, samples};
use rollhook_core::{
    app::{AppUid, Settings, Target},
    deploy::Reason,
    ports::{
        DeployId, ReleaseFailure, ReleaseRun, ReleaseRunner, ReleaseSpec, ReleaseState, RolloutDriver, RolloutSpec,
        TargetReader,
    },
};
use rollhook_docker::DockerMachine;
use rollhook_testing::beds::Docker;
use serde_json::{Value, json};

use crate::{
    conformance::run,
    fence::{Deploys, Held, lent, patiently, pause},
};

/// The command of a shell.
fn shell(script: &str) -> Vec<String> {
    ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
}

/// The run of this revision's command, with the target and app of a rollout.
fn release(rollout: RolloutSpec, script: &str) -> ReleaseSpec {
    let run = ReleaseRun { app: rollout.app, id: rollout.id.into() };
    ReleaseSpec::new(run, rollout.target, rollout.image, shell(script))
}

async fn prepared(driver: &DockerMachine, spec: &ReleaseSpec) {
    for _ in 0..240 {
        let state = patiently(async || driver.prepare(spec).await).await;
        if state == ReleaseState::Prepared {
            return;
        }
        assert_eq!(state, ReleaseState::Preparing);
        pause().await;
    }
    panic!("the run does not get ready");
}

async fn begun(driver: &DockerMachine, spec: &ReleaseSpec) {
    prepared(driver, spec).await;
    patiently(async || driver.start(&spec.run).await).await;
}

async fn observe(driver: &DockerMachine, spec: &ReleaseSpec) -> ReleaseState {
    patiently(async || ReleaseRunner::observe(driver, &spec.run).await).await
}

async fn until(driver: &DockerMachine, spec: &ReleaseSpec, is: impl Fn(&ReleaseState) -> bool) -> ReleaseState {
    for _ in 0..240 {
        let state = observe(driver, spec).await;
        if is(&state) {
            return state;
        }
        pause().await;
    }
    panic!("the run does not get there");
}

async fn ended(driver: &DockerMachine, spec: &ReleaseSpec) -> ReleaseState {
    until(driver, spec, ReleaseState::is_ended).await
}

async fn failed(driver: &DockerMachine, spec: &ReleaseSpec) -> ReleaseFailure {
    let state = ended(driver, spec).await;
    let ReleaseState::Failed(failure) = state else { panic!("{state:?}") };
    failure
}

async fn log(driver: &DockerMachine, spec: &ReleaseSpec) -> String {
    let log = patiently(async || driver.log(&spec.run, 0).await).await;
    String::from_utf8(log.unwrap_or_default()).unwrap()
}

/// Waits until the command has logged this.
async fn logged(driver: &DockerMachine, spec: &ReleaseSpec, text: &str) {
    for _ in 0..240 {
        if log(driver, spec).await.contains(text) {
            return;
        }
        pause().await;
    }
    panic!("{text} is not logged");
}

/// The containers of an app's runs.
fn runs(docker: &Docker, spec: &ReleaseSpec) -> Vec<Value> {
    let named = format!("name=^/rollhook.release.{}.{}.", spec.run.app.namespace, spec.run.app.name);
    let ids = docker.run(&["ps", "-aq", "--filter", &named]);
    let inspect = |id: &str| -> Value {
        let found: Value = serde_json::from_str(&docker.run(&["container", "inspect", id])).unwrap();
        found[0].clone()
    };
    ids.lines().map(inspect).collect()
}

/// The container of the only run.
fn only(docker: &Docker, spec: &ReleaseSpec) -> Value {
    let mut found = runs(docker, spec);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// The only run of an app that was never started.
fn assert_never_began(docker: &Docker, spec: &ReleaseSpec) {
    assert_eq!(only(docker, spec)["State"]["Status"], "created");
}

/// The rollout of revision 2 of an app with this target.
fn rollout(name: &str, settings: Settings) -> RolloutSpec {
    let id = DeployId { app: AppUid::from_bits(0xa11), revision: samples::revision(2) };
    let target = Target { settings, ..Target::default() };
    RolloutSpec::new(format!("shop-test/{name}").parse().unwrap(), id, target, "app:v2".parse().unwrap())
}

#[test]
fn run_has_what_the_targets_container_has_and_changes_nothing_of_it() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/releases::run_has_what_the_targets_container_has");
    run(async {
        let Some(bed) = lent(case) else { return };
        let (docker, driver) = (&bed.docker, DockerMachine::at(bed.socket()));
        let project = bed.name("shop");
        let name = format!("{project}-web-1");
        let (volume, network, internal) = (bed.name("data"), docker.network(), bed.name("internal"));
        docker.run(&["network", "create", "--internal", &internal]);
        let labels = [format!("com.docker.compose.project={project}"), "com.docker.compose.service=web".to_owned()];
        let labels = ["--label", &labels[0], "--label", &labels[1], "--label", "traefik.enable=true"];
        let networks = ["--network", &network, "--network-alias", "alias-of-app"];
        let host = ["--memory", "64m", "--add-host", "db.test:10.9.8.7", "--log-driver", "none", "-e", "MODE=test"];
        let data = format!("{volume}:/shared");
        docker
            .run(&[&["run", "-d", "--name", &name, "-v", &data], &labels[..], &networks, &host, &["app:v1"]].concat());
        docker.run(&["network", "connect", &internal, &name]);
        let found = || {
            let mut found = bed.inspect(&name).unwrap();
            // A check of its health may be under way.
            found["State"]["Health"] = Value::Null;
            found["ExecIDs"] = Value::Null;
            found
        };
        let before = found();
        let target = json!({"kind": "compose", "name": format!("{project}/web"), "replace": "start-first"});
        let rollout = rollout(&bed.name("web"), samples::settings(target));
        let script = "echo \"$MODE $VERSION $1\" >> /shared/runs; cat /shared/runs; cat /etc/hosts >&2";
        let mut spec = release(rollout.clone(), script);
        spec.command.extend(["migrate", "$HOME *"].map(str::to_owned));

        prepared(&driver, &spec).await;
        let made = only(docker, &spec);
        let joined = made["NetworkSettings"]["Networks"].as_object().unwrap();
        assert!(joined.len() == 2 && joined.contains_key(&network) && joined.contains_key(&internal), "{joined:?}");
        let (labels, joined) = (made["Config"]["Labels"].to_string(), json!(joined).to_string());
        assert!(!["traefik", "compose", "rollhook.target"].iter().any(|name| labels.contains(name)), "{labels}");
        assert!(!joined.contains("alias-of-app"), "{joined}");
        assert_eq!(made["HostConfig"]["Memory"], before["HostConfig"]["Memory"]);

        patiently(async || driver.start(&spec.run).await).await;
        let wanted = docker.run(&["image", "inspect", "--format", "{{.Id}}", "app:v2"]);
        let state = ended(&driver, &spec).await;
        assert_eq!(state, ReleaseState::Succeeded { digest: wanted.trim().parse().ok() });
        let another = DockerMachine::at(bed.socket());
        for driver in [&driver, &another] {
            patiently(async || driver.start(&spec.run).await).await;
            assert_eq!(patiently(async || driver.prepare(&spec).await).await, state);
        }
        let log = log(&another, &spec).await;
        assert!(log.contains("test v2 $HOME *\n") && log.contains("10.9.8.7"), "{log}");
        let runs = docker.run(&["exec", &name, "cat", "/shared/runs"]);
        assert_eq!(runs, "test v2 $HOME *\n", "it ran once");

        assert_eq!(found(), before);
        let image = "app:v1".parse().unwrap();
        let adopted = rollout.with(|spec| (spec.adopted, spec.image) = (true, image));
        let at_rest = patiently(async || driver.at_rest(&adopted).await).await;
        assert_eq!((at_rest.drift, at_rest.seen.instances.map(|instances| instances.wanted)), (None, Some(1)));
    });
}

#[test]
fn run_of_an_app_without_a_container_has_what_that_would_have() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/releases::run_of_an_app_without_a_container");
    run(async {
        let Some(bed) = lent(case) else { return };
        let driver = DockerMachine::at(bed.socket());
        let name = bed.name("web");
        let template = json!({
            "port": 8080, "publish": ["127.0.0.1:1:8080"], "env": {"MODE": "test"}, "network": bed.docker.network(),
            "volumes": [format!("{}:/shared", bed.name("data"))], "labels": {"traefik.enable": "true"},
        });
        let settings = json!({"kind": "container", "name": name, "replace": "stop-first", "template": template});
        let script = "echo \"$MODE $VERSION\" > /shared/runs; cat /shared/runs";
        let spec = release(rollout(&name, samples::settings(settings)), script);
        begun(&driver, &spec).await;
        assert!(matches!(ended(&driver, &spec).await, ReleaseState::Succeeded { .. }));
        assert_eq!(log(&driver, &spec).await, "test v2\n");
        let made = only(&bed.docker, &spec);
        assert!(made["NetworkSettings"]["Networks"][bed.docker.network()].is_object(), "{made}");
        assert!(!made["Config"]["Labels"].to_string().contains("traefik"), "{made}");
        assert_eq!(bed.containers(&name, &["-a"]), Vec::<String>::new(), "nothing was rolled out");
    });
}

#[test]
fn failed_commands_say_how_they_ended() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/releases::failed_commands_say_how_they_ended");
    run(async {
        let Some(bed) = lent(case) else { return };
        let driver = DockerMachine::at(bed.socket());
        let deploys = Deploys::of(bed, &driver).await;
        let exits = release(deploys.spec(2, "app:v2"), "echo began; echo no database >&2; exit 3");
        begun(&driver, &exits).await;
        let failure = failed(&driver, &exits).await;
        assert_eq!((failure.began, failure.reason.as_str()), (true, Reason::RELEASE_FAILED));
        assert_eq!(failure.message, "The release command ended with exit code 3.");
        let mut lines = failure.log;
        // The engine reads the two streams one beside the other.
        lines.sort();
        assert_eq!(lines, ["began", "no database"]);

        let killed = release(deploys.spec(3, "app:v2"), "echo began; sleep 100000");
        begun(&driver, &killed).await;
        logged(&driver, &killed, "began").await;
        let docker = &deploys.bed.docker;
        let running = runs(docker, &killed).into_iter().find(|run| run["State"]["Status"] == "running").unwrap();
        docker.run(&["kill", running["Id"].as_str().unwrap()]);
        let failure = failed(&driver, &killed).await;
        assert!(failure.began && failure.message.contains("SIGKILL"), "{failure:?}");

        let missing = release(deploys.spec(4, "app:v2"), "").with(|spec| spec.command = vec!["/no/migrate".to_owned()]);
        begun(&driver, &missing).await;
        let failure = failed(&driver, &missing).await;
        assert!(!failure.began && failure.message.contains("/no/migrate"), "{failure:?}");
        patiently(async || driver.start(&missing.run).await).await;
        assert_eq!(failed(&DockerMachine::at(deploys.bed.socket()), &missing).await, failure);
        assert_eq!(deploys.running(), ["app:v1"]);
    });
}

#[test]
fn long_log_is_bounded_and_keeps_its_end() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/releases::long_log_is_bounded_and_keeps_its_end");
    run(async {
        let Some(bed) = lent(case) else { return };
        let driver = DockerMachine::at(bed.socket());
        let deploys = Deploys::of(bed, &driver).await;
        let line = "x".repeat(100);
        let script = format!("yes {line} | head -n 150000; echo last; exit 3");
        let spec = release(deploys.spec(2, "app:v2"), &script);
        begun(&driver, &spec).await;
        assert_eq!(failed(&driver, &spec).await.log.last().map(String::as_str), Some("last"));
        let mut log = Vec::new();
        loop {
            let from = log.len().try_into().unwrap();
            let part = patiently(async || driver.log(&spec.run, from).await).await.unwrap();
            if part.is_empty() {
                break;
            }
            log.extend(part);
        }
        assert!((1_000_000..10_000_000).contains(&log.len()), "{} bytes", log.len());
        assert!(log.ends_with(format!("{line}\nlast\n").as_bytes()));
    });
}

#[test]
fn missing_image_ends_a_run_that_never_begins() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/releases::missing_image_ends_a_run_that_never_begins");
    run(async {
        let Some(bed) = lent(case) else { return };
        let driver = DockerMachine::at(bed.socket());
        let deploys = Deploys::of(bed, &driver).await;
        let image = format!("{}/missing:v1", deploys.bed.docker.registry());
        let spec = release(deploys.spec(2, &image), "echo began");
        // It is `Failed` at once where the engine's registry answers before the call returns.
        patiently(async || driver.prepare(&spec).await).await;
        let failure = failed(&driver, &spec).await;
        assert_eq!((failure.began, failure.reason.as_str()), (false, "image-pull-failed"), "{failure:?}");
        assert!(failure.message.contains(&image), "{failure:?}");
        assert_eq!(patiently(async || driver.prepare(&spec).await).await, ReleaseState::Failed(failure));
        assert_eq!(runs(&deploys.bed.docker, &spec), Vec::<Value>::new());
    });
}

#[test]
fn run_that_is_cancelled_before_it_is_ready_never_gets_ready() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/releases::run_that_is_cancelled_before_it_is_ready");
    run(async {
        let Some(bed) = lent(case) else { return };
        let driver = DockerMachine::at(bed.socket());
        let deploys = Deploys::of(bed, &driver).await;
        // No registry listens there, which may pass.
        let spec = release(deploys.spec(2, "127.0.0.1:1/app:v2"), "echo began");
        assert_eq!(patiently(async || driver.prepare(&spec).await).await, ReleaseState::Preparing);
        patiently(async || driver.cancel(&spec.run).await).await;
        let failure = failed(&driver, &spec).await;
        assert_eq!((failure.began, failure.reason.as_str()), (false, Reason::CANCELLED));
        assert_eq!(patiently(async || driver.prepare(&spec).await).await, ReleaseState::Failed(failure));
        assert_eq!(runs(&deploys.bed.docker, &spec), Vec::<Value>::new());
    });
}

#[test]
fn processes_that_prepare_and_start_at_once_run_the_command_once() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/releases::processes_that_prepare_and_start_at_once");
    run(async {
        let Some(bed) = lent(case) else { return };
        let (one, other) = (DockerMachine::at(bed.socket()), DockerMachine::at(bed.socket()));
        let deploys = Deploys::of(bed, &one).await;
        let spec = release(deploys.spec(2, "app:v2"), "echo began");
        tokio::join!(prepared(&one, &spec), prepared(&other, &spec));
        let start = async |driver: &DockerMachine| patiently(async || driver.start(&spec.run).await).await;
        tokio::join!(start(&one), start(&other), start(&one), start(&other));
        assert_eq!(ended(&one, &spec).await, ended(&other, &spec).await);
        assert_eq!(log(&one, &spec).await, "began\n");
        only(&deploys.bed.docker, &spec);
    });
}

#[test]
fn cancelled_run_never_begins() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/releases::cancelled_run_never_begins");
    run(async {
        let Some(bed) = lent(case) else { return };
        let held = Held::new(bed.socket(), "/start");
        let (stopped, other) = (Arc::new(DockerMachine::at(held.socket.clone())), DockerMachine::at(bed.socket()));
        let deploys = Deploys::of(bed, &other).await;
        let spec = release(deploys.spec(2, "app:v2"), "echo began");
        prepared(&stopped, &spec).await;
        let (late, run) = (stopped.clone(), spec.run.clone());
        let starting = tokio::spawn(async move { late.start(&run).await });
        held.waits().await;
        patiently(async || other.cancel(&spec.run).await).await;
        let failure = failed(&other, &spec).await;
        assert_eq!((failure.began, failure.reason.as_str()), (false, Reason::CANCELLED));

        held.release.send_replace(true);
        drop(starting.await.unwrap());
        for driver in [&*stopped, &other] {
            patiently(async || driver.start(&spec.run).await).await;
            patiently(async || driver.cancel(&spec.run).await).await;
            assert_eq!(failed(driver, &spec).await, failure);
            assert_eq!(patiently(async || driver.prepare(&spec).await).await, ReleaseState::Failed(failure.clone()));
        }
        assert_never_began(&deploys.bed.docker, &spec);
    });
}

#[test]
fn start_that_is_late_starts_nothing_again() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/releases::start_that_is_late_starts_nothing_again");
    run(async {
        // The state was read before either; it is of no use by then.
        for step in ["/rename", "/start"] {
            let Some(bed) = lent(case) else { return };
            let held = Held::new(bed.socket(), step);
            let (stopped, other) = (Arc::new(DockerMachine::at(held.socket.clone())), DockerMachine::at(bed.socket()));
            let deploys = Deploys::of(bed, &other).await;
            let spec = release(deploys.spec(2, "app:v2"), "echo began");
            prepared(&other, &spec).await;
            let (late, run) = (stopped.clone(), spec.run.clone());
            let starting = tokio::spawn(async move { late.start(&run).await });
            held.waits().await;
            patiently(async || other.start(&spec.run).await).await;
            let state = ended(&other, &spec).await;
            let started_at = only(&deploys.bed.docker, &spec)["State"]["StartedAt"].clone();

            held.release.send_replace(true);
            drop(starting.await.unwrap());
            for _ in 0..8 {
                assert_eq!(observe(&stopped, &spec).await, state, "{step}");
                pause().await;
            }
            assert_eq!(log(&other, &spec).await, "began\n", "{step}");
            assert_eq!(only(&deploys.bed.docker, &spec)["State"]["StartedAt"], started_at, "{step}");
        }
    });
}

#[test]
fn running_command_is_ended_by_a_cancel() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/releases::running_command_is_ended_by_a_cancel");
    run(async {
        let Some(bed) = lent(case) else { return };
        let driver = DockerMachine::at(bed.socket());
        let deploys = Deploys::of(bed, &driver).await;
        for (revision, trap, last) in [(2, "echo rolled back; exit 0", "rolled back"), (3, "", "began")] {
            let script = format!("trap '{trap}' TERM; echo began; while true; do sleep 100000 & wait; done");
            let spec = release(deploys.spec(revision, "app:v2"), &script);
            begun(&driver, &spec).await;
            logged(&driver, &spec, "began").await;
            // The process that cancels goes before the command has ended; the next one goes on.
            let cancels = DockerMachine::at(deploys.bed.socket());
            patiently(async || cancels.cancel(&spec.run).await).await;
            drop(cancels);
            let failure = failed(&driver, &spec).await;
            assert_eq!((failure.began, failure.reason.as_str()), (true, Reason::CANCELLED), "{failure:?}");
            assert_eq!(failure.log.last().map(String::as_str), Some(last), "{failure:?}");
        }
    });
}

#[test]
fn restart_of_the_engine_starts_nothing_and_loses_nothing() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/releases::restart_of_the_engine_starts_nothing_and_loses_nothing");
    run(async {
        let docker = match Docker::own() {
            Ok(docker) => docker,
            Err(reason) => {
                return report(case, Err(Lack::Skip(reason)));
            }
        };
        let driver = DockerMachine::at(docker.socket());
        docker.run(&["run", "-d", "--name", "web", "--network", &docker.network(), "--restart", "always", "app:v1"]);
        let settings = samples::settings(json!({"kind": "container", "name": "web", "replace": "start-first"}));
        let spec = |revision, script: &str| {
            let rollout = rollout("web", settings.clone());
            release(rollout.with(|spec| spec.id.revision = samples::revision(revision)), script)
        };
        for (revision, outage) in [(2, "stop"), (3, "kill")] {
            let spec = spec(revision, "echo began");
            prepared(&driver, &spec).await;
            docker.control(outage);
            assert!(ReleaseRunner::observe(&driver, &spec.run).await.is_err(), "an engine that is away is no end");
            docker.control("start");
            assert_eq!(observe(&driver, &spec).await, ReleaseState::Prepared);
            patiently(async || driver.start(&spec.run).await).await;
            assert!(matches!(ended(&driver, &spec).await, ReleaseState::Succeeded { .. }));
            assert_eq!(log(&driver, &spec).await, "began\n");
        }
        let spec = spec(4, "echo began; sleep 100000");
        begun(&driver, &spec).await;
        logged(&driver, &spec, "began").await;
        docker.control("stop");
        docker.control("start");
        let failure = failed(&driver, &spec).await;
        assert_eq!((failure.began, failure.reason.as_str()), (true, Reason::RELEASE_FAILED), "{failure:?}");
        patiently(async || driver.start(&spec.run).await).await;
        assert_eq!(failed(&driver, &spec).await, failure);
        assert_eq!(log(&driver, &spec).await, "began\n", "it began once");
    });
}

#[test]
fn old_runs_are_removed() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/releases::old_runs_are_removed");
    run(async {
        let Some(bed) = lent(case) else { return };
        let driver = DockerMachine::at(bed.socket());
        let deploys = Deploys::of(bed, &driver).await;
        let docker = &deploys.bed.docker;
        let mut last = release(deploys.spec(2, "app:v2"), "echo began");
        for revision in 2..=7 {
            last = release(deploys.spec(revision, "app:v2"), "echo began");
            begun(&driver, &last).await;
            ended(&driver, &last).await;
            assert_eq!(runs(docker, &last).len(), usize::try_from(revision - 1).unwrap().min(4), "{revision}");
        }
        let hanging = release(deploys.spec(8, "app:v2"), "echo began; sleep 100000");
        begun(&driver, &hanging).await;
        logged(&driver, &hanging, "began").await;
        let mut app = samples::app("shop", "test", "web");
        (app.id, app.uid) = (last.run.app.clone(), last.run.id.app);
        patiently(async || driver.forget(&app).await).await;
        until(&driver, &hanging, |state| *state == ReleaseState::Unknown).await;
        assert_eq!(runs(docker, &last), Vec::<Value>::new());
        assert_eq!(deploys.running(), ["app:v1"]);
    });
}

#[test]
fn ended_runs_keep_no_image_of_an_old_version() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/releases::ended_runs_keep_no_image_of_an_old_version");
    run(async {
        let Some(bed) = lent(case) else { return };
        let driver = DockerMachine::at(bed.socket());
        let deploys = Deploys::of(bed, &driver).await;
        let docker = &deploys.bed.docker;
        let tag = format!("{}/{}:v1", docker.registry(), deploys.name);
        // An image that no other test has.
        let model = deploys.bed.name("model");
        docker.run(&["create", "--name", &model, "app:v2"]);
        docker.run(&["commit", "--change", "ENV OWN=1", &model, &tag]);
        docker.run(&["rm", &model]);
        docker.run(&["push", &tag]);
        let pushed = docker.run(&["image", "inspect", "--format", "{{index .RepoDigests 0}}", &tag]);
        docker.run(&["rmi", &tag]);
        let pushed = pushed.trim();
        let first = release(deploys.spec(2, pushed), "echo began");
        begun(&driver, &first).await;
        let ReleaseState::Succeeded { digest } = ended(&driver, &first).await else { panic!("it fails") };
        assert_eq!(digest, first.image.digest().cloned());

        let mut app = samples::app("shop", "test", "web");
        (app.id, app.uid) = (first.run.app.clone(), first.run.id.app);
        let stored = driver.stored_images().unwrap();
        let surplus = [first.image.clone()];
        let is_there = || docker.try_run(&["image", "inspect", pushed]).is_some();
        patiently(async || stored.discard(&app, &surplus).await).await;
        assert!(is_there(), "the end of the last run is still to be reported");
        let second = release(deploys.spec(3, "app:v1"), "echo began");
        begun(&driver, &second).await;
        ended(&driver, &second).await;
        patiently(async || stored.discard(&app, &surplus).await).await;
        assert!(!is_there());
        assert_eq!(runs(docker, &first).len(), 1, "the second run is still there");
    });
}
