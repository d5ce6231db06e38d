//! The script by which CI deploys, in each shell, against the real server: each way in which a call can end.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test may")]

mod away;
mod components;
mod front;
mod hostile;
mod job;

use rollhook_testing::{
    App, Server,
    fixtures::{Issuer, Receiver},
    image, server, test_name, until,
};
use serde_json::{Value, json};

use self::{
    front::{Answer, Front},
    job::{Job, in_every_shell},
};

/// A server that waits before it rolls out, so that a job sees the deploy under way.
fn slow_server() -> Server {
    server!().driver("simulated:300ms").unlimited().run()
}

fn app(server: &Server, shell: job::Shell) -> App {
    server.app(&format!("{shell:?}").to_lowercase())
}

fn entries(server: &Server, app: &App) -> Vec<Value> {
    let list = server.manage("GET", &format!("{}/deploys", app.path)).expect(200).json();
    list["deploys"].as_array().unwrap().clone()
}

#[test]
fn a_deploy_that_succeeds_is_green_with_outputs_and_a_summary() {
    let server = slow_server();
    in_every_shell(&test_name!(), |shell| {
        let app = app(&server, shell);
        let job = Job::of(shell, &server, &app).on_github().with("DEPLOY_DOTENV", "");
        let ended = job.run().ok();
        let page = format!("http://{}/apps/shop-test/{}/deploys/2", server.address, app.name);
        assert_eq!(job.read("output"), format!("revision=2\nstatus=succeeded\nurl={page}\n"));
        assert!(
            ended.out.contains("Revision 2 was accepted.") || ended.out.contains("Revision 2 succeeded"),
            "{ended:?}"
        );
        let notice =
            format!("::notice title=Deploy::Revision 2 succeeded: shop-test/{} runs r.example.com/api:v2", app.name);
        assert!(ended.out.contains(&notice), "{ended:?}");
        let summary = job.read("summary");
        for said in ["### Deploy: succeeded", &format!("[2]({page})"), "`r.example.com/api:v2`", "`0123456789abcdef`"] {
            assert!(summary.contains(said), "{summary}");
        }
        let again = job.run().ok();
        assert!(again.out.contains("Revision 2 succeeded"), "{again:?}");
        assert_eq!(entries(&server, &app).len(), 2, "the same run and attempt is the same deploy");
        let dotenv = job.file("deploy.env");
        let job = job.with("GITHUB_RUN_ATTEMPT", "3").with("DEPLOY_DOTENV", &dotenv);
        job.run().ok();
        let said = std::fs::read_to_string(dotenv).unwrap();
        assert!(said.starts_with("DEPLOY_REVISION=3\nDEPLOY_STATUS=succeeded\nDEPLOY_URL=http://127.0.0.1:"), "{said}");
    });
}

#[test]
fn the_jobs_span_is_passed_on() {
    in_every_shell(&test_name!(), |shell| {
        let server = Receiver::start();
        let done =
            r#"{"namespace":"shop-test","app":"api","revision":2,"status":"succeeded","image":"r.example.com/api:v2"}"#;
        server.serve(move |_| ("200 OK".to_owned(), done.to_owned()));
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let job = || Job::new(shell, &format!("{}/api/v1/webhook/shop-test/api", server.url), "token");
        for traceparent in [parent, "a b\" -H x: y", ""] {
            job().with("TRACEPARENT", traceparent).run().ok();
        }
        job().run().ok();
        let sent: Vec<_> = server.sent().iter().map(|sent| sent.headers.get("traceparent").cloned()).collect();
        assert_eq!(sent, [Some(parent.to_owned()), None, None, None]);
    });
}

