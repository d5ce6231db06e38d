//! The variables of a deploy's configuration, which its calls to the rollout driver need.

use super::{Driver, call_error};
use crate::{
    deploy::Reason,
    engine::CallError,
    error::{Error, Result},
    ports::{Applied, RolloutSpec},
};

/// The message of a deploy whose configuration is no longer stored.
const MISSING: &str = "The values of its configuration are no longer stored: set them anew, and deploy again.";

impl Driver<'_> {
    /// Returns the specification with its variables, which are read once for a deploy.
    ///
    /// # Errors
    /// `NotFound` if they are no longer stored; those of the store.
    pub(super) async fn configured(&mut self, spec: RolloutSpec) -> Result<RolloutSpec> {
        let Some(wanted) = spec.configuration.as_ref().map(|configuration| configuration.id) else { return Ok(spec) };
        if self.configuration.as_ref().is_none_or(|known| known.id != wanted) {
            let filled = self.deployer.filled(self.app, spec.configuration.as_ref()).await;
            self.calls.called(&spec, "reading the configuration of", &filled);
            self.configuration = filled?;
        }
        Ok(spec.with(|spec| spec.configuration.clone_from(&self.configuration)))
    }
}

/// Returns the answer to an apply that was not made as its variables could not be read.
pub(super) fn unconfigured(error: Error) -> Result<Applied, CallError> {
    if matches!(error, Error::NotFound(_)) {
        let reason = Reason::new(Reason::CONFIGURATION_MISSING);
        return Ok(Applied::Refused { reason, message: MISSING.to_owned() });
    }
    Err(call_error(error))
}
