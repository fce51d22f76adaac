//! The broker examples on RabbitMQ: without a queue, and with one.

#![cfg(feature = "rabbitmq")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use lapin::{
    Connection, ConnectionProperties,
    options::QueueDeclareOptions,
    types::{AMQPValue, FieldTable},
};
use postrider_testkit::{Kind, shared};
use support::run_as_printed;

#[tokio::test]
async fn relay_publishes_where_there_is_a_queue_and_consumer_processes_it() {
    let url = shared::url(Kind::RabbitMq);
    let queue = format!("example-{}", postrider::MessageId::at(std::time::SystemTime::now()));
    assert_eq!(
        run_as_printed("rabbitmq", "relay_broker", &url, &queue).await,
        format!(
            "problem missing_queue: rabbitmqadmin declare queue name={queue} durable=true \
             arguments='{{\"x-queue-type\":\"quorum\"}}'\n0 published, 2 to be retried, 0 dead\n"
        )
    );
    let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let mut quorum = FieldTable::default();
    quorum.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    channel.queue_declare(queue.as_str().into(), durable, quorum).await.unwrap();
    assert_eq!(
        run_as_printed("rabbitmq", "relay_broker", &url, &queue).await,
        "2 published, 0 to be retried, 0 dead\n"
    );
    let printed = run_as_printed("rabbitmq", "consume_broker", &url, &queue).await;
    assert!(printed.ends_with("2 processed, 0 duplicates\n"), "{printed}");
}
