//! The cases of the suite of all rollout drivers that real containers show better than simulated ones.

use rollhook_conformance::{Can, Lack, Sample};
use rollhook_core::image::{Digest, ImageRef};
use rollhook_testing::beds::Kind;

use crate::{
    bed::{
        self, Bed,
        clusters::{Instances, Namespaced},
    },
    push,
};

/// Programs of the bed, pushed to its registry.
struct Real;

/// The program as an image of the one repository that all tests push to: of a program that lies in two, the runtime
/// tells the digest of either.
fn pushed(bed: &Bed, program: &str) -> ImageRef {
    push(bed, &format!("app:{program}"), program)
}

impl Instances for Real {
    fn image(&self, bed: &Bed, sample: Sample) -> Can<ImageRef> {
        let program = match sample {
            Sample::Good => "app-v1",
            Sample::Another => "app-v2",
            Sample::Crashing => "crash",
            Sample::Dying => "dies",
            Sample::Missing => {
                let registry = pushed(bed, "app-v1").repository().to_owned();
                return Ok(format!("{registry}:nosuch").parse().unwrap());
            }
            Sample::Hanging => return Err(Lack::NotApplicable("every program of the bed gets ready or ends")),
        };
        Ok(pushed(bed, program).unpinned())
    }

    fn digest(&self, bed: &Bed, image: &ImageRef) -> Can<Digest> {
        let program = image.tag().unwrap();
        Ok(pushed(bed, program).digest().unwrap().clone())
    }

    fn logs(&self) -> Option<&'static str> {
        Some("crash: exiting 1")
    }
}

async fn fresh() -> Can<Namespaced<Real>> {
    Ok(Namespaced { bed: Bed::at(&Kind::Node.lent().map_err(Lack::Skip)?).await, instances: Real })
}

rollhook_conformance::cases! { bed::run, fresh().await, rollouts:
    apply_then_observe_complete,
    apply_keeps_the_configuration,
    observe_complete_leaves_no_old_instance,
    observe_dead_is_not_complete,
    observe_counts_restarts,
    observe_digest_is_what_runs,
    observe_reports_failing_image,
    observe_reports_crash,
    evidence_has_the_log,
}
