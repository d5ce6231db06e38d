//! Log lines of an app's driver: a failure that lasts is one line, and so is a deploy that failed.

use crate::{
    app::AppId,
    deploy::{Deploy, Revision, State},
    error::{Error, Result},
    ports::{ReleaseRun, RolloutSpec, RunKind},
    run::Run,
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
        self.note((&spec.app, RunKind::Release(spec.id.revision), "a rollout"), what, result);
    }

    /// Logs a failed call about a command, in the same way.
    pub(crate) fn released<T>(&mut self, run: &ReleaseRun, what: &'static str, result: &Result<T>) {
        let of = if run.id.kind.is_by_hand() { "a command by hand" } else { "a release command" };
        self.note((&run.app, run.id.kind, of), what, result);
    }

    fn note<T>(&mut self, (app, revision, of): (&AppId, RunKind, &str), what: &'static str, result: &Result<T>) {
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
                tracing::warn!(%app, %revision, denied, "{what} {of} waits for a permission");
            }
            (Some(Failure::Failed(_, error)), _) => tracing::warn!(%app, %revision, error, "{what} {of} failed"),
            (None, Some(Failure::Denied(denied))) => {
                tracing::info!(%app, %revision, denied, "the permission is granted again");
            }
            (None, Some(Failure::Failed(..))) => tracing::info!(%app, %revision, "{what} {of} works again"),
            (None, None) => {}
        }
        self.failure = failure;
    }
}

/// Logs that a command is started.
pub(crate) fn starting(run: &ReleaseRun) {
    match run.id.kind {
        RunKind::Release(revision) => tracing::info!(app = %run.app, %revision, "starting a release command"),
        RunKind::ByHand(number) => tracing::info!(app = %run.app, run = %number, "starting a command by hand"),
        RunKind::Check(check) => {
            tracing::debug!(app = %run.app, revision = %check.revision(), "starting a check's command")
        }
    }
}

/// Logs that a command was told to end.
pub(crate) fn ended(run: &ReleaseRun) {
    match run.id.kind {
        RunKind::Release(revision) => tracing::info!(app = %run.app, %revision, "ended a release command"),
        RunKind::ByHand(number) => tracing::info!(app = %run.app, run = %number, "ended a command by hand"),
        RunKind::Check(check) => {
            tracing::debug!(app = %run.app, revision = %check.revision(), "ended a check's command")
        }
    }
}

/// Logs the state of a run by hand that was recorded.
pub(crate) fn run_recorded(app: &str, run: &Run) {
    let (status, exit_code) = (run.status(), run.exit_code());
    tracing::info!(%app, run = %run.number, %status, exit_code, "recorded the status of a command by hand");
}

/// Logs the status of a deploy that was recorded; a failed one as the one warning that it causes.
pub(crate) fn recorded(app: &str, deploy: &Deploy) {
    let revision = deploy.revision;
    if let State::Failed { reason, message, .. } = &deploy.state {
        // `message` is the line's own field.
        tracing::warn!(%app, %revision, %reason, detail = message, "deploying failed");
    } else if deploy.verification.as_ref().is_some_and(|checks| !deploy.is_terminal() && checks.is_measured()) {
        tracing::debug!(%app, %revision, "recorded measurements of checks");
    } else {
        tracing::info!(%app, %revision, status = %deploy.status(), "recorded a deploy's status");
    }
}

/// Logs that a deploy waits for a person's decision.
pub(crate) fn asking(app: &str, revision: Revision) {
    tracing::info!(%app, %revision, "waiting for a person's decision");
}

/// Logs a built image.
pub(crate) fn built(app: &str, revision: Revision, anew: Option<Revision>) {
    match anew {
        Some(anew) => tracing::info!(%app, %revision, %anew, "entered a built image anew, behind a restore"),
        None => tracing::info!(%app, %revision, "recorded a built image"),
    }
}
