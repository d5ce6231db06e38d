//! The page of an app's webhook: the pipelines that it trusts, and its last calls.

use rollhook_testing::{Call, image, server};
use serde_json::Value;

use super::{API, Browser};

const TRUST: &str = "/apps/shop-test/api/webhook/trust";

#[test]
fn the_webhooks_page_shows_trusted_pipelines_and_ends_a_trust() {
    let server = server!().run();
    server.app("api");
    let browser = Browser::signed_in(&server);
    assert!(browser.page("/apps/shop-test/api/webhook").contains("No pipeline is trusted"));
    let claims = serde_json::json!({ "project_id": "7", "ref": "<b>main", "ref_path": "refs/heads/<b>main" });
    let trust = serde_json::json!({ "issuer": "https://gitlab.com", "audience": "deploys", "claims": claims });
    let added = server.manage("POST", &format!("{API}/webhook/trusts")).json(&trust).expect(200).json();
    let page = browser.page("/apps/shop-test/api/webhook");
    assert!(
        page.contains("https://gitlab.com") && page.contains("project_id = 7") && page.contains("ROLLHOOK_ID_TOKEN")
    );
    assert!(page.contains("ref = &#60;b&#62;main") && !page.contains("<b>main"));
    let remove = format!("/apps/shop-test/api/webhook/remove-trust?trust={}", added["id"].as_str().unwrap());
    assert!(browser.page(&remove).contains("End the trust in this pipeline?"));
    browser.act(&remove, &[]);
    assert!(!browser.page("/apps/shop-test/api/webhook").contains("project_id = 7"));
    assert_eq!(browser.get("/apps/shop-test/api/webhook/remove-trust?trust=x").send().status, 404);
}

#[test]
fn a_pipeline_is_trusted_by_a_form() {
    let server = server!().run();
    server.app("api");
    let browser = Browser::signed_in(&server);
    assert!(browser.page(TRUST).contains("Number of the repository"));
    let github = [("system", "github"), ("number", "74"), ("claims", "ref = refs/heads/main\r\nenvironment=prod\r\n")];
    assert_eq!(browser.act(TRUST, &github), "/apps/shop-test/api/webhook#trusts");
    let own = [("system", "gitlab"), ("number", "7"), ("issuer", "https://git.example.com"), ("audience", "deploys")];
    browser.act(TRUST, &own);
    let list = server.manage("GET", &format!("{API}/webhook/trusts")).expect(200).json()["trusts"].clone();
    assert_eq!(list[0]["issuer"], "https://token.actions.githubusercontent.com");
    let claims = serde_json::json!({ "repository_id": "74", "ref": "refs/heads/main", "environment": "prod" });
    assert_eq!(list[0]["claims"], claims);
    assert_eq!((&list[1]["issuer"], &list[1]["audience"]), (&own[2].1.into(), &"deploys".into()));
    let page = browser.page("/apps/shop-test/api/webhook");
    assert_eq!(page.matches("Too wide: every branch").count(), 1, "{page}");

    for (fields, field, told) in [
        (&[("system", "github"), ("number", "shop/<b>api")][..], "number", "digits alone"),
        (&[("system", "github"), ("number", "74"), ("claims", "main")], "claims", "a line such as"),
        (&[("system", "github"), ("number", "74"), ("claims", "repository_id=8")], "claims", "given twice"),
        (&[("system", "other"), ("claims", "repository_id=8")], "issuer", "issuer"),
        (
            &[("system", "gitlab"), ("number", "7"), ("claims", "ref=main\r\nref_protected=false")],
            "claims",
            "ref_type=branch",
        ),
        (&[("system", "other"), ("issuer", "https://a.example.com"), ("claims", "ref=main")], "claims", "_id"),
        (&[("system", "gitlab"), ("number", "7"), ("issuer", "http://a.example.com/<b>")], "issuer", "issuer"),
    ] {
        let refused = browser.post(TRUST, fields).expect(422).text();
        let alert = refused.split("role=\"alert\" id=\"error\">").nth(1).unwrap().split('<').next().unwrap();
        assert!(alert.contains(told), "{fields:?}: {alert}");
        assert!(refused.contains(&format!("aria-describedby=\"error {field}-help\"")), "{fields:?}: {refused}");
        assert!(!refused.contains("<b>"), "{refused}");
    }
    let deployer = Browser::of_role(&server, "deployer", "test");
    assert!(!deployer.page("/apps/shop-test/api/webhook").contains("/webhook/trust\""));
    deployer.get(TRUST).expect(403);
    deployer.post(TRUST, &github).expect(403);
    let list = server.manage("GET", &format!("{API}/webhook/trusts")).expect(200).json();
    assert_eq!(list["trusts"].as_array().unwrap().len(), 2);
}

