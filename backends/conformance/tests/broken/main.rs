//! Rollout drivers and stores that break one promise each, and the case that notices.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a broken promise is the exception")]

mod addresses;
mod driver;
mod images;
mod instances;
mod records;
mod registry;
mod releases;
#[path = "../simulated/mod.rs"]
mod simulated;
#[path = "../simulated/registry.rs"]
mod simulated_registry;
#[path = "../simulated/verifier.rs"]
mod simulated_verifier;
mod stops;
mod store;
mod verifier;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use async_trait::async_trait;
use driver::{Broken, Promise};
use records::{BrokenRecordStores, RecordPromise};
use rollhook_conformance::{
    Can, Clusters, Instance, Sample, Stores, block_on, history, records as cases, rollouts, threads, tokens,
};
use rollhook_core::{
    app::{AppId, Settings, Target},
    image::{Digest, ImageRef},
    ports::RolloutDriver,
};
use simulated::Simulated;
use store::{BrokenStore, BrokenStores, StorePromise};

/// The simulated cluster, under drivers that break a promise.
struct BrokenCluster {
    simulated: Simulated,
    promise: Promise,
    driver: Arc<Broken>,
}

impl BrokenCluster {
    fn new(promise: Promise) -> Self {
        let simulated = Simulated::fresh().unwrap();
        let driver = Arc::new(Broken::new(&simulated, promise));
        Self { simulated, promise, driver }
    }
}

#[async_trait]
impl Clusters for BrokenCluster {
    fn rollouts(&self) -> Arc<dyn RolloutDriver> {
        self.driver.clone()
    }

    async fn another(&self) -> Can<Arc<dyn RolloutDriver>> {
        Ok(Arc::new(Broken::new(&self.simulated, self.promise)))
    }

    async fn away(&self) -> Can<Arc<dyn RolloutDriver>> {
        self.simulated.away().await
    }

    fn app(&self, name: &str) -> AppId {
        self.simulated.app(name)
    }

    fn image(&self, sample: Sample) -> Can<ImageRef> {
        self.simulated.image(sample)
    }

    fn settings(&self, app: &AppId) -> Settings {
        self.simulated.settings(app)
    }

    fn invalid_settings(&self) -> Can<(Settings, &'static str)> {
        self.simulated.invalid_settings()
    }

    async fn prepare(&self, app: &AppId) -> Can {
        self.simulated.prepare(app).await
    }

    async fn push(&self, image: &ImageRef, sample: Sample) -> Can {
        self.simulated.push(image, sample).await
    }

    async fn meddle(&self, app: &AppId, target: &Target, image: &ImageRef) -> Can {
        self.simulated.meddle(app, target, image).await
    }

    async fn remove(&self, app: &AppId, target: &Target) -> Can {
        self.simulated.remove(app, target).await
    }

    async fn fingerprint(&self, app: &AppId, target: &Target) -> String {
        format!("{} {:?}", self.simulated.fingerprint(app, target).await, self.driver.restamped())
    }

    async fn configuration(&self, app: &AppId, target: &Target) -> Can<String> {
        self.simulated.configuration(app, target).await
    }

    fn made_with_settings(&self) -> Option<[Settings; 2]> {
        self.simulated.made_with_settings()
    }

    async fn made_with(&self, app: &AppId, target: &Target) -> Can<Vec<String>> {
        self.simulated.made_with(app, target).await
    }

    async fn instances(&self, app: &AppId, target: &Target) -> Can<Vec<Instance>> {
        let running = self.simulated.instances(app, target).await?;
        Ok(running.into_iter().chain(self.driver.left()).collect())
    }

    async fn digest(&self, image: &ImageRef) -> Can<Digest> {
        self.simulated.digest(image).await
    }

    async fn logged(&self, app: &AppId, target: &Target) -> Can<String> {
        self.simulated.logged(app, target).await
    }

    fn container(&self) -> Option<&'static str> {
        self.simulated.container()
    }

    async fn pause(&self) {
        self.simulated.pause().await;
    }
}

