//! The variables of a deploy's configuration, which some calls to the rollout driver need.
//!
//! They are read for a call and dropped after it, and few calls have them at once: each app may have a megabyte of them.

use super::{Driver, call_error};
use crate::{
    app::{AppId, AppUid},
    configuration::Configuration,
    deploy::Reason,
    engine::CallError,
    error::{Error, Result},
    ports::{Applied, ReleaseFailure, ReleaseState, RolloutSpec},
    service::Deployer,
    slots::Slot,
};

/// The message of a deploy whose configuration is no longer stored.
const MISSING: &str = "The values of its configuration are no longer stored: set them anew, and deploy again.";

/// The message where the stored configuration does not open.
const UNREADABLE: &str = "The values of its configuration cannot be read: the store does not open them, as without the key that \
                          sealed them. Give the server that key, and deploy again, or set the values anew.";

impl Driver<'_> {
    /// Returns the specification with its variables, and the turn to hold until the call has ended; `None` without any.
    ///
    /// # Errors
    /// `NotFound` if they are no longer stored; those of the store.
    pub(super) async fn configured(&mut self, spec: RolloutSpec) -> Result<(RolloutSpec, Option<Slot>)> {
        let filled = Self::variables(self.deployer, (&spec.app, self.app), spec.configuration.as_ref()).await;
        if filled.is_err() {
            // Read again, the call that needed it succeeds or fails: that is the line.
            self.calls.called(&spec, "reading the configuration of", &filled);
        }
        let (configuration, turn) = filled?;
        Ok((spec.with(|spec| spec.configuration = configuration), turn))
    }

    /// Returns a configuration with its variables, and the turn to hold as long as they are.
    ///
    /// # Errors
    /// As [`Self::configured`].
    pub(super) async fn variables(
        deployer: &Deployer,
        (name, app): (&AppId, AppUid),
        of: Option<&Configuration>,
    ) -> Result<(Option<Configuration>, Option<Slot>)> {
        if of.is_none() {
            return Ok((None, None));
        }
        let turn = deployer.variables_held.acquire(&name.namespace).await;
        Ok((deployer.filled(app, of).await?, Some(turn)))
    }
}

/// Returns the answer to an apply that was not made as its variables could not be read.
pub(super) fn unconfigured(error: Error) -> Result<Applied, CallError> {
    match missing(&error) {
        Some(message) => {
            Ok(Applied::Refused { reason: Reason::new(Reason::CONFIGURATION_MISSING), message: message.to_owned() })
        }
        None => Err(call_error(error)),
    }
}

/// Returns the state of a command that cannot be made ready as its variables could not be read.
pub(super) fn without_variables(error: Error) -> Result<ReleaseState> {
    match missing(&error) {
        Some(message) => Ok(ReleaseState::Failed(ReleaseFailure {
            began: false,
            reason: Reason::new(Reason::CONFIGURATION_MISSING),
            message: message.to_owned(),
            exit_code: None,
            log: Vec::new(),
        })),
        None => Err(error),
    }
}

/// Returns a sentence if the variables are lost for good; `None` if they may be read later.
fn missing(error: &Error) -> Option<&'static str> {
    match error {
        Error::NotFound(_) => Some(MISSING),
        Error::Denied { .. } | Error::Corrupt { .. } => Some(UNREADABLE),
        Error::Conflict(_) | Error::Invalid { .. } | Error::Unavailable { .. } => None,
    }
}
