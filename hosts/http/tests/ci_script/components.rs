//! The files for GitHub and GitLab, and the script, as the providers' own rules have them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use rollhook_api::snippets::{self, KeylessSnippets, Snippets};
use rollhook_testing::{
    Ended,
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

#[test]
fn the_documented_gitlab_job_has_every_required_input() {
    let docs = read("../../docs/ci.md");
    let (_, example) = docs.split_once("    inputs:\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let template = read("gitlab/job.yml");
    let (inputs, _) = template.split_once("\n---\n").unwrap();
    let mut required = Vec::new();
    for line in inputs.lines() {
        if let Some(name) = line.strip_prefix("    ").filter(|name| !name.starts_with(' ')) {
            required.push(name);
        } else if line.starts_with("      default:") {
            required.pop();
        }
    }
    assert_eq!(required, ["audience:"]);
    assert!(required.iter().all(|name| example.contains(&format!("      {name} "))), "{example}");
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
