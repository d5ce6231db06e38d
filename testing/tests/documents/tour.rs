//! Commands to paste: the README's tour, and the snippets that `webhook enable` prints, run as CI runs them.

use std::{
    fs,
    net::TcpStream,
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
};

use rollhook_testing::{
    Call, Cli, Ended, Server,
    documents::root,
    free_address,
    pipeline::{CiSystem, Job, clean, printed},
    process::{Running, is_installed, program},
    server, skip, test_name, until,
};
use serde_json::Value;
use tempfile::TempDir;

const README: &str = include_str!("../../../README.md");

#[test]
fn the_readme_tour_works_as_it_is_pasted() {
    if !is_installed("curl") {
        return skip(&test_name!(), "there is no curl");
    }
    let directory = tempfile::tempdir().unwrap();
    // The binaries that the tour builds are there already.
    lay_out(&directory);
    let address = free_address().to_string();
    let ready = format!("for _ in $(seq 600); do curl -sf http://{address}/readyz && break; sleep 0.1; done");
    let script: Vec<String> = tour()
        .lines()
        .filter(|line| !line.starts_with("cargo build"))
        .map(|line| if line == "sleep 1" { ready.clone() } else { line.replace("127.0.0.1:8080", &address) })
        .collect();
    // The server is the only background job.
    let script = format!("trap 'kill $!' EXIT\n{}\n", script.join("\n"));
    let output = clean("sh")
        .args(["-eu", "-c", &script])
        .current_dir(directory.path())
        .env("TMPDIR", directory.path())
        .env("ROLLHOOK_LISTEN", &address)
        .output()
        .unwrap();
    let Ended { code, out, err } = output.into();
    let log = fs::read_to_string(directory.path().join("server.log")).unwrap_or_default();
    assert_eq!(code, 0, "{out}\n{err}\n{log}");
    let lines: Vec<_> = out.lines().collect();
    let line = |number: &str, words: &[&str]| {
        let fits = |line: &&&str| line.starts_with(number) && words.iter().all(|word| line.contains(word));
        assert!(lines.iter().any(|line| fits(&line)), "no line {number} with {words:?}: {out}");
    };
    line("{", &["\"revision\":2", "\"status\":\"succeeded\""]);
    line("2 ", &["registry.example.com/api:def456a", "def456a", "webhook", "(current)"]);
    line("Rolling back", &["revision 1", "registry.example.com/api:abc123f", "new revision 3"]);
    line("3 ", &["registry.example.com/api:abc123f", "rollback", "(current)"]);
    assert!(log.contains("NOTHING IS DEPLOYED ANYWHERE"), "{log}");
}

#[test]
fn the_readme_begins_with_the_build_of_server_and_command_line_and_starts_the_server() {
    let (_, block) = README.split_once("```sh\n").unwrap();
    let first = block.lines().next().unwrap().split(" #").next().unwrap().trim();
    let (build, start) = first.split_once(" && ").unwrap();
    // The tour begins with the same build, which then takes no time.
    assert_eq!((build, tour().lines().next()), ("cargo build", Some(build)));
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let metadata = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let built = metadata["workspace_default_members"].to_string();
    assert!(built.contains("/hosts/http#rollhook-server@") && built.contains("/hosts/cli#rollhook-cli@"), "{built}");

    let directory = tempfile::tempdir().unwrap();
    lay_out(&directory);
    let address = free_address();
    let mut server = clean("sh");
    server.args(["-c", &format!("exec {start}")]).current_dir(directory.path());
    server.env("XDG_DATA_HOME", directory.path()).env("ROLLHOOK_LISTEN", address.to_string()).stderr(Stdio::null());
    let _server = Running(server.stdout(Stdio::null()).spawn().unwrap());
    until("the console is there", || {
        TcpStream::connect(address).is_ok() && Call::to(address, "GET", "/sign-in").send().status == 200
    });
}

/// Makes the directory in which the README's build has put its programs.
fn lay_out(directory: &TempDir) {
    fs::create_dir(directory.path().join("target")).unwrap();
    symlink(rollhook().parent().unwrap(), directory.path().join("target/debug")).unwrap();
}

/// The commands of the tour.
fn tour() -> &'static str {
    let (_, after) = README.split_once("## The 60-second tour").unwrap();
    let (_, block) = after.split_once("```sh\n").unwrap();
    block.split_once("```").unwrap().0
}

#[test]
fn each_snippet_deploys_and_fails_the_pipeline_when_the_deploy_fails() {
    if !is_installed("curl") {
        return skip(&test_name!(), "there is no curl");
    }
    let server = server!().run();
    thread::scope(|scope| {
        for system in [CiSystem::GitLab, CiSystem::GitHub, CiSystem::Shell] {
            let server = &server;
            scope.spawn(move || deploys_and_fails(server, system));
        }
    });
}

fn deploys_and_fails(server: &Server, system: CiSystem) {
    let app = format!("{system:?}").to_lowercase();
    let image = |tag: &str| format!("registry.example.com/{app}:{tag}");
    let cli = Cli::new(rollhook()).with("ROLLHOOK_SERVER", &format!("http://{}", server.address));
    let cli = cli.with("ROLLHOOK_TOKEN", &server.admin);
    let run = |words: String| cli.run(&words).ok().out;
    run(format!("app create {app} --image {} --settle 0s --wait", image("first")));
    let enabled = run(format!("app webhook enable {app}"));
    let job = Job::read(system, &enabled);
    let (url, token) = (printed(&enabled, "URL"), printed(&enabled, "Token"));
    assert!(!job.script.contains(token), "{}", job.script);

    let out = job.run(url, token, "good000").ok().out;
    assert!(out.contains("Revision 2 succeeded"), "{out}");
    let Ended { out, err, .. } = job.run(url, token, "missing").exits(3);
    assert!(format!("{out}{err}").contains("Revision 3 failed"), "{out}{err}");
    let Ended { out, err, .. } = job.run(url, "rh_wrong", "other00").exits(4);
    assert_eq!(out, "", "{err}");

    let history = run(format!("app history {app}"));
    let lines: Vec<_> = history.lines().skip(1).collect();
    // The version before is put back by itself, which may still go on.
    let deploys = &lines[lines.len() - 3..];
    assert!(deploys[0].contains(&image("missing")) && deploys[0].contains("(failed"), "{history}");
    assert!(deploys[1].contains(&image("good000")), "{history}");
    let back = run(format!("app rollback {app} --revision 1 --wait"));
    assert!(back.contains("revision 1") && back.contains(&image("first")), "{back}");
    let history = run(format!("app history {app}"));
    let newest = history.lines().nth(1).unwrap();
    assert!(newest.contains(&image("first")) && newest.ends_with("(current)"), "{history}");
}

/// The command line's program.
fn rollhook() -> PathBuf {
    program("rollhook-cli", "rollhook")
}