/// Runs a case on a driver that breaks a promise, which must fail with these words, and on one that breaks none.
fn notices(promise: Promise, case: impl AsyncFn(&dyn Clusters) -> Can, words: &str) {
    assert_eq!(block_on(case(&BrokenCluster::new(Promise::Kept))), Ok(()), "the driver itself keeps its promises");
    let broken = BrokenCluster::new(promise);
    assert_panics(|| block_on(case(&broken)), &format!("{promise:?}"), words);
}

/// Runs a case on a store that breaks a promise, which must fail with these words, and on one that breaks none.
fn store_notices(promise: StorePromise, case: impl AsyncFn(&dyn Stores) -> Can, words: &str) {
    let kept = BrokenStores(BrokenStore::new(StorePromise::Kept));
    assert_eq!(block_on(case(&kept)), Ok(()), "the store itself keeps its promises");
    let broken = BrokenStores(BrokenStore::new(promise));
    assert_panics(|| block_on(case(&broken)), &format!("{promise:?}"), words);
}

/// Runs a case on records of which a promise is broken, which must fail with these words, and on such as keep them all.
fn records_notice(promise: RecordPromise, case: impl AsyncFn(&dyn Stores) -> Can, words: &str) {
    assert_eq!(block_on(case(&BrokenRecordStores::new(RecordPromise::Kept))), Ok(()), "the store keeps its promises");
    let broken = BrokenRecordStores::new(promise);
    assert_panics(|| block_on(case(&broken)), &format!("{promise:?}"), words);
}

fn assert_panics(case: impl FnOnce() -> Can, promise: &str, words: &str) {
    let outcome = catch_unwind(AssertUnwindSafe(case));
    let Err(panic) = outcome else { panic!("{promise} was not noticed") };
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    assert!(text.is_some_and(|text| text.contains(words)), "{promise} was noticed for another reason: {text:?}");
}

#[test]
fn commit_in_two_steps_is_noticed() {
    let case = async |store: &dyn Stores| threads::commits_have_one_winner(store, |thread| block_on(thread)).await;
    store_notices(StorePromise::CommitIsOneStep, case, "one of the commits on a version is written");
}

#[test]
fn key_that_outlives_its_app_is_noticed() {
    store_notices(StorePromise::KeysGo, history::remove_takes_everything, "a removed app's keys are free");
}

#[test]
fn heartbeat_without_its_last_moment_is_noticed() {
    let case = history::heartbeat_names_the_living;
    store_notices(StorePromise::WholeTtl, case, "alive while no older than its ttl");
}

#[test]
fn heartbeat_of_the_future_that_does_not_count_is_noticed() {
    let case = history::heartbeat_names_the_living;
    store_notices(StorePromise::FutureCounts, case, "a heartbeat of the future counts from now on");
}

#[test]
fn lost_keys_of_a_registration_are_noticed() {
    let case = history::register_keeps_keys_and_ended;
    store_notices(StorePromise::RegistrationKeepsKeys, case, "a registration's key is in use");
}

#[test]
fn lost_ended_deploys_of_a_registration_are_noticed() {
    let case = history::register_keeps_keys_and_ended;
    store_notices(StorePromise::RegistrationKeepsEnded, case, "a registration's ended deploys are in the archive");
}

#[test]
fn page_with_evidence_is_noticed() {
    let case = history::page_has_no_logs;
    store_notices(StorePromise::PagesLackEvidence, case, "has the deploys without their logs");
}

#[test]
fn list_from_memory_is_noticed() {
    let case = history::fresh_list_has_what_others_committed;
    store_notices(StorePromise::ListIsFresh, case, "a fresh list has what was committed before");
}

#[test]
fn lost_time_of_a_registration_is_noticed() {
    store_notices(StorePromise::RegistrationTime, history::commit_then_load, "loaded as it was committed");
}