#[test]
fn the_number_of_the_run_is_the_sequence() {
    in_every_shell(&test_name!(), |shell| {
        let server = Receiver::start();
        let late = json!({
            "namespace": "shop-test", "app": "api", "revision": 7, "status": "superseded", "superseded_by": 5,
            "reason": "older-sequence", "message": "Nothing was deployed: the sequence 11 is lower than 12."
        });
        server.serve(move |_| ("200 OK".to_owned(), late.to_string()));
        let url = format!("{}/api/v1/webhook/shop-test/api", server.url);
        type Variables = &'static [(&'static str, &'static str)];
        let variables: [(Variables, Value); 8] = [
            (&[], json!(null)),
            (&[("GITHUB_RUN_ID", "33")], json!(33)),
            (&[("GITHUB_RUN_ID", "33"), ("GITHUB_RUN_ATTEMPT", "1")], json!(33)),
            (&[("GITHUB_RUN_ID", "33"), ("GITHUB_RUN_ATTEMPT", "2")], json!("none")),
            (&[("GITHUB_RUN_ID", "def456a")], json!(null)),
            (&[("CI_PIPELINE_ID", "44"), ("CI_JOB_ID", "1")], json!(44)),
            (&[("CI_PIPELINE_ID", "44"), ("DEPLOY_SEQUENCE", "none")], json!("none")),
            (&[("CI_PIPELINE_ID", "44"), ("DEPLOY_SEQUENCE", "9007199254740991")], json!(9_007_199_254_740_991_u64)),
        ];
        for (index, (variables, sequence)) in variables.into_iter().enumerate() {
            let job = variables.iter().fold(Job::new(shell, &url, "t"), |job, (name, value)| job.with(name, value));
            let green = job.run().ok();
            assert!(green.out.contains("Revision 7 was superseded by revision 5, which succeeded."), "{green:?}");
            let warned = "warning: Nothing was deployed: the sequence 11 is lower than 12. If this run is to go back";
            assert!(green.err.contains(warned), "{green:?}");
            assert_eq!(server.sent()[index].json()["sequence"], sequence, "{variables:?}");
        }
        for bad in ["0", "-1", "7.0", "run", "12345678901234567"] {
            let refused = Job::new(shell, &url, "t").with("DEPLOY_SEQUENCE", bad).run().exits(2);
            assert!(refused.err.contains("DEPLOY_SEQUENCE"), "{bad}: {refused:?}");
        }
    });
}

#[test]
fn a_failed_deploy_is_red_with_its_evidence_and_what_was_put_right() {
    let server = slow_server();
    in_every_shell(&test_name!(), |shell| {
        let app = app(&server, shell);
        let bad = |image: &str| Job::of(shell, &server, &app).with("IMAGE", &format!("r.example.com/api:{image}"));
        let job = bad("crash").on_github();
        let ended = job.run().exits(3);
        assert!(ended.out.contains("::error title=Deploy::Revision 2 failed ("), "{ended:?}");
        let right = "Put right: revision 3 runs r.example.com/api:v1@sha256:";
        assert!(
            ended.out.contains(" again, as revision 1 did.")
                && ended.out.contains(right)
                && job.read("summary").contains(right),
            "{ended:?} {}",
            job.read("summary")
        );
        assert!(ended.out.contains("::group::Evidence\n  container: "), "{ended:?}");
        assert!(
            job.read("summary").contains("<summary>Evidence</summary>\n\n```text\ncontainer: "),
            "{}",
            job.read("summary")
        );
        assert!(job.read("output").starts_with("revision=2\nstatus=failed\n"), "{}", job.read("output"));

        let plain = bad("missing").run().exits(3);
        assert!(
            plain.err.contains("error: Revision 4 failed (") && plain.out.contains("Evidence:\n  container: "),
            "{plain:?}"
        );
        let address = format!("/apps/{}/deploys/4\n", app.path.trim_start_matches("/api/v1/apps/"));
        assert!(plain.out.contains("\nSee http") && plain.out.contains(&address), "{plain:?}");
        let folded = bad("missing").with("GITLAB_CI", "true").run().exits(3);
        assert!(folded.out.contains(":rollhook_evidence[collapsed=true]\r"), "{folded:?}");

        server.manage("PATCH", &app.path).json(&json!({ "policy": { "on_failure": "leave" } })).expect(200);
        let left = bad("crash2").run().exits(3);
        assert!(left.err.contains("Not put right: what was rolled out is still on the cluster."), "{left:?}");
    });
}

