//! The evidence of a failed deploy: what the driver has collected, the state of each of several workloads, and the platforms of an
//! image that its machine cannot run.

use super::{State, sentence};
use crate::{
    deploy::{Deploy, Evidence, Reason, Trigger, WorkloadEnd, WorkloadEvidence},
    image::{ends_as_for_another_platform, is_for_another_platform},
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

/// Returns the message of a failure; with the platforms of the image if a machine could not run it as it is for others.
pub(super) fn with_platforms(deploy: &Deploy, message: &str, evidence: Option<&Evidence>) -> String {
    let platforms = deploy.platforms();
    let Some(image) = deploy.image.as_ref().filter(|_| !platforms.is_empty() && is_for_others(message, evidence))
    else {
        return message.to_owned();
    };
    let names: Vec<String> = platforms.iter().map(ToString::to_string).collect();
    let image = image.clone().unpinned();
    format!("{} {image} is for {}, as its registry says.", sentence(message), names.join(", "))
}

fn is_for_others(message: &str, evidence: Option<&Evidence>) -> bool {
    let (events, log) = evidence.map(|seen| (&*seen.events, &*seen.log)).unwrap_or_default();
    let state = evidence.and_then(|seen| seen.state.as_deref());
    let workloads = evidence.into_iter().flat_map(|seen| &seen.workloads).map(|workload| workload.message.as_str());
    let mut said = events.iter().map(String::as_str).chain(state).chain(workloads).chain([message]);
    said.any(is_for_another_platform) || log.iter().any(|line| ends_as_for_another_platform(line))
}

/// Returns whether a workload carries this deploy.
fn carries(workload: &WorkloadState, state: &State, deploy: &Deploy) -> bool {
    workload.deploy == Some(DeployId { app: state.app_state.app.uid, revision: deploy.revision })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        deploy::{Actor, Resolution},
        image::ImageLabels,
        tests::queued,
    };

    #[test]
    fn machine_of_another_platform_is_shown_what_the_image_is_for() {
        let platforms = ["linux/arm64".parse().unwrap(), "linux/arm/v7".parse().unwrap()];
        let resolution = Resolution::resolved(ImageLabels::default(), &platforms, &[], &[]);
        let image = "registry.example.com/api:v3".parse().ok();
        let queued = queued(3, Trigger::Webhook, Actor::Ci, None);
        let deploy = Deploy { image, resolution: Some(Box::new(resolution)), ..queued };
        let shown = "It exited with code 255. registry.example.com/api:v3 is for linux/arm64, linux/arm/v7, as its registry says.";
        let evidence = |log: &str, event: &str| Evidence {
            log: vec![log.to_owned()],
            events: vec![event.to_owned()],
            ..Evidence::default()
        };
        let with = |deploy, evidence| with_platforms(deploy, "It exited with code 255", Some(&evidence));
        assert_eq!(with(&deploy, evidence("exec /bin/api: exec format error", "")), shown);
        assert_eq!(with(&deploy, evidence("", "Failed to pull: no match for platform in manifest")), shown);
        assert_eq!(with(&deploy, evidence("no match for platform", "")), "It exited with code 255");
        let unknown = Deploy { resolution: None, ..deploy };
        assert_eq!(with_platforms(&unknown, "no match for platform", None), "no match for platform");
    }
}
