//! The console over HTTP, as a browser calls it: sessions, the guard of changing calls, limits, secrets, and each page. In
//! `browser`, the console in a real browser.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test may")]

mod activity;
mod browser;
mod configuration;
mod promotion;
mod receivers;
mod registration;
mod runs;
mod sessions;
mod webhook;

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
};

use rollhook_testing::{Call, Reply, Server, fixtures::Receiver, image, server, until};
use serde_json::json;

const APP: &str = "/apps/shop-test/api";
const API: &str = "/api/v1/apps/shop-test/api";

/// A browser that is signed in.
struct Browser<'a> {
    server: &'a Server,
    cookie: String,
}

fn form(fields: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

fn submit(server: &Server, path: &str, fields: &[(&str, &str)]) -> Call {
    let call = server.call("POST", path).header("sec-fetch-site", "same-origin");
    call.header("content-type", "application/x-www-form-urlencoded").body(form(fields).as_bytes())
}

fn sign_in(server: &Server, token: &str) -> Reply {
    submit(server, "/sign-in", &[("token", token), ("name", "Ada <b>")]).send()
}

impl<'a> Browser<'a> {
    fn signed_in(server: &'a Server) -> Self {
        let reply = sign_in(server, &server.admin);
        assert_eq!((reply.status, reply.header("location")), (303, Some("/")));
        let cookie = reply.header("set-cookie").unwrap();
        Self { server, cookie: cookie.split(';').next().unwrap().to_owned() }
    }

    /// Signs in by a new token of this role on an environment of the shop.
    fn of_role(server: &'a Server, role: &str, environment: &str) -> Self {
        let name = format!("{role}-of-{environment}");
        let body = json!({ "name": name, "role": role, "project": "shop", "environment": environment });
        let made = server.manage("POST", "/api/v1/tokens").json(&body).expect(201).json();
        let reply = sign_in(server, made["token"].as_str().unwrap());
        let cookie = reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        Self { server, cookie }
    }

    fn get(&self, path: &str) -> Call {
        self.server.call("GET", path).header("cookie", &self.cookie)
    }

    fn page(&self, path: &str) -> String {
        self.get(path).expect(200).text()
    }

    fn post(&self, path: &str, fields: &[(&str, &str)]) -> Call {
        submit(self.server, path, fields).header("cookie", &self.cookie)
    }

    /// Submits a form that must be accepted, and returns the path that it leads to.
    fn act(&self, path: &str, fields: &[(&str, &str)]) -> String {
        self.post(path, fields).expect(303).header("location").unwrap().to_owned()
    }
}

fn latest(server: &Server) -> u64 {
    let list = server.manage("GET", &format!("{API}/deploys?limit=1")).expect(200).json();
    list["deploys"][0]["revision"].as_u64().unwrap()
}

fn ended(server: &Server, revision: u64) -> String {
    let entry = server.manage("GET", &format!("{API}/deploys/{revision}")).header("prefer", "wait=50");
    entry.expect(200).json()["status"].as_str().unwrap().to_owned()
}

#[test]
fn a_browser_is_led_to_the_sign_in_and_the_api_still_answers_401() {
    let server = server!().run();
    let location = |path: &str| server.call("GET", path).expect(303).header("location").unwrap().to_owned();
    assert_eq!(location("/"), "/sign-in");
    assert_eq!(location(APP), "/sign-in?next=%2Fapps%2Fshop-test%2Fapi");
    let page = server.call("GET", "/sign-in").expect(200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    for path in ["/api/v1/apps", "/api/v1/nothing", "/nothing"] {
        assert_eq!(server.call("GET", path).expect(401).problem(), "unauthorized", "{path}");
    }
    let nothing = server.call("GET", "/nothing").header("accept", "text/html").expect(303);
    assert_eq!(nothing.header("location"), Some("/sign-in?next=%2Fnothing"));
    // A part of a page is no place for the sign-in.
    let part = server.call("GET", "/").header("hx-request", "true").expect(401);
    assert_eq!(part.header("hx-redirect"), Some("/sign-in"));
    server.call("GET", "/healthz").expect(200);
}

#[test]
fn a_session_is_a_cookie_that_only_this_host_gets_and_no_script_reads() {
    let server = server!().run();
    let reply = sign_in(&server, &server.admin);
    let cookie = reply.header("set-cookie").unwrap();
    let (id, attributes) = cookie.split_once(';').unwrap();
    assert_eq!(attributes, " Path=/; Secure; HttpOnly; SameSite=Lax");
    assert!(id.starts_with("__Host-rollhook=") && id.len() > 40, "{id}");
    assert!(!cookie.contains(&server.admin) && !cookie.contains("rh_"));
    let wrong = sign_in(&server, "rh_wrong");
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, None));
    assert!(wrong.text().contains("This token is not valid"));
    assert!(wrong.text().contains("Ada &#60;b&#62;") && !wrong.text().contains("rh_wrong"));
    let next = |next: &str| {
        let reply = submit(&server, "/sign-in", &[("token", &server.admin), ("next", next)]).expect(303);
        reply.header("location").unwrap().to_owned()
    };
    assert_eq!(next("/apps/shop-test/api?before=7"), "/apps/shop-test/api?before=7");
    for elsewhere in ["https://evil.example/", "//evil.example/", "/\\evil.example/"] {
        assert_eq!(next(elsewhere), "/");
    }
}

