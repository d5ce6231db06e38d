//! Numbers for Prometheus. Labels come from fixed sets, so that no caller can make series.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use http::Method;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    route: &'static str,
    method: &'static str,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByTrigger {
    trigger: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByStatus {
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StoreCall {
    call: &'static str,
    outcome: &'static str,
}

/// What is counted.
pub(crate) struct Metrics {
    registry: Registry,
    calls: Family<Call, Counter>,
    durations: Family<Route, Histogram>,
    accepted: Family<ByTrigger, Counter>,
    ended: Family<ByStatus, Counter>,
    store: Family<StoreCall, Histogram>,
    orders: Family<ByOutcome, Counter>,
    sources: Family<ByOutcome, Counter>,
    connections: Gauge,
    /// What the ids of this process's calls begin with.
    prefix: u32,
    calls_seen: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("rollhook");
        let calls = Family::default();
        registry.register("http_requests", "HTTP calls answered", calls.clone());
        let durations: Family<Route, Histogram> = Family::new_with_constructor(|| Histogram::new(CALL_BUCKETS));
        registry.register_with_unit("http_request_duration", "Time to answer", Unit::Seconds, durations.clone());
        let accepted = Family::default();
        registry.register("deploys_accepted", "Deploys accepted by this replica", accepted.clone());
        let ended = Family::default();
        registry.register("deploys_ended", "Deploys whose end this replica recorded", ended.clone());
        let store: Family<StoreCall, Histogram> = Family::new_with_constructor(|| Histogram::new(STORE_BUCKETS));
        registry.register_with_unit(
            "store_call_duration",
            "Time of calls to the history",
            Unit::Seconds,
            store.clone(),
        );
        let orders = Family::default();
        registry.register("rollout_orders", "Orders given to the rollout driver", orders.clone());
        let sources = Family::default();
        registry.register("source_reads", "Branches that were read at their source", sources.clone());
        let connections = Gauge::default();
        registry.register("http_connections", "Open connections", connections.clone());
        let mut prefix = [0; 4];
        SystemRng.fill(&mut prefix);
        Self {
            registry,
            calls,
            durations,
            accepted,
            ended,
            store,
            orders,
            sources,
            connections,
            prefix: u32::from_le_bytes(prefix),
            calls_seen: AtomicU64::default(),
        }
    }
}

impl Metrics {
    /// An id for a call: no other call of any replica has it.
    pub(crate) fn new_request_id(&self) -> String {
        format!("{:08x}-{:x}", self.prefix, self.calls_seen.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn answered(&self, route: &'static str, method: &Method, status: u16, took: Duration) {
        let status = match status / 100 {
            1 => "1xx",
            2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            _ => "5xx",
        };
        self.calls.get_or_create(&Call { route, method: known(method), status }).inc();
        self.durations.get_or_create(&Route { route }).observe(took.as_secs_f64());
    }

    pub(crate) fn accepted(&self, trigger: Trigger) {
        self.accepted.get_or_create(&ByTrigger { trigger: trigger.as_str() }).inc();
    }

    pub(crate) fn ended(&self, status: Status, number: usize) {
        self.ended.get_or_create(&ByStatus { status: status.as_str() }).inc_by(number as u64);
    }

    pub(crate) fn store(&self, call: &'static str, ok: bool, took: Duration) {
        let outcome = if ok { "ok" } else { "error" };
        self.store.get_or_create(&StoreCall { call, outcome }).observe(took.as_secs_f64());
    }

    /// An order was answered; `newer`: the workload carried a later revision, so that nothing was changed.
    pub(crate) fn ordered(&self, applied: &Result<Applied>) {
        let outcome = match applied {
            Ok(Applied::Done) => "done",
            Ok(Applied::Newer(_)) => "newer",
            Ok(Applied::Refused { .. }) => "refused",
            Err(_) => "error",
        };
        self.orders.get_or_create(&ByOutcome { outcome }).inc();
    }

    /// A branch was read at its source, or could not be.
    pub(crate) fn source_read<T>(&self, head: &Result<T>) {
        let outcome = match head {
            Ok(_) => "done",
            Err(Error::Denied { .. } | Error::Invalid { .. }) => "refused",
            Err(Error::Unavailable { .. } | Error::NotFound(_) | Error::Conflict(_) | Error::Corrupt { .. }) => "error",
        };
        self.sources.get_or_create(&ByOutcome { outcome }).inc();
    }

    pub(crate) fn connected(&self) {
        self.connections.inc();
    }

    pub(crate) fn disconnected(&self) {
        self.connections.dec();
    }

    /// All of them, in the OpenMetrics text format.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// The method's name; a made-up one is "other".
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
