//! Pages with what is hostile, absent or not permitted in them.

use rollhook_api::{App, Deploy, DeployList};
use rollhook_core::{deploy::Revision, time::Timestamp};
use serde_json::{Value, json};

use super::deploys::{Read, part};
use crate::{host::Permissions, tests::MACHINE, view::Frame};

const HOSTILE: &str = "<script>alert(1)</script>\u{1b}[31m\u{202e}\"'&";

pub(super) fn deploy(revision: u64, more: Value) -> Deploy {
    let mut deploy = json!({
        "namespace": "shop-test", "app": "api", "revision": revision, "image": "registry.example.com/shop/api:1.0.0",
        "commit": "4f1a77b", "trigger": "webhook", "actor": "ci", "status": "succeeded", "current": false,
        "on_cluster": false, "adopted": false, "effective": revision, "step": 2, "created_at": "2026-01-02T03:04:00.000Z",
        "updated_at": "2026-01-02T03:04:01.000Z", "url": "/"
    });
    deploy.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(deploy).unwrap()
}

pub(super) fn app(more: Value) -> App {
    let mut app = json!({
        "namespace": "shop-test", "app": "api", "project": "shop", "environment": "test", "uid": "1",
        "source": { "kind": "image" }, "workload": { "kind": "Deployment", "name": "api" },
        "policy": { "on_failure": "restore", "hold": "automatic", "settle": "10s", "rollout_deadline": "10m",
            "build_deadline": "30m", "repositories": [] },
        "holds": [], "current": null, "on_cluster": null, "unfinished": [], "created_at": "2026-01-02T03:00:00.000Z"
    });
    app["source"] = serde_json::to_value(rollhook_core::app::Source::Image).unwrap();
    app.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(app).unwrap()
}

fn rendered(app: App, deploys: Vec<Deploy>, may: Permissions) -> String {
    rendered_of(app, deploys, may, true)
}

fn rendered_of(app: App, deploys: Vec<Deploy>, may: Permissions, can_scale: bool) -> String {
    let unfinished = deploys.iter().filter(|deploy| !deploy.status.is_terminal()).cloned().collect();
    let read = Read { app, list: DeployList { deploys, next: None }, unfinished, can_scale };
    let now = Timestamp::from_millis(1_767_323_045_678);
    part(&read, &Frame { may, targets: MACHINE, ..Frame::signed_out(now) })
}

#[test]
fn hostile_text_is_shown_as_text() {
    let hostile = deploy(
        2,
        json!({ "image": HOSTILE, "commit": HOSTILE, "actor": HOSTILE, "status": "failed", "reason": HOSTILE,
            "message": HOSTILE, "on_cluster": true }),
    );
    let drift = json!({ "image": HOSTILE, "message": HOSTILE });
    let degraded = json!({ "reason": HOSTILE, "message": HOSTILE, "since": "2026-01-02T03:04:05.678Z" });
    let page = rendered(
        app(
            json!({ "drift": drift, "degraded": degraded, "on_cluster": hostile.clone(), "workload": { "kind": HOSTILE, "name": HOSTILE } }),
        ),
        vec![hostile, deploy(1, json!({}))],
        Permissions::of(|_| true),
    );
    for raw in ["<script", "\u{1b}", "\u{202e}", "\"'&\""] {
        assert!(!page.contains(raw), "{raw:?}: {page}");
    }
    assert!(page.contains("&#60;script&#62;alert(1)&#60;/script&#62;\\u{1b}[31m\\u{202e}&#34;&#39;&#38;"), "{page}");
}

