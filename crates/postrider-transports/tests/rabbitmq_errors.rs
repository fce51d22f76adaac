//! Errors of the broker and the network, as the RabbitMQ transport handles them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/rabbit.rs"]
mod rabbit;

use lapin::{
    options::BasicGetOptions,
    types::{AMQPValue, ShortString},
};
use postrider_core::{
    ClientOptions, Format, Message, MessageBuilder, MessageId, Outgoing, PublishError, Receipt, Transport,
};
use postrider_testkit::{
    Kind,
    broker::RabbitMq,
    proxy::{Direction, Fault, FaultProxy},
    shared,
};
use postrider_transports::rabbitmq::{RabbitMqOptions, RabbitMqTransport};
use rabbit::{Rabbit, control, durable, table, undo, unique};
use std::{
    future::Future,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Test timeout.
const PATIENCE: Duration = Duration::from_secs(120);

type PublishResult = Result<Receipt, PublishError>;

async fn within_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("the test has hung")
}

/// A client with this connect timeout and request timeout.
fn client(url: &str, timeout: Duration) -> ClientOptions {
    ClientOptions::new(url).with_connect_timeout(timeout).with_request_timeout(timeout)
}

fn written(builder: MessageBuilder, destination: &str) -> Outgoing {
    let now = SystemTime::now();
    let message = builder.build().unwrap();
    Outgoing::write(&message, MessageId::at(now), now, "/shop", destination.to_owned(), Format::Binary)
        .unwrap()
}

fn order(destination: &str) -> Outgoing {
    written(Message::builder("orders").json(&17), destination)
}

fn orders(count: usize, destination: &str) -> Vec<Outgoing> {
    (0..count).map(|_| order(destination)).collect()
}

fn ids(sent: &[Outgoing]) -> Vec<String> {
    let mut ids: Vec<_> = sent.iter().map(|outgoing| outgoing.id.to_string()).collect();
    ids.sort_unstable();
    ids
}

async fn arrived(rabbit: &Rabbit, queue: &str, count: usize) -> Vec<String> {
    let taken = within_timeout(rabbit.take_all(queue, count)).await;
    let mut ids: Vec<_> = taken.iter().map(|received| received.identity().to_owned()).collect();
    ids.sort_unstable();
    ids
}

fn all_ok(results: &[PublishResult]) -> bool {
    results.iter().all(Result::is_ok)
}

/// The AMQP properties that a consumer sees.
#[tokio::test]
async fn properties_and_header_prefix_match_the_options() {
    let url = shared::url(Kind::RabbitMq);
    let rabbit = Rabbit::at(&url).await;
    let queue = rabbit.queue().await;
    let transport = RabbitMqOptions::new(url).with_prefix("cloudEvents:").build().unwrap();
    let message =
        Message::builder("orders").event_type("order.placed").correlation_id("checkout-3").json(&17);
    let sent = written(message.header("color", "blue"), &queue);
    assert!(all_ok(&transport.publish(std::slice::from_ref(&sent)).await));

    let got = rabbit.channel.basic_get(queue.as_str().into(), BasicGetOptions { no_ack: true }).await;
    let got = got.unwrap().unwrap();
    let properties = &got.delivery.properties;
    let text = |text: &Option<ShortString>| text.as_ref().unwrap().to_string();
    assert_eq!(text(properties.message_id()), sent.id.to_string());
    assert_eq!(text(properties.kind()), "order.placed");
    assert_eq!(text(properties.correlation_id()), "checkout-3");
    assert_eq!(text(properties.content_type()), "application/json");
    assert_eq!(*properties.delivery_mode(), Some(2), "persistent");
    let staged = sent.staged_at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(*properties.timestamp(), Some(staged));

    let received = undo(properties, &got.delivery.data, "cloudEvents:");
    assert_eq!(received.attributes["type"], "order.placed");
    assert_eq!(received.attributes["id"], sent.id.to_string());
    assert_eq!(received.headers["color"], "blue");
}

/// Headers that do not fit into a frame would end the connection of all calls.
#[tokio::test]
async fn oversized_headers_reject_only_their_message() {
    let url = shared::url(Kind::RabbitMq);
    let rabbit = Rabbit::at(&url).await;
    let queue = rabbit.queue().await;
    let transport = RabbitMqTransport::new(url).unwrap();
    let mut large = Message::builder("orders").json(&17);
    for number in 0..60 {
        large = large.header(format!("header-{number}"), "v".repeat(8_000));
    }
    let mut batch = orders(3, &queue);
    batch[1] = written(large, &queue);
    let results = transport.publish(&batch).await;
    assert!(results[0].is_ok() && results[2].is_ok(), "{results:?}");
    assert!(matches!(results[1], Err(PublishError::Reject { .. })), "{results:?}");

    // Headers just below the limit are accepted.
    let mut fits = Message::builder("orders").json(&17);
    for number in 0..16 {
        fits = fits.header(format!("header-{number}"), "v".repeat(8_000));
    }
    assert!(all_ok(&transport.publish(&[written(fits, &queue)]).await));
    assert_eq!(arrived(&rabbit, &queue, 3).await.len(), 3);
}

