//! GitLab: a deployment per deploy, whose status follows it.

use http::{HeaderName, StatusCode};
use rollhook_core::{
    app::{App, Source},
    deploy::Deploy,
};
use rollhook_management::{
    notifications::{ApiUrl, Content, EventKind, GitLabProject, Notification, ReceiverSecret},
    ports::{Delivered, DeliveryFailure},
};
use serde_json::{Value, json};

use crate::{
    answer::foreign,
    api::{Answer, Api, accepts, encoded},
    facts::NamedCommit,
    notifier::{HttpNotifier, untold},
};

/// The status of a deployment that has not ended: GitLab knows one alone.
const RUNNING: &str = "running";

/// The calls of one project.
struct GitLab<'a> {
    api: Api<'a>,
    /// The path of the project.
    path: String,
    project: &'a GitLabProject,
}

/// Tells a project of an event.
pub(crate) async fn tell(
    (notifier, url): (&HttpNotifier, &ApiUrl),
    project: &GitLabProject,
    token: &ReceiverSecret,
    notification: &Notification,
    reference: Option<&str>,
) -> Result<Delivered, DeliveryFailure> {
    let headers =
        vec![accepts("application/json"), (HeaderName::from_static("private-token"), token.expose().to_owned())];
    let path = format!("/projects/{}", encoded(project.as_str()));
    let gitlab = GitLab { api: Api { notifier, url, headers }, path, project };
    match &notification.content {
        Content::Deploy { app, deploy, event } => gitlab.tell_deploy(app, deploy, *event, reference).await,
        Content::Revoked { .. } | Content::Drift { .. } | Content::Degraded { .. } => {
            Ok(untold("a deployment says nothing of what became of it since"))
        }
        Content::Test => {
            let answer = gitlab.api.get(&gitlab.path).await?.succeeded("reading the project")?;
            Ok(Delivered { reference: None, answer: answer.status.to_string() })
        }
    }
}

impl GitLab<'_> {
    async fn tell_deploy(
        &self,
        app: &App,
        deploy: &Deploy,
        event: EventKind,
        reference: Option<&str>,
    ) -> Result<Delivered, DeliveryFailure> {
        let Some(named) = NamedCommit::of(deploy) else { return Ok(untold("the deploy names no commit")) };
        let status = status(event);
        match reference.and_then(|reference| reference.parse::<u64>().ok()) {
            Some(_) if status == RUNNING => Ok(untold("the deployment is running already")),
            Some(id) => match self.update(id, status).await? {
                Some(delivered) => Ok(delivered),
                None => self.create(app, &named, status).await,
            },
            None => self.create(app, &named, status).await,
        }
    }

    /// Ends a deployment. Returns `None` if there is none of this id any more.
    async fn update(&self, id: u64, status: &str) -> Result<Option<Delivered>, DeliveryFailure> {
        let path = format!("{}/deployments/{id}", self.path);
        let answer = self.api.put(&path, &json!({ "status": status })).await?;
        let delivered = |answer: &Answer| Some(Delivered { reference: None, answer: answer.status.to_string() });
        match answer.status {
            StatusCode::NOT_FOUND => Ok(None),
            // GitLab refuses a status that the deployment has: the answer to an earlier attempt may have been lost.
            StatusCode::BAD_REQUEST => {
                let known = self.api.get(&path).await?.succeeded("reading a deployment")?;
                if known.json()["status"] == status {
                    Ok(delivered(&known))
                } else {
                    Err(answer.failure("the status of a deployment"))
                }
            }
            _ => answer.succeeded("the status of a deployment").map(|answer| delivered(&answer)),
        }
    }

    async fn create(&self, app: &App, named: &NamedCommit, status: &str) -> Result<Delivered, DeliveryFailure> {
        let Some(commit) = self.commit(named).await? else { return Ok(untold(NamedCommit::UNKNOWN)) };
        let sha = commit["id"].as_str().unwrap_or_default();
        let branch = match &app.source {
            Source::Git(source) => Some(source.branch.as_str()),
            Source::Image => commit["last_pipeline"]["ref"].as_str(),
        };
        let body = json!({
            "environment": app.environment.as_str(),
            "sha": sha,
            // GitLab takes whatever names the commit; a branch is what people know it by.
            "ref": branch.unwrap_or(sha),
            "tag": false,
            "status": status,
        });
        let made = self.api.post(&format!("{}/deployments", self.path), &body).await?.succeeded("a deployment")?;
        let id = made.json()["id"].as_u64();
        let id = id.ok_or_else(|| foreign(format!("{} gave an answer that is none of GitLab's", made.host)))?;
        Ok(Delivered { reference: Some(id.to_string()), answer: made.status.to_string() })
    }

    /// Returns a commit: CI may have posted a part of its SHA. Returns `None` if the project does not have the commit that a
    /// label names.
    async fn commit(&self, named: &NamedCommit) -> Result<Option<Value>, DeliveryFailure> {
        let commit = named.commit.as_str();
        let answer = self.api.get(&format!("{}/repository/commits/{}", self.path, encoded(commit))).await?;
        if answer.status == StatusCode::NOT_FOUND {
            if named.is_labelled {
                return Ok(None);
            }
            let message = format!(
                "{} knows no commit {commit:?} in the project {}, or the token may not read it",
                answer.host, self.project
            );
            return Err(DeliveryFailure { message, ..answer.failure("") });
        }
        let answer = answer.succeeded("reading a commit")?;
        let found = answer.json();
        let Some(sha) = found["id"].as_str() else {
            return Err(foreign(format!("{} gave an answer that is none of GitLab's", answer.host)));
        };
        Ok(named.is(sha).then_some(found))
    }
}

const fn status(event: EventKind) -> &'static str {
    match event {
        EventKind::Accepted
        | EventKind::Building
        | EventKind::Releasing
        | EventKind::RollingOut
        | EventKind::Verifying
        | EventKind::AwaitingDecision => RUNNING,
        EventKind::Succeeded | EventKind::PutRight | EventKind::RolledBack => "success",
        EventKind::Failed => "failed",
        EventKind::Superseded
        | EventKind::Cancelled
        | EventKind::VerificationRevoked
        | EventKind::Drift
        | EventKind::Degraded => "canceled",
    }
}