#[test]
fn a_viewer_sees_the_history_and_no_actions() {
    let deploys = || {
        vec![
            deploy(3, json!({ "status": "rolling_out", "on_cluster": true })),
            deploy(2, json!({ "current": true })),
            deploy(1, json!({})),
        ]
    };
    let viewer = rendered(app(json!({ "unfinished": [3] })), deploys(), Permissions::default());
    assert!(viewer.contains("id=\"r3\"") && viewer.contains("current"));
    for action in ["rollback?to=", "/cancel", "/deploy\"", "/redeploy", "/stop\"", "/start\"", "release-hold"] {
        assert!(!viewer.contains(action), "{action}: {viewer}");
    }
    let deployer = rendered(
        app(json!({ "unfinished": [3] })),
        deploys(),
        Permissions { may_deploy: true, ..Permissions::default() },
    );
    for action in ["rollback?to=1", "rollback?to=2", "deploys/3/cancel", "/deploy\""] {
        assert!(deployer.contains(action), "{action}");
    }
    assert!(!deployer.contains("rollback?to=3"));
}

#[test]
fn stopped_app_says_so_and_offers_its_start() {
    let may = Permissions { may_deploy: true, ..Permissions::default() };
    let top = || vec![deploy(2, json!({ "current": true, "on_cluster": true }))];
    let of = |more: Value| {
        let newest = json!({ "current": top()[0], "on_cluster": top()[0] });
        let Value::Object(more) = more else { unreachable!() };
        let mut all = newest.as_object().unwrap().clone();
        all.extend(more);
        rendered(app(Value::Object(all)), top(), may)
    };
    let stopped = of(json!({ "stopped": { "since": 2, "by": "ada <x>", "at": "2026-01-01T00:00:00Z" } }));
    assert!(stopped.contains("Stopped since revision 2, by ada &#60;x&#62;"), "{stopped}");
    assert!(stopped.contains("/start\"") && !stopped.contains("/stop\""), "{stopped}");
    let runs = of(json!({}));
    assert!(runs.contains("/stop\"") && !runs.contains("/start\"") && !runs.contains("Stopped since"), "{runs}");
}

#[test]
fn app_that_cannot_be_stopped_offers_its_redeploy_alone() {
    let may = Permissions { may_deploy: true, ..Permissions::default() };
    let runs = deploy(2, json!({ "current": true, "on_cluster": true }));
    let stopped = json!({ "since": 2, "by": "ada", "at": "2026-01-01T00:00:00Z" });
    for more in [json!({}), json!({ "stopped": stopped })] {
        let mut app = app(more);
        (app.current, app.on_cluster) = (Some(runs.clone()), Some(runs.clone()));
        let page = rendered_of(app, vec![runs.clone()], may, false);
        assert!(page.contains("/redeploy\"") && page.contains("/deploy\""), "{page}");
        assert!(!page.contains("/stop\"") && !page.contains("/start\""), "{page}");
    }
}

#[test]
fn the_marks_are_those_of_the_command_line() {
    let restore = json!({ "revision": 4, "to": 2, "image": null, "status": "succeeded" });
    let page = rendered(
        app(json!({})),
        vec![
            deploy(5, json!({ "status": "failed", "on_cluster": true, "reason": "CrashLoopBackOff" })),
            deploy(4, json!({ "current": true, "trigger": "rollback", "actor": "auto", "from": { "revision": 2 } })),
            deploy(3, json!({ "status": "failed", "reason": "ImagePullBackOff", "restore": restore })),
            deploy(2, json!({ "status": "superseded", "reason": "superseded", "superseded_by": 3 })),
            deploy(1, json!({ "status": "cancelled", "commit": null })),
        ],
        Permissions::of(|_| true),
    );
    for told in [
        "on machine",
        "<span class=\"pill\">current</span>",
        "to #2",
        "ImagePullBackOff · put right by #4",
        "by #3",
        "title=\"2026-01-02 03:04:00 UTC\">5 sec ago</time>",
    ] {
        assert!(page.contains(told), "{told}: {page}");
    }
}