#[test]
fn sessions_end_by_signing_out_here_or_everywhere() {
    let server = server!().run();
    let [first, second, third] = [(); 3].map(|()| Browser::signed_in(&server));
    let reply = first.post("/sign-out", &[]).expect(303);
    assert!(reply.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(first.get("/").expect(303).header("location"), Some("/sign-in"));
    second.page("/");
    second.act("/sign-out-everywhere", &[]);
    assert_eq!(third.get("/").send().status, 303);
    for path in ["/sign-out", "/sign-out-everywhere"] {
        assert_eq!(second.get(path).send().status, 405, "a GET changes nothing");
    }
}

#[test]
fn no_other_site_and_no_link_changes_anything() {
    let server = server!().run();
    server.app("api");
    let browser = Browser::signed_in(&server);
    let before = server.manage("GET", API).expect(200).json();
    let webhook = server.manage("GET", &format!("{API}/webhook")).expect(200).json();
    let parts = [
        "deploy",
        "rollback?to=1",
        "webhook/reveal",
        "webhook/enable",
        "webhook/disable",
        "config",
        "config/unset?name=A",
        "config/discard",
        "settings",
        "settings/source",
        "settings/checks",
        "release-hold",
        "delete",
        "deploys/1/cancel",
    ];
    for part in parts {
        let path = format!("{APP}/{part}");
        let call = || {
            let fields = form(&[("image", "r.example.com/api:evil"), ("to", "1"), ("typed", "api"), ("settle", "1s")]);
            let call = server.call("POST", path.split('?').next().unwrap()).header("cookie", &browser.cookie);
            call.header("content-type", "application/x-www-form-urlencoded").body(fields.as_bytes())
        };
        for site in ["cross-site", "same-site"] {
            assert!(call().header("sec-fetch-site", site).expect(403).text().contains("Nothing was done"), "{path}");
        }
        call().header("origin", "https://evil.example").expect(403);
        call().expect(403);
        let read = browser.get(&path).send().status;
        assert!(matches!(read, 200 | 303), "{path}: {read}");
    }
    assert_eq!(server.manage("GET", API).expect(200).json(), before);
    assert_eq!(server.manage("GET", &format!("{API}/webhook")).expect(200).json(), webhook);
    assert_eq!(latest(&server), 1);
    // A browser that sends no Sec-Fetch-Site still says where it comes from.
    let own = format!("http://{}", server.address);
    let deploy = server.call("POST", &format!("{APP}/deploy")).header("cookie", &browser.cookie).header("origin", &own);
    deploy.body(form(&[("image", "r.example.com/api:v2")]).as_bytes()).expect(303);
}

#[test]
fn failed_sign_ins_are_limited_and_a_correct_token_is_let_in() {
    let server = server!().run();
    let browser = Browser::signed_in(&server);
    let failures = (0..200).position(|_| sign_in(&server, "rh_wrong").status == 429).unwrap();
    assert!((50..90).contains(&failures), "{failures}");
    let refused = until("it is limited", || Some(sign_in(&server, "rh_wrong")).filter(|reply| reply.status == 429));
    assert_eq!(refused.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    browser.page("/");
    Browser::signed_in(&server);
    // Made-up sessions count as well.
    let guess = || server.call("GET", "/").header("cookie", "__Host-rollhook=guess").send().status;
    assert!((0..200).any(|_| guess() == 429));
}

#[test]
fn large_bodies_are_refused_as_a_page() {
    let server = server!().run();
    let browser = Browser::signed_in(&server);
    let reply = browser.post("/apps/new", &[("image", &"x".repeat(1 << 20))]).expect(413);
    assert!(reply.text().contains("The body must be at most 1 MiB."));
}

#[test]
fn an_app_is_registered_deployed_and_rolled_back_by_forms() {
    let server = server!().run();
    let browser = Browser::signed_in(&server);
    assert!(browser.page("/").contains("rollhook app create api"), "the first step");
    let wrong = browser.post("/apps/new", &[("app", "Api"), ("project", "shop"), ("environment", "test")]).expect(422);
    assert!(wrong.text().contains("aria-invalid") && wrong.text().contains("value=\"Api\""));
    let app = [("app", "api"), ("project", "shop"), ("environment", "test"), ("image", "r.example.com/api:v1")];
    assert_eq!(browser.act("/apps/new", &app), APP);
    assert_eq!(
        browser.act(&format!("{APP}/settings"), &[("settle", "0s"), ("keep", "50")]),
        format!("{APP}/settings?saved=1")
    );
    assert_eq!(ended(&server, 1), "succeeded");
    let wrong = browser.post(&format!("{APP}/settings"), &[("settle", "soon")]).expect(422);
    assert!(wrong.text().contains("must be a whole number and a unit") && wrong.text().contains("value=\"soon\""));

    let deploy = [("image", "r.example.com/api:v2"), ("commit", "4f1a77b"), ("key", "k1")];
    assert_eq!(browser.act(&format!("{APP}/deploy"), &deploy), APP);
    assert_eq!(browser.act(&format!("{APP}/deploy"), &deploy), APP, "a form that is sent twice");
    assert_eq!((latest(&server), ended(&server, 2).as_str()), (2, "succeeded"));
    let wrong = browser.post(&format!("{APP}/deploy"), &[("image", "no tag")]).expect(422);
    assert!(wrong.text().contains("role=\"alert\"") && wrong.text().contains("value=\"no tag\""));

    let plan = browser.page(&format!("{APP}/rollback?to=1"));
    for told in ["From", "api:v2", "To", "api:v1", "is held", "name=\"if_current\" value=\"2\""] {
        assert!(plan.contains(told), "{told}: {plan}");
    }
    let outdated = browser.post(&format!("{APP}/rollback"), &[("to", "1"), ("if_current", "1"), ("key", "k2")]);
    let outdated = outdated.expect(409).text();
    assert!(outdated.contains("role=\"alert\"") && outdated.contains("name=\"if_current\" value=\"2\""));
    assert_eq!(latest(&server), 2, "nothing is recorded");
    let back = [("to", "1"), ("if_current", "2"), ("key", "k3")];
    assert_eq!(browser.act(&format!("{APP}/rollback"), &back), APP);
    assert_eq!(browser.act(&format!("{APP}/rollback"), &back), APP);
    assert_eq!((latest(&server), ended(&server, 3).as_str()), (3, "succeeded"));
    let page = browser.page(APP);
    assert!(page.contains("Held after a rollback") && page.contains("Ada &#60;b&#62;"), "{page}");
    browser.act(&format!("{APP}/release-hold"), &[]);
    assert!(!browser.page(APP).contains("Held after a rollback"));

    assert!(browser.page(APP).contains("Redeploy…"));
    let question = browser.page(&format!("{APP}/redeploy"));
    for told in ["Redeploy revision 3?", "api:v1 rolls out again", "name=\"if_current\" value=\"3\""] {
        assert!(question.contains(told), "{told}: {question}");
    }
    let outdated = browser.post(&format!("{APP}/redeploy"), &[("if_current", "2"), ("key", "k4")]).expect(409).text();
    assert!(outdated.contains("role=\"alert\"") && outdated.contains("name=\"if_current\" value=\"3\""));
    let same = [("if_current", "3"), ("key", "k5")];
    assert_eq!(browser.act(&format!("{APP}/redeploy"), &same), APP);
    assert_eq!(browser.act(&format!("{APP}/redeploy"), &same), APP, "a form that is sent twice");
    assert_eq!((latest(&server), ended(&server, 4).as_str()), (4, "succeeded"));
    assert!(browser.page(APP).contains("same as #3"));

    assert!(browser.page(&format!("{APP}/stop")).contains("Stop api?"));
    assert_eq!(browser.act(&format!("{APP}/stop"), &[("if_current", "4"), ("key", "k6")]), APP);
    assert_eq!((latest(&server), ended(&server, 5).as_str()), (5, "succeeded"));
    let page = browser.page(APP);
    assert!(
        page.contains("Stopped since revision 5, by ") && page.contains("Start…") && !page.contains("Stop…"),
        "{page}"
    );
    assert_eq!(browser.act(&format!("{APP}/start"), &[("if_current", "5"), ("key", "k8")]), APP);
    assert_eq!((latest(&server), ended(&server, 6).as_str()), (6, "succeeded"));
    assert!(!browser.page(APP).contains("Stopped since"));

    browser.act(&format!("{APP}/deploy"), &[("image", "r.example.com/api:hang")]);
    until("it is under way", || browser.page(APP).contains("Under way: revision 7"));
    assert!(!browser.page(APP).contains("Redeploy…"), "another version is on its way");
    browser.act(&format!("{APP}/deploys/7/cancel"), &[]);
    assert!(browser.page(&format!("{APP}/deploys/7")).contains("cancelled"));

    let kept = browser.post(&format!("{APP}/delete"), &[("typed", "apis")]).expect(422);
    assert!(kept.text().contains("Nothing was deleted"));
    assert_eq!(browser.act(&format!("{APP}/delete"), &[("typed", "api")]), "/");
    assert!(browser.get(APP).expect(404).text().contains("No such app"));
}

#[test]
fn person_decides_on_the_page_of_a_deploy_that_asks() {
    let server = server!().arguments(["--allow-local-receivers"]).run();
    server.app("api");
    let asks = json!({
        "kind": "http", "every": "1s", "failures": 1, "without_verdict": "ask",
        "settings": { "url": "http://route.invalid/" },
    });
    server.manage("PUT", &format!("{API}/checks/gone")).json(&asks).expect(200);
    let browser = Browser::signed_in(&server);
    for (revision, verdict, status) in [(2, "pass", "succeeded"), (3, "fail", "failed")] {
        browser.act(&format!("{APP}/deploy"), &[("image", &format!("r.example.com/api:v{revision}"))]);
        let path = format!("{APP}/deploys/{revision}");
        let page = until("a person is asked", || {
            Some(browser.page(&path)).filter(|page| page.contains("<h2 id=\"decision\">"))
        });
        for text in ["awaits a decision", "no verdict of gone: ", "value=\"pass\"", "value=\"fail\""] {
            assert!(page.contains(text), "{text}: {page}");
        }
        let foreign = server.call("POST", &format!("{path}/verdict")).header("cookie", &browser.cookie);
        foreign.header("sec-fetch-site", "cross-site").body(form(&[("verdict", verdict)]).as_bytes()).expect(403);
        assert_eq!(browser.act(&format!("{path}/verdict"), &[("verdict", verdict)]), path);
        assert_eq!(ended(&server, revision), status);
        let page = browser.page(&path);
        let said = if verdict == "pass" { "accepted by " } else { "rejected by " };
        assert!(page.contains(said) && !page.contains("value=\"pass\""), "{page}");
        browser
            .post(&format!("{path}/verdict"), &[("verdict", if verdict == "pass" { "fail" } else { "pass" })])
            .expect(409);
    }
}

#[test]
fn measurements_are_drawn_behind_what_was_measured_before_the_deploy() {
    let metrics = Receiver::start();
    metrics.serve(|call| {
        let result = if call.request.contains("/api/v1/query_range") {
            let form: BTreeMap<_, _> = form_urlencoded::parse(call.body.as_bytes()).into_owned().collect();
            let start: f64 = form["start"].parse().unwrap();
            let values: Vec<_> = (0_u8..12).map(|step| json!([start + f64::from(step) * 15.0, "0.375"])).collect();
            json!({ "resultType": "matrix", "result": [{ "metric": {}, "values": values }] })
        } else {
            json!({ "resultType": "scalar", "result": [0, "0.25"] })
        };
        let head = "200 OK\r\ncontent-type: application/json".to_owned();
        (head, json!({ "status": "success", "data": result }).to_string())
    });
    let server = server!().arguments(["--allow-local-receivers"]).run();
    server.app("api");
    let check = json!({
        "kind": "prometheus", "settings": { "url": metrics.url, "query": "errors", "condition": "< 0.5" },
    });
    server.manage("PUT", &format!("{API}/checks/errors")).json(&check).expect(200);
    let browser = Browser::signed_in(&server);
    browser.act(&format!("{APP}/deploy"), &[("image", "r.example.com/api:v2")]);
    assert_eq!(ended(&server, 2), "succeeded");
    let page = browser.page(&format!("{APP}/deploys/2"));
    for shown in [
        "<svg class=\"chart\"",
        "class=\"before\"",
        "class=\"deploy\"",
        "class=\"limit\"",
        "The upright line is the deploy",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    let count = |text: &str| page.matches(text).count();
    assert_eq!((count("<tr class=\"before\">"), count("before the deploy</td>"), count("0.375")), (12, 12, 12));
    let entry = server.manage("GET", &format!("{API}/deploys/2")).expect(200).json();
    let before = entry["checks"][0]["before"].as_array().unwrap();
    assert_eq!((before.len(), &before[0]["value"]), (12, &json!("0.375")));
    let list = server.manage("GET", &format!("{API}/deploys")).expect(200).json();
    assert_eq!(list["deploys"][0]["checks"][0].get("before"), None, "lists have the last measurement alone");
}

#[test]
fn a_failure_shows_its_evidence_and_what_was_put_right() {
    let server = server!().run();
    server.app("api");
    let browser = Browser::signed_in(&server);
    browser.act(&format!("{APP}/deploy"), &[("image", "r.example.com/api:crash")]);
    assert_eq!(ended(&server, 2), "failed");
    until("it is put right", || latest(&server) == 3);
    assert_eq!(ended(&server, 3), "succeeded");
    let page = browser.page(&format!("{APP}/deploys/2"));
    for told in ["CrashLoopBackOff", "Events", "Last lines of the container", "Put right by itself: revision 3"] {
        assert!(page.contains(told), "{told}: {page}");
    }
    assert!(browser.page(APP).contains("put right by #3"));
}

#[test]
fn a_token_is_on_no_page_until_it_is_revealed() {
    let server = server!().run();
    let app = server.app("api");
    let key =
        server.manage("GET", &format!("{API}/webhook")).expect(200).json()["signing_key"].as_str().unwrap().to_owned();
    let browser = Browser::signed_in(&server);
    let secrets = [app.token.as_str(), &key, &server.admin];
    let paths =
        ["/", APP, "/apps/shop-test/api/webhook", "/apps/shop-test/api/settings", "/apps/shop-test/api/deploys/1"];
    for path in paths {
        let page = browser.page(path);
        assert!(secrets.iter().all(|secret| !page.contains(secret)), "{path}");
    }
    let webhook = format!("{APP}/webhook");
    let revealed = browser.post(&format!("{webhook}/reveal"), &[]).header("accept-encoding", "gzip").expect(200);
    assert_eq!((revealed.header("cache-control"), revealed.header("content-encoding")), (Some("no-store"), None));
    assert!(revealed.text().contains(&app.token) && revealed.text().contains(&key));
    assert!(!revealed.text().contains(&server.admin));
    let enabled = browser.post(&format!("{webhook}/enable"), &[]).expect(200).text();
    let token =
        server.manage("GET", &format!("{API}/webhook")).expect(200).json()["token"].as_str().unwrap().to_owned();
    assert!(token != app.token && enabled.contains(&token));
    assert!(!browser.page(&webhook).contains(&token));
    server.call("POST", &app.hook).header("x-service-token", &app.token).json(&image("v2")).expect(401);
    browser.act(&format!("{webhook}/disable"), &[]);
    assert!(browser.page(&webhook).contains("The webhook is disabled"));
    server.call("POST", &app.hook).header("x-service-token", &token).json(&image("v2")).expect(401);
    let log = server.log();
    assert!([&app.token, &token, &key, &server.admin].iter().all(|secret| !log.contains(secret.as_str())));
    assert!(!log.contains(browser.cookie.split_once('=').unwrap().1), "the session's id is a secret too");
}

#[test]
fn text_from_outside_is_shown_as_text() {
    let server = server!().run();
    let app = server.app("api");
    let hostile = "<img src=x onerror=alert(1)>\"'&";
    let call = server.post(&app, &json!({ "image": "r.example.com/api:v2", "commit": hostile }));
    call.expect(202);
    let deploy = server.manage("POST", &format!("{API}/deploys")).header("x-rollhook-actor", "<script>\u{1b}[31m");
    deploy.json(&json!({ "image": "r.example.com/api:v3", "commit": "\u{202e}txt" })).send();
    assert_eq!(ended(&server, 2), "succeeded");
    let browser = Browser::signed_in(&server);
    for path in [APP, "/apps/shop-test/api/deploys/2", "/apps/shop-test/api/rollback?to=2", "/?q=%3Cscript%3E"] {
        let page = browser.page(path);
        for raw in ["<img", "<script>", "\u{1b}", "\u{202e}"] {
            assert!(!page.contains(raw), "{raw:?} in {path}: {page}");
        }
    }
    assert!(browser.page(APP).contains("&#60;img src=x onerror=alert(1)&#62;&#34;&#39;&#38;"));
}

#[test]
fn every_answer_carries_the_policy_and_the_first_page_is_small() {
    const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src \
                          'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
    let server = server!().run();
    server.app("api");
    let browser = Browser::signed_in(&server);
    for call in
        [browser.get("/"), browser.get("/apps/shop-test/none"), server.call("GET", "/sign-in"), server.call("GET", "/")]
    {
        let reply = call.send();
        assert_eq!(reply.header("content-security-policy"), Some(POLICY));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        assert!(
            !reply.text().contains(" style=")
                && !reply.text().contains("<script>")
                && !reply.text().contains(" onclick")
        );
    }
    let page = browser.page("/");
    let links = page.split('"').filter(|part| part.starts_with("/assets/"));
    let small = |path: &str| browser.get(path).header("accept-encoding", "gzip, br").expect(200);
    let mut bytes = small("/").body.len();
    for path in links {
        let file = small(path);
        assert_eq!(file.header("cache-control"), Some("public, max-age=31536000, immutable"));
        assert_eq!(file.header("content-encoding"), Some("gzip"));
        bytes += file.body.len();
    }
    assert!(bytes < 50 * 1024, "{bytes} bytes");
    assert!(server.call("GET", "/assets/0/console.css").send().status == 404);
}

#[test]
fn a_stream_shows_a_deploy_until_its_end_and_resumes() {
    let server = server!().driver("simulated:300ms").run();
    server.app("api");
    let browser = Browser::signed_in(&server);
    let live = format!("{APP}/live");
    let mut stream = BufReader::new(browser.get(&live).open());
    let mut next = || {
        let (mut id, mut data) = (String::new(), String::new());
        loop {
            let mut line = String::new();
            assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ended");
            if let Some(given) = line.strip_prefix("id: ") {
                given.trim().clone_into(&mut id);
            } else if let Some(given) = line.strip_prefix("data: ") {
                data.push_str(given);
            } else if line.trim().is_empty() && !data.is_empty() {
                return (id, data);
            }
        }
    };
    let (_, first) = next();
    assert!(first.contains("id=\"r1\"") && !first.contains("id=\"r2\""));
    browser.act(&format!("{APP}/deploy"), &[("image", "r.example.com/api:v2")]);
    let mut seen = next();
    assert!(seen.1.contains("id=\"r2\""));
    while !seen.1.contains("Revision 2 succeeded") {
        seen = next();
    }
    assert!(!seen.1.contains("Under way"));
    // A state that was seen is not sent again; what has changed since is.
    let mut resumed = BufReader::new(browser.get(&live).header("last-event-id", &seen.0).open());
    let mut lines = std::iter::from_fn(|| {
        let mut line = String::new();
        resumed.read_line(&mut line).ok().filter(|read| *read > 0).map(|_| line.trim_end().to_owned())
    });
    let mut ids = vec![seen.0];
    loop {
        let line = lines.next().expect("the stream goes on");
        if let Some(id) = line.strip_prefix("id: ") {
            assert!(!ids.iter().any(|seen| seen == id), "{id} again, after {ids:?}");
            ids.push(id.to_owned());
        } else if line.starts_with(':') {
            assert_eq!(line, ": still here");
            break;
        }
    }
    server.call("GET", &live).expect(303);
}

#[test]
fn a_stream_ends_with_its_session() {
    let server = server!().run();
    server.app("api");
    let [watching, leaving] = [(); 2].map(|()| Browser::signed_in(&server));
    let stream = watching.get(&format!("{APP}/live")).open();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("id=\"r1\"")));
    leaving.act("/sign-out-everywhere", &[]);
    let deploy = server.manage("POST", &format!("{API}/deploys"));
    deploy.json(&json!({ "image": "r.example.com/api:v2" })).expect(202);
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().all(|line| !line.contains("id=\"r2\"")), "{rest:?}");
}

