//! The whole way with real parts: a push to a git server, CI's call, a build Job that runs the builder image which this
//! repository makes, its image by digest in a registry, and containers of it that tell their version and their commit.

use std::{
    fs,
    io::Write,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    thread,
    time::Duration,
};

use rollhook_testing::{
    App, Reply,
    beds::{Bed, Kubectl, script},
    process::beside,
    server, test_name, until,
};
use serde_json::{Value, json};

/// The node's registries, git server and builder image.
struct Parts {
    registry: String,
    private_registry: String,
    git: String,
    builder: String,
}

/// The parts of the lent node; the builder image is made of the `rollhook-build` that lies beside the server. It is
/// made once for all tests of this process.
fn parts(kubectl: &Kubectl) -> &'static Parts {
    static PARTS: OnceLock<Parts> = OnceLock::new();
    PARTS.get_or_init(|| {
        let variable = |name: &str| {
            let words = format!(". \"$0/env\" && printf %s \"${name}\"");
            let output = Command::new("bash").args(["-c", &words]).arg(&kubectl.state).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let packed = Command::new(script("node/builder-image.sh")).arg(&kubectl.state).arg(builder()).output().unwrap();
        assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
        let builder = String::from_utf8(packed.stdout).unwrap().trim().to_owned();
        let [registry, private_registry, git] = ["REGISTRY", "PRIVATE_REGISTRY", "GIT_URL"].map(variable);
        Parts { registry, private_registry, git, builder }
    })
}

fn builder() -> PathBuf {
    beside(env!("CARGO_BIN_EXE_rollhook-server"), "rollhook-command", "rollhook-build")
}

/// A repository on the node's git server, and a clone of it.
struct Repository {
    clone: tempfile::TempDir,
    url: String,
}

impl Repository {
    /// A new one of this name, in which a commit's `version` says what its containers tell.
    fn new(bed: &Bed, name: &str) -> Self {
        let parts = parts(&bed.kubectl);
        let bare = bed.kubectl.state.join("git").join(format!("{name}.git"));
        let made = Command::new("git").args(["init", "-q", "--bare", "-b", "main"]).arg(&bare).status().unwrap();
        assert!(made.success());
        let repository = Self { clone: tempfile::tempdir().unwrap(), url: format!("{}/{name}.git", parts.git) };
        repository.git(&["init", "-q", "-b", "main"]);
        for (name, value) in [("user.name", "Ada"), ("user.email", "ada@example.com"), ("commit.gpgsign", "false")] {
            repository.git(&["config", name, value]);
        }
        let registry = &parts.registry;
        let dockerfile = format!(
            "FROM {registry}/busybox:1 AS made\n\
             RUN echo tools > /tools && echo the tools are made\n\
             COPY version /in\n\
             RUN tr a-z A-Z < /in > /version\n\
             FROM {registry}/app:v1\n\
             COPY --from=made /version /version\n\
             ARG ROLLHOOK_COMMIT\n\
             ENV COMMIT=$ROLLHOOK_COMMIT\n"
        );
        fs::write(repository.clone.path().join("Dockerfile"), dockerfile).unwrap();
        repository
    }

    fn dockerfile(&self) -> String {
        fs::read_to_string(self.clone.path().join("Dockerfile")).unwrap()
    }

    fn git(&self, arguments: &[&str]) -> String {
        let output = Command::new("git").arg("-C").arg(self.clone.path()).args(arguments).output().unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Pushes a commit with this content of a file to the git server, as a person does, and returns it.
    fn push(&self, file: &str, content: &str) -> String {
        let path = self.clone.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", &format!("{file} is {content:?}")]);
        let url = self.url.replace("http://", "http://ada:hunter2@");
        self.git(&["push", "-q", &url, "HEAD:main"]);
        self.git(&["rev-parse", "HEAD"])
    }
}

/// A server that builds in the node, in a namespace of its own, and an app that is built from a new repository.
struct Bench {
    bed: Bed,
    builds: Kubectl,
    repository: Repository,
    /// Where its images go.
    image: String,
    app: App,
    /// The server reads it whenever it builds.
    _secrets: tempfile::TempDir,
}

impl Bench {
    /// Without a node the test is reported as skipped.
    fn new(test: &str) -> Option<Self> {
        Self::with(test, "auto", false)
    }