#[test]
fn a_rollout_says_what_it_waits_for_and_how_long_it_may_take() {
    let under_way = |more| rendered(app(json!({})), vec![deploy(2, more)], Permissions::of(|_| true));
    let since = "2026-01-02T03:02:05.678Z";
    let progress = json!({ "since": since, "deadline": "2026-01-02T03:14:05.678Z" });
    let page = under_way(json!({ "status": "rolling_out", "progress": progress }));
    assert!(page.contains(">2 min 0 s</span>"), "it counts from the begin of the step: {page}");
    assert!(
        page.contains("until the containers of this revision are ready, and have stayed ready for 10s")
            && page.contains(">10 min</time>"),
        "{page}"
    );
    let progress =
        json!({ "since": since, "ready": 2, "wanted": 4, "message": "2 of 4 new pods are ready, 1 old one is left" });
    let page = under_way(json!({ "status": "rolling_out", "progress": progress }));
    assert!(page.contains("2 of 4 new pods are ready, 1 old one is left.") && !page.contains("data-until"), "{page}");
    let progress =
        json!({ "since": since, "message": "the cluster does not answer", "deadline": "2026-01-02T03:19:05.678Z" });
    let page = under_way(json!({ "status": "rolling_out", "progress": progress }));
    assert!(page.contains("The cluster does not answer.") && page.contains(">15 min</time>"), "{page}");
    assert!(under_way(json!({ "status": "queued" })).contains("The deploy waits for its turn."));
    assert!(under_way(json!({ "status": "building", "image": null })).contains("The image is being built."));
}

#[test]
fn release_step_is_shown_for_apps_with_a_release_command() {
    let under_way = |policy, more| {
        let mut app = app(json!({}));
        app.policy.release_command = policy;
        rendered(app, vec![deploy(2, more)], Permissions::of(|_| true))
    };
    let step = |state: &str| format!("<li class=\"{state}\"");
    let command = || vec!["migrate".to_owned()];
    let without = under_way(Vec::new(), json!({ "status": "rolling_out" }));
    assert!(!without.contains(">Release<"), "{without}");
    let queued = under_way(command(), json!({ "status": "queued" }));
    assert!(queued.contains(&format!("{}>Release<", step("later"))), "{queued}");
    let preparing = under_way(Vec::new(), json!({ "status": "releasing" }));
    assert!(preparing.contains("The new image is made ready to run the release command."), "{preparing}");
    let releasing = under_way(Vec::new(), json!({ "status": "releasing", "release": "may-have-run" }));
    assert!(releasing.contains(&format!("{} aria-current=\"step\">Release<", step("now"))), "{releasing}");
    assert!(releasing.contains("The release command runs with the new image."), "{releasing}");
    let rolling = under_way(Vec::new(), json!({ "status": "rolling_out", "release": "done" }));
    assert!(rolling.contains(&format!("{}>Release<", step("done"))), "{rolling}");
    let back = under_way(command(), json!({ "status": "rolling_out", "trigger": "rollback" }));
    assert!(!back.contains(">Release<"), "{back}");
}

#[test]
fn rollback_page_names_the_release_commands_since_its_target() {
    let at = |minute| format!("2026-01-02T03:{minute:02}:00.000Z");
    let released: Vec<_> = (3..10).map(|revision| json!({ "revision": revision, "at": at(revision) })).collect();
    let app = app(json!({ "released": released }));
    let since = |revision| super::rollback::released(&app, Revision::new(revision).unwrap());
    assert_eq!(since(9), None);
    assert_eq!(since(8).unwrap(), "The release command of #9 ran, or may have run, since 2026-01-02T03:09:00Z.");
    assert_eq!(
        since(6).unwrap(),
        "The release commands of #9, #8 and #7 ran, or may have run, since 2026-01-02T03:07:00Z."
    );
    assert_eq!(
        since(1).unwrap(),
        "The release commands of #9, #8, #7, #6, #5 and 2 more ran, or may have run, since 2026-01-02T03:03:00Z."
    );
}
