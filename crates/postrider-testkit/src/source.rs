//! The suite that every source passes, against the real server.

pub mod answering;
pub mod closing;
mod helpers;
pub mod keeping_order;
pub mod receiving;
pub mod sharing;
pub mod trouble;

use crate::proxy::FaultProxy;
use async_trait::async_trait;
use postrider_core::{Outgoing, Source};
use std::{future::Future, sync::Arc};

/// Sources of one server, and a way to send to them.
#[async_trait]
pub trait SourceFixture: Send + Sync + 'static {
    /// What they can be asked for.
    fn features(&self) -> SourceFeatures;

    /// A new place that is read, with nothing in it: a queue, a stream with its group.
    async fn place(&self) -> String;

    /// Sends to `place` as the relay does, through the transport of the same kind, and returns when all is accepted. Where sending is
    /// waiting for the consumer, it returns at once, and sends again until it is done or refused.
    async fn send(&self, place: &str, batch: Vec<Outgoing>);

    /// Sends a message that is nobody's event, with this id in the place that the wire has for it.
    async fn send_bare(&self, place: &str, id: Option<&str>, body: &str);

    /// A consumer of `place`, with a connection of its own. All consumers of a place share what is there.
    async fn source(&self, place: &str) -> Arc<dyn Source>;

    /// A source at a port on which nobody listens; none where nobody is connected to.
    async fn nobody_there(&self) -> Option<Arc<dyn Source>>;

    /// A consumer of `place` through a proxy of its own; none where there is no connection that could break.
    async fn through_proxy(&self, place: &str) -> Option<(FaultProxy, Arc<dyn Source>)>;

    /// Kills the server without a word, starts it again, and returns when it answers. Only asked of those that
    /// [survive](SourceFeatures::survives_restarts) it.
    async fn kill_and_restart(&self);
}

/// What a source can be asked for, besides its [abilities](postrider_core::Abilities). Differences are declared here, in plain sight.
#[derive(Debug, Clone, Copy)]
pub struct SourceFeatures {
    /// Messages have lanes.
    pub keeps_order: bool,
    /// Several consumers of one place share what is there.
    pub shares: bool,
    /// The wire has a place of its own for the identity.
    pub carries_id: bool,
    /// What was not answered is there after a crash of the server, and the fixture can crash it.
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

/// Turns the names of the source suite into tests. The argument makes a fixture: an `async fn` without arguments.
#[macro_export]
macro_rules! source_suite {
    ($fixture:path) => {
        async fn source_suite_fixture() -> impl $crate::source::SourceFixture {
            $fixture().await
        }
        $crate::source_suite! { @tests
            receiving {
                what_was_sent_is_read_as_it_was
                bytes_arrive_as_they_were
                no_more_comes_than_was_asked_for
                waiting_ends_when_something_comes
                a_dropped_call_loses_nothing
                a_bare_message_has_the_identity_of_its_wire
                the_first_delivery_is_counted_as_one
            }
            answering {
                what_is_done_never_comes_again
                what_is_to_come_again_does
                a_delay_is_kept
                what_is_refused_never_comes_again
                every_answer_is_for_its_own_message
                answers_may_come_in_any_order
                answering_twice_harms_nobody
                what_is_extended_is_still_ours
                no_answers_are_no_trouble
            }
            sharing {
                two_consumers_get_nothing_twice
                what_a_dead_consumer_had_comes_to_another
                closing_gives_back_what_was_not_answered
            }
            keeping_order {
                a_lane_comes_in_its_order
                what_comes_again_is_followed_by_what_is_behind_it
            }
            trouble {
                nobody_there_is_down
                a_cut_connection_loses_nothing
                an_answer_into_nowhere_loses_nothing
                what_stalls_goes_on
                a_crash_loses_nothing
            }
            closing {
                a_closed_source_is_down
                closing_ends_the_call_that_waits
                closing_twice_is_closing_once
            }
        }
    };
    (@tests $($module:ident { $($case:ident)* })*) => {$(
        mod $module {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::source::run(super::source_suite_fixture(), $crate::source::$module::$case).await;
            }
        )*}
    )*};
}

#[cfg(test)]
mod tests {
    use crate::store::tests::assert_every_case_is_named;

    #[test]
    fn every_case_is_named_in_the_macro() {
        assert_every_case_is_named("src/source", include_str!("source.rs"));
    }
}
