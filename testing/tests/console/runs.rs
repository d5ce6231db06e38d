//! The pages of commands by hand, and the form of an app's further workloads.

use rollhook_testing::{Server, server};
use serde_json::{Value, json};

use super::Browser;

/// Runs a command to its end, and returns its run.
fn run(server: &Server, path: &str, command: &[&str]) -> Value {
    let begun = server.manage("POST", &format!("{path}/runs")).json(&json!({ "command": command })).expect(201).json();
    let path = format!("{path}/runs/{}", begun["number"]);
    server.manage("GET", &path).header("prefer", "wait=50").expect(200).json()
}

#[test]
fn runs_are_listed_with_their_ends_and_logs_to_all_who_may_read() {
    let server = server!().run();
    let app = server.app_with("api", json!({ "settle": "0s" }));
    let admin = Browser::signed_in(&server);
    assert!(admin.page("/apps/shop-test/api/runs").contains("No command was run by hand yet."));
    let ended = run(&server, &app.path, &["bin/fix", "<b>two</b> words"]);
    assert_eq!((&ended["status"], &ended["exit_code"]), (&json!("succeeded"), &json!(0)), "{ended}");
    let failed = run(&server, &app.path, &["fail"]);
    assert_eq!(failed["status"], "failed", "{failed}");
    let viewer = Browser::of_role(&server, "viewer", "test");
    for browser in [admin, viewer] {
        assert!(browser.page("/apps/shop-test/api").contains("href=\"/apps/shop-test/api/runs\""));
        let list = browser.page("/apps/shop-test/api/runs");
        for told in ["&#60;b&#62;two&#60;/b&#62; words", "succeeded", "failed", "/apps/shop-test/api/runs/2"] {
            assert!(list.contains(told), "{told}: {list}");
        }
        assert!(!list.contains("<b>two") && !list.contains("every 2s"), "{list}");
        let one = browser.page("/apps/shop-test/api/runs/1");
        assert!(one.contains("exit code 0") && one.contains("bin/fix"), "{one}");
        assert!(!browser.page("/apps/shop-test/api/runs/1/log?from=0").contains("<html"));
        assert_eq!(browser.get("/apps/shop-test/api/runs/9").send().status, 404);
    }
}

#[test]
fn further_workloads_are_edited_by_admins() {
    let server = server!().run();
    let app = server.app_with("api", json!({ "settle": "0s" }));
    let browser = Browser::signed_in(&server);
    let settings = browser.page("/apps/shop-test/api/settings");
    assert!(settings.contains("Further workloads") && settings.contains("name=\"workload.also\""), "{settings}");
    let save = |lines| browser.post("/apps/shop-test/api/settings/workloads", &[("workload.also", lines)]).send();
    let refused = save("Deployment");
    assert!(refused.status == 422 && refused.text().contains("Further workloads: "), "{}", refused.text());
    assert!(refused.text().contains(">Deployment</textarea>"), "{}", refused.text());
    assert_eq!(save("").status, 303);
    let shown = server.manage("GET", &app.path).expect(200).json();
    assert!(shown["workload"].get("also").is_none_or(|also| also == &json!([])), "{shown}");
}
