//! Helpers of the transport suite.

use super::{Received, TransportFixture};
use postrider_core::{
    Format, Message, MessageBuilder, MessageId, Outgoing, PublishError, Receipt, Transport,
};
use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::{Duration, SystemTime},
};

/// Longer than any operation takes; a case that reaches it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) type Results = Vec<Result<Receipt, PublishError>>;

pub(crate) fn written(builder: MessageBuilder, destination: &str, format: Format) -> Outgoing {
    let now = SystemTime::now();
    let message = builder.build().unwrap();
    Outgoing::write(&message, MessageId::at(now), now, "/shop", destination.to_owned(), format).unwrap()
}

/// A small order with a key.
pub(crate) fn order(number: usize) -> MessageBuilder {
    Message::builder("orders").event_type("order.placed").key(format!("key-{}", number % 5)).json(&number)
}

/// This many orders for one destination.
pub(crate) fn orders(count: usize, destination: &str) -> Vec<Outgoing> {
    (0..count).map(|number| written(order(number), destination, Format::Binary)).collect()
}

/// Runs a future with a timeout, so that a call that never returns fails.
pub(crate) async fn within_patience<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what}: timed out"))
}

/// Publishes, and asserts that there is one result for each message.
pub(crate) async fn publish(transport: &dyn Transport, batch: &[Outgoing]) -> Results {
    let results = within_patience("publishing", transport.publish(batch)).await;
    assert_eq!(results.len(), batch.len(), "one result for each message");
    results
}

/// Publishes, and asserts that every message is accepted.
pub(crate) async fn publish_all(transport: &dyn Transport, batch: &[Outgoing]) {
    for (result, outgoing) in publish(transport, batch).await.into_iter().zip(batch) {
        result.unwrap_or_else(|error| panic!("{} to {}: {error}", outgoing.id, outgoing.destination));
    }
}

pub(crate) async fn received<F: TransportFixture>(
    fixture: &F,
    destination: &str,
    count: usize,
) -> Vec<Received> {
    let received = within_patience("receiving", fixture.received(destination, count)).await;
    assert!(received.len() >= count, "{count} messages were asked for");
    received
}

pub(crate) fn identities(received: &[Received]) -> Vec<String> {
    received.iter().map(|received| received.identity().to_owned()).collect()
}

pub(crate) fn ids(batch: &[Outgoing]) -> Vec<String> {
    batch.iter().map(|outgoing| outgoing.id.to_string()).collect()
}

pub(crate) fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort_unstable();
    texts
}

/// Publishes until the message is accepted, as a relay does.
pub(crate) async fn publish_until_accepted(transport: &dyn Transport, outgoing: &Outgoing) {
    within_patience("publishing again and again", async {
        while let Err(error) = transport.publish(std::slice::from_ref(outgoing)).await.remove(0) {
            assert!(!matches!(error, PublishError::Reject { .. }), "rejected permanently: {error}");
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Polls a future this many times, and drops it unless it is ready by then.
pub(crate) async fn drop_after<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..polls {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(result);
        }
        tokio::task::yield_now().await;
    }
    None
}
