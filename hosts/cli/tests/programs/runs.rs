//! Commands by hand: without a server, the command drives the run itself.

use std::{
    io::Read,
    process::{Child, Command, Stdio},
};

use rollhook_testing::{Cli, Ended, cli};

/// A command by hand that has begun, as its log on standard output says.
fn begun(home: &Cli, words: &str) -> Child {
    let mut child = home.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (out, mut so_far) = (child.stdout.as_mut().unwrap(), Vec::new());
    while !so_far.ends_with(b"\n") {
        let mut byte = [0];
        out.read_exact(&mut byte).unwrap();
        so_far.push(byte[0]);
    }
    assert!(String::from_utf8_lossy(&so_far).starts_with("running hang"), "{so_far:?}");
    child
}

#[test]
fn log_and_exit_code_are_those_of_the_command() {
    let home = cli!().fast().with_history();
    let done = home.run("app run api -- bin/fix --all").ok();
    assert!(done.out.starts_with("running bin/fix --all with r.example.com/api:three@sha256:"), "{done:?}");
    assert!(done.out.ends_with("it ended\n") && done.err.contains("run 1 of shop-test/api: "), "{done:?}");
    let failed = home.run("app run api -- bin/fail-42").exits(42);
    assert!(failed.out.ends_with("it failed\n"), "{failed:?}");
    assert!(failed.err.contains("error: Run 2 failed: The command ended with exit code 42."), "{failed:?}");
    let document = home.run("app run api -o json -- bin/fail-3").exits(3);
    assert_eq!((&document.json()["status"], &document.json()["exit_code"]), (&"failed".into(), &3.into()));
    let listed = home.run("app runs api").ok();
    let lines: Vec<_> = listed.out.lines().collect();
    assert!(lines[0].starts_with("RUN  COMMAND"), "{listed:?}");
    assert!(lines[1].starts_with("3    bin/fail-3") && lines[3].starts_with("1    bin/fix --all"), "{listed:?}");
    assert_eq!(home.run("app history api").ok().out.lines().count(), 4, "none is a revision");
    let audit = home.run("audit").ok().out;
    assert!(audit.contains("run commands by hand") && audit.contains(r#"["bin/fix", "--all"]"#), "{audit}");
}

#[test]
fn failures_of_rollhook_have_another_code_than_commands() {
    let home = cli!().fast();
    let unknown = home.run("app run api -- true").exits(125);
    assert!(unknown.err.contains("There is no app shop-test/api."), "{unknown:?}");
    home.run("app run api").exits(2);
    let detached = home.with_history().run("app run api --detach -- true").exits(2);
    assert!(detached.err.contains("name a --server"), "{detached:?}");
}

#[test]
fn interrupted_command_is_ended() {
    let home = cli!().fast().with_history();
    let child = begun(&home, "app run api -- hang");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let ended = Ended::from(child.wait_with_output().unwrap()).exits(130);
    assert!(ended.err.contains("ending run 1") && ended.err.contains("cancelled the run"), "{ended:?}");
    let listed = home.run("app runs api -o json").ok().json();
    assert_eq!(listed["runs"][0]["status"], "cancelled", "{listed}");
    home.run("app run api -- bin/fix").ok();
}