/// A full queue with reject-publish nacks.
#[tokio::test]
async fn full_queue_is_retried() {
    let url = shared::url(Kind::RabbitMq);
    let rabbit = Rabbit::at(&url).await;
    let queue = unique("queue");
    let rejects = AMQPValue::LongString("reject-publish".into());
    let arguments = table([("x-max-length", AMQPValue::LongInt(5)), ("x-overflow", rejects)]);
    rabbit.declare(&queue, durable(), arguments).await;
    let transport = RabbitMqTransport::new(url).unwrap();
    let (mut accepted, mut retried) = (Vec::new(), 0);
    for outgoing in orders(20, &queue) {
        match transport.publish(std::slice::from_ref(&outgoing)).await.remove(0) {
            Ok(_) => accepted.push(outgoing),
            Err(PublishError::Retry { .. }) => retried += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(retried > 0 && accepted.len() >= 5, "{} accepted", accepted.len());
    assert_eq!(arrived(&rabbit, &queue, accepted.len()).await, ids(&accepted));
}

/// Nothing was sent yet, so the batch travels on a new connection, and the circuit stays closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_that_ends_while_a_channel_is_opened_is_replaced() {
    let (proxy, url) = FaultProxy::before_url(&shared::url(Kind::RabbitMq)).await;
    let rabbit = Rabbit::at(&shared::url(Kind::RabbitMq)).await;
    let queue = rabbit.queue().await;
    let transport = RabbitMqTransport::new(client(&url, Duration::from_secs(10))).unwrap();
    // The broker closes the channel and keeps the connection: the pool is empty.
    let missing = within_timeout(transport.publish(&[order(&format!("{}/key", unique("missing")))])).await;
    assert!(missing[0].is_err(), "{missing:?}");
    proxy.set_once(Fault::CutAfter { direction: Direction::ToServer, bytes: 0 });
    let batch = orders(3, &queue);
    let results = within_timeout(transport.publish(&batch)).await;
    assert!(all_ok(&results), "{results:?}");
    assert_eq!(proxy.counts().connections, 2);
    assert_eq!(arrived(&rabbit, &queue, 3).await, ids(&batch));
}

/// A connection on which a call was dropped is not used again: it may be dead without an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_publish_discards_its_connection() {
    let (proxy, url) = FaultProxy::before_url(&shared::url(Kind::RabbitMq)).await;
    let rabbit = Rabbit::at(&shared::url(Kind::RabbitMq)).await;
    let queue = rabbit.queue().await;
    let transport = RabbitMqTransport::new(client(&url, Duration::from_secs(2))).unwrap();
    assert!(all_ok(&within_timeout(transport.publish(&orders(1, &queue))).await));
    proxy.set(Fault::BlackHole);
    let dropped =
        tokio::time::timeout(Duration::from_millis(100), transport.publish(&orders(1, &queue))).await;
    assert!(dropped.is_err(), "the proxy swallows everything");
    // The new connection gets no reply either: that takes the connect timeout, and nothing was sent.
    let results = within_timeout(transport.publish(&orders(1, &queue))).await;
    assert!(matches!(results[0], Err(PublishError::Unavailable { .. })), "{results:?}");
    // The first connection stays swallowed. This is a new one.
    proxy.set(Fault::None);
    assert!(all_ok(&within_timeout(transport.publish(&orders(1, &queue))).await));
}

/// Errors and debug output show no password.
#[tokio::test]
async fn errors_and_debug_output_contain_no_password() {
    let bad = RabbitMqTransport::new("ampq://relay:geheim@localhost/").unwrap_err();
    assert!(!format!("{bad} {bad:?}").contains("geheim"), "{bad}");
    let url = shared::url(Kind::RabbitMq).replace("guest:guest", "guest:geheim");
    let options = RabbitMqOptions::new(url);
    assert!(!format!("{options:?}").contains("geheim"));
    let transport = options.build().unwrap();
    assert!(!format!("{transport:?}").contains("geheim"));
    let results = within_timeout(transport.publish(&orders(1, "orders"))).await;
    let Err(error @ PublishError::Unavailable { .. }) = &results[0] else { panic!("{results:?}") };
    let text = format!("{error} {error:?}");
    assert!(text.contains("user guest") && !text.contains("geheim"), "{text}");
}

#[test]
fn invalid_settings_are_rejected() {
    let fine = || RabbitMqOptions::new("amqp://localhost");
    assert!(fine().build().is_ok());
    for options in [
        RabbitMqOptions::new("http://localhost"),
        RabbitMqOptions::new("localhost:5672"),
        fine().with_batch_size(0),
        fine().with_message_bytes(0),
        fine().with_prefix(""),
        fine().with_prefix("ä-"),
        RabbitMqOptions::new(client("amqp://localhost", Duration::ZERO)),
    ] {
        assert!(options.build().is_err());
    }
}

