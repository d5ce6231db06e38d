//! Images of old versions are dropped in passes that the apps share.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::join_all;
use rollhook_conformance::{Fault, Faulty, Plan};
use rollhook_core::{
    Result,
    app::{App, Policy},
    deploy::Evidence,
    disk::DiskSpace,
    image::{Digest, ImageRef},
    ports::{
        Applied, Clock, DriverIdentity, HistoryStore, Observation, RolloutDriver, RolloutFailure, RolloutSpec,
        StoredImages, TargetRequest, Validated,
    },
    service::Deployer,
};
use rollhook_memory::SimulatedCluster;

use crate::world::{World, api, image, request};

const SECOND: Duration = Duration::from_secs(1);

/// A rollout driver that stores the image of the version that runs, and keeps the digests that it may drop.
struct Storing {
    cluster: Arc<SimulatedCluster>,
    dropped: Mutex<Vec<Digest>>,
}

#[async_trait]
impl RolloutDriver for Storing {
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
        self.cluster.observe(spec).await
    }

    async fn changed(&self, spec: &RolloutSpec) {
        self.cluster.changed(spec).await;
    }

    async fn evidence(&self, spec: &RolloutSpec, failure: Option<&RolloutFailure>) -> Result<Evidence> {
        self.cluster.evidence(spec, failure).await
    }

    fn stored_images(&self) -> Option<&dyn StoredImages> {
        Some(self)
    }
}

#[async_trait]
impl StoredImages for Storing {
    fn stored_versions(&self) -> Option<usize> {
        Some(1)
    }

    async fn has(&self, _: &ImageRef) -> Result<bool> {
        Ok(false)
    }

    async fn discard(&self, _: &App, images: &[ImageRef]) -> Result<()> {
        self.dropped.lock().unwrap().extend(images.iter().filter_map(ImageRef::digest).cloned());
        Ok(())
    }

    async fn disk_space(&self) -> Result<Option<DiskSpace>> {
        Ok(None)
    }
}

#[test]
fn successes_of_many_apps_share_passes_over_all_apps() {
    const APPS: usize = 20;
    let world = World::new(SECOND);
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lists);
    let plan: Plan = Arc::new(move |call| {
        if call != "history.list" {
            return Fault::None;
        }
        counted.fetch_add(1, Ordering::Relaxed);
        Fault::Slow(SECOND)
    });
    let store: Arc<dyn HistoryStore> = world.store.clone();
    let history = Arc::new(Faulty::new(store, Arc::clone(&world.clock) as Arc<dyn Clock>, plan));
    let driver = Arc::new(Storing { cluster: world.cluster.clone(), dropped: Mutex::default() });
    let deployer = Deployer::new(
        world.ports(9).with(|ports| {
            ports.history = history;
            ports.rollouts = driver.clone();
        }),
        "two",
    );
    let digest = |tag: &str| world.cluster.digest(&image(&api(tag)));
    let dropped = || driver.dropped.lock().unwrap().clone();
    world.run_beside(&deployer, async {
        let names: Vec<String> = (0..APPS).map(|number| format!("app-{number}")).collect();
        let apps = join_all(names.iter().map(|name| world.app(name, Policy::default()))).await;
        world.sleep(60).await;
        lists.store(0, Ordering::Relaxed);
        for tag in ["v2", "v3"] {
            join_all(apps.iter().map(|access| deployer.submit(access, request(&api(tag))))).await;
            join_all(apps.iter().map(|access| world.quiet(access))).await;
        }
        world.sleep(60).await;
        assert!(lists.load(Ordering::Relaxed) <= 6, "{} lists of all apps", lists.load(Ordering::Relaxed));
        assert!(dropped().contains(&digest("v1")) && dropped().contains(&digest("v2")));
        assert!(!dropped().contains(&digest("v3")), "it runs");
        // An image that one app alone still needs stays.
        deployer.submit(&apps[0], request(&api("v4"))).await.unwrap();
        world.quiet(&apps[0]).await;
        world.sleep(60).await;
        assert!(!dropped().contains(&digest("v3")));
        lists.store(0, Ordering::Relaxed);
        deployer.discard_all_images().await;
        assert!(lists.load(Ordering::Relaxed) <= 2, "{} lists of all apps", lists.load(Ordering::Relaxed));
    });
}
