//! What the cases share.

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

/// Longer than anything takes; a case that reaches it has hung.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) type Answers = Vec<Result<Receipt, PublishError>>;

pub(crate) fn written(builder: MessageBuilder, destination: &str, format: Format) -> Outgoing {
    let now = SystemTime::now();
    let message = builder.build().unwrap();
    Outgoing::write(&message, MessageId::at(now), now, "/shop", destination.to_owned(), format).unwrap()
}

/// A small order with a key.
pub(crate) fn order(number: usize) -> MessageBuilder {
    Message::builder("orders").event_type("order.placed").key(format!("key-{}", number % 5)).json(&number)
}

/// So many orders to one destination.
pub(crate) fn orders(count: usize, destination: &str) -> Vec<Outgoing> {
    (0..count).map(|number| written(order(number), destination, Format::Binary)).collect()
}

/// Within a bound, so that what never answers fails.
pub(crate) async fn patiently<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} takes for ever"))
}

/// Publishes, and checks that there is one answer for each.
pub(crate) async fn publish(transport: &dyn Transport, batch: &[Outgoing]) -> Answers {
    let answers = patiently("publishing", transport.publish(batch)).await;
    assert_eq!(answers.len(), batch.len(), "one answer for each message");
    answers
}

/// Publishes what must be accepted.
pub(crate) async fn publish_all(transport: &dyn Transport, batch: &[Outgoing]) {
    for (answer, outgoing) in publish(transport, batch).await.into_iter().zip(batch) {
        answer.unwrap_or_else(|error| panic!("{} to {}: {error}", outgoing.id, outgoing.destination));
    }
}

pub(crate) async fn received<F: TransportFixture>(
    fixture: &F,
    destination: &str,
    count: usize,
) -> Vec<Received> {
    let received = patiently("receiving", fixture.received(destination, count)).await;
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

/// Publishes until it is accepted, as a relay would.
pub(crate) async fn publish_until_accepted(transport: &dyn Transport, outgoing: &Outgoing) {
    patiently("publishing again and again", async {
        while let Err(error) = transport.publish(std::slice::from_ref(outgoing)).await.remove(0) {
            assert!(!matches!(error, PublishError::Reject { .. }), "refused for good: {error}");
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Polls a future so often, and drops it, unless it was ready by then.
pub(crate) async fn drop_after<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..polls {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(answer);
        }
        tokio::task::yield_now().await;
    }
    None
}
