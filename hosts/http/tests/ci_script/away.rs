//! Servers that are away, or go away: the script tells what became of the call.

use rollhook_testing::{free_address, server, test_name, until};
use serde_json::json;

use crate::{
    app, entries,
    front::{Answer, Front},
    job::{Job, in_every_shell},
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
