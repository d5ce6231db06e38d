//! A whole release whose migration writes into a real PostgreSQL, in containers of a real engine: whatever becomes of the server
//! and of the engine meanwhile, each deploy's migration begins once.

use std::{fs, process::Command};

use rollhook_testing::{
    App, Call, Connection,
    beds::{Postgres, is_over},
    server, skip, test_name, until, usually_or_long,
};
use serde_json::{Value, json};

use crate::{
    bench::Bench,
    configuration::{is_change, restarted},
    kills::{Moment, Way},
    workloads::made_with,
};

/// The program of the worker, which version v3 breaks.
const WORKER: &str = "[ $VERSION != v3 ] || { echo no queue; exit 3; }; touch /tmp/ready; sleep 1000";
/// The client of the machine, which the containers see.
const CLIENT: &str = "for psql in /usr/lib/postgresql/*/bin/psql; do :; done; exec $psql -Xq -h /database -U postgres -v ON_ERROR_STOP=1";

/// An app of web and worker, with a database that its containers reach.
struct Release {
    bench: Bench,
    database: Postgres,
    web: String,
    worker: String,
    app: App,
}

impl Release {
    fn on(bench: Option<Bench>, test: &str) -> Option<Self> {
        let bench = bench?;
        let database = Postgres::own().inspect_err(|reason| skip(test, reason)).ok()?;
        let [web, worker] = ["web", "worker"].map(|name| bench.name(name));
        let socket = format!("{}:/database", fs::canonicalize(database.state.join("home")).unwrap().display());
        let places = [&*socket, "/usr:/usr:ro", "/lib:/lib:ro", "/lib64:/lib64:ro"].map(|place| ["-v", place]).concat();
        bench.start(&web, &[&["--restart", "unless-stopped"], &*places].concat(), "app:v1");
        let network = bench.docker.network();
        let run = ["run", "-d", "--name", &worker, "--network", &network, "--restart", "unless-stopped", "app:v1"];
        bench.docker.run(&[&run[..], &["sh", "-c", WORKER]].concat());
        let workload = json!({ "kind": "container", "name": web, "also": [format!("container/{worker}")] });
        let policy = json!({ "settle": "1s", "patience": "5s" });
        let app = bench.register(&web, &json!({ "workload": workload, "policy": policy }));
        let release = Self { bench, database, web, worker, app };
        // Without a key: a second run leaves a second row.
        release.execute("CREATE TABLE runs (number serial, name text, version text, done boolean)");
        Some(release)
    }

    /// Lets the app's next deploys run a migration of this name, which takes a while.
    fn migrates(&self, name: &str) {
        let url = self.database.url("url").unwrap();
        let port = url.rsplit(':').next().and_then(|rest| rest.split('/').next()).unwrap();
        let script = format!(
            r#"{CLIENT} -p {port} -c "INSERT INTO runs (name, version, done) VALUES ('{name}', '$VERSION', false)" -c "SELECT pg_sleep(1)" -c "UPDATE runs SET done = true WHERE name = '{name}'""#
        );
        let body = json!({ "policy": { "release_command": ["sh", "-c", script] } });
        self.bench.server.manage("PATCH", &self.app.path).json(&body).expect(200);
    }

    /// Returns the runs of all migrations, such as `7 v2 true`, in their order.
    fn runs(&self) -> Vec<String> {
        let rows = self.execute("SELECT name || ' ' || version || ' ' || done FROM runs ORDER BY number");
        rows.lines().map(str::to_owned).collect()
    }

