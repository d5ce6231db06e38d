//! The simulated registry, as its suite wants it.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use async_trait::async_trait;
use rollhook_conformance::{Can, ImageSample, ManualClock, Registries, RegistryAnswer};
use rollhook_core::{
    image::{Digest, ImageRef, Tag},
    ports::{Clock, Registry, Resolved},
    text::{hash_of, hex},
};
use rollhook_memory::{Answering, SimulatedRegistry};

/// How far the clock goes on at a time.
const STEP: Duration = Duration::from_millis(100);

/// A simulated registry, and its clock.
pub(crate) struct SimulatedImages {
    clock: Arc<ManualClock>,
    pub(crate) registry: Arc<SimulatedRegistry>,
}

impl SimulatedImages {
    pub(crate) fn fresh() -> Can<Self> {
        let clock = Arc::new(ManualClock::default());
        Ok(Self { registry: Arc::new(SimulatedRegistry::new(clock.clone())), clock })
    }
}

#[async_trait]
impl Registries for SimulatedImages {
    fn registry(&self) -> Arc<dyn Registry> {
        self.registry.clone()
    }

    fn repository(&self) -> ImageRef {
        "registry.example.com/shop/api".parse().unwrap()
    }

    async fn push(&self, repository: &ImageRef, tag: &Tag, sample: &ImageSample) -> Can<(Digest, String)> {
        let digest: Digest = format!("sha256:{}", hex(&hash_of([&*format!("{sample:?}")]))).parse().unwrap();
        let is_index = sample.platforms.len() > 1 || sample.is_attested;
        let kind = if is_index { "index" } else { "manifest" };
        let media_type = format!("application/vnd.oci.image.{kind}.v1+json");
        let image = Resolved::new(digest.clone(), media_type.clone()).with(|image| {
            image.platforms.clone_from(&sample.platforms);
            image.labels = sample.annotations.clone().or_those(sample.labels.clone());
        });
        self.registry.push(repository, tag, image);
        Ok((digest, media_type))
    }

    async fn answer(&self, answer: RegistryAnswer) -> Can {
        self.registry.answers(match answer {
            RegistryAnswer::Usual => Answering::Usual,
            RegistryAnswer::Closed | RegistryAnswer::Hidden => Answering::Denied,
            RegistryAnswer::Gone | RegistryAnswer::Failure => Answering::Failing,
            RegistryAnswer::Silence => Answering::Silent,
            RegistryAnswer::Busy(time) => Answering::Busy(time),
            RegistryAnswer::OtherDigest | RegistryAnswer::CutOff | RegistryAnswer::Endless => Answering::Corrupt,
        });
        Ok(())
    }

    async fn sleep(&self, time: Duration) {
        let end = self.clock.elapsed() + time;
        while self.clock.elapsed() < end {
            self.clock.advance(STEP);
            // Others go on before the clock does.
            let mut is_first = true;
            poll_fn(|context| {
                context.waker().wake_by_ref();
                if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
        }
    }
}