    /// With builds of this profile; a private app's source and registry let in nobody without a password.
    fn with(test: &str, profile: &str, private: bool) -> Option<Self> {
        let secrets = tempfile::tempdir().unwrap();
        let mut builds = None;
        let bed = Bed::node(server!(), test, |kubectl| {
            let namespace = format!("{}-builds", kubectl.namespace);
            kubectl.run(&["create", "namespace", &namespace]);
            builds = Some(Kubectl { namespace: namespace.clone(), ..kubectl.clone() });
            let mut arguments = arguments(parts(kubectl), &namespace, profile);
            if private {
                arguments.extend(credentials(parts(kubectl), secrets.path()));
            }
            arguments
        })?;
        let parts = parts(&bed.kubectl);
        let namespace = &bed.kubectl.namespace;
        let repository = Repository::new(&bed, &format!("{}{namespace}", if private { "private/" } else { "" }));
        let registry = if private { &parts.private_registry } else { &parts.registry };
        let image = format!("{registry}/{namespace}/api");
        let mut git = json!({ "url": repository.url, "image_repository": image });
        let mut template = json!({ "replicas": 1, "port": 8080, "readiness_path": "/healthz" });
        if private {
            git["credentials"] = json!("shop");
            template["pull_secret"] = json!("registry");
            let file = format!("--from-file=.dockerconfigjson={}", secrets.path().join("config.json").display());
            bed.kubectl.run(&[
                "create",
                "secret",
                "generic",
                "registry",
                "--type=kubernetes.io/dockerconfigjson",
                &file,
            ]);
        }
        let create = bed.create("api", json!({ "git": git, "template": template, "policy": { "settle": "1s" } }));
        let registered = bed.manage("POST", "/api/v1/apps").json(&create).expect(201).json();
        assert!(registered["deploy"].is_null(), "its first build makes it: {registered}");
        let app = App::new(namespace, "api", bed.enable("api"));
        Some(Self { builds: builds.unwrap(), repository, image, app, bed, _secrets: secrets })
    }

    /// CI's call as its snippet makes it, repeated until it has ended: the exit code of `curl`, and what was answered.
    fn curl(&self, commit: &str) -> (i32, Value) {
        for _ in 0..6 {
            let output = Command::new("curl")
                .args(["--fail-with-body", "-sS", "-X", "POST", "-w", "\n%{http_code}"])
                .args(["-H", &format!("X-Service-Token: {}", self.app.token), "-H", "Content-Type: application/json"])
                .args(["-H", "Prefer: wait=50", "-H", &format!("Idempotency-Key: run-{commit}")])
                .args(["-d", &json!({ "commit": commit }).to_string()])
                .arg(format!("http://{}{}", self.bed.server().address, self.app.hook))
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let (body, status) = text.rsplit_once('\n').unwrap();
            if status != "202" {
                return (output.status.code().unwrap(), serde_json::from_str(body).unwrap_or_default());
            }
        }
        panic!("it does not end: {}", self.builds.story());
    }

    /// Has the app's further pods count as soon as they are ready; what the app was made with is for apps that people
    /// use.
    fn hurry(&self) {
        let patch = json!({ "spec": { "minReadySeconds": 0 } }).to_string();
        self.bed.kubectl.run(&["patch", "deployment", "api", "--patch", &patch]);
    }

    /// A call of CI that is taken, and its revision.
    fn accepted(&self, commit: &str) -> u64 {
        let answer = self.bed.server().post(&self.app, &json!({ "commit": commit })).expect(202).json();
        answer["revision"].as_u64().unwrap()
    }

    /// A build's log so far; nothing, where it has not begun.
    fn log(&self, revision: u64) -> String {
        let reply = self.bed.manage("GET", &format!("{}/deploys/{revision}/log", self.app.path)).send();
        assert!([200, 404].contains(&reply.status), "{}", reply.text());
        if reply.status == 200 { reply.text() } else { String::new() }
    }

    /// Whether a step of the build wrote this; BuildKit shows the step itself as well.
    fn wrote(&self, revision: u64, line: &str) -> bool {
        let end = format!(" {line}");
        self.log(revision).lines().any(|line| line.ends_with(&end) && !line.contains("RUN"))
    }

    /// What each pod of the app tells of itself, without its own name.
    fn tells(&self) -> Vec<String> {
        self.bed.kubectl.pods("api").iter().map(told).collect()
    }

