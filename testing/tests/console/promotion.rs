//! Promotion from one environment to another, as a browser does it.

use rollhook_testing::{Server, server};
use serde_json::{Value, json};

use super::Browser;

const PROMOTE: &str = "/projects/shop/promote";

/// Registers an app that runs this image, and waits until it does.
fn running(server: &Server, environment: &str, name: &str, tag: &str) {
    let image = format!("r.example.com/{name}:{tag}");
    let body = json!({
        "project": "shop", "environment": environment, "app": name, "image": image, "policy": { "settle": "0s" }
    });
    server.manage("POST", "/api/v1/apps").json(&body).expect(201);
    entry(server, environment, name, 1);
}

/// Returns an entry once it has ended.
fn entry(server: &Server, environment: &str, name: &str, revision: u64) -> Value {
    let path = format!("/api/v1/apps/shop-{environment}/{name}/deploys/{revision}");
    server.manage("GET", &path).header("prefer", "wait=50").expect(200).json()
}

fn revisions(server: &Server, environment: &str, name: &str) -> usize {
    let list = server.manage("GET", &format!("/api/v1/apps/shop-{environment}/{name}/deploys")).expect(200).json();
    list["deploys"].as_array().unwrap().len()
}

/// A shop of which test is ahead of prod in two of three apps.
fn shop(server: &Server) {
    for (name, test, prod) in [("api", "2", "1"), ("web", "5", "4"), ("worker", "7", "7")] {
        running(server, "prod", name, prod);
        running(server, "test", name, test);
    }
    running(server, "test", "new", "1");
}

#[test]
fn the_apps_page_says_what_lags_and_a_cell_promotes_it() {
    let server = server!().run();
    shop(&server);
    let browser = Browser::signed_in(&server);
    let page = browser.page("/");
    assert_eq!(page.matches("behind test").count(), 2, "{page}");
    assert!(page.contains("/projects/shop/promote?from=test&#38;to=prod&#38;app=api"), "{page}");

    let question = browser.get(&format!("{PROMOTE}?from=test&to=prod&app=api")).header("hx-request", "true");
    let question = question.expect(200).text();
    for told in ["Promote api to prod?", "api:1", "api:2", "as in test, revision 1", "value=\"api@1\""] {
        assert!(question.contains(told), "{told}: {question}");
    }
    assert!(!question.contains("<html"));
    let fields = [("from", "test"), ("to", "prod"), ("app", "api@1"), ("key", "k1")];
    assert_eq!(browser.act(PROMOTE, &fields), "/apps/shop-prod/api");
    assert_eq!(browser.act(PROMOTE, &fields), "/apps/shop-prod/api", "a form that is sent twice");
    let promoted = entry(&server, "prod", "api", 2);
    assert_eq!((&promoted["status"], &promoted["trigger"]), (&json!("succeeded"), &json!("promotion")));
    assert!(promoted["image"].as_str().unwrap().starts_with("r.example.com/api:2"));
    assert_eq!(revisions(&server, "prod", "api"), 2);
    assert_eq!(browser.page("/").matches("behind test").count(), 1);
}

#[test]
fn an_environment_is_promoted_app_by_app() {
    let server = server!().run();
    shop(&server);
    let browser = Browser::signed_in(&server);
    // Without names: to the last environment, from the one before.
    let plan = browser.page(PROMOTE);
    for told in ["What test runs, to prod", "value=\"api@1\" checked", "value=\"web@1\" checked"] {
        assert!(plan.contains(told), "{told}: {plan}");
    }
    for (app, why) in [("worker", "the same image runs already"), ("new", "there is no such app to promote to")] {
        assert!(!plan.contains(&format!("value=\"{app}@")) && plan.contains(why), "{app}: {plan}");
    }
    // Another image runs in test than the plan has shown: that app is left alone, and the other is promoted.
    let deploy = server.manage("POST", "/api/v1/apps/shop-test/web/deploys");
    deploy.json(&json!({ "image": "r.example.com/web:6" })).expect(202);
    entry(&server, "test", "web", 2);
    let fields = [("from", "test"), ("to", "prod"), ("app", "api@1"), ("app", "web@1"), ("key", "k1")];
    let done = browser.post(PROMOTE, &fields).expect(200).text();
    assert!(done.contains("/apps/shop-prod/api/deploys/2") && done.contains("Promoted from test to prod"), "{done}");
    assert!(done.contains("not promoted") && done.contains("is current by now"), "{done}");
    assert_eq!((revisions(&server, "prod", "api"), revisions(&server, "prod", "web")), (2, 1));
    entry(&server, "prod", "api", 2);
    let status = browser.page("/apps/shop-prod/api/deploys/2/status");
    assert!(status.contains("succeeded") && !status.contains("hx-get"), "a deploy that has ended is read no more");
}