#[test]
fn several_workloads_are_named_with_their_states() {
    let server = slow_server();
    in_every_shell(&test_name!(), |shell| {
        let name = format!("{shell:?}-several").to_lowercase();
        let worker = json!({ "kind": "Deployment", "name": format!("{name}-worker"), "command": ["bin/jobs"] });
        let workload = json!({ "kind": "Deployment", "name": name, "also": [worker] });
        let policy = json!({ "settle": "0s" });
        let app = json!({ "image": "r.example.com/api:v1", "workload": workload, "policy": policy });
        let app = server.register(&name, &app);
        let first = server.manage("GET", &format!("{}/deploys/1", app.path)).header("prefer", "wait=50");
        assert_eq!(first.expect(200).json()["status"], "succeeded");
        let ended = Job::of(shell, &server, &app).with("IMAGE", "r.example.com/api:crash").run().exits(3);
        let lines =
            format!("  workload: Deployment/{name}: failed\n  workload: Deployment/{name}-worker: not-touched\n");
        assert!(ended.out.contains(&lines), "{ended:?}");
        let state =
            |name: &str, state: &str| json!({ "name": name, "state": state, "message": "0 of 1 pods is ready" });
        let evidence = json!({ "workloads": [state("b", "failed"), state("a", "unfinished"), state("c", "complete")] });
        let deploy = json!({ "status": "failed", "evidence": evidence });
        let told = json!({ "detail": "b: it crashed", "revision": 2, "deploy": deploy }).to_string();
        let front = Front::start("/api/v1/webhook/shop-test/api", vec![Answer::Told("424 Failed", told)]);
        let ended = Job::new(shell, &front.url, "t").run().exits(3);
        let lines = "  workload: b: failed\n  workload: a: unfinished: 0 of 1 pods is ready\n  workload: c: complete\n";
        assert!(ended.out.contains(lines), "{ended:?}");
    });
}

#[test]
fn success_without_a_verdict_says_what_was_not_verified() {
    in_every_shell(&test_name!(), |shell| {
        let told = json!({
            "namespace": "shop-test", "app": "api", "revision": 2, "status": "succeeded", "image": "r.example.com/api:v2",
            "message": "not verified: errors: The query found no data",
        });
        let front = Front::start("/api/v1/webhook/shop-test/api", vec![Answer::Told("200 OK", told.to_string())]);
        let ended = Job::new(shell, &front.url, "t").run().exits(0);
        assert!(ended.out.contains("Revision 2 was not verified: errors: The query found no data\n"), "{ended:?}");
        assert!(ended.out.contains("Revision 2 succeeded: "), "{ended:?}");
    });
}

#[test]
fn person_who_is_waited_for_is_named_once_with_the_reason_and_the_place() {
    in_every_shell(&test_name!(), |shell| {
        let waiting = json!({
            "namespace": "shop-test", "app": "api", "revision": 2, "status": "verifying", "image": "r.example.com/api:v2",
            "decision": { "awaited_since": "2026-01-02T03:04:05Z", "reason": "errors: The query found no data" },
        });
        let done = json!({
            "namespace": "shop-test", "app": "api", "revision": 2, "status": "succeeded", "image": "r.example.com/api:v2",
        });
        let wait = || Answer::Told("202 Accepted", waiting.to_string());
        let answers = vec![wait(), wait(), Answer::Told("200 OK", done.to_string())];
        let front = Front::start("/api/v1/webhook/shop-test/api", answers);
        let ended = Job::new(shell, &front.url, "t").run().exits(0);
        let line =
            "Revision 2 waits for a person's decision, as checks came to no verdict: errors: The query found no data.";
        assert_eq!(ended.err.matches(line).count(), 1, "{ended:?}");
        assert!(ended.err.contains("/apps/shop-test/api/deploys/2"), "{ended:?}");
    });
}