    fn build_pods(&self) -> Vec<Value> {
        self.builds.get("pods")["items"].as_array().unwrap().clone()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- the builds\n{}", self.builds.story());
        }
        self.builds.remove_namespace();
    }
}

fn arguments(parts: &Parts, namespace: &str, profile: &str) -> Vec<String> {
    let Parts { registry, private_registry, builder, .. } = parts;
    ["--build-image", builder, "--build-namespace", namespace, "--build-profile", profile, "--build-memory", "512Mi"]
        .into_iter()
        .chain(["--build-insecure-registry", registry, "--build-insecure-registry", private_registry])
        .chain(["--allow-local-sources", "--min-poll", "1s"])
        .map(str::to_owned)
        .collect()
}

/// What lets builds into the private registry and into private sources, in this directory.
fn credentials(parts: &Parts, directory: &Path) -> Vec<String> {
    let private = format!("{}/private/", parts.git.trim_end_matches('/'));
    fs::write(directory.join("shop"), private.replace("http://", "http://ada:hunter2@")).unwrap();
    // ada:hunter2
    let config = json!({ "auths": { &parts.private_registry: { "auth": "YWRhOmh1bnRlcjI=" } } });
    fs::write(directory.join("config.json"), config.to_string()).unwrap();
    let path = |path: &Path| path.display().to_string();
    let config = path(&directory.join("config.json"));
    vec!["--build-credentials".to_owned(), path(directory), "--build-registry-config".to_owned(), config]
}

/// What a pod answers over HTTP, without its name.
fn told(pod: &Value) -> String {
    let answer = || {
        let address = pod["status"]["podIP"].as_str()?;
        let mut stream = TcpStream::connect((address, 8080)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: app\r\nconnection: close\r\n\r\n").ok()?;
        let text = Reply::read(stream).text();
        let words = text.split_whitespace().filter(|word| !word.starts_with("host="));
        Some(words.collect::<Vec<_>>().join(" "))
    };
    answer().unwrap_or_default()
}

/// Whether the registry has the image, by its digest.
fn is_in_registry(image: &str) -> bool {
    let (repository, digest) = image.split_once('@').unwrap();
    let (registry, path) = repository.split_once('/').unwrap();
    let accepted =
        "accept: application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";
    let url = format!("http://{registry}/v2/{path}/manifests/{digest}");
    Command::new("curl").args(["-sfI", "--noproxy", "*", "-H", accepted, &url]).output().unwrap().status.success()
}

#[test]
fn a_pushed_commit_is_built_in_the_cluster_and_its_containers_tell_it() {
    let Some(bench) = Bench::new(&test_name!()) else { return };
    let first = bench.repository.push("version", "one");
    let (code, answer) = bench.curl(&first);
    assert_eq!((code, &answer["status"]), (0, &json!("succeeded")), "{answer}");
    assert_eq!(answer["commit"], first);
    let image = answer["image"].as_str().unwrap();
    assert!(image.starts_with(&format!("{}@sha256:", bench.image)) && is_in_registry(image), "{image}");
    let ran = |commit: &str, version: &str| [format!("version={version} commit={commit}")];
    assert_eq!(bench.tells(), ran(&first, "ONE"));
    assert_eq!(bench.bed.kubectl.running("api"), [image]);
    let pods = bench.build_pods();
    assert_eq!(pods.len(), 1);
    assert_eq!(pods[0]["spec"]["containers"][0]["securityContext"]["privileged"], false);
    assert_eq!(pods[0]["spec"]["automountServiceAccountToken"], false);

    bench.hurry();
    let second = bench.repository.push("version", "two");
    let (code, answer) = bench.curl(&second[..9]);
    assert_eq!((code, &answer["commit"]), (0, &json!(second)), "a short one is recorded in full: {answer}");
    assert_eq!(bench.tells(), ran(&second, "TWO"));
    let made = [1, 2].map(|revision| bench.wrote(revision, "the tools are made"));
    assert_eq!(made, [true, false], "the second takes them from the registry's cache: {}", bench.log(2));

    let told = bench.bed.roll_back(&bench.app);
    assert_eq!(told["to"]["revision"], 1);
    assert_eq!(bench.tells(), ran(&first, "ONE"));
    assert_eq!(bench.builds.get("jobs")["items"].as_array().unwrap().len(), 2, "a rollback builds nothing");
}

#[test]
fn pushes_and_polled_commits_are_built() {
    let Some(bench) = Bench::new(&test_name!()) else { return };
    let ran = |commit: &str, version: &str| [format!("version={version} commit={commit}")];
    let ended = |revision: u64, trigger: &str, commit: &str| {
        until("the push is rolled out", || bench.bed.history(&bench.app).len() as u64 >= revision);
        let entry = bench.bed.ended(&bench.app, revision);
        let told = (&entry["status"], &entry["trigger"], &entry["commit"]);
        assert_eq!(told, (&json!("succeeded"), &json!(trigger), &json!(commit)), "{entry}");
    };

    let first = bench.repository.push("version", "one");
    let push = json!({
        "ref": "refs/heads/main", "before": "0".repeat(40), "after": first, "deleted": false,
        "head_commit": { "id": first, "message": "one" }, "commits": [], "pusher": { "name": "ada" }
    });
    let body = push.to_string();
    let delivery = || {
        let call = bench.bed.server().call("POST", &bench.app.hook).header("X-GitHub-Event", "push");
        let call = call.header("X-GitHub-Delivery", "d-1").header("Content-Type", "application/json");
        call.body(body.as_bytes()).sign(&bench.app.token)
    };
    delivery().expect(202);
    ended(1, "webhook", &first);
    assert_eq!(bench.tells(), ran(&first, "ONE"));
    let again = delivery().expect(202);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));

    bench.hurry();
    let poll = json!({ "policy": { "poll": "1s" } });
    bench.bed.manage("PATCH", &bench.app.path).json(&poll).expect(200);
    let second = bench.repository.push("version", "two");
    ended(2, "git", &second);
    assert_eq!(bench.tells(), ran(&second, "TWO"));
    assert_eq!(bench.build_pods().len(), 2, "one build each");
}

