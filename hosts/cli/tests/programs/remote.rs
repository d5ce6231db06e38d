//! Against a server that answers as told: what is sent, what is repeated, and how each answer ends.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use rollhook_testing::{Cli, cli};

const TOKEN: &str = "rh_0123456789abcdefghijABCDEFGHIJ0000000";

/// An answer: status, further header lines, and body; status 0 closes the connection without one.
type Answer = (u16, &'static str, String);

/// A request as it came.
#[derive(Clone, Debug)]
struct Request {
    line: String,
    head: String,
    body: String,
}

impl Request {
    fn header(&self, name: &str) -> Option<String> {
        let found = self.head.lines().filter_map(|line| line.split_once(':'));
        found.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
    }
}

/// A server that shows the app, and gives these answers to all else in turn, and the last one ever after; and what else
/// it was asked.
fn server(answers: Vec<Answer>) -> (Cli, Arc<Mutex<Vec<Request>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/deploys", listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = read(&stream);
            if request.line == "GET /deploys/api/v1/apps/shop-test/api HTTP/1.1" {
                answer(&mut stream, &(200, "", app().to_string()));
                continue;
            }
            let mut seen = record.lock().unwrap();
            let next = seen.len().min(answers.len() - 1);
            seen.push(request);
            drop(seen);
            answer(&mut stream, &answers[next]);
        }
    });
    (cli!().with("ROLLHOOK_SERVER", &url).with("ROLLHOOK_TOKEN", TOKEN), seen)
}

fn read(stream: &TcpStream) -> Request {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") && head != "\r\n" {
        assert!(reader.read_line(&mut head).unwrap() > 0);
    }
    let mut request = Request { line: line.trim().to_owned(), head, body: String::new() };
    let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut sent = vec![0; length];
    reader.read_exact(&mut sent).unwrap();
    request.body = String::from_utf8(sent).unwrap();
    request
}

fn answer(stream: &mut TcpStream, (status, lines, body): &Answer) {
    if *status != 0 {
        let length = body.len();
        let answer =
            format!("HTTP/1.1 {status} X\r\n{lines}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}");
        stream.write_all(answer.as_bytes()).unwrap();
    }
}

/// The app, which runs revision 3.
fn app() -> serde_json::Value {
    serde_json::json!({
        "namespace": "shop-test", "app": "api", "project": "shop", "environment": "test", "uid": "0".repeat(32),
        "source": { "kind": "image" },
        "workload": { "kind": "Deployment", "name": "api", "containers": ["api"] },
        "policy": { "on_failure": "restore", "hold": "automatic", "settle": "10s", "rollout_deadline": "10m",
                    "build_deadline": "30m", "repositories": [] },
        "holds": [], "on_cluster": null, "unfinished": [], "created_at": "2026-01-02T03:04:05.678Z",
        "current": serde_json::from_str::<serde_json::Value>(&entry(3, "succeeded", serde_json::json!({})).2).unwrap(),
    })
}

fn problem(status: u16, slug: &str, detail: &str) -> Answer {
    let body = serde_json::json!({
        "type": format!("/problems/{slug}"), "title": "T", "status": status, "detail": detail, "request_id": "r-7",
    });
    (status, "Content-Type: application/problem+json\r\n", body.to_string())
}

fn accepted(revision: u64, status: &str) -> Answer {
    let body = serde_json::json!({
        "namespace": "shop-test", "app": "api", "revision": revision, "image": "r.example.com/api:one", "commit": null,
        "trigger": "manual", "status": status, "url": format!("/api/v1/apps/shop-test/api/deploys/{revision}"),
        "a_newer_servers_field": true,
    });
    (202, "", body.to_string())
}

