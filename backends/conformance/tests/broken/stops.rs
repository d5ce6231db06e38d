//! A driver that breaks one promise of stops and starts.

use rollhook_conformance::rollouts;
use rollhook_core::{
    Result,
    deploy::Scale,
    ports::{Applied, Observation, RolloutDriver, RolloutSpec},
};
use rollhook_memory::SimulatedCluster;

use crate::{driver::Promise, notices};

/// What a driver promises of stops, and breaks here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stops {
    /// A stop leaves no instance: here one stays.
    LeavesNone,
    /// A deploy of a stopped target starts nothing: here it restores the number.
    StaysStopped,
    /// A start brings back as many as there were: here one.
    CountIsKept,
}

/// Applies a rollout, and breaks the promise.
pub(crate) async fn apply(cluster: &SimulatedCluster, promise: Stops, order: &RolloutSpec) -> Result<Applied> {
    let (app, target) = (&order.app, &order.target);
    let is_stopped = cluster.pods(app, target) == Some(0);
    match (promise, order.scale) {
        (Stops::LeavesNone, Scale::Stop) => cluster.apply(&order.clone().with(|spec| spec.scale = Scale::Keep)).await,
        (Stops::StaysStopped, Scale::Keep) if is_stopped => {
            cluster.apply(&order.clone().with(|spec| spec.scale = Scale::Start)).await
        }
        (Stops::CountIsKept, Scale::Start) => {
            let answer = cluster.apply(order).await;
            cluster.scale(app, target, 1);
            answer
        }
        (Stops::LeavesNone | Stops::StaysStopped | Stops::CountIsKept, _) => cluster.apply(order).await,
    }
}

/// Returns the observation of a rollout that [`apply`] began.
pub(crate) async fn observe(cluster: &SimulatedCluster, promise: Stops, order: &RolloutSpec) -> Result<Observation> {
    let scale = if promise == Stops::LeavesNone { Scale::Keep } else { order.scale };
    RolloutDriver::observe(cluster, &order.clone().with(|spec| spec.scale = scale)).await
}

#[test]
fn stop_that_leaves_an_instance_is_noticed() {
    notices(Promise::Stops(Stops::LeavesNone), rollouts::apply_stops_and_starts, "instances run after a stop");
}

#[test]
fn deploy_that_starts_what_is_stopped_is_noticed() {
    let case = rollouts::apply_leaves_a_stopped_target_stopped;
    notices(Promise::Stops(Stops::StaysStopped), case, "instances run after a deploy of what is stopped");
}

#[test]
fn start_that_forgets_the_count_is_noticed() {
    let forgets = Promise::Stops(Stops::CountIsKept);
    notices(forgets, rollouts::apply_stops_and_starts, "brought back something else");
    notices(forgets, rollouts::apply_leaves_a_stopped_target_stopped, "brought back something else");
}
