//! Helpers of the source suite.

use super::SourceFixture;
pub(super) use crate::transport::helpers::{ids, orders, sorted, within_patience, written};
use postrider_core::{Ack, DecodedMessage, Format, Message, Outgoing, QueueName, ReceivedMessage, Source};
use std::{collections::BTreeSet, time::Duration};
use tokio::time::timeout;

/// Longer than the ack deadline of any fixture.
const REDELIVERED_WITHIN: Duration = Duration::from_secs(20);

/// This many orders without a key: all of them can be in flight at once, even if the next message of a key waits for the previous
/// one.
pub(super) fn loose_orders(count: usize, address: &str) -> Vec<Outgoing> {
    let order = |number| Message::builder("orders").event_type("order.placed").json(&number);
    (0..count).map(|number| written(order(number), address, Format::Binary)).collect()
}

/// The decoded message.
pub(super) fn decoded(message: &ReceivedMessage) -> DecodedMessage {
    let queue = QueueName::new("orders").unwrap();
    message.incoming.read(&queue).unwrap_or_else(|error| panic!("{:?}: {error}", message.incoming))
}

/// The identity of a message.
pub(super) fn id(message: &ReceivedMessage) -> String {
    decoded(message).id.to_string()
}

pub(super) fn identities(messages: &[ReceivedMessage]) -> Vec<String> {
    messages.iter().map(id).collect()
}

/// Receives, with a timeout.
pub(super) async fn receive(source: &dyn Source, most: usize) -> Vec<ReceivedMessage> {
    let received = within_patience("receiving", source.receive(most)).await;
    let messages = received.unwrap_or_else(|error| panic!("receiving: {error}"));
    assert!(
        !messages.is_empty() && messages.len() <= most,
        "{} messages instead of up to {most}",
        messages.len()
    );
    messages
}

/// Receives until there are this many different messages; acks duplicates on the way.
pub(super) async fn receive_all(source: &dyn Source, count: usize) -> Vec<ReceivedMessage> {
    let (mut messages, mut seen) = (Vec::new(), BTreeSet::new());
    while messages.len() < count {
        for message in receive(source, count).await {
            if seen.insert(id(&message)) {
                messages.push(message);
            } else {
                ack(source, &[message], Ack::Ack).await;
            }
        }
    }
    messages
}

/// Acks all messages in the same way, and asserts that it succeeds.
pub(super) async fn ack(source: &dyn Source, messages: &[ReceivedMessage], with: Ack) {
    let acks: Vec<_> = messages.iter().map(|message| (message.ack_handle.clone(), with)).collect();
    let reported = within_patience("acking", source.ack(&acks)).await;
    assert_eq!(reported.len(), acks.len(), "one result for each ack");
    for result in reported {
        result.unwrap_or_else(|error| panic!("acking with {with:?}: {error}"));
    }
}

/// Releases messages in flight. Without an ack deadline they stay in flight although connections break. If a connection was all
/// that held them, the nack is too late, and they are redelivered by themselves.
pub(super) async fn release(source: &dyn Source, messages: &[ReceivedMessage]) {
    if source.capabilities().ack_deadline.is_none() {
        let acks: Vec<_> =
            messages.iter().map(|message| (message.ack_handle.clone(), Ack::REDELIVER_NOW)).collect();
        within_patience("releasing", source.ack(&acks)).await;
    }
}

/// Receives and acks until all of `wanted` were received, over connections that may break, and returns the received ids.
///
/// An unconfirmed ack may have succeeded. If such a message is not redelivered for long, it has.
pub(super) async fn finish(source: &dyn Source, wanted: &[String]) -> Vec<String> {
    let mut came = Vec::new();
    within_patience("receiving everything", async {
        let mut missing: BTreeSet<_> = wanted.iter().cloned().collect();
        let mut doubtful = BTreeSet::new();
        while !missing.is_empty() {
            let within = if missing.is_subset(&doubtful) { REDELIVERED_WITHIN } else { Duration::MAX };
            let Ok(received) = timeout(within, source.receive(50)).await else { return };
            let Ok(messages) = received else {
                tokio::task::yield_now().await;
                continue;
            };
            let acks: Vec<_> =
                messages.iter().map(|message| (message.ack_handle.clone(), Ack::Ack)).collect();
            for (reported, message) in source.ack(&acks).await.into_iter().zip(&messages) {
                came.push(id(message));
                if reported.is_ok() {
                    missing.remove(&id(message));
                } else {
                    doubtful.insert(id(message));
                }
            }
        }
    })
    .await;
    came
}

/// Sends one more message, and asserts that only that message is received: all earlier ones are settled.
pub(super) async fn assert_nothing_left<F: SourceFixture>(fixture: &F, address: &str) {
    let source = fixture.source(address).await;
    let last = orders(1, address);
    fixture.send(address, last.clone()).await;
    assert_eq!(identities(&receive_all(&*source, 1).await), ids(&last), "something else came again");
    within_patience("closing", source.close()).await;
}

/// Sends one more message, and asserts that only that message and some of `lost`, whose acks were lost, are received.
pub(super) async fn assert_only_left<F: SourceFixture>(fixture: &F, address: &str, lost: &[String]) {
    let source = fixture.source(address).await;
    let last = orders(1, address);
    fixture.send(address, last.clone()).await;
    let mut came = finish(&*source, &ids(&last)).await;
    came.retain(|id| !lost.contains(id) && *id != last[0].id.to_string());
    assert!(came.is_empty(), "something else came: {came:?}");
    within_patience("closing", source.close()).await;
}
