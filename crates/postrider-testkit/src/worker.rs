//! The suite that a worker passes on every store, one module per feature.
//!
//! Each case is a plain `async fn` over a [`Fixture`](crate::Fixture), as in the [store suite](crate::store). The store's time
//! passes through [`Fixture::advance`](crate::Fixture::advance); the worker's own intervals are short where a case needs it. Cases
//! wait for conditions only.

pub mod clocks;
pub mod crash_loops;
pub mod failures;
pub mod fairness;
pub mod handlers;
pub(crate) mod helpers;
mod instrumented_store;
pub mod leases;
pub mod ordering;
pub mod pruning;
pub mod schedules;
pub mod settle;
mod shifted_clock;
pub mod shutdown;
pub mod transactions;
pub mod wake_up;

/// Defines a test for every case of the worker suite, in one module per feature. Takes the same argument as
/// [`store_suite!`](crate::store_suite).
#[macro_export]
macro_rules! worker_suite {
    ($make:path) => {
        mod worker {
            pub(super) async fn fixture() -> impl $crate::TransactFixture {
                use super::*;
                $make().await
            }

            $crate::worker_suite! { @tests
                handlers {
                    every_committed_message_is_handled_once
                    a_rolled_back_message_is_never_handled
                    an_event_is_handled_typed_and_with_its_context
                    events_are_dispatched_to_their_handlers
                    an_undecodable_payload_is_dead_lettered_and_blocks_nothing
                    an_unknown_type_is_dead_lettered
                    an_unknown_type_can_be_retried_or_ignored
                    shared_state_reaches_every_handler
                    messages_staged_by_handlers_are_handled
                    a_message_that_is_not_due_is_not_handled
                    a_queue_archives_as_its_policy_says
                    a_batch_is_one_claim_per_queue
                }
                clocks {
                    max_total_counts_from_the_first_attempt_by_the_stores_clock
                    the_time_of_the_first_failure_is_kept_until_a_requeue
                }
                crash_loops {
                    a_crash_loop_dead_letters_no_prefetched_message
                    a_message_that_kills_its_process_is_the_only_dead_letter
                    a_limit_of_one_delivery_counts_each_expired_lease
                    a_suspect_runs_alone_in_its_queue
                }
                failures {
                    a_failure_is_retried_by_the_stores_clock_and_counted
                    a_panic_is_one_failed_attempt
                    a_handler_past_its_timeout_is_cancelled_and_counted
                    exhausted_retries_are_dead_lettered
                    a_rejection_is_dead_lettered_at_once
                    a_failure_can_set_its_own_delay
                    a_snooze_is_not_a_failure
                    a_message_claimed_too_often_is_not_handled
                    only_the_error_type_is_stored_by_default
                    the_full_error_text_is_stored_when_configured
                    a_panicking_redactor_stores_no_error_text
                    a_panicking_retry_strategy_dead_letters_the_message
                    an_unwritable_dead_letter_keeps_its_message
                    a_hundred_failures_in_one_batch_are_all_settled
                    one_failing_message_affects_no_other
                }
                leases {
                    a_lease_is_renewed_while_its_message_is_in_flight
                    a_lost_lease_cancels_its_handler_and_changes_nothing
                    a_failing_renewal_cancels_the_handler_before_the_lease_expires
                    a_lease_is_not_renewed_beyond_its_limit
                }
                settle {
                    settlements_are_batched
                    a_failed_flush_is_retried
                    a_message_is_delivered_only_after_the_store_settled_it
                    a_message_not_settled_in_time_is_redelivered
                    messages_behind_a_refused_settlement_of_their_turn_wait
                    messages_in_flight_are_bounded
                    bytes_in_flight_are_bounded
                }
                pruning {
                    a_running_worker_keeps_its_archive_bounded
                    a_failing_prune_delays_no_delivery
                    a_worker_without_pruning_prunes_nothing
                }
                shutdown {
                    a_stop_finishes_running_handlers_and_releases_the_rest
                    a_stop_at_its_deadline_cancels_and_releases
                    a_stopped_worker_claims_nothing_more
                    a_stopped_worker_can_be_started_again
                    a_dropped_worker_loses_nothing
                    health_distinguishes_a_lost_store_from_a_dead_worker
                }
                wake_up {
                    an_idle_worker_is_woken_by_a_commit
                    a_worker_without_notifications_polls
                    a_failed_listener_falls_back_to_polling_and_reconnects
                    a_due_retry_ends_the_idle_wait
                    freed_capacity_is_used_at_once
                    an_unavailable_store_is_polled_again
                }
                ordering {
                    a_key_runs_in_order_and_one_at_a_time
                    a_failed_head_blocks_its_key_and_nothing_else
                    a_rejected_head_is_skipped_under_the_skip_policy
                    a_stop_in_the_middle_of_a_turn_keeps_the_order
                }
                transactions {
                    effects_and_settlement_commit_together
                    a_failure_rolls_back_its_effects
                    a_lost_lease_rolls_back_its_effects
                    a_transaction_kept_by_its_handler_is_a_failure
                    plain_and_transactional_handlers_keep_the_order_of_a_key
                }
                schedules {
                    ten_schedulers_stage_each_tick_once
                    ten_schedulers_stage_missed_ticks_once
                    missed_ticks_follow_the_missed_policy
                    a_failing_schedule_affects_no_other
                    a_running_scheduler_stages_due_ticks_and_stops
                }
                fairness {
                    weights_share_the_concurrency_under_load
                    no_queue_waits_while_capacity_is_free
                    concurrency_limits_are_kept
                    tenants_are_served_by_weight
                }
            }
        }
    };
    (@tests $($module:ident { $($case:ident)* })*) => {$(
        mod $module {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::store::run(super::fixture(), $crate::worker::$module::$case).await;
            }
        )*}
    )*};
}

#[cfg(test)]
mod tests {
    use crate::store::tests::assert_every_case_is_named;

    #[test]
    fn every_case_is_named_in_the_macro() {
        assert_every_case_is_named("src/worker", include_str!("worker.rs"));
    }
}
