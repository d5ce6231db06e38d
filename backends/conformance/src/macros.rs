//! One `#[test]` per case.

/// Stamps the cases of `HistoryStore`, `TokenStore` and `RecordStore`, each on a store of its own.
///
/// The first argument drives a future to its end (`fn(impl Future<Output = T>) -> T`), also on other threads at the
/// same time; the second is an expression, which may await, of type [`Can`](crate::Can) of a [`Stores`](crate::Stores).
#[macro_export]
macro_rules! stores {
    ($block_on:expr, $fresh:expr $(,)?) => {
        $crate::cases! { $block_on, $fresh, tokens:
            put_then_find,
            put_replaces_at_once,
            find_unknown_is_none,
            find_reads_the_store,
            find_fitting_opens_by_what_is_stored,
            mark_changes_with_the_token,
            rotate_keeps_the_token_before,
            remove_forgets,
            put_for_a_gone_app_is_not_found,
            stored_token_is_sealed,
            put_outlives_an_abrupt_end,
        }
        $crate::cases! { $block_on, $fresh, configurations:
            put_then_get,
            put_again_is_the_same,
            get_unknown_is_none,
            list_has_each_once,
            remove_forgets,
            put_for_a_gone_app_is_not_found,
            bytes_of_an_environment,
            configurations_go_with_their_app,
            stored_configuration_is_sealed,
            put_outlives_an_abrupt_end,
        }
        $crate::cases! { $block_on, $fresh, history:
            load_unknown_is_none,
            commit_then_load,
            register_taken_conflicts,
            register_namespace_of_another_pair_conflicts,
            register_keeps_keys_and_ended,
            commit_on_another_version_conflicts,
            commit_keeps_keys,
            commit_archives_and_forgets,
            deploy_that_ends_as_it_is_accepted_is_archived,
            forgotten_deploys_free_their_keys,
            commit_answers_each,
            commit_outlives_an_abrupt_end,
            remove_takes_everything,
            page_is_newest_first,
            page_has_no_logs,
            list_is_sorted_and_paged,
            fresh_list_has_what_others_committed,
            work_is_what_no_living_replica_drives,
            heartbeat_names_the_living,
            bind_driver_keeps_the_first,
            watch_follows_commits,
            corrupt_is_an_error,
        }
        $crate::cases! { $block_on, $fresh, records:
            write_then_read,
            read_returns_what_is_stored,
            kinds_are_apart,
            write_is_compare_and_swap,
            write_keeps_created_at,
            remove_forgets,
            versions_are_not_reused,
            expired_is_gone,
            list_is_newest_first,
            remove_oldest_keeps_the_newest,
            write_outlives_an_abrupt_end,
        }

        #[test]
        fn commits_on_threads_have_one_winner() {
            let outcome = ($block_on)(async {
                let harness = $fresh?;
                $crate::threads::commits_have_one_winner(&harness, |thread| ($block_on)(thread)).await
            });
            let case = concat!(env!("CARGO_PKG_NAME"), "/", module_path!(), "::commits_on_threads_have_one_winner");
            $crate::report(case, outcome);
        }

        #[test]
        fn record_writes_on_threads_have_one_winner() {
            let outcome = ($block_on)(async {
                let harness = $fresh?;
                $crate::threads::record_writes_have_one_winner(&harness, |thread| ($block_on)(thread)).await
            });
            let case =
                concat!(env!("CARGO_PKG_NAME"), "/", module_path!(), "::record_writes_on_threads_have_one_winner");
            $crate::report(case, outcome);
        }
    };
}

