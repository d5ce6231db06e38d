//! No token in any log line, at any level, in any spelling.

use std::fs;

use rollhook_testing::{image, server};

/// The text as it stands, in base64 at each of the three alignments, and in hexadecimal.
fn spellings(secret: &str) -> Vec<String> {
    let base64 = |bytes: &[u8]| {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let digit = |value: u32, shift: u32| char::from(DIGITS[(value >> shift) as usize % 64]);
        let three = |c: &[u8]| u32::from(c[0]) << 16 | u32::from(c[1]) << 8 | u32::from(c[2]);
        bytes.chunks_exact(3).flat_map(|c| [18, 12, 6, 0].map(|shift| digit(three(c), shift))).collect::<String>()
    };
    let bytes = secret.as_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut spellings = vec![secret.to_owned(), hex.to_uppercase(), hex, format!("{bytes:?}")];
    spellings.extend((0..3).map(|start| base64(&bytes[start..])));
    spellings
}

#[test]
fn no_token_is_logged_at_trace_level() {
    let server = server!().arguments(["--log-format", "json"]).variable("RUST_LOG", "trace").run();
    let app = server.app("api");
    let path = format!("{}/webhook", app.path);
    let bearer = format!("Bearer {}", server.admin);
    server.post(&app, &image("v2")).header("prefer", "wait=20").expect(200);
    server.call("POST", &app.hook).json(&image("v3")).sign(&app.token).expect(202);
    let as_bearer = server.call("POST", &app.hook).header("authorization", &format!("Bearer {}", app.token));
    as_bearer.json(&image("v4")).expect(202);
    server.post(&app, &serde_json::json!({ "image": &app.token, "commit": &app.token })).expect(422);
    server.post(&app, &image("v4")).header("x-request-id", &app.token).expect(202);
    server.post(&app, &image("v4")).header("idempotency-key", &app.token).expect(202);
    server.call("POST", &app.hook).header("x-service-token", &format!("{}x", app.token)).json(&image("v2")).expect(401);
    server.call("POST", &format!("{}?token={}", app.hook, app.token)).json(&image("v2")).expect(401);
    server.call("POST", &format!("/api/v1/webhook/shop-test/{}", app.token)).json(&image("v2")).expect(401);
    server.call("GET", &format!("/{}", app.token)).expect(401);
    server.call("GET", "/api/v1/apps").header("authorization", &format!("Basic {}", server.admin)).expect(401);
    server.call("GET", &format!("/api/v1/apps?limit={}", app.token)).header("authorization", &bearer).expect(400);
    server.manage("GET", &path).expect(200);
    let renewed = server.manage("POST", &path).expect(200).json();
    let metrics = server.call("GET", "/metrics").expect(200).text();
    let log = server.log();
    assert!(log.lines().count() > 20, "{log}");
    for secret in [&app.token, &server.admin, renewed["token"].as_str().unwrap()] {
        // A part that is long enough not to be there by chance.
        for spelling in spellings(&secret[3..]) {
            let part = &spelling[..spelling.len() * 2 / 3];
            if let Some(line) = log.lines().find(|line| line.contains(part)) {
                panic!("in the log: {line}");
            }
            assert!(!metrics.contains(part));
        }
    }
    // The idempotency key was the token, which only its caller can keep from being stored as a key.
    for file in ["rollhook.db", "rollhook.db-wal"] {
        let stored = String::from_utf8_lossy(&fs::read(server.file(file)).unwrap_or_default()).into_owned();
        assert!(!stored.contains(&server.admin[3..]), "{file}");
        assert!(!stored.contains(&renewed["token"].as_str().unwrap()[3..]), "{file}");
    }
}

#[test]
fn made_files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let server = server!().run();
    let mode = |path: std::path::PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(server.file("admin-token")), 0o600);
    assert_eq!(mode(server.file("keys")), 0o700);
    for key in fs::read_dir(server.file("keys")).unwrap() {
        assert_eq!(mode(key.unwrap().path()), 0o600);
    }
    let log = server.log();
    assert!(log.contains("made the admin token") && log.contains("NOTHING IS DEPLOYED"), "{log}");
}