#[test]
fn a_dockerfile_that_fails_ends_the_deploy_with_its_last_lines() {
    let Some(bench) = Bench::new(&test_name!()) else { return };
    let good = bench.repository.push("version", "one");
    assert_eq!(bench.curl(&good).0, 0);
    bench.hurry();
    let dockerfile = bench.repository.dockerfile();
    let broken = dockerfile.replace("RUN tr", "RUN echo the tools are broken && exit 3 && tr");
    let bad = bench.repository.push("Dockerfile", &broken);
    let (code, problem) = bench.curl(&bad);
    assert_eq!(code, 22, "the pipeline fails: {problem}");
    let deploy = &problem["deploy"];
    assert_eq!((&deploy["status"], &deploy["reason"]), (&json!("failed"), &json!("build-failed")), "{problem}");
    assert_eq!(deploy["commit"], bad);
    let lines = deploy["evidence"]["log"].to_string();
    assert!(lines.contains("the tools are broken") && lines.contains("exit code: 3"), "{problem}");
    assert_eq!(bench.tells(), [format!("version=ONE commit={good}")], "what ran still runs");

    let (code, problem) = bench.curl(&"0123456789".repeat(4));
    assert_eq!((code, &problem["deploy"]["reason"]), (22, &json!("commit-not-found")), "{problem}");
    let away = bench.repository.push("Dockerfile", "FROM 10.77.0.1:1/nothing:here\n");
    assert_eq!(bench.curl(&away).1["deploy"]["reason"], "build-failed");
    let mended = bench.repository.push("Dockerfile", &dockerfile);
    assert_eq!(bench.curl(&mended).0, 0);
    assert_eq!(bench.tells(), [format!("version=ONE commit={mended}")]);
}

#[test]
fn a_build_is_followed_and_cancelled_and_the_next_one_builds() {
    let Some(bench) = Bench::new(&test_name!()) else { return };
    let dockerfile = bench.repository.dockerfile();
    bench.repository.push("version", "one");
    let hanging = dockerfile.replace("RUN tr", "RUN echo it sleeps now && sleep 600 && tr");
    let hanging = bench.accepted(&bench.repository.push("Dockerfile", &hanging));
    let next = bench.repository.push("Dockerfile", &dockerfile);
    until("it builds", || bench.wrote(hanging, "it sleeps now"));
    let written = tempfile::NamedTempFile::new().unwrap();
    let read = || fs::read_to_string(written.path()).unwrap();
    let words = format!("app build-logs api --revision {hanging} --follow");
    let mut follower = bench.bed.cli().command(&words).stdout(written.reopen().unwrap()).spawn().unwrap();
    until("it is followed", || read().contains("it sleeps now"));
    let cancel = format!("{}/deploys/{hanging}/cancel", bench.app.path);
    let cancelled = bench.bed.manage("POST", &cancel).expect(200).json();
    assert_eq!(cancelled["status"], "cancelled");
    assert!(follower.wait().unwrap().success(), "{}", read());
    let followed = read();
    assert!(followed.contains("checked out") && followed.contains("it sleeps now"), "to its end: {followed}");
    let (code, answer) = bench.curl(&next);
    assert_eq!((code, &answer["status"]), (0, &json!("succeeded")), "another build may start: {answer}");
    assert_eq!(bench.tells(), [format!("version=ONE commit={next}")]);
    let running = |pods: &[Value]| pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
    assert_eq!(running(&bench.build_pods()), 0, "nothing of the cancelled build is left");
}

