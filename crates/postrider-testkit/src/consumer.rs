//! The suite that a consumer passes on every store and on every source, one module per feature.
//!
//! Cases are plain `async fn`s over a [`ConsumerFixture`], which pairs a store with a source: every store with a queue in memory,
//! and every source, on its real server, with the in-memory store. Cases wait for conditions only.

pub mod effects;
mod faulty_source;
mod helpers;
pub mod lifecycle;
pub mod ordering;
pub mod poison_messages;
pub mod replay;
pub mod transient_failures;

pub use faulty_source::FaultySource;

use async_trait::async_trait;
use postrider_core::{Outbox, Outgoing, Source, TxBackend, inspect::Inspect};
use std::sync::Arc;

/// One empty store and one empty source address, created for one test.
#[async_trait]
pub trait ConsumerFixture: Send + Sync + 'static {
    /// The transactions that handlers run in.
    type Transactions: TxBackend;
    /// The outbox: stages messages in such a transaction.
    type Outbox: Outbox<<Self::Transactions as TxBackend>::Tx> + Clone + Send + Sync + 'static;

    /// The store.
    fn receive(&self) -> Self::Transactions;

    /// The producer's handle of the store.
    fn outbox(&self) -> Self::Outbox;

    /// The operator's read-only view of the store.
    fn inspect(&self) -> Arc<dyn Inspect>;

    /// Whether the source keeps the order of lanes.
    fn keeps_order(&self) -> bool;

    /// The address that messages are sent to.
    fn address(&self) -> String;

    /// Sends as the relay does. If sending would wait for the consumer, it returns at once.
    async fn send(&self, batch: Vec<Outgoing>);

    /// Sends a message without an identity that is not an event.
    async fn send_bare(&self, body: &str);

    /// The source of a consumer, with its own connection.
    async fn source(&self) -> Arc<dyn Source>;
}

/// Runs one case on a fixture.
pub async fn run<F, C, Fut>(fixture: impl Future<Output = F>, case: C)
where
    F: ConsumerFixture,
    C: FnOnce(F) -> Fut,
    Fut: Future<Output = ()>,
{
    case(fixture.await).await;
}

/// Defines a test for every case of the consumer suite. The argument is an `async fn` without arguments that creates a fixture. With
/// `unordered` as a second argument, for a source that keeps no order, cases about order are left out.
#[macro_export]
macro_rules! consumer_suite {
    ($make:path) => {
        $crate::consumer_suite!($make, ordered);
    };
    ($make:path, $order:ident) => {
        mod consumer {
            pub(super) async fn fixture() -> impl $crate::consumer::ConsumerFixture {
                use super::*;
                $make().await
            }

            $crate::consumer_suite! { @tests $order
                effects {
                    a_redelivery_after_its_effect_is_a_duplicate
                    a_failed_handler_leaves_no_deduplication_record_and_no_effect
                    one_failure_in_a_batch_affects_no_other
                    staged_messages_inherit_correlation_and_causation
                    a_message_is_deduplicated_by_an_identity_of_its_own
                    a_panicking_deduplicate_by_affects_only_its_message
                    staged_messages_inherit_the_tenant_and_a_later_time
                    only_first_deliveries_advance_the_logical_clock
                    a_transaction_kept_by_its_handler_is_a_failure
                }
                poison_messages {
                    an_unreadable_message_is_rejected_and_dead_lettered
                    an_undecodable_payload_is_dead_lettered
                    a_rejected_message_is_dead_lettered_with_its_origin
                    an_error_text_with_binary_data_is_dead_lettered
                    a_message_above_the_delivery_limit_is_dead_lettered_unhandled
                    a_message_of_an_unknown_type_is_dead_lettered
                }
                transient_failures {
                    a_failure_without_a_limit_is_retried_and_never_dead_lettered
                    a_panic_is_a_failure
                    a_handler_past_its_timeout_is_a_failure
                    in_process_retries_need_no_redelivery
                    a_snooze_is_not_a_failure
                }
                lifecycle {
                    a_failed_ack_does_not_stop_the_consumer
                    an_idle_consumer_stops_at_once
                    a_stop_finishes_running_handlers_and_nacks_the_rest
                    a_dropped_consumer_loses_nothing
                    a_batch_is_one_receive_call
                    an_idle_consumer_ends_its_run
                }
                ordering {
                    a_key_keeps_its_order_through_failures
                    messages_behind_a_poison_message_are_not_dead_lettered
                }
                replay {
                    a_replayed_message_runs_once_and_succeeds
                    an_already_handled_message_is_not_replayed_and_is_logged
                    an_unreadable_message_stays_dead
                    a_running_consumer_handles_requeued_messages
                }
            }
        }
    };
    (@tests $order:ident $($module:ident { $($case:ident)* })*) => {
        $($crate::consumer_suite! { @module $order $module { $($case)* } })*
    };
    (@module unordered ordering { $($case:ident)* }) => {};
    (@module $order:ident $module:ident { $($case:ident)* }) => {
        mod $module {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::consumer::run(super::fixture(), $crate::consumer::$module::$case).await;
            }
        )*}
    };
}

#[cfg(test)]
mod tests {
    use crate::store::tests::assert_every_case_is_named;

    #[test]
    fn every_case_is_named_in_the_macro() {
        assert_every_case_is_named("src/consumer", include_str!("consumer.rs"));
    }
}
