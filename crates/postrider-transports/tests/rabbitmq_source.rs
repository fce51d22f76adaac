//! The source suite on RabbitMQ, and tests of its own features.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/rabbit.rs"]
mod rabbit;
#[path = "support/rabbitmq_source.rs"]
mod rabbitmq_source;
mod support;

use futures_util::future::join_all;
use lapin::{
    BasicProperties,
    options::{BasicPublishOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable},
};
use postrider_core::{Ack, AckHandle, Incoming, QueueName, ReceivedMessage, Source, SourceError};
use postrider_testkit::{
    Kind,
    proxy::{Direction, Fault, FaultProxy},
    shared,
    source::{outage, run},
};
use postrider_transports::rabbitmq::{RabbitMqSource, RabbitMqSourceBuilder, RabbitMqTransport};
use rabbit::{Rabbit, durable, table, text, unique};
use rabbitmq_source::{RabbitSourceFixture, quorum};
use std::time::Duration;
use support::{client, orders, send, soon};

mod quorum_queues {
    use super::*;
    async fn fixture() -> RabbitSourceFixture {
        RabbitSourceFixture::quorum()
    }
    postrider_testkit::source_suite!(fixture, unordered);
}

/// Classic queues do not count deliveries.
mod classic_queues {
    use super::*;
    async fn fixture() -> RabbitSourceFixture {
        RabbitSourceFixture::classic()
    }
    postrider_testkit::source_suite!(fixture, unordered);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_loses_no_message_of_a_quorum_queue() {
    run(RabbitSourceFixture::own(true), outage::a_server_crash_loses_nothing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_loses_no_message_of_a_classic_queue() {
    run(RabbitSourceFixture::own(false), outage::a_server_crash_loses_nothing).await;
}

fn url() -> String {
    shared::url(Kind::RabbitMq)
}

async fn queue_with(arguments: FieldTable) -> String {
    let queue = unique("orders");
    Rabbit::at(&url()).await.declare(&queue, durable(), arguments).await;
    queue
}

fn source(queue: &str) -> RabbitMqSource {
    RabbitMqSource::builder(url(), queue).with_quorum(true).build().unwrap()
}

async fn put(queue: &str, count: usize) {
    send(&RabbitMqTransport::new(url()).unwrap(), orders(count, queue)).await;
}

/// Receives `count` messages without acking them.
async fn receive(source: &RabbitMqSource, count: usize) -> Vec<ReceivedMessage> {
    let mut received = Vec::new();
    while received.len() < count {
        received.extend(soon(source.receive(count - received.len())).await.unwrap());
    }
    received
}

async fn ack(
    source: &RabbitMqSource,
    messages: &[ReceivedMessage],
    with: Ack,
) -> Vec<Result<(), SourceError>> {
    let acks: Vec<_> = messages.iter().map(|message| (message.ack_handle.clone(), with)).collect();
    soon(source.ack(&acks)).await
}

fn all_stale(results: &[Result<(), SourceError>]) -> bool {
    results.iter().all(|results| matches!(results, Err(SourceError::Stale { .. })))
}

#[tokio::test]
async fn prefetch_limits_messages_in_flight() {
    let queue = queue_with(quorum()).await;
    put(&queue, 10).await;
    let modest = RabbitMqSource::builder(url(), &queue).with_prefetch(3).build().unwrap();
    let first = receive(&modest, 3).await;
    // If it had prefetched more, the other source would hang.
    let rest = receive(&source(&queue), 7).await;
    assert_eq!((first.len(), rest.len()), (3, 7));
}

/// Handlers end in any order and concurrently. A second ack of a tag would make the broker close the channel and redeliver every message
/// in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_acks_do_not_close_the_channel() {
    let queue = queue_with(quorum()).await;
    put(&queue, 200).await;
    let source = source(&queue);
    let messages = receive(&source, 200).await;
    let mut batches: Vec<Vec<(AckHandle, Ack)>> = vec![Vec::new(); 16];
    for (number, message) in messages.iter().enumerate() {
        batches[(number * 7) % 16].push((message.ack_handle.clone(), Ack::Ack));
    }
    let results = soon(join_all(batches.iter().map(|acks| source.ack(acks)))).await;
    assert!(results.iter().flatten().all(Result::is_ok));
    put(&queue, 1).await;
    assert_eq!(receive(&source, 1).await[0].deliveries, Some(1));
    source.close().await;
    assert_eq!(
        receive(&self::source(&queue), 1).await[0].deliveries,
        Some(2),
        "only the last message is left"
    );
}

#[tokio::test]
async fn ack_handles_of_a_closed_channel_are_stale() {
    let queue = queue_with(quorum()).await;
    let (proxy, through) = FaultProxy::before_url(&url()).await;
    let source = RabbitMqSource::builder(through, &queue).with_quorum(true).build().unwrap();
    put(&queue, 2).await;
    let before = receive(&source, 2).await;
    proxy.cut();
    // The loss is reported once; then the source reconnects.
    assert!(matches!(soon(source.receive(1)).await, Err(SourceError::Unavailable { .. })));
    let after = receive(&source, 2).await;
    assert!(all_stale(&ack(&source, &before, Ack::Ack).await));
    assert!(all_stale(&ack(&source, &before, Ack::Reject).await));
    let handles: Vec<_> = before.iter().map(|message| message.ack_handle.clone()).collect();
    assert!(all_stale(&source.extend(&handles).await));
    assert!(after.iter().all(|message| message.deliveries == Some(2)));
    assert!(ack(&source, &after, Ack::Ack).await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn ack_handle_of_another_source_is_stale() {
    let queue = queue_with(quorum()).await;
    put(&queue, 2).await;
    let source = source(&queue);
    let messages = receive(&source, 2).await;
    let other = self::source(&queue_with(quorum()).await);
    assert!(all_stale(&ack(&other, &messages, Ack::Ack).await));
    assert!(ack(&source, &messages, Ack::Ack).await.iter().all(Result::is_ok));
}

/// A network that accepts acks and drops them.
#[tokio::test]
async fn ack_without_reply_from_the_broker_is_an_error() {
    let queue = queue_with(quorum()).await;
    let (proxy, through) = FaultProxy::before_url(&url()).await;
    let source = RabbitMqSource::connect(client(through, Duration::from_secs(1)), &queue).unwrap();
    put(&queue, 1).await;
    let messages = receive(&source, 1).await;
    proxy.set(Fault::Stall);
    assert!(all_stale(&ack(&source, &messages, Ack::Ack).await));
}

#[tokio::test]
async fn deleted_queue_is_unavailable_until_it_is_declared_again() {
    let queue = queue_with(quorum()).await;
    let rabbit = Rabbit::at(&url()).await;
    let source = source(&queue);
    put(&queue, 1).await;
    let messages = receive(&source, 1).await;
    rabbit.channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
    assert!(matches!(soon(source.receive(1)).await, Err(SourceError::Unavailable { .. })));
    let error = soon(source.receive(1)).await.unwrap_err().to_string();
    assert!(error.contains("does not exist") && error.contains(&queue), "{error}");
    assert!(all_stale(&ack(&source, &messages, Ack::Ack).await));
    rabbit.declare(&queue, durable(), quorum()).await;
    put(&queue, 1).await;
    assert_eq!(receive(&source, 1).await.len(), 1);
}

/// Nothing was received on the new channel yet, so the source subscribes on a new connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_that_ends_while_a_channel_is_opened_is_replaced() {
    let queue = queue_with(quorum()).await;
    let (proxy, through) = FaultProxy::before_url(&url()).await;
    let source = RabbitMqSource::builder(client(through, Duration::from_secs(10)), &queue).build().unwrap();
    put(&queue, 1).await;
    assert_eq!(receive(&source, 1).await.len(), 1);
    // The broker cancels the consumer and keeps the connection.
    let rabbit = Rabbit::at(&url()).await;
    rabbit.channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
    assert!(matches!(soon(source.receive(1)).await, Err(SourceError::Unavailable { .. })));
    rabbit.declare(&queue, durable(), quorum()).await;
    put(&queue, 1).await;
    proxy.set_once(Fault::CutAfter { direction: Direction::ToServer, bytes: 0 });
    assert_eq!(receive(&source, 1).await.len(), 1);
    assert_eq!(proxy.counts().connections, 2);
}

#[tokio::test]
async fn rejected_message_goes_to_the_dead_letter_exchange() {
    let rabbit = Rabbit::at(&url()).await;
    let dead = rabbit.queue().await;
    let to_dead = [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text(&dead))];
    let queue = queue_with(table(to_dead)).await;
    put(&queue, 1).await;
    let source = source(&queue);
    ack(&source, &receive(&source, 1).await, Ack::Reject).await;
    let letters = receive(&self::source(&dead), 1).await;
    assert!(letters[0].incoming.read(&QueueName::new("orders").unwrap()).is_ok(), "{letters:?}");
    // The broker's x-death history is a table, not text.
    assert!(letters[0].incoming.headers.iter().all(|(name, _)| name != "x-death"), "{letters:?}");
}

#[tokio::test]
async fn foreign_headers_are_decoded_if_they_are_text() {
    let queue = queue_with(quorum()).await;
    let headers = table([
        ("cloudEvents:specversion", text("1.0")),
        ("cloudEvents_id", text("A-1")),
        ("ce-source", text("/shop")),
        ("x_type", text("order.placed")),
        ("count", AMQPValue::LongInt(-3)),
        ("sure", AMQPValue::Boolean(true)),
        ("nothing", AMQPValue::Void),
        ("at", AMQPValue::Timestamp(17)),
        ("nested", AMQPValue::FieldTable(FieldTable::default())),
        ("latin", AMQPValue::LongString(vec![b'a', 0xe4].into())),
        // On the first delivery the header is the sender's.
        ("x-delivery-count", AMQPValue::LongLongInt(41)),
    ]);
    let channel = Rabbit::at(&url()).await.confirming().await;
    let properties = BasicProperties::default().with_headers(headers).with_content_type("text/plain".into());
    let options = BasicPublishOptions::default();
    let sent = channel.basic_publish("".into(), queue.as_str().into(), options, b"17", properties).await;
    sent.unwrap().await.unwrap();
    let source = RabbitMqSource::builder(url(), &queue).with_quorum(true).with_prefix("x_").build().unwrap();
    let message = receive(&source, 1).await.remove(0);
    assert_eq!(message.deliveries, Some(1));
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let Incoming { content_type, mut attributes, mut headers, .. } = message.incoming.clone();
    attributes.sort_unstable();
    headers.sort_unstable();
    let wanted = [("id", "A-1"), ("source", "/shop"), ("specversion", "1.0"), ("type", "order.placed")];
    assert_eq!((content_type.as_deref(), attributes), (Some("text/plain"), pairs(&wanted)));
    assert_eq!(headers, pairs(&[("count", "-3"), ("latin", "a\u{fffd}"), ("sure", "true")]));
    assert!(message.incoming.read(&QueueName::new("orders").unwrap()).is_ok());
    ack(&source, &[message], Ack::REDELIVER_NOW).await;
    assert_eq!(receive(&source, 1).await[0].deliveries, Some(2));
}

#[test]
fn invalid_settings_are_rejected_without_the_password() {
    let at = "amqp://relay:secret@rabbit.example/shop";
    let error = |builder: RabbitMqSourceBuilder| builder.build().unwrap_err().to_string();
    let of = |url: &str, queue: &str| RabbitMqSource::builder(url, queue);
    for (builder, field) in [
        (of("http://relay:secret@rabbit.example", "orders"), "url: "),
        (of(at, ""), "queue: "),
        (of(at, &"q".repeat(256)), "queue: "),
        (of(at, "orders").with_prefetch(0), "prefetch: "),
        (of(at, "orders").with_prefix(""), "prefix: "),
        (RabbitMqSource::builder(client(at, Duration::ZERO), "orders"), "connect_timeout: "),
    ] {
        let shown = format!("{builder:?} {}", error(builder.clone()));
        assert!(shown.contains(field) && !shown.contains("secret"), "{shown}");
    }
    assert!(!format!("{:?}", of(at, "orders").build().unwrap()).contains("secret"));
}

#[tokio::test]
async fn redelivery_window_is_the_message_ttl() {
    let limited = queue_with(table([("x-message-ttl", AMQPValue::LongLongInt(60_000))])).await;
    assert_eq!(source(&limited).redelivery_window().await.unwrap().within, Some(Duration::from_secs(60)));
    let mut arguments = quorum();
    arguments.insert("x-message-ttl".into(), AMQPValue::LongLongInt(60_000));
    let limited = queue_with(arguments).await;
    assert_eq!(source(&limited).redelivery_window().await.unwrap().within, Some(Duration::from_secs(60)));
    assert_eq!(source(&queue_with(quorum()).await).redelivery_window().await.unwrap().within, None);
    assert!(source(&unique("missing")).redelivery_window().await.is_err());
}
