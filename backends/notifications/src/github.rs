//! GitHub: a deployment per deploy with a status per event, and a status of its commit.
//!
//! A deployment is found again by its payload: an attempt whose answer was lost makes no second one.

use http::{
    HeaderName, Method, StatusCode,
    header::{ACCEPT, AUTHORIZATION},
};
use rollhook_core::{app::App, deploy::Deploy, text::json_values};
use rollhook_management::{
    notifications::{ApiUrl, Content, EventKind, GitHubRepository, Notification, ReceiverSecret},
    ports::{Delivered, DeliveryFailure},
};
use serde_json::{Value, json};

use crate::{
    answer::foreign,
    api::{Answer, Api, accepts, encoded},
    facts::NamedCommit,
    notifier::{HttpNotifier, untold},
    phrases,
};

/// The longest description of a status, in characters.
const DESCRIPTION_MAX: usize = 140;
/// The longest task of a deployment, in characters: GitHub documents no limit, and refuses long texts.
const TASK_MAX: usize = 100;
/// The number of newest deployments of an app, commit and environment that are searched for an earlier attempt's. Some
/// kilobytes each, they fit into an answer.
const SEARCHED: usize = 30;
/// The most JSON values of a payload that is read: ours has fewer.
const PAYLOAD_VALUES_MAX: usize = 20;
/// The media type that has a commit answered as its SHA alone.
const SHA: &str = "application/vnd.github.sha";

/// A deployment at GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Deployment {
    id: u64,
    /// The SHA of its commit, in full.
    sha: String,
}

impl Deployment {
    fn of_reference(reference: &str) -> Option<Self> {
        let (id, sha) = reference.split_once(' ')?;
        Some(Self { id: id.parse().ok()?, sha: sha.to_owned() }).filter(|known| is_sha(&known.sha))
    }

    fn reference(&self) -> String {
        format!("{} {}", self.id, self.sha)
    }
}

fn is_sha(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// An event of a deploy.
#[derive(Clone, Copy)]
struct Told<'a> {
    notification: &'a Notification,
    app: &'a App,
    deploy: &'a Deploy,
    event: EventKind,
}

/// The calls of one repository.
struct GitHub<'a> {
    api: Api<'a>,
    /// The path of the repository.
    path: String,
    repository: &'a GitHubRepository,
}

/// Tells a repository of an event.
pub(crate) async fn tell(
    (notifier, url): (&HttpNotifier, &ApiUrl),
    repository: &GitHubRepository,
    token: &ReceiverSecret,
    notification: &Notification,
    reference: Option<&str>,
) -> Result<Delivered, DeliveryFailure> {
    let headers = vec![
        accepts("application/vnd.github+json"),
        (AUTHORIZATION, format!("Bearer {}", token.expose())),
        (HeaderName::from_static("x-github-api-version"), "2022-11-28".to_owned()),
    ];
    let github = GitHub { api: Api { notifier, url, headers }, path: format!("/repos/{repository}"), repository };
    match &notification.content {
        Content::Deploy { app, deploy, event } => {
            github.tell_deploy(Told { notification, app, deploy, event: *event }, reference).await
        }
        Content::Revoked { app, deploy, .. } => {
            let event = EventKind::VerificationRevoked;
            github.tell_deploy(Told { notification, app, deploy, event }, reference).await
        }
        Content::Drift { .. } | Content::Degraded { .. } => {
            Ok(untold("a deployment says nothing of what became of it since"))
        }
        Content::Test => {
            let answer = github.api.get(&github.path).await?.succeeded("reading the repository")?;
            Ok(Delivered { reference: None, answer: answer.status.to_string() })
        }
    }
}

impl GitHub<'_> {
    async fn tell_deploy(&self, told: Told<'_>, reference: Option<&str>) -> Result<Delivered, DeliveryFailure> {
        let Some(named) = NamedCommit::of(told.deploy) else { return Ok(untold("the deploy names no commit")) };
        let known = reference.and_then(Deployment::of_reference);
        let is_known = known.is_some();
        let found = match known {
            Some(known) => Some(known),
            None => self.deployment(told, &named).await?,
        };
        let Some(mut deployment) = found else { return Ok(untold(NamedCommit::UNKNOWN)) };
        let mut answer = self.add_status(told, &deployment).await?;
        if answer.status == StatusCode::NOT_FOUND && is_known {
            // The deployment was deleted at GitHub.
            let Some(made) = self.deployment(told, &named).await? else { return Ok(untold(NamedCommit::UNKNOWN)) };
            deployment = made;
            answer = self.add_status(told, &deployment).await?;
        }
        let answer = answer.succeeded("the status of a deployment")?;
        let path = format!("{}/statuses/{}", self.path, deployment.sha);
        self.api.post(&path, &commit_status(told)).await?.succeeded("the status of a commit")?;
        Ok(Delivered { reference: Some(deployment.reference()), answer: answer.status.to_string() })
    }

    async fn add_status(&self, told: Told<'_>, deployment: &Deployment) -> Result<Answer, DeliveryFailure> {
        let path = format!("{}/deployments/{}/statuses", self.path, deployment.id);
        self.api.post(&path, &deployment_status(told)).await
    }

    /// Returns the deployment of a deploy: the one that an earlier attempt has made, or a new one. Returns `None` as
    /// [`Self::sha`] does.
    async fn deployment(&self, told: Told<'_>, named: &NamedCommit) -> Result<Option<Deployment>, DeliveryFailure> {
        let Some(sha) = self.sha(named).await? else { return Ok(None) };
        let path = format!("{}/deployments?{}", self.path, search(told.app, &sha));
        let listed = self.api.get(&path).await?.succeeded("the list of deployments")?.json();
        let ours = payload(told);
        let found = listed.as_array().into_iter().flatten().find(|known| is_payload(&known["payload"], &ours));
        if let Some(id) = found.and_then(|known| known["id"].as_u64()) {
            return Ok(Some(Deployment { id, sha }));
        }
        let made = self.api.post(&format!("{}/deployments", self.path), &deployment_body(told, &sha)).await?;
        let made = made.succeeded("a deployment")?;
        let id = made.json()["id"].as_u64();
        let id = id.ok_or_else(|| foreign(format!("{} gave an answer that is none of GitHub's", made.host)))?;
        Ok(Some(Deployment { id, sha }))
    }

    /// Returns the SHA of a commit in full: CI may have posted a part of it, and statuses take whole ones. Returns `None`
    /// if the repository does not have the commit that a label names.
    async fn sha(&self, named: &NamedCommit) -> Result<Option<String>, DeliveryFailure> {
        let commit = named.commit.as_str();
        let path = format!("{}/commits/{}", self.path, encoded(commit));
        let answer = self.api.call(Method::GET, &path, None, &[(ACCEPT, SHA)]).await?;
        if matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::UNPROCESSABLE_ENTITY) {
            if named.is_labelled {
                return Ok(None);
            }
            let message = format!(
                "{} knows no commit {commit:?} in {}, or the token may not read it",
                answer.host, self.repository
            );
            return Err(DeliveryFailure { message, ..answer.failure("") });
        }
        let answer = answer.succeeded("reading a commit")?;
        let sha = String::from_utf8_lossy(&answer.body).trim().to_owned();
        if is_sha(&sha) {
            Ok(named.is(&sha).then_some(sha))
        } else {
            Err(foreign(format!("{} gave an answer that is none of GitHub's", answer.host)))
        }
    }
}

