//! The suite that every transport passes, against the real server.

pub mod answers;
pub mod closing;
pub mod connections;
pub(crate) mod helpers;
pub mod travelling;
pub mod trouble;

use crate::proxy::FaultProxy;
use async_trait::async_trait;
use bytes::Bytes;
use postrider_core::Transport;
use std::{collections::BTreeMap, future::Future, sync::Arc};

/// A transport and a look at what arrives at the other end.
#[async_trait]
pub trait TransportFixture: Send + Sync + 'static {
    /// What it can be asked for.
    fn features(&self) -> TransportFeatures;

    /// A transport to the real server, with a connection of its own.
    async fn transport(&self) -> Arc<dyn Transport>;

    /// A transport to a port on which nobody listens.
    async fn nobody_there(&self) -> Arc<dyn Transport>;

    /// A transport to the same server through a proxy of its own; none where there is no connection that could break.
    async fn through_proxy(&self) -> Option<(FaultProxy, Arc<dyn Transport>)>;

    /// A new destination that keeps what it gets.
    async fn destination(&self) -> String;

    /// A destination that does not exist, and is not made by publishing to it.
    fn missing_destination(&self) -> String;

    /// What has arrived at `destination`, in the order of arrival, once it is at least `count` messages.
    async fn received(&self, destination: &str, count: usize) -> Vec<Received>;

    /// Kills the server without a word, starts it again, and returns when it answers. Only asked of those that
    /// [survive](TransportFeatures::survives_restarts) it.
    async fn kill_and_restart(&self);
}

/// What a transport can be asked for. Differences are declared here, in plain sight.
#[derive(Debug, Clone, Copy)]
pub struct TransportFeatures {
    /// A destination that does not exist is told from one that does.
    pub knows_destinations: bool,
    /// The order of a batch is the order of arrival, for messages of one key.
    pub keeps_order: bool,
    /// What was accepted is there after a crash of the server, and the fixture can crash it.
    pub survives_restarts: bool,
    /// A message that is too large for it, in bytes, if there is such a limit.
    pub too_large: Option<usize>,
    /// The key arrives apart from the attributes.
    pub carries_key: bool,
}

/// What arrived, with the binding undone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Received {
    /// The identity, where the wire has a place of its own for it.
    pub id: Option<String>,
    /// The key, where the wire has a place of its own for it.
    pub key: Option<String>,
    /// How the body is to be read.
    pub content_type: Option<String>,
    /// The body.
    pub body: Bytes,
    /// The CloudEvents attributes, without the prefix of the binding.
    pub attributes: BTreeMap<String, String>,
    /// All other headers that a producer set, with their names in lower case.
    pub headers: BTreeMap<String, String>,
}

impl Received {
    /// The identity, wherever it is.
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

/// Turns the names of the transport suite into tests. The argument makes a fixture: an `async fn` without arguments.
#[macro_export]
macro_rules! transport_suite {
    ($fixture:path) => {
        async fn transport_suite_fixture() -> impl $crate::transport::TransportFixture {
            $fixture().await
        }
        $crate::transport_suite! { @tests
            travelling {
                bytes_and_headers_arrive_as_they_were
                every_format_arrives
                the_messages_of_a_key_arrive_in_their_order
                a_full_batch_arrives
                awkward_values_arrive_or_are_refused
            }
            answers {
                every_message_has_its_own_answer
                a_missing_destination_is_never_a_success
                what_is_too_large_is_refused_for_good
                the_same_message_again_is_accepted
                an_empty_batch_has_no_answers
            }
            trouble {
                nobody_there_is_down
                a_dropped_call_confuses_nobody
                calls_at_one_moment_have_their_own_answers
                what_was_accepted_survives_a_crash
                a_crash_in_the_middle_loses_nothing_that_was_accepted
            }
            connections {
                a_lost_answer_is_unknown_and_the_next_call_works
                what_was_cut_off_is_never_a_success
                silence_is_no_success_and_does_not_last
                late_answers_confuse_nobody
            }
            closing {
                closing_lets_what_was_accepted_arrive
                a_closed_transport_is_down
                closing_twice_is_closing_once
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
