//! The suite that follow-ups and sagas pass on every store, one module per feature.
//!
//! Each case is a plain `async fn` over a [`SagaFixture`], as in the [store suite](crate::store).

pub mod admin;
pub mod audit;
pub mod calls;
pub mod compensation;
pub mod completion;
pub(crate) mod helpers;
pub mod lease_fencing;
pub mod reschedule;

use crate::Fixture;
use postrider_core::{TxBackend, audit::AuditChain};
use std::sync::Arc;

/// A fixture whose store supports follow-ups.
pub trait SagaFixture: Fixture {
    /// Settles follow-ups in such transactions.
    type Sagas: TxBackend<Tx = Self::Tx>;

    /// The transactions that settle follow-ups.
    fn sagas(&self) -> Self::Sagas;

    /// The store's own audit chain.
    fn chain(&self) -> Arc<dyn AuditChain>;
}

/// Defines a test for every case of the saga suite, in one module per feature. Takes the same argument as
/// [`store_suite!`](crate::store_suite).
#[macro_export]
macro_rules! saga_suite {
    ($make:path) => {
        mod saga {
            pub(super) async fn fixture() -> impl $crate::saga::SagaFixture {
                use super::*;
                $make().await
            }

            $crate::saga_suite! { @tests
                calls {
                    an_empty_batch_of_follow_ups_stages_nothing
                    a_call_receives_the_staged_follow_up
                    the_oldest_is_called_first_within_the_batch_size
                    a_finished_follow_up_is_not_called_again
                    an_expired_lease_is_reclaimed_with_the_same_idempotency_key
                    two_runners_call_each_follow_up_once
                    retries_follow_the_backoff_exactly
                    the_last_failed_attempt_abandons_the_follow_up
                    a_follow_up_that_kills_its_runner_is_abandoned
                    a_crash_loop_abandons_no_prefetched_follow_up
                    a_rejection_is_abandoned_at_once_and_blocks_nothing
                    a_follow_up_without_a_resolver_is_abandoned_at_once
                    a_message_that_is_no_follow_up_is_dead_lettered
                    already_gone_counts_as_success
                    a_panic_and_a_timeout_are_failed_attempts
                    a_running_runner_is_woken_and_stops_cleanly
                    a_finished_follow_up_keeps_no_payload
                }
                completion {
                    the_last_follow_up_completes_the_operation
                    operations_queues_and_tenants_complete_separately
                    two_concurrent_finishers_report_one_completion
                    writes_of_the_completion_hook_commit_with_the_completion
                    a_completion_hook_that_panics_or_hangs_is_a_failure
                    a_completion_message_is_staged
                    an_abandoned_sibling_blocks_completion_until_it_is_requeued
                    a_scheduled_sibling_blocks_completion
                    a_later_follow_up_completes_the_operation_again
                }
                compensation {
                    a_saga_whose_steps_all_succeed_completes
                    a_rejected_step_compensates_the_earlier_steps
                    a_repeated_call_has_no_second_effect
                    a_step_in_doubt_compensates_nothing_until_resolved
                    a_resolver_that_knows_the_outcome_resolves_the_doubt
                    a_requeued_step_in_doubt_can_succeed
                    a_rejection_after_a_doubt_does_not_resolve_it
                    a_reschedule_does_not_hide_a_doubt
                    a_stuck_compensation_continues_after_a_requeue
                    a_saga_begins_once_with_its_own_idempotency_keys
                    a_plan_must_be_registered_with_all_its_resolvers
                    sagas_do_not_affect_each_other
                }
                reschedule {
                    a_rescheduled_follow_up_waits_and_counts_no_attempt
                    a_past_time_is_clamped
                    a_moved_time_is_rescheduled_and_audited_again
                    a_follow_up_staged_for_later_waits
                }
                lease_fencing {
                    a_stale_runner_changes_nothing
                    a_stale_runner_does_not_end_the_call_of_another
                    a_runner_claims_no_more_than_it_calls
                    a_call_cut_short_by_a_stop_stays_leased
                    a_panicking_hook_breaks_nothing
                    the_hook_runs_after_the_commit
                }
                audit {
                    appended_events_are_read_back
                    an_event_is_appended_once
                    a_batch_is_appended_completely_or_not_at_all
                    recorded_events_commit_with_their_transaction
                    concurrent_appenders_leave_one_chain
                    every_outcome_is_audited_and_failed_attempts_are_not
                    an_unavailable_sink_leaves_the_follow_up_leased_until_it_recovers
                    a_sink_outage_at_completion_delays_the_completion
                    events_in_an_external_sink_outlive_a_rollback
                    no_personal_data_is_audited
                }
                admin {
                    counts_are_zero_filled_and_agree_with_a_scan
                    lists_are_ordered_and_limited
                    a_second_requeue_changes_nothing
                    a_requeue_that_cannot_be_audited_is_rolled_back
                    a_follow_up_without_its_payload_is_not_requeued
                    overdue_follow_ups_are_found
                    a_subject_is_erased_everywhere
                }
            }
        }
    };
    (@tests $($module:ident { $($case:ident)* })*) => {$(
        mod $module {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::store::run(super::fixture(), $crate::saga::$module::$case).await;
            }
        )*}
    )*};
}

#[cfg(test)]
mod tests {
    use crate::store::tests::assert_every_case_is_named;

    #[test]
    fn every_case_is_named_in_the_macro() {
        assert_every_case_is_named("src/saga", include_str!("saga.rs"));
    }
}
