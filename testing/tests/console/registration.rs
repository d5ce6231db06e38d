//! Registering an app that is built from git, by a form.

use rollhook_testing::server;
use serde_json::json;

use super::Browser;

const NEW: &str = "/apps/new";

#[test]
fn a_git_app_is_registered_by_a_form() {
    let server = server!().run();
    let browser = Browser::signed_in(&server);
    let form = browser.page(NEW);
    assert!(form.contains("value=\"image\" id=\"source-image\" checked") && form.contains("value=\"Dockerfile\""));
    let app = [("app", "site"), ("project", "shop"), ("environment", "test"), ("source", "git")];
    let with = |more: &[(&'static str, &'static str)]| [&app[..], more].concat();
    let url = ("url", "https://git.example.com/shop/site.git");
    for (more, field) in [
        (&[("image_repository", "r.example.com/site")][..], "url"),
        (&[("url", "https://ada:secret@git.example.com/site.git"), ("image_repository", "r.example.com/site")], "url"),
        (&[url], "image_repository"),
        (&[url, ("image_repository", "r.example.com/site"), ("branch", "a..b")], "branch"),
        (&[url, ("image_repository", "r.example.com/site"), ("context", "../up")], "context"),
    ] {
        let refused = browser.post(NEW, &with(more)).expect(422).text();
        let input = refused.split(&format!("<input id=\"{field}\"")).nth(1).unwrap().split('>').next().unwrap();
        assert!(input.contains("aria-invalid"), "{more:?}: {refused}");
        assert!(refused.contains("id=\"source-git\" checked") && !refused.contains("ada:secret"), "{refused}");
    }
    let fields = [
        url,
        ("image_repository", "r.example.com/site"),
        ("branch", "release"),
        ("context", "web"),
        ("credentials", "shop-reader"),
        // The value of the other source's hidden field.
        ("image", "r.example.com/api:v1"),
    ];
    assert_eq!(browser.act(NEW, &with(&fields)), "/apps/shop-test/site");
    let source = server.manage("GET", "/api/v1/apps/shop-test/site").expect(200).json()["source"].clone();
    let expected = json!({
        "kind": "git", "url": url.1, "branch": "release", "context": "web", "dockerfile": "Dockerfile",
        "credentials": "shop-reader", "image_repository": "r.example.com/site"
    });
    assert_eq!(source, expected);
    assert!(browser.page("/apps/shop-test/site").contains("No deploys yet"));

    assert!(form.contains("name=\"build\" value=\"yes\" checked"), "{form}");
    let built = [("app", "built"), ("project", "shop"), ("environment", "test"), ("source", "git"), ("build", "yes")];
    let built = [&built[..], &[url, ("image_repository", "r.example.com/built"), ("key", "one")]].concat();
    // The simulated builder reads no source: the form asks for a commit instead, and the app is registered.
    let asked = browser.post(NEW, &built).expect(503).text();
    assert!(asked.contains("Build and deploy a commit") && asked.contains("builds are simulated"), "{asked}");
    server.manage("GET", "/api/v1/apps/shop-test/built").expect(200);

    let deployer = Browser::of_role(&server, "deployer", "test");
    deployer.get(NEW).expect(403);
    deployer.post(NEW, &with(&fields)).expect(403);
}
