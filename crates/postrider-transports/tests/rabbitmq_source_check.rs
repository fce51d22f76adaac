//! One test per finding of the RabbitMQ source check, on a real broker; and the check changes nothing.

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

/// A good quorum queue with these additional arguments.
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
async fn good_queue_has_no_findings() {
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
async fn check_reports_missing_queue_and_does_not_create_it() {
    let missing = unique("missing");
    for _ in 0..2 {
        assert_eq!(codes(&missing, true).await, [("missing_queue", Severity::Problem)]);
    }
}

#[tokio::test]
async fn check_reports_exclusive_queue() {
    let (rabbit, queue) = (rabbit().await, unique("orders"));
    let options = QueueDeclareOptions { exclusive: true, ..durable() };
    rabbit.declare(&queue, options, FieldTable::default()).await;
    assert_eq!(codes(&queue, false).await, [("exclusive_queue", Severity::Problem)]);
}

#[tokio::test]
async fn check_reports_stream() {
    let queue = unique("orders");
    rabbit().await.declare(&queue, durable(), table([("x-queue-type", text("stream"))])).await;
    assert_eq!(codes(&queue, false).await, [("stream", Severity::Problem)]);
}

#[tokio::test]
async fn check_reports_transient_auto_delete_and_expiring_queue() {
    let rabbit = rabbit().await;
    let transient = unique("orders");
    rabbit.declare(&transient, QueueDeclareOptions::default(), good("classic")).await;
    assert_eq!(codes(&transient, false).await, [("transient_queue", Severity::Warning)]);
    let auto_delete = unique("orders");
    let options = QueueDeclareOptions { auto_delete: true, ..durable() };
    rabbit.declare(&auto_delete, options, good("classic")).await;
    assert_eq!(codes(&auto_delete, false).await, [("auto_delete_queue", Severity::Warning)]);
    let expiring = queue_with([("x-expires", number(600_000))]).await;
    assert_eq!(codes(&expiring, true).await, [("expiring_queue", Severity::Warning)]);
}

#[tokio::test]
async fn check_reports_queue_that_drops_its_oldest_messages() {
    let full = queue_with([("x-max-length", number(10))]).await;
    assert_eq!(codes(&full, true).await, [("drop_head", Severity::Problem)]);
}

#[tokio::test]
async fn check_reports_message_ttl() {
    let expiring = queue_with([("x-message-ttl", number(60_000))]).await;
    assert_eq!(codes(&expiring, true).await, [("message_ttl", Severity::Warning)]);
}

#[tokio::test]
async fn check_reports_missing_dead_letter_setting() {
    let queue = unique("orders");
    let arguments = table([("x-queue-type", text("quorum")), ("x-delivery-limit", number(5))]);
    rabbit().await.declare(&queue, durable(), arguments).await;
    let findings = check(&queue, true).await;
    assert_eq!((findings[0].code, findings.len()), ("no_dead_letter_exchange", 1));
    assert!(findings[0].reason.contains("redelivered 5 times"), "{findings:?}");
}

#[tokio::test]
async fn check_reports_missing_dead_letter_exchange() {
    let queue = queue_with([("x-dead-letter-exchange", text(&unique("missing")))]).await;
    assert_eq!(codes(&queue, true).await, [("missing_dead_letter_exchange", Severity::Warning)]);
}

#[tokio::test]
async fn check_reports_wrong_quorum_setting() {
    assert_eq!(codes(&queue_with([]).await, false).await, [("deliveries_not_counted", Severity::Note)]);
    let classic = unique("orders");
    rabbit().await.declare(&classic, durable(), good("classic")).await;
    assert_eq!(codes(&classic, true).await, [("not_quorum", Severity::Warning)]);
}

/// The same declaration succeeds afterwards.
#[tokio::test]
async fn check_changes_nothing() {
    let queue = queue_with([]).await;
    check(&queue, true).await;
    rabbit().await.declare(&queue, durable(), good("quorum")).await;
}

#[tokio::test]
async fn check_of_unreachable_broker_is_an_error() {
    let unreachable = RabbitMqSource::connect("amqp://guest:guest@127.0.0.1:1/%2f", "orders").unwrap();
    assert!(matches!(unreachable.check().await, Err(SourceError::Unavailable { .. })));
}