#[test]
fn search_finds_by_all_words_and_answers_a_part_to_htmx() {
    let server = server!().run();
    server.app("api");
    server.app("worker");
    let browser = Browser::signed_in(&server);
    let found = browser.get("/?q=test+WORK").header("hx-request", "true").expect(200).text();
    assert!(
        found.contains("href=\"/apps/shop-test/worker\"")
            && !found.contains("href=\"/apps/shop-test/api\"")
            && !found.contains("<html")
    );
    assert!(browser.page("/?q=nothing-like-it").contains("Nothing found"));
}

#[test]
fn each_role_sees_and_does_in_the_console_what_it_may() {
    let server = server!().run();
    let app = server.app("api");
    let browsers = ["viewer", "deployer", "admin"].map(|role| Browser::of_role(&server, role, "test"));
    // What a page offers, by viewer, deployer and admin.
    let (deployers, admins) = ([false, true, true], [false, false, true]);
    for (path, text, may) in [
        ("", "/deploy\"", deployers),
        ("", "href=\"/access\"", admins),
        ("", "/config\"", deployers),
        ("/webhook", "/webhook/reveal\"", deployers),
        ("/webhook", "/webhook/enable\"", deployers),
        ("/webhook", "/webhook/disable\"", admins),
        ("/settings", "Save the policy", admins),
        ("/settings", "Danger zone", admins),
    ] {
        let pages = browsers.each_ref().map(|browser| browser.page(&format!("{APP}{path}")));
        assert_eq!(pages.each_ref().map(|page| page.contains(text)), may, "{path}: {text}");
        assert!(pages.iter().all(|page| !page.contains(&app.token)), "no page shows a token");
    }
    // And what is done although no page offers it.
    for (path, fields, may) in [
        ("/webhook/reveal", &[][..], deployers),
        ("/config", &[("name", "A"), ("value", "b")], deployers),
        ("/deploy", &[("image", "r.example.com/api:2")], deployers),
        ("/settings", &[("settle", "0s")], admins),
        ("/webhook/disable", &[], admins),
    ] {
        let done =
            browsers.each_ref().map(|browser| browser.post(&format!("{APP}{path}"), fields).send().status != 403);
        assert_eq!(done, may, "{path}");
    }
    browsers[0].get("/access").expect(403);
    let viewers = server.manage("GET", "/api/v1/audit?limit=200").expect(200).json()["entries"].clone();
    let refused = viewers.as_array().unwrap().iter().filter(|entry| entry["actor"] == "viewer-of-test");
    assert_eq!(refused.filter(|entry| entry["allowed"] == false).count(), 5, "{viewers}");
}

