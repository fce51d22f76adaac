//! The suite that follow-ups pass on every store, one module for each promise.
//!
//! Each case is a plain `async fn` over a [`SagaFixture`], as in the [store suite](crate::store).

pub mod calling;
pub mod compensating;
pub mod completing;
pub(crate) mod helpers;
pub mod keeping_books;
pub mod looking_after;
pub mod putting_off;
pub mod standing_aside;

use crate::Fixture;
use postrider_core::{Follow, audit::Chain};
use std::sync::Arc;

/// A fixture whose store follows up.
pub trait SagaFixture: Fixture {
    /// Ends follow-ups in such transactions.
    type Sagas: Follow<Tx = Self::Tx>;

    /// The transactions that follow-ups end in.
    fn sagas(&self) -> Self::Sagas;

    /// The store's own ledger.
    fn chain(&self) -> Arc<dyn Chain>;
}

/// Makes a test of every case of the saga suite, in a module for each promise. Takes what [`store_suite!`](crate::store_suite) takes.
#[macro_export]
macro_rules! saga_suite {
    ($make:path) => {
        mod saga {
            pub(super) async fn fixture() -> impl $crate::saga::SagaFixture {
                use super::*;
                $make().await
            }

            $crate::saga_suite! { @tests
                calling {
                    nothing_to_follow_up_is_nothing_staged
                    a_call_knows_what_was_staged
                    the_oldest_is_called_first_and_a_batch_has_a_limit
                    what_has_ended_is_never_called_again
                    a_lapsed_lease_is_taken_up_again_under_the_same_key
                    two_runners_call_each_once
                    the_schedule_is_exact
                    the_last_attempt_gives_up
                    what_kills_its_runner_every_time_is_given_up
                    a_refusal_is_given_up_at_once_and_the_rest_flows
                    nobody_to_call_is_given_up_at_once
                    what_is_no_follow_up_is_given_up
                    already_gone_is_success
                    a_panic_and_an_endless_call_are_failed_attempts
                    a_runner_at_work_does_the_same
                    what_has_ended_keeps_no_payload
                }
                completing {
                    the_last_one_completes
                    operations_queues_and_tenants_complete_for_themselves
                    two_finishers_are_told_of_one_completion
                    what_it_writes_commits_with_it_or_not_at_all
                    a_message_tells_of_it
                    an_abandoned_sibling_blocks_until_it_is_requeued
                    a_scheduled_sibling_blocks
                    a_second_run_completes_again
                }
                compensating {
                    every_step_in_turn_and_it_is_complete
                    each_step_failed_in_turn
                    each_call_repeated
                    a_doubt_compensates_nothing_until_it_is_resolved
                    a_resolver_that_can_tell_ends_the_doubt
                    a_doubt_that_is_requeued_may_end_well
                    a_refusal_after_a_doubt_proves_nothing
                    a_time_that_is_named_in_between_hides_no_doubt
                    an_undoing_that_is_stuck_goes_on_when_it_is_put_back
                    a_saga_is_begun_once_and_its_keys_are_its_own
                    a_plan_must_be_known_and_have_all_its_resolvers
                    sagas_do_not_disturb_each_other
                }
                putting_off {
                    not_before_its_time_and_with_no_attempt_behind_it
                    a_time_that_has_passed_is_clamped
                    a_time_that_slips_is_put_off_again_and_told_again
                    what_is_staged_for_later_waits
                }
                standing_aside {
                    a_stale_runner_changes_nothing
                    a_runner_takes_no_more_than_it_carries_out
                    a_stopped_runner_leaves_its_call_to_the_lease
                    a_hook_that_panics_breaks_nothing
                    the_hook_is_told_after_it_is_so
                }
                keeping_books {
                    what_is_appended_is_read
                    an_event_is_appended_once
                    all_of_a_batch_or_nothing
                    what_is_recorded_commits_with_its_transaction
                    appenders_side_by_side_leave_one_chain
                    every_outcome_is_told_and_failures_are_not
                    a_sink_that_is_away_leaves_it_leased_and_heals
                    a_sink_that_drops_out_at_a_completion_completes_later
                    what_the_callers_ledger_was_told_outlives_a_rollback
                    nothing_personal_is_kept
                }
                looking_after {
                    counts_are_zero_filled_and_agree_with_a_scan
                    lists_are_in_order_and_limited
                    requeued_twice_is_requeued_once
                    a_requeue_that_cannot_be_told_does_not_happen
                    what_was_forgotten_is_not_requeued
                    what_is_overdue_is_found
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
