//! Webhooks, against a real HTTP server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod certificates;
mod checking;
mod guarding;
mod hosts;
mod naive;
mod receiver;
mod relaying;
mod signing;
mod statuses;
mod suite;

use postrider_core::{Format, Message, MessageId, Outgoing, PublishError, Receipt, Transport};
use postrider_transports::http::{HttpOptions, HttpTransport, signature::Secret};
use std::{future::Future, time::Duration, time::SystemTime};

type Answer = Result<Receipt, PublishError>;

/// Longer than anything takes; a test that reaches it has hung.
async fn patiently<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it takes for ever")
}

fn secret() -> Secret {
    Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap()
}

/// Whole URLs, http and loopback, which receivers in tests need.
fn open() -> HttpOptions {
    HttpOptions::new().allow_http().allow_network("127.0.0.0/8").unwrap()
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

async fn publish(transport: &dyn Transport, batch: &[Outgoing]) -> Vec<Answer> {
    let answers = patiently(transport.publish(batch)).await;
    assert_eq!(answers.len(), batch.len(), "one answer for each message");
    answers
}

async fn publish_one(transport: &dyn Transport, destination: &str) -> Answer {
    publish(transport, &[order(17, destination)]).await.remove(0)
}

/// A port of this machine on which nobody listens.
async fn closed_port() -> u16 {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    listener.local_addr().unwrap().port()
}

fn is_retry(answer: &Answer) -> bool {
    matches!(answer, Err(PublishError::Retry { .. }))
}

fn is_reject(answer: &Answer) -> bool {
    matches!(answer, Err(PublishError::Reject { .. }))
}

fn is_unknown(answer: &Answer) -> bool {
    matches!(answer, Err(PublishError::Unknown { .. }))
}

fn is_down(answer: &Answer) -> bool {
    matches!(answer, Err(PublishError::Down { .. }))
}
