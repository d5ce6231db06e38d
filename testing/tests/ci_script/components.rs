//! The files for GitHub and GitLab, and the script, as the providers' own rules have them.

use std::{fs, path::Path, process::Command};

use rollhook_api::snippets::{self, KeylessSnippets, Snippets};
use rollhook_testing::{
    Ended,
    pipeline::clean,
    process::{is_installed, tool},
    skip, test_name,
};

use crate::job::PACKAGING;

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(PACKAGING).join(name)).unwrap()
}

#[track_caller]
fn fits(program: &Path, schema: &str, text: &str) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file.yml");
    fs::write(&file, text).unwrap();
    let mut command = Command::new(program);
    let ended: Ended = command.args(["--builtin-schema", schema]).arg(&file).output().unwrap().into();
    assert_eq!(ended.code, 0, "{}\n{}\n{text}", ended.out, ended.err);
}

#[test]
fn what_is_printed_and_packaged_fits_the_providers_schemas() {
    let Some(program) = tool("python/bin/check-jsonschema", &test_name!()) else { return };
    let image = snippets::Job {
        name: "shop-prod-api".to_owned(),
        repository: Some("registry.example.com/shop/api".to_owned()),
        branch: None,
    };
    let git = snippets::Job { repository: None, branch: Some("release/1".to_owned()), ..image.clone() };
    for job in [image, git] {
        let (printed, keyless) =
            (Snippets::new(&job), KeylessSnippets::new(&job, "https://deploys.example.com").unwrap());
        for workflow in [printed.github_actions, keyless.github_actions] {
            fits(&program, "vendor.github-workflows", &workflow);
        }
        for pipeline in [printed.gitlab_ci, keyless.gitlab_ci] {
            fits(&program, "vendor.gitlab-ci", &pipeline);
        }
    }
    fits(&program, "vendor.github-actions", &read("github/action.yml"));
    let template = read("gitlab/template.yml");
    let (inputs, job) = template.split_once("\n---\n").unwrap();
    fits(&program, "vendor.gitlab-ci", inputs);
    fits(&program, "vendor.gitlab-ci", job);
}

#[test]
fn the_gitlab_component_contains_the_script_as_it_is() {
    let made = Command::new("sh").arg(Path::new(PACKAGING).join("gitlab/embed.sh")).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let template = read("gitlab/template.yml");
    assert!(template.as_bytes() == made.stdout, "run packaging/ci/gitlab/embed.sh > packaging/ci/gitlab/template.yml");
    let (_, after) = template.split_once("<<'END_OF_DEPLOY_SH'\n").unwrap();
    let (script, _) = after.split_once("      END_OF_DEPLOY_SH\n").unwrap();
    let script: String =
        script.lines().map(|line| format!("{}\n", line.strip_prefix("      ").unwrap_or(line))).collect();
    assert_eq!(script, read("deploy.sh"));
    assert!(!script.contains("$[["), "GitLab would take it for an input");
}

#[test]
fn every_input_of_the_component_is_used_and_declared() {
    let template = read("gitlab/job.yml");
    let (inputs, job) = template.split_once("\n---\n").unwrap();
    let indented = |line: &&str| line.starts_with("    ") && !line.starts_with("     ");
    let declared: Vec<_> = inputs.lines().filter(indented).map(|line| line.trim().trim_end_matches(':')).collect();
    assert!(declared.len() > 3, "{declared:?}");
    for name in &declared {
        assert!(job.contains(&format!("$[[ inputs.{name} ]]")), "{name}");
    }
    for used in job.split("$[[ inputs.").skip(1) {
        assert!(declared.contains(&used.split(' ').next().unwrap()), "{used}");
    }
}

/// Runs the component's job with this audience and these variables; no server is where they lead to.
fn runs_component(audience: &str, variables: &[(&str, &str)]) -> Ended {
    let template = read("gitlab/template.yml");
    let (_, script) = template.split_once("  script:\n    - |\n").unwrap();
    let lines = script.lines().take_while(|line| !line.starts_with("  artifacts:"));
    let script: String = lines.map(|line| format!("{}\n", line.strip_prefix("      ").unwrap_or(line))).collect();
    let script = script.replace("$[[ inputs.audience ]]", audience);
    let directory = tempfile::tempdir().unwrap();
    let mut job = clean("sh");
    job.args(["-e", "-c", &script]).current_dir(directory.path()).env("DEPLOY_RETRY", "0").env("CI_JOB_ID", "1");
    job.env("SERVICE_WEBHOOK_URL", "http://127.0.0.1:1/api/v1/webhook/shop-test/api").env("COMMIT", "abc");
    job.envs(variables.iter().copied()).output().unwrap().into()
}

#[test]
fn the_component_wants_an_audience_only_where_there_is_no_token() {
    let id_token = ("ROLLHOOK_ID_TOKEN", "of.the.job");
    let nothing = runs_component("none", &[id_token]).exits(2);
    assert!(nothing.err.contains("the input audience"), "{nothing:?}");
    // Both get as far as the server.
    runs_component("none", &[id_token, ("SERVICE_WEBHOOK_TOKEN", "rh_token")]).exits(5);
    runs_component("https://deploys.example.com", &[id_token]).exits(5);
}

#[test]
fn no_input_of_the_component_is_required() {
    let template = read("gitlab/job.yml");
    let (inputs, _) = template.split_once("\n---\n").unwrap();
    let count = |mark: &str| inputs.lines().filter(|line| line.starts_with(mark)).count();
    let names = inputs.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     ")).count();
    assert_eq!(count("      default:"), names, "{inputs}");
}

#[test]
fn workflows_fit_the_providers_schema_and_name_actions_by_commit() {
    let Some(program) = tool("python/bin/check-jsonschema", &test_name!()) else { return };
    let folder = Path::new(PACKAGING).join("../../.github/workflows");
    for entry in fs::read_dir(folder).unwrap() {
        let workflow = fs::read_to_string(entry.unwrap().path()).unwrap();
        for (_, action) in workflow.lines().filter_map(|line| line.split_once("uses: ")) {
            let commit = action.split_once('@').unwrap().1.split(' ').next().unwrap();
            assert!(commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{action}");
        }
        fits(&program, "vendor.github-workflows", &workflow);
    }
}

#[test]
fn shellcheck_finds_nothing() {
    if !is_installed("shellcheck") {
        return skip(&test_name!(), "there is no shellcheck");
    }
    let mut check = Command::new("shellcheck");
    check.args(["-s", "sh"]).args(["deploy.sh", "gitlab/embed.sh"].map(|name| Path::new(PACKAGING).join(name)));
    let ended: Ended = check.output().unwrap().into();
    assert_eq!(ended.code, 0, "{}", ended.out);
}
