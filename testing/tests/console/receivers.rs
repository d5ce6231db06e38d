//! Receivers of notifications: added, tested, given a new secret, and removed.

use rollhook_testing::{fixtures::Receiver, server, until};

use crate::Browser;

/// The secret that a page shows.
fn shown(page: &str) -> &str {
    let begin = page.find("whsec_").unwrap_or_else(|| panic!("no secret: {page}"));
    &page[begin..begin + page[begin..].find('<').unwrap()]
}

#[test]
fn receiver_is_added_tested_given_a_new_secret_and_removed() {
    let server = server!().arguments(["--allow-local-receivers"]).run();
    let receiver = Receiver::start();
    let browser = Browser::signed_in(&server);
    let fields = [("kind", "webhook"), ("name", "ops"), ("url", receiver.url.as_str()), ("event", "failed")];
    // A hidden field of another kind is not meant.
    let added = browser.post("/receivers", &[&fields[..], &[("channel", "#deploys"), ("event", "drift")]].concat());
    let added = added.expect(201).text();
    let first = shown(&added).to_owned();
    let page = browser.page("/receivers");
    assert!(!page.contains(&first), "it is shown once");
    assert!(page.contains(&receiver.url) && page.contains("failed, drift") && page.contains("none yet"), "{page}");

    let tested = browser.post("/receivers/ops/test", &[]).expect(200).text();
    assert!(tested.contains("has taken the test") && receiver.sent().iter().all(|sent| sent.is_signed(&first)));
    assert!(browser.page("/receivers/ops/rotate").contains("A new secret for ops?"));
    let wrong = browser.post("/receivers/ops/rotate", &[("secret", "mine")]).expect(422).text();
    assert!(wrong.contains("whsec_ and the base64") && !wrong.contains("\"mine\""), "{wrong}");
    let rotated = browser.post("/receivers/ops/rotate", &[]).expect(200).text();
    let second = shown(&rotated).to_owned();
    assert_ne!(first, second);
    until("a test has the new secret", || {
        browser.post("/receivers/ops/test", &[]).send();
        receiver.sent().last().is_some_and(|sent| sent.is_signed(&second)).then_some(())
    });

    receiver.answer(Some("500 No"));
    let failed = until("the receiver refuses a test", || {
        let reply = browser.post("/receivers/ops/test", &[]).send();
        (reply.status == 200).then(|| reply.text())
    });
    assert!(failed.contains("has not taken the test") && failed.contains("500"), "{failed}");
    assert!(browser.page("/receivers/ops/remove").contains("Remove ops?"));
    assert_eq!(browser.act("/receivers/ops/remove", &[]), "/receivers");
    assert!(browser.page("/receivers").contains("No receivers yet."));
    browser.post("/receivers/ops/test", &[]).expect(404);
}

#[test]
fn refused_receiver_keeps_what_was_typed_but_the_secret() {
    let server = server!().run();
    let browser = Browser::signed_in(&server);
    let fields = [
        ("kind", "slack"),
        ("name", "ops"),
        ("channel", "deploys <b>"),
        ("secret", "xoxb-secret"),
        ("project", "shop"),
        ("event", "put_right"),
    ];
    let refused = browser.post("/receivers", &fields).expect(422).text();
    assert!(refused.contains("value=\"deploys &#60;b&#62;\"") && refused.contains("value=\"shop\""), "{refused}");
    assert!(
        refused.contains("value=\"put_right\" checked") && refused.contains("value=\"slack\" checked"),
        "{refused}"
    );
    assert!(refused.contains("role=\"alert\"") && !refused.contains("xoxb-secret"), "{refused}");
    // Without the permission there is neither the page nor the way to it.
    let deployer = Browser::of_role(&server, "deployer", "test");
    assert!(!deployer.page("/").contains("/receivers"));
    deployer.get("/receivers").expect(403);
    deployer.post("/receivers", &fields).expect(403);
}
