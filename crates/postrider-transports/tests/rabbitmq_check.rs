//! One test per finding of the RabbitMQ check, on a real broker; and the check changes nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/rabbit.rs"]
mod rabbit;

use lapin::{
    ExchangeKind,
    options::{ExchangeDeclareOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use postrider_core::{Finding, PublishError, Severity, Transport};
use postrider_testkit::{Kind, shared};
use postrider_transports::rabbitmq::RabbitMqTransport;
use rabbit::{Rabbit, durable, durable_exchange, table, text, unique};

async fn rabbit() -> Rabbit {
    Rabbit::at(&shared::url(Kind::RabbitMq)).await
}

async fn check(destination: &str) -> Vec<Finding> {
    let transport = RabbitMqTransport::new(shared::url(Kind::RabbitMq)).unwrap();
    let findings = transport.check(&[destination]).await.unwrap();
    for finding in &findings {
        assert!(!finding.reason.is_empty() && !finding.fix.is_empty(), "{finding:?}");
    }
    findings
}

/// The codes and severities of the findings.
async fn codes(destination: &str) -> Vec<(&'static str, Severity)> {
    check(destination).await.into_iter().map(|finding| (finding.code, finding.severity)).collect()
}

fn number(value: i64) -> AMQPValue {
    AMQPValue::LongLongInt(value)
}

async fn queue_with<const N: usize>(arguments: [(&str, AMQPValue); N]) -> String {
    let queue = unique("queue");
    rabbit().await.declare(&queue, durable(), table(arguments)).await;
    queue
}

#[tokio::test]
async fn good_destination_has_no_findings() {
    let rabbit = rabbit().await;
    assert_eq!(check(&rabbit.queue().await).await, []);
    for arguments in [
        table([("x-queue-type", text("quorum"))]),
        table([("x-queue-type", text("classic"))]),
        table([("x-queue-type", text("stream"))]),
        table([("x-max-length", number(10)), ("x-overflow", text("reject-publish"))]),
        table([("x-max-length-bytes", number(10)), ("x-overflow", text("reject-publish"))]),
        table([("x-max-priority", number(3)), ("x-dead-letter-exchange", text("spare"))]),
        table([("x-single-active-consumer", AMQPValue::Boolean(true)), ("x-queue-mode", text("lazy"))]),
    ] {
        let queue = unique("queue");
        rabbit.declare(&queue, durable(), arguments.clone()).await;
        assert_eq!(check(&format!("/{queue}")).await, [], "{arguments:?}");
    }
    for kind in [ExchangeKind::Direct, ExchangeKind::Fanout, ExchangeKind::Topic, ExchangeKind::Headers] {
        let exchange = rabbit.exchange(kind, durable_exchange(), FieldTable::default()).await;
        assert_eq!(check(&format!("{exchange}/order.placed")).await, []);
    }
    assert_eq!(check("amq.topic/order.placed").await, []);
}

#[tokio::test]
async fn check_reports_missing_exchange_and_queue_and_creates_neither() {
    let missing = unique("missing");
    assert_eq!(codes(&format!("{missing}/key")).await, [("missing_exchange", Severity::Problem)]);
    assert_eq!(codes(&missing).await, [("missing_queue", Severity::Problem)]);
    assert_eq!(codes("/").await, [("bad_destination", Severity::Problem)]);
    // The probes created neither.
    assert_eq!(codes(&format!("{missing}/key")).await, [("missing_exchange", Severity::Problem)]);
    assert_eq!(codes(&missing).await, [("missing_queue", Severity::Problem)]);
}

#[tokio::test]
async fn check_reports_transient_and_auto_delete_exchange() {
    let rabbit = rabbit().await;
    let transient = ExchangeDeclareOptions::default();
    let transient = rabbit.exchange(ExchangeKind::Topic, transient, FieldTable::default()).await;
    assert_eq!(codes(&format!("{transient}/key")).await, [("transient_exchange", Severity::Warning)]);

    let auto_delete = ExchangeDeclareOptions { auto_delete: true, ..durable_exchange() };
    let auto_delete = rabbit.exchange(ExchangeKind::Fanout, auto_delete, FieldTable::default()).await;
    assert_eq!(codes(&format!("{auto_delete}/")).await, [("auto_delete_exchange", Severity::Warning)]);
}

#[tokio::test]
async fn check_reports_internal_exchange() {
    let options = ExchangeDeclareOptions { internal: true, ..durable_exchange() };
    let exchange = rabbit().await.exchange(ExchangeKind::Direct, options, FieldTable::default()).await;
    assert_eq!(codes(&format!("{exchange}/key")).await, [("internal_exchange", Severity::Problem)]);
}

#[tokio::test]
async fn check_notes_alternate_exchange() {
    let arguments = table([("alternate-exchange", text("amq.fanout"))]);
    let exchange = rabbit().await.exchange(ExchangeKind::Direct, durable_exchange(), arguments).await;
    let findings = check(&format!("{exchange}/key")).await;
    assert_eq!((findings[0].code, findings[0].severity), ("alternate_exchange", Severity::Note));
    assert!(findings[0].reason.contains("\"amq.fanout\""), "{findings:?}");
}

#[tokio::test]
async fn check_reports_transient_auto_delete_expiring_and_exclusive_queue() {
    let rabbit = rabbit().await;
    let transient = unique("queue");
    rabbit.declare(&transient, QueueDeclareOptions::default(), FieldTable::default()).await;
    assert_eq!(codes(&transient).await, [("transient_queue", Severity::Warning)]);

    let auto_delete = unique("queue");
    let options = QueueDeclareOptions { auto_delete: true, ..durable() };
    rabbit.declare(&auto_delete, options, FieldTable::default()).await;
    assert_eq!(codes(&auto_delete).await, [("auto_delete_queue", Severity::Warning)]);

    let expiring = queue_with([("x-expires", number(600_000))]).await;
    assert_eq!(codes(&expiring).await, [("expiring_queue", Severity::Warning)]);

    let exclusive = unique("queue");
    let options = QueueDeclareOptions { exclusive: true, ..durable() };
    rabbit.declare(&exclusive, options, FieldTable::default()).await;
    assert_eq!(codes(&exclusive).await, [("exclusive_queue", Severity::Problem)]);
}

#[tokio::test]
async fn check_reports_queue_that_drops_its_oldest_messages() {
    let drops = [("drop_head", Severity::Problem)];
    assert_eq!(codes(&queue_with([("x-max-length", number(10))]).await).await, drops);
    assert_eq!(codes(&queue_with([("x-max-length-bytes", number(10))]).await).await, drops);
    let drop_head = [("x-max-length", number(10)), ("x-overflow", text("drop-head"))];
    assert_eq!(codes(&queue_with(drop_head).await).await, drops);
    let quorum = [("x-max-length", number(10)), ("x-queue-type", text("quorum"))];
    assert_eq!(codes(&queue_with(quorum).await).await, drops);
    let both = [("x-max-length", number(10)), ("x-max-length-bytes", number(500))];
    let findings = check(&queue_with(both).await).await;
    assert!(findings[0].reason.starts_with("x-max-length = 10 and x-max-length-bytes = 500"), "{findings:?}");
}

#[tokio::test]
async fn check_reports_message_ttl() {
    assert_eq!(
        codes(&queue_with([("x-message-ttl", number(60_000))]).await).await,
        [("message_ttl", Severity::Warning)]
    );
    let quorum = [("x-message-ttl", number(60_000)), ("x-queue-type", text("quorum"))];
    assert_eq!(codes(&queue_with(quorum).await).await, [("message_ttl", Severity::Warning)]);
    let stream = [("x-max-age", text("7D")), ("x-queue-type", text("stream"))];
    assert_eq!(codes(&queue_with(stream).await).await, [("message_ttl", Severity::Warning)]);
}

/// The check creates nothing, changes nothing and publishes nothing.
#[tokio::test]
async fn check_changes_nothing() {
    let rabbit = rabbit().await;
    let queue = queue_with([("x-max-length", number(10))]).await;
    let exchange = rabbit.exchange(ExchangeKind::Direct, durable_exchange(), FieldTable::default()).await;
    rabbit.bind(&queue, &exchange, "key").await;
    check(&queue).await;
    check(&format!("{exchange}/key")).await;
    assert_eq!(rabbit.take(&queue).await, None);
    // The same declarations succeed: nothing has changed.
    rabbit.declare(&queue, durable(), table([("x-max-length", number(10))])).await;
    let same = rabbit.channel.exchange_declare(
        exchange.as_str().into(),
        ExchangeKind::Direct,
        durable_exchange(),
        FieldTable::default(),
    );
    same.await.unwrap();
}

#[tokio::test]
async fn check_of_unreachable_broker_is_an_error() {
    let unreachable = RabbitMqTransport::new("amqp://guest:guest@127.0.0.1:1/%2f").unwrap();
    assert!(matches!(unreachable.check(&["orders"]).await, Err(PublishError::Unavailable { .. })));
}
