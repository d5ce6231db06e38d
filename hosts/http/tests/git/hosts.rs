//! Pushes from end to end: a real git server, the real server with a build command, and deliveries signed as each git
//! host signs them, sent by `curl`.

use std::{
    io::Write,
    process::{Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use rollhook_testing::{
    Server,
    fixtures::{GitHost, GitRepository},
    server,
};
use serde_json::{Value, json};

/// "Builds" what is there, and says which commit that was.
const COMMAND: &str = r#"#!/bin/sh
echo "$ROLLHOOK_IMAGE_REPOSITORY@sha256:$(git rev-parse HEAD | sha256sum | cut -c1-64)"
"#;

const ZEROS: &str = "0000000000000000000000000000000000000000";

/// How a host proves itself, and tells of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    Github,
    GitlabToken,
    GitlabSigned,
    Gitea,
    Forgejo,
    Bitbucket,
}

use Sender::{Bitbucket, Forgejo, Gitea, Github, GitlabSigned, GitlabToken};

const SENDERS: [Sender; 6] = [Github, GitlabToken, GitlabSigned, Gitea, Forgejo, Bitbucket];

fn mac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(key).unwrap();
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

impl Sender {
    fn name(self) -> &'static str {
        match self {
            Github => "GitHub: ada",
            GitlabToken | GitlabSigned => "GitLab: ada",
            Gitea => "Gitea: ada",
            Forgejo => "Forgejo: ada",
            Bitbucket => "Bitbucket: ada",
        }
    }

    /// The headers that name the event and the delivery.
    fn told(self, event: &str, id: &str) -> Vec<String> {
        let github = vec![format!("X-GitHub-Event: {event}"), format!("X-GitHub-Delivery: {id}")];
        let gitea =
            [format!("X-Gogs-Event: {event}"), format!("X-Gitea-Event: {event}"), format!("X-Gitea-Delivery: {id}")];
        match self {
            Github => github,
            GitlabToken => vec![format!("X-Gitlab-Event: {event}"), format!("X-Gitlab-Event-UUID: {id}")],
            GitlabSigned => vec![format!("X-Gitlab-Event: {event}"), format!("Idempotency-Key: {id}")],
            Gitea => [github, gitea.to_vec()].concat(),
            Forgejo => [github, gitea.to_vec(), vec![format!("X-Forgejo-Event: {event}")]].concat(),
            Bitbucket => vec![format!("X-Event-Key: {event}"), format!("X-Request-UUID: {id}")],
        }
    }

    fn push_event(self) -> &'static str {
        match self {
            Github | Gitea | Forgejo => "push",
            GitlabToken | GitlabSigned => "Push Hook",
            Bitbucket => "repo:push",
        }
    }

    /// The headers that prove who sends.
    fn proof(self, webhook: &Webhook, body: &[u8], id: &str) -> Vec<String> {
        let digest = hex(&mac(webhook.token.as_bytes(), &[body]));
        let github = ["X-Hub-Signature: sha1=00".to_owned(), format!("X-Hub-Signature-256: sha256={digest}")];
        match self {
            Github => github.to_vec(),
            GitlabToken => vec![format!("X-Gitlab-Token: {}", webhook.token)],
            GitlabSigned => webhook.signed(body, id, now()),
            Gitea => [&github[..], &[format!("X-Gitea-Signature: {digest}")]].concat(),
            Forgejo => {
                [&github[..], &[format!("X-Gitea-Signature: {digest}"), format!("X-Forgejo-Signature: {digest}")]]
                    .concat()
            }
            Bitbucket => vec![format!("X-Hub-Signature: sha256={digest}")],
        }
    }

    /// A push that moved this from one commit to another; zeros: it was not there, or is gone.
    fn push(self, reference: &str, before: &str, after: &str, message: &str) -> Value {
        let gone = after == ZEROS;
        let commit = json!({ "id": after, "message": message, "timestamp": "2026-01-01T00:00:00Z" });
        match self {
            Github | Gitea | Forgejo => json!({
                "ref": reference, "before": before, "after": after, "deleted": gone,
                "commits": if gone { json!([]) } else { json!([commit]) },
                "head_commit": if gone { Value::Null } else { commit },
                "pusher": { "name": "ada", "login": "ada", "email": "ada@example.com" }, "sender": { "login": "ada" }
            }),
            GitlabToken | GitlabSigned => json!({
                "object_kind": "push", "event_name": "push", "ref": reference, "before": before, "after": after,
                "checkout_sha": if gone { Value::Null } else { json!(after) }, "user_username": "ada",
                "user_name": "Ada", "commits": if gone { json!([]) } else { json!([commit]) }
            }),
            Bitbucket => {
                let (kind, name) = reference
                    .strip_prefix("refs/heads/")
                    .map_or_else(|| ("tag", &reference["refs/tags/".len()..]), |name| ("branch", name));
                let side = |hash: &str| match hash {
                    ZEROS => Value::Null,
                    hash => json!({ "type": kind, "name": name, "target": { "hash": hash, "message": message } }),
                };
                json!({
                    "actor": { "display_name": "Ada", "nickname": "ada" },
                    "push": { "changes": [{ "old": side(before), "new": side(after), "closed": gone }] }
                })
            }
        }
    }
}

