//! What one viewer's sign-ins, one deployer's audited reads and the idempotency keys of one app leave behind, on any store.

use rollhook_testing::{App, Server, image, until, usually_or_long};
use serde_json::json;

/// What a store holds: the number of sessions, of entries of the audit, and of archived deploys with their keys; and the
/// bytes of each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Left {
    pub(crate) sessions: [u64; 2],
    pub(crate) audit: [u64; 2],
    pub(crate) keys: [u64; 2],
}

/// The most sessions of a token, and what a look from outside may find beside them while one is exchanged.
const SESSIONS: u64 = 20 + 2;
/// The most bytes of a session or an entry of the audit.
const RECORD_BYTES: u64 = 4 * 1024;
/// The most bytes of an archived deploy and its key.
const DEPLOY_BYTES: u64 = 8 * 1024;
/// The deploys that a policy keeps, those that keys keep, and those that gather until retention looks.
const DEPLOYS: u64 = 200 + 2_000 + 150;

/// Makes the calls: each is one of hundreds that the same caller makes.
pub(crate) fn flood(server: &Server, app: &App) {
    let times = usually_or_long(200, 5_000);
    let token = |role: &str| {
        let wanted = json!({ "name": format!("flood-{role}"), "role": role });
        let made = server.manage("POST", "/api/v1/tokens").json(&wanted).expect(201).json();
        made["token"].as_str().unwrap().to_owned()
    };
    let (viewer, deployer) = (token("viewer"), token("deployer"));
    let form = server.call("POST", "/sign-in").header("content-type", "application/x-www-form-urlencoded");
    let sign_in = form.header("sec-fetch-site", "same-origin").body(format!("token={viewer}").as_bytes());
    let read = server.call("GET", &format!("{}/webhook", app.path));
    let read = read.header("authorization", &format!("Bearer {deployer}"));
    for _ in 0..times {
        sign_in.expect(303);
        read.expect(200);
    }
    for number in 0..usually_or_long(500, 3_000) {
        let key = format!("flood-{number}");
        let header = if number % 2 == 0 { "webhook-id" } else { "idempotency-key" };
        // An app has at most a hundred unfinished deploys.
        until("the deploy is accepted", || server.post(app, &image(&key)).header(header, &key).send().status == 202);
    }
    let last = server.manage("GET", &format!("{}/deploys?limit=1", app.path)).expect(200).json();
    let last = server.manage("GET", &format!("{}/deploys/{}", app.path, last["deploys"][0]["revision"]));
    until("all have ended", || last.expect(200).json()["status"] == "succeeded");
}

/// Asserts that what a flood has added is bounded.
pub(crate) fn assert_bounded(before: Left, after: Left) {
    let added = |of: fn(&Left) -> [u64; 2]| [0, 1].map(|index| of(&after)[index].saturating_sub(of(&before)[index]));
    let ([sessions, of_sessions], [entries, of_entries]) = (added(|left| left.sessions), added(|left| left.audit));
    assert!((1..=SESSIONS).contains(&sessions) && of_sessions <= SESSIONS * RECORD_BYTES, "{after:?}");
    // Reads are one entry per hour, of which there may be two; tokens were made.
    assert!((1..=6).contains(&entries) && of_entries <= 6 * RECORD_BYTES, "{before:?} {after:?}");
    let [deploys, of_deploys] = added(|left| left.keys);
    assert!(deploys <= usually_or_long(501, DEPLOYS) && of_deploys <= deploys * DEPLOY_BYTES, "{after:?}");
}