/// A broker with a memory alarm accepts nothing: messages in flight wait, later calls fail before anything is sent, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_broker_is_unavailable_until_it_unblocks() {
    let broker = RabbitMq::start().await;
    let rabbit = Rabbit::at(broker.url()).await;
    let queue = rabbit.queue().await;
    let transport = Arc::new(RabbitMqTransport::new(broker.url()).unwrap());
    assert!(all_ok(&within_timeout(transport.publish(&orders(1, &queue))).await));

    control(&broker, &["set_vm_memory_high_watermark", "0.000001"]);
    let mut calls = Vec::new();
    // Until the client knows of the alarm, it sends messages, and they wait at the broker.
    within_timeout(async {
        loop {
            let batch = orders(5, &queue);
            let (publisher, sent) = (Arc::clone(&transport), batch.clone());
            let mut call = tokio::spawn(async move { publisher.publish(&sent).await });
            match tokio::time::timeout(Duration::from_millis(200), &mut call).await {
                Err(_) => calls.push((batch, call)),
                Ok(results) => {
                    let results = results.unwrap();
                    if let Err(PublishError::Unavailable { source }) = &results[0] {
                        assert!(source.to_string().contains("connection.blocked"), "{source}");
                        break;
                    }
                    assert!(all_ok(&results), "{results:?}");
                    rabbit.take_all(&queue, 5).await;
                }
            }
        }
    })
    .await;

    control(&broker, &["set_vm_memory_high_watermark", "0.4"]);
    let mut waited = Vec::new();
    for (batch, call) in calls {
        assert!(all_ok(&within_timeout(call).await.unwrap()), "waiting messages are accepted in the end");
        waited.extend(batch);
    }
    let again = orders(1, &queue);
    within_timeout(async { while !all_ok(&transport.publish(&again).await) {} }).await;
    waited.extend(again);
    let arrived = arrived(&rabbit, &queue, waited.len()).await;
    for id in ids(&waited) {
        assert!(arrived.contains(&id), "{id} was accepted");
    }
}

/// The broker closes the channel because of one oversized message and does not say which. A relay that retries the rest finds out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_refused_by_the_broker_harms_no_other() {
    let broker = RabbitMq::start().await;
    control(&broker, &["eval", "application:set_env(rabbit, max_message_size, 1000)."]);
    let rabbit = Rabbit::at(broker.url()).await;
    let queue = rabbit.queue().await;
    let transport = RabbitMqTransport::new(broker.url()).unwrap();
    let mut batch = orders(30, &queue);
    let large = written(Message::builder("orders").payload(vec![b'x'; 5_000]), &queue);
    batch[7] = large.clone();
    let (mut left, mut rejected, mut rounds) = (batch.clone(), Vec::new(), 0);
    while !left.is_empty() {
        rounds += 1;
        assert!(rounds <= 2, "too many rounds: {} are left", left.len());
        let results = within_timeout(transport.publish(&left)).await;
        let mut again = Vec::new();
        for (outgoing, result) in left.into_iter().zip(results) {
            match result {
                Ok(_) => {}
                Err(PublishError::Reject { .. }) => rejected.push(outgoing.id),
                Err(PublishError::Unknown { .. }) => again.push(outgoing),
                Err(error) => panic!("{error}"),
            }
        }
        left = again;
    }
    assert_eq!(rejected, [large.id]);
    batch.remove(7);
    let mut arrived = arrived(&rabbit, &queue, batch.len()).await;
    arrived.dedup();
    assert_eq!(arrived, ids(&batch));
    let last = orders(50, &queue);
    assert!(all_ok(&within_timeout(transport.publish(&last)).await));
    assert_eq!(within_timeout(rabbit.take_all(&queue, 50)).await.len(), 50);
}

/// Without the configure permission the check returns a note, and publishing works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_without_configure_permission_publishes_and_gets_a_note() {
    let broker = RabbitMq::start().await;
    control(&broker, &["add_user", "relay", "secret"]);
    control(&broker, &["set_permissions", "relay", "", ".*", ""]);
    let rabbit = Rabbit::at(broker.url()).await;
    let queue = rabbit.queue().await;
    let transport = RabbitMqTransport::new(broker.url().replace("guest:guest", "relay:secret")).unwrap();
    assert!(all_ok(&within_timeout(transport.publish(&orders(3, &queue))).await));
    for destination in [queue.as_str(), "amq.topic/key"] {
        let findings = within_timeout(transport.check(&[destination])).await.unwrap();
        let codes: Vec<_> = findings.iter().map(|finding| finding.code).collect();
        assert_eq!(codes, ["not_visible"], "{findings:?}");
    }
    assert_eq!(arrived(&rabbit, &queue, 3).await.len(), 3);

    // Without the write permission an exchange is unavailable, without harm to the others.
    control(&broker, &["set_permissions", "relay", "", "^$|amq\\.default", ""]);
    let mut batch = orders(2, &queue);
    batch.push(order("amq.topic/key"));
    let results = within_timeout(transport.publish(&batch)).await;
    assert!(all_ok(&results[..2]), "{results:?}");
    assert!(matches!(results[2], Err(PublishError::AddressUnavailable { .. })), "{results:?}");
    assert!(results[2].as_ref().unwrap_err().to_string().contains("grant `write`"), "{results:?}");
}
