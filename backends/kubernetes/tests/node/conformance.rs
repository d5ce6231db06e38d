//! The cases of the suite of all rollout drivers that real containers show better than simulated ones.

use std::{collections::BTreeMap, sync::Mutex};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ListParams, LogParams},
};
use rollhook_conformance::{Can, Does, Lack, Releases, Sample};
use rollhook_core::{
    image::{Digest, ImageRef},
    ports::{ReleaseRun, RunKind},
};
use rollhook_testing::beds::Kind;

use crate::{
    bed::{
        self, Bed,
        clusters::{Instances, Namespaced},
    },
    push,
};

/// Programs of the bed, pushed to its registry.
#[derive(Default)]
struct Real {
    /// The digests of the tags that a case has moved.
    moved: Mutex<BTreeMap<String, Digest>>,
}

fn program(sample: Sample) -> Can<&'static str> {
    match sample {
        Sample::Good => Ok("app-v1"),
        Sample::Another => Ok("app-v2"),
        Sample::Crashing => Ok("crash"),
        Sample::Dying => Ok("dies"),
        Sample::Missing | Sample::Hanging | Sample::Healing => {
            Err(Lack::NotApplicable("every program of the bed gets ready, or ends each time"))
        }
    }
}

/// The program as an image of the one repository that all tests push to: of a program that lies in two, the runtime
/// tells the digest of either.
fn pushed(bed: &Bed, program: &str) -> ImageRef {
    push(bed, &format!("app:{program}"), program)
}

impl Instances for Real {
    fn image(&self, bed: &Bed, sample: Sample) -> Can<ImageRef> {
        if sample == Sample::Missing {
            let registry = pushed(bed, "app-v1").repository().to_owned();
            return Ok(format!("{registry}:nosuch").parse().unwrap());
        }
        Ok(pushed(bed, program(sample)?).unpinned())
    }

    fn digest(&self, bed: &Bed, image: &ImageRef) -> Can<Digest> {
        let tag = image.tag().unwrap();
        if let Some(moved) = self.moved.lock().unwrap().get(tag) {
            return Ok(moved.clone());
        }
        Ok(pushed(bed, tag).digest().unwrap().clone())
    }

    fn push(&self, bed: &Bed, image: &ImageRef, sample: Sample) -> Can {
        let tag = image.tag().unwrap();
        let digest = push(bed, &format!("app:{tag}"), program(sample)?).digest().unwrap().clone();
        self.moved.lock().unwrap().insert(tag.to_owned(), digest);
        Ok(())
    }

    fn logs(&self) -> Option<&'static str> {
        Some("crash: exiting 1")
    }
}

async fn fresh() -> Can<Namespaced<Real>> {
    Ok(Namespaced { bed: Bed::at(&Kind::Node.lent().map_err(Lack::Skip)?).await, instances: Real::default() })
}

rollhook_conformance::cases! { bed::run, fresh().await, rollouts:
    apply_then_observe_complete,
    apply_keeps_the_configuration,
    apply_stops_and_starts,
    apply_leaves_a_stopped_target_stopped,
    apply_same_image_rolls_again,
    apply_takes_the_digest_and_not_the_tag,
    observe_complete_leaves_no_old_instance,
    observe_dead_is_not_complete,
    observe_counts_restarts,
    observe_keeps_past_lives,
    observe_digest_is_what_runs,
    observe_digest_stays_where_a_tag_moves,
    observe_reports_failing_image,
    observe_reports_crash,
    evidence_has_the_log,
    evidence_is_of_its_own_deploy,
}

#[async_trait]
impl Releases for Namespaced<Real> {
    fn command(&self, does: Does) -> Vec<String> {
        let how = match does {
            Does::Succeed => "succeeds",
            Does::Fail => "fails",
            Does::Hang => "hangs",
        };
        // The cases run the second image.
        ["/app-v2", "migrate", how].map(str::to_owned).to_vec()
    }

    async fn times_begun(&self, run: &ReleaseRun) -> Can<usize> {
        let pods = Api::<Pod>::namespaced(self.bed.client.clone(), &self.bed.namespace);
        let number = match run.id.kind {
            RunKind::Release(revision) => format!("rollhook.dev/release-revision={revision}"),
            RunKind::ByHand(number) => format!("rollhook.dev/run={number}"),
            RunKind::Check(run) => format!("rollhook.dev/check-run={}", run.get()),
        };
        let labels = format!("rollhook.dev/release-app={},{number}", run.id.app);
        let mut times = 0;
        for pod in pods.list(&ListParams::default().labels(&labels)).await.unwrap() {
            let log = pods.logs(&pod.metadata.name.unwrap(), &LogParams::default()).await.unwrap_or_default();
            times += log.matches("has begun").count();
        }
        Ok(times)
    }
}

rollhook_conformance::cases! { bed::run, fresh().await, releases:
    prepare_begins_nothing,
    start_runs_to_the_end,
    start_is_once,
    failed_command_keeps_its_log,
    missing_image_never_begins,
    cancel_ends_for_good,
    end_outlives_a_restart,
    target_stays_as_it_is,
    runs_of_all_kinds_are_apart,
    release_log_is_read_in_parts,
}

rollhook_conformance::instances!(bed::run, fresh().await);
rollhook_conformance::addresses!(bed::run, fresh().await);