#[test]
fn tokens_are_made_shown_once_and_revoked_on_a_page_with_the_audit() {
    let server = server!().run();
    let browser = Browser::signed_in(&server);
    let wrong =
        browser.post("/access/tokens", &[("name", "a-ci"), ("role", "viewer"), ("environment", "test")]).expect(422);
    assert!(wrong.text().contains("needs the project") && wrong.text().contains("value=\"test\""), "{}", wrong.text());
    let fields = [("name", "a-ci"), ("role", "deployer"), ("project", "shop"), ("expires", "90d")];
    let made = browser.post("/access/tokens", &fields).expect(201).text();
    assert!(made.contains("/access/tokens/a-ci/revoke"), "the list has it at once: {made}");
    let begin = made.find(">rh_").unwrap() + 1;
    let token = &made[begin..begin + made[begin..].find('<').unwrap()];
    let whoami = server.call("GET", "/api/v1/whoami").header("authorization", &format!("Bearer {token}")).expect(200);
    assert_eq!(whoami.json()["actor"], "a-ci");
    let page = browser.page("/access");
    assert!(!page.contains(token), "it is shown once");
    assert!(page.contains("/access/tokens/a-ci/revoke") && page.contains("API token a-ci"), "{page}");
    assert!(browser.page("/access/tokens/a-ci/revoke").contains("Revoke a-ci?"));
    assert_eq!(browser.act("/access/tokens/a-ci/revoke", &[]), "/access");
    server.call("GET", "/api/v1/whoami").header("authorization", &format!("Bearer {token}")).expect(401);
    // Revoking one's own token ends the session with it.
    browser.act("/access/tokens/admin/revoke", &[]);
    assert_eq!(browser.get("/").expect(303).header("location"), Some("/sign-in"));
}

