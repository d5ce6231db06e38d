//! The configuration of an app from its first variable to the app's deletion, on a real API server and with both stores that go
//! with it: the workload has the values of the revision that the history names, also if the server is killed at any write, and
//! no value is anywhere but in the Secrets that pods read.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::Stdio,
    thread,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rollhook_testing::{
    Call, Connection, Server,
    beds::{Bed, FIRST, Kubectl, is_over},
    fixtures::Receiver,
    process::Running,
    server,
    server::registration_in,
    test_name, until,
};
use serde_json::{Value, json};

use crate::{
    kills::{Moment, Way},
    store::{APP, Place},
    values::{assert_absent, assert_absent_below, key_of, sealed_in, value},
};

/// An app on a server, and its workload.
struct Site<'a> {
    server: &'a mut Server,
    apps: &'a Kubectl,
    path: String,
}

impl Site<'_> {
    fn register(&self, project: &str, environment: &str) {
        self.apps.make("Deployment", "api", FIRST, json!({}));
        let create = registration_in(project, environment, "api", &json!({ "policy": { "settle": "0s" } }));
        self.server.manage("POST", "/api/v1/apps").json(&create).expect(201);
        self.ended(1);
    }

    fn manage(&self, method: &str, rest: &str) -> Call {
        self.server.manage(method, &format!("{}{rest}", self.path))
    }

    /// The call that sets the variable, under a key of its own.
    fn change(&self, value: &str) -> Call {
        let call = self.manage("PATCH", "/config").json(&json!({ "set": { "A": value } }));
        call.header("idempotency-key", key_of(value))
    }

    fn set(&self, value: &str) {
        self.change(value).header("prefer", "wait=30").expect(200);
    }

    fn ended(&self, revision: u64) -> Value {
        let call = self.manage("GET", &format!("/deploys/{revision}")).header("prefer", "wait=50");
        until("the revision exists", || call.send().status != 404);
        (0..6).map(|_| call.expect(200).json()).find(is_over).unwrap()
    }

    fn history(&self) -> Vec<Value> {
        until("the history has ended", || {
            let list = self.manage("GET", "/deploys?limit=200").expect(200).json();
            let entries = list["deploys"].as_array().unwrap().clone();
            entries.iter().all(is_over).then_some(entries)
        })
    }

    fn back(&self, body: &Value) {
        let answer = self.manage("POST", "/rollback").json(body).expect(202).json();
        let entry = self.ended(answer["revision"].as_u64().unwrap());
        assert_eq!(entry["status"], "succeeded", "{entry}");
    }

    fn deploy(&self, image: &str, status: u16) {
        let call = self.manage("POST", "/deploys").json(&json!({ "image": image }));
        call.header("prefer", "wait=50").expect(status);
    }

    /// The value that the pods of the workload start with, and the digits of its configuration.
    fn running(&self) -> (String, String) {
        let workload = self.apps.get("deployment/api");
        let entries = workload["spec"]["template"]["spec"]["containers"][0]["envFrom"].as_array().unwrap().clone();
        let [entry] = &entries[..] else { panic!("{entries:?}") };
        let name = entry["secretRef"]["name"].as_str().unwrap();
        let secret = self.apps.get(&format!("secret/{name}"));
        assert_eq!(secret["metadata"]["uid"], workload["metadata"]["annotations"]["rollhook.dev/configuration-uid"]);
        let value = STANDARD.decode(secret["data"]["A"].as_str().unwrap()).unwrap();
        (String::from_utf8(value).unwrap(), name.strip_prefix("api-config-").unwrap().to_owned())
    }

    /// The objects of a namespace, but for Secrets that pods read.
    fn assert_absent_in(&self, kubectl: &Kubectl) {
        let secrets = kubectl.get("secrets");
        let others: Vec<_> =
            secrets["items"].as_array().unwrap().iter().filter(|secret| secret["immutable"] != true).collect();
        assert_absent("a Secret of the store", json!(others).to_string().as_bytes());
        // What the store keeps is base64 of base64.
        let inner = others.iter().flat_map(|secret| secret["data"].as_object().into_iter().flatten());
        for (name, data) in inner {
            assert_absent(name, &STANDARD.decode(data.as_str().unwrap()).unwrap());
        }
        let kinds = kubectl.run(&["api-resources", "--verbs=list", "--namespaced", "--output=name"]);
        let kinds: Vec<&str> = kinds.lines().filter(|kind| *kind != "secrets").collect();
        let get = ["get", &kinds.join(","), "--output", "json", "--show-managed-fields", "--ignore-not-found"];
        assert_absent("an object", kubectl.run(&get).as_bytes());
    }

    fn assert_absent_in_answers(&self) {
        for rest in ["", "/deploys?limit=200", "/config", "/config?revision=2", "/deploys/2", "/deploys/2/events"] {
            assert_absent(rest, self.manage("GET", rest).send().text().as_bytes());
        }
        for path in ["/metrics", "/api/v1/audit"] {
            assert_absent(path, self.server.manage("GET", path).send().text().as_bytes());
        }
        assert!(self.server.log().contains("TRACE"));
        assert_absent_below(self.server.recipe().directory());
    }

    fn keys(&self, arguments: &[&str]) -> String {
        let mut command = self.server.recipe().command();
        // A store in the cluster is the one of this kubeconfig.
        let kubeconfig = self.server.file("kubeconfig");
        if kubeconfig.exists() {
            command.env("KUBECONFIG", kubeconfig);
        }
        let output = command.arg("keys").args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Goes with the app through all that may become of a configuration, from revision 2 on.
    fn live(&mut self, store: &str, own: &Kubectl) {
        self.set(&value("one"));
        assert_eq!(self.running().0, value("one"));
        // Two people at once, of whom both have seen revision 2.
        let calls = ["left", "right"].map(|person| {
            let body = json!({ "set": { "A": value(person) }, "if_current": 2 });
            let call = self.manage("PATCH", "/config").json(&body);
            (person, thread::spawn(move || call.send()))
        });
        let answers = calls.map(|(person, call)| (person, call.join().unwrap()));
        let (taken, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(_, reply)| reply.status == 202);
        let ([(taken, _)], [(_, refused)]) = (&taken[..], &refused[..]) else { panic!("one of both is taken") };
        let second = value(taken);
        assert_eq!(refused.status, 409, "{}", refused.text());
        assert!(["not-redeployable", "current-changed"].contains(&refused.problem().as_str()), "{}", refused.text());
        assert_eq!(self.ended(3)["status"], "succeeded");
        assert_eq!(self.running().0, second);

        // What crashes is put right with the value before.
        let bad = json!({ "set": { "A": value("bad") }, "staged": true });
        self.manage("PATCH", "/config").json(&bad).expect(200);
        self.deploy("r.example.com/api:crash", 424);
        let restored = self.ended(5);
        assert_eq!((&restored["actor"], &restored["status"]), (&json!("auto"), &json!("succeeded")), "{restored}");
        assert_eq!((self.running().0, self.apps.image("deployment/api")), (second.clone(), FIRST.to_owned()));

        // Without and with the configuration; what waits is dropped by a deploy that fails with it no more.
        self.set(&second);
        self.deploy("r.example.com/api:v2", 200);
        self.back(&json!({ "revision": 2 }));
        assert_eq!((self.running().0, self.apps.image("deployment/api")), (second.clone(), FIRST.to_owned()));
        self.back(&json!({ "revision": 2, "with_config": true }));
        assert_eq!(self.running().0, value("one"));

        // Sealed by a new key, and the old one is gone; the Secrets of pods are made of what the store has.
        let directory = self.server.file("keys");
        let directory = directory.to_str().unwrap();
        let old: Vec<_> = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
        self.keys(&["new", directory]);
        self.server.restart();
        let rotated = self.keys(&["rotate", "--store", store, "--key-dir", directory]);
        assert!(rotated.starts_with("sealed anew: "), "{rotated}");
        for file in old.iter().filter(|file| file.extension().is_some_and(|extension| extension == "key")) {
            fs::remove_file(file).unwrap();
        }
        self.server.restart();
        for secret in self.apps.get("secrets")["items"].as_array().unwrap() {
            if secret["data"]["A"] == STANDARD.encode(&second) {
                self.apps.run(&["delete", "secret", secret["metadata"]["name"].as_str().unwrap()]);
            }
        }
        self.back(&json!({ "revision": 3, "with_config": true }));
        assert_eq!(self.running().0, second);

        self.assert_absent_in(self.apps);
        self.assert_absent_in(own);
        self.assert_absent_in_answers();
    }
}

