//! Starting the real binary: what it makes, what it refuses, what it says.

use std::{fs, process::Command};

use rollhook_testing::{Start, server};

fn run(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_rollhook-server"))
        .args(arguments)
        .env_remove("HOME")
        .env_remove("XDG_DATA_HOME")
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn invalid_settings_fail_with_the_reason() {
    for (arguments, said) in [
        (&["--listen", "127.0.0.1:0", "--store", "postgres://u:hunter2@db/r"][..], "rollhook-server keys new DIR"),
        (&["--listen", "127.0.0.1:0", "--store", "kubernetes"], "rollhook-server keys new DIR"),
        (&["--store", "mysql://u:hunter2@db/r"], "must be memory, sqlite:FILE, postgres://"),
        (&["--driver", "swarm"], "must be simulated"),
        (&["--listen", "localhost"], "--listen"),
        (&["--base-url", "ftp://x"], "http(s)://"),
        (&["--trusted-proxy", "10.0.0.0/33"], "ADDRESS/BITS"),
        (&["--listen", "127.0.0.1:0"], "XDG_DATA_HOME"),
        (&["keys"], "new"),
    ] {
        let (ok, text) = run(arguments);
        assert!(!ok && text.contains(said), "{arguments:?}: {text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn commands_on_a_store_make_none_where_none_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    assert!(run(&["admin-token", "new", &path("token")]).0);
    let store = format!("sqlite:{}", path("missing.db"));
    for command in [
        &["admin-token", "set", &path("token")][..],
        &["store", "rebind", "--driver", "simulated"],
        &["keys", "status"],
    ] {
        let (ok, text) = run(&[command, &["--store", &store, "--key-dir", &path("keys")]].concat());
        assert!(!ok && text.contains("there is no store in"), "{command:?}: {text}");
    }
    assert!(!directory.path().join("missing.db").exists());
}

#[test]
fn living_server_keeps_its_store_from_being_rebound() {
    let server = server!().run();
    let rebound = server.recipe().server_command().args(["store", "rebind"]).output().unwrap();
    let told = String::from_utf8_lossy(&rebound.stderr).into_owned();
    assert!(!rebound.status.success() && told.contains("another server works on"), "{told}");
}

#[test]
fn keys_and_tokens_are_made_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (keys, token) = (path("keys"), path("token"));
    assert!(run(&["keys", "new", &keys]).0 && run(&["keys", "new", &keys]).0);
    assert_eq!(fs::read_dir(&keys).unwrap().count(), 2);
    let (ok, said) = run(&["admin-token", "new", &token]);
    let text = fs::read_to_string(&token).unwrap();
    assert!(ok && text.starts_with("rh_") && !said.contains(text.trim()), "{said}");
    assert!(!run(&["admin-token", "new", &token]).0, "an existing token is not replaced");
}

/// Returns the server's message when it does not start.
fn refusal(start: &Start) -> String {
    let output = start.server_command().output().unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn another_admin_token_is_refused_at_start_and_set_on_request() {
    let server = server!().run();
    let app = server.app("api");
    let old = server.admin.clone();
    let start = server.kill();
    let (file, kept) = (start.file("admin-token"), start.file("kept"));
    fs::rename(&file, &kept).unwrap();
    let said = refusal(&start);
    assert!(said.contains("the store knows one"), "{said}");
    assert!(!file.exists(), "no other token is made");
    let start = start.make("admin-token");
    let said = refusal(&start);
    assert!(said.contains("another admin token") && said.contains("admin-token set"), "{said}");
    fs::rename(&file, start.file("new")).unwrap();
    fs::rename(&kept, &file).unwrap();
    let server = start.run();
    server.manage("GET", &app.path).expect(200);

    let store = format!("sqlite:{}", start.file("rollhook.db").display());
    let mut set = start.command();
    set.args(["admin-token", "set"])
        .arg(start.file("new"))
        .args(["--store", &store, "--key-dir"])
        .arg(start.file("keys"));
    let set = set.output().unwrap();
    assert!(set.status.success(), "{set:?}");
    server.manage("GET", &app.path).expect(401);
    let start = server.kill();
    fs::rename(start.file("new"), &file).unwrap();
    let server = start.run();
    assert_ne!(server.admin, old);
    server.manage("GET", &app.path).expect(200);
    server.call("GET", &app.path).header("authorization", &format!("Bearer {old}")).expect(401);
}

#[test]
fn a_base_url_is_what_webhooks_begin_with() {
    let server = server!().arguments(["--base-url", "https://deploy.example.com/rollhook/", "--store", "memory"]).run();
    let create =
        serde_json::json!({ "project": "shop", "environment": "test", "app": "api", "image": "r.example.com/a:1" });
    server.manage("POST", "/api/v1/apps").json(&create).expect(201);
    let webhook = server.manage("POST", "/api/v1/apps/shop-test/api/webhook").expect(200).json();
    assert_eq!(webhook["url"], "https://deploy.example.com/rollhook/api/v1/webhook/shop-test/api");
    assert_eq!(webhook["sealing"], "memory");
    assert!(webhook["note"].as_str().unwrap().contains("memory"));
    assert!(server.log().contains("the store is in memory"));
}
