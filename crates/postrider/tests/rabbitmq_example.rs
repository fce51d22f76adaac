//! The example for RabbitMQ does what it says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../../examples/consume_rabbitmq.rs"]
mod consume_rabbitmq;
#[path = "../../../examples/relay_rabbitmq.rs"]
mod relay_rabbitmq;

use lapin::{
    Connection, ConnectionProperties,
    options::QueueDeclareOptions,
    types::{AMQPValue, FieldTable},
};
use postrider_testkit::{Kind, shared};

async fn told(url: &str, queue: &str) -> String {
    let mut out = Vec::new();
    relay_rabbitmq::run(url, queue, &mut out).await.unwrap();
    String::from_utf8(out).unwrap()
}

#[tokio::test]
async fn the_rabbitmq_example_delivers_where_there_is_a_queue() {
    let url = shared::url(Kind::RabbitMq);
    let queue = format!("example-{}", postrider::MessageId::at(std::time::SystemTime::now()));
    assert_eq!(
        told(&url, &queue).await,
        format!(
            "problem: missing_queue: rabbitmqadmin declare queue name={queue} durable=true \
             arguments='{{\"x-queue-type\":\"quorum\"}}'\n0 delivered, 3 to be sent again\n"
        )
    );
    let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue.as_str().into(), durable, FieldTable::default()).await.unwrap();
    assert_eq!(told(&url, &queue).await, "3 delivered, 0 to be sent again\n");
}

#[tokio::test]
async fn the_consumer_receives_what_the_relay_has_published() {
    let url = shared::url(Kind::RabbitMq);
    let queue = format!("example-{}", postrider::MessageId::at(std::time::SystemTime::now()));
    let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let mut quorum = FieldTable::default();
    quorum.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    channel.queue_declare(queue.as_str().into(), durable, quorum).await.unwrap();
    assert_eq!(told(&url, &queue).await, "3 delivered, 0 to be sent again\n");
    let mut out = Vec::new();
    consume_rabbitmq::run(&url, &queue, &mut out).await.unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(out.ends_with("3 processed, 0 duplicates, 0 parked, 0 failed\n"), "{out}");
}