#[test]
fn deploys_are_locked_and_unlocked_by_forms() {
    let server = server!().run();
    let app = server.app("api");
    let console = Browser::signed_in(&server);
    let page = |rest: &str| format!("/apps/shop-test/api{rest}");
    assert!(console.page(&page("/settings")).contains("Lock deploys…"));
    assert!(console.page(&page("/lock")).contains("all apps of shop in test"));
    let empty = console.post(&page("/lock"), &[("reason", ""), ("on", "app"), ("expires", "1h")]).expect(422).text();
    assert!(empty.contains("role=\"alert\""), "{empty}");
    console.act(&page("/lock"), &[("reason", "fair <b>"), ("on", "app"), ("expires", "1h")]);
    let shown = console.page(&page(""));
    assert!(shown.contains("Deploys are locked") && shown.contains("fair &#60;b&#62;"), "{shown}");
    assert!(console.page("/").contains("locked"));
    let form = console.page(&page("/deploy"));
    assert!(form.contains("in spite of the lock"), "{form}");
    let key = form.split("name=\"key\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    let fields = [("image", "r.example.com/api:2"), ("commit", ""), ("key", key)];
    let refused = console.post(&page("/deploy"), &fields).expect(423).text();
    assert!(refused.contains("Deploys of this app are locked"), "{refused}");
    let reasoned = [fields[0], fields[1], fields[2], ("break_glass", "an outage")];
    console.act(&page("/deploy"), &reasoned);
    console.act(&page("/unlock?on=app"), &[]);
    console.act(&page("/lock"), &[("reason", "fair"), ("on", "environment"), ("expires", "")]);
    assert!(console.page(&page("")).contains("The environment is locked"));
    console.act(&page("/unlock?on=environment"), &[]);
    let image = json!({ "image": "r.example.com/api:3" });
    server.call("POST", &app.hook).header("x-service-token", &app.token).json(&image).expect(202);
    let rotated = console.post(&page("/webhook/rotate"), &[]).expect(200).text();
    assert!(rotated.contains("the token before is let in until"), "{rotated}");
}
