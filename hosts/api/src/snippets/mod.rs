//! Snippets for pipelines: ready to be copied, and red for every deploy that did not succeed.
//!
//! All of them run one loop: the same call with the same key, again and again, until the answer is not 202. The token
//! comes from the environment and goes to curl by standard input, so that no process list shows it.

pub mod git_hosts;

use rollhook_core::{app::Source, image::ImageRef};
use serde::Serialize;

use crate::App;

/// The seconds that a pipeline waits for the end of a deploy, unless `DEPLOY_TIMEOUT` says otherwise: more than the default
/// deadline of a rollout.
const TIMEOUT: u32 = 900;

/// The body that a snippet posts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Posted {
    /// The image, of this repository, and its commit.
    Image(String),
    /// The commit alone.
    Commit,
}

impl Posted {
    /// Returns the body that an app takes.
    pub fn of(app: &App) -> Self {
        match app.source {
            Source::Image => Self::Image(repository(app)),
            Source::Git(_) => Self::Commit,
        }
    }
}

/// Returns the repository that the app's images most likely come from. The text is parsed, so that no answer can smuggle a command
/// into a snippet.
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
    /// A workflow's job.
    pub github_actions: String,
    /// A script for anything else.
    pub shell: String,
}

impl Snippets {
    /// Returns the snippets that post this body.
    pub fn new(posted: &Posted) -> Self {
        Self { gitlab_ci: gitlab(posted), github_actions: github(posted), shell: shell(posted) }
    }
}

/// Returns the loop. `key` names this run and attempt; the shell evaluates it, and `before` ahead of it.
fn script(posted: &Posted, before: &str, key: &str) -> String {
    let body = match posted {
        Posted::Image(_) => r#"{\"image\":\"$IMAGE\",\"commit\":\"$COMMIT\"}"#,
        Posted::Commit => r#"{\"commit\":\"$COMMIT\"}"#,
    };
    format!(
        r#"set -eu
{before}: "${{SERVICE_WEBHOOK_URL:?}}" "${{SERVICE_WEBHOOK_TOKEN:?}}"
key="{key}"
body="{body}"
end=$(($(date +%s) + ${{DEPLOY_TIMEOUT:-{TIMEOUT}}}))
lost=0
while :; do
  code=0
  answer="$(printf 'X-Service-Token: %s\n' "$SERVICE_WEBHOOK_TOKEN" |
    curl --fail-with-body -sS --retry 5 --retry-connrefused --connect-timeout 10 --max-time 90 \
      -H @- -H 'Content-Type: application/json' -H 'Prefer: wait=50' -H "Idempotency-Key: $key" \
      -d "$body" -w ' %{{http_code}}' "$SERVICE_WEBHOOK_URL")" || code=$?
  printf '%s\n' "${{answer% *}}"
  case "$code ${{answer##* }}" in
    "0 200") break ;;
    "0 202") lost=0 ;;
    *" 000" | *" 200" | *" 202") # no answer, or not the whole of it
      lost=$((lost + 1))
      if [ "$lost" -ge 3 ]; then echo "No answer; the deploy may have been accepted." >&2; exit 1; fi ;;
    *) echo "The deploy did not succeed." >&2; exit 1 ;;
  esac
  if [ "$(date +%s)" -ge "$end" ]; then
    echo "The deploy has not ended after ${{DEPLOY_TIMEOUT:-{TIMEOUT}}} s." >&2; exit 1
  fi
  sleep 2
done
"#
    )
}

/// Returns the text with every line indented.
fn indented(text: &str, by: usize) -> String {
    let margin = " ".repeat(by);
    text.lines().map(|line| format!("{margin}{line}\n")).collect()
}

/// A retried job has another `CI_JOB_ID`, so that it is another attempt.
fn gitlab(posted: &Posted) -> String {
    let image = match posted {
        Posted::Image(repository) => {
            format!("    IMAGE: {repository}:$CI_COMMIT_SHA # what your build has pushed\n")
        }
        Posted::Commit => String::new(),
    };
    let script = indented(&script(posted, "", "$CI_PIPELINE_ID-$CI_JOB_ID"), 6);
    format!(
        r#"deploy:
  stage: deploy
  image: curlimages/curl
  variables:
{image}    COMMIT: $CI_COMMIT_SHA
  script:
    - |
{script}"#
    )
}

/// "Re-run jobs" keeps the run's id and counts up its attempt.
fn github(posted: &Posted) -> String {
    let image = match posted {
        Posted::Image(repository) => {
            format!("          IMAGE: {repository}:${{{{ github.sha }}}} # what your build has pushed\n")
        }
        Posted::Commit => String::new(),
    };
    let script = indented(&script(posted, "", "$GITHUB_RUN_ID-$GITHUB_RUN_ATTEMPT-$GITHUB_JOB"), 10);
    format!(
        r#"jobs:
  deploy:
    runs-on: ubuntu-latest
    steps:
      - name: Deploy
        env:
          SERVICE_WEBHOOK_URL: ${{{{ vars.SERVICE_WEBHOOK_URL }}}}
          SERVICE_WEBHOOK_TOKEN: ${{{{ secrets.SERVICE_WEBHOOK_TOKEN }}}}
{image}          COMMIT: ${{{{ github.sha }}}}
        run: |
{script}"#
    )
}

/// Each run of the script is an attempt.
fn shell(posted: &Posted) -> String {
    let image = match posted {
        Posted::Image(repository) => format!("IMAGE=\"${{IMAGE:-{repository}:$COMMIT}}\"\n"),
        Posted::Commit => String::new(),
    };
    let before = format!("COMMIT=\"${{COMMIT:-$(git rev-parse HEAD)}}\"\n{image}");
    format!("#!/bin/sh\n{}", script(posted, &before, "$(date +%s)-$$"))
}

#[cfg(test)]
mod tests;