#[test]
fn a_refusal_is_red_at_once_and_says_why() {
    let server = server!().unlimited().run();
    in_every_shell(&test_name!(), |shell| {
        let app = app(&server, shell);
        let job = || Job::of(shell, &server, &app);
        let wrong = job().with("SERVICE_WEBHOOK_TOKEN", "rh_wrong").run().exits(4);
        assert!(wrong.err.starts_with("error: "), "{wrong:?}");
        assert_eq!(wrong.out, "", "nothing is tried again");

        let invalid = job().with("IMAGE", "not an image").run().exits(1);
        assert!(invalid.err.contains("image"), "{invalid:?}");
        server.post(&app, &image("used")).header("idempotency-key", "mine").expect(202);
        let reused = job().with("IDEMPOTENCY_KEY", "mine").run().exits(1);
        assert!(reused.err.contains("key"), "{reused:?}");

        server.manage("PATCH", &app.path).json(&json!({ "policy": { "hold": "all" } })).expect(200);
        job().with("IMAGE", "r.example.com/api:left").run().ok();
        server.manage("POST", &format!("{}/rollback", app.path)).json(&json!({ "revision": 1 })).expect(202);
        let held = job().with("IMAGE", "r.example.com/api:left").with("IDEMPOTENCY_KEY", "held").run().exits(1);
        assert!(held.err.contains("rollback") || held.err.contains("held"), "{held:?}");

        let lock = json!({ "reason": "the sale begins", "expires": "2h" });
        server.manage("PUT", &format!("{}/lock", app.path)).json(&lock).expect(200);
        let locked = job().with("IDEMPOTENCY_KEY", "locked").run().exits(7);
        assert!(locked.err.contains("\"the sale begins\"") && locked.err.contains("The lock ends at 20"), "{locked:?}");

        let nowhere =
            Front::start("/api/v1/webhook/shop-test/api", vec![Answer::Told("404 Not Found", "<html>".to_owned())]);
        let lost = Job::new(shell, &nowhere.url, "t").run().exits(1);
        assert!(lost.err.contains("HTTP 404") && lost.err.contains("proxy"), "{lost:?}");
    });
}

#[test]
fn a_deploy_that_does_not_end_in_time_is_red_and_goes_on() {
    let server = server!().run();
    in_every_shell(&test_name!(), |shell| {
        let app = app(&server, shell);
        let job = Job::of(shell, &server, &app).with("IMAGE", "r.example.com/api:hang").with("DEPLOY_TIMEOUT", "3");
        let ended = job.run().exits(8);
        assert!(ended.err.contains("Revision 2 has not ended") && ended.err.contains("rolling_out"), "{ended:?}");
        assert_eq!(entries(&server, &app)[0]["status"], "rolling_out");
    });
}

#[test]
fn the_time_to_wait_is_the_apps_own() {
    let server = server!().run();
    let slow = server.app_with("slow", json!({ "settle": "0s", "rollout_deadline": "90s" }));
    let waited = server.post(&slow, &image("hang")).header("prefer", "wait=1").expect(202).json();
    assert!(waited["ends_within"].as_u64() >= Some(90), "the deadline, from the begin of the rollout on: {waited}");
    in_every_shell(&test_name!(), |shell| {
        let body = json!({ "revision": 2, "status": "rolling_out", "ends_within": 90 }).to_string();
        let front = Front::start("/api/v1/webhook/shop-test/api", vec![Answer::Told("202 Accepted", body)]);
        let job = Job::new(shell, &front.url, "t");
        // A clock on which each look takes 20 s, and a rest no time.
        job.replace(
            "date",
            "n=$(cat \"$HOME/clock\" 2> /dev/null || echo 0)\necho $((n + 20)) > \"$HOME/clock\"\necho $((n + 20))",
        );
        job.replace("sleep", ":");
        let ended = job.run().exits(8);
        let seconds = ended.err.split(" s (").next().unwrap().rsplit(' ').next().unwrap().parse::<u32>().unwrap();
        // Counted from the begin of the first call, which looks at the clock twice before it is accepted.
        let since_accepted = seconds - 2 * 20;
        assert!((150..=200).contains(&since_accepted), "the deadline and a minute: {ended:?}");
    });
}

