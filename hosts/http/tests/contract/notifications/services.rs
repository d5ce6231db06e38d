//! Slack, GitHub and GitLab are told in their own forms, by servers on this machine that answer as those document.

use std::sync::{Arc, Mutex};

use rollhook_testing::{
    App, Server, Start,
    fixtures::{Receiver, Sent},
    until,
};
use serde_json::{Value, json};

use super::{listed, start};

const SHA: &str = "def456abc0def456abc0def456abc0def456abc0";
const TOKEN: &str = "hunter2-token";

/// A server whose operator has named the host of the services: why they refuse is shown.
fn of_named_host() -> Start {
    start().arguments(["--receiver-host", "127.0.0.1"])
}

fn add(server: &Server, kind: &str, receiver: &Receiver, more: &[(&str, &str)]) {
    let mut wanted = json!({ "name": kind, "kind": kind, "url": format!("{}/api/v4/", receiver.url), "secret": TOKEN });
    for (name, value) in more {
        wanted[*name] = json!(value);
    }
    let added = server.manage("POST", "/api/v1/receivers").json(&wanted).expect(201).json();
    assert!(added.get("secret").is_none(), "{added}");
}

/// Deploys an image of this tag and commit to its end.
fn deploy(server: &Server, app: &App, tag: &str, commit: &str) {
    let call = json!({ "image": format!("r.example.com/api:{tag}"), "commit": commit });
    server.post(app, &call).header("prefer", "wait=50").expect(200);
}

/// The methods and paths of the calls, without those that only read.
fn changes(receiver: &Receiver) -> Vec<String> {
    let path = |sent: Sent| sent.request.trim_end_matches(" HTTP/1.1").to_owned();
    receiver.sent().into_iter().map(path).filter(|request| !request.starts_with("GET ")).collect()
}

fn answer(status: &str, body: Value) -> (String, String) {
    (status.to_owned(), body.to_string())
}

fn test(server: &Server, name: &str) -> Value {
    server.manage("POST", &format!("/api/v1/receivers/{name}/test")).expect(200).json()
}

#[test]
fn slack_has_one_message_per_deploy_which_is_changed() {
    let (server, slack) = (of_named_host().run(), Receiver::start());
    let secret = ("secret", "xoxb-hunter2");
    let app = server.app("api");
    add(&server, "slack", &slack, &[("channel", "#deploys"), secret]);
    let state = Arc::new(Mutex::new((0, None::<&str>)));
    let shared = Arc::clone(&state);
    slack.serve(move |sent| {
        let (messages, error) = &mut *shared.lock().unwrap();
        assert_eq!(sent.headers["authorization"], "Bearer xoxb-hunter2");
        match *error {
            Some("429") => ("429 Too Many Requests\r\nRetry-After: 1".to_owned(), String::new()),
            Some(error) => answer("200 OK", json!({ "ok": false, "error": error })),
            None if sent.request.contains("chat.update") => {
                let (channel, ts) = (&sent.json()["channel"], &sent.json()["ts"]);
                answer("200 OK", json!({ "ok": true, "channel": channel, "ts": ts, "text": "" }))
            }
            None => {
                *messages += 1;
                assert_eq!(sent.json()["channel"], "#deploys");
                answer("200 OK", json!({ "ok": true, "channel": "C0123", "ts": format!("1503435956.00000{messages}") }))
            }
        }
    });
    let fails = |error: Option<&'static str>| state.lock().unwrap().1 = error;
    assert_eq!(test(&server, "slack"), json!({ "delivered": true, "answer": "ok" }));
    deploy(&server, &app, "v2", SHA);
    let (post, update) = ("POST /api/v4/chat.postMessage", "POST /api/v4/chat.update");
    until("the deploy is told", || (changes(&slack) == [post, post, update]).then_some(()).ok_or(slack.sent()));
    let changed = slack.sent()[2].json();
    assert_eq!((&changed["channel"], &changed["ts"]), (&json!("C0123"), &json!("1503435956.000002")));
    assert!(changed["text"].as_str().unwrap().contains("succeeded"), "{changed}");
    // Slack's refusals have the status 200, except for its limit of calls.
    for error in ["ratelimited", "429", "not_in_channel"] {
        let before = slack.sent().len();
        fails(Some(error));
        deploy(&server, &app, &format!("after-{error}"), SHA);
        until("it was tried", || slack.sent().len() > before);
        until("the failure is shown", || {
            let failure = listed(&server, "slack")["failure"].clone();
            failure.as_str().is_some_and(|failure| failure.starts_with(&format!("127.0.0.1 answered {error}")))
        });
        fails(None);
        until("it is told", || {
            let last = slack.sent().last().unwrap().clone();
            last.request.contains("chat.update") && last.json()["text"].as_str().unwrap().contains("succeeded")
        });
    }
    assert!(!server.log().contains("hunter2"));
}

