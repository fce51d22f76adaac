//! The bytes in flight: received, and not yet acked.

use super::{SourceFixture, helpers::*};
use postrider_core::{Ack, Format, Message, Outgoing, ReceivedMessage, Source};
use std::{collections::BTreeSet, time::Duration};
use tokio::time::timeout;

/// Small beside the bytes that wait, and large enough for few rounds: Kafka needs a second for each.
const BUDGET: usize = 4 << 20;
/// A little less than the limit of SQS.
const LARGE: usize = 240 << 10;
const COUNT: usize = 200;
/// Waits so long for messages that a source over its budget would return. A slow machine only makes the test weaker.
const QUIET: Duration = Duration::from_millis(200);

fn messages(count: usize, size: usize, address: &str) -> Vec<Outgoing> {
    let message = |_| Message::builder("orders").event_type("order.placed").payload("x".repeat(size));
    (0..count).map(|number| written(message(number), address, Format::Binary)).collect()
}

fn bytes(messages: &[ReceivedMessage]) -> usize {
    messages.iter().map(|message| message.incoming.body.len()).sum()
}

/// Receives as long as the source returns something, without an ack.
async fn receive_greedily(source: &dyn Source) -> Vec<ReceivedMessage> {
    let mut held = receive(source, 1_000).await;
    while let Ok(received) = timeout(QUIET, source.receive(1_000)).await {
        held.extend(received.unwrap());
        assert!(
            bytes(&held) <= 2 * BUDGET,
            "{} bytes in {} messages are in flight",
            bytes(&held),
            held.len()
        );
    }
    held
}

/// However many large messages wait, those in flight have no more bytes than the budget and one batch, and all of them are received.
pub async fn bytes_in_flight_stay_within_the_budget<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let Some(source) = fixture.source_within(&address, BUDGET).await else { return };
    let batch = messages(COUNT, LARGE, &address);
    for part in batch.chunks(20) {
        fixture.send(&address, part.to_vec()).await;
    }
    let mut missing: BTreeSet<_> = ids(&batch).into_iter().collect();
    while !missing.is_empty() {
        let held = receive_greedily(&*source).await;
        for message in &held {
            missing.remove(&id(message));
        }
        // A slow machine may miss an ack deadline: then the message is redelivered.
        let acks: Vec<_> = held.into_iter().map(|message| (message.ack_handle, Ack::Ack)).collect();
        within_patience("acking", source.ack(&acks)).await;
    }
    within_patience("closing", source.close()).await;
}

/// The budget is one of bytes: many small messages travel together.
pub async fn small_messages_are_received_in_large_batches<F: SourceFixture>(fixture: F) {
    let address = fixture.address().await;
    let Some(source) = fixture.source_within(&address, BUDGET / 4).await else { return };
    fixture.send(&address, messages(5 * COUNT, 10, &address)).await;
    let (mut received, mut largest) = (0, 0);
    while received < 5 * COUNT {
        let messages = receive(&*source, 1_000).await;
        ack(&*source, &messages, Ack::Ack).await;
        received += messages.len();
        largest = largest.max(messages.len());
    }
    assert!(largest >= 10, "{largest} messages in the largest batch");
    within_patience("closing", source.close()).await;
}