#[test]
fn token_without_its_time_is_noticed() {
    store_notices(StorePromise::TokenTime, tokens::put_then_find, "is the store's time");
}

#[test]
fn namespace_that_is_judged_before_the_name_is_noticed() {
    let case = history::register_namespace_of_another_pair_conflicts;
    store_notices(StorePromise::AppBeforeNamespace, case, "not Conflict(App)");
}

#[test]
fn deploy_id_in_memory_is_noticed() {
    let case = rollouts::apply_older_is_refused_after_a_restart;
    notices(Promise::IdIsKept, case, "the restarted driver does not know the deploy id");
}

#[test]
fn compare_and_replace_in_two_steps_is_noticed() {
    let case = rollouts::apply_race_ends_at_the_newest;
    notices(Promise::FenceIsOneStep, case, "the older deploy overtook the newer one");
}

#[test]
fn call_that_was_dropped_and_blocks_the_next_is_noticed() {
    notices(Promise::DropsAreMadeGood, rollouts::apply_dropped_is_made_good, "Conflict(Object)");
}

#[test]
fn old_instance_left_running_is_noticed() {
    let case = rollouts::observe_complete_leaves_no_old_instance;
    notices(Promise::OldOnesEnd, case, "an old instance runs while revision 2 is called complete");
}

#[test]
fn restarts_that_are_always_zero_are_noticed() {
    notices(Promise::RestartsCount, rollouts::observe_counts_restarts, "not counted as restarted");
}

#[test]
fn invented_digest_is_noticed() {
    notices(Promise::DigestIsObserved, rollouts::observe_digest_is_what_runs, "the digest is not the one of what runs");
}

#[test]
fn missing_digest_is_noticed() {
    notices(Promise::DigestIsTold, rollouts::observe_digest_is_what_runs, "the digest is not the one of what runs");
}

#[test]
fn lost_configuration_is_noticed() {
    let case = rollouts::apply_keeps_the_configuration;
    notices(Promise::ConfigurationStays, case, "the configuration was changed by revision 2");
}

#[test]
fn settings_that_a_restore_forgets_are_noticed() {
    let case = rollouts::settings_come_back_with_their_configuration;
    notices(Promise::SettingsAreRestored, case, "the restore brings the settings back");
}

#[test]
fn settings_that_stay_are_noticed() {
    let case = rollouts::settings_come_back_with_their_configuration;
    notices(Promise::SettingsEnd, case, "without settings it is as others gave it");
}

#[test]
fn settings_of_another_app_are_noticed() {
    let case = rollouts::settings_are_of_their_own_app;
    notices(Promise::SettingsAreOwn, case, "the instances of each app have its own settings");
}

#[test]
fn lost_log_is_noticed() {
    notices(Promise::LogIsEvidence, rollouts::evidence_has_the_log, "no evidence with the line");
}

#[test]
fn instance_that_never_gets_ready_and_is_called_complete_is_noticed() {
    let case = rollouts::observe_never_ready_is_not_complete;
    notices(Promise::ReadyIsComplete, case, "it does not run, and is called complete");
}

#[test]
fn instance_that_died_and_is_called_complete_is_noticed() {
    notices(Promise::DeathIsSeen, rollouts::observe_dead_is_not_complete, "not seen to have ended");
}

#[test]
fn old_version_that_is_called_complete_is_noticed() {
    notices(Promise::OwnInstances, rollouts::observe_old_is_not_new, "not even applied");
}

#[test]
fn forgetting_that_frees_the_target_is_noticed() {
    notices(Promise::ForgottenRuns, rollouts::forget_changes_nothing_that_runs, "it does not run any more");
}

#[test]
fn discarding_that_ends_what_runs_is_noticed() {
    notices(Promise::DiscardedRuns, rollouts::discard_changes_nothing_that_runs, "the target was changed");
}

#[test]
fn image_that_is_not_there_and_is_said_to_be_stored_is_noticed() {
    notices(Promise::StoredIsThere, rollouts::has_says_what_is_stored, "is said to be stored");
}