fn entry(revision: u64, status: &str, more: serde_json::Value) -> Answer {
    let mut body = serde_json::json!({
        "namespace": "shop-test", "app": "api", "revision": revision, "image": "r.example.com/api:one", "commit": null,
        "trigger": "manual", "actor": "ada", "status": status, "current": status == "succeeded", "on_cluster": true,
        "adopted": false, "effective": revision, "step": 1, "created_at": "2026-01-02T03:04:05.678Z",
        "updated_at": "2026-01-02T03:04:05.678Z", "url": "/x",
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    (200, "", body.to_string())
}

const DEPLOY: &str = "app deploy api --image r.example.com/api:one --commit abc";

#[test]
fn a_call_carries_token_key_actor_and_body() {
    let (home, seen) = server(vec![accepted(4, "queued")]);
    let ended = home.run(DEPLOY).ok();
    assert_eq!(ended.out, "Deploying r.example.com/api:one to shop-test/api: revision 4\n");
    assert_eq!(ended.err, "");
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 1, "without --wait it asks no more");
    assert_eq!(seen[0].line, "POST /deploys/api/v1/apps/shop-test/api/deploys HTTP/1.1");
    assert_eq!(seen[0].header("authorization"), Some(format!("Bearer {TOKEN}")));
    assert_eq!(seen[0].header("content-type").as_deref(), Some("application/json"));
    assert_eq!(seen[0].header("x-rollhook-actor").as_deref(), Some("ada"));
    assert!(seen[0].header("idempotency-key").unwrap().len() > 30);
    assert_eq!(seen[0].body, r#"{"image":"r.example.com/api:one","commit":"abc"}"#);
}

#[test]
fn a_lost_answer_is_asked_for_again_under_the_same_key() {
    let again = problem(503, "store-unavailable", "Try again.");
    let (home, seen) = server(vec![(0, "", String::new()), again, accepted(4, "queued")]);
    home.run(DEPLOY).ok();
    let seen = seen.lock().unwrap();
    let keys: Vec<_> = seen.iter().map(|request| request.header("idempotency-key").unwrap()).collect();
    assert!(keys.len() == 3 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[test]
fn two_commands_have_two_keys_and_reading_has_none() {
    let (home, seen) =
        server(vec![accepted(4, "queued"), accepted(5, "queued"), (200, "", r#"{"deploys":[]}"#.into())]);
    home.run(DEPLOY).ok();
    home.run(DEPLOY).ok();
    home.run("app history api --limit 3").ok();
    let seen = seen.lock().unwrap();
    assert_ne!(seen[0].header("idempotency-key"), seen[1].header("idempotency-key"));
    assert_eq!(seen[2].header("idempotency-key"), None);
    assert_eq!(seen[2].line, "GET /deploys/api/v1/apps/shop-test/api/deploys?limit=3 HTTP/1.1");
}

#[test]
fn waiting_ends_with_the_deploy() {
    let none = serde_json::json!({});
    let failed = serde_json::json!({ "reason": "ImagePullBackOff", "message": "no such \u{1b}[31mimage" });
    let answers = vec![accepted(4, "queued"), entry(4, "queued", none.clone()), entry(4, "succeeded", none.clone())];
    let (home, _) = server(answers);
    let ended = home.run(&format!("{DEPLOY} --wait")).ok();
    assert!(ended.out.ends_with("Revision 4 succeeded: shop-test/api runs r.example.com/api:one\n"), "{ended:?}");
    let (home, _) =
        server(vec![accepted(4, "queued"), entry(4, "rolling_out", none.clone()), entry(4, "failed", failed)]);
    let ended = home.run(&format!("{DEPLOY} --wait")).exits(3);
    assert!(ended.err.contains("Revision 4 failed (ImagePullBackOff): no such \\u{1b}[31mimage"), "{ended:?}");
    assert!(!ended.err.contains('\u{1b}'));
}

#[test]
fn a_superseded_deploy_is_followed_to_the_newer_one_but_not_to_a_rollback() {
    let by = |reason: &str| serde_json::json!({ "reason": reason, "superseded_by": 5, "message": "Newer." });
    let newer = entry(5, "succeeded", serde_json::json!({}));
    let (home, _) = server(vec![accepted(4, "queued"), entry(4, "superseded", by("superseded")), newer.clone()]);
    let ended = home.run(&format!("{DEPLOY} --wait -o json")).ok();
    assert_eq!((&ended.json()["status"], &ended.json()["superseded_by"]), (&"succeeded".into(), &5.into()));
    assert!(ended.err.contains("superseded by revision 5"), "{ended:?}");
    let (home, _) = server(vec![accepted(4, "queued"), entry(4, "superseded", by("rolled-back")), newer]);
    let ended = home.run(&format!("{DEPLOY} --wait")).exits(3);
    assert!(ended.err.contains("Revision 4 was superseded (rolled-back)"), "{ended:?}");
}

#[test]
fn an_outage_while_waiting_is_waited_out() {
    let away = problem(503, "store-unavailable", "Away.");
    let answers = [vec![accepted(4, "queued")], vec![away; 6], vec![entry(4, "succeeded", serde_json::json!({}))]];
    let (home, _) = server(answers.concat());
    let ended = home.run(&format!("{DEPLOY} --wait")).ok();
    assert!(ended.err.contains("Still trying"), "{ended:?}");
}

#[test]
fn refusals_are_two_lines_and_an_exit_code() {
    for (answer, code) in [
        (problem(401, "unauthorized", "No."), 4),
        (problem(403, "forbidden", "No."), 4),
        (problem(404, "app-not-found", "There is no app shop-test/api."), 1),
        (problem(409, "image-held", "Held."), 1),
        (problem(422, "invalid-image", "Bad."), 1),
        (problem(500, "internal", "Broken."), 1),
        (problem(418, "a-newer-servers-problem", "Tea."), 1),
    ] {
        let (home, seen) = server(vec![answer.clone()]);
        let ended = home.run(DEPLOY).exits(code);
        let detail =
            serde_json::from_str::<serde_json::Value>(&answer.2).unwrap()["detail"].as_str().unwrap().to_owned();
        assert_eq!(ended.err, format!("error: {detail}\n       request r-7\n"));
        assert_eq!((ended.out.as_str(), seen.lock().unwrap().len()), ("", 1));
    }
}

#[test]
fn missing_and_foreign_servers_are_reported() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let home = cli!().with("ROLLHOOK_SERVER", &format!("http://{closed}")).with("ROLLHOOK_TOKEN", TOKEN);
    let ended = home.run("app list").exits(5);
    assert!(ended.err.contains("cannot be reached") && ended.err.contains("refused"), "{ended:?}");
    let (home, _) = server(vec![(404, "", "<html>nginx</html>".into())]);
    assert!(home.run("app list").exits(1).err.contains("is --server right?"));
    let (home, _) = server(vec![(301, "Location: https://elsewhere.example.com/\r\n", String::new())]);
    assert!(home.run("app list").exits(1).err.contains("elsewhere.example.com"));
    let (home, _) = server(vec![(200, "", "<html>hello</html>".into())]);
    assert!(home.run("app list").exits(1).err.contains("cannot be read"));
    let (home, seen) = server(vec![problem(503, "store-unavailable", "Away.")]);
    home.run("app list").exits(5);
    assert_eq!(seen.lock().unwrap().len(), 5, "bounded");
}

#[test]
fn the_token_may_come_from_a_file_and_is_never_shown() {
    let (home, seen) = server(vec![problem(401, "unauthorized", "No.")]);
    let file = home.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let home = home.with("ROLLHOOK_TOKEN", "").with("ROLLHOOK_TOKEN_FILE", file.to_str().unwrap());
    let ended = home.run("app list").exits(4);
    assert!(!ended.err.contains(&TOKEN[3..]), "{ended:?}");
    assert_eq!(seen.lock().unwrap()[0].header("authorization"), Some(format!("Bearer {TOKEN}")));
    let home = home.with("ROLLHOOK_TOKEN_FILE", "/nowhere");
    assert!(home.run("app list").exits(2).err.contains("/nowhere"));
}

#[test]
fn a_rollback_says_what_it_believed_to_be_current() {
    let changed = problem(409, "current-changed", "Revision 4 is current by now, not 3.");
    // The call before asks what the rollback goes to; it goes on without an answer.
    let (home, seen) = server(vec![changed.clone(), changed]);
    home.run("app rollback api").exits(1);
    let seen = seen.lock().unwrap();
    assert_eq!((seen[0].body.as_str(), seen[1].body.as_str()), ("", r#"{"if_current":3}"#));
}

#[test]
fn a_removal_whose_answer_was_lost_is_done() {
    let (home, seen) = server(vec![(0, "", String::new()), problem(404, "app-not-found", "There is no app.")]);
    home.run("app delete api --yes").ok();
    assert_eq!(seen.lock().unwrap().len(), 2);
    let (home, _) = server(vec![problem(404, "app-not-found", "There is no app.")]);
    home.run("app delete api --yes").exits(1);
}

#[test]
fn logs_go_on_with_new_instances_and_have_no_control_characters() {
    let instances = |names: &[&str]| {
        let instance = |name: &&str| serde_json::json!({"name": name, "id": name, "revision": 1, "state": "runs", "ready": true, "restarts": 0});
        let all: Vec<_> = names.iter().map(instance).collect();
        (200, "", serde_json::json!({ "instances": all }).to_string())
    };
    let log = |text: &str, next: &str| {
        let lines = [serde_json::json!({"at": "2026-01-01T00:00:00.000Z", "text": text})];
        (200, "", serde_json::json!({"lines": lines, "next": next, "more": false}).to_string())
    };
    let (home, seen) = server(vec![
        instances(&["api-1"]),
        log("one", "5.1"),
        instances(&["api-1", "api-22"]),
        log("t\u{1b}[2Jwo\u{7}", "7.2"),
        log("new", "6.1"),
        problem(404, "app-not-found", "There is no app."),
    ]);
    let ended = home.run("app logs api --follow --tail 5").exits(1);
    assert_eq!(ended.out, "api-1 | one\napi-1  | two\\u{7}\napi-22 | new\n", "{ended:?}");
    let paths: Vec<_> = seen.lock().unwrap().iter().map(|request| request.line.clone()).collect();
    let of = |path: &str| format!("GET /deploys/api/v1/apps/shop-test/api/instances{path} HTTP/1.1");
    let expected =
        ["", "/api-1/log?limit=5", "", "/api-1/log?after=5.1&limit=1000", "/api-22/log?after=0.0&limit=1000", ""];
    assert_eq!(paths, expected.map(of));
}
