//! Logs of builds.

use std::time::Duration;

use futures_util::{FutureExt, lock, select_biased};

use crate::{
    app::AppUid,
    deploy::Revision,
    error::{Error, Result},
    ports::{BuildState, BuildTrigger, Clock, DeployId},
    request::Refusal,
    service::{Authorized, BuildPorts, Deployer, Outcome, accept::from_git, read::SharedValues},
};

/// The interval of reads of a growing log: the builder's hints do not cover it.
const POLL: Duration = Duration::from_millis(500);

/// A part of a build's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPart {
    /// The bytes of the log, in any encoding; empty only at the end.
    pub bytes: Vec<u8>,
    /// Whether nothing follows for now, or ever if the build has ended.
    pub last: bool,
}

/// The last observation of a build, with its time.
pub(crate) type Observed = lock::Mutex<Option<(Duration, Result<BuildState>)>>;

/// The observations of builds that all who follow a build's log share, for as long as one of them does.
pub(crate) type BuildStates = SharedValues<(AppUid, Revision), Observed>;

/// Returns the state of a build as it is, or was less than [`POLL`] ago.
async fn recent_state(
    observed: &Observed,
    (builds, build): (&dyn BuildTrigger, DeployId),
    clock: &dyn Clock,
) -> Result<BuildState> {
    let mut observed = observed.lock().await;
    if let Some((at, state)) = &*observed
        && clock.elapsed() < *at + POLL
    {
        return state.clone();
    }
    let state = builds.observe(build).await;
    *observed = Some((clock.elapsed(), state.clone()));
    state
}

impl Deployer {
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
        let Some(BuildPorts { builds, .. }) = &self.ports.builder else { return Err(Refusal::NoBuildLog(revision)) };
        let mut observed = None;
        loop {
            // The state is read before the log: the log of an ended build is complete by then.
            let (_, entry) = self.recent_entry(access, revision, 0).await?;
            let build = DeployId { app, revision: entry.built_as() };
            let observed = observed.get_or_insert_with(|| self.build_states.of((build.app, build.revision)));
            let state = recent_state(observed, (&**builds, build), &*self.ports.clock).await;
            let runs = match state.map_err(|error| away(revision, &error))? {
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
    pub(crate) async fn end_builds(&self, app: AppUid) {
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

    /// Makes the builder forget the builds of a registration that was deleted, with their logs.
    pub(crate) async fn forget_builds(&self, app: AppUid) {
        let Some(builder) = &self.ports.builder else { return };
        if let Err(error) = builder.builds.forget(app).await {
            tracing::warn!(app = %self.name_of(app), error = %error.chain(), "forgetting the builds of a deleted app failed");
        }
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
