use rollhook_core::{deploy::Revision, ports::CheckRun};

use super::*;
use crate::rules::{
    container::{DEPLOY, TARGET},
    samples::{OURS as APP, THEIRS, container, id, with},
};

fn release(app: AppUid, revision: u64) -> ReleaseRun {
    ReleaseRun { app: "shop-test/web".parse().unwrap(), id: id(app, revision).into() }
}

fn run(mark: Mark, status: &str) -> Run {
    let name = name(&release(APP, 2), mark);
    let labels = json!({ RELEASE: id(APP, 2).to_string(), IMAGE: "registry.example.com/web:v2" });
    let found = with(container(&name, status), "/Config/Labels", labels);
    Run::of(&release(APP, 2), found.object).unwrap()
}

fn changed(run: Run, pointer: &str, value: Value) -> Run {
    Run { container: with(run.container, pointer, value), ..run }
}

fn failure(run: &Run) -> ReleaseFailure {
    let state = run.state(None, vec!["no database".to_owned()]);
    let ReleaseState::Failed(failure) = state else { panic!("{state:?}") };
    failure
}

#[test]
fn name_says_how_far_the_run_is() {
    for mark in [Mark::Making, Mark::Ready, Mark::Start(1), Mark::new_start(), Mark::Failed, Mark::Cancelled] {
        assert_eq!(super::mark(&release(APP, 2), &name(&release(APP, 2), mark)), Some(mark));
    }
    // Revision 20 begins like revision 2.
    for other in [name(&release(APP, 20), Mark::Ready), name(&release(THEIRS, 2), Mark::Ready), "web".to_owned()] {
        assert_eq!(super::mark(&release(APP, 2), &other), None, "{other}");
    }
    assert_ne!(Mark::new_start(), Mark::new_start());
}

#[test]
fn label_that_an_image_brought_along_makes_no_run() {
    let labelled = with(container("web", "exited"), "/Config/Labels", json!({ RELEASE: id(APP, 2).to_string() }));
    assert_eq!(Run::of(&release(APP, 2), labelled.object), None);
    let unlabelled = container(&name(&release(APP, 2), Mark::Ready), "created");
    assert_eq!(Run::of(&release(APP, 2), unlabelled.object), None);
}

#[test]
fn run_starts_only_if_it_is_ready_and_never_ran() {
    assert!(run(Mark::Ready, "created").may_start() && run(Mark::Start(3), "created").may_start());
    for status in ["running", "paused", "exited", "dead", "removing"] {
        assert!(!run(Mark::Start(1), status).may_start(), "{status}");
    }
    for mark in [Mark::Making, Mark::Failed, Mark::Cancelled] {
        assert!(!run(mark, "created").may_start(), "{mark:?}");
    }
    let refused = changed(run(Mark::Start(1), "created"), "/State/Error", json!("no such file"));
    assert!(!refused.may_start() && refused.is_unsealed_failure());
    assert!(!run(Mark::Start(1), "created").is_unsealed_failure());
}

#[test]
fn state_of_a_run_that_has_not_begun() {
    let state = |mark| run(mark, "created").state(None, Vec::new());
    assert_eq!(state(Mark::Making), ReleaseState::Preparing);
    assert_eq!(state(Mark::Ready), ReleaseState::Prepared);
    assert_eq!(state(Mark::Start(1)), ReleaseState::Prepared, "the start never arrived, or the engine was down");
    let ended = failure(&run(Mark::Cancelled, "created"));
    assert_eq!((ended.began, ended.reason.as_str()), (false, Reason::CANCELLED));
    let refused = changed(run(Mark::Failed, "created"), "/State/Error", json!("exec: \"/nope\": no such file"));
    let refused = failure(&refused);
    assert_eq!((refused.began, refused.reason.as_str()), (false, Reason::RELEASE_FAILED));
    assert!(refused.message.contains("/nope"), "{}", refused.message);
    assert!(!failure(&run(Mark::Failed, "created")).began, "also once the engine has forgotten why");
}

#[test]
fn state_of_a_run_that_has_begun() {
    for mark in [Mark::Start(1), Mark::Cancelled] {
        assert_eq!(run(mark, "running").state(None, Vec::new()), ReleaseState::Running, "{mark:?}");
    }
    let digest = format!("sha256:{}", "a".repeat(64)).parse().ok();
    let succeeded = run(Mark::Start(1), "exited").state(digest.clone(), Vec::new());
    assert_eq!(succeeded, ReleaseState::Succeeded { digest });
    for status in ["exited", "dead", "removing"] {
        let ended = failure(&run(Mark::Cancelled, status));
        assert_eq!((ended.began, ended.reason.as_str()), (true, Reason::CANCELLED), "{status}, also with exit code 0");
    }
}

