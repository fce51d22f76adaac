//! The suite that every store passes, one module per feature.
//!
//! Each case is a plain `async fn` over a [`Fixture`](crate::Fixture) that is created for it alone. Time passes through
//! [`Fixture::advance`](crate::Fixture::advance) only: no case sleeps. [`store_suite!`](crate::store_suite) turns the cases into
//! tests.

pub mod big_batches;
pub mod bulk;
pub mod claim;
pub mod concurrency;
pub mod forward;
pub(crate) mod helpers;
pub mod identity;
pub mod inbox;
pub mod inspect;
pub mod key_failure_policies;
pub mod key_turns;
pub mod late_commits;
pub mod leases;
pub mod lookup;
mod model;
pub mod notifications;
pub mod operator_actions;
pub mod ordering;
pub mod ordering_stress;
pub mod pause;
pub mod payloads;
pub mod retention;
pub mod schema;
pub mod settle;
pub mod snooze;
pub mod stage;
pub mod tenant_fairness;
pub mod timer_changes;
pub mod timers;
pub mod timetable;
pub mod trace_context;

use std::time::Duration;

/// The time limit of a case.
const LIMIT: Duration = Duration::from_secs(60);

/// Creates a fixture and runs a case on it, for at most a minute: a case that hangs has failed.
///
/// # Panics
/// When the case panics or exceeds the time limit.
pub async fn run<F>(make: impl Future<Output = F>, case: impl AsyncFnOnce(F)) {
    let fixture = make.await;
    assert!(tokio::time::timeout(LIMIT, case(fixture)).await.is_ok(), "the case took longer than {LIMIT:?}");
}

