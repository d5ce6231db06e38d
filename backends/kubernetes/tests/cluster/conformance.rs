//! The suite of all rollout drivers, on simulated nodes.

use rollhook_conformance::{Can, Lack, Sample};
use rollhook_core::image::{Digest, ImageRef};
use rollhook_testing::beds::shared_cluster;

use crate::{
    bed::{
        self, Bed,
        clusters::{Instances, Namespaced},
    },
    releases::Writer,
};

/// Pods that do what their image's name says.
#[derive(Default)]
pub(crate) struct Simulated {
    /// Writes the logs of release commands.
    pub(crate) _writer: Option<Writer>,
}

impl Instances for Simulated {
    fn image(&self, _bed: &Bed, sample: Sample) -> Can<ImageRef> {
        let tag = match sample {
            Sample::Good => "v1",
            Sample::Another => "v2",
            Sample::Missing => "missing",
            Sample::Crashing => "crash",
            Sample::Hanging => "hang",
            Sample::Dying => "dies",
            Sample::Healing => "flaky",
        };
        Ok(format!("registry.example.com/shop/api:{tag}").parse().unwrap())
    }

    fn digest(&self, _bed: &Bed, _image: &ImageRef) -> Can<Digest> {
        Err(Lack::NotApplicable("simulated pods tell no digest; real containers do (tests/node)"))
    }

    fn push(&self, _bed: &Bed, _image: &ImageRef, _sample: Sample) -> Can {
        Err(Lack::NotApplicable("simulated pods have no registry; real containers do (tests/node)"))
    }

    fn logs(&self) -> Option<&'static str> {
        None
    }
}

async fn fresh() -> Can<Namespaced<Simulated>> {
    Ok(Namespaced { bed: Bed::at(shared_cluster().map_err(Lack::Skip)?).await, instances: Simulated::default() })
}

rollhook_conformance::rollouts!(bed::run, fresh().await);
