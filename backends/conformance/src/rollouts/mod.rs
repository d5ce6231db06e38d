//! The promises of [`rollhook_core::ports::RolloutDriver`].

mod apply;
mod observe;

use rollhook_core::{
    Result,
    app::{AppId, AppUid, Target},
    image::ImageRef,
    ports::{Applied, DeployId, Observation, Phase, RolloutDriver, RolloutSpec, TargetRequest, Validated},
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
    away_is_unavailable, observe_crash_is_trouble, observe_failing_image_is_trouble, observe_old_is_not_new,
    validate_changes_nothing,
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
    target: Target,
}

impl<'a> Bench<'a> {
    async fn prepared(cluster: &'a dyn Clusters, name: &str) -> Self {
        let app = cluster.app(name);
        cluster.prepare(&app).await;
        Self::registered(cluster, app).await
    }

    /// A target as its registration leaves it.
    async fn registered(cluster: &'a dyn Clusters, app: AppId) -> Self {
        let mut bench = Self { cluster, rollouts: cluster.rollouts(), app, target: Target::default() };
        bench.target = match bench.validate(false).await {
            Validated::Adopt { settings, .. } => Target { settings, ..Target::default() },
            Validated::Create { settings } => {
                Target { settings, requested: Some(bench.request().settings), take_over: None }
            }
            Validated::Invalid(invalid) => panic!("{invalid:?}"),
        };
        bench
    }

    fn request(&self) -> TargetRequest {
        let image = Some(self.cluster.image(Sample::Good));
        let settings = self.cluster.settings(&self.app);
        TargetRequest { app: self.app.clone(), settings, image, built: false, take_over: false }
    }

    async fn validate(&self, take_over: bool) -> Validated {
        let request = TargetRequest { take_over, ..self.request() };
        self.patiently(async || self.rollouts.validate(&request).await).await
    }

    fn order(&self, uid: AppUid, revision: u64, sample: Sample) -> RolloutSpec {
        RolloutSpec {
            app: self.app.clone(),
            stamp: DeployId { app: uid, revision: samples::revision(revision) },
            target: self.target.clone(),
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
        self.cluster.fingerprint(&self.app, &self.target).await
    }

    /// The registration whose deploy id the target carries, and the image that it runs.
    async fn stored(&self) -> (Option<AppUid>, ImageRef) {
        match self.validate(true).await {
            Validated::Adopt { take_over, image, .. } => (take_over, image),
            other @ (Validated::Create { .. } | Validated::Invalid(_)) => panic!("the target is there: {other:?}"),
        }
    }
}

fn is_complete(seen: &Observation) -> bool {
    matches!(seen.phase, Phase::Complete { .. })
}

/// Whether both name the same image, which the cluster may spell in full.
fn is_same(found: &ImageRef, image: &ImageRef) -> bool {
    found.same_bits(None, image, None)
}
