//! Activity and delivery measures, in the console and by the API that it stands on.

use std::io::{BufRead, BufReader};

use rollhook_testing::{image, server};
use serde_json::json;

use crate::{API, Browser, ended};

#[test]
fn activity_shows_deploys_of_all_apps_narrowed_and_as_csv() {
    let server = server!().run();
    let app = server.app("api");
    server.app("web");
    server.post(&app, &json!({ "image": "r.example.com/api:v2", "commit": "=cmd()", "committed_at": "2020-01-02T03:04:05+01:00" })).expect(202);
    assert_eq!(ended(&server, 2), "succeeded");
    server.post(&app, &image("missing")).expect(202);
    assert_eq!(ended(&server, 3), "failed");
    let browser = Browser::signed_in(&server);
    let page = browser.page("/activity");
    for shown in
        ["api:v2", ">web</a>", "/apps/shop-test/api/deploys/3", "=cmd()", "hx-sse:connect=\"/activity/live?seen="]
    {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    let failed = browser.page("/activity?status=failed&project=shop&environment=test&actor=CI");
    assert!(failed.contains("/deploys/3\"") && !failed.contains("/deploys/2\""), "{failed}");
    assert!(browser.page("/activity?actor=nobody").contains("Nothing found"));
    assert!(browser.get("/activity?project=No!").expect(422).text().contains("project"));
    for query in ["status=broken", "after=x"] {
        browser.get(&format!("/activity?{query}")).expect(400);
    }
    let table = browser.get("/activity?format=csv").expect(200);
    assert_eq!(table.header("content-disposition"), Some("attachment; filename=\"activity.csv\""));
    assert!(table.text().contains(",'=cmd(),2020-01-02T02:04:05.000Z,\r\n"), "{}", table.text());
    // The API has the same.
    let list = server.manage("GET", "/api/v1/activity?limit=2").expect(200).json();
    assert_eq!(list["deploys"].as_array().map(Vec::len), Some(2));
    let next = list["next"].as_str().unwrap().replace('/', "%2F");
    let rest = server.manage("GET", &format!("/api/v1/activity?after={next}")).expect(200).json();
    let revisions = |list: &serde_json::Value| list["deploys"].as_array().unwrap().len();
    let all = server.manage("GET", "/api/v1/activity").expect(200).json();
    assert_eq!(revisions(&rest) + 2, revisions(&all));
    for (query, why) in [
        ("status=broken", "must be succeeded, failed, superseded, cancelled or unfinished"),
        ("after=x", "must be next of the part before"),
        ("limit=0", "must be from 1 to 200"),
    ] {
        let refused = server.manage("GET", &format!("/api/v1/activity?{query}")).expect(400);
        assert!(refused.text().contains(why), "{}", refused.text());
    }
    let csv = server.manage("GET", "/api/v1/activity").header("accept", "text/csv").expect(200);
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8; header=present"));
    assert_eq!(csv.text(), table.text());
    let entry = server.manage("GET", &format!("{API}/deploys/2")).expect(200).json();
    assert_eq!(entry["committed_at"], "2020-01-02T02:04:05.000Z");
    let refused =
        server.post(&app, &json!({ "image": "r.example.com/api:v3", "commit": "a", "committed_at": "yesterday" }));
    assert_eq!(refused.expect(422).json()["field"], "committed_at");
}

#[test]
fn delivery_measures_have_a_chart_and_its_table() {
    let server = server!().run();
    let app = server.app("api");
    server.post(&app, &image("v2")).expect(202);
    assert_eq!(ended(&server, 2), "succeeded");
    server.post(&app, &image("missing")).expect(202);
    assert_eq!(ended(&server, 3), "failed");
    assert_eq!(ended(&server, 4), "succeeded");
    let browser = Browser::signed_in(&server);
    let page = browser.page("/report?days=7");
    for shown in
        ["<svg class=\"chart\"", "class=\"failed\"", "Change fail rate", "Day (UTC)", "<option value=\"7\" selected>"]
    {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    assert!(browser.page("/report?environment=prod").contains("No deployments in 30 days"));
    let report = server.manage("GET", "/api/v1/report?days=7").expect(200).json();
    let shop = &report["environments"][0];
    assert_eq!((&shop["environment"], &shop["failed"], &shop["rollbacks"]), (&json!("test"), &json!(1), &json!(1)));
    assert_eq!(shop["daily"][0]["failed"], 1);
    let csv = server.manage("GET", "/api/v1/report").header("accept", "text/csv").expect(200).text();
    assert!(csv.starts_with("project,environment,since,") && csv.contains("\r\nshop,test,"), "{csv}");
    assert_eq!(browser.get("/report?format=csv").expect(200).text().lines().count(), 2);
    let refused = server.manage("GET", "/api/v1/report?days=8").expect(400);
    assert!(refused.text().contains("must be 7, 30 or 90"), "{}", refused.text());
}

#[test]
fn reports_have_what_the_caller_may_read_alone() {
    let server = server!().run();
    server.app("api");
    let elsewhere = Browser::of_role(&server, "admin", "prod");
    assert!(elsewhere.page("/activity").contains("No deploys yet"));
    assert!(!elsewhere.page("/activity").contains("shop-test/api"));
    let viewer = Browser::of_role(&server, "viewer", "test");
    assert!(viewer.page("/activity").contains("/apps/shop-test/api/deploys/1"));
    for path in ["/activity", "/report", "/activity/live"] {
        server.call("GET", path).expect(303);
    }
    for path in ["/api/v1/activity", "/api/v1/report"] {
        assert_eq!(server.call("GET", path).expect(401).problem(), "unauthorized");
    }
}

#[test]
fn stream_of_activity_shows_deploys_and_ends_with_its_session() {
    let server = server!().run();
    let app = server.app("api");
    let [watching, leaving] = [(); 2].map(|()| Browser::signed_in(&server));
    let mut lines = BufReader::new(watching.get("/activity/live").open()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("/apps/shop-test/api/deploys/1")));
    server.post(&app, &image("v2")).expect(202);
    assert!(lines.any(|line| line.contains("/apps/shop-test/api/deploys/2")));
    leaving.act("/sign-out-everywhere", &[]);
    server.post(&app, &image("v3")).expect(202);
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().all(|line| !line.contains("/apps/shop-test/api/deploys/3")), "{rest:?}");
}