    /// Executes a statement, and returns what it prints.
    fn execute(&self, statement: &str) -> String {
        let output =
            Command::new("psql").args([&self.database.url("url").unwrap(), "-Atc", statement]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn has(&self, run: &str) -> bool {
        self.runs().iter().any(|row| row == run)
    }

    /// The versions of web and worker, of which no other container is left.
    fn versions(&self) -> [String; 2] {
        [&self.web, &self.worker].map(|name| {
            assert_eq!(self.bench.containers(name), [name.as_str()]);
            assert!(self.bench.runs(name), "{name} is down");
            made_with(&self.bench, name).as_str().unwrap().trim_start_matches("VERSION=").to_owned()
        })
    }

    fn roll_back(&self, body: &Value) -> Call {
        self.bench.server.manage("POST", &format!("{}/rollback", self.app.path)).json(body)
    }

    /// Asserts that a migration that may have been cut off ran at most once, and that the entry says whether it did.
    fn assert_once(&self, name: &str, ended: &Value, when: &str) {
        let runs: Vec<_> = self.runs().into_iter().filter(|run| run.starts_with(&format!("{name} "))).collect();
        let is_unknown = ended["reason"] == "release-unknown";
        match &runs[..] {
            [] => assert!(is_unknown || ended["release"] != "done", "{when}: {ended}"),
            [run] if ended["status"] == "succeeded" => assert!(run.ends_with(" true"), "{when}: {run}, {ended}"),
            [_] => assert!(is_unknown || ended["reason"] == "release-failed", "{when}: {ended}"),
            _ => panic!("{when}: it ran {} times, {ended}", runs.len()),
        }
    }
}

#[test]
fn web_and_worker_are_released_and_restored_together() {
    let test = test_name!();
    let Some(release) = Release::on(Bench::lent(server!(), &test), &test) else { return };
    let Release { bench, app, web, worker, .. } = &release;
    // The same programs under the name of another version.
    let (third, maker) = (format!("{web}:v3"), bench.name("maker"));
    bench.docker.run(&["create", "--name", &maker, "app:v2"]);
    bench.docker.run(&["commit", "--change", "ENV VERSION=v3", &maker, &third]);

    release.migrates("2");
    let succeeded = bench.succeeds(app, "app:v2");
    assert_eq!(bench.entry(app, 2)["release"], "done", "{succeeded}");
    assert_eq!((release.versions(), bench.version(web)), (["v2", "v2"].map(str::to_owned), "v2".to_owned()));

    // A migration that the database refuses in its middle: nothing is touched.
    let containers = || [web, worker].map(|name| bench.inspect(name).unwrap()["Id"].clone());
    let before = containers();
    release.migrates("3");
    release.execute("ALTER TABLE runs ADD CONSTRAINT refused CHECK (version <> 'v3' OR NOT done)");
    let failed = bench.fails(app, &third);
    assert_eq!(failed["reason"], "release-failed", "{failed}");
    assert!(failed["evidence"]["log"].to_string().contains("violates check constraint"), "{failed}");
    assert_eq!(release.runs(), ["2 v2 true", "3 v3 false"]);
    assert_eq!((containers(), release.versions()), (before, ["v2", "v2"].map(str::to_owned)));
    release.execute("ALTER TABLE runs DROP CONSTRAINT refused");

    // A worker that crashes: both are restored, and the migrations are named.
    release.migrates("4");
    let failed = bench.fails(app, &third);
    let message = failed["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("container/{worker}: ")), "{failed}");
    assert!(message.contains(&format!("container/{web} is complete")), "{failed}");
    assert!(message.contains("The release commands of revisions 4, 3 ran"), "{failed}");
    assert!(failed["evidence"]["log"].to_string().contains("no queue"), "{failed}");
    let restored = bench.ended(app, 5);
    assert_eq!((&restored["status"], &restored["actor"]), (&json!("succeeded"), &json!("auto")), "{restored}");
    assert_eq!(release.versions(), ["v2", "v2"]);

    // A rollback past a migration asks first, and then takes both.
    let refused = release.roll_back(&json!({ "revision": 1 })).expect(409);
    assert_eq!(refused.problem(), "release-between");
    release.roll_back(&json!({ "revision": 1, "past_releases": true })).expect(202);
    assert_eq!(bench.ended(app, 6)["status"], "succeeded");
    assert_eq!((release.versions(), bench.version(web)), (["v1", "v1"].map(str::to_owned), "v1".to_owned()));
    let migrated = ["2 v2 true", "3 v3 false", "4 v3 true"];
    assert_eq!(release.runs(), migrated, "neither a restore nor a rollback migrates");
    drop(bench.docker.try_run(&["rm", &maker]));
    drop(bench.docker.try_run(&["rmi", &third]));
}

/// The points of a deploy at which its server is killed.
const POINTS: [&str; 8] = [
    "it is accepted",
    "it is releasing",
    "its command may have begun",
    "the migration has begun",
    "the migration is done",
    "it is rolling out",
    "the new web container is there",
    "the new worker container is there",
];

#[test]
fn server_that_is_killed_at_eight_points_of_a_release_migrates_once() {
    let test = test_name!();
    let Some(mut release) = Release::on(Bench::lent(server!(), &test), &test) else { return };
    let mut expected = Vec::new();
    for (revision, point) in (2..).zip(POINTS) {
        let version = ["v1", "v2"][usize::from(revision % 2 == 0)];
        let name = revision.to_string();
        release.migrates(&name);
        let Release { bench, app, web, worker, .. } = &release;
        bench.post(app, &format!("app:{version}")).expect(202);
        until(point, || match point {
            "it is accepted" => true,
            "it is releasing" => bench.entry(app, revision)["status"] != "queued",
            "its command may have begun" => bench.entry(app, revision)["release"] != Value::Null,
            "the migration has begun" => release.has(&format!("{name} {version} false")),
            "the migration is done" => release.has(&format!("{name} {version} true")),
            "it is rolling out" => bench.entry(app, revision)["status"] == "rolling_out",
            "the new web container is there" => bench.containers(web).len() > 1,
            _ => bench.containers(worker).len() > 1,
        });
        release.bench.server.restart();
        let ended = release.bench.ended(&release.app, revision);
        assert_eq!((&ended["status"], &ended["release"]), (&json!("succeeded"), &json!("done")), "{point}: {ended}");
        expected.push(format!("{name} {version} true"));
        assert_eq!(
            (release.runs(), release.versions()),
            (expected.clone(), [version; 2].map(str::to_owned)),
            "{point}"
        );
    }
}

#[test]
fn server_that_is_killed_at_changes_of_the_engine_migrates_at_most_once() {
    let test = test_name!();
    let Some(mut release) = Release::on(Bench::lent(server!(), &test), &test) else { return };
    let socket = release.bench.server.file("engine.sock");
    let way = Way::lay_to_socket(&release.bench.docker.socket(), &socket, is_change);
    restarted(&mut release.bench, &[("DOCKER_HOST", &format!("unix://{}", socket.display()))]);
    let mut kills = 0;
    for change in (1..60).step_by(usually_or_long(5, 1)) {
        for is_after in usually_or_long(&[change % 2 == 0][..], &[false, true]) {
            let moment = Moment { change, is_after: *is_after };
            let version = ["v1", "v2"][usize::from(release.versions()[0] == "v1")];
            let name = format!("{change}-{is_after}");
            release.migrates(&name);
            let Release { bench, app, .. } = &mut release;
            way.arm(bench.server.pid(), moment);
            let call = bench.post(app, &format!("app:{version}")).header("idempotency-key", &name);
            // An answer that the kill cuts off is asked for again.
            drop(Connection::open(bench.server.address).and_then(|mut open| open.send(&call)));
            let entry = bench.server.manage("GET", &format!("{}/deploys", app.path));
            until("the deploy has ended, or the server", || {
                let listed = Connection::open(bench.server.address).and_then(|mut open| open.send(&entry));
                listed.map_or(true, |listed| listed.json()["deploys"].as_array().unwrap().iter().all(is_over))
            });
            let has_ended = way.disarm();
            bench.server.restart();
            let call = bench.post(app, &format!("app:{version}")).header("idempotency-key", &name);
            let answer = call.repeat().json();
            let number = answer["revision"].as_u64().or(answer["deploy"]["revision"].as_u64()).unwrap();
            let ended = release.bench.ended(&release.app, number);
            release.assert_once(&name, &ended, &format!("{moment:?}"));
            assert_eq!(ended["status"], "succeeded", "{moment:?}: {ended}");
            assert_eq!(release.versions(), [version; 2], "{moment:?}");
            if has_ended {
                assert!(kills >= usually_or_long(2, 20), "{kills}");
                return;
            }
            kills += 1;
        }
    }
    panic!("a release has more changes than that");
}

#[test]
fn engine_that_goes_down_in_a_migration_is_no_reason_for_a_second_one() {
    let test = test_name!();
    let Some(release) = Release::on(Bench::own(server!(), &test), &test) else { return };
    let Release { bench, app, .. } = &release;
    let mut version = "v1";
    for (revision, outage) in [(2, "kill"), (3, "stop")] {
        let name = revision.to_string();
        release.migrates(&name);
        bench.post(app, "app:v2").expect(202);
        until("the migration has begun", || release.has(&format!("{name} v2 false")));
        bench.docker.control(outage);
        bench.docker.control("start");
        let ended = bench.ended(app, revision);
        release.assert_once(&name, &ended, outage);
        if ended["status"] == "succeeded" {
            version = "v2";
        }
        until("both are up", || [&release.web, &release.worker].iter().all(|name| bench.runs(name)));
        assert_eq!(
            (release.runs().len(), release.versions()),
            (usize::try_from(revision - 1).unwrap(), [version; 2].map(str::to_owned)),
            "{ended}"
        );
    }
    // Nothing of that is in the way of the next one.
    release.migrates("4");
    bench.succeeds(app, "app:v2");
    assert!(release.has("4 v2 true"));
    assert_eq!((release.runs().len(), release.versions()), (3, ["v2"; 2].map(str::to_owned)));
}
