use rollhook_core::{
    app::Settings,
    deploy::{ReleaseMark, Revision, Status, Trigger},
};
use serde_json::json;

use super::*;
use crate::history::tests::{NOW, PLAIN, entry};

fn settings(object: Value) -> Settings {
    serde_json::from_value(object).unwrap()
}

pub(crate) fn app() -> App {
    App {
        namespace: "shop-test".to_owned(),
        app: "api".to_owned(),
        project: "shop".to_owned(),
        environment: "test".to_owned(),
        uid: "0123456789abcdef0123456789abcdef".to_owned(),
        source: Source::Image,
        workload: settings(json!({ "kind": "Deployment", "name": "api", "containers": ["api", "worker"] })),
        template: settings(json!({ "env": ["MODE", "TOKEN"], "network": "shop", "port": 8080 })),
        policy: Policy::of(&rollhook_core::app::Policy::default()),
        locks: Vec::new(),
        requirements: Vec::new(),
        holds: vec![Hold {
            by: Revision::new(3).unwrap(),
            image: Some("registry.example.com/api:badbad1".parse().unwrap()),
            digest: None,
            commit: None,
        }],
        current: Some(rollhook_api::Deploy { current: true, ..entry(3, "abc123f", Status::Succeeded, 7200) }),
        on_cluster: Some(rollhook_api::Deploy { on_cluster: true, ..entry(4, "def456a", Status::Failed, 600) }),
        newest: Some(entry(6, "fedcba9", Status::Queued, 60)),
        unfinished: vec![Revision::new(5).unwrap(), Revision::new(6).unwrap()],
        stopped: None,
        highest_sequence: None,
        drift: None,
        references: None,
        degraded: None,
        workloads: Vec::new(),
        released: Vec::new(),
        workload_image: None,
        polling: None,
        warning: None,
        notes: Vec::new(),
        created_at: NOW,
    }
}

#[test]
fn lists_and_details() {
    let well =
        App { app: "web".to_owned(), on_cluster: app().current, unfinished: Vec::new(), holds: Vec::new(), ..app() };
    let fresh = App { app: "new".to_owned(), current: None, on_cluster: None, ..app() };
    let apps = [app(), well, fresh];
    for width in [48, 80, 120] {
        let list = table(&apps, NOW, Style { width: Some(width), ..PLAIN });
        assert!(list.lines().all(|line| line.chars().count() <= width) && list.contains("api:abc123f"), "{list}");
    }
    insta::assert_snapshot!("list", table(&apps, NOW, PLAIN));
    insta::assert_snapshot!("list_wide", wide(&apps, PLAIN));
    insta::assert_snapshot!("details", details(&apps[0], NOW));
}

#[test]
fn newest_deploy_that_failed_in_its_build_is_told_beside_the_current_one() {
    let failed = rollhook_api::Deploy {
        image: None,
        reason: Some("build-failed".to_owned()),
        ..entry(4, "def456a", Status::Failed, 600)
    };
    let current = app().current;
    let on_cluster = current.clone().map(|deploy| rollhook_api::Deploy { on_cluster: true, ..deploy });
    let fresh = App {
        app: "new".to_owned(),
        current: None,
        on_cluster: None,
        newest: Some(failed),
        unfinished: Vec::new(),
        ..app()
    };
    let well = App { app: "api".to_owned(), current, on_cluster, ..fresh.clone() };
    let list = table(&[well.clone(), fresh], NOW, PLAIN);
    assert!(list.contains("api:abc123f  2 hours ago (4 failed: build-failed)"), "{list}");
    assert!(list.contains("new  -   -                                 - (4 failed: build-failed)"), "{list}");
    let details = details(&well, NOW);
    assert!(
        details.contains("\nNewest            revision 4, commit def456a, 10 min ago (failed: build-failed)\n"),
        "{details}"
    );
}

#[test]
fn app_whose_last_deploy_was_put_right_is_marked() {
    let current = app().current.map(|deploy| rollhook_api::Deploy {
        trigger: Trigger::Rollback,
        actor: "auto".to_owned(),
        ..deploy
    });
    let restored = App { on_cluster: current.clone(), current, newest: None, unfinished: Vec::new(), ..app() };
    let list = table(std::slice::from_ref(&restored), NOW, PLAIN);
    assert!(list.contains("2 hours ago (restored after a failure"), "{list}");
    let details = details(&restored, NOW);
    assert!(details.contains("2 hours ago, restored after a failure\n"), "{details}");
}

