//! Exports deploys as traces, by the protocol of OpenTelemetry (OTLP over HTTP).
//!
//! ```text
//!   caller's span (traceparent)
//!     └─ deploy ──────────────────────────────────────────┐
//!          ├ accept ├ queue ├ build ├ ready ├ rollout       │
//! ```
//!
//! A span is made of what a commit to the store says, once the commit is confirmed, and its id of the deploy's own: the
//! spans of one deploy belong together whichever replicas and processes drove it. No span is open in memory, and none is
//! sent twice. A span that could not be confirmed or sent is missing: a trace is a picture, and the history is the truth.

mod collector;
mod conventions;
mod phases;
mod spans;

use std::{sync::Arc, time::Duration};

use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanProcessor};
use rollhook_core::ports::{ConfirmedCommit, DeployObserver};

pub use collector::EndpointError;

/// The longest time in which the last spans are sent when a process stops.
const STOP_TIME: Duration = Duration::from_secs(3);

/// The export of traces to one collector: an observer of a process's commits.
#[derive(Clone)]
pub struct Traces {
    processor: Arc<BatchSpanProcessor>,
    base_url: Arc<str>,
}

impl Traces {
    /// Returns the export to the collector at this URL, to which `/v1/traces` is appended. `replica` names this process, and
    /// `base_url` is that of the console, whose pages of deploys spans link to.
    /// OpenTelemetry's own variables add headers, resource attributes and the sizes of batches. Needs a runtime.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn new(endpoint: &str, replica: &str, base_url: &str) -> Result<Self, EndpointError> {
        let base_url = base_url.trim_end_matches('/').into();
        Ok(Self { processor: Arc::new(collector::processor(endpoint, replica)?), base_url })
    }

    /// Sends the last spans. A collector that does not answer is not waited for.
    pub async fn stop(self) {
        let stopped = tokio::task::spawn_blocking(move || self.processor.shutdown_with_timeout(STOP_TIME));
        let _ = tokio::time::timeout(STOP_TIME, stopped).await;
    }
}

impl DeployObserver for Traces {
    fn committed(&self, commit: &ConfirmedCommit<'_>) {
        spans::of_commit(commit, &self.base_url).into_iter().for_each(|span| self.processor.on_end(span));
    }
}
