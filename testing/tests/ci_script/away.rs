//! Servers that are away, or go away: the script tells what became of the call.

use rollhook_testing::{free_address, server, test_name, until};
use serde_json::json;

use crate::{
    app, entries,
    front::{Answer, Front},
    job::{Job, Shell, in_every_shell},
};

const HOOK: &str = "/api/v1/webhook/shop-test/api";
const UNKNOWN: &str = "may have been accepted";

#[test]
fn without_a_connection_nothing_was_deployed() {
    in_every_shell(&test_name!(), |shell| {
        let nobody = format!("http://{}{HOOK}", free_address());
        let ended = Job::new(shell, &nobody, "t").with("DEPLOY_RETRY", "2").run().exits(5);
        assert!(ended.err.contains("No connection was made; nothing was deployed: "), "{ended:?}");
        assert!(ended.out.contains("trying again in 1 s") && !ended.err.contains(UNKNOWN), "{ended:?}");
        let unknown = Job::new(shell, "http://nothing.invalid/api", "t").with("DEPLOY_RETRY", "0").run().exits(5);
        assert!(unknown.err.contains("nothing was deployed") && !unknown.err.contains(UNKNOWN), "{unknown:?}");
        // No handshake of TLS succeeds here, so that the call is never sent.
        let plain = Front::start(HOOK, vec![Answer::Closed]);
        let secure = plain.url.replace("http:", "https:");
        let ended = Job::new(shell, &secure, "t").with("DEPLOY_RETRY", "0").run().exits(5);
        assert!(ended.err.contains("nothing was deployed") && !ended.err.contains(UNKNOWN), "{ended:?}");
    });
}

#[test]
fn a_call_that_was_sent_and_never_answered_may_have_been_accepted() {
    in_every_shell(&test_name!(), |shell| {
        let front = Front::start(HOOK, vec![Answer::Closed]);
        let ended = Job::new(shell, &front.url, "t").with("DEPLOY_RETRY", "1").run().exits(9);
        assert!(ended.err.contains(UNKNOWN) && ended.err.contains("IDEMPOTENCY_KEY="), "{ended:?}");
        let calls = front.calls();
        assert!(calls.len() >= 2 && calls.iter().all(|call| call == &calls[0]), "the same call: {calls:?}");
        // A proxy does not know what became of the call either.
        let front = Front::start(HOOK, vec![Answer::Told("504 Gateway Timeout", String::new())]);
        let ended = Job::new(shell, &front.url, "t").with("DEPLOY_RETRY", "0").run().exits(9);
        assert!(ended.err.contains(UNKNOWN) && ended.err.contains("HTTP 504"), "{ended:?}");
    });
}

#[test]
fn a_refusal_for_now_deploys_nothing() {
    in_every_shell(&test_name!(), |shell| {
        let problem = |slug: &str, status: u16| json!({ "type": format!("/problems/{slug}"), "detail": "Later.", "status": status, "request_id": "1", "maybe_recorded": false });
        for (head, slug, status) in [
            ("429 Too Many\r\nRetry-After: 300", "rate-limited", 429),
            ("503 No\r\nRetry-After: 300", "store-unavailable", 503),
        ] {
            let front = Front::start(HOOK, vec![Answer::Told(head, problem(slug, status).to_string())]);
            let ended = Job::new(shell, &front.url, "t").run().exits(5);
            assert!(ended.err.contains("nothing was deployed: Later."), "{ended:?}");
            assert_eq!(front.calls().len(), 1, "the server says when, and that is too late");
        }
    });
}

