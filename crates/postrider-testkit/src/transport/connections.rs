//! Connections that are cut, fall silent, or lose an answer.

use super::{Received, TransportFixture, helpers::*};
use crate::proxy::{Direction, Fault, FaultProxy};
use postrider_core::{Outgoing, PublishError, Transport};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// How long these cases wait for an answer, as a relay would.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A transport that has published through the proxy already, and where to.
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

    /// Whatever was said to have arrived has, and whatever was said not to has not.
    async fn nobody_lied(&self, batch: &[Outgoing], answers: &Answers) {
        let there = self.there().await;
        for (answer, outgoing) in answers.iter().zip(batch) {
            let is_there = there.contains(&outgoing.id.to_string());
            match answer {
                Ok(_) => assert!(is_there, "{} was accepted and is not there", outgoing.id),
                Err(PublishError::Unknown { .. }) => {}
                Err(PublishError::Reject { source }) => panic!("refused for good: {source}"),
                Err(error) => assert!(!is_there, "{} is there, and yet: {error}", outgoing.id),
            }
        }
    }

    /// The same ones again arrive.
    async fn comes_back(&self, batch: &[Outgoing]) {
        for outgoing in batch {
            publish_until_accepted(&*self.transport, outgoing).await;
        }
        let there = self.there().await;
        for outgoing in batch {
            assert!(there.contains(&outgoing.id.to_string()), "{} was accepted and is gone", outgoing.id);
        }
    }

    /// An error told of it, or a client that resends by itself connected anew.
    fn was_felt(&self, answers: &Answers) -> bool {
        answers.iter().any(Result::is_err) || self.proxy.counts().connections > 1
    }
}

/// The other side has them, and the answer is lost with the connection: nobody knows. The next call connects anew.
pub async fn a_lost_answer_is_unknown_and_the_next_call_works<F: TransportFixture>(fixture: F) {
    let Some(connected) = Connected::of(&fixture).await else { return };
    let batch = connected.orders();
    connected.proxy.set_once(Fault::DropReply);
    let answers = publish(&*connected.transport, &batch).await;
    assert!(connected.was_felt(&answers), "{answers:?}");
    connected.nobody_lied(&batch, &answers).await;
    connected.comes_back(&batch).await;
}

/// A connection is cut in the middle of what is sent, or of what is answered.
pub async fn what_was_cut_off_is_never_a_success<F: TransportFixture>(fixture: F) {
    for (direction, bytes) in [
        (Direction::ToServer, 1),
        (Direction::ToServer, 3_000),
        (Direction::ToClient, 1),
        (Direction::ToClient, 10),
    ] {
        let Some(connected) = Connected::of(&fixture).await else { return };
        let batch = connected.orders();
        connected.proxy.set_once(Fault::CutAfter { direction, bytes });
        let answers = publish(&*connected.transport, &batch).await;
        assert!(connected.was_felt(&answers), "{direction:?} {bytes}: {answers:?}");
        connected.nobody_lied(&batch, &answers).await;
        connected.comes_back(&batch).await;
    }
}

/// No connection ends, and no answer comes: that is no success, and the next call does not wait for it.
pub async fn silence_is_no_success_and_does_not_last<F: TransportFixture>(fixture: F) {
    let Some(connected) = Connected::of(&fixture).await else { return };
    let batch = connected.orders();
    connected.proxy.set(Fault::BlackHole);
    // Dropped where it has more patience than a relay.
    if let Ok(answers) = tokio::time::timeout(TIMEOUT, connected.transport.publish(&batch)).await {
        for answer in answers {
            assert!(matches!(answer, Err(PublishError::Unknown { .. })), "{answer:?}");
        }
    }
    connected.proxy.set(Fault::None);
    connected.comes_back(&batch).await;
}

/// Answers that come after a call was given up are not taken for those of the next one.
pub async fn late_answers_confuse_nobody<F: TransportFixture>(fixture: F) {
    let Some(connected) = Connected::of(&fixture).await else { return };
    let batch = connected.orders();
    connected.proxy.set(Fault::Stall);
    let given_up = tokio::time::timeout(TIMEOUT / 10, connected.transport.publish(&batch)).await;
    if let Ok(answers) = given_up {
        assert!(answers.iter().all(Result::is_err), "nothing got through: {answers:?}");
    }
    connected.proxy.set(Fault::None);
    if fixture.features().knows_destinations {
        let missing = fixture.missing_destination();
        for answer in publish(&*connected.transport, &orders(batch.len(), &missing)).await {
            assert!(answer.is_err(), "nobody has it");
        }
    }
    connected.comes_back(&batch).await;
}