#[test]
fn failure_says_how_the_command_ended() {
    let exited = |code: i64| changed(run(Mark::Start(1), "exited"), "/State/ExitCode", json!(code));
    let failed = failure(&exited(1));
    assert_eq!((failed.began, failed.reason.as_str()), (true, Reason::RELEASE_FAILED));
    assert_eq!(failed.message, "The release command ended with exit code 1.");
    assert_eq!(failed.log, ["no database"]);
    assert_eq!(failure(&exited(139)).message, "The release command was ended by SIGSEGV (exit code 139).");
    assert!(failure(&exited(255)).message.contains("machine went down"));
    let memory = changed(exited(137), "/State/OOMKilled", json!(true));
    assert!(failure(&memory).message.contains("out of memory"));
}

#[test]
fn container_that_began_decides_over_one_that_a_late_process_made() {
    let began = run(Mark::Start(1), "exited");
    let of = |others: Vec<Run>| deciding(others).unwrap().mark;
    assert_eq!(of(vec![run(Mark::Ready, "created"), began.clone()]), Mark::Start(1));
    assert_eq!(of(vec![began, run(Mark::Cancelled, "created")]), Mark::Start(1));
    assert_eq!(of(vec![run(Mark::Cancelled, "created"), run(Mark::Ready, "created")]), Mark::Cancelled);
    assert_eq!(of(vec![run(Mark::Ready, "created"), run(Mark::Making, "created")]), Mark::Ready);
}

#[test]
fn run_has_the_targets_environment_and_is_no_instance_of_it() {
    let deploy = json!({
        "Image": "web:v2", "Env": ["DATABASE=db"], "User": "app", "WorkingDir": "/srv", "Hostname": "web", "Tty": true,
        "Entrypoint": ["/app"], "ExposedPorts": {"80/tcp": {}}, "StopSignal": "SIGQUIT",
        "Labels": {TARGET: "container/web", DEPLOY: "a/2", "traefik.enable": "true", "com.docker.compose.service": "web"},
        "HostConfig": {
            "Binds": ["data:/data"], "Memory": 512, "NanoCpus": 5, "ExtraHosts": ["db:10.0.0.1"], "NetworkMode": "shop",
            "SecurityOpt": ["no-new-privileges"], "PortBindings": {"80/tcp": [{"HostPort": "80"}]},
            "RestartPolicy": {"Name": "always"}, "LogConfig": {"Type": "none", "Config": {}},
        },
        "NetworkingConfig": {"EndpointsConfig": {"shop": {
            "Aliases": ["web"], "IPAMConfig": {"IPv4Address": "10.0.0.9"}, "Links": ["db:database"],
        }}},
    });
    let brought = json!({"Labels": {TARGET: "container/other", "traefik.enable": "true", "version": "2"}});
    let image = "registry.example.com/web:v2".parse().unwrap();
    let command = ["/bin/migrate".to_owned(), "--all it takes".to_owned()];
    let made = body(deploy, id(APP, 2).into(), &image, &command, &brought);
    assert_eq!((&made["Entrypoint"], &made["Cmd"]), (&json!(["/bin/migrate"]), &json!(["--all it takes"])));
    assert_eq!(
        (&made["Env"], &made["User"], &made["WorkingDir"]),
        (&json!(["DATABASE=db"]), &json!("app"), &json!("/srv"))
    );
    for left_out in ["Hostname", "ExposedPorts", "Tty"] {
        assert_eq!(made.get(left_out), None, "{left_out}");
    }
    let labels = json!({RELEASE: id(APP, 2).to_string(), IMAGE: image.to_string(), TARGET: "", "traefik.enable": ""});
    assert_eq!(made["Labels"], labels, "what the image brings along is silenced");
    assert_eq!((&made["Healthcheck"], &made["StopSignal"]), (&json!({"Test": ["NONE"]}), &json!("SIGTERM")));
    let host = &made["HostConfig"];
    assert_eq!((&host["PortBindings"], &host["RestartPolicy"]), (&json!({}), &json!({"Name": "no"})));
    assert_eq!((&host["Binds"], &host["Memory"], &host["NanoCpus"]), (&json!(["data:/data"]), &json!(512), &json!(5)));
    assert_eq!((&host["ExtraHosts"], &host["SecurityOpt"]), (&json!(["db:10.0.0.1"]), &json!(["no-new-privileges"])));
    assert_eq!(host["LogConfig"]["Type"], "json-file", "its log can be read");
    let bounds = &host["LogConfig"]["Config"];
    assert_eq!(bounds, &json!({"max-size": "5m", "max-file": "2"}), "it is bounded, and its end stays");
    assert_eq!(made["NetworkingConfig"]["EndpointsConfig"], json!({"shop": {"Links": ["db:database"]}}));
}

/// A container of a run, as the engine lists it.
fn listed(app: AppUid, revision: u64, mark: Mark, state: &str) -> ListedContainer {
    of_list(&format!("{app}-{revision}"), &name(&release(app, revision), mark), state)
}

fn of_list(id: &str, name: &str, state: &str) -> ListedContainer {
    let labels = json!({ "a": ["skipped"] });
    let listed =
        json!({ "Id": id, "Names": [format!("/{name}")], "State": state, "Created": 1_000_000, "Labels": labels });
    serde_json::from_value(listed).unwrap()
}

