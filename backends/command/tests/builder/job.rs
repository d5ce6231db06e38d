//! A build in a container of its own, with the image's paths in a directory, and a program in BuildKit's place.

use std::{collections::BTreeMap, fs, future::pending, os::unix::fs::symlink, time::Duration};

use rollhook_command::job::{self, Outcome, Paths};
use serde_json::{Value, json};

use crate::bench::{Bench, is_alive};

/// A container's paths, and what its Job orders.
struct Container {
    bench: Bench,
    paths: Paths,
    variables: BTreeMap<&'static str, String>,
}

impl Container {
    fn of(bench: Bench, commit: &str) -> Self {
        for directory in ["source", "registry", "state"] {
            fs::create_dir(bench.path(directory)).unwrap();
        }
        let paths = Paths {
            program: bench.path("build-command"),
            source: bench.path("source"),
            registry: bench.path("registry"),
            state: bench.path("state"),
            message: bench.path("message"),
            users: bench.path("uid_map"),
        };
        let variables = BTreeMap::from([
            ("ROLLHOOK_SOURCE_URL", bench.host.url("api")),
            ("ROLLHOOK_BRANCH", "main".to_owned()),
            ("ROLLHOOK_COMMIT", commit.to_owned()),
            ("ROLLHOOK_DOCKERFILE", "Dockerfile".to_owned()),
            ("ROLLHOOK_CONTEXT", ".".to_owned()),
            ("ROLLHOOK_IMAGE_REPOSITORY", "registry.example.com/shop/api".to_owned()),
            ("ROLLHOOK_APP", "shop-test/api".to_owned()),
            ("ROLLHOOK_REVISION", "7".to_owned()),
            ("ROLLHOOK_CACHE", "registry.example.com/shop/api:buildcache".to_owned()),
            ("ROLLHOOK_BUILDKIT_PROFILE", "rootless".to_owned()),
            ("ROLLHOOK_INSECURE_REGISTRIES", String::new()),
        ]);
        Self { bench, paths, variables }
    }

    async fn run(&self, stop: impl Future<Output = ()>) -> Outcome {
        let output = fs::File::create(self.bench.path("output")).unwrap();
        let variable = |name: &str| self.variables.get(name).cloned();
        Box::pin(job::run(&self.paths, variable, output, stop)).await.unwrap()
    }

    fn message(&self) -> Value {
        serde_json::from_slice(&fs::read(&self.paths.message).unwrap()).unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.bench.path("output")).unwrap_or_default()
    }
}

fn container(content: &str) -> (Container, String) {
    let bench = Bench::new();
    let commit = bench.repository.commit("build.txt", content);
    (Container::of(bench, &commit[..9]), commit)
}

