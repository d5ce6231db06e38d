//! A whole release whose migration writes into a real PostgreSQL, in real containers: whatever becomes of servers and of the
//! API server meanwhile, each deploy's migration begins once.

use std::process::{Command, Stdio};

use rollhook_testing::{
    App, Server,
    beds::{Bed, Postgres, is_over, service},
    free_address,
    process::Running,
    server, skip, test_name, until,
};
use serde_json::{Value, json};

use crate::{
    containers::{answers, push},
    workloads::{images, release, stamps},
};

/// The database of an app, which pods reach on the node's bridge.
pub(crate) struct Database {
    server: Postgres,
    from_pods: String,
    _forward: Running,
}

impl Database {
    pub(crate) fn own(test: &str) -> Option<Postgres> {
        Postgres::own().inspect_err(|reason| skip(test, reason)).ok()
    }

    pub(crate) fn reached_from(server: Postgres, bed: &Bed) -> Self {
        let url = server.url("url").unwrap();
        let (credentials, place) = url.split_once('@').unwrap();
        let (address, database) = place.split_once('/').unwrap();
        let printed = bed.kubectl.setting("REGISTRY");
        let gateway = printed.split(':').next().unwrap();
        let port = free_address().port();
        let mut forward = Command::new(format!("{}/forward", bed.kubectl.setting("PROGRAMS")));
        let forward = forward.args([&format!("{gateway}:{port}"), address]).stdout(Stdio::null()).spawn().unwrap();
        let from_pods = format!("{credentials}@{gateway}:{port}/{database}?sslmode=disable");
        Self { server, from_pods, _forward: Running(forward) }
    }

    /// Lets the app's next deploys run a migration of this name.
    pub(crate) fn migrates(&self, bed: &Bed, app: &App, tag: &str, name: &str) {
        let command = [&format!("/app-{tag}"), "migrate", "records", &self.from_pods, name];
        bed.manage("PATCH", &app.path).json(&json!({ "policy": { "release_command": command } })).expect(200);
    }

    /// Returns what the app's migrations have recorded, such as `7 v2 t`; nothing before the first one.
    pub(crate) fn migrations(&self) -> Vec<String> {
        let rows = self.execute("SELECT name || ' ' || version || ' ' || done FROM app_migrations ORDER BY name::int");
        rows.lines().map(str::to_owned).collect()
    }