#[test]
fn a_promotion_that_makes_no_sense_is_refused() {
    let server = server!().run();
    shop(&server);
    let browser = Browser::signed_in(&server);
    let alert = |status, fields: &[(&str, &str)]| {
        let page = browser.post(PROMOTE, fields).expect(status).text();
        page.split("role=\"alert\">").nth(1).unwrap().split('<').next().unwrap().to_owned()
    };
    let itself = alert(422, &[("from", "prod"), ("to", "prod"), ("app", "api@1")]);
    assert!(itself.contains("not promoted to itself"), "{itself}");
    assert!(browser.get(&format!("{PROMOTE}?from=prod&to=prod")).expect(422).text().contains("promoted to itself"));
    assert!(alert(422, &[("from", "test"), ("to", "prod")]).contains("Choose at least one app"));
    assert!(alert(404, &[("from", "x"), ("to", "prod"), ("app", "api@1")]).contains("environment x"));
    for app in ["api", "api@9", "none@1", "api@x", "<b>@1"] {
        let refused = browser.post(PROMOTE, &[("from", "test"), ("to", "prod"), ("app", app)]).send();
        assert!(matches!(refused.status, 404 | 409), "{app}: {}", refused.status);
        assert!(!refused.text().contains("<b>"));
    }
    let locked = server.manage("PUT", "/api/v1/apps/shop-prod/api/lock");
    locked.json(&json!({ "reason": "the fair is on" })).expect(200);
    assert!(browser.page(PROMOTE).contains("locked"));
    let refused = browser.post(PROMOTE, &[("from", "test"), ("to", "prod"), ("app", "api@1")]).expect(423);
    assert!(refused.text().contains("the fair is on"));
    assert_eq!(revisions(&server, "prod", "api"), 1);
    assert_eq!(browser.get("/projects/none/promote").send().status, 404);
}

#[test]
fn promotion_is_offered_to_those_who_may_deploy_where_it_leads() {
    let server = server!().run();
    shop(&server);
    let fields = [("from", "test"), ("to", "prod"), ("app", "api@1")];
    let viewer = Browser::of_role(&server, "viewer", "prod");
    let of_test = Browser::of_role(&server, "deployer", "test");
    for browser in [&viewer, &of_test] {
        assert!(!browser.page("/").contains("/promote?from=test"));
        let refused = browser.get(&format!("{PROMOTE}?from=test&to=prod")).send().status;
        assert!(matches!(refused, 403 | 404), "{refused}");
        let refused = browser.post(PROMOTE, &fields).send().status;
        assert!(matches!(refused, 403 | 404), "{refused}");
    }
    assert_eq!(revisions(&server, "prod", "api"), 1);
    // A deployer of prod that cannot read test has nothing to promote from.
    let of_prod = Browser::of_role(&server, "deployer", "prod");
    of_prod.post(PROMOTE, &fields).expect(404);
    let body = json!({ "name": "both", "role": "deployer", "project": "shop" });
    let made = server.manage("POST", "/api/v1/tokens").json(&body).expect(201).json();
    let reply = super::sign_in(&server, made["token"].as_str().unwrap());
    let cookie = reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    assert_eq!(Browser { server: &server, cookie }.act(PROMOTE, &fields), "/apps/shop-prod/api");
}

#[test]
fn apps_that_lack_variables_are_promoted_after_a_tick() {
    let server = server!().run();
    shop(&server);
    for (name, variables) in [("api", json!({ "URL": "hunter2", "A": "1" })), ("worker", json!({ "A": "1" }))] {
        let set = server.manage("PATCH", &format!("/api/v1/apps/shop-test/{name}/config"));
        set.json(&json!({ "set": variables })).header("prefer", "wait=50").expect(200);
    }
    let browser = Browser::signed_in(&server);
    let plan = browser.page(PROMOTE);
    assert!(plan.contains("lacks A and URL") && plan.matches("lacks ").count() == 1, "{plan}");
    assert!(plan.contains("name=\"without_variables\"") && !plan.contains("hunter2"), "{plan}");
    let one = browser.page(&format!("{PROMOTE}?from=test&to=prod&app=api"));
    assert!(one.contains("In prod it lacks A and URL") && one.contains("value=\"yes\" required"), "{one}");
    let web = browser.page(&format!("{PROMOTE}?from=test&to=prod&app=web"));
    assert!(!web.contains("without_variables"), "{web}");

    let fields = [("from", "test"), ("to", "prod"), ("app", "api@2"), ("app", "web@1"), ("key", "k1")];
    let asked = browser.post(PROMOTE, &fields).expect(409).text();
    assert!(asked.contains("Nothing was promoted.") && asked.contains("value=\"web@1\" checked"), "{asked}");
    let alone = browser.post(PROMOTE, &[("from", "test"), ("to", "prod"), ("app", "api@2")]).expect(409).text();
    assert!(alone.contains("Promote api to prod?") && alone.contains("Nothing was promoted."), "{alone}");
    assert_eq!((revisions(&server, "prod", "api"), revisions(&server, "prod", "web")), (1, 1));
    // Only the chosen ones are asked for.
    assert_eq!(browser.act(PROMOTE, &[("from", "test"), ("to", "prod"), ("app", "web@1")]), "/apps/shop-prod/web");
    let ticked = [("from", "test"), ("to", "prod"), ("app", "api@2"), ("without_variables", "yes"), ("key", "k2")];
    assert_eq!(browser.act(PROMOTE, &ticked), "/apps/shop-prod/api");
    assert_eq!(entry(&server, "prod", "api", 2)["status"], "succeeded");
}