#[tokio::test]
async fn what_was_built_is_told_by_digest_and_by_the_full_commit() {
    let (container, commit) = container("good");
    fs::write(container.paths.registry.join("config.json"), r#"{"auths":{"registry.example.com":{"auth":"c2Vj"}}}"#)
        .unwrap();
    assert_eq!(container.run(pending()).await, Outcome::Built);
    let message = container.message();
    assert_eq!(message["commit"], commit);
    assert!(message["image"].as_str().unwrap().starts_with("registry.example.com/shop/api@sha256:"), "{message}");
    let log = container.log();
    for line in [
        format!("head {commit}"),
        format!("ROLLHOOK_COMMIT={commit}"),
        "ROLLHOOK_APP=shop-test/api".to_owned(),
        "ROLLHOOK_REVISION=7".to_owned(),
        "ROLLHOOK_CACHE=registry.example.com/shop/api:buildcache".to_owned(),
        "ROLLHOOK_BUILDKIT_PROFILE=rootless".to_owned(),
        format!("DOCKER_CONFIG={}", container.paths.registry.display()),
    ] {
        assert!(log.lines().any(|told| told == line), "{line} is not in {log}");
    }
    assert!(!log.contains("c2Vj"), "{log}");
}

#[tokio::test]
async fn what_failed_is_told_with_its_reason() {
    let (mut container, commit) = container("fail");
    assert_eq!(container.run(pending()).await, Outcome::Failed);
    let message = container.message();
    assert_eq!((&message["reason"], &message["commit"]), (&json!("build-failed"), &json!(commit)), "{message}");
    assert!(container.log().contains("something is broken"));

    fs::remove_dir_all(container.paths.state.join("build")).unwrap();
    container.variables.insert("ROLLHOOK_COMMIT", "0123456789".repeat(4));
    assert_eq!(container.run(pending()).await, Outcome::Failed);
    let message = container.message();
    assert_eq!(message["reason"], "commit-not-found", "{message}");
    assert!(message["commit"].is_null(), "it was not resolved: {message}");
}

#[tokio::test]
async fn a_wrong_order_is_told_and_nothing_is_run() {
    for (name, value, told) in [
        ("ROLLHOOK_COMMIT", Some("+refs/heads/main"), "ROLLHOOK_COMMIT"),
        ("ROLLHOOK_COMMIT", Some("v1.0"), "ROLLHOOK_COMMIT"),
        ("ROLLHOOK_SOURCE_URL", Some("--upload-pack=touch"), "ROLLHOOK_SOURCE_URL"),
        ("ROLLHOOK_CONTEXT", Some("../.."), "ROLLHOOK_CONTEXT"),
        ("ROLLHOOK_REVISION", Some("0"), "ROLLHOOK_REVISION"),
        ("ROLLHOOK_IMAGE_REPOSITORY", None, "lacks ROLLHOOK_IMAGE_REPOSITORY"),
        ("ROLLHOOK_SOURCE_URL", None, "lacks ROLLHOOK_SOURCE_URL"),
    ] {
        let (mut container, _) = container("good");
        container.variables.remove(name);
        container.variables.extend(value.map(|value| (name, value.to_owned())));
        assert_eq!(container.run(pending()).await, Outcome::Failed, "{name}");
        let message = container.message();
        assert_eq!(message["reason"], "build-failed", "{message}");
        assert!(message["message"].as_str().unwrap().contains(told), "{message}");
        assert!(!container.log().contains("checked out"), "{}", container.log());
    }
}

#[tokio::test]
async fn without_the_user_namespace_that_was_promised_nothing_is_fetched() {
    for (users, told) in [
        (Some("         0          0 4294967295\n"), "no user namespace"),
        (Some(""), "no user namespace"),
        (None, "cannot know which users"),
    ] {
        let (mut container, _) = container("good");
        container.variables.insert("ROLLHOOK_BUILDKIT_PROFILE", "userns".to_owned());
        if let Some(users) = users {
            fs::write(&container.paths.users, users).unwrap();
        }
        assert_eq!(container.run(pending()).await, Outcome::Failed);
        let message = container.message();
        assert!(message["message"].as_str().unwrap().contains(told), "{message}");
        assert!(!container.paths.state.join("build").exists(), "nothing was begun");
        fs::write(&container.paths.users, "         0     131072      65536\n").unwrap();
        assert_eq!(container.run(pending()).await, Outcome::Built, "{}", container.log());
    }
}

#[tokio::test]
async fn credentials_come_as_kubernetes_lays_a_secret_out_and_are_not_told() {
    // ada:hunter2
    let bench = Bench::with(Some("Basic YWRhOmh1bnRlcjI="));
    let commit = bench.repository.commit("build.txt", "good");
    let mut container = Container::of(bench, &commit);
    container.variables.insert("ROLLHOOK_CREDENTIALS", "shop".to_owned());
    let source = &container.paths.source;
    // A volume's files are links into a directory that is replaced as a whole.
    fs::remove_dir(source).unwrap();
    fs::create_dir_all(container.bench.path("..2026/source")).unwrap();
    symlink("..2026", container.bench.path("..data")).unwrap();
    symlink("..data/source", source).unwrap();
    fs::write(source.join("shop"), container.bench.host.login("ada:hunter2")).unwrap();
    assert_eq!(container.run(pending()).await, Outcome::Built, "{}", container.log());
    let told = format!("{}{}", container.log(), container.message());
    assert!(!told.contains("hunter2") && !told.contains("YWRhOmh1bnRlcjI"), "{told}");

    fs::remove_dir_all(container.paths.state.join("build")).unwrap();
    fs::write(source.join("shop"), container.bench.host.login("ada:sesame")).unwrap();
    assert_eq!(container.run(pending()).await, Outcome::Failed);
    let message = container.message();
    assert_eq!(message["reason"], "source-denied", "{message}");
    assert!(message["message"].as_str().unwrap().contains("shop") && !message.to_string().contains("sesame"));

    fs::remove_dir_all(container.paths.state.join("build")).unwrap();
    container.variables.insert("ROLLHOOK_CREDENTIALS", "other".to_owned());
    assert_eq!(container.run(pending()).await, Outcome::Failed);
    assert_eq!(container.message()["reason"], "source-denied", "{}", container.message());
}

#[tokio::test]
async fn a_container_that_is_told_to_stop_ends_what_it_runs_and_tells_no_end() {
    let (container, _) = container("hang");
    let child = |container: &Container| {
        container.log().lines().find_map(|line| line.strip_prefix("child ")?.trim().parse::<u32>().ok())
    };
    let begun = async {
        for _ in 0..600 {
            if child(&container).is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("it never ran: {}", container.log());
    };
    assert_eq!(container.run(begun).await, Outcome::Stopped);
    assert!(!is_alive(child(&container).unwrap()));
    assert!(!container.paths.message.exists());
}

#[tokio::test]
async fn two_commits_that_begin_alike_are_told_as_such() {
    let bench = Bench::new();
    bench.repository.commit("build.txt", "good");
    let short = bench.repository.ambiguous();
    let container = Container::of(bench, &short);
    assert_eq!(container.run(pending()).await, Outcome::Failed);
    assert_eq!(container.message()["reason"], "commit-ambiguous");
}
