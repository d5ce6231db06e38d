//! What callers do with builds: ask for one again, and read their logs.

use std::time::Duration;

use futures_util::{FutureExt, select_biased};

use super::{ATTEMPTS, Accepted, Authorized, Builder, Deployer, Operator, Outcome, submit::Decision};
use crate::{
    app::{App, AppId, AppUid, Source},
    decide::admission,
    deploy::{Commit, Revision, Trigger},
    error::Error,
    ports::{BuildState, DeployId, Page},
    request::{DeployRequest, IdempotencyKey, Refusal},
};

/// The builder may give no sign of what it has written.
const POLL: Duration = Duration::from_millis(500);

/// A part of a build's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPart {
    /// What was written, in whatever encoding; never empty but at the end.
    pub bytes: Vec<u8>,
    /// Whether nothing follows for now, or ever where the build has ended.
    pub last: bool,
}

impl Deployer {
    /// Builds and deploys a commit of a git app: this one, or without one the commit of what is current, or of the newest
    /// deploy where nothing is.
    ///
    /// # Errors
    /// The refusal; nothing was recorded, unless it says that it may have been.
    pub async fn rebuild(
        &self,
        operator: &Operator,
        id: &AppId,
        commit: Option<Commit>,
        key: Option<IdempotencyKey>,
    ) -> Outcome<Accepted> {
        let access = Authorized { cause: operator.cause(Trigger::Manual), ..self.open(operator, id).await? };
        for _ in 0..ATTEMPTS {
            let decision = self.decide_rebuild(&access, commit.clone()).await;
            if let Some(accepted) = self.admit(&access, decision, key.as_ref()).await? {
                return Ok(accepted);
            }
        }
        Err(Refusal::Busy)
    }

    async fn decide_rebuild(&self, access: &Authorized, commit: Option<Commit>) -> Outcome<Decision> {
        let app = self.git_app(access).await?;
        let commit = match commit {
            Some(commit) => commit,
            None => self.newest_commit(access).await?,
        };
        let request = DeployRequest { image: None, commit: Some(commit), key: None };
        Ok(Decision::plain(&app, admission::deploy(&app, &request, &access.cause)?.draft))
    }

    async fn newest_commit(&self, access: &Authorized) -> Outcome<Commit> {
        let newest = self.history(access, Page { before: None, succeeded: false, limit: 1 }).await?.pop();
        let commits = [self.view(access).await?.current, newest].into_iter().flatten().filter_map(|entry| entry.commit);
        commits.into_iter().find(Commit::is_sha).ok_or_else(|| {
            Refusal::InvalidField("commit", "nothing was built from a commit yet: say which one.".to_owned())
        })
    }

    /// A part of a build's log, from this byte on. With `follow` it is waited for as long as the build runs.
    ///
    /// # Errors
    /// [`Refusal::RevisionNotFound`], [`Refusal::WrongKind`], [`Refusal::NoBuildLog`] where there is no log, or none that
    /// can be read; [`Refusal::StoreUnavailable`] and [`Refusal::BuilderUnavailable`] while the store or the builder is
    /// away.
    pub async fn build_log(
        &self,
        access: &Authorized,
        revision: Revision,
        from: u64,
        follow: bool,
    ) -> Outcome<LogPart> {
        let app = self.git_app(access).await?.uid;
        let Some(Builder { builds, .. }) = &self.ports.builder else { return Err(Refusal::NoBuildLog(revision)) };
        let build = DeployId { app, revision };
        loop {
            // Asked before the log is read: what an ended build wrote is there by then.
            let entry = self.entry(access, revision).await?;
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

    /// The registration, where it is built from git.
    async fn git_app(&self, access: &Authorized) -> Outcome<App> {
        let app = self.find(&access.id).await?;
        match app.source {
            _ if app.uid != access.uid => Err(Refusal::AppNotFound(access.id.clone())),
            Source::Git(_) => Ok(app),
            Source::Image => Err(Refusal::WrongKind(format!(
                "{} is an image app: CI builds its images, and has the builds' logs.",
                access.id
            ))),
        }
    }

    /// Ends the build of a registration that is about to go; one that cannot be reached ends by its own deadline.
    pub(super) async fn end_builds(&self, app: AppUid) {
        let Some(builder) = &self.ports.builder else { return };
        let ended = async {
            if let Some(revision) = builder.builds.running(app).await? {
                builder.builds.cancel(DeployId { app, revision }).await?;
            }
            Ok::<_, Error>(())
        };
        if let Err(error) = ended.await {
            tracing::warn!(%app, error = %error.chain(), "a build of a deleted app could not be ended");
        }
    }
}

/// What a caller is told where the builder does not tell of a build.
fn away(revision: Revision, error: &Error) -> Refusal {
    match error {
        Error::Unavailable { .. } | Error::Conflict(_) | Error::Denied { .. } => {
            tracing::warn!(error = %error.chain(), "the builder does not answer");
            Refusal::BuilderUnavailable
        }
        // It will be no other tomorrow.
        Error::NotFound(_) | Error::Invalid { .. } | Error::Corrupt { .. } => {
            tracing::error!(%revision, error = %error.chain(), "what the builder has of a build cannot be read");
            Refusal::NoBuildLog(revision)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_builder_that_cannot_tell_is_no_fault_of_a_store() {
        let revision = Revision::new(3).unwrap();
        let what = || "the Job api-3".to_owned();
        for error in [
            Error::Unavailable { what: what(), cause: None },
            Error::Conflict("build"),
            Error::Denied { what: what(), cause: None },
        ] {
            assert_eq!(away(revision, &error), Refusal::BuilderUnavailable, "{error}");
        }
        for error in [
            Error::NotFound("build"),
            Error::Invalid { what: what(), cause: None },
            Error::Corrupt { what: what(), cause: None },
        ] {
            assert_eq!(away(revision, &error), Refusal::NoBuildLog(revision), "{error}");
        }
    }
}
