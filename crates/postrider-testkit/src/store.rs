//! The suite that every store passes, one module for each promise.
//!
//! Each case is a plain `async fn` over a [`Fixture`](crate::Fixture) that is made for it alone. Time passes through
//! [`Fixture::advance`](crate::Fixture::advance) only: no case sleeps. [`store_suite!`](crate::store_suite) turns the
//! names into tests.

pub mod big_batches;
pub mod bulk;
pub mod claiming;
pub mod clues;
pub mod concurrency;
pub mod failing_keys;
pub mod forwarding;
pub(crate) mod helpers;
pub mod identity;
pub mod inbox;
pub mod inspecting;
pub mod late_commits;
pub mod leases;
pub mod operators;
pub mod ordering;
pub mod pausing;
pub mod payloads;
pub mod retention;
pub mod schema;
pub mod settling;
pub mod snoozing;
pub mod staging;
pub mod tenants;
pub mod timer_changes;
pub mod timers;
pub mod timetable;
pub mod torture;
pub mod traces;
mod truth;
pub mod turns;
pub mod waking;

use std::time::Duration;

/// How long a case may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Makes a fixture and runs a case on it, for a minute at the most: a case that hangs has failed.
///
/// # Panics
/// When the case does, or when it takes too long.
pub async fn run<F>(make: impl Future<Output = F>, case: impl AsyncFnOnce(F)) {
    let fixture = make.await;
    assert!(tokio::time::timeout(LIMIT, case(fixture)).await.is_ok(), "the case took longer than {LIMIT:?}");
}