/// Defines a test for every case of the store suite, in one module per feature.
///
/// Takes the path of an `async fn` without arguments that creates a [`Fixture`](crate::Fixture). The calling crate needs `tokio`
/// with the features `macros` and `rt-multi-thread`.
///
/// ```ignore
/// postrider_testkit::store_suite!(MemoryFixture::new);
/// ```
///
/// A store with serial transactions passes `one_writer` as a second argument: cases about concurrent transactions are left out.
#[macro_export]
macro_rules! store_suite {
    ($make:path) => {
        $crate::store_suite!($make, many_writers);
    };
    ($make:path, $writers:ident) => {
        async fn store_suite_fixture() -> impl $crate::Fixture {
            $make().await
        }

        mod negative_controls {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn every_defect_is_caught() {
                $crate::negative_controls::every_defect_is_caught(super::store_suite_fixture).await;
            }
        }

        $crate::store_suite! { @tests $writers
            stage {
                follow_ups_are_staged_like_any_message
                a_rolled_back_message_never_exists
                a_committed_message_exists_exactly_once
                an_uncommitted_message_cannot_be_claimed
                a_rolled_back_savepoint_removes_only_later_messages
                a_rolled_back_transaction_rolls_back_its_savepoints
                one_call_stages_messages_of_several_queues
                an_empty_batch_does_nothing
                batches_of_1_100_and_5000_are_staged_completely
                every_message_has_an_identity
                a_typed_event_is_stored_as_its_codec_encoded_it
                an_event_a_message_and_a_builder_are_staged_alike
                an_oversized_payload_is_rejected_and_stages_nothing
                an_invalid_builder_is_rejected_and_stages_nothing
            }
            identity {
                the_same_identity_twice_in_one_batch_is_one_message
                the_same_identity_twice_in_one_transaction_is_one_message
                the_same_identity_in_a_later_transaction_is_one_message
                a_duplicate_does_not_block_the_rest_of_its_batch
                the_identity_of_a_leased_message_is_a_duplicate
                the_identity_of_a_scheduled_message_is_a_duplicate
                the_identity_of_a_retried_message_is_a_duplicate
                the_identity_of_a_dead_letter_is_a_duplicate
                the_identity_of_an_archived_message_is_a_duplicate
                a_delivered_identity_can_be_staged_again_without_an_archive
                a_rolled_back_identity_can_be_staged_again
                the_same_identity_in_two_queues_is_two_messages
            }
            inbox {
                an_admitted_message_is_a_duplicate
                a_rolled_back_admission_leaves_no_deduplication_record
                a_rolled_back_savepoint_removes_its_deduplication_records
                a_duplicate_leaves_the_transaction_usable
                consumers_have_separate_deduplication_records
                tenants_have_separate_deduplication_records
                a_repeated_message_in_a_batch_is_a_duplicate
                admissions_of_5000_messages_are_in_batch_order
                an_empty_batch_admits_nothing
                deduplication_record_and_staged_messages_commit_together
                a_concurrent_admission_of_the_same_message_waits_for_the_first
                overlapping_batches_never_deadlock
                prune_removes_old_deduplication_records_in_bounded_steps
                prune_for_one_consumer_keeps_the_records_of_others
                prune_keeps_deduplication_records_by_default
            }
            payloads {
                every_field_is_delivered_as_staged
                a_message_without_optional_fields_is_delivered_without_them
                every_field_survives_every_state
                payloads_are_opaque_bytes
                json_is_delivered_byte_for_byte
            }
            claim {
                a_limited_claim_takes_the_oldest_first
                messages_of_one_transaction_are_claimed_in_staging_order
                messages_due_at_the_same_time_are_claimed_in_staging_order
                scheduled_messages_are_claimed_in_due_order
                a_smaller_identity_staged_later_is_not_missed
                effects_are_claimed_after_their_causes
                a_scheduled_message_is_skipped_until_it_is_due
                a_past_due_time_is_due_now
                a_leased_message_is_not_claimed_again
                a_message_with_an_expired_lease_is_reclaimed
                only_expired_leases_are_reclaimed
                every_claim_has_a_fresh_token
                an_empty_claim_takes_nothing
                a_lease_duration_out_of_range_is_rejected
                several_queues_are_claimed_together
                a_claim_reports_when_its_message_was_staged_and_due
                concurrent_claims_never_share_a_message
                a_lease_can_be_settled_through_any_handle
            }
            leases {
                a_stale_done_changes_nothing
                a_stale_retry_changes_nothing
                a_stale_dead_letter_changes_nothing
                a_stale_release_changes_nothing
                a_stale_done_archives_nothing
                a_stale_renewal_changes_nothing
                a_late_owner_does_not_overwrite_the_new_owner
                a_stale_settlement_in_a_batch_is_lost_alone
                a_forged_token_changes_nothing
                every_settlement_invalidates_the_token
                the_first_of_two_settlements_of_one_message_wins
                a_renewed_lease_outlives_its_original_duration
                deliveries_in_isolation_are_counted_until_a_failure
                deliveries_in_isolation_are_counted_on_ordered_queues
                renewing_no_leases_loses_none
                an_expired_lease_without_a_new_owner_can_be_settled
                an_expired_lease_without_a_new_owner_can_be_renewed
            }
            snooze {
                a_snoozed_message_waits_and_counts_no_attempt
                each_snoozed_message_waits_for_its_own_delay
                a_key_waits_for_its_snoozed_message
                later_settlements_of_a_snoozed_turn_are_lost
            }
            settle {
                settling_no_leases_loses_none
                a_queue_declared_by_another_process_is_settled_and_renewed
                done_removes_the_message_and_writes_no_dead_letter
                every_retry_waits_for_its_own_delay
                a_retry_counts_an_attempt_and_keeps_its_error
                a_failure_without_error_text_is_stored
                unusual_error_texts_are_stored
                a_dead_letter_is_complete_and_in_one_state_only
                every_reason_is_recorded
                a_failing_dead_letter_table_loses_nothing
                a_failing_dead_letter_table_blocks_nothing_else
                without_dead_letters_a_failed_message_is_deleted
                a_release_counts_no_attempt
                a_release_uncounts_only_its_own_delivery
                a_hundred_messages_failing_ten_times_all_become_dead_letters
                a_failed_settlement_is_an_error_and_not_a_lost_lease
            }
            big_batches {
                a_mixed_batch_of_5000_settles_each_message_as_requested
                a_batch_of_5000_retries_keeps_every_message
            }
            retention {
                a_done_message_is_archived
                archived_messages_are_pruned_after_their_retention
                prunable_rows_are_counted_before_pruning
                pruning_the_audit_log_is_audited
                prune_works_in_bounded_steps
                dead_letters_are_pruned_only_when_requested_and_old_enough
                prune_keeps_live_messages
            }
            timers {
                due_after_delays_delivery
                due_at_delays_delivery
                a_timer_name_is_unique_in_its_queue
                a_timer_name_is_unique_in_its_batch_and_transaction
                a_timer_name_is_free_in_another_queue
                a_due_timer_holds_its_name_until_it_is_delivered
                only_delivery_frees_a_timer_name
                dead_lettering_frees_a_timer_name
                a_rolled_back_timer_never_held_its_name
            }
            timer_changes {
                extending_a_missing_timer_stages_it
                a_later_time_extends_a_timer
                an_earlier_time_does_not_change_a_timer
                a_due_timer_can_be_extended_until_it_is_leased
                a_leased_timer_is_not_extended
                a_released_timer_can_be_extended
                a_timer_awaiting_retry_can_be_extended
                one_batch_can_stage_and_extend_a_timer
                a_rolled_back_extension_changes_nothing
                a_cancelled_timer_is_never_delivered
                a_due_timer_can_be_cancelled_until_it_is_leased
                a_leased_timer_cannot_be_cancelled
                a_timer_awaiting_retry_can_be_cancelled
                a_rolled_back_cancellation_changes_nothing
                a_transaction_can_cancel_its_own_timer
                an_unknown_timer_cannot_be_cancelled
            }
            timetable {
                a_schedule_starts_at_its_first_read
                a_tick_stages_its_messages_and_is_recorded
                a_tick_without_messages_is_recorded
                a_tick_raced_by_ten_schedulers_is_staged_once
                an_older_tick_after_a_newer_one_is_ignored
                every_schedule_has_its_own_ticks
                schedules_are_listed_with_their_last_ticks
                a_tick_with_an_invalid_message_records_nothing
                a_cancelled_tick_is_complete_or_absent
                a_tick_wakes_an_idle_worker
            }
            trace_context {
                a_message_staged_in_a_trace_carries_it
                an_explicit_trace_is_kept
                a_message_staged_outside_a_trace_carries_none
                an_extended_timer_carries_the_trace_of_the_extension
                a_tick_carries_the_trace_of_the_scheduler
            }
            ordering {
                each_key_is_claimed_in_staging_order
                a_key_has_one_turn_at_a_time
                order_is_kept_from_the_moment_it_is_declared
                different_keys_are_claimed_in_parallel
                a_turn_holds_several_messages_and_marks_the_last
                a_turn_ends_with_its_last_message
                a_message_without_a_key_is_not_blocked
                released_messages_count_no_attempt_and_keep_their_order
                a_whole_turn_can_be_released
                a_duplicate_on_an_ordered_queue_is_one_message
                a_timer_joins_its_key_when_it_is_due
                ordered_and_unordered_queues_are_claimed_together
                an_ordered_queue_can_archive_delivered_messages
                the_ordering_cannot_change_while_the_queue_holds_messages
            }
            key_turns {
                an_expired_turn_is_reclaimed_with_its_head_alone_and_counted
                a_stale_turn_cannot_settle_as_done
                a_stale_turn_cannot_settle_as_retry
                a_stale_turn_cannot_write_a_dead_letter
                a_stale_turn_cannot_release
                a_stale_turn_cannot_be_renewed
                a_renewed_turn_outlives_its_original_duration
                an_expired_turn_without_a_new_owner_can_be_settled
                a_failure_ends_the_turn
                a_turn_that_expires_halfway_keeps_its_settlements
                a_stalled_owner_loses_only_the_reclaimed_keys
            }
            key_failure_policies {
                block_keeps_the_key_waiting_behind_a_retry
                skip_keeps_the_key_waiting_behind_a_retry
                block_parks_a_key_whose_head_failed_permanently
                park_parks_a_key_whose_head_failed_permanently
                park_parks_the_key_at_its_first_failure
                skip_continues_after_a_dead_letter
                skip_without_dead_letters_deletes_the_message
                a_failing_dead_letter_table_loses_no_head
                requeued_dead_letters_keep_their_position
                a_requeued_dead_letter_unparks_its_key
                a_blocked_key_can_be_released_by_an_operator
                the_head_of_a_parked_key_can_be_discarded
                a_message_in_the_middle_can_be_discarded
            }
            ordering_stress {
                block_survives_crashes_retries_and_stalls
                park_survives_crashes_retries_and_stalls
                skip_survives_crashes_retries_and_stalls
            }
            concurrency {
                eight_claimers_drain_ten_thousand_messages_once_each
                no_lease_is_lost_before_it_expires
            }
            tenant_fairness {
                quiet_tenants_do_not_wait_behind_a_noisy_one
                shares_follow_the_weights
                a_lone_tenant_gets_everything
                unused_shares_go_to_the_others
                messages_without_a_tenant_count_as_one_tenant
                more_tenants_than_the_claim_limit_are_all_served
                tenants_with_unusual_names_are_served
                a_claim_alternates_tenants_and_keeps_staging_order_within_each
                returned_and_due_messages_are_shared_fairly
                many_claimers_lose_and_duplicate_nothing
                a_late_commit_of_a_tenant_is_not_missed
                fairness_can_be_declared_on_a_queue_that_holds_messages
                fairness_can_be_revoked
                fair_and_other_queues_are_claimed_together
                invalid_fairness_settings_are_rejected
            }
            late_commits {
                a_transaction_that_commits_last_is_not_missed
                transactions_that_commit_in_reverse_are_not_missed
                a_late_commit_on_an_ordered_queue_is_not_missed
                one_identity_in_two_open_transactions_is_one_message
                producers_that_commit_out_of_order_lose_nothing
                producers_of_many_tenants_that_commit_out_of_order_lose_nothing
            }
            inspect {
                counts_match_a_scan_of_every_state
                counts_of_an_ordered_queue_are_complete
                a_due_message_counts_as_pending
                inspect_changes_nothing
                lag_is_the_waiting_time_of_the_oldest_due_message
                pages_visit_everything_once_in_a_stable_order
                lists_can_be_filtered
                a_message_is_found_in_every_state
            }
            operator_actions {
                a_requeued_dead_letter_has_no_attempts
                a_requeued_dead_letter_can_die_again
                requeue_touches_dead_letters_only
                many_dead_letters_can_be_requeued_at_once
                discard_removes_only_messages_that_are_not_leased
                discard_frees_identities_and_timer_names
                every_action_leaves_one_audit_row
                an_action_needs_an_actor_and_a_reason
            }
            pause {
                a_paused_queue_is_not_claimed
                messages_in_flight_at_a_pause_are_settled
                every_kind_of_queue_can_be_paused
                an_expired_lease_of_a_paused_queue_is_not_reclaimed
                pauses_are_listed_and_audited
                operator_actions_work_on_a_paused_queue
            }
            bulk {
                a_selection_is_counted_and_requeued_in_chunks
                an_interrupted_bulk_change_resumes
                an_interrupted_requeue_keeps_key_order
                a_message_that_fails_again_is_not_requeued_twice
                a_message_dead_after_the_count_is_not_requeued
                a_selection_can_be_filtered
                follow_ups_are_skipped
                a_selection_can_be_discarded_in_every_state
                dead_letters_are_grouped_by_cause
            }
            lookup {
                a_message_is_found_by_every_criterion
                messages_ahead_in_the_key_are_counted
                the_inbox_lists_the_consumers_that_admitted_a_message
                timers_are_listed_and_cancelled_by_an_operator
                the_audit_of_a_message_lists_every_action
                an_archived_message_can_be_replayed
                replayed_copies_are_staged_and_audited
            }
            forward {
                a_forwarded_message_is_done_in_its_queue_and_pending_in_the_target
                a_stale_forward_stages_nothing
                a_repeated_forward_is_a_duplicate
                a_mixed_batch_forwards_the_selected_messages
                a_forwarded_key_keeps_its_order
                a_forwarded_message_wakes_its_queue
            }
            notifications {
                a_commit_wakes_an_idle_worker
                a_resumed_queue_wakes_its_idle_workers
                no_notification_before_the_commit
                many_messages_of_one_transaction_are_one_notification
                every_queue_is_notified_once
                a_listener_hears_its_own_queues_only
                a_scheduled_message_does_not_notify
                a_stage_without_new_messages_does_not_notify
                without_an_idle_worker_nothing_is_notified
                a_deregistered_worker_is_not_notified
                an_expired_registration_is_not_notified
                a_rolled_back_transaction_does_not_notify
                a_rolled_back_savepoint_does_not_lose_a_notification
            }
            schema {
                a_migrated_store_has_no_drift
                migrating_again_changes_nothing
            }
        }
    };
    (@tests $writers:ident $($module:ident { $($case:ident)* })*) => {
        $($crate::store_suite! { @module $writers $module { $($case)* } })*
    };
    (@module one_writer late_commits { $($case:ident)* }) => {};
    (@module $writers:ident $module:ident { $($case:ident)* }) => {
        mod $module {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::store::run(super::store_suite_fixture(), $crate::store::$module::$case).await;
            }
        )*}
    };
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    /// A case that the macro does not name would never run.
    #[test]
    fn every_case_is_named_in_the_macro() {
        assert_every_case_is_named("src/store", include_str!("store.rs"));
    }

    pub(crate) fn assert_every_case_is_named(folder: &str, macro_source: &str) {
        let mut written = BTreeSet::new();
        for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let module = path.file_stem().unwrap().to_str().unwrap();
            let source = fs::read_to_string(&path).unwrap();
            let cases = source.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split_once('<'));
            written.extend(cases.map(|(case, _)| format!("{module}::{case}")));
        }
        let (_, macro_body) = macro_source.split_once("{ @tests").unwrap();
        let (_, macro_body) = macro_body.split_once('\n').unwrap();
        let mut named = BTreeSet::new();
        let mut module = "";
        // The list ends with the block that it is in.
        let mut depth = 1;
        for line in macro_body.lines().map(str::trim) {
            match line.strip_suffix(" {") {
                Some(opened) => (module, depth) = (opened, depth + 1),
                None if line == "}" && depth == 1 => break,
                None if line == "}" => depth -= 1,
                None => assert!(named.insert(format!("{module}::{line}")), "{line} is named twice"),
            }
        }
        assert_eq!(named, written);
    }
}