/// What a host is told of a webhook.
struct Webhook {
    url: String,
    token: String,
    key: String,
}

impl Webhook {
    /// The headers of Standard Webhooks.
    fn signed(&self, body: &[u8], id: &str, at: u64) -> Vec<String> {
        let key = STANDARD.decode(self.key.strip_prefix("whsec_").unwrap()).unwrap();
        assert_eq!(key.len(), 32);
        let signature = STANDARD.encode(mac(&key, &[format!("{id}.{at}.").as_bytes(), body]));
        vec![
            format!("webhook-id: {id}"),
            format!("webhook-timestamp: {at}"),
            format!("webhook-signature: v1,{}= v1,{signature}", "A".repeat(43)),
        ]
    }
}

/// A server that builds, a git host, and an app that is built from there.
struct Bench {
    host: GitHost,
    repository: GitRepository,
    server: Server,
    path: String,
    webhook: Webhook,
}

impl Bench {
    fn new() -> Self {
        let host = GitHost::start();
        let repository = host.repository("api");
        let server = server!().builder(COMMAND).unlimited().run();
        let path = server.git_app("api", &host.url("api")).path;
        let webhook = webhook(&server, &path);
        Self { host, repository, server, path, webhook }
    }

    fn commit(&self, message: &str) -> String {
        self.repository.commit("version", message)
    }

    fn deliver(&self, sender: Sender, event: &str, body: &Value, id: &str) -> (u16, Value) {
        let body = body.to_string();
        let proof = sender.proof(&self.webhook, body.as_bytes(), id);
        curl(&self.webhook.url, &[sender.told(event, id), proof].concat(), body.as_bytes())
    }

    /// A push to a branch or tag, told under an id of its own.
    fn push(&self, sender: Sender, reference: &str, after: &str, message: &str) -> (u16, Value) {
        let body = sender.push(reference, ZEROS, after, message);
        self.deliver(sender, sender.push_event(), &body, &format!("{sender:?} {after} {reference}").replace(' ', "-"))
    }

    fn entry(&self, revision: &Value) -> Value {
        let call = self.server.manage("GET", &format!("{}/deploys/{revision}", self.path));
        call.header("prefer", "wait=50").expect(200).json()
    }

    fn revisions(&self) -> usize {
        let history = self.server.manage("GET", &format!("{}/deploys", self.path)).expect(200).json();
        history["deploys"].as_array().unwrap().len()
    }
}

fn webhook(server: &Server, path: &str) -> Webhook {
    let webhook = server.manage("POST", &format!("{path}/webhook")).expect(200).json();
    let shown = server.manage("GET", &format!("{path}/webhook")).expect(200).json();
    assert_eq!(webhook["signing_key"], shown["signing_key"], "status shows it as enable did");
    let text = |name: &str| webhook[name].as_str().unwrap().to_owned();
    Webhook { url: text("url"), token: text("token"), key: text("signing_key") }
}