#[test]
fn a_server_that_is_killed_finds_its_build_again() {
    let Some(mut bench) = Bench::new(&test_name!()) else { return };
    let within = json!({ "source": { "context": "service", "dockerfile": "docker/Dockerfile" } });
    bench.bed.manage("PATCH", &bench.app.path).json(&within).expect(200);
    bench.repository.push("service/version", "one");
    let slow = bench.repository.dockerfile().replace("RUN tr", "RUN echo it sleeps now && sleep 5 && tr");
    let commit = bench.repository.push("service/docker/Dockerfile", &slow);
    let revision = bench.accepted(&commit);
    until("it builds", || bench.wrote(revision, "it sleeps now"));
    bench.bed.kill_and_restart();
    let entry = bench.bed.ended(&bench.app, revision);
    assert_eq!(entry["status"], "succeeded", "{entry}");
    assert_eq!(bench.tells(), [format!("version=ONE commit={commit}")]);
    assert_eq!(bench.build_pods().len(), 1, "it was not built again");
}

#[test]
fn private_sources_and_registries_are_used_without_showing_credentials() {
    let Some(bench) = Bench::with(&test_name!(), "auto", true) else { return };
    let commit = bench.repository.push("version", "one");
    let (code, answer) = bench.curl(&commit);
    assert_eq!((code, &answer["commit"]), (0, &json!(commit)), "{answer}");
    assert_eq!(bench.tells(), [format!("version=ONE commit={commit}")]);
    assert!(bench.log(1).contains("exporting cache"), "which needs the credentials too");
    let objects = ["deployments", "pods", "events"].map(|kind| bench.bed.kubectl.get(kind).to_string()).concat();
    let builds = ["jobs", "pods", "events"].map(|kind| bench.builds.get(kind).to_string()).concat();
    let told = [bench.log(1), objects, builds, bench.bed.server().log()].concat();
    assert!(!told.contains("hunter2") && !told.contains("YWRhOmh1bnRlcjI"), "{told}");

    let without = json!({ "source": { "credentials": null } });
    bench.bed.manage("PATCH", &bench.app.path).json(&without).expect(200);
    let commit = bench.repository.push("version", "two");
    assert_eq!(bench.curl(&commit).1["deploy"]["reason"], "source-denied");
}

#[test]
fn a_context_that_leads_out_of_the_commit_is_not_built() {
    let Some(bench) = Bench::new(&test_name!()) else { return };
    std::os::unix::fs::symlink("/run", bench.repository.clone.path().join("outside")).unwrap();
    let commit = bench.repository.push("version", "one");
    let outside = json!({ "source": { "context": "outside" } });
    bench.bed.manage("PATCH", &bench.app.path).json(&outside).expect(200);
    let (code, problem) = bench.curl(&commit);
    assert_eq!((code, &problem["deploy"]["reason"]), (22, &json!("build-failed")), "{problem}");
    assert!(problem["deploy"]["evidence"]["log"].to_string().contains("leads out of the commit"), "{problem}");
}

#[test]
fn a_privileged_builder_builds_where_the_operator_says_so() {
    let Some(bench) = Bench::with(&test_name!(), "privileged", false) else { return };
    let commit = bench.repository.push("version", "one");
    assert_eq!(bench.curl(&commit).0, 0, "{}", bench.log(1));
    assert_eq!(bench.tells(), [format!("version=ONE commit={commit}")]);
    assert_eq!(bench.build_pods()[0]["spec"]["containers"][0]["securityContext"]["privileged"], true);
}
