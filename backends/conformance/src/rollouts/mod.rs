//! The promises of [`rollhook_core::ports::RolloutDriver`], and of the ports that it may hand out.

mod apply;
mod at_rest;
mod calls;
mod failure;
mod fence;
mod observe;
mod progress;
mod restore;
mod settings;
mod stop;
mod tags;
mod validate;
mod variables;

use std::{collections::BTreeSet, sync::Arc};

use rollhook_core::{
    Result,
    app::{App, AppId, AppUid, Target},
    image::ImageRef,
    ports::{Applied, DeployId, Observation, Phase, Purpose, RolloutDriver, RolloutSpec, TargetRequest, Validated},
};

use crate::{
    clusters::{Clusters, Instance, Sample},
    report::Can,
    samples,
};

pub use apply::{
    adopt_changes_nothing, apply_is_idempotent, apply_keeps_the_configuration, apply_missing_is_created_or_refused,
    apply_same_image_rolls_again, apply_then_observe_complete, discard_changes_nothing_that_runs,
    forget_changes_nothing_that_runs, has_says_what_is_stored,
};
pub use at_rest::{
    at_rest_a_crash_loop_is_seen, at_rest_a_healthy_target_stays_complete, at_rest_recovery_is_seen,
    drift_is_told_until_the_next_deploy,
};
pub use calls::{calls_answer_in_time, changed_is_only_a_hint};
pub use failure::{
    away_is_unavailable, evidence_has_the_log, evidence_is_of_its_own_deploy, observe_failure_ends_with_recovery,
    observe_reports_crash, observe_reports_failing_image,
};
pub use fence::{
    apply_dropped_is_made_good, apply_foreign_is_refused, apply_older_is_refused,
    apply_older_is_refused_after_a_restart, apply_race_ends_at_the_newest,
};
pub use observe::{
    observe_changed_by_another_is_not_complete, observe_complete_leaves_no_old_instance, observe_counts_restarts,
    observe_dead_is_not_complete, observe_digest_is_what_runs, observe_down_while_nothing_serves,
    observe_keeps_past_lives, observe_never_ready_is_not_complete, observe_old_is_not_new,
};
pub use progress::progress_stands_still_with_the_rollout;
pub use restore::{restore_keeps_nothing_of_the_failed_deploy, restore_keeps_what_still_runs};
pub use settings::{settings_are_of_their_own_app, settings_come_back_with_their_configuration};
pub use stop::{apply_leaves_a_stopped_target_stopped, apply_stops_and_starts};
pub use tags::{apply_takes_the_digest_and_not_the_tag, observe_digest_stays_where_a_tag_moves};
pub use validate::{
    identity_is_stable, validate_absent_is_created, validate_adopts_what_runs, validate_changes_nothing,
    validate_fills_in_defaults, validate_foreign_is_taken, validate_knows_its_own, validate_names_an_invalid_setting,
    validate_names_settings_of_creation, validate_of_another_app_is_taken,
};
pub use variables::{
    apply_sets_the_variables, restore_brings_the_variables_back, variable_of_another_is_refused,
    variable_of_another_refuses_no_return,
};

/// How often is looked for what must come: a minute, at four looks a second.
const LOOKS: usize = 240;
/// How often is looked for what must not come: three seconds.
const FEW_LOOKS: usize = 12;

pub(crate) const OURS: AppUid = AppUid::from_bits(0xa11);
const THEIRS: AppUid = AppUid::from_bits(0xb0b);

/// A target under test, and the deploys of it.
pub(crate) struct Bench<'a> {
    cluster: &'a dyn Clusters,
    rollouts: Arc<dyn RolloutDriver>,
    pub(crate) app: AppId,
    pub(crate) target: Target,
}

impl<'a> Bench<'a> {
    /// A registered target that exists, if the cluster can have one that no driver made, or else is to be created.
    pub(crate) async fn new(cluster: &'a dyn Clusters, name: &str) -> Self {
        let app = cluster.app(name);
        // Most cases are about deploys, and begin anywhere.
        let _ = cluster.prepare(&app).await;
        Self::registered(cluster, app).await
    }

    /// A registered target that existed before.
    pub(crate) async fn adopted(cluster: &'a dyn Clusters, name: &str) -> Can<Self> {
        let app = cluster.app(name);
        cluster.prepare(&app).await?;
        Ok(Self::registered(cluster, app).await)
    }

    /// A registered target that does not exist.
    async fn absent(cluster: &'a dyn Clusters, name: &str) -> Self {
        Self::registered(cluster, cluster.app(name)).await
    }

    async fn registered(cluster: &'a dyn Clusters, app: AppId) -> Self {
        let bench = Self { cluster, rollouts: cluster.rollouts(), app, target: Target::default() };
        let target = match bench.validate(&bench.request()).await {
            Validated::Adopt { settings, .. } => Target { settings, ..Target::default() },
            Validated::Create { settings, .. } => {
                Target { settings, requested: Some(cluster.settings(&bench.app)), take_over: None }
            }
            Validated::Invalid(invalid) => panic!("the harness gives settings that are valid: {invalid:?}"),
        };
        Self { target, ..bench }
    }

