//! The suite that a worker passes on every store, one module for each promise.
//!
//! Each case is a plain `async fn` over a [`Fixture`](crate::Fixture), as in the [store suite](crate::store). The store's time passes
//! through [`Fixture::advance`](crate::Fixture::advance); the worker's own is short where a case needs it, and no case waits
//! for anything but a condition.

pub mod failing;
pub mod fairness;
pub mod handling;
pub(crate) mod helpers;
pub mod leasing;
pub mod ordering;
pub mod scheduling;
pub mod settling;
pub mod stopping;
pub mod transactions;
pub mod waking;
mod watched;

/// Makes a test of every case of the worker suite, in a module for each promise. Takes what
/// [`store_suite!`](crate::store_suite) takes.
#[macro_export]
macro_rules! worker_suite {
    ($make:path) => {
        mod worker {
            pub(super) async fn fixture() -> impl $crate::TransactFixture {
                use super::*;
                $make().await
            }

            $crate::worker_suite! { @tests
                handling {
                    every_committed_message_is_handled_once
                    a_rolled_back_message_is_never_handled
                    an_event_arrives_typed_and_with_its_context
                    events_go_to_their_own_handlers
                    an_undecodable_payload_is_a_dead_letter_and_the_rest_flows
                    an_unknown_type_is_a_dead_letter
                    an_unknown_type_can_be_retried_or_ignored
                    what_is_shared_reaches_every_handler
                    what_handlers_stage_is_handled_too
                    what_is_not_due_is_left_waiting
                    a_queue_keeps_what_its_policy_says
                }
                failing {
                    a_failure_is_retried_by_the_stores_clock_and_counted
                    a_panic_is_one_failed_attempt
                    an_endless_handler_is_stopped_and_counted
                    retries_end_as_a_dead_letter
                    a_rejection_is_a_dead_letter_at_once
                    a_failure_may_bring_its_own_delay
                    a_snooze_is_no_failure
                    a_message_that_was_claimed_too_often_is_not_run
                    only_the_type_of_an_error_is_kept
                    the_whole_text_of_an_error_is_kept_when_asked_for
                    a_redactor_that_panics_lets_nothing_through
                    a_strategy_that_panics_gives_up
                    a_dead_letter_that_cannot_be_written_keeps_its_message
                    a_hundred_failures_in_one_batch_all_end
                    one_bad_message_harms_only_itself
                }
                leasing {
                    a_lease_is_renewed_while_its_message_is_in_hand
                    a_lost_lease_cancels_its_handler_and_changes_nothing
                    a_store_that_cannot_renew_cancels_in_time
                    a_lease_is_not_renewed_for_ever
                }
                settling {
                    settlements_are_written_together
                    a_flush_that_fails_is_tried_again
                    nothing_is_done_before_the_store_says_so
                    what_cannot_be_settled_in_time_comes_again
                    what_is_in_hand_is_bounded
                }
                stopping {
                    a_stop_finishes_what_runs_and_releases_the_rest
                    a_stop_at_its_deadline_cancels_and_releases
                    a_stopped_worker_claims_nothing_more
                    a_stopped_worker_can_be_started_again
                    a_worker_that_is_dropped_loses_nothing
                    health_tells_a_lost_store_from_a_dead_worker
                }
                waking {
                    a_sleeping_worker_is_woken_by_a_commit
                    a_worker_without_signals_polls
                    a_listener_that_fails_leaves_the_polling_and_comes_back
                    a_retry_is_not_slept_through
                    freed_room_is_used_at_once
                    a_store_that_was_away_is_asked_again
                }
                ordering {
                    a_key_runs_in_order_and_one_at_a_time
                    a_failed_head_blocks_its_key_and_nothing_else
                    a_rejected_head_is_skipped_where_the_policy_says_so
                    a_stop_in_the_middle_of_a_turn_keeps_the_order
                }
                transactions {
                    effects_and_the_end_of_a_message_commit_together
                    a_failure_undoes_its_effects
                    a_lost_lease_undoes_its_effects
                    a_kept_transaction_is_a_failure
                    plain_and_transactional_handlers_keep_the_order_of_a_key
                }
                scheduling {
                    ten_schedulers_stage_each_tick_once
                    ten_schedulers_make_up_for_missed_ticks_once
                    missed_ticks_are_skipped_or_staged_as_told
                    a_broken_schedule_harms_only_itself
                    a_running_scheduler_stages_what_is_due_and_stops
                }
                fairness {
                    weights_decide_when_there_is_more_to_do_than_can_be_run
                    nobody_waits_while_there_is_room
                    limits_of_concurrency_are_kept
                    tenants_take_turns_by_weight
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