#[test]
fn configuration_in_sqlite_is_put_right_brought_back_and_sealed_anew_and_leaks_nowhere() {
    let collector = Receiver::start();
    let start = server!().arguments(["--otlp-endpoint", &collector.url]);
    let Some(mut bed) = Bed::cluster(start, &test_name!()) else { return };
    let start = bed.server().recipe().unlimited().variable("RUST_LOG", "trace");
    bed.stop();
    let mut server = start.run();
    let database = server.file("rollhook.db");
    let path = format!("/api/v1/apps/{}/api", bed.kubectl.namespace);
    let mut site = Site { server: &mut server, apps: &bed.kubectl, path: path.clone() };
    site.register(&bed.project, &bed.environment);
    site.live(&format!("sqlite:{}", database.display()), &bed.kubectl);
    until("the traces are sent", || collector.sent().len() > 2);
    for sent in collector.sent() {
        assert_absent("a trace", &sent.bytes);
    }
    assert!(sealed_in(&database) > 1);
    server.manage("DELETE", &path).expect(204);
    until("nothing that is sealed is left", || sealed_in(&database) == 0);
    assert_absent_below(server.recipe().directory());
}

#[test]
fn configuration_in_the_cluster_is_put_right_brought_back_and_sealed_anew_and_leaks_nowhere() {
    let Some(place) = Place::make(&test_name!()) else { return };
    let start = place.start.clone().unlimited().variable("HOSTNAME", "replica-1").variable("RUST_LOG", "trace");
    let mut server = start.variable("KUBECONFIG", place.file("kubeconfig")).run();
    let mut site = Site { server: &mut server, apps: &place.apps, path: APP.to_owned() };
    place.apps.run(&["delete", "deployment", "api"]);
    site.register("shop", "test");
    site.live("kubernetes", &place.own);
    assert_removed_with_the_app(&server, &place.apps);
}

