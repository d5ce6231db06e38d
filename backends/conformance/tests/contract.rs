//! Every promise in the ports' documentation is a case of its suite, and every case is a promise.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::{collections::BTreeSet, fs, path::Path};

/// The names that stand in front of promises: in list items, between backticks, before anything else.
fn promises(package: &str, port: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let own = format!("../../{package}/src/ports/{port}.rs");
    let files = files_of(&format!("../../{package}/src/ports/{port}"));
    let texts: Vec<String> = files.iter().chain([&own]).map(|file| read(file)).collect();
    for line in texts.iter().flat_map(|text| text.lines()) {
        let Some(item) = line.strip_prefix("/// - `") else { continue };
        let mut rest = item;
        while let Some((name, after)) = rest.split_once('`') {
            if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_') {
                break;
            }
            names.insert(name.to_owned());
            let Some(next) = after.strip_prefix(", `") else { break };
            rest = next;
        }
    }
    names
}

/// The cases that the macros stamp for a suite.
fn cases(suite: &str) -> BTreeSet<String> {
    let macros = read("src/macros.rs");
    let (_, list) = macros.split_once(&format!("$fresh, {suite}:")).unwrap();
    let (list, _) = list.split_once('}').unwrap();
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The cases that are written.
fn written(suite: &str) -> BTreeSet<String> {
    let mut files = files_of(&format!("src/{suite}"));
    if files.is_empty() {
        files.push(format!("src/{suite}.rs"));
    }
    let mut names = BTreeSet::new();
    for file in files {
        for line in read(&file).lines().filter_map(|line| line.strip_prefix("pub async fn ")) {
            names.insert(line.split('(').next().unwrap().to_owned());
        }
    }
    names
}

/// The files of a folder; none if there is no such folder.
fn files_of(folder: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)) else { return Vec::new() };
    entries.map(|entry| format!("{folder}/{}", entry.unwrap().file_name().display())).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn every_promise_has_its_case() {
    for (package, port, suite) in [
        ("core", "tokens", "tokens"),
        ("core", "history", "history"),
        ("core", "rollout", "rollouts"),
        ("core", "builds", "builds"),
        ("core", "releases", "releases"),
        ("core", "instances", "instances"),
        ("core", "registry", "registry"),
        ("management", "records", "records"),
    ] {
        let promised = promises(package, port);
        assert!(promised.len() > 5, "the promises of {port} were read: {promised:?}");
        assert_eq!(cases(suite), promised, "{port}: cases that are stamped, and promises");
        assert_eq!(written(suite), promised, "{port}: cases that are written, and promises");
    }
}
