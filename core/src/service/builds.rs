//! Rebuilding a commit, and reading the logs of builds.

use std::time::Duration;

use futures_util::{FutureExt, select_biased};

use super::{
    Accepted, Authorized, Builder, Deployer, Outcome, Principal,
    polling::sentence,
    submit::{Declined, NO_BUILDER},
};
use crate::{
    access::Action,
    app::{App, AppId, AppUid, Source},
    deploy::{Commit, Revision, Trigger},
    error::{Error, Result},
    ledger::{Admission, admission},
    ports::{BuildState, DeployId},
    request::{DeployRequest, Field, IdempotencyKey, Refusal},
    source::GitSource,
};

/// The interval of reads of a growing log: the builder's hints do not cover it.
const POLL: Duration = Duration::from_millis(500);
/// The time in which the source has to name its branch's head: a person waits for it.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// A part of a build's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPart {
    /// The bytes of the log, in any encoding; empty only at the end.
    pub bytes: Vec<u8>,
    /// Whether nothing follows for now, or ever if the build has ended.
    pub last: bool,
}

impl Deployer {
    /// Builds and deploys a commit of a git app: the given one, or else the head of its branch. A repeated call is
    /// answered with the first one's deploy, wherever the branch is by now.
    ///
    /// # Errors
    /// The refusal; nothing was recorded, unless it says that it may have been.
    pub async fn rebuild(
        &self,
        principal: &Principal,
        id: &AppId,
        commit: Option<Commit>,
        key: Option<IdempotencyKey>,
    ) -> Outcome<Accepted> {
        let access = Authorized {
            cause: principal.cause(Trigger::Manual),
            ..self.open_for(Action::Rebuild, principal, id).await?
        };
        if let Some(key) = &key
            && let Some(accepted) = self.repeated(&access, key).await?
        {
            return Ok(accepted);
        }
        let (commit, source) = match commit {
            Some(commit) => (commit, None),
            None => {
                let app = self.state(&access).await?.app;
                let source = from_git(&app)?;
                let builder = self.ports.builder.as_ref().ok_or_else(|| Refusal::WrongKind(NO_BUILDER.to_owned()))?;
                (self.branch_commit(builder, source).await?, Some(source.clone()))
            }
        };
        let (admission_id, cause) = (self.admission_id(), access.cause.clone());
        let accepted = self.admit(&access, admission_id, key, move |state| {
            let present = from_git(&state.app)?;
            // The head of a branch that the app has left meanwhile is not its head.
            if source.as_ref().is_some_and(|source| source != present) {
                return Err(Declined::Outdated);
            }
            let request = DeployRequest { image: None, commit: Some(commit.clone()), key: None };
            let decided = admission::deploy(&state.app, &request, &cause)?;
            Ok((Admission::plain(admission_id, decided.deploy), ()))
        });
        Ok(accepted.await?.ok_or(Refusal::Busy)?.0)
    }

    /// Returns the head of a source's branch.
    async fn branch_commit(&self, builder: &Builder, source: &GitSource) -> Outcome<Commit> {
        let unread = match self.head_within(builder, source, READ_TIMEOUT).await {
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
    pub(super) async fn head_within(
        &self,
        builder: &Builder,
        source: &GitSource,
        limit: Duration,
    ) -> Option<Result<Option<Commit>>> {
        select_biased! {
            head = builder.branches.head(source).fuse() => Some(head),
            () = self.ports.clock.sleep(limit).fuse() => None,
        }
    }

    /// Returns a part of a build's log from this byte on. With `follow` it waits for one as long as the build runs.
    ///
    /// # Errors
    /// [`Refusal::RevisionNotFound`], [`Refusal::WrongKind`], [`Refusal::NoBuildLog`] if there is no readable log;
    /// [`Refusal::StoreUnavailable`] and [`Refusal::BuilderUnavailable`] while the store or the builder is away.
    pub async fn build_log(
        &self,
        access: &Authorized,
        revision: Revision,
        from: u64,
        follow: bool,
    ) -> Outcome<LogPart> {
        from_git(&self.state(access).await?.app)?;
        let app = access.uid;
        let Some(Builder { builds, .. }) = &self.ports.builder else { return Err(Refusal::NoBuildLog(revision)) };
        loop {
            // The state is read before the log: the log of an ended build is complete by then.
            let entry = self.entry(access, revision).await?;
            let build = DeployId { app, revision: entry.built_as() };
            let runs = match builds.observe(build).await.map_err(|error| away(revision, &error))? {
                BuildState::Waiting | BuildState::Running => true,
                BuildState::Unknown => entry.is_to_be_built(),
                BuildState::Built { .. } | BuildState::Failed(_) => false,
            };
            let log = builds.log(build, from).await.map_err(|error| away(revision, &error))?;
            match log {
                None if !runs => return Err(Refusal::NoBuildLog(revision)),
                Some(bytes) if !bytes.is_empty() => return Ok(LogPart { bytes, last: false }),
                Some(_) | None if !runs || !follow => return Ok(LogPart { bytes: Vec::new(), last: true }),
                Some(_) | None => {}
            }
            select_biased! {
                () = builds.changed(build).fuse() => {}
                () = self.ports.clock.sleep(POLL).fuse() => {}
            }
        }
    }

    /// Cancels the build of a registration that is being deleted; one that cannot be reached ends by its own deadline.
    pub(super) async fn end_builds(&self, app: AppUid) {
        let Some(builder) = &self.ports.builder else { return };
        let ended = async {
            if let Some(revision) = builder.builds.running(app).await? {
                builder.builds.cancel(DeployId { app, revision }).await?;
            }
            Ok::<_, Error>(())
        };
        if let Err(error) = ended.await {
            tracing::warn!(app = %self.name_of(app), error = %error.chain(), "cancelling a build of a deleted app failed");
        }
    }
}

/// Returns the source of a git app.
fn from_git(app: &App) -> Outcome<&GitSource> {
    match &app.source {
        Source::Git(source) => Ok(source),
        Source::Image => Err(Refusal::WrongKind(format!(
            "{} is an image app: CI builds its images, and has the builds' logs.",
            app.id
        ))),
    }
}

/// Returns the refusal for a builder's error.
fn away(revision: Revision, error: &Error) -> Refusal {
    if error.is_transient() {
        tracing::warn!(error = %error.chain(), "calling the builder failed");
        return Refusal::BuilderUnavailable;
    }
    // A retry would get the same answer.
    tracing::error!(%revision, error = %error.chain(), "reading a build failed");
    Refusal::NoBuildLog(revision)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Entity;

    #[test]
    fn builder_errors_are_not_reported_as_store_errors() {
        let revision = Revision::new(3).unwrap();
        let what = || "the Job api-3".to_owned();
        for error in [
            Error::Unavailable { what: what(), cause: None },
            Error::Conflict(Entity::Build),
            Error::Denied { what: what(), cause: None },
        ] {
            assert_eq!(away(revision, &error), Refusal::BuilderUnavailable, "{error}");
        }
        for error in [
            Error::NotFound(Entity::Build),
            Error::Invalid { what: what(), cause: None },
            Error::Corrupt { what: what(), cause: None },
        ] {
            assert_eq!(away(revision, &error), Refusal::NoBuildLog(revision), "{error}");
        }
    }
}