#[test]
fn what_passes_is_tried_again_and_ends_well() {
    let server = server!().unlimited().run();
    in_every_shell(&test_name!(), |shell| {
        let app = app(&server, shell);
        for (tag, first) in [
            ("a", Answer::Told("502 Bad Gateway", "<html>".to_owned())),
            (
                "b",
                Answer::Told(
                    "429 Too Many\r\nRetry-After: 1",
                    json!({ "detail": "Later.", "request_id": "1" }).to_string(),
                ),
            ),
            ("c", Answer::Closed),
            ("d", Answer::Told("503 Unavailable\r\nRetry-After: 1", String::new())),
        ] {
            let front = Front::start(&app.hook, vec![first, Answer::Passed(server.address)]);
            let job = Job::new(shell, &front.url, &app.token).with("IMAGE", &format!("r.example.com/api:{tag}"));
            let ended = job.run().ok();
            assert!(ended.out.contains("trying again in 1 s"), "{ended:?}");
        }
        assert_eq!(entries(&server, &app).len(), 5);
    });
}

#[test]
fn a_server_that_is_killed_meanwhile_goes_on_with_the_same_deploy() {
    in_every_shell(&test_name!(), |shell| {
        let mut server = server!().driver("simulated:2000ms").run();
        let app = app(&server, shell);
        let job = Job::of(shell, &server, &app).with("DEPLOY_RETRY", "120");
        let process = job.start();
        until("the deploy is accepted", || entries(&server, &app).len() == 2);
        server.restart();
        let ended: rollhook_testing::Ended = process.wait_with_output().unwrap().into();
        let ended = ended.ok();
        assert!(ended.out.contains("trying again") && ended.out.contains("Revision 2 succeeded"), "{ended:?}");
        assert_eq!(entries(&server, &app).len(), 2);
    });
}

#[test]
fn the_end_of_an_accepted_deploy_that_cannot_be_read_is_unknown() {
    in_every_shell(&test_name!(), |shell| {
        let accepted = json!({ "revision": 2, "status": "queued" }).to_string();
        let front = Front::start(HOOK, vec![Answer::Told("202 Accepted", accepted), Answer::Closed]);
        let job = Job::new(shell, &front.url, "t").on_github().with("DEPLOY_RETRY", "0");
        let ended = job.run().exits(9);
        assert!(ended.out.contains("Revision 2 was accepted, but there was no answer"), "{ended:?}");
        assert!(job.read("output").starts_with("revision=2\nstatus=unknown\n"), "{}", job.read("output"));
    });
}

#[test]
fn a_refusal_after_the_deploy_was_accepted_leaves_its_end_unknown() {
    in_every_shell(&test_name!(), |shell| {
        let accepted = || Answer::Told("202 Accepted", json!({ "revision": 2, "status": "queued" }).to_string());
        let problem =
            |status: u16| json!({ "detail": "Not this one.", "status": status, "request_id": "1" }).to_string();
        for (head, body) in [
            ("401 Unauthorized", problem(401)),
            ("403 Forbidden", "<html>".to_owned()),
            ("404 Not Found", problem(404)),
            ("423 Locked", problem(423)),
            ("302 Found\r\nLocation: /login", String::new()),
            ("200 OK", "<html>".to_owned()),
            ("202 Accepted", "{}".to_owned()),
            ("424 Failed", "<html>".to_owned()),
        ] {
            let status = head.split(' ').next().unwrap();
            let front = Front::start(HOOK, vec![accepted(), Answer::Told(head, body.clone())]);
            let job = Job::new(shell, &front.url, "t").on_github();
            job.replace("sleep", ":");
            let ended = job.run().exits(9);
            let said = format!("Revision 2 was accepted; the server now answers HTTP {status}: its end is unknown. ");
            assert!(ended.out.contains(&said) && ended.out.contains("IDEMPOTENCY_KEY="), "{ended:?}");
            assert!(job.read("output").starts_with("revision=2\nstatus=unknown\n"), "{}", job.read("output"));

            let front = Front::start(HOOK, vec![Answer::Closed, Answer::Told(head, body)]);
            let job = Job::new(shell, &front.url, "t");
            job.replace("sleep", ":");
            let ended = job.run().exits(9);
            let said = format!("{UNKNOWN}; the server now answers HTTP {status}: its end is unknown. ");
            assert!(ended.err.contains(&said), "{ended:?}");
        }
    });
}

