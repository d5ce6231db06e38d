//! The engine with several replicas on a store, a driver and clocks that fail, under simulated time: whatever people,
//! CI and the cluster do, and whenever a replica dies or stops, the rules hold after every write.
//!
//! ```text
//!   seed ─► choices ─► Run ── callers ─► Deployer ─► Workloads ─► Faulty ─► RecordingPorts ─► store, cluster
//!                       │                  (one per replica)         │
//!                       └── time, order, crashes             Rules ◄─┘  check what is stored and done
//! ```
//!
//! A run is one thread's, and nothing in it is random but what its choices say: `ROLLHOOK_SEED=N` replays seed N and
//! prints what happened, and `ROLLHOOK_FIRST_SEED=N` begins with seed N. A seed that breaks a rule is shrunk to a log that a person
//! can read.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

mod apply_choice;
mod broken;
mod building;
mod callers;
mod choices;
mod clock;
mod coverage;
mod environment;
mod executor;
mod faults;
mod images;
mod journal;
mod polling;
mod quiescence;
mod recording_ports;
mod registry;
mod regressions;
mod replica;
mod requests;
mod rules;
mod run;
mod seeds;
mod signatures;
mod sources;
mod verifying;
mod workloads;

use broken::Promise;
use coverage::EXPECTED;

/// How many seeds are played.
const SEEDS: u64 = 4_000;
/// Within how many seeds a broken promise is noticed.
const NOTICED: u64 = SEEDS;

#[test]
fn the_rules_hold_whatever_happens() {
    if let Some(seed) = number("ROLLHOOK_SEED") {
        println!("{}", seeds::replay(seed, None));
        return;
    }
    let count = number("ROLLHOOK_SEEDS").unwrap_or(SEEDS);
    let first = number("ROLLHOOK_FIRST_SEED").unwrap_or(0);
    let mut played = seeds::all(first..first + count, None);
    for scenario in regressions::rare() {
        let ended = run::play(&scenario, None, true);
        assert_eq!(ended.broken, None, "{}", ended.log.join("\n"));
        ended.tally.into_iter().for_each(|(what, times)| *played.tally.entry(what).or_default() += times);
    }
    for (what, times) in &played.tally {
        println!("{times:>9}  {what}");
    }
    if let Some(seed) = played.broken {
        println!("seed {seed} broke a rule, and is made short");
    }
    assert!(played.broken.is_none(), "{}", played.broken.map(|seed| seeds::shrunk(seed, None)).unwrap_or_default());
    let missing: Vec<_> = EXPECTED.iter().filter(|what| !played.tally.contains_key(**what)).collect();
    assert!(count < SEEDS || missing.is_empty(), "{count} seeds, and never: {missing:#?}");
}

#[test]
fn a_seed_is_the_same_in_every_run() {
    for seed in 0..20 {
        assert_eq!(seeds::replay(seed, None), seeds::replay(seed, None));
    }
}

/// Plays seeds on backends that break a promise until somebody notices.
fn is_noticed(promise: Promise) {
    let broken = seeds::all(0..NOTICED, Some(promise)).broken;
    let Some(seed) = broken else { panic!("{NOTICED} seeds, and nobody noticed that {promise:?} was broken") };
    let log = seeds::replay(seed, Some(promise));
    println!("{promise:?}: {}", log.lines().next().unwrap_or_default());
}

macro_rules! noticed {
    ($($name:ident: $promise:ident),* $(,)?) => {
        mod noticed {
            $(#[test]
            fn $name() {
                super::is_noticed(super::Promise::$promise);
            })*
        }
    };
}

noticed! {
    older_rollout_takes_effect: Fence,
    change_of_an_outdated_version: Version,
    a_key_that_is_written_after_its_entry: KeyWithEntry,
    a_rollback_to_the_version_before_the_right_one: Target,
    a_success_before_its_time: Settle,
    a_success_of_the_old_versions_pods: OwnPods,
    a_success_of_an_instance_that_ends_again: PastLives,
    forgotten_restore: LastRestore,
    hotfix_that_a_restore_overwrites: OthersChange,
    restore_that_replaces_what_still_runs: StillRuns,
    restore_that_takes_over_pods_of_the_failed_deploy: FailedPods,
    restore_that_ends_builds: BuildsBelowRestore,
    deploys_superseded_before_the_rollback_is_accepted: Supersede,
    lease_that_never_expires: Expiry,
    stored_time_that_goes_back: Times,
    decision_on_an_outdated_state: Guard,
    a_token_that_is_remembered: OneToken,
    build_queue_that_is_free_before_the_builds_end: BuildEnd,
    two_builds_at_once: OneBuild,
    build_that_goes_on_after_its_cancel: Cancelled,
    build_of_another_commit: ThatCommit,
    a_late_build_that_is_rolled_out: LateBuild,
    source_change_that_a_driver_misses: SourceChange,
    newest_entry_built_first: FirstIn,
    build_deadline_that_begins_anew: BuildDeadline,
    recovery_of_what_does_not_run: Recovery,
    recovery_that_is_not_recorded: RecoverySeen,
    commit_that_another_trigger_has_deployed: Brought,
    release_command_that_begins_before_it_is_recorded: ReleaseReady,
    release_command_that_has_not_ended: ReleaseEnd,
    release_command_that_goes_on_beside_the_next: ReleaseCancel,
    release_command_of_the_old_image: ReleaseImage,
    release_command_that_runs_on_a_return: ReleaseReturn,
    later_workload_that_does_not_wait: Stages,
    restore_of_the_failed_workload_alone: RestoreOfAll,
    workload_that_is_forgotten: EachWorkload,
    workload_that_is_complete_for_all: AllComplete,
    restore_without_its_configuration: WholeRelease,
    value_from_before_a_change: NewValues,
    value_of_another_app: OwnValues,
    restore_that_forgets_settings: Settings,
    settings_of_another_app: OwnSettings,
    configuration_removed_while_it_is_needed: NeededValues,
    silence_that_passes: SilencePasses,
    silence_that_fails: SilenceFails,
    question_that_is_answered_by_itself: AskedByItself,
    decision_that_counts_for_another_version: DecisionAcross,
    fails_of_the_version_before: FailsAcross,
    return_that_is_verified: ReturnVerified,
    instances_of_before_that_are_measured: EarlyMeasurements,
    silence_that_revokes: SilenceRevokes,
    watch_that_restores_twice: SecondWatchRestore,
    watch_that_goes_on_behind_a_newer_deploy: WatchGoesOn,
    fails_of_the_version_before_in_a_watch: FailsIntoWatch,
    observer_that_revokes: ObserverRevokes,
    lower_sequence_that_is_deployed_after_a_higher_one: Sequence,
    newer_commit_that_is_taken_for_an_older_one: LogOrder,
    tag_that_is_looked_up_anew_at_the_rollout: ResolvedOnce,
    rollout_that_does_not_wait_for_the_registry: WaitsForAnswer,
    newest_version_by_the_alphabet: NewestByAlphabet,
    version_that_is_followed_again: DecidedOnce,
    held_head_that_is_deployed: HoldOfFound,
    held_version_that_is_followed: HeldFollowed,
    lower_version_that_is_followed: Downgrade,
    image_that_is_taken_for_signed: Signature,
    requirement_that_a_driver_does_not_see: Required,
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
