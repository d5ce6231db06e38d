//! The console in a real browser: `testing/browser/console.mjs` drives Chromium against the real server, as a person
//! would, and checks each page by axe-core at three sizes and in both themes. `.ci/setup` installs what it needs.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use rollhook_testing::{Server, fixtures::GitHost, server, skip, test_name};
use serde_json::json;

use crate::browser::{self, Programs};

/// Writes in colours, waits until the test lets it go on, and writes what a hostile build would.
const BUILD: &str = r#"#!/bin/sh
printf '\033[32mfetching\033[0m the base image\n'
while [ ! -e "$(dirname "$0")/go-on" ]; do sleep 0.1; done
printf '\033[1;31m<script>alert(1)</script>\033[0m \033]8;;https://evil.example\007a link\033]8;;\007\n'
echo "$ROLLHOOK_IMAGE_REPOSITORY@sha256:$(echo "$ROLLHOOK_COMMIT" | sha256sum | cut -c1-64)"
"#;

#[test]
fn a_person_deploys_watches_and_rolls_back_in_a_browser() {
    let test = test_name!();
    let Programs { browser: program, node, modules } = match Programs::find("playwright-core") {
        Ok(found) => found,
        Err(missing) => return skip(&test, missing),
    };
    let git = GitHost::start();
    let commit = git.repository("site").push("main");
    let server = server!().driver("simulated:1500ms").builder(BUILD).arguments(["--allow-local-receivers"]).run();
    let arguments = json!({
        "address": server.address.to_string(),
        "token": server.admin,
        "screenshots": browser::pictures(),
        "program": program,
        "modules": modules,
        "git": git.url("site"),
        "commit": commit,
    });
    let mut command = Command::new(node);
    command.arg(browser::script("console.mjs")).arg(arguments.to_string());
    // The browser's profile goes with the server's directory.
    command.env("TMPDIR", server.file("")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut script = command.spawn().unwrap();
    let (mut answers, told) = (script.stdin.take().unwrap(), BufReader::new(script.stdout.take().unwrap()));
    let mut server = Some(server);
    let mut recipe = None;
    let mut faults = Vec::new();
    for line in told.lines().map_while(Result::ok) {
        println!("{line}");
        match line.as_str() {
            "ask: build on" => {
                fs::write(server.as_ref().unwrap().file("go-on"), "").unwrap();
                writeln!(answers, "building").unwrap();
            }
            "ask: stop" => {
                recipe = server.take().map(Server::kill);
                writeln!(answers, "stopped").unwrap();
            }
            "ask: start" => {
                server = recipe.take().map(|recipe| recipe.run());
                writeln!(answers, "started").unwrap();
            }
            other => faults.extend(other.strip_prefix("fault: ").map(str::to_owned)),
        }
    }
    let ended = script.wait().unwrap();
    assert!(ended.success() && faults.is_empty(), "{}", faults.join("\n"));
}
