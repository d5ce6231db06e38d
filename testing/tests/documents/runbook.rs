//! Log lines that the runbook tells its reader to look for.

use std::process::Command;

use rollhook_testing::documents::{pages, root, shell_blocks, statements};

/// The texts that a pattern of `grep` matches: alternatives, or one text with alternatives in brackets at its end.
fn alternatives(pattern: &str) -> Vec<String> {
    match pattern.split_once('(') {
        Some((begin, rest)) => rest.trim_end_matches(')').split('|').map(|end| format!("{begin}{end}")).collect(),
        None => pattern.split('|').map(str::to_owned).collect(),
    }
}

#[test]
fn each_log_line_that_the_runbook_looks_for_is_one_that_the_programs_write() {
    let mut found = 0;
    for (path, text) in pages().into_iter().filter(|(path, _)| path.starts_with("docs/runbook/")) {
        for statement in shell_blocks(&text).into_iter().flat_map(statements) {
            let Some((_, after)) = statement.split_once("| grep ") else { continue };
            let pattern = after.split('\'').nth(1).unwrap();
            // The level is not part of the text.
            for text in alternatives(pattern).into_iter().filter(|text| text != "ERROR") {
                let mut search = Command::new("grep");
                search.args(["-rqF", "--include=*.rs", "--exclude-dir=tests", &text]);
                let search = search.args(["core/src", "hosts", "backends"]).current_dir(root()).status();
                assert!(search.unwrap().success(), "{path}: no program logs `{text}`");
                found += 1;
            }
        }
    }
    assert!(found > 5, "{found}");
}