/// Stamps the cases of `RolloutDriver`, each on a workload of its own.
///
/// The arguments are those of [`stores!`], but that the expression is of type [`Can`](crate::Can) of a
/// [`Clusters`](crate::Clusters).
#[macro_export]
macro_rules! rollouts {
    ($block_on:expr, $fresh:expr $(,)?) => {
        $crate::cases! { $block_on, $fresh, rollouts:
            identity_is_stable,
            validate_changes_nothing,
            validate_fills_in_defaults,
            validate_adopts_what_runs,
            validate_absent_is_created,
            validate_names_an_invalid_setting,
            validate_foreign_is_taken,
            validate_names_settings_of_creation,
            validate_knows_its_own,
            validate_of_another_app_is_taken,
            apply_then_observe_complete,
            drift_is_told_until_the_next_deploy,
            at_rest_a_healthy_target_stays_complete,
            at_rest_a_crash_loop_is_seen,
            at_rest_recovery_is_seen,
            apply_is_idempotent,
            apply_older_is_refused,
            apply_older_is_refused_after_a_restart,
            apply_race_ends_at_the_newest,
            apply_dropped_is_made_good,
            apply_foreign_is_refused,
            apply_same_image_rolls_again,
            restore_keeps_what_still_runs,
            restore_keeps_nothing_of_the_failed_deploy,
            apply_takes_the_digest_and_not_the_tag,
            apply_missing_is_created_or_refused,
            apply_keeps_the_configuration,
            apply_sets_the_variables,
            restore_brings_the_variables_back,
            variable_of_another_is_refused,
            variable_of_another_refuses_no_return,
            settings_come_back_with_their_configuration,
            settings_are_of_their_own_app,
            apply_stops_and_starts,
            apply_leaves_a_stopped_target_stopped,
            adopt_changes_nothing,
            observe_old_is_not_new,
            observe_complete_leaves_no_old_instance,
            observe_never_ready_is_not_complete,
            observe_dead_is_not_complete,
            observe_counts_restarts,
            observe_keeps_past_lives,
            observe_down_while_nothing_serves,
            observe_digest_is_what_runs,
            observe_digest_stays_where_a_tag_moves,
            observe_changed_by_another_is_not_complete,
            observe_reports_failing_image,
            observe_reports_crash,
            observe_failure_ends_with_recovery,
            progress_stands_still_with_the_rollout,
            evidence_has_the_log,
            evidence_is_of_its_own_deploy,
            changed_is_only_a_hint,
            calls_answer_in_time,
            discard_changes_nothing_that_runs,
            has_says_what_is_stored,
            forget_changes_nothing_that_runs,
            away_is_unavailable,
        }
    };
}

/// Stamps the cases of `ReleaseRunner`, each on a target of its own.
///
/// The arguments are those of [`stores!`], but that the expression is of type [`Can`](crate::Can) of a
/// [`Releases`](crate::Releases).
#[macro_export]
macro_rules! releases {
    ($block_on:expr, $fresh:expr $(,)?) => {
        $crate::cases! { $block_on, $fresh, releases:
            prepare_begins_nothing,
            start_runs_to_the_end,
            command_has_the_variables,
            start_is_once,
            start_of_unknown_runs_nothing,
            prepare_of_known_changes_nothing,
            failed_command_keeps_its_log,
            missing_image_never_begins,
            cancel_ends_for_good,
            observe_unknown_is_unknown,
            end_outlives_a_restart,
            target_stays_as_it_is,
            runs_of_all_kinds_are_apart,
            release_log_is_read_in_parts,
        }
    };
}

/// Stamps the cases of `InstanceLogs`, each on a target of its own.
///
/// The arguments are those of [`rollouts!`].
#[macro_export]
macro_rules! instances {
    ($block_on:expr, $fresh:expr $(,)?) => {
        $crate::cases! { $block_on, $fresh, instances:
            instances_are_those_of_the_target,
            instance_log_has_what_was_written,
            instance_log_goes_on_behind_a_position,
            previous_is_the_life_before,
            instance_log_of_unknown_is_none,
            instance_logs_away_is_unavailable,
        }
    };
}

/// Stamps the cases of `InstanceAddresses`, each on a target of its own.
///
/// The arguments are those of [`rollouts!`].
#[macro_export]
macro_rules! addresses {
    ($block_on:expr, $fresh:expr $(,)?) => {
        $crate::cases! { $block_on, $fresh, addresses:
            addresses_are_of_ready_instances_of_the_deploy,
            addresses_have_no_old_instance,
            addresses_of_a_restore_are_of_what_it_keeps,
            addresses_away_is_unavailable,
        }
    };
}

/// Stamps the cases of `BuildTrigger`, each on a builder of its own.
///
/// The arguments are those of [`stores!`], but that the expression is of type [`Can`](crate::Can) of a
/// [`Builders`](crate::Builders).
#[macro_export]
macro_rules! builds {
    ($block_on:expr, $fresh:expr $(,)?) => {
        $crate::cases! { $block_on, $fresh, builds:
            start_then_observe_built,
            start_is_idempotent,
            start_while_another_runs_is_busy,
            start_resolves_a_short_commit,
            unknown_commit_fails,
            ambiguous_commit_fails,
            failed_build_keeps_its_log,
            cancel_ends_and_frees,
            observe_unknown_is_unknown,
            running_is_what_has_not_ended,
            end_outlives_a_restart,
            log_is_read_in_parts,
            forgets_a_deleted_app,
        }
    };
}

