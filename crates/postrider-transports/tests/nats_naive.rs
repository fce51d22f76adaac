//! How others publish to NATS, and what they lose where this transport does not.

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

const NOBODY: &str = "nobody.holds.this";

fn transport() -> NatsTransport {
    NatsTransport::connect(shared::url(Kind::Nats)).unwrap()
}

/// Without JetStream: whoever listens gets it, and nobody may.
async fn with_the_core_alone(batch: &[Outgoing]) -> Vec<bool> {
    let client = async_nats::connect(shared::url(Kind::Nats)).await.unwrap();
    let mut accepted = Vec::new();
    for outgoing in batch {
        accepted.push(client.publish(outgoing.destination.clone(), outgoing.body.clone()).await.is_ok());
    }
    client.flush().await.unwrap();
    accepted
}

/// The first of the two awaits.
async fn with_the_first_await(batch: &[Outgoing]) -> Vec<bool> {
    let context = context(&shared::url(Kind::Nats)).await;
    let mut accepted = Vec::new();
    for outgoing in batch {
        let sent = context.publish(outgoing.destination.clone(), outgoing.body.clone()).await;
        accepted.push(sent.is_ok());
    }
    accepted
}

/// Both awaits, and no look at the stream.
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
async fn the_core_alone_accepts_what_no_stream_holds() {
    let batch = orders(10, NOBODY);
    assert_eq!(soon(with_the_core_alone(&batch)).await, [true; 10]);
    for answer in publish(&transport(), &batch).await {
        assert!(matches!(answer, Err(PublishError::Retry { .. })), "{answer:?}");
    }
}

#[tokio::test]
async fn the_first_await_accepts_what_no_stream_holds() {
    let batch = orders(10, NOBODY);
    assert_eq!(soon(with_the_first_await(&batch)).await, [true; 10]);
    for answer in publish(&transport(), &batch).await {
        assert!(matches!(answer, Err(PublishError::Retry { .. })), "{answer:?}");
    }
}

/// The server says yes to each, and no answer can tell. What can is a look at the stream.
#[tokio::test]
async fn a_stream_that_discards_the_oldest_loses_what_it_acknowledged() {
    let url = shared::url(Kind::Nats);
    let small = |config: &mut async_nats::jetstream::stream::Config| {
        (config.discard, config.max_messages) = (DiscardPolicy::Old, 5);
    };
    let (stream, subject) = stream(&url, small).await;
    let batch = orders(20, &subject);
    assert_eq!(soon(with_both_awaits(&batch)).await, [true; 20]);
    assert_eq!(stored(&url, &subject).await.len(), 5, "fifteen are lost");

    let findings = soon(transport().check(&[&subject])).await.unwrap();
    let told = findings.iter().find(|finding| finding.code == "discard_old").unwrap();
    assert_eq!(told.severity, Severity::Problem);

    // Mended as the finding says, the stream refuses instead, and the answers say so.
    let mut config = stream.cached_info().config.clone();
    config.discard = DiscardPolicy::New;
    let context = context(&url).await;
    context.update_stream(config).await.unwrap();
    stream.purge().await.unwrap();
    let answers = publish(&transport(), &batch).await;
    let accepted = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!((accepted, stored(&url, &subject).await.len()), (5, 5));
}
