use serde_json::Value;

use super::*;

const AUDIENCE: &str = "https://deploys.example.com";

fn job() -> Job {
    let repository = Some("registry.example.com/shop/api".to_owned());
    Job { name: "shop-prod-api".to_owned(), repository, branch: None }
}

fn git_job() -> Job {
    Job { repository: None, branch: Some("release/1".to_owned()), ..job() }
}

#[test]
fn snippets_as_printed() {
    let snippets = Snippets::new(&job());
    insta::assert_snapshot!("gitlab_ci", snippets.gitlab_ci);
    insta::assert_snapshot!("github_actions", snippets.github_actions);
    insta::assert_snapshot!("shell", snippets.shell);
    let keyless = KeylessSnippets::new(&job(), AUDIENCE).unwrap();
    insta::assert_snapshot!("gitlab_ci_keyless", keyless.gitlab_ci);
    insta::assert_snapshot!("github_actions_keyless", keyless.github_actions);
    let snippets = Snippets::new(&git_job());
    insta::assert_snapshot!("gitlab_ci_of_a_git_app", snippets.gitlab_ci);
    insta::assert_snapshot!("github_actions_of_a_git_app", snippets.github_actions);
    assert!(!snippets.shell.contains("IMAGE"));
}

fn read(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn a_job_deploys_from_its_branch_alone_and_never_twice_at_once() {
    for (job, ours, theirs) in [
        (job(), "$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH", "main"),
        (git_job(), r#"$CI_COMMIT_BRANCH == "release/1""#, "release/1"),
    ] {
        let (gitlab, github) = (read(&gitlab(&job, None)), read(&github(&job, None)));
        assert_eq!(gitlab["deploy"]["rules"][0]["if"], ours);
        assert_eq!(gitlab["deploy"]["resource_group"], "shop-prod-api");
        assert_eq!(github["on"]["push"]["branches"][0], theirs);
        assert_eq!(github["concurrency"]["group"], "shop-prod-api");
        assert_eq!(github["concurrency"]["cancel-in-progress"], false);
    }
}

#[test]
fn a_job_has_the_permissions_and_secrets_that_it_needs_and_no_more() {
    let (secret, keyless) = (read(&github(&job(), None)), read(&github(&job(), Some(AUDIENCE))));
    assert_eq!(secret["permissions"], serde_json::json!({}));
    assert_eq!(keyless["permissions"], serde_json::json!({ "id-token": "write" }));
    let env = |workflow: &Value| workflow["jobs"]["deploy"]["steps"][0]["env"].clone();
    assert_eq!(env(&secret)["SERVICE_WEBHOOK_TOKEN"], "${{ secrets.SERVICE_WEBHOOK_TOKEN }}");
    assert!(env(&keyless)["SERVICE_WEBHOOK_TOKEN"].is_null());
    assert_eq!(env(&keyless)["ROLLHOOK_AUDIENCE"], AUDIENCE);
    let keyless = read(&gitlab(&job(), Some(AUDIENCE)));
    assert_eq!(keyless["deploy"]["id_tokens"]["ROLLHOOK_ID_TOKEN"]["aud"], AUDIENCE);
}

#[test]
fn an_audience_cannot_smuggle_a_command_into_a_snippet() {
    for audience in ["", "a b", "\"; rm -rf /", "$(id)", "`id`", "a\nb", "a&b=c", "a'b"] {
        assert!(KeylessSnippets::new(&job(), audience).is_none(), "{audience}");
    }
}
