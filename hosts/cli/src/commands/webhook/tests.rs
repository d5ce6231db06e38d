use rollhook_core::{source::GitSource, time::Timestamp};

use super::*;
use crate::{apps::tests::app, output};

const TOKEN: &str = "rh_0123456789abcdefghijABCDEFGHIJ0000000";
const KEY: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

fn webhook() -> Webhook {
    Webhook {
        previous_until: None,
        url: "https://deploys.example.com/api/v1/webhook/shop-test/api".to_owned(),
        token: TOKEN.to_owned(),
        signing_key: KEY.to_owned(),
        created_at: Timestamp::from_millis(1_767_323_045_678),
        sealing: "sealed".to_owned(),
        note: None,
    }
}

#[test]
fn enable_prints_url_token_and_snippets_without_the_token() {
    let snippets = Snippets::new(&Job::of(&app()));
    let text = enabled(&webhook(), &snippets);
    insta::assert_snapshot!("enable", text);
    assert_eq!(text.matches(TOKEN).count(), 1);
    assert_eq!(text.matches(KEY).count(), 1);
    assert_eq!(text.matches("deploys.example.com").count(), 1);
    let document = output::json(&Enabled { webhook: &webhook(), snippets: &snippets }).unwrap();
    assert_eq!(document.matches(TOKEN).count(), 1);
    let read: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(read["token"], TOKEN);
    assert!(read["snippets"]["gitlab_ci"].is_string());
}

#[test]
fn a_git_apps_owner_is_told_what_a_git_host_wants() {
    let git = App {
        source: Source::Git(GitSource {
            url: "https://git.example.com/shop/api.git".parse().unwrap(),
            branch: "release/1".parse().unwrap(),
            dockerfile: "Dockerfile".parse().unwrap(),
            context: ".".parse().unwrap(),
            image_repository: "registry.example.com/shop/api".parse().unwrap(),
            credentials: None,
        }),
        ..app()
    };
    insta::assert_snapshot!("git_hosts", at_git_host(&git));
    assert_eq!(at_git_host(&app()), "");
    let before = Webhook { signing_key: String::new(), ..webhook() };
    assert!(!credentials(&before).contains("Key"), "a server that has none");
}

#[test]
fn the_snippets_repository_is_the_apps_own_or_an_example() {
    assert_eq!(repository(&app()), "registry.example.com/api");
    let mut allowed = app();
    allowed.policy.repositories = vec!["r.example.com/base/*".to_owned(), "r.example.com/shop/api".to_owned()];
    assert_eq!(repository(&allowed), "r.example.com/shop/api");
    let mut hostile = app();
    hostile.policy.repositories = vec!["x\"; rm -rf / #".to_owned()];
    assert_eq!(repository(&hostile), "registry.example.com/api");
}
