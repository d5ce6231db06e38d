//! Sessions that admins and their owners see and end, by the API and on the page of access.

use std::io::{BufRead, BufReader};

use rollhook_testing::{Call, Server, image, server};
use serde_json::{Value, json};

use super::{API, Browser, submit};

/// The SHA-256 of the verifier `verifier`.
const CHALLENGE: &str = "88c9eae68eb300b2971a2bec9e5a26ff4179fd661d6b7d861e4c6557b9aaee14";

/// The token of a command line that this browser lets in.
fn command_line(browser: &Browser<'_>) -> String {
    let path = format!("/command-line?port=5000&state={}&challenge={CHALLENGE}", "0".repeat(64));
    let page = submit(browser.server, &path, &[]).header("cookie", &browser.cookie).expect(200).text();
    let code = page.split("code=").nth(1).unwrap().split('&').next().unwrap();
    let login = json!({ "code": code, "verifier": "verifier" });
    let answer = browser.server.call("POST", "/api/v1/login").json(&login).expect(200).json();
    answer["token"].as_str().unwrap().to_owned()
}

fn by(server: &Server, token: &str, method: &str, path: &str) -> Call {
    server.call(method, path).header("authorization", &format!("Bearer {token}"))
}

fn sessions(list: &Value) -> Vec<&Value> {
    list["sessions"].as_array().unwrap().iter().collect()
}

#[test]
fn ended_session_ends_its_command_line_and_the_streams_of_both() {
    let server = server!().driver("simulated:3s").run();
    server.app("api");
    let browser = Browser::of_role(&server, "deployer", "test");
    let lent = command_line(&browser);
    let deploy = by(&server, &lent, "POST", &format!("{API}/deploys")).json(&image("v2")).expect(202).json();
    let events = format!("{API}/deploys/{}/events", deploy["revision"]);
    let stream = by(&server, &lent, "GET", &events).open();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("event: status")));

    let list = server.manage("GET", "/api/v1/sessions").expect(200).json();
    let of_browser = sessions(&list).into_iter().find(|session| session.get("lent_by").is_none()).unwrap().clone();
    assert_eq!(of_browser["actor"], "deployer-of-test");
    let text = list.to_string();
    assert!(!text.contains(&lent[4..]) && !text.contains(browser.cookie.split('=').nth(1).unwrap()), "{text}");
    let own = by(&server, &lent, "GET", "/api/v1/sessions").expect(200).json();
    assert_eq!(sessions(&own).iter().filter(|session| session["current"] == true).count(), 1, "{own}");
    assert_eq!(sessions(&own).len(), 2);

    let one = format!("/api/v1/sessions/{}", of_browser["id"].as_str().unwrap());
    server.manage("DELETE", &one).expect(204);
    assert_eq!(server.manage("DELETE", &one).expect(404).problem(), "session-not-found");
    by(&server, &lent, "GET", "/api/v1/whoami").expect(401);
    browser.get("/").expect(303);
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().all(|line| !line.contains("\"succeeded\"")), "the stream ended before: {rest:?}");
    let audit = server.manage("GET", "/api/v1/audit").expect(200).text();
    assert!(audit.contains("deployer-of-test, ended"), "{audit}");
}

#[test]
fn sessions_of_others_are_for_admins_of_everything() {
    let server = server!().run();
    let (admin, eve) = (Browser::of_role(&server, "admin", "test"), Browser::of_role(&server, "viewer", "test"));
    let lent = command_line(&admin);
    let own = by(&server, &lent, "GET", "/api/v1/sessions").expect(200).json();
    assert!(sessions(&own).iter().all(|session| session["actor"] == "admin-of-test"), "{own}");
    by(&server, &lent, "DELETE", "/api/v1/sessions?actor=viewer-of-test").expect(403);
    let all = server.manage("GET", "/api/v1/sessions").expect(200).json();
    let foreign = sessions(&all).into_iter().find(|session| session["actor"] == "viewer-of-test").unwrap();
    by(&server, &lent, "DELETE", &format!("/api/v1/sessions/{}", foreign["id"].as_str().unwrap())).expect(404);
    eve.get("/").expect(200);
    for wrong in ["/api/v1/sessions", "/api/v1/sessions?actor=", "/api/v1/sessions?x=1"] {
        server.manage("DELETE", wrong).expect(400);
    }
    server.manage("DELETE", "/api/v1/sessions/x").expect(404);
    let ended = by(&server, &lent, "DELETE", "/api/v1/sessions?actor=admin-of-test").expect(200).json();
    assert_eq!(ended, json!({ "ended": 2 }), "its own");
    admin.get("/").expect(303);
}

#[test]
fn the_page_of_access_lists_sessions_and_ends_one_or_all_of_a_person() {
    let server = server!().run();
    let browser = Browser::signed_in(&server);
    let eve = Browser::of_role(&server, "viewer", "test");
    let page = browser.page("/access");
    assert!(
        page.contains("this session") && page.contains("Ada &#60;b&#62; (admin)") && !page.contains("<b>"),
        "{page}"
    );
    let all = server.manage("GET", "/api/v1/sessions").expect(200).json();
    let of_eve = sessions(&all).into_iter().find(|session| session["actor"] == "viewer-of-test").unwrap();
    let end = format!("/access/sessions/{}/end", of_eve["id"].as_str().unwrap());
    assert!(page.contains(&end) && browser.page(&end).contains("End the session"));
    assert_eq!(browser.act(&end, &[]), "/access#sessions");
    eve.get("/").expect(303);
    let again = Browser::signed_in(&server);
    let all = "/access/sessions/end?actor=Ada+%3Cb%3E+%28admin%29";
    assert!(browser.page(all).contains("End every session of Ada"));
    browser.act(all, &[]);
    for ended in [&browser, &again] {
        ended.get("/").expect(303);
    }
    eve.get(&end).expect(303);
    let deployer = Browser::of_role(&server, "deployer", "test");
    deployer.get(&end).expect(403);
    deployer.post(all, &[]).expect(403);
}