/// Stamps the cases of `BranchReader`, each on a source of its own.
///
/// The arguments are those of [`stores!`], but that the expression is of type [`Can`](crate::Can) of a
/// [`Branches`](crate::Branches).
#[macro_export]
macro_rules! branches {
    ($block_on:expr, $fresh:expr $(,)?) => {
        $crate::cases! { $block_on, $fresh, branch_reader:
            head_is_the_branchs,
            head_follows_a_push,
            head_of_no_branch_is_none,
            head_of_a_silent_source_is_unavailable,
            head_of_a_closed_source_is_denied,
            log_is_the_branchs,
            log_follows_a_push,
            log_of_no_branch_is_empty,
            log_of_a_silent_source_is_unavailable,
            log_of_a_closed_source_is_denied,
        }
    };
}

/// Stamps the cases of `Verifier`, each with a provider of its own.
///
/// The arguments are those of [`stores!`], but that the expression is of type [`Can`](crate::Can) of a
/// [`Verifiers`](crate::Verifiers).
#[macro_export]
macro_rules! verifiers {
    ($block_on:expr, $fresh:expr $(,)?) => {
        $crate::cases! { $block_on, $fresh, verifier:
            settings_are_complete_once_checked,
            settings_of_an_unknown_kind_are_refused,
            met_condition_passes,
            unmet_condition_fails,
            silence_is_no_verdict,
            measure_is_bounded,
        }
    };
}

/// Stamps the cases of `Registry`, each with a repository of its own.
///
/// The arguments are those of [`stores!`], but that the expression is of type [`Can`](crate::Can) of a
/// [`Registries`](crate::Registries).
#[macro_export]
macro_rules! registries {
    ($block_on:expr, $fresh:expr $(,)?) => {
        $crate::cases! { $block_on, $fresh, registry:
            resolve_is_what_was_pushed,
            resolve_follows_a_moved_tag,
            resolve_by_digest_is_that_image,
            resolve_names_the_platforms,
            resolve_reads_the_labels,
            missing_tag_is_not_found,
            missing_repository_is_not_found,
            tags_are_all_there,
            closed_repository_is_denied,
            away_is_unavailable,
            busy_is_unavailable_with_its_time,
            wrong_answer_is_no_image,
            answers_are_bounded,
        }
    };
}

/// Stamps the cases of `ImageVerifier`, each with images of its own.
///
/// The arguments are those of [`stores!`], but that the expression is of type [`Can`](crate::Can) of
/// [`Signings`](crate::Signings).
#[macro_export]
macro_rules! signatures {
    ($block_on:expr, $fresh:expr $(,)?) => {
        $crate::cases! { $block_on, $fresh, signatures:
            signed_image_is_signed,
            signature_of_another_counts_for_nothing,
            signature_of_another_image_counts_for_nothing,
            image_without_signatures_is_not_signed,
            unreadable_signature_counts_for_nothing,
            attestation_is_that_of_its_builder,
            attestation_is_no_signature,
            image_has_a_digest,
            away_is_unavailable,
            busy_is_unavailable_with_its_time,
            closed_repository_is_denied,
            answers_are_bounded,
        }
    };
}

/// Stamps the named cases of one suite; [`stores!`], [`rollouts!`], [`releases!`], [`instances!`], [`addresses!`],
/// [`builds!`], [`branches!`], [`verifiers!`], [`registries!`] and [`signatures!`] name them all.
#[macro_export]
macro_rules! cases {
    ($block_on:expr, $fresh:expr, $suite:ident: $($case:ident),+ $(,)?) => {
        mod $suite {
            #[allow(unused_imports)]
            use super::*;

            $(
                #[test]
                fn $case() {
                    let outcome = ($block_on)(async {
                        let harness = $fresh?;
                        $crate::$suite::$case(&harness).await
                    });
                    $crate::report(concat!(env!("CARGO_PKG_NAME"), "/", module_path!(), "::", stringify!($case)), outcome);
                }
            )+
        }
    };
}

/// Stamps one test that compares the ledger on a store with a model of both over random sequences of changes.
///
/// The first two arguments are those of [`stores!`]; the third is the number of sequences, each on a fresh store and up
/// to sixty operations long. 500 suit a store in memory and take seconds there. A store that flushes a disk or crosses
/// a network at each commit gets a few dozen in everyday tests, and some hundred before a release. A failure is shrunk
/// to a short sequence, which takes many more runs.
#[macro_export]
macro_rules! model {
    ($block_on:expr, $fresh:expr, $cases:expr $(,)?) => {
        #[test]
        fn history_agrees_with_its_model() {
            let outcome = $crate::model::check($cases, |ops| {
                ($block_on)(async {
                    let harness = $fresh?;
                    $crate::model::agree(&harness, ops).await
                })
            });
            let case = concat!(env!("CARGO_PKG_NAME"), "/", module_path!(), "::history_agrees_with_its_model");
            $crate::report(case, outcome);
        }
    };
}
