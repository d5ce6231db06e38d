//! The instances that a check asks: named by the platform at each measurement, of the very deploy that is measured.

use std::sync::Arc;

use crate::{
    check::Check,
    error::{Error, Result},
    ports::{Clock, MeasureSpec, RolloutDriver, RolloutSpec, Verifier},
};

/// Returns the specification of a measurement with the instances that its check asks, if it asks them, and with the time that
/// naming them leaves.
///
/// # Errors
/// Within, why they cannot be named, as a sentence; that of a platform that is away.
pub(super) async fn with_instances(
    (verifier, rollouts, clock): (&dyn Verifier, &dyn RolloutDriver, &dyn Clock),
    spec: &MeasureSpec,
) -> Result<std::result::Result<MeasureSpec, String>> {
    let Some(port) = verifier.instance_port(&spec.check.kind, &spec.check.settings) else {
        return Ok(Ok(spec.clone()));
    };
    let Some(addresses) = rollouts.instance_addresses() else { return Ok(Ok(spec.clone())) };
    let began = clock.elapsed();
    let instances = match addresses.addresses(&of_deploy(spec), port).await {
        Ok(instances) => instances,
        Err(error @ (Error::Unavailable { .. } | Error::Conflict(_))) => return Err(error),
        Err(error) => {
            tracing::warn!(
                app = %spec.app, revision = %spec.deploy.revision, check = %spec.check.name, error = %error.chain(),
                "naming the addresses of instances failed"
            );
            return Ok(Err(format!("Nothing was measured: the addresses of the instances cannot be named: {error}.")));
        }
    };
    let timeout = spec.check.timeout.saturating_sub(clock.elapsed().saturating_sub(began));
    let check = Check { timeout, ..spec.check.clone() };
    Ok(Ok(MeasureSpec { instances: Some(instances), check, ..spec.clone() }))
}

/// Returns the deploy that is measured, as its platform knows it.
fn of_deploy(spec: &MeasureSpec) -> RolloutSpec {
    let target = Arc::unwrap_or_clone(Arc::clone(&spec.target));
    let of_deploy = RolloutSpec::new(spec.app.clone(), spec.deploy, target, spec.image.clone());
    of_deploy.with(|of_deploy| of_deploy.adopted = spec.adopted)
}