/// The deployments of a repository or a project: what was posted, and the statuses.
type Deployments = Arc<Mutex<Vec<(Value, Vec<Value>)>>>;

/// Answers as GitHub's REST API. The first deployment is made, and its answer is lost.
fn serve_github(receiver: &Receiver, deployments: &Deployments) {
    let deployments = Arc::clone(deployments);
    receiver.serve(move |sent| {
        let mut deployments = deployments.lock().unwrap();
        if sent.headers["authorization"] != format!("Bearer {TOKEN}") {
            return answer("401 Unauthorized", json!({ "message": "Bad credentials", "status": "401" }));
        }
        let mut words = sent.request.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let Some(path) = path.strip_prefix("/api/v4/repos/shop/api") else {
            return answer("404 Not Found", json!({ "message": "Not Found", "status": "404" }));
        };
        let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
        match (method, &parts[..]) {
            ("GET", [""]) => answer("200 OK", json!({ "full_name": "shop/api" })),
            ("GET", ["commits", commit]) if SHA.starts_with(commit) => {
                assert_eq!(sent.headers["accept"], "application/vnd.github.sha");
                ("200 OK".to_owned(), SHA.to_owned())
            }
            ("GET", ["commits", commit]) => {
                let message = format!("No commit found for SHA: {commit}");
                answer("422 Unprocessable Entity", json!({ "message": message }))
            }
            ("GET", [list]) if list.starts_with("deployments?") => {
                let query = "task=deploy%3Ashop-test%2Fapi&environment=test&per_page=30";
                assert_eq!(*list, format!("deployments?sha={SHA}&{query}"));
                let known = deployments.iter().enumerate();
                let known = known.map(|(id, (made, _))| json!({ "id": id, "payload": made["payload"] }));
                answer("200 OK", known.collect())
            }
            ("POST", ["deployments"]) => {
                let made = sent.json();
                assert!(made["ref"] == SHA && made["auto_merge"] == false && made["required_contexts"] == json!([]));
                deployments.push((made, Vec::new()));
                match deployments.len() {
                    1 => answer("502 Bad Gateway", json!({ "message": "Server Error" })),
                    count => answer("201 Created", json!({ "id": count - 1 })),
                }
            }
            ("POST", ["deployments", id, "statuses"]) => {
                deployments[id.parse::<usize>().unwrap()].1.push(sent.json());
                answer("201 Created", json!({ "id": 1 }))
            }
            ("POST", ["statuses", sha]) if *sha == SHA => answer("201 Created", json!({ "id": 2 })),
            _ => answer("404 Not Found", json!({ "message": "Not Found" })),
        }
    });
}

