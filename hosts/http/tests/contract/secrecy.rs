//! A whole session at the most talkative log level, and then a search for every secret in all that came of it.

use std::{
    fs,
    io::Write,
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rollhook_api::Webhook;
use rollhook_testing::{Call, Reply, Server, image, server, until};
use serde_json::json;

use crate::disguises::forms;

#[test]
fn no_secret_is_in_text_logs_answers_metrics_or_files() {
    session("text");
}

#[test]
fn no_secret_is_in_json_logs_answers_metrics_or_files() {
    session("json");
}

fn session(log_format: &str) {
    let mut session = Session::start(log_format);
    let app = session.app("api", "/api/v1/apps/shop-test/api", "/api/v1/webhook/shop-test/api");
    let other = session.app("other", "/api/v1/apps/shop-test/other", "/api/v1/webhook/shop-test/other");
    session.deploys(&app, &other);
    session.misplaced(&app);
    session.managing(&app, &other);
    let directory = session.server.file("");
    private(&directory);
    // Once more, so that what a start reads and writes is searched too; and the end of each.
    session.server.restart();
    session.call(session.server.manage("GET", &app.path), 200);
    session.server.signal("TERM");
    assert!(session.server.ended());
    session.search(&directory);
}

/// An app, and the tokens that it has had.
struct App {
    path: String,
    hook: String,
    old: String,
    token: String,
    /// The signing key of the token.
    key: String,
}

struct Session {
    server: Server,
    secrets: Vec<String>,
    /// Everything that was answered, but by enable and status.
    answers: Vec<String>,
}

impl Session {
    fn start(log_format: &str) -> Self {
        let server = server!().arguments(["--log-format", log_format]).variable("RUST_LOG", "trace").run();
        Self { secrets: vec![server.admin.clone()], server, answers: Vec::new() }
    }

    fn call(&mut self, call: Call, status: u16) -> String {
        let reply = call.expect(status);
        let text = format!("{:?}\n{}", reply.headers, reply.text());
        self.answers.push(text.clone());
        text
    }

    /// Makes a token, asks for it, and makes another.
    fn app(&mut self, name: &str, path: &str, hook: &str) -> App {
        let policy = json!({ "settle": "0s", "rollout_deadline": "1s" });
        let create = json!({
            "project": "shop", "environment": "test", "app": name, "image": "r.example.com/api:v1", "policy": policy
        });
        self.call(self.server.manage("POST", "/api/v1/apps").json(&create), 201);
        self.call(self.server.manage("GET", &format!("{path}/deploys/1")).header("prefer", "wait=20"), 200);
        let webhook = format!("{path}/webhook");
        let mut token = |method: &str| {
            let answer = self.server.manage(method, &webhook).expect(200);
            let webhook: Webhook = serde_json::from_slice(&answer.body).unwrap();
            self.answers.push(format!("{webhook:?} {:?}", answer.headers));
            (webhook.token, webhook.signing_key)
        };
        let (old, shown, new) = (token("POST"), token("GET"), token("POST"));
        assert!(old == shown && old.0 != new.0 && old.1 != new.1);
        let ((old, old_key), (token, key)) = (old, new);
        // What every key begins with is no secret.
        let keys = [&old_key, &key].map(|key| key.strip_prefix("whsec_").unwrap().to_owned());
        self.secrets.extend([old.clone(), token.clone()].into_iter().chain(keys));
        App { path: path.to_owned(), hook: hook.to_owned(), old, token, key }
    }

    /// CI's calls, good and bad.
    fn deploys(&mut self, app: &App, other: &App) {
        let post = |tag: &str| self.server.call("POST", &app.hook).json(&image(tag));
        let with = |tag: &str, token: &str| post(tag).header("x-service-token", token);
        let wait = |call: Call| call.header("prefer", "wait=50");
        let bearer = format!("Bearer {}", app.old);
        let calls = [
            (wait(with("v2", &app.token)), 200),
            (wait(with("v3", &app.token).header("idempotency-key", "k")), 200),
            (wait(with("v3", &app.token).header("idempotency-key", "k")), 200),
            (with("v4", &app.token).header("idempotency-key", "k"), 422),
            (wait(post("v5").sign(&app.token)), 200),
            (wait(post("v6").sign(&app.token).header("x-service-token", &app.token)), 200),
            (wait(with("hang", &app.token)), 424),
            (with("v7", &app.old), 401),
            (with("v7", &other.token), 401),
            (with("v7", &self.server.admin), 401),
            (with("v7", &app.token).header("x-service-token", &app.token), 401),
            (with("v7", &app.token).sign(&app.old), 401),
            (post("v7").header("x-gitlab-token", &app.old), 401),
            (post("v7").header("x-gitlab-token", &app.key), 401),
            (post("v7").header("x-gitea-signature", &app.token), 401),
            (post("v7").header("webhook-signature", &format!("v1,{}", app.key)), 401),
            (post("issues").header("x-gitlab-token", &app.token).header("x-gitlab-event", "Issue Hook"), 409),
            (post("v7").sign(&app.old), 401),
            (post("v7").sign(&self.server.admin), 401),
            (post("v7").header("authorization", &bearer), 401),
            (post("v7").header("cookie", &format!("token={}", app.token)), 401),
            (with("v7", &app.token).header("content-type", "text/plain"), 415),
            (with("UPPER CASE", &app.token), 422),
            (self.server.call("GET", &app.hook).header("x-service-token", &app.token), 405),
            (self.server.call("GET", &format!("{}/deploys/2", app.path)).header("x-service-token", &app.token), 200),
            (self.server.call("GET", &format!("{}/deploys/2", app.path)).header("x-service-token", &app.old), 401),
        ];
        // The signatures that were sent are no business of a log either.
        self.secrets.extend(calls.iter().flat_map(|(call, _)| signatures(call)));
        for (call, status) in calls {
            self.call(call, status);
        }
        self.rest(app);
    }

    /// Secrets where they do not belong, as happens to people.
    fn misplaced(&mut self, app: &App) {
        let hook = |query: &str| self.server.call("POST", &format!("{}{query}", app.hook)).json(&image("v8"));
        let body = |body: &str| hook("").header("x-service-token", &app.token).body(body.as_bytes());
        let token = &app.token;
        let admin = &self.server.admin;
        let manage = |method, path: &str| self.server.manage(method, path);
        let calls = [
            (hook(&format!("?token={token}")), 401),
            (hook(&format!("/{token}")), 401),
            (self.server.call("GET", &format!("/{token}")), 401),
            (self.server.call("GET", &format!("/api/v1/apps?token={admin}")), 401),
            (self.server.call("GET", "/metrics").header("x-request-id", token), 200),
            (hook("").header("x-request-id", token), 401),
            (hook("").header("referer", token).header("user-agent", token), 401),
            (body(token), 400),
            (body(&format!("{{\"{token}\"")), 400),
            (body(&format!("{{\"image\":{token}}}")), 400),
            (body(&format!("{{\"image\":[\"{token}\"]}}")), 422),
            (body(&format!("{{\"image\":\"{token}\"}}")), 422),
            (body(&format!("{{\"image\":\"{}\"}}", app.key)), 422),
            (body("{}").header("x-github-event", token), 409),
            (body(&format!("{{\"image\":\"r.example.com/api:v1 {token}\"}}")), 422),
            (body("{}").header("idempotency-key", &format!("{token}{}", "x".repeat(255))), 422),
            (manage("GET", &format!("/api/v1/apps/{token}/{admin}")), 404),
            (manage("GET", &format!("{}/deploys/{token}", app.path)), 404),
            (manage("GET", &format!("/api/v1/apps?limit={token}")), 400),
            (manage("PATCH", &app.path).json(&json!({ "policy": { "settle": token } })), 422),
            (manage("PATCH", &app.path).json(&json!({ "policy": { "hold": admin } })), 422),
            (manage("PATCH", &app.path).json(&json!({ "policy": { "repositories": [token] } })), 422),
            (manage("POST", "/api/v1/apps").json(&json!({ "project": token, "environment": "e", "app": "a" })), 422),
        ];
        for (call, status) in calls {
            self.call(call, status);
        }
        // No HTTP at all, which only the most talkative log mentions.
        let mut stream = TcpStream::connect(self.server.address).unwrap();
        stream.write_all(format!("{token} {token}\r\nx-service-token {token}\r\n\r\n").as_bytes()).unwrap();
        self.answers.push(format!("{:?}", Reply::read(stream)));
    }

    /// Everything that a manager can ask for.
    fn managing(&mut self, app: &App, other: &App) {
        let manage = |method, rest: &str| self.server.manage(method, &format!("{}{rest}", app.path));
        let calls = [
            (manage("GET", ""), 200),
            (manage("GET", "/deploys?limit=200"), 200),
            (manage("GET", "/deploys/6"), 200),
            // To the end of the streams: of one that ended, and of one that still goes on.
            (manage("GET", "/deploys/6/events"), 200),
            (manage("POST", "/deploys").json(&image("hang-by-hand")), 202),
            (manage("GET", "/deploys/8/events"), 200),
            (manage("POST", "/rollback"), 202),
            (manage("DELETE", "/hold"), 200),
            (manage("POST", "/promote").json(&json!({ "from": { "project": "no", "environment": "where" } })), 404),
            (manage("POST", "/rebuild"), 409),
            (manage("PATCH", "").json(&json!({ "policy": { "hold": "all" } })), 200),
            (self.server.manage("GET", "/api/v1/apps"), 200),
            (self.server.call("GET", "/api/v1/apps").header("authorization", "Bearer wrong"), 401),
            (self.server.call("GET", "/api/v1/apps").header("authorization", &format!("Basic {}", app.token)), 401),
            (self.server.manage("DELETE", &format!("{}/webhook", other.path)), 204),
            (self.server.manage("GET", &format!("{}/webhook", other.path)), 404),
            (self.server.manage("DELETE", &other.path), 204),
            (self.server.call("GET", "/healthz"), 200),
            (self.server.call("GET", "/readyz"), 200),
            (self.server.call("GET", "/metrics"), 200),
            (self.server.call("GET", "/api/v1/openapi.json"), 200),
        ];
        for (call, status) in calls {
            self.call(call, status);
        }
        self.rest(app);
    }

    /// Waits for the end of every deploy, and of what the service makes of it.
    fn rest(&self, app: &App) {
        until("everything has ended", || {
            let page = self.server.manage("GET", &format!("{}/deploys", app.path)).expect(200).json();
            let newest = &page["deploys"][0];
            newest["trigger"] == "rollback" && newest["status"] == "succeeded"
        });
    }

    fn search(&self, directory: &Path) {
        let files = files(directory).into_iter().filter(|file| !file.ends_with("admin-token"));
        let mut haystacks: Vec<(String, String)> = files
            .map(|file| (file.display().to_string(), String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned()))
            .collect();
        for name in ["rollhook.db", "log"] {
            assert!(haystacks.iter().any(|(file, text)| file.ends_with(name) && text.len() > 1000), "{name}");
        }
        let log = self.server.log();
        assert!(log.contains("serving a connection failed"), "the log is not as talkative as it can be");
        haystacks.push(("the names of files".to_owned(), haystacks.iter().map(|(file, _)| file.as_str()).collect()));
        haystacks.extend(self.answers.iter().map(|answer| ("an answer".to_owned(), answer.clone())));
        for (what, haystack) in &haystacks {
            let folded = haystack.to_lowercase();
            for (form, needle) in self.secrets.iter().flat_map(|secret| forms(secret)) {
                let exact = form == "itself" || form == "base64";
                let found = if exact { haystack.find(&needle) } else { folded.find(&needle.to_lowercase()) };
                if let Some(place) = found {
                    let around = haystack.get(place.saturating_sub(200)..place + 200).unwrap_or_default();
                    panic!("a secret ({form}) is in {what}: {around}");
                }
            }
        }
    }
}

/// The text of each signature header.
fn signatures(call: &Call) -> Vec<String> {
    let head = String::from_utf8_lossy(&call.head(0)).into_owned();
    let lines = head.lines().filter_map(|line| line.strip_prefix("x-hub-signature-256: sha256="));
    lines.map(str::to_owned).collect()
}

/// Nobody else on the machine can read what the server keeps.
fn private(directory: &Path) {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let kept: Vec<_> = files(directory).into_iter().filter(|file| !file.ends_with("log")).collect();
    let names: Vec<_> = kept.iter().map(|file| file.file_name().unwrap().to_string_lossy().into_owned()).collect();
    for name in ["rollhook.db", "rollhook.db-wal", "rollhook.db-shm", "admin-token"] {
        assert!(names.iter().any(|known| known == name), "{name} is not in {names:?}");
    }
    assert!(names.iter().any(|name| name.ends_with(".key")), "{names:?}");
    for file in kept {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    assert_eq!(mode(&directory.join("keys")), 0o700);
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}
