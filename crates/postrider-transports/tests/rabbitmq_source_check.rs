//! What the check of RabbitMQ's source finds, each on a real broker, and that it changes nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/rabbit.rs"]
mod rabbit;

use lapin::{
    options::QueueDeclareOptions,
    types::{AMQPValue, FieldTable},
};
use postrider_core::{Finding, Severity, Source, SourceError};
use postrider_testkit::{Kind, shared};
use postrider_transports::rabbitmq::RabbitMqSource;
use rabbit::{Rabbit, durable, table, text, unique};

async fn rabbit() -> Rabbit {
    Rabbit::at(&shared::url(Kind::RabbitMq)).await
}

/// A good quorum queue with one argument that is not.
async fn queue_with<const N: usize>(arguments: [(&str, AMQPValue); N]) -> String {
    let queue = unique("orders");
    let mut all = good("quorum");
    for (name, value) in arguments {
        all.insert(name.into(), value);
    }
    rabbit().await.declare(&queue, durable(), all).await;
    queue
}

fn good(kind: &str) -> FieldTable {
    table([("x-queue-type", text(kind)), ("x-dead-letter-exchange", text("amq.fanout"))])
}

fn number(value: i64) -> AMQPValue {
    AMQPValue::LongLongInt(value)
}

async fn check(queue: &str, is_quorum: bool) -> Vec<Finding> {
    let source = RabbitMqSource::builder(shared::url(Kind::RabbitMq), queue).with_quorum(is_quorum);
    let findings = source.build().unwrap().check().await.unwrap();
    for finding in &findings {
        assert!(!finding.reason.is_empty() && !finding.fix.is_empty(), "{finding:?}");
        assert_eq!(finding.subject, format!("queue {queue}"));
    }
    findings
}

async fn codes(queue: &str, is_quorum: bool) -> Vec<(&'static str, Severity)> {
    check(queue, is_quorum).await.into_iter().map(|finding| (finding.code, finding.severity)).collect()
}

#[tokio::test]
async fn a_good_place_has_no_findings() {
    assert_eq!(check(&queue_with([]).await, true).await, []);
    assert_eq!(check(&queue_with([("x-delivery-limit", number(20))]).await, true).await, []);
    let to_queue = [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text("dead"))];
    assert_eq!(check(&queue_with(to_queue).await, true).await, []);
    let full = [("x-max-length", number(10)), ("x-overflow", text("reject-publish"))];
    assert_eq!(check(&queue_with(full).await, true).await, []);
    let classic = unique("orders");
    rabbit().await.declare(&classic, durable(), good("classic")).await;
    assert_eq!(check(&classic, false).await, []);
}

#[tokio::test]
async fn a_missing_queue_is_found_and_not_made() {
    let missing = unique("nowhere");
    for _ in 0..2 {
        assert_eq!(codes(&missing, true).await, [("missing_queue", Severity::Problem)]);
    }
}

#[tokio::test]
async fn a_queue_of_another_connection_is_found() {
    let (rabbit, queue) = (rabbit().await, unique("orders"));
    let options = QueueDeclareOptions { exclusive: true, ..durable() };
    rabbit.declare(&queue, options, FieldTable::default()).await;
    assert_eq!(codes(&queue, false).await, [("exclusive_queue", Severity::Problem)]);
}

#[tokio::test]
async fn a_stream_is_found() {
    let queue = unique("orders");
    rabbit().await.declare(&queue, durable(), table([("x-queue-type", text("stream"))])).await;
    assert_eq!(codes(&queue, false).await, [("stream", Severity::Problem)]);
}

#[tokio::test]
async fn a_queue_that_does_not_last_is_found() {
    let rabbit = rabbit().await;
    let transient = unique("orders");
    rabbit.declare(&transient, QueueDeclareOptions::default(), good("classic")).await;
    assert_eq!(codes(&transient, false).await, [("transient_queue", Severity::Warning)]);
    let fleeting = unique("orders");
    let options = QueueDeclareOptions { auto_delete: true, ..durable() };
    rabbit.declare(&fleeting, options, good("classic")).await;
    assert_eq!(codes(&fleeting, false).await, [("auto_delete_queue", Severity::Warning)]);
    let expiring = queue_with([("x-expires", number(600_000))]).await;
    assert_eq!(codes(&expiring, true).await, [("expiring_queue", Severity::Warning)]);
}

#[tokio::test]
async fn a_queue_that_drops_what_it_has_is_found() {
    let full = queue_with([("x-max-length", number(10))]).await;
    assert_eq!(codes(&full, true).await, [("drop_head", Severity::Problem)]);
}

#[tokio::test]
async fn messages_that_expire_are_found() {
    let expiring = queue_with([("x-message-ttl", number(60_000))]).await;
    assert_eq!(codes(&expiring, true).await, [("message_ttl", Severity::Warning)]);
}

#[tokio::test]
async fn refused_messages_that_are_dropped_are_found() {
    let queue = unique("orders");
    let arguments = table([("x-queue-type", text("quorum")), ("x-delivery-limit", number(5))]);
    rabbit().await.declare(&queue, durable(), arguments).await;
    let findings = check(&queue, true).await;
    assert_eq!((findings[0].code, findings.len()), ("no_dead_letter_exchange", 1));
    assert!(findings[0].reason.contains("come again 5 times"), "{findings:?}");
}

#[tokio::test]
async fn a_dead_letter_exchange_that_does_not_exist_is_found() {
    let queue = queue_with([("x-dead-letter-exchange", text(&unique("nowhere")))]).await;
    assert_eq!(codes(&queue, true).await, [("missing_dead_letter_exchange", Severity::Warning)]);
}

#[tokio::test]
async fn a_wrong_word_about_the_kind_of_queue_is_found() {
    assert_eq!(codes(&queue_with([]).await, false).await, [("uncounted", Severity::Note)]);
    let classic = unique("orders");
    rabbit().await.declare(&classic, durable(), good("classic")).await;
    assert_eq!(codes(&classic, true).await, [("not_quorum", Severity::Warning)]);
}

/// Declared as it was, it is what it was.
#[tokio::test]
async fn looking_changes_nothing() {
    let queue = queue_with([]).await;
    check(&queue, true).await;
    rabbit().await.declare(&queue, durable(), good("quorum")).await;
}

#[tokio::test]
async fn what_cannot_be_asked_is_an_error() {
    let nobody = RabbitMqSource::connect("amqp://guest:guest@127.0.0.1:1/%2f", "orders").unwrap();
    assert!(matches!(nobody.check().await, Err(SourceError::Down { .. })));
}
