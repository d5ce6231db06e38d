//! Configuration in the console: set, shown without its values, and rolled back with.

use rollhook_testing::server;
use serde_json::json;

use crate::{APP, Browser, ended, latest};

#[test]
fn variables_are_set_in_a_form_and_brought_back_by_a_rollback() {
    let server = server!().run();
    server.app_with("api", json!({ "settle": "0s" }));
    assert_eq!(ended(&server, 1), "succeeded");
    let browser = Browser::signed_in(&server);
    let config = format!("{APP}/config");
    let current = |revision: &'static str| [("if_current", revision)];
    let set = |value: &'static str, revision: &'static str| {
        let fields = [&[("name", "GREETING"), ("value", value)][..], &current(revision)].concat();
        assert_eq!(browser.act(&config, &fields), APP);
        assert_eq!(ended(&server, latest(&server)), "succeeded");
    };
    set("hello-one", "1");
    set("hello-two", "2");
    let page = browser.page(&config);
    assert!(page.contains("Variables of revision 3, which is current") && page.contains("GREETING"), "{page}");
    assert!(!page.contains("hello"), "a secret value is shown");

    let outdated = browser.post(&config, &[("name", "A"), ("value", "b"), ("if_current", "2")]).expect(409).text();
    assert!(outdated.contains("Revision 3 is current by now") && outdated.contains("value=\"3\""), "{outdated}");

    let plan = browser.page(&format!("{APP}/rollback?to=2"));
    assert!(
        plan.contains("this revision ran with ~GREETING") && plan.contains("Bring its configuration back"),
        "{plan}"
    );
    let back = [("to", "2"), ("if_current", "3"), ("key", "k1"), ("with_config", "yes")];
    assert_eq!(browser.act(&format!("{APP}/rollback"), &back), APP);
    assert_eq!(ended(&server, 4), "succeeded");
    let list =
        |query: &str| server.manage("GET", &format!("/api/v1{config}{query}")).expect(200).json()["variables"].clone();
    assert_eq!(list(""), list("?revision=2"));
    assert_ne!(list(""), list("?revision=3"));
    let plan = browser.page(&format!("{APP}/rollback?to=2"));
    assert!(plan.contains("Configuration stays as it is."), "both are the same: {plan}");
}
