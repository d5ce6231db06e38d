//! Who the build command runs as, with what of the server's, and within which limits.

use std::{fs, os::unix::fs::PermissionsExt};

use rollhook_command::{CommandBuilds, Error};
use rollhook_testing::{process::is_root, skip, test_name};

use crate::bench::{Bench, built, log};

/// A build command that tells what it is, and what it can read of the server's.
const COMMAND: &str = r#"#!/bin/sh
here=$(dirname "$0")
echo "user $(id -un)"
echo "it can write there" > /dev/stderr
for file in secret builds builds/*/* "builds/$(cat app)/lock" "builds/$(cat app)/$ROLLHOOK_REVISION/log" \
    "builds/$(cat app)/$ROLLHOOK_REVISION/run"; do
    [ -r "$here/$file" ] && echo "reads $file"
done
touch written && git rev-parse HEAD
env | cut -d= -f1 | sort | sed 's/^/variable /'
cat /proc/self/limits
grep -E '^(Cap|NoNewPrivs)' /proc/self/status
read -r own _ _ _ group session terminal _ < /proc/$$/stat
[ "$own $own 0" = "$group $session $terminal" ] && echo "leads a session without a terminal"
( : < /dev/tty ) 2> /dev/null && echo "reads the terminal"
echo "$ROLLHOOK_IMAGE_REPOSITORY@sha256:$(echo | sha256sum | cut -c1-64)"
"#;

fn bench() -> (Bench, String) {
    let bench = Bench::new();
    fs::write(bench.path("build-command"), COMMAND).unwrap();
    fs::write(bench.path("secret"), "").unwrap();
    fs::set_permissions(bench.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let app = bench.order(1, "0123456").id.app.to_string();
    let commit = bench.repository.commit("app", &app);
    (bench, commit)
}

async fn told(bench: &Bench, commit: &str) -> String {
    let builds = bench.open().await;
    let order = bench.order(1, commit);
    built(&builds, &order).await;
    let log = log(&builds, order.id).await;
    builds.close().await;
    log
}

#[tokio::test]
async fn build_command_runs_as_another_user_that_reads_nothing_of_the_servers() {
    let (bench, commit) = bench();
    if !is_root() {
        return skip(&test_name!(), "only root can run programs as another user");
    }
    let log = told(&bench, &commit).await;
    assert!(log.contains("user nobody\n") && !log.contains("reads "), "{log}");
    assert!(log.contains("\nit can write there\n"), "{log}");
    assert!(log.contains(&commit), "it has the checkout for its own: {log}");
    assert!(log.lines().any(|line| line.starts_with("Max processes") && line.contains(" 4096 ")), "{log}");
    assert!(log.contains("NoNewPrivs:\t1\n"), "{log}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert!(log.contains(&format!("{set}:\t0000000000000000\n")), "{set}: {log}");
    }
}

#[tokio::test]
async fn build_command_has_few_variables_of_the_server_and_a_limit_on_files() {
    let (bench, commit) = bench();
    let log = told(&bench, &commit).await;
    // The shell adds three of its own.
    let known = ["PATH", "HOME", "LANG", "USER", "LOGNAME", "PWD", "OLDPWD", "SHLVL", "_"];
    let foreign = |line: &&str| {
        let name = line.strip_prefix("variable ");
        name.is_some_and(|name| !known.contains(&name) && !name.starts_with("ROLLHOOK_"))
    };
    assert_eq!(log.lines().find(foreign), None, "{log}");
    let limit = log.lines().find(|line| line.starts_with("Max file size")).unwrap();
    assert!(!limit.contains("unlimited"), "{limit}");
}

#[tokio::test]
async fn build_command_leads_a_session_without_the_terminal_of_the_server() {
    let (bench, commit) = bench();
    let log = told(&bench, &commit).await;
    assert!(log.contains("leads a session without a terminal\n") && !log.contains("reads the terminal"), "{log}");
}

#[tokio::test]
async fn root_builds_as_another_user_or_not_at_all() {
    let bench = Bench::new();
    if !is_root() {
        return skip(&test_name!(), "the tests do not run as root");
    }
    for user in [None, Some("root"), Some("0")] {
        let settings = bench.settings_for(user);
        let refused = CommandBuilds::open(settings).await.map(drop).unwrap_err();
        assert!(matches!(refused, Error::Root) && refused.to_string().contains("--build-user"), "{user:?}: {refused}");
    }
}

#[tokio::test]
async fn user_that_cannot_build_is_told_at_start() {
    let bench = Bench::new();
    for user in ["no-such-user", "-u", ""] {
        let settings = bench.settings_for(Some(user));
        let refused = CommandBuilds::open(settings).await.map(drop).unwrap_err();
        assert!(matches!(refused, Error::NoUser(_)), "{user}: {refused}");
    }
    if !is_root() {
        return skip(&test_name!(), "only root can run programs as another user");
    }
    fs::set_permissions(bench.directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let refused = CommandBuilds::open(bench.settings.clone()).await.map(drop).unwrap_err();
    assert!(refused.to_string().contains("cannot enter"), "{refused}");
}