#[test]
fn process_that_is_kept_and_restamped_is_noticed() {
    let case = rollouts::apply_same_image_rolls_again;
    notices(Promise::SameImageRolls, case, "instances of revision 1 were kept, and are called revision 2");
}

#[test]
fn restore_that_replaces_what_still_runs_is_noticed() {
    notices(Promise::RestoreKeeps, rollouts::restore_keeps_what_still_runs, "what still ran was replaced");
}

#[test]
fn restore_that_takes_over_the_failed_deploys_instances_is_noticed() {
    let case = rollouts::restore_keeps_nothing_of_the_failed_deploy;
    notices(Promise::FailedIsNotKept, case, "instances of the failed deploy were called the restore's");
}

#[test]
fn tag_that_beats_the_digest_is_noticed() {
    let case = rollouts::apply_takes_the_digest_and_not_the_tag;
    notices(Promise::DigestBeatsTag, case, "the tag was taken, and not the digest beside it");
}

#[test]
fn tag_that_runs_while_the_digest_is_reported_is_noticed() {
    let case = rollouts::apply_takes_the_digest_and_not_the_tag;
    notices(Promise::DigestRuns, case, "an instance runs what the tag means, and not the digest beside it");
}

#[test]
fn digest_of_what_the_tag_means_now_is_noticed() {
    let case = rollouts::observe_digest_stays_where_a_tag_moves;
    notices(Promise::DigestStays, case, "the digest is what the tag means now, and not what runs");
}

#[test]
fn old_instance_that_crashes_on_is_noticed() {
    let case = rollouts::observe_complete_leaves_no_old_instance;
    notices(Promise::CrashingOnesEnd, case, "an old instance runs while revision 4 is called complete");
}

#[test]
fn restarts_in_the_memory_of_a_driver_are_noticed() {
    let case = rollouts::observe_counts_restarts;
    notices(Promise::RestartsAreKept, case, "a restarted driver has lost restarts");
}

#[test]
fn past_lives_that_are_not_reported_are_noticed() {
    notices(Promise::LivesAreTold, rollouts::observe_keeps_past_lives, "not seen with a past life");
}

#[test]
fn past_lives_in_the_memory_of_a_driver_are_noticed() {
    notices(Promise::LivesAreKept, rollouts::observe_keeps_past_lives, "a restarted driver has lost lives");
}

#[test]
fn app_that_is_down_and_not_called_so_is_noticed() {
    notices(Promise::DownIsTold, rollouts::observe_down_while_nothing_serves, "it is not called down");
}

#[test]
fn time_of_being_down_in_the_memory_of_a_driver_is_noticed() {
    notices(Promise::DownIsKept, rollouts::observe_down_while_nothing_serves, "a restarted driver has lost the time");
}

#[test]
fn log_of_the_deploy_before_is_noticed() {
    let case = rollouts::evidence_is_of_its_own_deploy;
    notices(Promise::EvidenceIsOwn, case, "the evidence has the log of the deploy before");
}

#[test]
fn apply_that_blocks_is_noticed() {
    notices(Promise::AnswersInTime, rollouts::calls_answer_in_time, "apply does not answer within 10 s");
}

#[test]
fn failure_that_stays_is_noticed() {
    let case = rollouts::observe_failure_ends_with_recovery;
    notices(Promise::FailureEnds, case, "the failure stays, though the instances have recovered");
}

#[test]
fn progress_that_is_a_time_is_noticed() {
    let case = rollouts::progress_stands_still_with_the_rollout;
    notices(Promise::ProgressStandsStill, case, "the progress does not stand still, though the rollout does");
}

#[test]
fn progress_that_is_always_the_same_is_noticed() {
    let case = rollouts::progress_stands_still_with_the_rollout;
    notices(Promise::ProgressMoves, case, "it moved, and its progress did not");
}

#[test]
fn hint_that_panics_is_noticed() {
    notices(Promise::HintsDoNotPanic, rollouts::changed_is_only_a_hint, "changed panics before it was applied");
}

