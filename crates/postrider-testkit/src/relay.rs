//! The suite that a relay passes on every store.
//!
//! The transport of these cases stores the messages it accepts and fails on demand, so that a case can produce every publish
//! result. The [transport suite](crate::transport) covers real brokers.

pub mod crash_loops;
pub mod destination_outage;
pub mod fan_out;
mod helpers;
pub mod ordering;
pub mod pause;
pub mod publish;
pub mod rejections;
pub mod route_changes;
mod scripted_transport;
pub mod shutdown;

pub use scripted_transport::ScriptedTransport;

/// Defines a test for every case of the relay suite. Takes the same argument as [`store_suite!`](crate::store_suite).
#[macro_export]
macro_rules! relay_suite {
    ($make:path) => {
        mod relay {
            pub(super) async fn fixture() -> impl $crate::Fixture {
                use super::*;
                $make().await
            }

            $crate::relay_suite! { @tests
                publish {
                    every_committed_message_is_published_once
                    message_metadata_is_published
                    a_route_can_filter_and_transform
                    pending_messages_are_sent_in_batches
                    a_run_reports_its_counts
                    messages_of_a_dead_relay_are_reclaimed
                    a_rate_limit_is_kept
                    a_batch_keeps_the_rate_limit
                }
                crash_loops {
                    a_crash_loop_dead_letters_no_prefetched_message
                    a_message_that_kills_its_relay_is_the_only_dead_letter
                }
                rejections {
                    a_temporary_rejection_is_retried_under_the_same_id
                    exhausted_retries_are_dead_lettered
                    the_destination_can_set_the_retry_delay
                    a_permanent_rejection_is_dead_lettered_at_once
                    a_poison_message_in_a_batch_delays_no_other
                    a_message_without_an_address_is_dead_lettered
                    an_oversized_message_is_not_sent
                    an_unconfirmed_message_is_retried_under_the_same_id
                    a_transport_with_wrong_result_count_or_panic_loses_nothing
                    a_panicking_route_function_affects_only_its_message
                }
                destination_outage {
                    an_outage_counts_no_attempts
                    an_open_circuit_claims_nothing
                    pending_messages_are_sent_after_recovery
                    repeated_timeouts_count_as_an_outage
                    messages_that_are_not_sent_do_not_delay_a_probe
                    messages_that_are_not_sent_to_one_of_several_do_not_delay_its_probe
                    an_outage_of_one_destination_does_not_stop_another
                    run_until_idle_does_not_wait_for_an_outage_to_end
                    run_batch_does_not_wait_for_an_outage_to_end
                    a_missing_address_counts_no_attempts
                    one_missing_address_among_several_counts_attempts
                    a_missing_address_does_not_block_the_probe_of_another
                }
                pause {
                    a_paused_destination_claims_nothing
                    a_destination_can_be_paused_under_load
                    only_the_paused_of_several_destinations_waits
                }
                ordering {
                    messages_of_a_key_are_sent_one_after_the_other
                    a_failed_message_blocks_its_key_and_no_other
                    an_outage_keeps_the_order
                }
                fan_out {
                    every_destination_gets_each_message
                    a_retry_for_one_destination_is_not_sent_to_the_other
                    a_retry_for_one_destination_keeps_its_address
                    a_dead_letter_belongs_to_its_destination
                    an_outage_of_one_destination_does_not_block_the_other
                    an_outage_of_all_destinations_moves_nothing
                    a_key_is_blocked_for_one_destination_only
                    an_ordered_queue_on_an_unordered_route_sends_nothing
                    each_destination_applies_its_own_filter
                }
                route_changes {
                    a_route_reduced_to_one_destination_delivers_its_pending_messages
                    an_ordered_route_reduced_to_one_destination_keeps_the_order
                    an_unordered_route_does_not_wait_for_its_pending_messages
                    a_queue_of_a_removed_destination_is_reported
                }
                shutdown {
                    a_stop_waits_for_publish_results
                    a_stop_at_its_deadline_leaves_unconfirmed_messages_unsettled
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
