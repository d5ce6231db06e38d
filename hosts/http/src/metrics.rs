//! Metrics for Prometheus. Labels come from fixed sets, so that callers cannot create series.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use http::Method;
use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use rollhook_core::{
    Error, Result,
    deploy::{Status, Trigger},
    ports::{Applied, Rng},
};
use rollhook_wiring::SystemRng;

const CALL_BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0];
const STORE_BUCKETS: [f64; 9] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0];

/// Labels and their values.
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// The metrics of this process.
pub(crate) struct Metrics {
    registry: Registry,
    calls: Family<Labels<3>, Counter>,
    durations: Family<Labels<1>, Histogram>,
    accepted: Family<Labels<1>, Counter>,
    ended: Family<Labels<1>, Counter>,
    store: Family<Labels<2>, Histogram>,
    applies: Family<Labels<1>, Counter>,
    sources: Family<Labels<1>, Counter>,
    connections: Gauge,
    drifted: Gauge,
    /// The begin of the ids of this process's calls.
    prefix: u32,
    calls_begun: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("rollhook");
        let (calls, accepted, ended) = (Family::default(), Family::default(), Family::default());
        let (applies, sources) = (Family::default(), Family::default());
        let (connections, drifted) = (Gauge::default(), Gauge::default());
        let durations = Family::new_with_constructor((|| Histogram::new(CALL_BUCKETS)) as fn() -> Histogram);
        let store = Family::new_with_constructor((|| Histogram::new(STORE_BUCKETS)) as fn() -> Histogram);
        registry.register("http_requests", "HTTP calls answered", calls.clone());
        registry.register_with_unit("http_request_duration", "Time to answer", Unit::Seconds, durations.clone());
        registry.register("deploys_accepted", "Deploys accepted by this replica", accepted.clone());
        registry.register("deploys_ended", "Deploys whose end this replica recorded", ended.clone());
        registry.register_with_unit(
            "store_call_duration",
            "Time of calls to the history",
            Unit::Seconds,
            store.clone(),
        );
        registry.register("rollout_applies", "Answers of the rollout driver to applies", applies.clone());
        registry.register("source_reads", "Branches that were read at their source", sources.clone());
        registry.register("http_connections", "Open connections", connections.clone());
        let help = "Apps whose workload another party changed since their current deploy";
        registry.register("apps_drifted", help, drifted.clone());
        let mut prefix = [0; 4];
        SystemRng.fill(&mut prefix);
        let (prefix, calls_begun) = (u32::from_le_bytes(prefix), AtomicU64::default());
        Self {
            registry,
            calls,
            durations,
            accepted,
            ended,
            store,
            applies,
            sources,
            connections,
            drifted,
            prefix,
            calls_begun,
        }
    }
}

impl Metrics {
    /// Returns an id that no other call of any replica has.
    pub(crate) fn new_request_id(&self) -> String {
        format!("{:08x}-{:x}", self.prefix, self.calls_begun.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn answered(&self, route: &'static str, method: &Method, status: u16, took: Duration) {
        let status = match status / 100 {
            1 => "1xx",
            2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            _ => "5xx",
        };
        self.calls.get_or_create(&[("route", route), ("method", known(method)), ("status", status)]).inc();
        self.durations.get_or_create(&[("route", route)]).observe(took.as_secs_f64());
    }

    pub(crate) fn accepted(&self, trigger: Trigger) {
        self.accepted.get_or_create(&[("trigger", trigger.as_str())]).inc();
    }

    pub(crate) fn ended(&self, status: Status, number: usize) {
        self.ended.get_or_create(&[("status", status.as_str())]).inc_by(number as u64);
    }

    pub(crate) fn store<T>(&self, call: &'static str, result: &Result<T>, took: Duration) {
        let outcome = if result.is_ok() { "ok" } else { "error" };
        self.store.get_or_create(&[("call", call), ("outcome", outcome)]).observe(took.as_secs_f64());
    }

    /// Counts an answer of the rollout driver to an apply; `newer`: the workload carried a later revision, so that
    /// nothing was changed.
    pub(crate) fn applied(&self, applied: &Result<Applied>) {
        let outcome = match applied {
            Ok(Applied::Done) => "done",
            Ok(Applied::Newer(_)) => "newer",
            Ok(Applied::Refused { .. }) => "refused",
            Err(_) => "error",
        };
        self.applies.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Counts a reading of a branch at its source.
    pub(crate) fn source_read<T>(&self, head: &Result<T>) {
        let outcome = match head {
            Ok(_) => "done",
            Err(Error::Denied { .. } | Error::Invalid { .. }) => "refused",
            Err(Error::Unavailable { .. } | Error::NotFound(_) | Error::Conflict(_) | Error::Corrupt { .. }) => "error",
        };
        self.sources.get_or_create(&[("outcome", outcome)]).inc();
    }

    pub(crate) fn connected(&self) {
        self.connections.inc();
    }

    pub(crate) fn disconnected(&self) {
        self.connections.dec();
    }

    pub(crate) fn drifted(&self, apps: usize) {
        self.drifted.set(i64::try_from(apps).unwrap_or(i64::MAX));
    }

    /// Returns all metrics in the OpenMetrics text format.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// Returns the method's name, or "other" for an unknown one.
fn known(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_up_method_makes_no_series() {
        let metrics = Metrics::default();
        for method in ["BREW", "PUT", "X-1"] {
            metrics.answered("/healthz", &Method::from_bytes(method.as_bytes()).unwrap(), 405, Duration::ZERO);
        }
        let text = metrics.text();
        let series = text.lines().filter(|line| line.starts_with("rollhook_http_requests_total"));
        assert_eq!(
            series.collect::<Vec<_>>(),
            [r#"rollhook_http_requests_total{route="/healthz",method="other",status="4xx"} 3"#]
        );
    }

    #[test]
    fn ids_are_all_different() {
        let metrics = Metrics::default();
        assert_ne!(metrics.new_request_id(), metrics.new_request_id());
    }
}