#[test]
fn what_is_known_of_a_source() {
    let head = Some("def456a0".repeat(5));
    let read = Polling { at: NOW, since: NOW, head, held_by: None, error: None };
    let held = Polling { held_by: Revision::new(7), ..read.clone() };
    let error = Some("https://git.example.com/api.git did not answer in time".to_owned());
    let away = Polling { head: None, error, ..read.clone() };
    let later = Timestamp::from_millis(NOW.as_millis() + 130_000);
    assert_eq!(polled(&read, later), "last read 2 min ago: def456a");
    assert_eq!(polled(&held, later), "last read 2 min ago: def456a, held since rollback 7");
    let told = polled(&away, later);
    assert!(told.starts_with("cannot be read since 2 min ago") && told.ends_with("did not answer in time"), "{told}");
    let app = App { polling: Some(read), warning: Some("Choose one.".to_owned()), ..app() };
    let shown = details(&app, later);
    assert!(
        shown.contains("\nPolling           last read") && shown.contains("\nWarning           Choose one.\n"),
        "{shown}"
    );
}

#[test]
fn settings_of_another_driver_are_shown_as_they_are() {
    let app = App { workload: settings(json!({ "directory": "/srv/api" })), ..app() };
    assert_eq!(workload(&app), r#"{"directory":"/srv/api"}"#);
}

#[test]
fn documents() {
    insta::assert_snapshot!("json", crate::output::json(&app()).unwrap());
    insta::assert_snapshot!("yaml", crate::output::yaml(&app()).unwrap());
}

#[test]
fn drift_is_told_in_the_list_and_in_the_details() {
    let image = Some("registry.example.com/shop/api:hotfix".to_owned());
    let drift = Some(rollhook_api::Drift { image, message: "alice set the image".to_owned() });
    let app = App { drift, on_cluster: app().current, unfinished: Vec::new(), ..app() };
    assert!(table(std::slice::from_ref(&app), NOW, PLAIN).contains(":hotfix runs instead)"));
    assert!(details(&app, NOW).contains("Drift             alice set the image"), "{}", details(&app, NOW));
}

#[test]
fn changed_references_are_told_in_the_details() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let changed = names(&["ConfigMap settings", "Secret keys"]);
    let references = Some(rollhook_api::References { changed, unknown: names(&["Secret locked"]) });
    let told = details(&App { references, ..app() }, NOW);
    let lines = "References        Changed since this revision began: ConfigMap settings, Secret keys.\n                  Not known \
                 whether changed since this revision began: Secret locked.\n";
    assert!(told.contains(lines), "{told}");
}

#[test]
fn trouble_is_told_in_the_list_and_in_the_details() {
    let message = "container app of pod api-1: it exited with code 7, 2 restarts".to_owned();
    let since = Timestamp::from_millis(NOW.as_millis() - 180_000);
    let degraded = Some(rollhook_api::Degraded { reason: "CrashLoopBackOff".to_owned(), message, since });
    let app = App { degraded, on_cluster: app().current, unfinished: Vec::new(), ..app() };
    assert!(table(std::slice::from_ref(&app), NOW, PLAIN).contains("degraded: CrashLoopBackOff"));
    let line = "Degraded          CrashLoopBackOff, since 3 min ago: container app of pod api-1: it exited with code 7";
    assert!(details(&app, NOW).contains(line), "{}", details(&app, NOW));
}

#[test]
fn restore_that_recovered_is_no_mark_and_what_was_left_and_recovered_is_one() {
    let failed = rollhook_api::Deploy { recovered_at: Some(NOW), ..app().on_cluster.unwrap() };
    let restore = rollhook_api::Deploy {
        trigger: rollhook_core::deploy::Trigger::Rollback,
        actor: "auto".to_owned(),
        ..failed.clone()
    };
    let app = |on_cluster| App { on_cluster: Some(on_cluster), unfinished: Vec::new(), holds: Vec::new(), ..app() };
    let list = |app: App| table(&[app], NOW, PLAIN);
    assert!(list(app(failed)).contains("4 failed, on cluster, recovered"));
    assert!(!list(app(restore.clone())).contains("failed"), "what runs is current");
    assert!(!details(&app(restore.clone()), NOW).contains("On cluster"));
    assert_eq!(mark(&restore).as_deref(), Some("failed, recovered"));
}

#[test]
fn details_have_the_release_command_and_what_is_known_of_it() {
    let mut app = App { on_cluster: None, newest: None, unfinished: Vec::new(), ..app() };
    assert!(
        details(&app, NOW).contains("Current           revision 3, registry.example.com/api:abc123f, 2 hours ago\n")
    );
    app.policy.release_command = ["bin/rails", "db:migrate", "a b"].map(str::to_owned).to_vec();
    app.current.as_mut().unwrap().release = Some(ReleaseMark::Done);
    let shown = details(&app, NOW);
    assert!(shown.contains(", 2 hours ago; its release command ran\n"), "{shown}");
    assert!(shown.contains("release-command   bin/rails db:migrate 'a b'\n"), "{shown}");
}

#[test]
fn stopped_app_shows_since_when_and_by_whom() {
    let since = Revision::new(5).unwrap();
    let stopped = Some(Stopped { since, by: "ada".to_owned(), at: NOW });
    let app = App { stopped, ..app() };
    assert!(details(&app, NOW).contains("Stopped           since revision 5, by ada, just now\n"));
    assert!(table(&[app], NOW, PLAIN).contains("stopped"));
}