    /// Executes a statement, and returns what it prints.
    pub(crate) fn execute(&self, statement: &str) -> String {
        let output = Command::new("psql").args([&self.server.url("url").unwrap(), "-Atc", statement]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn has(&self, migration: &str) -> bool {
        self.migrations().iter().any(|row| row == migration)
    }
}

/// The points of a deploy at which its server is killed.
const POINTS: [&str; 8] = [
    "it is accepted",
    "it is releasing",
    "its command may have begun",
    "the migration has begun",
    "the migration is done",
    "web is being rolled out",
    "the worker is being rolled out",
    "the cron job is rolled out",
];

#[test]
fn server_that_is_killed_at_eight_points_of_a_release_migrates_once() {
    let test = test_name!();
    let Some(database) = Database::own(&test) else { return };
    let Some(mut bed) = Bed::node(server!(), &test, |_| Vec::new()) else { return };
    let database = Database::reached_from(database, &bed);
    let images_of = ["v1", "v2"].map(|tag| push(&bed, &format!("app:{tag}"), &format!("app-{tag}")).0);
    let app = release(&bed, &images_of[0]);
    let mut expected = Vec::new();
    for (revision, point) in (2..).zip(POINTS) {
        let (tag, image) = [("v1", &images_of[0]), ("v2", &images_of[1])][usize::from(revision % 2 == 0)];
        let name = revision.to_string();
        database.migrates(&bed, &app, tag, &name);
        bed.post(&app, image).expect(202);
        let carries =
            |index: usize| stamps(&bed)[index].as_str().is_some_and(|stamp| stamp.ends_with(&format!("/{name}")));
        until(point, || match point {
            "it is accepted" => true,
            "it is releasing" => bed.entry(&app, revision)["status"] != "queued",
            "its command may have begun" => bed.entry(&app, revision)["release"] != Value::Null,
            "the migration has begun" => database.has(&format!("{name} {tag} false")),
            "the migration is done" => database.has(&format!("{name} {tag} true")),
            "web is being rolled out" => carries(0),
            "the worker is being rolled out" => carries(1),
            _ => carries(2),
        });
        bed.kill_and_restart();
        let ended = bed.await_revision(&app, revision);
        assert_eq!((&ended["status"], &ended["release"]), (&json!("succeeded"), &json!("done")), "{point}: {ended}");
        expected.push(format!("{name} {tag} true"));
        assert_eq!(database.migrations(), expected, "{point}");
        let stamped = stamps(&bed);
        assert!(stamped.iter().all(|stamp| *stamp == stamped[0]), "{point}: {stamped:?}");
        assert_eq!(images(&bed), [tag; 3], "{point}");
    }
}

#[test]
fn other_replica_takes_over_while_the_api_server_is_away_and_migrates_no_second_time() {
    let test = test_name!();
    let Some(database) = Database::own(&test) else { return };
    let start = server!().make("keys").make("admin-token").store(&database.url("url").unwrap());
    let Some(mut bed) = Bed::sole_on_node(start, &test) else { return };
    let database = Database::reached_from(database, &bed);
    let [v1, v2] = ["v1", "v2"].map(|tag| push(&bed, &format!("app:{tag}"), &format!("app-{tag}")).0);
    let app = release(&bed, &v1);
    let second = bed.server().recipe().at(free_address()).log_to("second.log").run();
    let shown = |server: &Server| server.manage("GET", &format!("{}/deploys/2", app.path)).expect(200).json();

    database.migrates(&bed, &app, "v2", "2");
    bed.post(&app, &v2).expect(202);
    until("the migration has begun", || database.has("2 v2 false"));
    service(&bed.kubectl.state, "apiserver", "stop");
    bed.stop();
    // It ends while nobody can look.
    until("the migration is done", || database.has("2 v2 true"));
    until("the other replica waits for the cluster", || shown(&second)["progress"].to_string().contains("cluster"));
    assert!(!is_over(&shown(&second)), "{}", shown(&second));
    service(&bed.kubectl.state, "apiserver", "start");

    let ended = until("it has ended", || Some(shown(&second)).filter(is_over));
    assert_eq!((&ended["status"], &ended["release"]), (&json!("succeeded"), &json!("done")), "{ended}");
    assert_eq!((database.migrations(), images(&bed)), (vec!["2 v2 true".to_owned()], vec!["v2".to_owned(); 3]));
    assert_eq!(answers(&bed, "web"), ["version=v2"]);
}

#[test]
fn apps_of_one_database_migrate_one_at_a_time() {
    let test = test_name!();
    let Some(database) = Database::own(&test) else { return };
    let Some(mut bed) = Bed::node(server!(), &test, |_| Vec::new()) else { return };
    let database = Database::reached_from(database, &bed);
    let [v1, v2] = ["v1", "v2"].map(|tag| push(&bed, &format!("app:{tag}"), &format!("app-{tag}")).0);
    let apps = ["web", "office"].map(|name| {
        bed.kubectl.make("Deployment", name, &v1, json!({}));
        let workload = json!({ "kind": "Deployment", "name": name });
        bed.register(name, json!({ "workload": workload, "policy": { "settle": "1s", "release_group": "orders" } }))
    });
    database.migrates(&bed, &apps[0], "v2", "1");
    database.migrates(&bed, &apps[1], "v2", "2");
    bed.post(&apps[0], &v2).expect(202);
    until("the first one's step has begun", || bed.entry(&apps[0], 2)["status"] == "releasing");
    bed.post(&apps[1], &v2).expect(202);
    until("the second one waits", || {
        let message = bed.entry(&apps[1], 2)["progress"]["message"].to_string();
        message.contains("waits for the release command of web, revision 2")
    });
    bed.kill_and_restart();
    until("the second migration has begun", || {
        let rows = database.migrations();
        let has_begun = rows.len() == 2;
        assert!(!has_begun || rows[0] == "1 v2 true", "{rows:?}");
        has_begun
    });
    for app in &apps {
        assert_eq!(bed.await_revision(app, 2)["status"], "succeeded");
    }
    assert_eq!(database.migrations(), ["1 v2 true", "2 v2 true"]);
}
