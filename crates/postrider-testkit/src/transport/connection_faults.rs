//! Connections that are cut, fall silent, or lose a reply.

use super::{Received, TransportFixture, helpers::*};
use crate::proxy::{Direction, Fault, FaultProxy};
use postrider_core::{Outgoing, PublishError, Transport};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// The publish timeout of these cases, as a relay has one.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A transport that has already published through the proxy, and its destination.
struct Connected<'a, F> {
    fixture: &'a F,
    proxy: FaultProxy,
    transport: Arc<dyn Transport>,
    destination: String,
}

impl<'a, F: TransportFixture> Connected<'a, F> {
    async fn of(fixture: &'a F) -> Option<Self> {
        let (proxy, transport) = fixture.through_proxy().await?;
        let destination = fixture.destination().await;
        publish_until_accepted(&*transport, &orders(1, &destination)[0]).await;
        Some(Self { fixture, proxy, transport, destination })
    }

    fn orders(&self) -> Vec<Outgoing> {
        orders(self.transport.capacity().batch.min(20), &self.destination)
    }

    async fn there(&self) -> BTreeSet<String> {
        let there: Vec<Received> = received(self.fixture, &self.destination, 1).await;
        identities(&there).into_iter().collect()
    }

    /// Asserts that accepted messages arrived, and that messages reported as not sent did not.
    async fn assert_results_true(&self, batch: &[Outgoing], results: &Results) {
        let there = self.there().await;
        for (result, outgoing) in results.iter().zip(batch) {
            let is_there = there.contains(&outgoing.id.to_string());
            match result {
                Ok(_) => assert!(is_there, "{} was accepted and is not there", outgoing.id),
                Err(PublishError::Unknown { .. }) => {}
                Err(PublishError::Reject { source }) => panic!("rejected permanently: {source}"),
                Err(error) => assert!(!is_there, "{} is there, and yet: {error}", outgoing.id),
            }
        }
    }

    /// Asserts that the same messages arrive when they are published again.
    async fn assert_recovers(&self, batch: &[Outgoing]) {
        for outgoing in batch {
            publish_until_accepted(&*self.transport, outgoing).await;
        }
        let there = self.there().await;
        for outgoing in batch {
            assert!(there.contains(&outgoing.id.to_string()), "{} was accepted and is gone", outgoing.id);
        }
    }

    /// Whether an error reported the fault, or a client that resends by itself has reconnected.
    fn saw_fault(&self, results: &Results) -> bool {
        results.iter().any(Result::is_err) || self.proxy.counts().connections > 1
    }
}

/// The server has the messages, and the reply is lost with the connection: the result is unknown. The next call reconnects.
pub async fn a_lost_reply_is_unknown_and_the_next_publish_works<F: TransportFixture>(fixture: F) {
    let Some(connected) = Connected::of(&fixture).await else { return };
    let batch = connected.orders();
    connected.proxy.set_once(Fault::DropReply);
    let results = publish(&*connected.transport, &batch).await;
    assert!(connected.saw_fault(&results), "{results:?}");
    connected.assert_results_true(&batch, &results).await;
    connected.assert_recovers(&batch).await;
}

/// A connection is cut in the middle of a request or a reply.
pub async fn a_truncated_exchange_is_never_a_success<F: TransportFixture>(fixture: F) {
    for (direction, bytes) in [
        (Direction::ToServer, 1),
        (Direction::ToServer, 3_000),
        (Direction::ToClient, 1),
        (Direction::ToClient, 10),
    ] {
        let Some(connected) = Connected::of(&fixture).await else { return };
        let batch = connected.orders();
        connected.proxy.set_once(Fault::CutAfter { direction, bytes });
        let results = publish(&*connected.transport, &batch).await;
        assert!(connected.saw_fault(&results), "{direction:?} {bytes}: {results:?}");
        connected.assert_results_true(&batch, &results).await;
        connected.assert_recovers(&batch).await;
    }
}

/// The connection stays open and no reply arrives: that is not a success, and the next call does not wait for it.
pub async fn a_silent_server_is_never_a_success_and_times_out<F: TransportFixture>(fixture: F) {
    let Some(connected) = Connected::of(&fixture).await else { return };
    let batch = connected.orders();
    connected.proxy.set(Fault::BlackHole);
    // Dropped if its own timeout is longer than a relay's.
    if let Ok(results) = tokio::time::timeout(TIMEOUT, connected.transport.publish(&batch)).await {
        for result in results {
            assert!(matches!(result, Err(PublishError::Unknown { .. })), "{result:?}");
        }
    }
    connected.proxy.set(Fault::None);
    connected.assert_recovers(&batch).await;
}

/// Replies that arrive after a call was abandoned are not taken as results of the next one.
pub async fn late_replies_do_not_affect_later_results<F: TransportFixture>(fixture: F) {
    let Some(connected) = Connected::of(&fixture).await else { return };
    let batch = connected.orders();
    connected.proxy.set(Fault::Stall);
    let given_up = tokio::time::timeout(TIMEOUT / 10, connected.transport.publish(&batch)).await;
    if let Ok(results) = given_up {
        assert!(results.iter().all(Result::is_err), "nothing got through: {results:?}");
    }
    connected.proxy.set(Fault::None);
    if fixture.features().knows_destinations {
        let missing = fixture.missing_destination();
        for result in publish(&*connected.transport, &orders(batch.len(), &missing)).await {
            assert!(result.is_err(), "it did not arrive");
        }
    }
    connected.assert_recovers(&batch).await;
}