#[test]
fn github_has_a_deployment_per_deploy_and_a_status_of_its_commit() {
    let (server, github, deployments) = (of_named_host().run(), Receiver::start(), Deployments::default());
    serve_github(&github, &deployments);
    let app = server.app("api");
    add(&server, "github", &github, &[("repository", "shop/api")]);
    assert_eq!(test(&server, "github"), json!({ "delivered": true, "answer": "200 OK" }));
    deploy(&server, &app, "v2", &SHA[..7]);
    let states = || deployments.lock().unwrap().iter().map(|(_, statuses)| statuses.clone()).collect::<Vec<_>>();
    let told = until("the deploy is told", || {
        let states = states();
        (states.iter().map(Vec::len).sum::<usize>() == 2).then_some(states)
    });
    assert_eq!(told.len(), 1, "an attempt whose answer is lost makes no second deployment");
    assert_eq!((&told[0][0]["state"], &told[0][1]["state"]), (&json!("queued"), &json!("success")));
    let made = deployments.lock().unwrap()[0].0.clone();
    assert_eq!(
        (&made["environment"], &made["task"], &made["description"]),
        (&json!("test"), &json!("deploy:shop-test/api"), &json!("shop-test/api #2"))
    );
    let page = format!("http://{}/apps/shop-test/api/deploys/2", server.address);
    assert_eq!((&told[0][1]["log_url"], &told[0][1]["auto_inactive"]), (&json!(page), &json!(false)));
    let statuses = until("the commit has its statuses", || {
        let sent = github.sent().into_iter().filter(|sent| sent.request.contains(&format!("/statuses/{SHA}")));
        let statuses: Vec<_> = sent.map(|sent| sent.json()).collect();
        (statuses.len() == 2).then_some(statuses)
    });
    assert_eq!((&statuses[0]["state"], &statuses[1]["state"]), (&json!("pending"), &json!("success")));
    assert_eq!((&statuses[1]["context"], &statuses[1]["target_url"]), (&json!("rollhook/shop-test/api"), &json!(page)));
    // A deploy of something else than a commit of this repository.
    deploy(&server, &app, "v3", "1.2/x y");
    let failure = until("the failure is shown", || listed(&server, "github")["failure"].as_str().map(str::to_owned));
    assert_eq!(failure, r#"127.0.0.1 knows no commit "1.2/x y" in shop/api, or the token may not read it"#);
    assert!(github.sent().iter().any(|sent| sent.request.contains("/commits/1.2%2Fx%20y ")));
    assert!(!server.log().contains(TOKEN));
}

/// Answers as GitLab's REST API.
fn serve_gitlab(receiver: &Receiver, deployments: &Deployments) {
    let deployments = Arc::clone(deployments);
    receiver.serve(move |sent| {
        let mut deployments = deployments.lock().unwrap();
        if sent.headers["private-token"] != TOKEN {
            return answer("401 Unauthorized", json!({ "message": "401 Unauthorized" }));
        }
        let mut words = sent.request.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let Some(path) = path.strip_prefix("/api/v4/projects/shop%2Fapi") else {
            return answer("404 Not Found", json!({ "message": "404 Project Not Found" }));
        };
        let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
        match (method, &parts[..]) {
            ("GET", [""]) => answer("200 OK", json!({ "path_with_namespace": "shop/api" })),
            ("GET", ["repository", "commits", commit]) if SHA.starts_with(commit) => {
                answer("200 OK", json!({ "id": SHA, "last_pipeline": { "ref": "main", "sha": SHA } }))
            }
            ("POST", ["deployments"]) => {
                let made = sent.json();
                assert!(made["sha"] == SHA && made["ref"] == "main" && made["tag"] == false, "{made}");
                deployments.push((made.clone(), vec![made["status"].clone()]));
                answer("201 Created", json!({ "id": deployments.len() - 1, "status": made["status"] }))
            }
            ("GET", ["deployments", id]) => {
                let statuses = &deployments[id.parse::<usize>().unwrap()].1;
                answer("200 OK", json!({ "status": statuses.last() }))
            }
            ("PUT", ["deployments", id]) => {
                let (status, statuses) =
                    (sent.json()["status"].clone(), &mut deployments[id.parse::<usize>().unwrap()].1);
                if statuses.contains(&status) {
                    return answer("400 Bad Request", json!({ "message": "Status cannot transition via \"succeed\"" }));
                }
                statuses.push(status);
                // The status is changed, and the answer is lost.
                answer("502 Bad Gateway", json!({}))
            }
            _ => answer("404 Not Found", json!({ "message": "404 Commit Not Found" })),
        }
    });
}

#[test]
fn gitlab_has_a_deployment_per_deploy() {
    let (server, gitlab, deployments) = (of_named_host().run(), Receiver::start(), Deployments::default());
    serve_gitlab(&gitlab, &deployments);
    let app = server.app("api");
    add(&server, "gitlab", &gitlab, &[("repository", "shop/api")]);
    assert_eq!(listed(&server, "gitlab")["place"], format!("shop/api at {}/api/v4/", gitlab.url));
    assert_eq!(test(&server, "gitlab"), json!({ "delivered": true, "answer": "200 OK" }));
    deploy(&server, &app, "v2", &SHA[..8]);
    until("the deploy is told", || {
        let known = deployments.lock().unwrap().clone();
        let is_told = known.len() == 1 && known[0].1 == ["running", "success"] && known[0].0["environment"] == "test";
        is_told.then_some(()).ok_or(known)
    });
    until("the lost answer is made up for", || {
        let receiver = listed(&server, "gitlab");
        (receiver["last_delivered_at"].is_string() && receiver.get("failure").is_none()).then_some(()).ok_or(receiver)
    });
    deploy(&server, &app, "v3", "feedbee");
    let failure = until("the failure is shown", || listed(&server, "gitlab")["failure"].as_str().map(str::to_owned));
    assert_eq!(failure, r#"127.0.0.1 knows no commit "feedbee" in the project shop/api, or the token may not read it"#);
    assert_eq!(deployments.lock().unwrap().len(), 1);
    assert!(!server.log().contains(TOKEN));
}

#[test]
fn deploy_without_a_commit_is_no_failure_of_github_or_gitlab() {
    let (server, github, deployments) = (of_named_host().run(), Receiver::start(), Deployments::default());
    serve_github(&github, &deployments);
    server.app("api");
    add(&server, "github", &github, &[("repository", "shop/api")]);
    let call = json!({ "image": "r.example.com/api:v2" });
    server.manage("POST", "/api/v1/apps/shop-test/api/deploys").json(&call).expect(202);
    until("it counts as told", || listed(&server, "github")["last_delivered_at"].is_string());
    assert_eq!(github.sent(), []);
}

#[test]
fn answer_of_a_host_that_the_operator_does_not_name_is_shown_by_its_status_alone() {
    let (server, internal) = (start().run(), Receiver::start());
    internal.serve(|_| answer("403 Forbidden", json!({ "message": "the words of an internal host" })));
    add(&server, "github", &internal, &[("repository", "shop/api")]);
    let expected = "127.0.0.1 answered 403 Forbidden to reading the repository";
    assert_eq!(test(&server, "github"), json!({ "delivered": false, "answer": expected }));
    internal.serve(|_| answer("200 OK", json!({ "ok": false, "error": "the words of an internal host" })));
    add(&server, "slack", &internal, &[("channel", "#deploys"), ("secret", "xoxb-hunter2")]);
    let expected = "127.0.0.1 answered that it has not taken the message";
    assert_eq!(test(&server, "slack"), json!({ "delivered": false, "answer": expected }));
    let all = server.manage("GET", "/api/v1/receivers").expect(200).text();
    assert!(!all.contains("internal host") && !server.log().contains("internal host"), "{all}");
}

#[test]
fn service_that_repeats_the_token_does_not_have_it_shown() {
    let (server, github) = (of_named_host().run(), Receiver::start());
    github.serve(|sent| answer("401 Unauthorized", json!({ "message": sent.headers["authorization"] })));
    add(&server, "github", &github, &[("repository", "shop/api")]);
    let refused = test(&server, "github");
    let expected = "127.0.0.1 answered 401 Unauthorized to reading the repository: Bearer (secret)";
    assert_eq!(refused, json!({ "delivered": false, "answer": expected }));
}
