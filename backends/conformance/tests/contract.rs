//! Every promise in the ports' documentation is a case of its suite, and every case is a promise.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::{collections::BTreeSet, fs, path::Path};

/// The names that stand in front of promises: in list items, between backticks, before anything else.
fn promises(port: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in read(&format!("../../core/src/ports/{port}.rs")).lines() {
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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(suite);
    let mut files: Vec<String> = match fs::read_dir(&folder) {
        Ok(entries) => entries.map(|entry| format!("src/{suite}/{}", entry.unwrap().file_name().display())).collect(),
        Err(_) => vec![format!("src/{suite}.rs")],
    };
    files.sort();
    let mut names = BTreeSet::new();
    for file in files {
        for line in read(&file).lines().filter_map(|line| line.strip_prefix("pub async fn ")) {
            names.insert(line.split('(').next().unwrap().to_owned());
        }
    }
    names
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn every_promise_has_its_case() {
    let stores = [("tokens", "tokens"), ("history", "history"), ("records", "records")];
    let suites = stores.into_iter().chain([("rollout", "rollouts"), ("builds", "builds")]);
    for (port, suite) in suites {
        let promised = promises(port);
        assert!(promised.len() > 5, "the promises of {port} were read: {promised:?}");
        assert_eq!(cases(suite), promised, "{port}: cases that are stamped, and promises");
        assert_eq!(written(suite), promised, "{port}: cases that are written, and promises");
    }
}
