//! Rebuilding a commit.

use std::time::Duration;

use crate::{
    action::Action,
    app::{App, AppId, Source},
    deploy::{Commit, Trigger},
    error::{Error, Result},
    ledger::{Admission, admission},
    request::{DeployRequest, Field, IdempotencyKey, Refusal},
    service::{
        Accepted, Authorized, BuildPorts, Deployer, Outcome, accept::submit::Declined, drive::sentence,
        in_time::in_time,
    },
    source::GitSource,
};

/// The time in which the source has to name its branch's head: a person waits for it.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

impl Deployer {
    /// Builds and deploys a commit of a git app: the given one, or else the head of its branch. A repeated call is
    /// answered with the first one's deploy, wherever the branch is by now.
    ///
    /// # Errors
    /// The refusal; nothing was recorded, unless it says that it may have been.
    pub async fn rebuild(
        &self,
        access: &Authorized,
        commit: Option<Commit>,
        key: Option<IdempotencyKey>,
    ) -> Outcome<Accepted> {
        access.check(Action::Rebuild)?;
        if let Some(key) = &key
            && let Some(accepted) = self.repeated(access, key).await?
        {
            return Ok(accepted);
        }
        let (commit, source) = match commit {
            Some(commit) => (commit, None),
            None => {
                let app = self.state(access).await?.app;
                let source = from_git(&app)?;
                let builder = self.ports.builder.as_ref().ok_or(Refusal::NoBuilder)?;
                (self.branch_commit(builder, &app.id, source).await?, Some(source.clone()))
            }
        };
        let (admission_id, cause) = (self.admission_id(), access.cause_of(Trigger::Manual));
        let accepted = self.admit(access, admission_id, key, move |state| {
            let present = from_git(&state.app)?;
            // The head of a branch that the app has left meanwhile is not its head.
            if source.as_ref().is_some_and(|source| source != present) {
                return Err(Declined::Outdated);
            }
            let request = DeployRequest::commit(commit.clone());
            let decided = admission::deploy(&state.app, &request, &cause)?;
            Ok((Admission::plain(admission_id, decided.deploy), ()))
        });
        Ok(accepted.await?.ok_or(Refusal::Busy)?.0)
    }

    /// Returns the head of a source's branch.
    async fn branch_commit(&self, builder: &BuildPorts, app: &AppId, source: &GitSource) -> Outcome<Commit> {
        let unread = match self.head_within(builder, (app, source), READ_TIMEOUT).await {
            Some(Ok(Some(head))) => return Ok(head),
            Some(Ok(None)) => {
                let missing =
                    format!("the source has no branch {}; change the branch, or name a commit.", source.branch);
                return Err(Refusal::InvalidField(Field::Commit, missing));
            }
            Some(Err(error)) => error,
            None => Error::Unavailable { what: format!("{} did not answer in time", source.url), cause: None },
        };
        tracing::warn!(source = %source.url, error = %unread.chain(), "reading a branch failed");
        match &unread {
            Error::Denied { .. } | Error::NotFound(_) | Error::Invalid { .. } | Error::Corrupt { .. } => {
                let why = format!("the head of branch {} cannot be read: {}.", source.branch, sentence(&unread));
                Err(Refusal::InvalidField(Field::Commit, why))
            }
            Error::Unavailable { .. } | Error::Conflict(_) => {
                Err(Refusal::SourceUnavailable { branch: source.branch.clone(), why: sentence(&unread) })
            }
        }
    }

    /// Returns the answer of a source that is asked for its branch's head, or `None` if it does not answer in time.
    pub(crate) async fn head_within(
        &self,
        builder: &BuildPorts,
        (app, source): (&AppId, &GitSource),
        limit: Duration,
    ) -> Option<Result<Option<Commit>>> {
        in_time(&*self.ports.clock, limit, builder.branches.head(app, source)).await
    }
}

/// Returns the source of a git app.
pub(crate) fn from_git(app: &App) -> Outcome<&GitSource> {
    match &app.source {
        Source::Git(source) => Ok(source),
        Source::Image => Err(Refusal::WrongKind(format!(
            "{} is an image app: CI builds its images, and has the builds' logs.",
            app.id
        ))),
    }
}
