//! Secret values of variables, and the search for them in what a server has written.

#[path = "../contract/disguises.rs"]
mod disguises;

use std::{fs, path::Path, process::Command};

/// The first characters of all values: letters and digits alone, which every encoding of base64 writes in the same way.
const MARKER: &str = "Qz7Kp2Xv9Lm4Rt8W";

/// A value that is found wherever it is written.
pub(crate) fn value(end: &str) -> String {
    format!("{MARKER}-{end}")
}

/// An idempotency key for the call that sets a value.
pub(crate) fn key_of(value: &str) -> &str {
    value.strip_prefix(MARKER).unwrap()
}

/// Asserts that a text has no part of a value in any form.
pub(crate) fn assert_absent(what: &str, text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    for (form, needle) in disguises::forms(MARKER) {
        if let Some(place) = text.find(&needle) {
            let around: String = text[..place].chars().rev().take(100).collect();
            panic!("a value ({form}) is in {what}, after: {}", around.chars().rev().collect::<String>());
        }
    }
}

/// Asserts that no file below a directory has a value.
pub(crate) fn assert_absent_below(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            assert_absent_below(&path);
        } else if let Ok(content) = fs::read(&path) {
            assert_absent(&path.display().to_string(), &content);
        }
    }
}

/// Returns the number of configurations that a store in SQLite has.
pub(crate) fn sealed_in(database: &Path) -> usize {
    const COUNT: &str = "import sqlite3, sys\n\
        store = sqlite3.connect(f'file:{sys.argv[1]}?mode=ro', uri=True)\n\
        print(store.execute('SELECT count(*) FROM configurations').fetchone()[0])";
    let counted = Command::new("python3").args(["-c", COUNT]).arg(database).output().unwrap();
    assert!(counted.status.success(), "{}", String::from_utf8_lossy(&counted.stderr));
    String::from_utf8(counted.stdout).unwrap().trim().parse().unwrap()
}
