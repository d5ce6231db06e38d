//! What floods of known callers leave in SQLite.

use std::process::Command;

use rollhook_testing::{Server, process::is_installed, server, skip, test_name};
use serde_json::Value;

use crate::calls::flood::{Left, assert_bounded, flood};

/// Prints the numbers of rows and bytes.
const COUNT: &str = r#"
import json, sqlite3, sys
store = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
one = lambda query: list(store.execute(query).fetchone())
records = lambda kind: one(f"SELECT count(*), coalesce(sum(length(document)), 0) FROM records WHERE kind = '{kind}'")
deploys = one("SELECT count(*), coalesce(sum(length(document) + coalesce(length(evidence), 0)), 0) FROM deploys")
keys = one("SELECT count(*), coalesce(sum(length(key) + length(request)), 0) FROM keys")
print(json.dumps([records("session"), records("audit"), [max(deploys[0], keys[0]), deploys[1] + keys[1]]]))
"#;

fn left(server: &Server) -> Left {
    let counted = Command::new("python3").args(["-c", COUNT]).arg(server.file("rollhook.db")).output().unwrap();
    assert!(counted.status.success(), "{}", String::from_utf8_lossy(&counted.stderr));
    let counted: Value = serde_json::from_slice(&counted.stdout).unwrap();
    let of = |index: usize| [0, 1].map(|part: usize| counted[index][part].as_u64().unwrap());
    Left { sessions: of(0), audit: of(1), keys: of(2) }
}

#[test]
fn flood_of_one_caller_of_each_kind_leaves_a_bounded_number_of_rows_and_bytes() {
    if !is_installed("python3") {
        return skip(&test_name!(), "python3 is not installed");
    }
    let server = server!().unlimited().run();
    let app = server.app("api");
    let before = left(&server);
    flood(&server, &app);
    assert_bounded(before, left(&server));
}
