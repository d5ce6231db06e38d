//! The evidence of a failed rollout: what the driver has collected, and the state of each of several workloads.

use super::State;
use crate::{
    deploy::{Deploy, Evidence, Reason, Trigger, WorkloadEnd, WorkloadEvidence},
    ports::{DeployId, WorkloadState},
};

/// Returns the evidence of this deploy with the states of its workloads by the last observation, that which failed first.
pub(super) fn with_workloads(
    state: &State,
    deploy: &Deploy,
    reason: &Reason,
    collected: Option<Evidence>,
) -> Option<Evidence> {
    let rollout = state.rollout.as_ref().filter(|rollout| rollout.revision == deploy.revision);
    let seen = rollout.map_or(&[][..], |rollout| rollout.workloads());
    if seen.is_empty() {
        return collected;
    }
    // The last observation may lie between two ends of a container: then the workload is shown as it was when it failed.
    let failing = rollout.and_then(|rollout| rollout.failing(reason));
    let seen: Vec<&WorkloadState> =
        seen.iter().map(|seen| failing.filter(|failing| failing.name == seen.name).unwrap_or(seen)).collect();
    let is_restarting = reason.as_str() == Reason::RESTARTING && seen.iter().all(|workload| !workload.is_failing);
    let mut workloads: Vec<WorkloadEvidence> = seen
        .iter()
        .map(|workload| {
            let state = match () {
                () if workload.is_failing || is_restarting && workload.restarts > 0 => WorkloadEnd::Failed,
                () if workload.is_complete && deploy.trigger == Trigger::Rollback => WorkloadEnd::Restored,
                () if workload.is_complete => WorkloadEnd::Complete,
                () if carries(workload, state, deploy) => WorkloadEnd::Unfinished,
                () => WorkloadEnd::NotTouched,
            };
            let message = if is_restarting && state == WorkloadEnd::Failed {
                format!("its containers were restarted {} times; {}", workload.restarts, workload.message)
            } else {
                workload.message.clone()
            };
            WorkloadEvidence { name: workload.name.clone(), state, message }
        })
        .collect();
    // A stable sort: the others keep their order.
    workloads.sort_by_key(|workload| workload.state != WorkloadEnd::Failed);
    Some(Evidence { workloads, ..collected.unwrap_or_default() })
}

/// Returns whether a workload carries this deploy.
fn carries(workload: &WorkloadState, state: &State, deploy: &Deploy) -> bool {
    workload.deploy == Some(DeployId { app: state.app_state.app.uid, revision: deploy.revision })
}