#[test]
fn run_is_known_by_its_name_in_a_list() {
    let app: AppId = "shop-test/web".parse().unwrap();
    for (text, kind) in [("7", "release"), ("run-7", "run")] {
        let id: RunId = format!("{APP}/{text}").parse().unwrap();
        let run = ReleaseRun { app: app.clone(), id };
        for mark in [Mark::Making, Mark::Ready, Mark::Start(1)] {
            let name = name(&run, mark);
            assert_eq!(named(&name, &app, APP), Some(id), "{kind}");
            let listed = of_list("a", &name, "exited");
            assert!(is_of(&run, &listed) && Listed::of(&listed, &app, APP).is_some_and(|found| found.mark == mark));
            assert!(Listed::of(&listed, &app, THEIRS).is_none(), "of another registration");
        }
    }
    for other in ["web", "rollhook.7-abc", "rollhook.release.shop-test.web.x-1", "rollhook.other.shop-test.web.7-1"] {
        assert_eq!(named(other, &app, APP), None, "{other}");
    }
}

#[test]
fn last_three_ended_runs_of_an_app_stay() {
    let mut all: Vec<ListedContainer> =
        (1..=6).map(|revision| listed(APP, revision, Mark::Start(1), "exited")).collect();
    all.push(listed(THEIRS, 1, Mark::Start(1), "exited"));
    all.push(of_list("other", "web", "exited"));
    assert_eq!(outdated(&all, &release(APP, 7)), [1, 2, 3].map(|revision| format!("{APP}-{revision}")));
    assert_eq!(outdated(&all, &release(APP, 5)), [format!("{APP}-1")], "newer ones count for nothing");
    all[0].state = "running".to_owned();
    assert_eq!(outdated(&all, &release(APP, 5)), Vec::<String>::new());
    let (running, others) = of_app(&all, &release(APP, 1).app, APP);
    assert_eq!((running, others.len()), (vec![format!("{APP}-1")], 5));
}

#[test]
fn ended_run_keeps_its_image_until_a_later_one_has_ended_or_for_two_days() {
    let soon = jiff::Timestamp::from_second(1_000_060).unwrap();
    let first = listed(APP, 1, Mark::Start(1), "exited");
    let app = release(APP, 1).app;
    let spent =
        |others: Vec<ListedContainer>| is_spent(&first, &[others, vec![first.clone()]].concat(), (&app, APP), soon);
    assert!(!spent(Vec::new()));
    assert!(spent(vec![listed(APP, 2, Mark::Start(1), "exited")]));
    assert!(spent(vec![listed(APP, 2, Mark::Cancelled, "created")]));
    assert!(!spent(vec![listed(APP, 2, Mark::Ready, "created"), listed(APP, 3, Mark::Start(1), "running")]));
    assert!(!spent(vec![listed(THEIRS, 2, Mark::Start(1), "exited")]));
    let late = jiff::Timestamp::from_second(1_000_000 + OLD_SECONDS).unwrap();
    assert!(is_spent(&first, &[], (&app, APP), late) && !is_spent(&first, &[], (&app, THEIRS), late));
    assert!(!is_spent(&listed(APP, 1, Mark::Ready, "created"), &[], (&app, APP), late), "it may begin yet");
    assert!(!is_spent(&listed(APP, 1, Mark::Start(1), "running"), &[], (&app, APP), late));
}

#[test]
fn commands_of_checks_are_apart_from_others_and_end_with_a_later_deploy() {
    let of = |revision, number, state: &str| {
        let check = CheckRun::new(Revision::new(revision).unwrap(), number, 1);
        let run = ReleaseRun::of_check(&release(APP, 1).app, APP, check);
        let name = format!("/{}", name(&run, Mark::Start(1)));
        let listed =
            json!({"Id": format!("{revision}-{number}"), "Names": [name], "State": state, "Created": 1_000_000});
        (run, serde_json::from_value::<ListedContainer>(listed).unwrap())
    };
    let (run, ready) = of(7, 1, "created");
    let all = vec![of(6, 1, "running").1, of(7, 2, "running").1, of(5, 9, "exited").1, ready];
    let soon = jiff::Timestamp::from_second(1_000_060).unwrap();
    assert_eq!(abandoned(&all, &run, soon), ["6-1"]);
    assert_eq!(abandoned(&all, &release(APP, 7), soon), ["6-1"]);
    assert_eq!(abandoned(&all, &release(APP, 6), soon), Vec::<String>::new());
    let late = jiff::Timestamp::from_second(1_000_000 + CHECK_SECONDS + 1).unwrap();
    assert_eq!(abandoned(&all, &release(APP, 6), late), ["6-1", "7-2"], "none takes so long");
    let many: Vec<_> = (1..=6).map(|number| of(6, number, "exited").1).collect();
    assert_eq!(outdated(&many, &run), ["6-1", "6-2", "6-3"]);
    assert_eq!(outdated(&many, &release(APP, 9)), Vec::<String>::new());
}
