//! The suite that a relay passes on every store.
//!
//! The transport keeps what it accepts and fails on demand, so that every answer can be had when a case needs it. What real
//! brokers do is the [transport suite's](crate::transport) affair.

pub mod fanning_out;
pub mod going_down;
mod helpers;
pub mod keeping_order;
pub mod pausing;
pub mod publishing;
pub mod refusing;
mod scripted;
pub mod stopping;

pub use scripted::ScriptedTransport;

/// Makes a test of every case of the relay suite. Takes what [`store_suite!`](crate::store_suite) takes.
#[macro_export]
macro_rules! relay_suite {
    ($make:path) => {
        mod relay {
            pub(super) async fn fixture() -> impl $crate::Fixture {
                use super::*;
                $make().await
            }

            $crate::relay_suite! { @tests
                publishing {
                    everything_committed_is_published_once
                    what_is_known_about_a_message_travels
                    a_route_may_leave_out_and_change
                    what_waits_together_is_sent_together
                    a_run_says_what_it_did
                    what_was_left_behind_is_taken_over
                    a_rate_is_kept
                }
                refusing {
                    a_refusal_is_sent_again_under_its_id_when_it_is_due
                    refusals_end_as_a_dead_letter
                    the_other_side_may_say_when
                    what_is_refused_for_good_is_a_dead_letter_at_once
                    poison_in_the_middle_of_a_batch_delays_nobody
                    what_has_no_address_is_a_dead_letter
                    what_is_too_large_is_not_sent
                    silence_is_sent_again_under_its_id
                    a_transport_that_miscounts_or_panics_loses_nothing
                    a_function_that_panics_harms_only_its_message
                }
                going_down {
                    a_destination_that_is_down_costs_no_attempts
                    nothing_is_claimed_while_it_is_down
                    what_waited_is_sent_when_it_is_back
                    going_on_silence_counts_as_down
                    one_destination_that_is_down_does_not_stop_another
                    one_run_does_not_wait_for_a_destination_that_is_down
                }
                pausing {
                    nothing_is_claimed_for_a_paused_destination
                    a_destination_is_paused_while_messages_flow
                    of_several_only_the_paused_one_waits
                }
                keeping_order {
                    the_messages_of_a_key_are_sent_one_after_the_other
                    a_key_halts_at_its_first_failure_and_others_go_on
                    an_outage_keeps_the_order
                }
                fanning_out {
                    every_destination_gets_each_message
                    what_one_refuses_is_not_sent_to_the_other_again
                    a_dead_letter_belongs_to_its_destination
                    one_that_is_down_does_not_hold_up_the_other
                    when_all_are_down_nothing_moves
                    a_key_halts_for_one_destination_only
                    an_order_that_the_route_does_not_know_sends_nothing
                    each_destination_gets_what_is_meant_for_it
                }
                stopping {
                    a_stop_waits_for_answers
                    a_stop_at_its_deadline_settles_nothing_unanswered
                    a_stopped_relay_can_be_started_again
                }
            }
        }
    };
    (@tests $($module:ident { $($case:ident)* })*) => {$(
        mod $module {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::store::run(super::fixture(), $crate::relay::$module::$case).await;
            }
        )*}
    )*};
}

#[cfg(test)]
mod tests {
    use crate::store::tests::assert_every_case_is_named;

    #[test]
    fn every_case_is_named_in_the_macro() {
        assert_every_case_is_named("src/relay", include_str!("relay.rs"));
    }
}
