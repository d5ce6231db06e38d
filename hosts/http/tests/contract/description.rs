//! The server beside its own OpenAPI description, called by schemathesis with what the description allows and with what
//! it does not.

use std::{path::Path, process::Command};

use rollhook_testing::{Ended, process::tool, server, test_name, usually_or_long};
use serde_json::json;

#[test]
fn server_answers_made_up_calls_as_its_description_says() {
    let Some(program) = tool("python/bin/schemathesis", &test_name!()) else { return };
    // No registry is called, whatever image a call makes up.
    let server = server!().unlimited().arguments(["--registry-host", "registry.invalid"]).run();
    server.app_with("api", json!({ "settle": "0s" }));
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/python/schemathesis.toml");
    let url = format!("http://{}", server.address);
    let mut command = Command::new(program);
    command.arg("--config-file").arg(config).args(["run", &format!("{url}/api/v1/openapi.json"), "--url", &url]);
    command.args(["--checks", "all", "--continue-on-failure", "--no-color"]);
    command.args(["--header", &format!("Authorization: Bearer {}", server.admin)]);
    command.args(["--max-examples", &usually_or_long(10, 200).to_string()]);
    let ended: Ended = command.current_dir(server.recipe().directory()).output().unwrap().into();
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
    assert!(ended.out.contains("Tested: "), "{}", ended.out);
    let log = server.log();
    assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
}
