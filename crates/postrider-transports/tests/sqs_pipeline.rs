//! Pipeline from one PostgreSQL through SQS into another, while all processes are killed.
//!
//! moto is too slow for that, and forgets all messages when it is killed. So the queue is on a server of the test's own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/pipeline.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
mod pipeline;
#[path = "support/sqs_protocol.rs"]
mod protocol;
#[path = "support/sqs_queue.rs"]
mod queue;
#[path = "http/receiver.rs"]
#[allow(dead_code, reason = "the tests of webhooks need more of it")]
mod receiver;
#[path = "support/sqs.rs"]
mod server;
mod support;

use async_trait::async_trait;
use pipeline::{Bodies, Broker};
use postrider_core::{Ack, Format, ReceivedMessage, Source, Transport};
use postrider_transports::sqs::{SqsSource, SqsTransport};
use queue::SqsServer;
use server::options;
use std::{sync::Arc, time::Duration};
use support::{orders, publish, soon};

#[async_trait]
impl Broker for SqsServer {
    fn connection_settings(&self) -> String {
        self.url()
    }

    async fn kill_and_restart(&self) {
        self.kill_and_restart().await;
    }
}

fn source(url: &str, visibility_timeout: Duration) -> SqsSource {
    SqsSource::builder(options(url), "orders").with_visibility_timeout(visibility_timeout).build().unwrap()
}

/// Not a test of its own: the body of the relay's process, which does nothing without its environment variables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the body of a child process"]
async fn a_relay() {
    let transport = |url: String| async move {
        let transport: Arc<dyn Transport> = Arc::new(SqsTransport::new(options(&url)).unwrap());
        (transport, "orders".to_owned())
    };
    pipeline::relay(Format::Binary, transport).await;
}

/// Not a test of its own: the body of the consumer's process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the body of a child process"]
async fn a_consumer() {
    let source =
        |url: String| async move { Arc::new(source(&url, Duration::from_secs(2))) as Arc<dyn Source> };
    pipeline::consumer(source).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_has_one_effect_and_one_follow_up() {
    let server = SqsServer::start().await;
    pipeline::run(server, Bodies { relay: "a_relay", consumer: "a_consumer" }).await;
}

/// The server keeps accepted messages, and redelivers those in flight.
#[tokio::test]
async fn killed_server_keeps_accepted_messages_and_redelivers_in_flight() {
    let server = SqsServer::start().await;
    let transport = SqsTransport::new(options(&server.url())).unwrap();
    for answer in publish(&transport, &orders(3, "orders")).await {
        answer.unwrap();
    }
    let source = source(&server.url(), Duration::from_secs(3600));
    assert_eq!(source.redelivery_window().await.unwrap().within, Some(Duration::from_secs(4 * 24 * 3600)));
    let before = soon(source.receive(10)).await.unwrap();
    server.kill_and_restart().await;
    let again = soon(source.receive(10)).await.unwrap();
    let deliveries =
        |messages: &[ReceivedMessage]| messages.iter().map(|message| message.deliveries).collect::<Vec<_>>();
    assert_eq!((deliveries(&before), deliveries(&again)), (vec![Some(1); 3], vec![Some(2); 3]));
    for (messages, left) in [(before, 3), (again, 0)] {
        let answers: Vec<_> = messages.into_iter().map(|message| (message.ack_handle, Ack::Ack)).collect();
        assert!(soon(source.ack(&answers)).await.iter().all(Result::is_ok));
        assert_eq!(server.len(), left);
    }
}