#[test]
fn hint_that_panics_at_its_call_is_noticed() {
    notices(Promise::HintsAreFutures, rollouts::changed_is_only_a_hint, "changed panics while it is under way");
}

#[test]
fn adopted_deploy_that_stays_complete_is_noticed() {
    let case = rollouts::observe_changed_by_another_is_not_complete;
    notices(Promise::AdoptedMayChange, case, "not seen to be changed by another");
}

#[test]
fn healthy_target_that_is_shown_in_trouble_is_noticed() {
    let case = rollouts::at_rest_a_healthy_target_stays_complete;
    notices(Promise::HealthyStaysComplete, case, "a healthy target is shown in trouble");
}

#[test]
fn crash_loop_after_a_success_that_is_not_reported_is_noticed() {
    let case = rollouts::at_rest_a_crash_loop_is_seen;
    notices(Promise::CrashLoopIsSeen, case, "a crash loop after a success was not seen within a minute");
}

#[test]
fn crash_loop_without_a_hint_is_noticed() {
    let case = rollouts::at_rest_a_crash_loop_is_seen;
    notices(Promise::CrashLoopIsHinted, case, "a crash loop after a success was not seen within a minute");
}

#[test]
fn trouble_that_stays_after_the_recovery_is_noticed() {
    let case = rollouts::at_rest_recovery_is_seen;
    notices(Promise::RecoveryIsSeen, case, "a recovery was not seen within a minute");
}

#[test]
fn commit_that_is_not_durable_is_noticed() {
    let case = history::commit_outlives_an_abrupt_end;
    store_notices(StorePromise::CommitsAreDurable, case, "a confirmed commit is missing after an abrupt end");
}

#[test]
fn token_that_is_not_durable_is_noticed() {
    store_notices(StorePromise::TokensAreDurable, tokens::put_outlives_an_abrupt_end, "a token");
}

#[test]
fn record_that_is_not_durable_is_noticed() {
    let case = cases::write_outlives_an_abrupt_end;
    records_notice(RecordPromise::WritesAreDurable, case, "a record that was written is gone");
}

#[test]
fn validation_with_an_effect_is_noticed() {
    notices(Promise::ValidationReads, rollouts::validate_changes_nothing, "TargetRequest");
}

#[test]
fn setting_that_is_dropped_in_silence_is_noticed() {
    let case = rollouts::validate_names_settings_of_creation;
    notices(Promise::UnusedIsNamed, case, "what is not used is named");
}

#[test]
fn own_deploy_id_that_is_refused_is_noticed() {
    notices(Promise::OwnIsKnown, rollouts::validate_knows_its_own, "not its own");
}

#[test]
fn record_written_in_two_steps_is_noticed() {
    let case =
        async |store: &dyn Stores| threads::record_writes_have_one_winner(store, |thread| block_on(thread)).await;
    records_notice(RecordPromise::WriteIsOneStep, case, "one of the writes on a version is made");
}

#[test]
fn write_of_what_is_stored_that_is_left_out_is_noticed() {
    let case = cases::write_is_compare_and_swap;
    records_notice(RecordPromise::EachWriteCounts, case, "each write makes another version");
}

#[test]
fn version_that_begins_anew_is_noticed() {
    records_notice(RecordPromise::VersionsGrow, cases::versions_are_not_reused, "was used before");
}

#[test]
fn removal_that_another_handle_does_not_see_is_noticed() {
    records_notice(RecordPromise::ReadIsFresh, cases::read_returns_what_is_stored, "left == right");
}

#[test]
fn expired_record_that_is_returned_is_noticed() {
    records_notice(RecordPromise::ExpiredIsGone, cases::expired_is_gone, "left == right");
}

#[test]
fn rewritten_record_that_moves_in_the_list_is_noticed() {
    records_notice(RecordPromise::PlacesStay, cases::list_is_newest_first, "left == right");
}
