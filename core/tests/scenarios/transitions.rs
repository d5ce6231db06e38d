//! The table of transitions, as ARCHITECTURE.md shows it.

use std::{fs, path::Path};

use rollhook_core::ledger::transitions;

#[test]
fn architecture_shows_the_table_of_transitions() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ARCHITECTURE.md");
    // A package has no such file.
    let Ok(text) = fs::read_to_string(file) else { return };
    let table = transitions::table();
    assert!(text.contains(&table), "ARCHITECTURE.md lacks this table:\n{table}");
}