#[test]
fn no_answer_changes_the_verdict_of_a_deploy_that_failed() {
    let restore = json!({ "revision": 3, "to": 1, "status": "rolling_out", "image": "r.example.com/api:v1" });
    let failed = json!({ "detail": "Revision 2 failed (crash).", "revision": 2, "deploy": { "status": "failed" }, "restore": restore });
    let failed = || Answer::Told("424 Failed", failed.to_string());
    in_every_shell(&test_name!(), |shell| {
        for next in [
            Answer::Told("401 Unauthorized", json!({ "detail": "No.", "request_id": "1" }).to_string()),
            Answer::Told("403 Forbidden", "<html>".to_owned()),
            Answer::Told("424 Failed", "<html>".to_owned()),
            Answer::Told("200 OK", "{}".to_owned()),
            Answer::Closed,
        ] {
            let front = Front::start(HOOK, vec![failed(), next]);
            let job = Job::new(shell, &front.url, "t").on_github();
            job.replace("sleep", ":");
            let ended = job.run().exits(3);
            assert!(ended.out.contains("::error title=Deploy::Revision 2 failed (crash)."), "{ended:?}");
            assert!(ended.out.contains("Being put right: "), "{ended:?}");
            assert!(job.read("output").starts_with("revision=2\nstatus=failed\n"), "{}", job.read("output"));
            assert_eq!(front.calls().len(), 2);
        }
        let front = Front::start(HOOK, vec![failed()]);
        let maker = Front::start("/token", vec![id_token(), Answer::Told("403 Forbidden", String::new())]);
        let job = keyless(shell, &front, &maker);
        job.replace("sleep", ":");
        let ended = job.run().exits(3);
        assert!(ended.err.contains("error: Revision 2 failed (crash)."), "{ended:?}");
    });
}

fn id_token() -> Answer {
    Answer::Told("200 OK", json!({ "value": "t" }).to_string())
}

fn keyless(shell: Shell, front: &Front, maker: &Front) -> Job {
    let job = Job::new(shell, &front.url, "").with("ACTIONS_ID_TOKEN_REQUEST_URL", &maker.url);
    job.with("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "of-the-run")
}

#[test]
fn githubs_refusal_of_an_id_token_is_retried_if_it_passes_and_keeps_an_accepted_deploy() {
    in_every_shell(&test_name!(), |shell| {
        let told = |head| Answer::Told(head, String::new());
        let succeeded = json!({ "revision": 2, "status": "succeeded" }).to_string();
        let front = Front::start(HOOK, vec![Answer::Told("200 OK", succeeded)]);
        let passing = ["429 Too Many\r\nRetry-After: 3", "408 Timeout", "503 Unavailable"].map(told);
        let maker = Front::start("/token", passing.into_iter().chain([id_token()]).collect());
        let job = keyless(shell, &front, &maker);
        job.replace("sleep", ":");
        let ended = job.run().ok();
        let said = "GitHub gave no id_token (HTTP 429)); trying again in 3 s";
        assert!(ended.out.contains(said) && maker.calls().len() == 4, "{ended:?}");

        let maker = Front::start("/token", vec![told("429 Too Many\r\nRetry-After: 300")]);
        let ended = keyless(shell, &front, &maker).run().exits(5);
        assert!(ended.err.contains("nothing was deployed: GitHub gave no id_token (HTTP 429)"), "{ended:?}");

        let accepted = json!({ "revision": 2, "status": "queued" }).to_string();
        let front = Front::start(HOOK, vec![Answer::Told("202 Accepted", accepted)]);
        let maker = Front::start("/token", vec![id_token(), told("403 Forbidden")]);
        let job = keyless(shell, &front, &maker);
        job.replace("sleep", ":");
        let ended = job.run().exits(9);
        let said = "Revision 2 was accepted; GitHub now answers HTTP 403: its end is unknown. ";
        assert!(ended.err.contains(said) && ended.err.contains("id-token: write"), "{ended:?}");
    });
}
