//! The promises of [`rollhook_core::ports::RolloutDriver`].

mod apply;
mod observe;

use rollhook_core::{
    Result,
    app::{AppId, AppUid, Workload},
    image::ImageRef,
    ports::{Applied, DeployId, Observation, Phase, RolloutDriver, RolloutSpec},
};

use crate::{
    clusters::{Clusters, Sample},
    samples,
};

pub use apply::{
    adopt_changes_nothing, apply_foreign_stamp_is_refused, apply_is_idempotent, apply_missing_is_created_or_refused,
    apply_older_is_refused, apply_same_image_rolls_again, apply_then_observe_complete,
};
pub use observe::{
    away_is_unavailable, inspect_unknown_is_none, observe_crash_is_trouble, observe_failing_image_is_trouble,
    observe_old_is_not_new,
};

/// How often is looked for what must come: a minute, at four looks a second.
const LOOKS: usize = 240;
/// How often is looked for what must not come: three seconds.
const FEW_LOOKS: usize = 12;

const OURS: AppUid = AppUid::from_bits(0xa11);
const THEIRS: AppUid = AppUid::from_bits(0xb0b);

/// A workload under test, and the orders for it.
struct Bench<'a> {
    cluster: &'a dyn Clusters,
    rollouts: std::sync::Arc<dyn RolloutDriver>,
    app: AppId,
    workload: Workload,
}

impl<'a> Bench<'a> {
    async fn prepared(cluster: &'a dyn Clusters, name: &str) -> Self {
        let app = cluster.app(name);
        let workload = cluster.prepare(&app).await;
        Self { cluster, rollouts: cluster.rollouts(), app, workload }
    }

    fn order(&self, uid: AppUid, revision: u64, sample: Sample) -> RolloutSpec {
        RolloutSpec {
            app: self.app.clone(),
            stamp: DeployId { app: uid, revision: samples::revision(revision) },
            workload: self.workload.clone(),
            image: self.cluster.image(sample),
            adopted: false,
            cause: format!("a case of the suite, revision {revision}"),
        }
    }

    /// The order's answer; what may pass, such as a conflict with the cluster's own writing, is tried again.
    async fn apply(&self, order: &RolloutSpec) -> Applied {
        self.patiently(async || self.rollouts.apply(order).await).await
    }

    async fn observe(&self, order: &RolloutSpec) -> Observation {
        self.patiently(async || self.rollouts.observe(order).await).await
    }

    async fn patiently<T>(&self, call: impl AsyncFn() -> Result<T>) -> T {
        for _ in 0..FEW_LOOKS {
            match call().await {
                Ok(answer) => return answer,
                Err(error) if error.is_unavailable() || error.is_conflict() => self.cluster.pause().await,
                Err(error) => panic!("{}", error.chain()),
            }
        }
        call().await.unwrap()
    }

    /// Looks until something is seen.
    async fn until(&self, order: &RolloutSpec, what: &str, seen: impl Fn(&Observation) -> bool) -> Observation {
        let mut last = self.observe(order).await;
        for _ in 0..LOOKS {
            if seen(&last) {
                return last;
            }
            self.cluster.pause().await;
            last = self.observe(order).await;
        }
        panic!("not {what} within a minute: {last:?}");
    }

    async fn until_complete(&self, order: &RolloutSpec) -> Observation {
        self.until(order, "complete", is_complete).await
    }

    /// Applies, and waits until it runs.
    async fn roll_out(&self, order: &RolloutSpec) {
        assert_eq!(self.apply(order).await, Applied::Done);
        self.until_complete(order).await;
    }

    async fn never_complete(&self, order: &RolloutSpec) {
        for _ in 0..FEW_LOOKS {
            let seen = self.observe(order).await;
            assert!(!is_complete(&seen), "{seen:?}");
            self.cluster.pause().await;
        }
    }

    async fn fingerprint(&self) -> String {
        self.cluster.fingerprint(&self.app, &self.workload).await
    }

    /// The stamp that the workload carries, and its container's image.
    async fn stored(&self) -> (Option<DeployId>, String) {
        let Workload { kind, name, .. } = &self.workload;
        let found = self.patiently(async || self.rollouts.inspect(&self.app, *kind, name).await).await;
        let found = found.expect("the workload is there");
        let container = found.containers.iter().find(|container| self.workload.containers.contains(&container.name));
        (found.stamp, container.expect("the container is there").image.clone())
    }
}

fn is_complete(seen: &Observation) -> bool {
    matches!(seen.phase, Phase::Complete { .. })
}

/// Whether the cluster's text names the image, which it may spell in full.
fn names(text: &str, image: &ImageRef) -> bool {
    text.parse::<ImageRef>().is_ok_and(|found| found.same_bits(None, image, None))
}
