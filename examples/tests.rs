//! The programs of one file do what they say, and stay as short as an embedding platform's first one is.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::process::Command;

/// The most lines of a first program.
const LINES: usize = 60;

fn output(program: &str) -> String {
    let output = Command::new(program).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn program_of_60_lines_deploys_fails_is_restored_and_rolls_back() {
    let code = include_str!("embed.rs");
    assert!(code.lines().count() <= LINES && !code.contains("management"));
    let shown = output(env!("CARGO_BIN_EXE_embed"));
    let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    let image = |tag: &str| format!("registry.example.com/api:{tag}");
    assert_eq!(
        rows,
        [
            vec!["5", &image("v1"), "rollback", "alice", "succeeded"],
            vec!["4", &image("v2"), "rollback", "auto", "succeeded"],
            vec!["3", &image("v3"), "manual", "alice", "failed"],
            vec!["2", &image("v2"), "manual", "alice", "succeeded"],
            vec!["1", &image("v1"), "manual", "alice", "succeeded"],
        ],
        "{shown}"
    );
}

#[test]
fn second_program_adds_a_reviewer_of_its_own() {
    assert!(include_str!("own_reviewer.rs").lines().count() <= LINES);
    let shown = output(env!("CARGO_BIN_EXE_own_reviewer"));
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 2, "{shown}");
    assert_eq!(lines[0], "alice (platform.example.com) may do this: roll back");
    assert!(lines[1].starts_with("403: You may not delete apps here"), "{shown}");
}

#[test]
fn repeated_call_of_a_webhook_deploys_once() {
    let shown = output(env!("CARGO_BIN_EXE_own_webhook"));
    assert_eq!(shown.lines().collect::<Vec<_>>(), ["revision 2, repeated: false", "revision 2, repeated: true"]);
}