#[test]
fn the_last_calls_say_why_they_were_refused_to_those_who_may_know() {
    let server = server!().run();
    let app = server.app("api");
    let zeros = format!("sha256={}", "0".repeat(64));
    let call = |hook: &str| server.call("POST", hook).json(&image("v2"));
    let faults: [&dyn Fn(Call) -> Call; 4] = [
        &|call| call,
        &|call| call.header("x-service-token", "rh_wrong"),
        &|call| call.header("x-hub-signature-256", &zeros),
        &|call| call.header("x-service-token", &app.token).header("x-service-token", &app.token),
    ];
    for fault in faults {
        // Strangers see no difference between this app and one that is made up.
        let [known, unknown] = [app.hook.as_str(), "/api/v1/webhook/shop-test/none"].map(|hook| {
            let reply = fault(call(hook)).expect(401);
            let mut problem = reply.json();
            problem.as_object_mut().unwrap().remove("request_id");
            problem
        });
        assert_eq!(known, unknown);
    }
    for _ in 0..2 {
        call(&app.hook).header("x-service-token", "rh_wrong").expect(401);
    }
    call(&app.hook).header("x-service-token", &app.token).expect(202);
    let broken = server.call("POST", &app.hook).header("x-service-token", &app.token);
    broken.header("content-type", "application/json").body(b"{").expect(400);

    let calls = || server.manage("GET", &format!("{API}/webhook/calls")).expect(200).json()["calls"].clone();
    let list = calls();
    let told = |reason: Option<&str>| {
        let all = list.as_array().unwrap();
        all.iter().find(|call| call["reason"].as_str() == reason).unwrap_or_else(|| panic!("{reason:?}: {list}"))
    };
    let seen = |call: &Value| (call["status"].as_u64().unwrap(), call["credentials"].clone(), call["times"].clone());
    let expected = |status: u64, kinds: &[&str], times: u64| (status, serde_json::json!(kinds), times.into());
    assert_eq!(seen(told(Some("no-credentials"))), expected(401, &[], 1));
    assert_eq!(seen(told(Some("wrong-token"))), expected(401, &["token"], 3));
    assert_eq!(seen(told(Some("wrong-signature"))), expected(401, &["signature"], 1));
    assert_eq!(seen(told(Some("unreadable-header"))), expected(401, &["invalid"], 1));
    assert_eq!(seen(told(Some("malformed"))), expected(400, &["token"], 1));
    assert_eq!((seen(told(None)), &told(None)["revision"]), (expected(202, &["token"], 1), &2.into()));
    assert_eq!(list.as_array().unwrap().len(), 6);
    assert!(!list.to_string().contains(&app.token) && !list.to_string().contains("rh_"));
    server.manage("GET", "/api/v1/apps/shop-test/none/webhook/calls").expect(404);

    let [viewer, deployer] = ["viewer", "deployer"].map(|role| Browser::of_role(&server, role, "test"));
    let page = deployer.page("/apps/shop-test/api/webhook");
    for told in
        ["Last calls", "401 wrong-signature", "3 times", "the secret at the sender", "/deploys/2\"", "127.0.0.1"]
    {
        assert!(page.contains(told), "{told}: {page}");
    }
    let page = viewer.page("/apps/shop-test/api/webhook");
    assert!(!page.contains("Last calls") && !page.contains("wrong-signature"), "{page}");
    let body = serde_json::json!({ "name": "watcher", "role": "viewer", "project": "shop" });
    let made = server.manage("POST", "/api/v1/tokens").json(&body).expect(201).json();
    let refused = server.call("GET", &format!("{API}/webhook/calls"));
    refused.header("authorization", &format!("Bearer {}", made["token"].as_str().unwrap())).expect(403);

    // The calls are the registration's: an app of the same name begins without any.
    server.manage("DELETE", API).expect(204);
    server.register("api", &serde_json::json!({ "image": "r.example.com/api:v1", "take_over": true, "adopt": true }));
    assert_eq!(calls(), serde_json::json!([]));
}
