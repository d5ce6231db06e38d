//! The page of an app's webhook: the pipelines that it trusts.

use rollhook_testing::server;

use super::{API, Browser};

const TRUST: &str = "/apps/shop-test/api/webhook/trust";

#[test]
fn the_webhooks_page_shows_trusted_pipelines_and_ends_a_trust() {
    let server = server!().run();
    server.app("api");
    let browser = Browser::signed_in(&server);
    assert!(browser.page("/apps/shop-test/api/webhook").contains("No pipeline is trusted"));
    let claims = serde_json::json!({ "project_id": "7", "ref": "<b>main" });
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
    assert_eq!(page.matches("every branch may deploy").count(), 1, "{page}");

    for (fields, field, told) in [
        (&[("system", "github"), ("number", "shop/<b>api")][..], "number", "digits alone"),
        (&[("system", "github"), ("number", "74"), ("claims", "main")], "claims", "a line such as"),
        (&[("system", "github"), ("number", "74"), ("claims", "repository_id=8")], "claims", "given twice"),
        (&[("system", "other"), ("claims", "repository_id=8")], "issuer", "issuer"),
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
