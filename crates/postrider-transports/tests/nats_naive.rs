//! Controls: naive ways of publishing to NATS, and the messages that they lose and this transport does not.

#![cfg(feature = "nats")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/nats.rs"]
mod server;
mod support;

use async_nats::jetstream::stream::DiscardPolicy;
use postrider_core::{Outgoing, PublishError, Severity, Transport};
use postrider_testkit::{Kind, shared};
use postrider_transports::nats::NatsTransport;
use server::{context, stored, stream};
use support::{orders, publish, soon};

const NO_STREAM: &str = "missing.stream.subject";

fn transport() -> NatsTransport {
    NatsTransport::connect(shared::url(Kind::Nats)).unwrap()
}

/// Core NATS without JetStream: only current subscribers get the message, and there may be none.
async fn with_the_core_alone(batch: &[Outgoing]) -> Vec<bool> {
    let client = async_nats::connect(shared::url(Kind::Nats)).await.unwrap();
    let mut accepted = Vec::new();
    for outgoing in batch {
        accepted.push(client.publish(outgoing.destination.clone(), outgoing.body.clone()).await.is_ok());
    }
    client.flush().await.unwrap();
    accepted
}

/// Only the first of the two awaits.
async fn with_the_first_await(batch: &[Outgoing]) -> Vec<bool> {
    let context = context(&shared::url(Kind::Nats)).await;
    let mut accepted = Vec::new();
    for outgoing in batch {
        let sent = context.publish(outgoing.destination.clone(), outgoing.body.clone()).await;
        accepted.push(sent.is_ok());
    }
    accepted
}

/// Both awaits, without checking the stream.
async fn with_both_awaits(batch: &[Outgoing]) -> Vec<bool> {
    let context = context(&shared::url(Kind::Nats)).await;
    let mut accepted = Vec::new();
    for outgoing in batch {
        let sent = context.publish(outgoing.destination.clone(), outgoing.body.clone()).await;
        accepted.push(sent.unwrap().await.is_ok());
    }
    accepted
}

#[tokio::test]
async fn core_nats_publish_accepts_messages_without_a_stream() {
    let batch = orders(10, NO_STREAM);
    assert_eq!(soon(with_the_core_alone(&batch)).await, [true; 10]);
    for result in publish(&transport(), &batch).await {
        assert!(matches!(result, Err(PublishError::AddressUnavailable { .. })), "{result:?}");
    }
}

#[tokio::test]
async fn first_await_accepts_messages_without_a_stream() {
    let batch = orders(10, NO_STREAM);
    assert_eq!(soon(with_the_first_await(&batch)).await, [true; 10]);
    for result in publish(&transport(), &batch).await {
        assert!(matches!(result, Err(PublishError::AddressUnavailable { .. })), "{result:?}");
    }
}

/// The server acknowledges each message, so no publish result shows the loss. Only the check of the stream does.
#[tokio::test]
async fn stream_with_discard_old_loses_acknowledged_messages() {
    let url = shared::url(Kind::Nats);
    let small = |config: &mut async_nats::jetstream::stream::Config| {
        (config.discard, config.max_messages) = (DiscardPolicy::Old, 5);
    };
    let (stream, subject) = stream(&url, small).await;
    let batch = orders(20, &subject);
    assert_eq!(soon(with_both_awaits(&batch)).await, [true; 20]);
    assert_eq!(stored(&url, &subject).await.len(), 5, "fifteen are lost");

    let findings = soon(transport().check(&[&subject])).await.unwrap();
    let finding = findings.iter().find(|finding| finding.code == "discard_old").unwrap();
    assert_eq!(finding.severity, Severity::Problem);

    // With the fix of the finding, the stream refuses instead, and the publish results show it.
    let mut config = stream.cached_info().config.clone();
    config.discard = DiscardPolicy::New;
    let context = context(&url).await;
    context.update_stream(config).await.unwrap();
    stream.purge().await.unwrap();
    let results = publish(&transport(), &batch).await;
    let accepted = results.iter().filter(|result| result.is_ok()).count();
    assert_eq!((accepted, stored(&url, &subject).await.len()), (5, 5));
}