/// Returns the query for an app's deployments of a commit: the other apps of a large repository are left out.
fn search(app: &App, sha: &str) -> String {
    let (task, environment) = (encoded(&task(app)), encoded(app.environment.as_str()));
    format!("sha={sha}&task={task}&environment={environment}&per_page={SEARCHED}")
}

/// Returns the task of an app's deployments. Of apps with long names, more than one may have the same.
fn task(app: &App) -> String {
    format!("deploy:{}", app.id).chars().take(TASK_MAX).collect()
}

/// Returns the payload, which identifies the deployment of a deploy.
fn payload(told: Told<'_>) -> Value {
    json!({ "rollhook": { "app": told.app.id.to_string(), "uid": told.app.uid.to_string(), "revision": told.deploy.revision } })
}

/// Returns whether a deployment has this payload, which GitHub may answer as a text.
fn is_payload(known: &Value, ours: &Value) -> bool {
    let is_short = |text: &&str| json_values(text.as_bytes()) <= PAYLOAD_VALUES_MAX;
    let read = known.as_str().filter(is_short).and_then(|text| serde_json::from_str::<Value>(text).ok());
    read.as_ref().unwrap_or(known) == ours
}

fn deployment_body(told: Told<'_>, sha: &str) -> Value {
    let Told { app, deploy, .. } = told;
    // Without the image: a public repository is told of no internal registry.
    let description: String = format!("{} #{}", app.id, deploy.revision).chars().take(DESCRIPTION_MAX).collect();
    json!({
        "ref": sha,
        "task": task(app),
        "environment": app.environment.as_str(),
        "description": description,
        "payload": payload(told),
        // The deploy is accepted already: GitHub merges nothing into it, and waits for no checks.
        "auto_merge": false,
        "required_contexts": [],
    })
}

fn deployment_status(told: Told<'_>) -> Value {
    let state = match told.event {
        EventKind::Accepted => "queued",
        EventKind::Building
        | EventKind::Releasing
        | EventKind::RollingOut
        | EventKind::Verifying
        | EventKind::AwaitingDecision => "in_progress",
        EventKind::Succeeded | EventKind::PutRight | EventKind::RolledBack => "success",
        EventKind::Failed | EventKind::VerificationRevoked => "failure",
        EventKind::Superseded | EventKind::Cancelled | EventKind::Drift | EventKind::Degraded => "inactive",
    };
    let mut status = status(told, state, "log_url", None);
    if let Some(url) = &told.app.policy.url {
        status["environment_url"] = json!(url);
    }
    // Apps of one repository share an environment: a success of one leaves the others' deployments active.
    status["auto_inactive"] = json!(false);
    status
}

fn commit_status(told: Told<'_>) -> Value {
    let state = match told.event {
        EventKind::Accepted
        | EventKind::Building
        | EventKind::Releasing
        | EventKind::RollingOut
        | EventKind::Verifying
        | EventKind::AwaitingDecision => "pending",
        EventKind::Succeeded | EventKind::PutRight | EventKind::RolledBack => "success",
        EventKind::Failed | EventKind::VerificationRevoked => "failure",
        EventKind::Superseded | EventKind::Cancelled | EventKind::Drift | EventKind::Degraded => "error",
    };
    status(told, state, "target_url", Some(format!("rollhook/{}", told.app.id)))
}

fn status(told: Told<'_>, state: &str, url: &str, context: Option<String>) -> Value {
    let Told { notification, app, deploy, event } = told;
    let mut status =
        json!({ "state": state, "description": phrases::description(app, deploy, event, DESCRIPTION_MAX) });
    let members = [(url, phrases::page(notification, app, Some(deploy))), ("context", context)];
    for (name, value) in members.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        status[name] = json!(value);
    }
    status
}

#[cfg(test)]
mod tests;
