//! Log lines of an app's driver: a failure that lasts is one line, and so is a deploy that failed.

use crate::{
    deploy::{Deploy, Revision, State},
    error::{Error, Result},
    ports::RolloutSpec,
};

/// The failure of the last call to the cluster, which was logged.
#[derive(Default)]
pub(crate) struct CallLog {
    failure: Option<Failure>,
}

#[derive(PartialEq, Eq)]
enum Failure {
    /// The permission that is missing.
    Denied(String),
    /// The call, and its error.
    Failed(&'static str, String),
}

impl CallLog {
    /// Logs a failed call to the cluster, once until a call succeeds or fails otherwise.
    pub(crate) fn called<T>(&mut self, spec: &RolloutSpec, what: &'static str, result: &Result<T>) {
        let (app, revision) = (&spec.app, spec.id.revision);
        let failure = match result {
            Ok(_) => None,
            Err(Error::Denied { what, .. }) => Some(Failure::Denied(what.clone())),
            Err(error) => Some(Failure::Failed(what, error.chain())),
        };
        if failure == self.failure {
            return;
        }
        match (&failure, &self.failure) {
            (Some(Failure::Denied(denied)), _) => {
                tracing::warn!(%app, %revision, denied, "{what} a rollout waits for a permission");
            }
            (Some(Failure::Failed(_, error)), _) => tracing::warn!(%app, %revision, error, "{what} a rollout failed"),
            (None, Some(Failure::Denied(denied))) => {
                tracing::info!(%app, %revision, denied, "the permission is granted again");
            }
            (None, Some(Failure::Failed(..))) => tracing::info!(%app, %revision, "{what} a rollout works again"),
            (None, None) => {}
        }
        self.failure = failure;
    }
}

/// Logs the status of a deploy that was recorded; a failed one as the one warning that it causes.
pub(crate) fn recorded(app: &str, deploy: &Deploy) {
    let revision = deploy.revision;
    if let State::Failed { reason, message, .. } = &deploy.state {
        // `message` is the line's own field.
        tracing::warn!(%app, %revision, %reason, detail = message, "deploying failed");
    } else {
        tracing::info!(%app, %revision, status = %deploy.status(), "recorded a deploy's status");
    }
}

/// Logs a built image.
pub(crate) fn built(app: &str, revision: Revision, anew: Option<Revision>) {
    match anew {
        Some(anew) => tracing::info!(%app, %revision, %anew, "entered a built image anew, behind a restore"),
        None => tracing::info!(%app, %revision, "recorded a built image"),
    }
}
