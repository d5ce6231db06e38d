//! One app's damage stays its own: a driver that panics, and an engine that stands still.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use rollhook_conformance::{Fault, Faulty, Plan};
use rollhook_core::{
    Result,
    app::Policy,
    deploy::{Evidence, Status},
    ports::{
        Applied, Clock, DriverIdentity, HistoryStore, Observation, RolloutDriver, RolloutFailure, RolloutSpec,
        TargetRequest, Validated,
    },
    service::Deployer,
};
use rollhook_memory::SimulatedCluster;

use crate::world::{SimClock, World};

/// How often the driver panics before it works.
const PANICS: usize = 4;

/// A rollout driver that panics where it observes the app `bad`.
struct Panicking {
    cluster: Arc<SimulatedCluster>,
    clock: Arc<SimClock>,
    /// The times of the panics.
    panics: Mutex<Vec<Duration>>,
}

#[async_trait]
impl RolloutDriver for Panicking {
    async fn identity(&self) -> Result<DriverIdentity> {
        self.cluster.identity().await
    }

    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        self.cluster.validate(request).await
    }

    async fn apply(&self, spec: &RolloutSpec) -> Result<Applied> {
        self.cluster.apply(spec).await
    }

    async fn observe(&self, spec: &RolloutSpec) -> Result<Observation> {
        if spec.app.name.as_str() == "bad" {
            let mut panics = self.panics.lock().unwrap();
            let is_next = panics.len() < PANICS;
            if is_next {
                panics.push(self.clock.elapsed());
            }
            drop(panics);
            assert!(!is_next, "the observation of {} is a defect", spec.app);
        }
        self.cluster.observe(spec).await
    }

    async fn changed(&self, spec: &RolloutSpec) {
        self.cluster.changed(spec).await;
    }

    async fn evidence(&self, spec: &RolloutSpec, failure: Option<&RolloutFailure>) -> Result<Evidence> {
        self.cluster.evidence(spec, failure).await
    }
}

#[test]
fn panic_while_one_app_is_driven_leaves_the_others_alone_and_is_tried_again() {
    let world = World::new(Duration::from_secs(1));
    let (cluster, clock) = (world.cluster.clone(), world.clock.clone());
    let driver = Arc::new(Panicking { cluster, clock, panics: Mutex::default() });
    let deployer = Deployer::new(world.ports(9).with(|ports| ports.rollouts = driver.clone()), "two");
    world.run_beside(&deployer, async {
        let bad = world.register("bad", Policy::default()).await;
        let good = world.register("good", Policy::default()).await;
        assert_eq!(world.ended(&good, 1).await.status(), Status::Succeeded);
        assert_ne!(world.entry(&bad, 1).await.status(), Status::Succeeded, "the other one did not wait");
        assert_eq!(world.ended(&bad, 1).await.status(), Status::Succeeded, "it works in the end");
    });
    let panics = driver.panics.lock().unwrap();
    let pauses: Vec<_> = panics.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(panics.len(), PANICS);
    assert!(pauses.is_sorted() && pauses.windows(2).all(|pair| pair[1] > pair[0]), "they grow: {pauses:?}");
}

#[test]
fn deployer_tells_whether_its_engine_goes_on() {
    let world = World::new(Duration::from_secs(1));
    world.idle(async {
        assert!(world.deployer.is_driving(), "it has time to begin");
        world.sleep(31).await;
        assert!(!world.deployer.is_driving(), "nobody runs it");
    });
    world.run(async {
        for _ in 0..100 {
            world.sleep(17).await;
            assert!(world.deployer.is_driving());
        }
    });
    world.idle(async {
        assert!(world.deployer.is_driving());
        world.sleep(60).await;
        assert!(!world.deployer.is_driving(), "it stopped");
    });
}

#[test]
fn store_that_never_answers_does_not_count_as_an_engine_that_stands_still() {
    let world = World::new(Duration::from_secs(1));
    let hangs: Plan = Arc::new(|_| Fault::Slow(Duration::from_secs(3600)));
    let store: Arc<dyn HistoryStore> = world.store.clone();
    let history = Arc::new(Faulty::new(store, Arc::clone(&world.clock) as Arc<dyn Clock>, hangs));
    let deployer = Deployer::new(world.ports(9).with(|ports| ports.history = history), "two");
    world.run_beside(&deployer, async {
        for _ in 0..20 {
            world.sleep(60).await;
            assert!(deployer.is_driving());
        }
    });
}
