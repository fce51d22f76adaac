//! The suite that every source passes against the real server.

pub mod ack;
pub mod byte_budget;
pub mod close;
pub mod competing_consumers;
mod helpers;
pub mod ordering;
pub mod outage;
pub mod receive;

use crate::proxy::FaultProxy;
use async_trait::async_trait;
use postrider_core::{Outgoing, Source};
use std::{future::Future, sync::Arc};

/// Sources of one server, and a way to send messages to them.
#[async_trait]
pub trait SourceFixture: Send + Sync + 'static {
    /// The features of the sources.
    fn features(&self) -> SourceFeatures;

    /// A new empty address to receive from: a queue, or a stream with its group.
    async fn address(&self) -> String;

    /// Sends to `place` as the relay does, through the transport of the same kind, and returns when all messages are accepted. If
    /// sending waits for the consumer, it returns at once, and retries until the messages are acked or rejected.
    async fn send(&self, address: &str, batch: Vec<Outgoing>);

    /// Sends a message that is not an event, with this id in the protocol's own field.
    async fn send_bare(&self, address: &str, id: Option<&str>, body: &str);

    /// A consumer of `place`, with its own connection. All consumers of an address share its messages.
    async fn source(&self, address: &str) -> Arc<dyn Source>;

    /// A consumer of `place` that holds about this many bytes of unacked messages; `None` if the source has no such limit.
    async fn source_within(&self, address: &str, max_bytes: usize) -> Option<Arc<dyn Source>> {
        let _ = (address, max_bytes);
        None
    }

    /// A source at a port on which no server listens; `None` if the source does not connect.
    async fn nobody_there(&self) -> Option<Arc<dyn Source>>;

    /// A consumer of `place` through its own proxy; `None` if there is no connection that could break.
    async fn through_proxy(&self, address: &str) -> Option<(FaultProxy, Arc<dyn Source>)>;

    /// Kills the server, restarts it, and returns when it is ready. Called only if the source
    /// [survives](SourceFeatures::survives_restarts) it.
    async fn kill_and_restart(&self);
}

/// The optional features of a source, in addition to its [capabilities](postrider_core::Capabilities). Every difference is declared
/// here.
#[derive(Debug, Clone, Copy)]
pub struct SourceFeatures {
    /// Messages have lanes.
    pub keeps_order: bool,
    /// Several consumers of one address share its messages.
    pub shares: bool,
    /// The protocol has a field for the identity.
    pub carries_id: bool,
    /// Unacked messages survive a crash of the server, and the fixture can crash it.
    pub survives_restarts: bool,
}

/// Runs one case on a fixture.
pub async fn run<F, C, Fut>(fixture: impl Future<Output = F>, case: C)
where
    F: SourceFixture,
    C: FnOnce(F) -> Fut,
    Fut: Future<Output = ()>,
{
    case(fixture.await).await;
}

/// Defines a test for every case of the source suite. The argument is an `async fn` without arguments that creates a fixture. With
/// `unordered` as a second argument, for a source whose messages have no lanes, cases about order are left out.
#[macro_export]
macro_rules! source_suite {
    ($fixture:path) => {
        $crate::source_suite!($fixture, ordered);
    };
    ($fixture:path, $order:ident) => {
        async fn source_suite_fixture() -> impl $crate::source::SourceFixture {
            $fixture().await
        }
        $crate::source_suite! { @tests $order
            receive {
                a_sent_message_is_received_unchanged
                binary_payloads_are_received_unchanged
                receive_returns_at_most_its_limit
                a_waiting_receive_returns_when_a_message_arrives
                a_cancelled_receive_loses_nothing
                a_message_without_metadata_has_the_identity_of_its_wire
                the_first_delivery_has_count_one
            }
            byte_budget {
                bytes_in_flight_stay_within_the_budget
                small_messages_are_received_in_large_batches
            }
            ack {
                an_acked_message_is_not_redelivered
                a_nacked_message_is_redelivered
                a_nack_delay_is_kept
                a_rejected_message_is_not_redelivered
                every_ack_applies_to_its_own_message
                acks_work_in_any_order
                a_second_ack_is_harmless
                an_extended_message_is_not_redelivered
                an_empty_ack_batch_succeeds
            }
            competing_consumers {
                two_consumers_receive_no_duplicates
                messages_of_a_dead_consumer_are_redelivered_to_another
                close_releases_unacked_messages
            }
            ordering {
                a_lane_is_received_in_order
                a_redelivered_message_is_followed_by_its_successors
            }
            outage {
                an_unreachable_server_is_unavailable
                a_cut_connection_loses_nothing
                an_ack_on_a_dead_connection_loses_nothing
                a_stalled_connection_recovers
                a_server_crash_loses_nothing
            }
            close {
                a_closed_source_is_unavailable
                close_ends_a_waiting_receive
                close_is_idempotent
            }
        }
    };
    (@tests $order:ident $($module:ident { $($case:ident)* })*) => {
        $($crate::source_suite! { @module $order $module { $($case)* } })*
    };
    (@module unordered ordering { $($case:ident)* }) => {};
    (@module $order:ident $module:ident { $($case:ident)* }) => {
        mod $module {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::source::run(super::source_suite_fixture(), $crate::source::$module::$case).await;
            }
        )*}
    };
}

#[cfg(test)]
mod tests {
    use crate::store::tests::assert_every_case_is_named;

    #[test]
    fn every_case_is_named_in_the_macro() {
        assert_every_case_is_named("src/source", include_str!("source.rs"));
    }
}
