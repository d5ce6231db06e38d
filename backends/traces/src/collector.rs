//! The way to the collector: batches of spans, sent by a thread of their own over this process's one HTTP client.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use opentelemetry::KeyValue;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    trace::{BatchConfigBuilder, BatchSpanProcessor, SpanProcessor},
};
use rollhook_core::error::chain;
use rollhook_https::Fetch;
use tokio::runtime::Handle;

/// The longest time of one call of the collector.
const CALL_TIME: Duration = Duration::from_secs(10);
/// The time for which spans wait for others.
const SCHEDULE_DELAY: Duration = Duration::from_secs(1);
/// The path of traces at a collector.
const PATH: &str = "/v1/traces";

/// The reason why traces cannot be exported to an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The URL cannot be used.
    #[error("the collector's URL must begin with http:// or https://, and hold no credentials and no query")]
    Url,
    /// The exporter cannot be made.
    #[error("traces cannot be exported")]
    Exporter(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Returns the processor that sends spans to a collector.
pub(crate) fn processor(endpoint: &str, replica: &str) -> Result<BatchSpanProcessor, EndpointError> {
    // The operator names the collector, which is usually on this machine.
    let client = Client { fetch: Fetch::new(true, ""), runtime: Handle::current(), fails: AtomicBool::new(false) };
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_endpoint(url(endpoint)?)
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(CALL_TIME)
        .build()
        .map_err(|error| EndpointError::Exporter(error.into()))?;
    let config = BatchConfigBuilder::default();
    // Spans that wait here are lost when the process is killed, so they are sent soon; deploys are few.
    let config = match std::env::var_os("OTEL_BSP_SCHEDULE_DELAY") {
        Some(_) => config,
        None => config.with_scheduled_delay(SCHEDULE_DELAY),
    };
    let mut processor = BatchSpanProcessor::builder(exporter).with_batch_config(config.build()).build();
    processor.set_resource(&resource(replica));
    Ok(processor)
}

fn url(endpoint: &str) -> Result<String, EndpointError> {
    if endpoint.contains(['?', '#', '@']) || Fetch::new(true, "").check(endpoint).is_err() {
        return Err(EndpointError::Url);
    }
    let base = endpoint.trim_end_matches('/');
    Ok(if base.ends_with(PATH) { base.to_owned() } else { format!("{base}{PATH}") })
}

/// Returns what all spans have in common. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` go before.
fn resource(replica: &str) -> Resource {
    let own = [
        KeyValue::new("service.name", "rollhook"),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", replica.to_owned()),
    ];
    let given = Resource::builder().build();
    let is_named = given.get(&"service.name".into()).is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let own = own.into_iter().filter(|attribute| match attribute.key.as_str() {
        "service.name" => !is_named,
        _ => given.get(&attribute.key).is_none(),
    });
    Resource::builder().with_attributes(own.collect::<Vec<_>>()).build()
}

/// The HTTP client of the exporter. Its calls run in this process's runtime: the exporter's thread has none.
struct Client {
    fetch: Fetch,
    runtime: Handle,
    /// Whether the last call failed, which was logged.
    fails: AtomicBool,
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (fetch, request) = (self.fetch.clone(), request.map(|body| body.to_vec()));
        let call = async move { tokio::time::timeout(CALL_TIME, fetch.send(request)).await };
        let answered: Result<Response<Vec<u8>>, HttpError> = match self.runtime.spawn(call).await {
            Ok(Ok(answer)) => answer.map_err(Into::into),
            Ok(Err(late)) => Err(late.into()),
            Err(stopped) => Err(stopped.into()),
        };
        self.log(&answered);
        answered.map(|answer| answer.map(Bytes::from))
    }
}

impl Client {
    /// Logs the first failure of several, and the first success after them.
    fn log(&self, answered: &Result<Response<Vec<u8>>, HttpError>) {
        let failure = match answered {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("the collector answered {}", answer.status())),
            Err(error) => Some(chain(&**error)),
        };
        match (failure, self.fails.load(Ordering::Relaxed)) {
            (Some(error), false) => tracing::warn!(error, "exporting traces failed, trying again"),
            (None, true) => tracing::info!("traces are exported again"),
            (Some(_), true) | (None, false) => return,
        }
        self.fails.fetch_not(Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_a_url_to_which_the_path_is_appended() {
        for (given, called) in [
            ("http://localhost:4318", "http://localhost:4318/v1/traces"),
            ("https://otel.example.com/otlp/", "https://otel.example.com/otlp/v1/traces"),
            ("http://[::1]:4318/v1/traces", "http://[::1]:4318/v1/traces"),
        ] {
            assert_eq!(url(given).unwrap(), called);
        }
        for text in ["", "localhost:4318", "grpc://x:4317", "http://u:hunter2@x/", "http://x/?token=hunter2"] {
            let refused = url(text).unwrap_err().to_string();
            assert!(!refused.contains("hunter2"), "{refused}");
        }
    }
}
