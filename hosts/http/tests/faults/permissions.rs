//! Rollouts under way while the server's permissions are away: for seconds after its start an API server knows no role
//! and denies everything, and so does one whose RoleBinding is being replaced.

use std::{thread, time::Duration};

use rollhook_testing::{
    App, Call, Start,
    beds::{Fleet, Shared, is_over},
    server, until, usually_or_long,
};
use serde_json::{Value, json};

pub fn an_api_server_that_restarts_fails_no_deploy(shared: Shared, test: &str) {
    let Some(fleet) = Fleet::on_cluster(server!(), shared, test) else { return };
    let replicas = [fleet.replica("first"), fleet.replica("second")];
    let servers = replicas.each_ref().map(Start::run);
    let address = |number: usize| servers[number % servers.len()].address;
    let count = usually_or_long(8, 24);
    let apps: Vec<App> = (0..count).map(|number| fleet.app(address(number), &format!("app{number}"))).collect();
    for (number, app) in apps.iter().enumerate() {
        let body = json!({ "image": "r.example.com/api:gate", "commit": "gate" });
        let call = Call::to(address(number), "POST", &app.hook).header("x-service-token", &app.token);
        assert_eq!(call.json(&body).expect(202).json()["revision"], 2);
    }
    let entry = |app: &App| fleet.history(address(0), app).map(|history| history[1].clone());
    let is_rolling = |entry: Value| entry["status"] == "rolling_out";
    until("all roll out", || apps.iter().all(|app| entry(app).is_some_and(is_rolling)));

    let cluster = fleet.cluster.as_ref().unwrap();
    let restarts = usually_or_long(3, 10);
    for _ in 0..restarts {
        cluster.service("apiserver", "stop");
        cluster.service("apiserver", "start");
        // Several observations of each app, by an API server that may know no role yet.
        until("the store answers", || apps.iter().all(|app| entry(app).is_some()));
    }
    let denials = || servers.iter().map(|server| server.log().matches("waits for a permission").count()).sum::<usize>();
    // An API server that has just started may know no role yet: a rollout that is still denied says so no second time.
    let is_denied = (0..10).any(|_| {
        let before = denials();
        fleet.kubectl().run(&["delete", "rolebinding", "rollhook-apps"]);
        let is_denied = (0..200).any(|_| {
            thread::sleep(Duration::from_millis(50));
            denials() > before
        });
        if !is_denied {
            fleet.kubectl().apply(&fleet.manifests());
            thread::sleep(Duration::from_secs(5));
        }
        is_denied
    });
    assert!(is_denied, "no rollout was denied anything");
    fleet.kubectl().apply(&fleet.manifests());

    for app in &apps {
        until(&format!("{} has its pod", app.name), || {
            fleet.kubectl().open_gate(&app.name);
            entry(app).filter(is_over)
        });
    }
    for app in &apps {
        let history = until("its history is read", || fleet.history(address(0), app));
        let statuses: Vec<&Value> = history.iter().map(|entry| &entry["status"]).collect();
        assert_eq!(statuses, ["succeeded", "succeeded"], "{}: {history:?}", app.name);
    }
    for app in &apps {
        let names = |line: &&str| line.contains("waits for a permission") && line.contains(&format!("/{} ", app.name));
        let lines: usize = servers.iter().map(|server| server.log().lines().filter(names).count()).sum();
        // Once per outage and permission, though it is asked every few seconds.
        assert!(lines <= 3 * (restarts + 1), "{}: {lines} lines", app.name);
    }
}
