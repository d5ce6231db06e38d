//! How metrics are registered, and the buckets of histograms.

use prometheus_client::{
    metrics::{family::Family, histogram::Histogram},
    registry::{Metric, Registry, Unit},
};

use super::Histograms;

const CALL_BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0];
const STORE_BUCKETS: [f64; 9] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0];
const DRIVER_BUCKETS: [f64; 8] = [0.005, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 60.0];
/// From a second to an hour.
const DEPLOY_BUCKETS: [f64; 11] = [1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0];

/// Registers a metric, and returns it.
pub(super) fn put<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: &M) -> M {
    registry.register(name, help, metric.clone());
    metric.clone()
}

/// Registers histograms of seconds, and returns them.
pub(super) fn timed<const N: usize>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    buckets: fn() -> Histogram,
) -> Histograms<N> {
    let histograms = Family::new_with_constructor(buckets);
    registry.register_with_unit(name, help, Unit::Seconds, histograms.clone());
    histograms
}

pub(super) fn buckets_of_calls() -> Histogram {
    Histogram::new(CALL_BUCKETS)
}

pub(super) fn buckets_of_store() -> Histogram {
    Histogram::new(STORE_BUCKETS)
}

pub(super) fn buckets_of_driver() -> Histogram {
    Histogram::new(DRIVER_BUCKETS)
}

pub(super) fn buckets_of_deploys() -> Histogram {
    Histogram::new(DEPLOY_BUCKETS)
}
