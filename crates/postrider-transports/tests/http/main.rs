//! Webhooks, against a real HTTP server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod certificates;
mod check;
mod guard;
mod hosts;
mod naive;
mod receiver;
mod relay;
mod signatures;
mod statuses;
mod suite;

use postrider_core::{
    ClientOptions, Format, Message, MessageId, Outgoing, Pem, PublishError, Receipt, Transport,
};
use postrider_transports::http::{HttpOptions, HttpTransport, signature::Secret};
use std::{future::Future, time::Duration, time::SystemTime};

type PublishResult = Result<Receipt, PublishError>;

/// Longer than anything takes; a test that reaches it has hung.
async fn within_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("the test hangs")
}

fn secret() -> Secret {
    Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap()
}

/// Whole URLs, http and loopback, which receivers in tests need.
fn open() -> HttpOptions {
    HttpOptions::new().allow_http().allow_network("127.0.0.0/8").unwrap()
}

/// A client with this request timeout.
fn within(timeout: Duration) -> ClientOptions {
    ClientOptions::default().with_request_timeout(timeout)
}

fn transport(options: HttpOptions) -> HttpTransport {
    HttpTransport::new(options).unwrap()
}

fn order(number: usize, destination: &str) -> Outgoing {
    let message = Message::builder("orders").event_type("order.placed").json(&number).build().unwrap();
    let now = SystemTime::now();
    Outgoing::write(&message, MessageId::at(now), now, "/shop", destination.to_owned(), Format::Binary)
        .unwrap()
}

async fn publish(transport: &dyn Transport, batch: &[Outgoing]) -> Vec<PublishResult> {
    let results = within_timeout(transport.publish(batch)).await;
    assert_eq!(results.len(), batch.len(), "one result for each message");
    results
}

async fn publish_one(transport: &dyn Transport, destination: &str) -> PublishResult {
    publish(transport, &[order(17, destination)]).await.remove(0)
}

/// A local port without a listener.
async fn closed_port() -> u16 {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    listener.local_addr().unwrap().port()
}

fn is_retry(result: &PublishResult) -> bool {
    matches!(result, Err(PublishError::Retry { .. }))
}

fn is_reject(result: &PublishResult) -> bool {
    matches!(result, Err(PublishError::Reject { .. }))
}

fn is_unknown(result: &PublishResult) -> bool {
    matches!(result, Err(PublishError::Unknown { .. }))
}

fn is_unavailable(result: &PublishResult) -> bool {
    matches!(result, Err(PublishError::Unavailable { .. }))
}
