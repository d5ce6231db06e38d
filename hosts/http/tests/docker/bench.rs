//! The real server on a Docker engine.

use std::{
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use rollhook_testing::{
    App, Call, Cli, Reply, Server, Start,
    beds::{Docker, is_over},
    process::beside,
    skip, until,
};
use serde_json::{Value, json};

/// An engine, and a server that deploys to it.
pub(crate) struct Bench {
    pub(crate) docker: Docker,
    pub(crate) server: Server,
    prefix: String,
}

impl Bench {
    /// On the lent engine. Without one, the test is reported as skipped.
    pub(crate) fn lent(start: Start, test: &str) -> Option<Self> {
        Self::on(Docker::lent(), start, test)
    }

    /// On an engine that the test may stop.
    pub(crate) fn own(start: Start, test: &str) -> Option<Self> {
        Self::on(Docker::own(), start, test)
    }

    /// On an engine of its own, whose disk has little room.
    pub(crate) fn small_disk(start: Start, test: &str) -> Option<Self> {
        Self::on(Docker::own_on_small_disk(), start, test)
    }

    fn on(docker: Result<Docker, &'static str>, start: Start, test: &str) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let docker = docker.inspect_err(|reason| skip(test, reason)).ok()?;
        let host = format!("unix://{}", docker.socket().display());
        let start =
            start.driver("docker").variable("DOCKER_HOST", host).variable("RUST_LOG", "info,rollhook_docker=debug");
        let prefix = format!("e{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Some(Self { docker, server: start.run(), prefix })
    }

    /// A name that no other test uses.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// The command line tool on the server.
    pub(crate) fn cli(&self) -> Cli {
        Cli::new(beside(self.server.recipe().program(), "rollhook-cli", "rollhook"))
            .with("ROLLHOOK_SERVER", &format!("http://{}", self.server.address))
            .with("ROLLHOOK_TOKEN", &self.server.admin)
    }

    /// Starts a container as a person does, with these further arguments, and waits until it is healthy.
    pub(crate) fn start(&self, name: &str, further: &[&str], image: &str) {
        let network = self.docker.network();
        let run = ["run", "-d", "--name", name, "--network", &network];
        self.docker.run(&[&run[..], further, &[image]].concat());
        until("the container is healthy", || self.health(name) == "healthy");
    }

    pub(crate) fn inspect(&self, container: &str) -> Option<Value> {
        let found: Value = serde_json::from_str(&self.docker.try_run(&["container", "inspect", container])?).unwrap();
        Some(found[0].clone())
    }

    pub(crate) fn runs(&self, container: &str) -> bool {
        self.inspect(container).is_some_and(|found| found["State"]["Running"] == true)
    }

    fn health(&self, container: &str) -> String {
        let found = self.inspect(container).unwrap_or_default();
        found["State"]["Health"]["Status"].as_str().unwrap_or_default().to_owned()
    }

    /// The names of all containers of an app that exist, running or not.
    pub(crate) fn containers(&self, name: &str) -> Vec<String> {
        let named = format!("name=^/{name}(\\..*)?$");
        let listed = self.docker.run(&["ps", "-a", "--filter", &named, "--format", "{{.Names}}"]);
        listed.lines().map(str::to_owned).collect()
    }

    /// Returns the version that a container serves on its own address.
    pub(crate) fn version(&self, name: &str) -> String {
        let found = self.inspect(name).unwrap_or_else(|| panic!("there is no container {name}"));
        let networks = found["NetworkSettings"]["Networks"].as_object().unwrap();
        let address = networks.values().find_map(|network| network["IPAddress"].as_str()).unwrap().to_owned();
        fetch(&format!("http://{address}:8080/version")).unwrap_or_default()
    }

    /// Registers an app whose deploys settle for a second, waits until it runs, and enables its webhook.
    pub(crate) fn register(&self, name: &str, further: &Value) -> App {
        let mut document = json!({ "policy": { "settle": "1s" } });
        document.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
        let app = self.server.register(name, &document);
        let first = self.ended(&app, 1);
        assert_eq!(first["status"], "succeeded", "{first}");
        app
    }

    /// CI's call for an image, repeated until the deploy has ended.
    pub(crate) fn deploy(&self, app: &App, image: &str) -> Reply {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let key = format!("deploy-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.post(app, image).header("idempotency-key", &key).repeat()
    }

    pub(crate) fn post(&self, app: &App, image: &str) -> Call {
        self.server.post(app, &json!({ "image": image, "commit": "abc" }))
    }

    pub(crate) fn succeeds(&self, app: &App, image: &str) -> Value {
        let reply = self.deploy(app, image);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    pub(crate) fn fails(&self, app: &App, image: &str) -> Value {
        let reply = self.deploy(app, image);
        assert_eq!(reply.status, 424, "{}", reply.text());
        let revision = reply.json()["deploy"]["revision"].as_u64().unwrap();
        self.entry(app, revision)
    }

    pub(crate) fn roll_back(&self, app: &App) -> Value {
        let answer = self.server.manage("POST", &format!("{}/rollback", app.path)).expect(202).json();
        let entry = self.ended(app, answer["revision"].as_u64().unwrap());
        assert_eq!(entry["status"], "succeeded", "{entry}");
        entry
    }

    pub(crate) fn entry(&self, app: &App, revision: u64) -> Value {
        self.server.manage("GET", &format!("{}/deploys/{revision}", app.path)).expect(200).json()
    }

    /// Returns an entry of the history once it is there and has ended.
    pub(crate) fn ended(&self, app: &App, revision: u64) -> Value {
        let call = self.server.manage("GET", &format!("{}/deploys/{revision}", app.path)).header("prefer", "wait=50");
        until(&format!("revision {revision} exists"), || call.send().status != 404);
        let ended = (0..6).map(|_| call.expect(200).json()).find(is_over);
        ended.unwrap_or_else(|| panic!("revision {revision} does not end: {}", self.entry(app, revision)))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.docker.try_run(&["ps", "-a"]).unwrap_or_default());
        }
        // The server first, or it would put right what is removed.
        self.server.down();
        for (list, remove) in [(["ps", "-aq"], ["rm", "-fv"]), (["volume", "ls"], ["volume", "rm"])] {
            let filter = format!("name={}", self.prefix);
            let quiet = if list[0] == "volume" { "-q" } else { "--no-trunc" };
            let found = self.docker.try_run(&[&list[..], &[quiet, "--filter", &filter]].concat()).unwrap_or_default();
            let found: Vec<&str> = found.lines().collect();
            if !found.is_empty() {
                drop(self.docker.try_run(&[&remove[..], &found].concat()));
            }
        }
    }
}

/// Reads a page with curl; `None` if that fails.
pub(crate) fn fetch(url: &str) -> Option<String> {
    let output = Command::new("curl").args(["-sf", "--max-time", "5", url]).output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

/// Pushes an image of the bed to its registry under this name, and returns the reference with the registry.
pub(crate) fn push(docker: &Docker, image: &str, name: &str) -> String {
    let pushed = format!("{}/{name}", docker.registry());
    docker.run(&["tag", image, &pushed]);
    docker.run(&["push", "-q", &pushed]);
    // As on a machine that has never seen it.
    docker.run(&["rmi", &pushed]);
    pushed
}