/// Makes a test of every case of the store suite, in a module for each promise.
///
/// Takes the path of an `async fn` without arguments that makes a [`Fixture`](crate::Fixture). The crate that uses it
/// needs `tokio` with the features `macros` and `rt-multi-thread`.
///
/// ```ignore
/// postrider_testkit::store_suite!(MemoryFixture::new);
/// ```
#[macro_export]
macro_rules! store_suite {
    ($make:path) => {
        async fn store_suite_fixture() -> impl $crate::Fixture {
            $make().await
        }

        mod flaws {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn every_flaw_is_caught() {
                $crate::flaws::every_flaw_is_caught(super::store_suite_fixture).await;
            }
        }

        $crate::store_suite! { @tests
            staging {
                follow_ups_are_staged_like_any_message
                a_rolled_back_message_never_exists
                a_committed_message_exists_exactly_once
                an_uncommitted_message_cannot_be_claimed
                a_rolled_back_savepoint_takes_only_what_came_after_it
                a_rolled_back_transaction_takes_its_savepoints_along
                one_call_stages_messages_of_several_queues
                an_empty_batch_does_nothing
                batches_of_one_a_hundred_and_five_thousand_arrive_whole
                every_message_has_an_identity
                a_typed_event_arrives_as_its_codec_wrote_it
                an_event_a_message_and_a_builder_are_staged_alike
                an_oversized_payload_is_refused_and_stages_nothing
                an_invalid_builder_is_refused_and_stages_nothing
            }
            identity {
                the_same_identity_twice_in_one_batch_is_one_message
                the_same_identity_twice_in_one_transaction_is_one_message
                the_same_identity_in_a_later_transaction_is_one_message
                a_duplicate_does_not_hold_up_the_rest_of_its_batch
                the_identity_of_a_leased_message_is_known
                the_identity_of_a_future_message_is_known
                the_identity_of_a_retried_message_is_known
                the_identity_of_a_dead_letter_is_known
                the_identity_of_a_kept_message_is_known
                a_delivered_identity_may_be_staged_again_when_nothing_is_kept
                a_rolled_back_identity_may_be_staged_again
                the_same_identity_in_two_queues_is_two_messages
            }
            inbox {
                what_was_admitted_is_a_duplicate
                a_rolled_back_admission_leaves_no_mark
                a_rolled_back_savepoint_takes_its_marks_along
                a_duplicate_leaves_the_transaction_whole
                consumers_do_not_see_each_others_marks
                tenants_do_not_see_each_others_marks
                a_message_that_is_twice_in_a_batch_is_a_duplicate_the_second_time
                five_thousand_messages_are_answered_in_their_order
                an_empty_batch_admits_nothing
                the_mark_and_what_is_staged_commit_together
                who_admits_the_same_waits_for_the_first
                batches_that_overlap_never_deadlock
                pruning_removes_what_is_older_in_bounded_steps
                pruning_for_one_consumer_leaves_the_marks_of_others
                pruning_leaves_marks_alone_unless_asked
            }
            payloads {
                every_field_arrives_as_it_was_staged
                a_bare_message_arrives_bare
                every_field_survives_every_room
                payloads_are_opaque_bytes
                json_arrives_byte_for_byte
            }
            claiming {
                the_oldest_come_first_under_a_limit
                one_transaction_comes_in_staging_order
                messages_due_at_one_moment_come_in_staging_order
                future_messages_come_in_the_order_they_fall_due
                a_smaller_identity_staged_later_is_not_missed
                effects_come_after_their_causes
                a_future_message_is_passed_over_until_it_is_due
                a_past_due_time_means_now
                a_leased_message_is_not_claimed_again
                a_lapsed_message_is_claimed_again
                only_lapsed_leases_are_claimed_again
                every_claim_has_a_fresh_token
                an_empty_claim_takes_nothing
                a_lease_that_cannot_be_kept_is_refused
                several_queues_are_claimed_together
                a_claim_tells_when_its_message_was_staged_and_due
                claims_at_one_moment_never_share_a_message
                a_lease_can_be_settled_through_any_handle
            }
            leases {
                a_stale_done_changes_nothing
                a_stale_retry_changes_nothing
                a_stale_dead_letter_changes_nothing
                a_stale_release_changes_nothing
                a_stale_done_archives_nothing
                a_stale_renewal_changes_nothing
                a_late_owner_does_not_clobber_the_new_one
                a_stale_settlement_among_good_ones_is_lost_alone
                a_forged_token_opens_nothing
                every_ending_spends_the_token
                the_first_of_two_words_on_one_message_counts
                a_renewed_lease_outlives_its_first_term
                renewing_nothing_loses_nothing
                a_lapsed_lease_that_nobody_took_can_be_settled
                a_lapsed_lease_that_nobody_took_can_be_renewed
            }
            snoozing {
                a_snooze_waits_and_is_not_counted
                every_snooze_waits_for_its_own_time
                a_snoozed_key_waits_with_its_message
                nothing_is_settled_behind_a_snooze
            }
            settling {
                settling_nothing_loses_nothing
                a_queue_that_was_made_elsewhere_meanwhile_is_settled_and_renewed
                success_leaves_nothing_and_writes_no_dead_letter
                every_retry_waits_for_its_own_delay
                a_retry_counts_an_attempt_and_keeps_its_error
                a_failure_may_have_no_text
                an_awkward_error_text_harms_nobody
                a_dead_letter_is_whole_and_in_one_room_only
                every_reason_is_recorded
                a_broken_dead_letter_room_loses_nothing
                a_broken_dead_letter_room_stops_nothing_else
                without_dead_letters_failure_leaves_no_trace
                a_release_is_not_counted
                a_release_undoes_only_its_own_delivery
                a_hundred_messages_failing_ten_times_all_become_dead_letters
                a_failed_settlement_is_an_error_and_not_a_lost_lease
            }
            big_batches {
                a_mixed_batch_of_five_thousand_ends_each_message_as_told
                five_thousand_retries_come_back_whole
            }
            retention {
                a_kept_message_is_in_the_archive
                the_archive_is_pruned_when_its_time_is_over
                what_may_go_is_counted_first
                old_audit_rows_go_and_that_is_written_down
                pruning_works_in_bounded_steps
                dead_letters_are_pruned_only_when_asked_and_old_enough
                pruning_leaves_what_is_alive
            }
            timers {
                due_after_delays_delivery
                due_at_delays_delivery
                a_timer_name_lives_once_in_its_queue
                a_timer_name_lives_once_in_its_batch_and_transaction
                a_timer_name_is_free_in_another_queue
                a_due_timer_holds_its_name_until_it_is_delivered
                delivery_frees_a_timer_name_and_nothing_before_it
                dead_lettering_frees_a_timer_name
                a_rolled_back_timer_never_held_its_name
            }
            timer_changes {
                extending_no_timer_stages_it
                a_later_time_extends_a_timer
                an_earlier_time_leaves_a_timer_as_it_is
                a_due_timer_can_be_extended_until_it_is_leased
                a_leased_timer_is_not_extended
                one_batch_can_stage_and_extend_a_timer
                a_rolled_back_extension_changes_nothing
                a_cancelled_timer_is_never_delivered
                a_due_timer_can_be_cancelled_until_it_is_leased
                a_leased_timer_cannot_be_cancelled
                a_timer_that_waits_for_a_retry_can_be_cancelled
                a_rolled_back_cancellation_changes_nothing
                a_transaction_can_cancel_its_own_timer
                an_unknown_timer_cannot_be_cancelled
            }
            timetable {
                a_schedule_begins_when_it_is_read_first
                a_tick_stages_its_messages_and_is_recorded
                a_tick_without_messages_is_recorded
                a_tick_is_staged_once_though_ten_race_for_it
                an_older_tick_never_follows_a_newer_one
                every_schedule_has_its_own_ticks
                a_tick_with_a_bad_message_records_nothing
                a_dropped_tick_is_whole_or_never_happened
                a_tick_wakes_a_sleeper
            }
            traces {
                whatever_is_staged_in_a_trace_carries_it
                a_message_keeps_a_trace_of_its_own
                what_is_staged_in_no_trace_carries_none
                an_extended_timer_carries_the_trace_of_the_extension
                a_tick_carries_the_trace_of_the_scheduler
            }
            ordering {
                each_key_comes_in_staging_order
                a_key_has_one_turn_at_a_time
                different_keys_flow_in_parallel
                a_turn_is_several_messages_with_the_last_marked
                a_turn_ends_with_its_last_message
                a_message_without_a_key_waits_for_nobody
                released_messages_return_uncounted_and_in_order
                a_whole_turn_can_be_released
                a_duplicate_on_an_ordered_queue_is_one_message
                a_timer_takes_its_place_when_it_falls_due
                ordered_and_unordered_queues_go_together
                an_ordered_queue_can_keep_what_it_delivered
                the_ordering_cannot_change_while_the_queue_holds_messages
            }
            turns {
                a_lapsed_turn_hands_out_its_head_alone_and_counts_it
                a_stale_turn_cannot_settle_as_done
                a_stale_turn_cannot_ask_for_a_retry
                a_stale_turn_cannot_write_a_dead_letter
                a_stale_turn_cannot_release
                a_stale_turn_cannot_be_renewed
                a_renewed_turn_outlives_its_first_term
                a_lapsed_turn_that_nobody_took_can_be_settled
                a_failure_ends_the_turn
                a_turn_that_lapses_halfway_keeps_what_it_settled
                a_stalled_owner_loses_only_the_keys_taken_over
            }
            failing_keys {
                block_keeps_the_key_waiting_behind_a_retry
                skip_keeps_the_key_waiting_behind_a_retry
                block_parks_a_key_whose_head_failed_for_good
                park_parks_a_key_whose_head_failed_for_good
                park_holds_the_key_after_its_first_failure
                skip_goes_on_after_a_dead_letter
                skip_without_dead_letters_leaves_no_trace
                a_broken_dead_letter_room_loses_no_head
                requeued_dead_letters_go_back_to_their_place
                a_requeued_dead_letter_brings_its_key_back
                a_waiting_key_can_be_released_by_hand
                the_head_of_a_parked_key_can_be_discarded
                a_message_in_the_middle_can_be_discarded
            }
            torture {
                block_survives_crashes_retries_and_stalls
                park_survives_crashes_retries_and_stalls
                skip_survives_crashes_retries_and_stalls
            }
            concurrency {
                eight_claimers_drain_ten_thousand_messages_once_each
                no_lease_is_lost_unless_it_lapsed
            }
            tenants {
                quiet_tenants_do_not_wait_behind_a_noisy_one
                shares_are_by_weight
                a_lone_tenant_gets_everything
                unused_shares_go_to_the_others
                messages_without_a_tenant_are_one_more_tenant
                more_tenants_than_room_all_have_their_turn
                tenants_of_any_name_have_their_turn
                a_claim_comes_turn_by_turn_and_each_tenant_in_staging_order
                whatever_comes_back_is_found
                many_claimers_lose_and_double_nothing
                a_late_commit_of_a_tenant_is_not_missed
                fairness_can_be_declared_on_a_queue_that_holds_messages
                fairness_can_be_taken_back
                fair_queues_go_together_with_others
                what_cannot_be_shared_out_is_refused
            }
            late_commits {
                a_transaction_that_commits_last_is_not_missed
                transactions_that_commit_in_reverse_are_not_missed
                a_late_commit_on_an_ordered_queue_is_not_missed
                one_identity_in_two_open_transactions_is_one_message
                producers_that_commit_out_of_order_lose_nothing
                producers_of_many_tenants_that_commit_out_of_order_lose_nothing
            }
            inspecting {
                counts_match_a_scan_of_every_room
                counts_of_an_ordered_queue_leave_nothing_out
                what_has_come_due_counts_as_pending
                looking_changes_nothing
                lag_is_how_long_the_oldest_due_message_has_waited
                pages_visit_everything_once_in_a_stable_order
                lists_can_be_narrowed
                a_message_is_found_in_every_room
            }
            operators {
                a_requeued_dead_letter_starts_afresh
                a_requeued_dead_letter_can_die_again
                requeue_touches_dead_letters_only
                many_dead_letters_can_be_requeued_at_once
                discard_removes_what_is_in_nobodys_hands
                discard_frees_identities_and_timer_names
                every_action_leaves_one_audit_row
                an_action_needs_an_actor_and_a_reason
            }
            pausing {
                nothing_of_a_paused_queue_is_claimed
                what_is_in_hand_when_it_is_paused_ends_as_usual
                every_kind_of_queue_can_be_paused
                a_lease_that_lapses_waits_too
                what_is_paused_is_told_and_audited
                operators_work_on_a_paused_queue
            }
            bulk {
                a_selection_is_counted_and_put_back_in_chunks
                an_interrupted_change_goes_on_where_it_was
                keys_come_back_in_their_order_wherever_it_stops
                what_fails_again_is_not_put_back_again
                what_dies_after_the_count_stays_dead
                a_selection_can_be_narrowed
                follow_ups_are_passed_over
                a_selection_can_be_removed_from_every_room
                dead_letters_are_grouped_by_what_they_have_in_common
            }
            clues {
                a_message_is_found_by_every_clue
                a_message_knows_how_many_of_its_key_come_before_it
                the_inbox_tells_who_has_admitted
                timers_are_listed_and_cancelled_by_hand
                what_was_done_to_a_message_is_told
                what_is_kept_is_delivered_once_more
                copies_are_staged_and_written_down
            }
            forwarding {
                a_forwarded_message_is_done_here_and_waits_there
                a_stale_forward_stages_nothing
                what_was_forwarded_before_is_not_forwarded_again
                a_mixed_batch_forwards_what_it_says
                a_key_keeps_its_order_on_the_way
                what_is_forwarded_wakes_its_queue
            }
            waking {
                a_commit_wakes_a_sleeper
                a_resumed_queue_wakes_its_sleepers
                nothing_is_heard_before_the_commit
                many_messages_of_one_transaction_are_one_signal
                every_queue_is_signalled_once
                an_ear_hears_its_own_queues_only
                a_future_message_does_not_signal
                what_changes_nothing_does_not_signal
                nobody_asleep_nobody_signalled
                who_has_risen_is_not_signalled
                a_lapsed_announcement_is_not_signalled
                a_rolled_back_transaction_does_not_signal
                a_rolled_back_savepoint_does_not_swallow_a_signal
            }
            schema {
                a_migrated_store_has_no_drift
                migrating_again_changes_nothing
            }
        }
    };
    (@tests $($module:ident { $($case:ident)* })*) => {$(
        mod $module {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::store::run(super::store_suite_fixture(), $crate::store::$module::$case).await;
            }
        )*}
    )*};
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
        let (_, macro_body) = macro_source.split_once("{ @tests\n").unwrap();
        let mut named = BTreeSet::new();
        let mut module = "";
        // The list ends where the block does that was opened with it.
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
