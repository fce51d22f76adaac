//! Pipeline from one PostgreSQL by webhooks into another, while sender and receiver are killed. There is no broker in between.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/pipeline.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
mod pipeline;
mod support;

use async_trait::async_trait;
use pipeline::{Bodies, Broker};
use postrider_core::{Format, Source, Transport};
use postrider_transports::http::{HttpOptions, HttpSource, HttpTransport, signature::Secret};
use std::sync::Arc;
use tokio::net::TcpListener;

/// The receiver is the consumer's own process.
struct Nobody(String);

#[async_trait]
impl Broker for Nobody {
    fn connection_settings(&self) -> String {
        self.0.clone()
    }

    async fn kill_and_restart(&self) {}
}

fn secret() -> Secret {
    Secret::new([7; 32]).unwrap()
}

/// Not a test of its own: the body of the relay's process, which does nothing without its environment variables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the body of a child process"]
async fn a_relay() {
    let transport = |address: String| async move {
        let options = HttpOptions::below(format!("http://{address}/hooks")).unwrap();
        let options = options.allow_http().allow_host("127.0.0.1").with_secret(secret());
        let transport: Arc<dyn Transport> = Arc::new(HttpTransport::new(options).unwrap());
        (transport, "orders".to_owned())
    };
    pipeline::relay(Format::Binary, transport).await;
}

/// Not a test of its own: the body of the consumer's process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the body of a child process"]
async fn a_consumer() {
    let source = |address: String| async move {
        let source = HttpSource::new("/hooks/orders", secret()).unwrap();
        let listener = TcpListener::bind(address).await.unwrap();
        let router = source.router();
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Arc::new(source) as Arc<dyn Source>
    };
    pipeline::consumer(source).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_has_one_effect_and_one_follow_up() {
    let address = format!("127.0.0.1:{}", support::unused_port());
    pipeline::run(Nobody(address), Bodies { relay: "a_relay", consumer: "a_consumer" }).await;
}
