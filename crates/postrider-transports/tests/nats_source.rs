//! The source suite on NATS JetStream, and tests of its own features.

#![cfg(feature = "nats")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/nats_source.rs"]
mod nats_source;
#[path = "support/nats.rs"]
mod server;
mod support;

use async_nats::{
    HeaderMap,
    jetstream::consumer::{AckPolicy, pull},
};
use nats_source::{DURABLE, NatsSourceFixture, address, builder, put, stream_of};
use postrider_core::{Ack, ClientOptions, QueueName, ReceivedMessage, Source, SourceError};
use postrider_testkit::{
    Kind,
    proxy::{Fault, FaultProxy},
    shared,
};
use postrider_transports::nats::NatsSource;
use server::{context, stream};
use std::time::Duration;
use support::{client, orders, soon};

mod shared_server_suite {
    use super::*;
    async fn fixture() -> NatsSourceFixture {
        NatsSourceFixture::shared()
    }
    postrider_testkit::source_suite!(fixture, unordered);
}

mod crashing_server_suite {
    postrider_testkit::source_suite!(super::NatsSourceFixture::own, unordered);
}

fn url() -> String {
    shared::url(Kind::Nats)
}

const AN_HOUR: Duration = Duration::from_secs(3_600);

/// An address whose messages are redelivered only by a nack within a test.
async fn address_with_long_ack_wait() -> String {
    address(&url(), |config| config.ack_wait = AN_HOUR).await
}

fn source(address: &str) -> NatsSource {
    builder(&url(), address).build().unwrap()
}

/// Receives `count` messages without acking them.
async fn receive(source: &NatsSource, count: usize) -> Vec<ReceivedMessage> {
    let mut received = Vec::new();
    while received.len() < count {
        received.extend(soon(source.receive(count - received.len())).await.unwrap());
    }
    received
}

async fn ack(source: &NatsSource, messages: &[ReceivedMessage], with: Ack) -> Vec<Result<(), SourceError>> {
    let acks: Vec<_> = messages.iter().map(|message| (message.ack_handle.clone(), with)).collect();
    soon(source.ack(&acks)).await
}

fn all_ok(results: &[Result<(), SourceError>]) -> bool {
    results.iter().all(Result::is_ok)
}

fn all_stale(results: &[Result<(), SourceError>]) -> bool {
    results.iter().all(|results| matches!(results, Err(SourceError::Stale { .. })))
}

#[tokio::test]
async fn ack_is_valid_over_a_new_connection() {
    let address = address_with_long_ack_wait().await;
    let (proxy, through) = FaultProxy::before_url(&url()).await;
    let source = builder(&through, &address).build().unwrap();
    put(&url(), orders(3, &address)).await;
    let messages = receive(&source, 3).await;
    proxy.cut();
    // The loss is reported once; then the source reconnects.
    assert!(matches!(soon(source.receive(1)).await, Err(SourceError::Unavailable { .. })));
    assert!(all_ok(&ack(&source, &messages[..2], Ack::Ack).await));
    assert!(all_ok(&ack(&source, &messages[2..], Ack::REDELIVER_NOW).await));
    let again = receive(&source, 1).await;
    assert_eq!(
        (again[0].incoming.id.as_ref(), again[0].deliveries),
        (messages[2].incoming.id.as_ref(), Some(2))
    );
}

#[tokio::test]
async fn redelivered_message_is_acked_by_its_new_handle_only() {
    let address = address(&url(), |config| config.ack_wait = Duration::from_millis(200)).await;
    let source = source(&address);
    put(&url(), orders(1, &address)).await;
    let before = receive(&source, 1).await;
    let after = receive(&source, 1).await;
    // A server that drops a pull request counts a delivery that it has not made.
    assert!(after[0].deliveries >= Some(2), "{after:?}");
    assert!(all_stale(&ack(&source, &before, Ack::Ack).await));
    assert!(all_ok(&ack(&source, &after, Ack::Ack).await));
    assert!(all_stale(&ack(&source, &after, Ack::Ack).await));
}

/// The server drops some requests that expire just when the message is redelivered; requests this short expire all the time.
#[tokio::test]
async fn lost_pull_request_is_sent_again() {
    let settings = |config: &mut pull::Config| {
        config.ack_wait = Duration::from_millis(60);
        config.max_expires = Duration::from_millis(2);
    };
    let address = address(&url(), settings).await;
    let source = source(&address);
    put(&url(), orders(1, &address)).await;
    let mut deliveries = 0;
    while deliveries < 25 {
        deliveries = receive(&source, 1).await[0].deliveries.unwrap();
    }
}

