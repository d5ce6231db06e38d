//! Snippets for pipelines: ready to be copied, and red for every deploy that did not succeed.
//!
//! All of them run one script, which the server hands out (`GET /api/v1/deploy.sh`): it makes the same call with the
//! same key, again and again, until the deploy has ended.

pub mod git_hosts;

use rollhook_core::{app::Source, image::ImageRef};
use rollhook_management::keyless::is_audience;
use serde::Serialize;

use crate::App;

/// The lines that load the script from the server of the webhook, and run it.
const LINES: [&str; 2] = [
    r#"curl -fsS --retry 5 --retry-connrefused -o rollhook-deploy.sh "${SERVICE_WEBHOOK_URL%/webhook/*}/deploy.sh""#,
    "sh rollhook-deploy.sh",
];

/// The deploy that a snippet makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The app in the words of a name: jobs of one name run one after the other.
    pub name: String,
    /// The image repository that the pipeline pushes to; `None` if the app is built from the commit.
    pub repository: Option<String>,
    /// The branch that is deployed; `None`: the repository's default branch.
    pub branch: Option<String>,
}

impl Job {
    /// Returns the job that deploys this app.
    pub fn of(app: &App) -> Self {
        let (repository, branch) = match &app.source {
            Source::Image => (Some(repository(app)), None),
            Source::Git(source) => (None, Some(source.branch.as_str().to_owned())),
        };
        // No answer can smuggle a command into a snippet.
        let branch = branch.filter(|branch| branch.bytes().all(is_plain));
        let name = format!("{}-{}", app.namespace, app.app);
        let name = if name.bytes().all(is_plain) { name } else { "deploy".to_owned() };
        Self { name, repository, branch }
    }
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'/')
}

/// Returns the repository that the app's images most likely come from. It is parsed, so that no answer can smuggle a
/// command into a snippet.
pub fn repository(app: &App) -> String {
    let allowed = app.policy.repositories.iter().find(|entry| !entry.ends_with("/*")).cloned();
    let ran = || app.current.as_ref().or(app.on_cluster.as_ref())?.image.clone();
    let image = allowed.or_else(ran).and_then(|image| image.parse::<ImageRef>().ok());
    image.map_or_else(|| format!("registry.example.com/{}", app.app), |image| image.repository().to_owned())
}

/// The snippets of an app, one for each CI system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Snippets {
    /// A job of `.gitlab-ci.yml`.
    pub gitlab_ci: String,
    /// A workflow of GitHub Actions.
    pub github_actions: String,
    /// A script for anything else.
    pub shell: String,
}

impl Snippets {
    /// Returns the snippets that make this deploy.
    pub fn new(job: &Job) -> Self {
        Self { gitlab_ci: gitlab(job, None), github_actions: github(job, None), shell: shell(job) }
    }
}

/// The snippets of an app that trusts its pipeline: without a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeylessSnippets {
    /// A job of `.gitlab-ci.yml`.
    pub gitlab_ci: String,
    /// A workflow of GitHub Actions.
    pub github_actions: String,
}

impl KeylessSnippets {
    /// Returns the snippets that make this deploy with id_tokens for this audience; `None` if the text is no audience,
    /// so that no answer can smuggle a command into a snippet.
    pub fn new(job: &Job, audience: &str) -> Option<Self> {
        is_audience(audience)
            .then(|| Self { gitlab_ci: gitlab(job, Some(audience)), github_actions: github(job, Some(audience)) })
    }
}

/// GitLab keeps a job's variables as they are: the token is one of the project's.
fn gitlab(job: &Job, audience: Option<&str>) -> String {
    let branch = job.branch.as_ref().map_or("$CI_DEFAULT_BRANCH".to_owned(), |branch| format!("\"{branch}\""));
    let id_tokens = audience.map_or_else(String::new, |audience| {
        format!("  id_tokens:\n    ROLLHOOK_ID_TOKEN:\n      aud: \"{audience}\"\n")
    });
    let image = job.repository.as_ref().map_or_else(String::new, |repository| {
        format!("  variables:\n    IMAGE: {repository}:$CI_COMMIT_SHORT_SHA # what your build has pushed\n")
    });
    let script: String = LINES.iter().map(|line| format!("    - {line}\n")).collect();
    format!(
        "\
deploy:
  stage: deploy
  image: curlimages/curl
  rules:
    - if: $CI_COMMIT_BRANCH == {branch}
  resource_group: {name}
{id_tokens}{image}  script:
{script}",
        name = job.name
    )
}

/// GitHub runs the lines by bash, and hands a secret over where it is named.
fn github(job: &Job, audience: Option<&str>) -> String {
    let branch = job.branch.as_deref().unwrap_or("main");
    let (permissions, proof) = match audience {
        Some(audience) => ("\n  id-token: write", format!("          ROLLHOOK_AUDIENCE: \"{audience}\"\n")),
        None => (" {}", "          SERVICE_WEBHOOK_TOKEN: ${{ secrets.SERVICE_WEBHOOK_TOKEN }}\n".to_owned()),
    };
    let image = job
        .repository
        .as_ref()
        .map(|repository| format!(r#"export IMAGE="{repository}:${{GITHUB_SHA::7}}" # what your build has pushed"#));
    let lines = image.iter().map(String::as_str).chain(LINES);
    let script: String = lines.map(|line| format!("          {line}\n")).collect();
    format!(
        "\
name: Deploy
on:
  push:
    branches: [\"{branch}\"]
permissions:{permissions}
concurrency:
  group: {name}
  cancel-in-progress: false
jobs:
  deploy:
    runs-on: ubuntu-latest
    steps:
      - name: Deploy
        env:
          SERVICE_WEBHOOK_URL: ${{{{ vars.SERVICE_WEBHOOK_URL }}}}
{proof}        run: |
{script}",
        name = job.name
    )
}

/// Each run of the script is an attempt.
fn shell(job: &Job) -> String {
    let image = job.repository.as_ref().map_or_else(String::new, |repository| {
        format!("export IMAGE=\"${{IMAGE:-{repository}:$(printf '%.7s' \"$COMMIT\")}}\"\n")
    });
    let [load, run] = LINES;
    format!(
        "\
#!/bin/sh
set -eu
export SERVICE_WEBHOOK_URL SERVICE_WEBHOOK_TOKEN
export COMMIT=\"${{COMMIT:-$(git rev-parse HEAD)}}\"
{image}{load}
{run}
"
    )
}

#[cfg(test)]
mod tests;
