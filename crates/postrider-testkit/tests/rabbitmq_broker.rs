//! RabbitMQ: the shared one, and one that a test kills.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/amqp.rs"]
mod amqp;
mod support;

use amqp::Channel;
use postrider_testkit::{Kind, broker::RabbitMq, shared};
use support::{dies_with_its_holder, hold, is_down};

#[tokio::test]
async fn the_shared_broker_accepts_messages() {
    let queue = format!("harness-{}", uuid::Uuid::now_v7());
    let mut channel = Channel::open(&shared::url(Kind::RabbitMq)).await;
    assert_eq!(channel.declare(&queue).await, 0);
    channel.publish(&queue, b"hello").await;
    assert_eq!(channel.declare(&queue).await, 1);
}

#[tokio::test]
async fn confirmed_messages_survive_a_kill() {
    let mut broker = RabbitMq::start().await;
    let url = broker.url().to_owned();
    Channel::open(&url).await.declare("durable").await;
    // A broker writes definitions to its disk a moment after it has confirmed them. A graceful stop ensures that it has.
    broker.restart().await;
    Channel::open(&url).await.publish("durable", b"hello").await;
    broker.kill();
    assert!(is_down(&url).await);
    broker.restart().await;
    assert_eq!(broker.url(), url);
    assert_eq!(Channel::open(&url).await.declare("durable").await, 1);
    drop(broker);
    assert!(is_down(&url).await);
}

#[tokio::test]
async fn a_broker_ends_with_the_process_that_started_it() {
    dies_with_its_holder().await;
}

#[tokio::test]
#[ignore = "the body of a child process"]
async fn a_holder_of_a_broker() {
    hold::<postrider_servers::RabbitMq>().await;
}