#[tokio::test]
async fn ack_handle_of_another_source_is_stale() {
    let (address, other) = (address_with_long_ack_wait().await, address_with_long_ack_wait().await);
    put(&url(), orders(1, &address)).await;
    let (source, other) = (source(&address), source(&other));
    let messages = receive(&source, 1).await;
    assert!(all_stale(&ack(&other, &messages, Ack::Ack).await));
    assert!(all_ok(&ack(&source, &messages, Ack::Ack).await));
}

/// A network that accepts acks and drops them.
#[tokio::test]
async fn ack_without_confirmation_is_an_error_and_can_be_retried() {
    let address = address_with_long_ack_wait().await;
    let (proxy, through) = FaultProxy::before_url(&url()).await;
    let second = Duration::from_secs(1);
    let source = NatsSource::connect(client(&through, second), stream_of(&address), DURABLE).unwrap();
    put(&url(), orders(1, &address)).await;
    let messages = receive(&source, 1).await;
    proxy.set(Fault::Stall);
    let results = ack(&source, &messages, Ack::Ack).await;
    assert!(matches!(results[..], [Err(SourceError::Unavailable { .. })]), "{results:?}");
    // The ack succeeds when the network is back.
    proxy.set(Fault::None);
    let acking = async {
        while !all_ok(&ack(&source, &messages, Ack::Ack).await) {
            tokio::task::yield_now().await;
        }
    };
    soon(acking).await;
}

#[tokio::test]
async fn close_nacks_messages_in_flight() {
    let address = address_with_long_ack_wait().await;
    put(&url(), orders(10, &address)).await;
    let closing = source(&address);
    let messages = receive(&closing, 10).await;
    closing.close().await;
    let again = receive(&source(&address), 10).await;
    assert!(again.iter().all(|message| message.deliveries == Some(2)));
    assert!(all_stale(&ack(&closing, &messages, Ack::Ack).await));
}

#[tokio::test]
async fn pull_request_respects_the_batch_size() {
    let address = address_with_long_ack_wait().await;
    put(&url(), orders(10, &address)).await;
    let modest = builder(&url(), &address).with_batch_size(3).build().unwrap();
    let first = soon(modest.receive(100)).await.unwrap();
    assert!((1..=3).contains(&first.len()));
    // If it had requested more, the other source would hang.
    assert_eq!(receive(&source(&address), 7).await.len(), 7);
}

