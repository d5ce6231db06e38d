//! Programs that keep logins, run as they are.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use rollhook_registry_logins::{Login, LoginFailure, Logins};
use serde_json::json;

/// The variable that marks the second run of a test, in which the programs are on the path.
const INNER: &str = "ROLLHOOK_TEST_HELPERS";

fn program(directory: &Path, name: &str, script: &str) {
    let path = directory.join(format!("docker-credential-{name}"));
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs a test again with programs of its own on the path: no test changes the environment of a process with threads.
fn with_programs(test: &str, programs: &[(&str, &str)]) {
    let directory = tempfile::tempdir().unwrap();
    for (name, script) in programs {
        program(directory.path(), name, script);
    }
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let mut again = Command::new(std::env::current_exe().unwrap());
    let ended = again.args(["--exact", test, "--nocapture"]).env(INNER, "1").env("PATH", path).status().unwrap();
    assert!(ended.success());
}

fn is_inner() -> bool {
    std::env::var_os(INNER).is_some()
}

#[test]
fn program_is_asked_for_the_registry_that_it_knows() {
    if !is_inner() {
        let echo = r#"read name; printf '{"ServerURL":"%s","Username":"%s","Secret":"hunter2"}' "$name" "$1 $name $ROLLHOOK_TEST_HELPERS""#;
        let token = r#"printf '{"Username":"<token>","Secret":"t"}'"#;
        let unknown = "echo credentials not found in native keychain; exit 1";
        let programs = [("echo", echo), ("token", token), ("unknown", unknown)];
        return with_programs("program_is_asked_for_the_registry_that_it_knows", &programs);
    }
    let config = json!({
        "auths": {"own.example.com": {"username": "own", "password": "p"}, "empty.example.com": {}},
        "credHelpers": {"token.example.com": "token", "unknown.example.com": "unknown"},
        "credsStore": "echo",
    });
    let logins = Logins::parse(Ok(&config.to_string()));
    runtime(async {
        let user = async |image: &str| match logins.login(&image.parse().unwrap()).await.unwrap() {
            Some((_, Login::Password { user, .. })) => user,
            Some((_, Login::Identity(_))) => "a token".to_owned(),
            None => "none".to_owned(),
        };
        assert_eq!(user("own.example.com/api").await, "own");
        assert_eq!(user("token.example.com/api").await, "a token");
        assert_eq!(user("unknown.example.com/api").await, "none");
        // No setting of the service is passed on.
        assert_eq!(user("empty.example.com:5000/api").await, "get empty.example.com:5000 ");
        assert_eq!(user("nginx").await, "get https://index.docker.io/v1/ ");
        let (all, missing) = logins.all().await;
        let names: Vec<&str> = all.keys().map(String::as_str).collect();
        assert_eq!(names, ["empty.example.com", "own.example.com", "token.example.com"]);
        assert_eq!(missing, []);
    });
}

#[test]
fn program_that_fails_is_named_without_its_words() {
    if !is_inner() {
        let programs = [("fails", "echo hunter2; exit 1"), ("odd", "echo hunter2"), ("endless", "yes hunter2")];
        return with_programs("program_that_fails_is_named_without_its_words", &programs);
    }
    runtime(async {
        for (name, words) in [
            ("fails", "docker-credential-fails, which the server's config.json names, has failed"),
            ("odd", "answers what cannot be read"),
            ("endless", "docker-credential-endless"),
            ("missing", "cannot be run"),
            ("../evil", "has a name that is none"),
        ] {
            let config = json!({"credHelpers": {"r.example.com": name}}).to_string();
            let failure = Logins::parse(Ok(&config)).login(&"r.example.com/api".parse().unwrap()).await.unwrap_err();
            let text = failure.to_string();
            assert!(matches!(failure, LoginFailure::Helper { .. }) && text.contains(words), "{name}: {text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    });
}

fn runtime(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}
