//! The suite of all builders.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rollhook_conformance::{Builders, Can, Lack, Made, samples};
use rollhook_core::{deploy::Commit, ports::BuildTrigger, source::GitSource};
use rollhook_kubernetes::builds::KubernetesBuilds;
use rollhook_testing::beds::shared_cluster;

use crate::{
    actor::{Actor, digit, full},
    bed::{self, Bed},
    harness::{handle, settings},
};

struct Cluster {
    bed: Bed,
    builds: Arc<KubernetesBuilds>,
    _actor: Actor,
}

impl Cluster {
    async fn fresh() -> Can<Self> {
        let bed = Bed::at(shared_cluster().map_err(Lack::Skip)?).await;
        let builds = Arc::new(handle(&bed, settings(&bed.namespace)).await);
        let actor = Actor::start(bed.client.clone(), &bed.namespace, bed.state.clone());
        Ok(Self { bed, builds, _actor: actor })
    }
}

#[async_trait]
impl Builders for Cluster {
    fn builds(&self) -> Arc<dyn BuildTrigger> {
        self.builds.clone()
    }

    async fn restarted(&self) -> Can<Arc<dyn BuildTrigger>> {
        Ok(Arc::new(handle(&self.bed, settings(&self.bed.namespace)).await))
    }

    fn source(&self) -> GitSource {
        samples::git_source()
    }

    fn commit(&self, made: Made) -> Can<Commit> {
        let commit = match made {
            Made::Good => full(digit::GOOD),
            // Another of those that begin with the same digit is the same to the actor.
            Made::Another => full(digit::DISRUPTED_ONCE),
            Made::Short => full(digit::GOOD)[..9].to_owned(),
            Made::Missing => full(digit::MISSING),
            Made::Ambiguous => full(digit::AMBIGUOUS)[..7].to_owned(),
            Made::Failing => full(digit::FAILS),
            Made::Hanging => full(digit::HANGS),
        };
        Ok(commit.parse().unwrap())
    }

    fn forgets(&self) -> Can {
        Err(Lack::NotApplicable("Jobs that have ended go by themselves"))
    }

    async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

rollhook_conformance::builds!(bed::run, Cluster::fresh().await);