/// Asserts that with the app all goes but what its workload needs.
fn assert_removed_with_the_app(server: &Server, apps: &Kubectl) {
    server.manage("DELETE", APP).expect(204);
    until("nothing but Secrets of pods is left", || {
        apps.get("secrets")["items"].as_array().unwrap().iter().all(|secret| secret["immutable"] == true)
    });
    assert_absent_below(server.recipe().directory());
}

/// A proxy to a cluster, on the identity of a kubeconfig.
fn proxy(kubectl: &Kubectl, kubeconfig: &Path) -> (Running, SocketAddr) {
    let mut command = kubectl.command(&["proxy", "--port", "0", "--kubeconfig", kubeconfig.to_str().unwrap()]);
    let mut proxy = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(proxy.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
    (proxy, address)
}

fn write_kubeconfig(file: &Path, address: SocketAddr) {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: way\n\
         clusters: [{{name: way, cluster: {{server: \"http://{address}\"}}}}]\n\
         users: [{{name: way, user: {{}}}}]\n\
         contexts: [{{name: way, context: {{cluster: way, user: way, namespace: rollhook}}}}]\n"
    );
    fs::write(file, text).unwrap();
}

/// Whether a request changes something of apps that is no Event.
fn is_change(line: &str) -> bool {
    let writes = ["POST /", "PUT /", "PATCH /", "DELETE /"].iter().any(|method| line.starts_with(method));
    writes && line.contains("/namespaces/shop-test/") && !line.contains("/events")
}

#[test]
fn server_killed_at_every_other_write_of_a_change_leaves_one_of_the_two_configurations() {
    killed_at_writes(&test_name!(), 0);
}

#[test]
fn server_killed_at_the_writes_between_these_leaves_one_of_the_two_configurations() {
    killed_at_writes(&test_name!(), 1);
}

/// Kills servers before the first write and after each, of which every other one is left out.
fn killed_at_writes(test: &str, first: usize) {
    let Some(place) = Place::make(test) else { return };
    let (_proxy, upstream) = proxy(&place.apps, &place.file("kubeconfig"));
    let (way, address) = Way::lay(upstream, is_change);
    write_kubeconfig(&place.file("way"), address);
    let start = place.start.clone().unlimited().variable("HOSTNAME", "replica-1").variable("RUST_LOG", "trace");
    let mut server = start.variable("KUBECONFIG", place.file("way")).run();
    let site = Site { server: &mut server, apps: &place.apps, path: APP.to_owned() };
    place.apps.run(&["delete", "deployment", "api"]);
    site.register("shop", "test");
    let mut before = value("first");
    site.set(&before);
    let mut kills = Vec::new();
    for moment in Moment::every_other(first) {
        let next = value(&format!("{}-{}", moment.change, moment.is_after));
        way.arm(site.server.pid(), moment);
        let accepted = send(&site, &site.change(&next)).map(|answer| {
            assert_eq!(answer.status, 202, "{}", answer.text());
            let entry = site.manage("GET", &format!("/deploys/{}", answer.json()["revision"]));
            until("the deploy has ended, or the server", || {
                send(&site, &entry).is_none_or(|reply| is_over(&reply.json()))
            });
        });
        if way.disarm() {
            assert_eq!(site.running().0, next, "there are no more writes");
            break;
        }
        site.server.restart();
        let entries = site.history();
        let (runs, digits) = site.running();
        assert!([&before, &next].contains(&&runs), "{moment:?}");
        let current = entries.iter().find(|entry| entry["current"] == true).unwrap();
        assert_eq!(current["configuration"], digits, "{moment:?}: the history says with which");
        assert!(runs == next || accepted.is_none(), "{moment:?}: what was accepted is brought to its end: {current}");
        // The same call again is the same change.
        site.set(&next);
        assert_eq!(site.running().0, next, "{moment:?}");
        before = next;
        kills.push(moment);
    }
    assert!(kills.len() >= 3, "put, commit, Secret and workload: {kills:?}");
    let entries = site.history();
    assert!(entries.iter().all(|entry| entry["status"] == "succeeded"), "{entries:?}");
    let changes = entries.iter().filter(|entry| entry["configures"] == true).count();
    assert_eq!((changes, entries.len()), (kills.len() + 2, kills.len() + 3), "each change is in the history, once");
    let ids: BTreeSet<_> = entries.iter().map(|entry| entry["configuration"].to_string()).collect();
    assert_eq!(ids.len(), entries.len(), "each has its own");

    site.assert_absent_in(site.apps);
    site.assert_absent_in(&place.own);
    site.assert_absent_in_answers();
    assert_removed_with_the_app(&server, &place.apps);
}

/// Sends a call to a server that may be killed meanwhile.
fn send(site: &Site, call: &Call) -> Option<rollhook_testing::Reply> {
    Connection::open(site.server.address).and_then(|mut open| open.send(call)).ok()
}