    /// The same through another driver, as another process has it.
    async fn another(&self) -> Can<Self> {
        let rollouts = self.cluster.another().await?;
        Ok(Self { cluster: self.cluster, rollouts, app: self.app.clone(), target: self.target.clone() })
    }

    /// The registration as a person asks for it.
    fn request(&self) -> TargetRequest {
        TargetRequest {
            app: self.app.clone(),
            settings: self.cluster.settings(&self.app),
            image: self.cluster.image(Sample::Good).ok(),
            built: false,
            take_over: false,
            registered: None,
            others: Vec::new(),
        }
    }

    async fn validate(&self, request: &TargetRequest) -> Validated {
        self.patiently(async || self.rollouts.validate(request).await).await
    }

    pub(crate) fn order(&self, uid: AppUid, revision: u64, sample: Sample) -> Can<RolloutSpec> {
        let id = DeployId { app: uid, revision: samples::revision(revision) };
        let spec = RolloutSpec::new(self.app.clone(), id, self.target.clone(), self.cluster.image(sample)?);
        Ok(spec.with(|spec| spec.cause = format!("a case of the suite, revision {revision}")))
    }

    /// The order that puts a failed deploy right, by the version that ran as revision `to`.
    pub(crate) fn restore(&self, revision: u64, to: u64, sample: Sample) -> Can<RolloutSpec> {
        let purpose = Purpose::Restore { to: samples::revision(to) };
        Ok(self.order(OURS, revision, sample)?.with(|spec| spec.purpose = purpose))
    }

    /// The app, as its registration is.
    pub(crate) fn app(&self) -> App {
        let sample = samples::app("shop", "test", "api");
        App { id: self.app.clone(), uid: OURS, target: self.target.clone(), ..sample }
    }

    /// The answer to the order; what may pass, such as a conflict with the cluster's own writing, is tried again.
    pub(crate) async fn apply(&self, order: &RolloutSpec) -> Applied {
        self.patiently(async || self.rollouts.apply(order).await).await
    }

    async fn observe(&self, order: &RolloutSpec) -> Observation {
        self.patiently(async || self.rollouts.observe(order).await).await
    }

    pub(crate) async fn patiently<T>(&self, call: impl AsyncFn() -> Result<T>) -> T {
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

    /// Looks until it is complete, and no old instance is left that is to end.
    pub(crate) async fn until_complete(&self, order: &RolloutSpec) -> Observation {
        self.until(order, "complete", |seen| is_complete(seen) && seen.leaving.is_none()).await
    }

    /// Applies, and waits until it runs.
    pub(crate) async fn roll_out(&self, order: &RolloutSpec) -> Observation {
        assert_eq!(self.apply(order).await, Applied::Done);
        self.until_complete(order).await
    }

    async fn never_complete(&self, order: &RolloutSpec) {
        for _ in 0..FEW_LOOKS {
            let seen = self.observe(order).await;
            assert!(!is_complete(&seen), "it does not run, and is called complete: {seen:?}");
            self.cluster.pause().await;
        }
    }

    /// The instances that run; there must be some.
    pub(crate) async fn instances(&self) -> Can<Vec<Instance>> {
        let running = self.cluster.instances(&self.app, &self.target).await?;
        assert!(!running.is_empty(), "it is called complete, and nothing runs");
        Ok(running)
    }

    pub(crate) async fn fingerprint(&self) -> String {
        self.cluster.fingerprint(&self.app, &self.target).await
    }

    /// The registration whose deploy id the target carries, and the image that it runs.
    async fn stored(&self) -> (Option<AppUid>, ImageRef) {
        let request = TargetRequest { take_over: true, ..self.request() };
        match self.validate(&request).await {
            Validated::Adopt { take_over, image, .. } => (take_over, image),
            other @ (Validated::Create { .. } | Validated::Invalid(_)) => panic!("the target is there: {other:?}"),
        }
    }
}

fn is_complete(seen: &Observation) -> bool {
    matches!(seen.phase, Phase::Complete { .. })
}

fn ids(instances: &[Instance]) -> BTreeSet<&str> {
    instances.iter().map(|instance| instance.id.as_str()).collect()
}

/// Whether both name the same image, which the cluster may spell in full.
fn is_same(found: &ImageRef, image: &ImageRef) -> bool {
    found.same_bits(None, image, None)
}

#[track_caller]
fn assert_refused(answer: &Applied, code: &str) {
    let Applied::Refused { reason, message } = answer else { panic!("not refused: {answer:?}") };
    assert_eq!(reason.as_str(), code, "{message}");
    assert!(!message.is_empty(), "a person is told why");
}