#[test]
fn a_pipeline_that_the_app_trusts_needs_no_secret() {
    let (server, issuer) = (server!().arguments(["--allow-local-issuers"]).run(), Issuer::start());
    in_every_shell(&test_name!(), |shell| {
        // A restore that goes on when the job has its first answer: it asks again, by a token of that call.
        let app = server.app_with(&format!("{shell:?}").to_lowercase(), json!({ "settle": "3s" }));
        let trust = json!({ "issuer": issuer.url, "audience": "rollhook", "claims": { "repository_id": "74" } });
        server.manage("POST", &format!("{}/webhook/trusts", app.path)).json(&trust).expect(200);
        let job = || Job::of(shell, &server, &app).without("SERVICE_WEBHOOK_TOKEN");
        let gitlab = job().with("CI_JOB_ID", "22").with("ROLLHOOK_ID_TOKEN", &issuer.token(&json!({})));
        assert!(gitlab.run().ok().out.contains("Revision 2 succeeded"));

        let token = |id: &str| Answer::Told("200 OK", json!({ "count": 1, "value": id }).to_string());
        let github =
            Front::start("/token?v=2", vec![token(&issuer.token(&json!({}))), token(&issuer.token(&json!({})))]);
        let on_github = |url: &str| {
            let job =
                job().on_github().with("ACTIONS_ID_TOKEN_REQUEST_URL", url).with("IMAGE", "r.example.com/api:crash");
            job.with("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "of-the-run").with("ROLLHOOK_AUDIENCE", "rollhook")
        };
        let failed = on_github(&github.url).run().exits(3);
        assert!(failed.out.contains("Put right: revision 4"), "{failed:?}");
        let asked = github.calls();
        assert!(asked.len() >= 2 && asked[0].starts_with("GET /token?v=2&audience=rollhook HTTP/1.1\r\n"), "{asked:?}");
        assert!(asked[0].contains("Authorization: Bearer of-the-run\r\n"), "{asked:?}");

        let refusing = Front::start("/token", vec![Answer::Told("403 Forbidden", String::new())]);
        let refused = on_github(&refusing.url).run().exits(4);
        assert!(refused.out.contains("id-token: write"), "{refused:?}");
        let none = job().run().exits(2);
        assert!(none.err.contains("SERVICE_WEBHOOK_TOKEN"), "{none:?}");
    });
}

#[test]
fn a_wrong_environment_is_red_before_any_call() {
    let front = Front::start("/api/v1/webhook/shop-test/api", vec![Answer::Closed]);
    in_every_shell(&test_name!(), |shell| {
        for (name, value) in [
            ("SERVICE_WEBHOOK_URL", ""),
            ("SERVICE_WEBHOOK_URL", "ftp://x/"),
            ("SERVICE_WEBHOOK_URL", "http://x y/"),
            ("SERVICE_WEBHOOK_TOKEN", ""),
            ("SERVICE_WEBHOOK_TOKEN", "rh_x\nX-Other: y"),
            ("IMAGE", "a\u{1b}b"),
            ("DEPLOY_TIMEOUT", "10m"),
            ("DEPLOY_RETRY", "-1"),
            ("IDEMPOTENCY_KEY", "a b"),
        ] {
            let ended = Job::new(shell, &front.url, "t").with(name, value).run().exits(2);
            assert!(ended.err.starts_with("error: ") && ended.err.lines().count() == 1, "{name}={value}: {ended:?}");
        }
    });
    assert!(front.calls().is_empty());
}

#[test]
fn the_server_hands_the_script_out() {
    let server = server!().run();
    let script = server.call("GET", "/api/v1/deploy.sh").expect(200);
    assert!(script.text() == std::fs::read_to_string(format!("{}/deploy.sh", job::PACKAGING)).unwrap());
    assert_eq!(script.header("content-type"), Some("text/x-shellscript; charset=utf-8"));
    until("nothing else is there without a token", || server.call("GET", "/api/v1/deploy").send().status == 401);
}
