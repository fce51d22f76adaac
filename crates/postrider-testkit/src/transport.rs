//! The suite that every transport passes against the real server.

pub mod close;
pub mod connection_faults;
pub mod delivery;
pub(crate) mod helpers;
pub mod outage;
pub mod publish_results;

use crate::proxy::FaultProxy;
use async_trait::async_trait;
use bytes::Bytes;
use postrider_core::Transport;
use std::{collections::BTreeMap, future::Future, sync::Arc};

/// A transport, and a reader of the messages that arrive at its destination.
#[async_trait]
pub trait TransportFixture: Send + Sync + 'static {
    /// The features of the transport.
    fn features(&self) -> TransportFeatures;

    /// A transport to the real server, with its own connection.
    async fn transport(&self) -> Arc<dyn Transport>;

    /// A transport to a port on which no server listens.
    async fn nobody_there(&self) -> Arc<dyn Transport>;

    /// A transport to the same server through its own proxy; `None` if there is no connection that could break.
    async fn through_proxy(&self) -> Option<(FaultProxy, Arc<dyn Transport>)>;

    /// A new destination that stores the messages it receives.
    async fn destination(&self) -> String;

    /// A destination that does not exist, and that publishing does not create.
    fn missing_destination(&self) -> String;

    /// The messages at `destination` in the order of arrival, once there are at least `count`.
    async fn received(&self, destination: &str, count: usize) -> Vec<Received>;

    /// Kills the server, restarts it, and returns when it is ready. Called only if the transport
    /// [survives](TransportFeatures::survives_restarts) it.
    async fn kill_and_restart(&self);
}

/// The optional features of a transport. Every difference is declared here.
#[derive(Debug, Clone, Copy)]
pub struct TransportFeatures {
    /// The transport distinguishes a destination that does not exist from one that does.
    pub knows_destinations: bool,
    /// The order of a batch is the order of arrival, for messages of one key.
    pub keeps_order: bool,
    /// Accepted messages survive a crash of the server, and the fixture can crash it.
    pub survives_restarts: bool,
    /// The size in bytes of a message that is too large, if there is a limit.
    pub too_large: Option<usize>,
    /// The key arrives separately from the attributes.
    pub carries_key: bool,
}

/// A message as it arrived, decoded from the binding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Received {
    /// The identity, if the protocol has a field for it.
    pub id: Option<String>,
    /// The key, if the protocol has a field for it.
    pub key: Option<String>,
    /// The content type of the body.
    pub content_type: Option<String>,
    /// The body.
    pub body: Bytes,
    /// The CloudEvents attributes, without the prefix of the binding.
    pub attributes: BTreeMap<String, String>,
    /// All other headers that a producer set, with their names in lower case.
    pub headers: BTreeMap<String, String>,
}

impl Received {
    /// The identity, from whichever field has it.
    pub fn identity(&self) -> &str {
        let apart = self.id.as_deref().or_else(|| self.headers.get("postrider-id").map(String::as_str));
        apart.or_else(|| self.attributes.get("id").map(String::as_str)).unwrap_or_default()
    }
}

/// Runs one case on a fixture.
pub async fn run<F, C, Fut>(fixture: impl Future<Output = F>, case: C)
where
    F: TransportFixture,
    C: FnOnce(F) -> Fut,
    Fut: Future<Output = ()>,
{
    case(fixture.await).await;
}

/// Defines a test for every case of the transport suite. The argument is an `async fn` without arguments that creates a fixture.
#[macro_export]
macro_rules! transport_suite {
    ($fixture:path) => {
        async fn transport_suite_fixture() -> impl $crate::transport::TransportFixture {
            $fixture().await
        }
        $crate::transport_suite! { @tests
            delivery {
                body_and_headers_arrive_unchanged
                every_format_arrives
                messages_of_a_key_arrive_in_order
                a_full_batch_arrives
                unusual_values_arrive_or_are_rejected
            }
            publish_results {
                every_message_has_its_own_result
                a_missing_destination_is_never_a_success
                an_oversized_message_is_rejected_permanently
                a_repeated_message_is_accepted
                an_empty_batch_has_no_results
            }
            outage {
                an_unreachable_server_is_unavailable
                a_cancelled_publish_does_not_affect_later_results
                concurrent_publishes_have_their_own_results
                accepted_messages_survive_a_crash
                a_crash_during_publish_loses_no_accepted_message
            }
            connection_faults {
                a_lost_reply_is_unknown_and_the_next_publish_works
                a_truncated_exchange_is_never_a_success
                a_silent_server_is_never_a_success_and_times_out
                late_replies_do_not_affect_later_results
            }
            close {
                close_delivers_accepted_messages
                a_closed_transport_is_unavailable
                close_is_idempotent
            }
        }
    };
    (@tests $($module:ident { $($case:ident)* })*) => {$(
        mod $module {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::transport::run(super::transport_suite_fixture(), $crate::transport::$module::$case).await;
            }
        )*}
    )*};
}

#[cfg(test)]
mod tests {
    use crate::store::tests::assert_every_case_is_named;

    #[test]
    fn every_case_is_named_in_the_macro() {
        assert_every_case_is_named("src/transport", include_str!("transport.rs"));
    }
}
