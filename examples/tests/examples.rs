//! Each example runs, ends by itself, and prints what its documentation promises.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::process::Command;

fn output(example: &str) -> String {
    let output = Command::new(example).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn own_backend_goes_on_from_its_file() {
    let told = output(env!("CARGO_BIN_EXE_own_backend"));
    let expected = "  2  registry.example.com/api:v2  succeeded\n  1  registry.example.com/api:v1  succeeded\n";
    assert!(told.ends_with(expected), "{told}");
}

#[test]
fn own_driver_switches_a_site_and_back() {
    let expected = "\
3  sites.example.com/web:v1  rollback  succeeded
2  sites.example.com/web:v2  manual    succeeded
1  sites.example.com/web:v1  manual    succeeded
current leads to v1@sha256:676f6f64207631676f6f64207631676f6f64207631676f6f64207631676f6f64
";
    assert_eq!(output(env!("CARGO_BIN_EXE_own_driver")), expected);
}

#[test]
fn own_builder_builds_what_is_pushed_and_rolls_back() {
    let told = output(env!("CARGO_BIN_EXE_own_builder"));
    let lines: Vec<&str> = told.lines().collect();
    let expected = [
        r#""mkdir public && echo one > public/index.html": succeeded"#,
        r#""echo no compiler; exit 2": failed (build-failed)"#,
        r#""mkdir public": succeeded"#,
        "alice rolls back to revision 1: succeeded",
    ];
    assert_eq!(lines[..4], expected);
    let image = |line: &str| line.split_whitespace().nth(2).map(str::to_owned);
    assert!(image(lines[4]).unwrap().starts_with("sites.example.com/web@sha256:"), "{told}");
    assert_eq!(image(lines[4]), image(lines[7]), "the same bits as revision 1");
    assert_eq!(image(lines[6]), None, "what was not built has no image");
}