/// Posts as a git host does, which gives up sooner or later; the status, and the answer without its id.
fn curl(url: &str, headers: &[String], body: &[u8]) -> (u16, Value) {
    let mut child = Command::new("curl")
        .args(["-sS", "--max-time", "30", "-X", "POST", "-H", "Content-Type: application/json", "--data-binary", "@-"])
        .args(headers.iter().flat_map(|header| ["-H", header]))
        .args(["-w", "\n%{http_code}", url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(body).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "no answer");
    let text = String::from_utf8(output.stdout).unwrap();
    let (answer, status) = text.rsplit_once('\n').unwrap();
    let mut answer: Value = serde_json::from_str(answer).unwrap();
    answer.as_object_mut().unwrap().remove("request_id");
    (status.parse().unwrap(), answer)
}

#[track_caller]
fn nothing((status, answer): (u16, Value), words: &[&str]) {
    assert_eq!((status, &answer["deployed"]), (200, &json!(false)), "{answer}");
    let message = answer["message"].as_str().unwrap();
    assert!(words.iter().all(|word| message.contains(word)), "{message}");
}

#[test]
fn a_push_of_each_host_rolls_out_exactly_its_commit_once() {
    let bench = Bench::new();
    for (index, sender) in SENDERS.into_iter().enumerate() {
        let commit = bench.commit(&format!("push {index}"));
        let body = sender.push("refs/heads/main", ZEROS, &commit, "Mend it");
        let told = |id: &str| bench.deliver(sender, sender.push_event(), &body, &format!("{sender:?}-{id}"));
        let (status, answer) = told("first");
        assert_eq!(
            (status, &answer["commit"], &answer["trigger"]),
            (202, &json!(commit), &json!("webhook")),
            "{answer}"
        );
        let entry = bench.entry(&answer["revision"]);
        assert_eq!((&entry["status"], &entry["commit"]), (&json!("succeeded"), &json!(commit)), "{entry}");
        assert_eq!(entry["actor"], sender.name());
        let digest = hex(&<sha2::Sha256 as sha2::Digest>::digest(format!("{commit}\n")));
        assert_eq!(entry["image"], format!("registry.example.com/shop/api@sha256:{digest}"), "what was checked out");
        for id in ["first", "another"] {
            let (status, again) = told(id);
            assert_eq!((status, &again["revision"]), (202, &answer["revision"]), "{sender:?}: {again}");
        }
        assert_eq!(bench.revisions(), index + 1);
    }
}

#[test]
fn ignored_events_are_answered_with_the_reason() {
    let bench = Bench::new();
    let commit = bench.commit("one");
    for sender in SENDERS {
        nothing(bench.push(sender, "refs/heads/next", &commit, "x"), &["branch \"next\"", "branch \"main\""]);
        nothing(bench.push(sender, "refs/tags/v1", &commit, "x"), &["tag \"v1\""]);
        let skipped = bench.push(sender, "refs/heads/main", &commit, "Docs\n\n[skip deploy]");
        nothing(skipped, &["[skip deploy]", &commit]);
        let gone = sender.push("refs/heads/main", &commit, ZEROS, "");
        nothing(bench.deliver(sender, sender.push_event(), &gone, "gone"), &["branch \"main\" was deleted"]);
        nothing(bench.deliver(sender, "issues", &json!({ "action": "opened" }), "other"), &["\"issues\""]);
    }
    nothing(bench.deliver(Github, "ping", &json!({ "zen": "Keep it." }), "ping"), &["The webhook works"]);
    nothing(bench.deliver(Bitbucket, "diagnostics:ping", &json!({ "test": true }), "ping"), &["The webhook works"]);
    assert_eq!(bench.revisions(), 0);
}

#[test]
fn a_late_delivery_deploys_nothing_backwards() {
    let bench = Bench::new();
    let (old, new) = (bench.commit("old"), bench.commit("new"));
    for sender in SENDERS {
        nothing(bench.push(sender, "refs/heads/main", &old, "x"), &[&old, &new, "by now"]);
    }
    let (status, answer) = bench.push(Github, "refs/heads/main", &new, "x");
    assert_eq!((status, &answer["commit"]), (202, &json!(new)));
    assert_eq!(bench.entry(&answer["revision"])["status"], "succeeded");
    // The branch moves on, and the delivery that was accepted is told again.
    let newest = bench.commit("newest");
    let push = Github.push("refs/heads/main", ZEROS, &new, "x");
    nothing(bench.deliver(Github, "push", &push, "another-id"), &[&new, &newest]);
    let (_, known) = bench.push(Github, "refs/heads/main", &new, "x");
    assert_eq!((&known["revision"], &known["status"]), (&answer["revision"], &json!("succeeded")), "{known}");
    assert_eq!(bench.revisions(), 1);
}

#[test]
fn push_does_not_bring_back_a_rolled_back_commit() {
    let bench = Bench::new();
    let good = bench.commit("good");
    let (_, first) = bench.push(Gitea, "refs/heads/main", &good, "x");
    bench.entry(&first["revision"]);
    let bad = bench.commit("bad");
    let (_, second) = bench.push(Gitea, "refs/heads/main", &bad, "x");
    bench.entry(&second["revision"]);
    let rollback = bench.server.manage("POST", &format!("{}/rollback", bench.path)).json(&json!({})).expect(202).json();
    bench.entry(&rollback["revision"]);
    for sender in SENDERS {
        let push = sender.push("refs/heads/main", ZEROS, &bad, "x");
        let again = bench.deliver(sender, sender.push_event(), &push, &format!("{sender:?}-again"));
        nothing(again, &["rollback 3", &bad, "release the hold"]);
    }
    let token = vec![format!("X-Service-Token: {}", bench.webhook.token)];
    let (status, ci) = curl(&bench.webhook.url, &token, json!({ "commit": bad }).to_string().as_bytes());
    assert_eq!((status, &ci["revision"]), (202, &json!(4)), "a call of CI is somebody's decision");
}

#[test]
fn a_git_server_that_hangs_does_not_keep_a_host_waiting() {
    let bench = Bench::new();
    let commit = bench.commit("one");
    bench.host.hang();
    let (status, answer) = bench.push(Github, "refs/heads/main", &commit, "x");
    assert_eq!((status, &answer["commit"]), (202, &json!(commit)), "the build will say why it cannot: {answer}");
}

#[test]
fn every_present_credential_must_be_valid_and_failures_are_uniform() {
    let bench = Bench::new();
    let commit = bench.commit("one");
    let webhook = &bench.webhook;
    let missing = curl(&webhook.url.replace("/api", "/none"), &[], b"{}");
    assert_eq!(missing.0, 401);
    let stranger =
        Webhook { token: "x".to_owned(), key: format!("whsec_{}", STANDARD.encode([7; 32])), url: String::new() };
    for sender in SENDERS {
        let body = sender.push("refs/heads/main", ZEROS, &commit, "x").to_string();
        let body = body.as_bytes();
        let told = sender.told(sender.push_event(), "id");
        let refused = |proof: &[String], why: &str| {
            assert_eq!(curl(&webhook.url, &[&told[..], proof].concat(), body), missing, "{sender:?}: {why}");
        };
        let right = sender.proof(webhook, body, "id");
        refused(&[], "no proof");
        refused(&sender.proof(&stranger, body, "id"), "another's secret");
        if sender != GitlabToken {
            refused(&sender.proof(webhook, b"{}", "id"), "another body");
        }
        refused(&[&right[..], &["X-Service-Token: wrong".to_owned()]].concat(), "a wrong token beside");
        refused(&[&right[..], &["X-Hub-Signature-256: sha256=00".to_owned()]].concat(), "a wrong signature beside");
        refused(&[&right[..], &right[..]].concat(), "said twice");
    }
    let body = GitlabSigned.push("refs/heads/main", ZEROS, &commit, "x").to_string();
    let told = GitlabSigned.told("Push Hook", "id");
    for at in [now() - 600, now() + 600] {
        let stale = [told.clone(), webhook.signed(body.as_bytes(), "id", at)].concat();
        assert_eq!(curl(&webhook.url, &stale, body.as_bytes()), missing);
    }
    let legacy = [Bitbucket.told("repo:push", "id"), vec!["X-Hub-Signature: sha1=00".to_owned()]].concat();
    assert_eq!(curl(&webhook.url, &legacy, body.as_bytes()), missing, "alone it is no credential");
    // CI sends an id of Standard Webhooks as a key alone.
    let ci = [format!("X-Service-Token: {}", webhook.token), "webhook-id: run-1".to_owned()];
    assert_eq!(curl(&webhook.url, &ci, json!({ "commit": commit }).to_string().as_bytes()).0, 202);
    assert_eq!(bench.revisions(), 1);
    let log = bench.server.log();
    assert!(!log.contains(&webhook.token) && !log.contains(&webhook.key));
}

#[test]
fn malformed_deliveries_are_400_or_422() {
    let bench = Bench::new();
    for sender in SENDERS {
        for body in [json!({}), json!([]), json!({ "ref": 7 }), json!({ "push": 7, "ref": [], "after": {} })] {
            let (status, problem) = bench.deliver(sender, sender.push_event(), &body, "id");
            assert_eq!((status, &problem["type"]), (400, &json!("/problems/malformed")), "{problem}");
        }
        let (status, problem) = bench.push(sender, "refs/heads/main", "main", "x");
        assert_eq!((status, &problem["type"]), (422, &json!("/problems/invalid-commit")), "{problem}");
    }
    assert_eq!(bench.revisions(), 0);
}

#[test]
fn image_app_refuses_pushes_of_every_host() {
    let server = server!().run();
    let app = server.app("web");
    let webhook = webhook(&server, &app.path);
    for sender in SENDERS {
        let body = sender.push("refs/heads/main", ZEROS, &"a".repeat(40), "x").to_string();
        let proof = sender.proof(&webhook, body.as_bytes(), "id");
        let call = [sender.told(sender.push_event(), "id"), proof].concat();
        let (status, problem) = curl(&webhook.url, &call, body.as_bytes());
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/wrong-kind")), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("Let CI post the image"), "{problem}");
    }
    let ping = [Github.told("ping", "id"), Github.proof(&webhook, b"{}", "id")].concat();
    nothing(curl(&webhook.url, &ping, b"{}"), &["The secret is right"]);
}
