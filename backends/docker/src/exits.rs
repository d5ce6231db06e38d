//! Exit codes of containers that run again.
//!
//! The engine forgets how a life of a container ended as soon as the next one begins. Its events know it for a while.

use std::time::Duration;

use http::Method;
use http_body_util::BodyExt as _;
use jiff::Timestamp;

use crate::{
    engine::{Called, Engine, filters},
    error::Failure,
    rules::{
        container::{Container, Process},
        diagnostics,
    },
    watch::Lines,
};

/// The time to read events, which are left out if that takes longer.
const READ: Duration = Duration::from_secs(2);

/// Returns the exit code of a container's last end, if it was restarted and runs again; `None` if the engine knows of none.
pub(crate) async fn last(engine: &Engine, container: &Container) -> Option<i64> {
    if container.process() != Process::Running || container.restarts() == 0 {
        return None;
    }
    // A later end is of the life that runs now.
    let until: Timestamp = container.started_at().parse().ok()?;
    let (event, id) = (["die".to_owned()], [container.id().to_owned()]);
    let since = in_seconds(container.made_at()?);
    let narrowed = filters(&[("event", &event), ("container", &id)]);
    let path = format!("/events?since={since}&until={}&{narrowed}", in_seconds(until));
    match tokio::time::timeout(READ, last_of(engine, &path)).await.ok()? {
        Ok(code) => code,
        Err(failure) => {
            let error = rollhook_core::error::chain(&failure);
            tracing::debug!(container = container.name(), error, "reading the ends of a container failed");
            None
        }
    }
}

/// Returns the exit code of the last end among these events, of which one is held at a time: each has all labels.
async fn last_of(engine: &Engine, path: &str) -> Called<Option<i64>> {
    let mut body = engine.open(Method::GET, path, None, None).await?.into_body();
    let (mut lines, mut last) = (Lines::default(), None);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Failure::Broken(error.into()))?;
        for byte in frame.data_ref().into_iter().flatten() {
            last = lines.push(*byte).and_then(|line| diagnostics::exit_of(&line)).or(last);
        }
    }
    Ok(last)
}

/// Returns a time as the engine takes it.
pub(crate) fn in_seconds(time: Timestamp) -> String {
    format!("{}.{:09}", time.as_second(), time.subsec_nanosecond())
}
