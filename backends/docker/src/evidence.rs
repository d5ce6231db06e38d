//! The evidence of a failing container: its state, its health check's last outputs, its last log lines.

use std::time::Duration;

use http::Method;
use rollhook_core::{Result, deploy::Evidence, ports::RolloutFailure};

use crate::{
    engine::{Engine, in_path},
    rules::{container::Container, diagnostics, observation},
    settings::Rollout,
    target,
};

/// The time to read a log, which is left out if that takes longer.
const COLLECT: Duration = Duration::from_secs(5);

/// Returns the evidence of the rollout's container; without one, of what the failure says.
pub(crate) async fn evidence(engine: &Engine, rollout: &Rollout, failure: Option<&RolloutFailure>) -> Result<Evidence> {
    let seen = target::read(engine, &rollout.workload).await?;
    let Some(container) = observation::own(&seen, rollout) else {
        return Ok(Evidence { state: failure.map(|failure| failure.message.clone()), ..Evidence::default() });
    };
    let log = tokio::time::timeout(COLLECT, log(engine, container)).await.unwrap_or_default();
    let state = Some(diagnostics::state(container));
    Ok(Evidence { state, events: diagnostics::checks(container), log, ..Evidence::default() })
}

async fn log(engine: &Engine, container: &Container) -> Vec<String> {
    let path = format!("/containers/{}/logs?stdout=true&stderr=true&tail=50", in_path(container.id()));
    match engine.bytes(Method::GET, &path, None).await {
        Ok(bytes) => diagnostics::log_lines(&bytes, container.object["Config"]["Tty"] == true),
        Err(failure) => {
            let error = rollhook_core::error::chain(&failure);
            tracing::debug!(container = container.name(), error, "reading a log as evidence failed");
            Vec::new()
        }
    }
}
