//! The evidence of a failing container: its state, its health check's last outputs, its last log lines.

use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use rollhook_core::{
    Result,
    deploy::Evidence,
    ports::{RolloutFailure, RolloutFailureKind},
};

use crate::{
    engine::{Engine, in_path},
    exits::in_seconds,
    rules::{
        container::{Container, Process},
        diagnostics, instances, observation,
    },
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
    // The lines of the life that begins just now say nothing of the end before it.
    let is_crash = failure.is_some_and(|failure| failure.kind == RolloutFailureKind::Crash);
    let until = instances::life_begin(container).filter(|_| is_crash && container.process() == Process::Running);
    let collected = async {
        let ended = log(engine, container, until).await;
        if ended.is_empty() && until.is_some() { log(engine, container, None).await } else { ended }
    };
    let log = tokio::time::timeout(COLLECT, collected).await.unwrap_or_default();
    Ok(Evidence {
        container: Some(container.name().to_owned()),
        state: Some(diagnostics::failed_state(container, failure)),
        events: diagnostics::checks(container),
        log,
        ..Evidence::default()
    })
}

async fn log(engine: &Engine, container: &Container, until: Option<Timestamp>) -> Vec<String> {
    let until = until.map(|until| format!("&until={}", in_seconds(until))).unwrap_or_default();
    let path = format!("/containers/{}/logs?stdout=true&stderr=true&tail=50{until}", in_path(container.id()));
    match engine.bytes(Method::GET, &path, None).await {
        Ok(bytes) => diagnostics::log_lines(&bytes, container.object["Config"]["Tty"] == true),
        Err(failure) => {
            let error = rollhook_core::error::chain(&failure);
            tracing::debug!(container = container.name(), error, "reading a log as evidence failed");
            Vec::new()
        }
    }
}
