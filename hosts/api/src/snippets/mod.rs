//! Snippets for pipelines: ready to be copied, and red for every deploy that did not succeed.
//!
//! All of them run one loop: the same call with the same key, again and again, until the answer is not 202. The token
//! comes from the environment and goes to curl by standard input, so that no process list shows it.

pub mod git_hosts;

use rollhook_core::{app::Source, identity::is_audience, image::ImageRef};
use serde::Serialize;

use crate::App;

/// The seconds that a pipeline waits for the end of a deploy, unless `DEPLOY_TIMEOUT` says otherwise: more than the
/// default deadline of a rollout.
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
    /// A workflow's job.
    pub github_actions: String,
    /// A script for anything else.
    pub shell: String,
}

impl Snippets {
    /// Returns the snippets that post this body.
    pub fn new(posted: &Posted) -> Self {
        Self {
            gitlab_ci: gitlab(posted, Proof::Token),
            github_actions: github(posted, Proof::Token),
            shell: shell(posted),
        }
    }
}

/// The snippets of an app that trusts its pipeline: without a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeylessSnippets {
    /// A job of `.gitlab-ci.yml`.
    pub gitlab_ci: String,
    /// A workflow's job.
    pub github_actions: String,
}

impl KeylessSnippets {
    /// Returns the snippets that post this body with id_tokens for this audience; `None` if the text is no audience, so
    /// that no answer can smuggle a command into a snippet.
    pub fn new(posted: &Posted, audience: &str) -> Option<Self> {
        let (gitlab, github) = (Proof::GitlabIdToken(audience), Proof::GithubIdToken(audience));
        is_audience(audience)
            .then(|| Self { gitlab_ci: self::gitlab(posted, gitlab), github_actions: self::github(posted, github) })
    }
}

/// The proof that a job sends.
#[derive(Clone, Copy)]
enum Proof<'a> {
    /// The app's token, of the environment.
    Token,
    /// The id_token that GitLab hands to the job: it is valid for as long as the job may run.
    GitlabIdToken(&'a str),
    /// The id_token that GitHub makes for the job on its call: it is valid for minutes, so that each call has its own.
    GithubIdToken(&'a str),
}

impl Proof<'_> {
    /// The check of the environment.
    const fn wanted(self) -> &'static str {
        match self {
            Self::Token => r#""${SERVICE_WEBHOOK_TOKEN:?}""#,
            Self::GitlabIdToken(_) => r#""${ROLLHOOK_ID_TOKEN:?}""#,
            Self::GithubIdToken(_) => {
                r#""${ACTIONS_ID_TOKEN_REQUEST_URL:?the job needs the permission id-token: write}""#
            }
        }
    }

    /// The commands ahead of each call.
    fn ahead(self) -> String {
        let Self::GithubIdToken(audience) = self else { return String::new() };
        format!(
            r#"  id_token="$(printf 'Authorization: Bearer %s\n' "$ACTIONS_ID_TOKEN_REQUEST_TOKEN" |
    curl --fail -sS --retry 5 --retry-connrefused --connect-timeout 10 --max-time 30 \
      -H @- "$ACTIONS_ID_TOKEN_REQUEST_URL&audience={audience}" |
    sed -n 's/.*"value" *: *"\([^"]*\)".*/\1/p')"
  if [ -z "$id_token" ]; then echo "GitHub gave no id_token." >&2; exit 1; fi
"#
        )
    }

    /// The command that prints the header.
    const fn header(self) -> &'static str {
        match self {
            Self::Token => r#"printf 'X-Service-Token: %s\n' "$SERVICE_WEBHOOK_TOKEN""#,
            Self::GitlabIdToken(_) => r#"printf 'Authorization: Bearer %s\n' "$ROLLHOOK_ID_TOKEN""#,
            Self::GithubIdToken(_) => r#"printf 'Authorization: Bearer %s\n' "$id_token""#,
        }
    }
}

/// Returns the loop. `key` names this run and attempt; the shell evaluates it, and `before` ahead of it.
fn script(posted: &Posted, proof: Proof<'_>, before: &str, key: &str) -> String {
    let (wanted, ahead, header) = (proof.wanted(), proof.ahead(), proof.header());
    let body = match posted {
        Posted::Image(_) => r#"{\"image\":\"$IMAGE\",\"commit\":\"$COMMIT\"}"#,
        Posted::Commit => r#"{\"commit\":\"$COMMIT\"}"#,
    };
    format!(
        r#"set -eu
{before}: "${{SERVICE_WEBHOOK_URL:?}}" {wanted}
key="{key}"
body="{body}"
end=$(($(date +%s) + ${{DEPLOY_TIMEOUT:-{TIMEOUT}}}))
lost=0
while :; do
{ahead}  code=0
  answer="$({header} |
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
fn gitlab(posted: &Posted, proof: Proof<'_>) -> String {
    let image = match posted {
        Posted::Image(repository) => {
            format!("    IMAGE: {repository}:$CI_COMMIT_SHA # what your build has pushed\n")
        }
        Posted::Commit => String::new(),
    };
    let script = indented(&script(posted, proof, "", "$CI_PIPELINE_ID-$CI_JOB_ID"), 6);
    let id_tokens = match proof {
        Proof::GitlabIdToken(audience) => format!("  id_tokens:\n    ROLLHOOK_ID_TOKEN:\n      aud: \"{audience}\"\n"),
        Proof::Token | Proof::GithubIdToken(_) => String::new(),
    };
    format!(
        r#"deploy:
  stage: deploy
  image: curlimages/curl
{id_tokens}  variables:
{image}    COMMIT: $CI_COMMIT_SHA
  script:
    - |
{script}"#
    )
}

/// "Re-run jobs" keeps the run's id and counts up its attempt.
fn github(posted: &Posted, proof: Proof<'_>) -> String {
    let image = match posted {
        Posted::Image(repository) => {
            format!("          IMAGE: {repository}:${{{{ github.sha }}}} # what your build has pushed\n")
        }
        Posted::Commit => String::new(),
    };
    let script = indented(&script(posted, proof, "", "$GITHUB_RUN_ID-$GITHUB_RUN_ATTEMPT-$GITHUB_JOB"), 10);
    let (permissions, token) = match proof {
        Proof::GithubIdToken(_) => ("    permissions:\n      id-token: write\n", ""),
        Proof::Token | Proof::GitlabIdToken(_) => {
            ("", "          SERVICE_WEBHOOK_TOKEN: ${{ secrets.SERVICE_WEBHOOK_TOKEN }}\n")
        }
    };
    format!(
        r#"jobs:
  deploy:
    runs-on: ubuntu-latest
{permissions}    steps:
      - name: Deploy
        env:
          SERVICE_WEBHOOK_URL: ${{{{ vars.SERVICE_WEBHOOK_URL }}}}
{token}{image}          COMMIT: ${{{{ github.sha }}}}
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
    format!("#!/bin/sh\n{}", script(posted, Proof::Token, &before, "$(date +%s)-$$"))
}

#[cfg(test)]
mod tests;