#[tokio::test]
async fn ack_deadline_is_known_after_the_first_call() {
    let address = address_with_long_ack_wait().await;
    let source = source(&address);
    assert_eq!(source.capabilities().ack_deadline, Some(Duration::from_secs(30)));
    put(&url(), orders(1, &address)).await;
    receive(&source, 1).await;
    assert_eq!(source.capabilities().ack_deadline, Some(AN_HOUR));
    let backoff = vec![Duration::from_secs(7), Duration::from_secs(60)];
    let address = nats_source::address(&url(), |config| {
        (config.backoff, config.max_deliver) = (backoff, 5);
    })
    .await;
    let source = self::source(&address);
    source.redelivery_window().await.unwrap();
    assert_eq!(source.capabilities().ack_deadline, Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn consumer_is_created_only_if_configured() {
    let (mut stream, subject) = stream(&url(), |_| ()).await;
    put(&url(), orders(1, &subject)).await;
    let error = soon(source(&subject).receive(1)).await.unwrap_err().to_string();
    assert!(error.contains("nats consumer add"), "{error}");
    assert_eq!(stream.info().await.unwrap().state.consumer_count, 0);
    let creating = || builder(&url(), &subject).with_created_consumer(">", AN_HOUR).build().unwrap();
    assert_eq!(creating().capabilities().ack_deadline, Some(AN_HOUR));
    assert_eq!(receive(&creating(), 1).await.len(), 1);
    let config = stream.consumer_info(DURABLE).await.unwrap().config;
    assert_eq!((config.ack_policy, config.max_deliver, config.ack_wait), (AckPolicy::Explicit, -1, AN_HOUR));
    // An existing consumer is not changed.
    let other =
        builder(&url(), &subject).with_created_consumer("other", Duration::from_secs(1)).build().unwrap();
    other.redelivery_window().await.unwrap();
    assert_eq!(stream.consumer_info(DURABLE).await.unwrap().config, config);
}

#[tokio::test]
async fn deleted_consumer_is_unavailable() {
    let address = address_with_long_ack_wait().await;
    let source = source(&address);
    put(&url(), orders(1, &address)).await;
    let messages = receive(&source, 1).await;
    let stream = context(&url()).await.get_stream(stream_of(&address)).await.unwrap();
    let (received, deleted) = tokio::join!(soon(source.receive(1)), stream.delete_consumer(DURABLE));
    assert!(deleted.unwrap().success);
    assert!(matches!(received, Err(SourceError::Unavailable { .. })), "{received:?}");
    assert!(!all_ok(&ack(&source, &messages, Ack::Ack).await));
    let error = soon(source.receive(1)).await.unwrap_err().to_string();
    assert!(error.contains("does not exist"), "{error}");
}

#[tokio::test]
async fn foreign_headers_are_decoded_case_insensitively() {
    let address = address_with_long_ack_wait().await;
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("CE-SpecVersion", "1.0"),
        ("ce-id", "A-1"),
        ("ce-source", "/shop"),
        ("ce-type", "order%2Eplaced"),
        ("ce-subject", "%E2%82%AC%ff"),
        ("ce-datacontenttype", "text/plain"),
        ("Nats-Expected-Stream", stream_of(&address)),
        ("color", "100%25"),
    ] {
        headers.insert(name, value);
    }
    headers.append("color", "blue");
    let context = context(&url()).await;
    let sent = context.publish_with_headers(address.clone(), headers, "17".into()).await;
    sent.unwrap().await.unwrap();
    let incoming = receive(&source(&address), 1).await.remove(0).incoming;
    let mut attributes = incoming.attributes.clone();
    attributes.sort_unstable();
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let wanted = [
        ("id", "A-1"),
        ("source", "/shop"),
        ("specversion", "1.0"),
        ("subject", "€\u{fffd}"),
        ("type", "order.placed"),
    ];
    assert_eq!(attributes, pairs(&wanted));
    assert_eq!(
        (incoming.content_type.as_deref(), incoming.headers.clone()),
        (Some("text/plain"), pairs(&[("color", "blue")]))
    );
    assert!(incoming.read(&QueueName::new("orders").unwrap()).is_ok());
}

#[tokio::test]
async fn redelivery_window_is_the_max_age_of_the_stream() {
    assert_eq!(source(&address_with_long_ack_wait().await).redelivery_window().await.unwrap().within, None);
    let (stream, subject) = stream(&url(), |config| config.max_age = AN_HOUR).await;
    stream.create_consumer(nats_source::config()).await.unwrap();
    assert_eq!(source(&subject).redelivery_window().await.unwrap().within, Some(AN_HOUR));
    assert!(source("MISSING.stream.subject").redelivery_window().await.is_err());
}

#[test]
fn invalid_settings_are_rejected_without_the_password() {
    let at = "nats://relay:secret@nats.example:4222";
    let of = |url: &str, stream: &str, durable: &str| NatsSource::builder(url, stream, durable);
    let good = || of(at, "ORDERS", "billing");
    let impatient = ClientOptions::new(at).with_request_timeout(Duration::ZERO);
    for (builder, field) in [
        (of("http://relay:secret@nats.example", "ORDERS", "billing"), "url: "),
        (of(at, "", "billing"), "stream: "),
        (of(at, "OR.DERS", "billing"), "stream: "),
        (of(at, "ORDERS", "bil ling"), "consumer: "),
        (good().with_batch_size(0), "batch_size: "),
        (good().with_created_consumer("", AN_HOUR), "subject: "),
        (good().with_created_consumer(">", Duration::ZERO), "ack_wait: "),
        (good().with_credentials("secret"), "credentials: "),
        (NatsSource::builder(impatient, "ORDERS", "billing"), "request_timeout: "),
    ] {
        let shown = format!("{builder:?} {}", builder.clone().build().unwrap_err());
        assert!(shown.contains(field) && !shown.contains("secret"), "{shown}");
    }
    assert!(!format!("{:?}", good().build().unwrap()).contains("secret"));
}
