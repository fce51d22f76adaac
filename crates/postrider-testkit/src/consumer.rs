//! The suite that a consumer passes on every store and on every source, one module for each promise.
//!
//! Cases are plain `async fn`s over a [`ConsumerFixture`], which pairs a store with a source: every store with a queue in memory, and every
//! source, on its real server, with the store in memory. No case waits for anything but a condition.

mod deaf;
pub mod effects;
mod helpers;
pub mod keeping_order;
pub mod poison;
pub mod replaying;
pub mod running;
pub mod transient;

pub use deaf::Deaf;

use async_trait::async_trait;
use postrider_core::{
    Outbox, Outgoing, Receive, Source,
    inspect::{Inspect, Operate},
    transact::Transact,
};
use std::sync::Arc;

/// One empty store and one empty place that is read, made for one test.
#[async_trait]
pub trait ConsumerFixture: Send + Sync + 'static {
    /// The transactions that handlers run in.
    type Receive: Receive<Store: Operate>;
    /// Stages in such a transaction.
    type Outbox: Outbox<<Self::Receive as Transact>::Tx> + Clone + Send + Sync + 'static;

    /// The store.
    fn receive(&self) -> Self::Receive;

    /// The producer's side of the store.
    fn outbox(&self) -> Self::Outbox;

    /// The operator's view of the store.
    fn inspect(&self) -> Arc<dyn Inspect>;

    /// Whether messages have lanes.
    fn keeps_order(&self) -> bool;

    /// Where messages are sent to.
    fn place(&self) -> String;

    /// Sends as the relay does. Where sending is waiting for the consumer, it returns at once.
    async fn send(&self, batch: Vec<Outgoing>);

    /// Sends a message that is nobody's event, and has no identity.
    async fn send_bare(&self, body: &str);

    /// A consumer's source, with a connection of its own.
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

/// Turns the names of the consumer suite into tests. The argument makes a fixture: an `async fn` without arguments.
#[macro_export]
macro_rules! consumer_suite {
    ($make:path) => {
        mod consumer {
            pub(super) async fn fixture() -> impl $crate::consumer::ConsumerFixture {
                use super::*;
                $make().await
            }

            $crate::consumer_suite! { @tests
                effects {
                    what_comes_again_after_its_effect_is_a_duplicate
                    a_failed_handler_leaves_no_mark_and_no_effect
                    one_failure_in_a_batch_harms_nobody
                    what_is_staged_follows_what_was_received
                    the_clock_follows_first_deliveries_only
                    a_kept_transaction_is_a_failure
                }
                poison {
                    what_cannot_be_read_is_refused_and_kept
                    a_payload_that_cannot_be_decoded_is_parked
                    a_rejected_message_is_parked_with_its_origin
                    at_the_limit_it_runs_and_above_it_is_parked_unrun
                    a_message_of_an_unknown_type_is_parked
                }
                transient {
                    a_failure_is_tried_again_and_never_parked_without_a_limit
                    a_panic_is_a_failure
                    an_endless_handler_is_a_failure
                    retries_in_place_need_no_redelivery
                    a_snooze_is_no_failure
                }
                running {
                    an_answer_that_fails_stops_nothing
                    an_idle_consumer_stops_at_once
                    a_stop_finishes_what_is_in_hand_and_gives_back_the_rest
                    a_consumer_that_is_dropped_loses_nothing
                }
                keeping_order {
                    a_key_keeps_its_order_through_failures
                    what_waits_behind_poison_is_not_parked_for_it
                }
                replaying {
                    a_replayed_message_runs_once_and_succeeds
                    what_had_succeeded_is_not_replayed_and_that_is_told
                    what_cannot_be_read_stays_dead
                    a_running_consumer_takes_up_what_is_requeued
                }
            }
        }
    };
    (@tests $($module:ident { $($case:ident)* })*) => {$(
        mod $module {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::consumer::run(super::fixture(), $crate::consumer::$module::$case).await;
            }
        )*}
    )*};
}

#[cfg(test)]
mod tests {
    use crate::store::tests::assert_every_case_is_named;

    #[test]
    fn every_case_is_named_in_the_macro() {
        assert_every_case_is_named("src/consumer", include_str!("consumer.rs"));
    }
}
