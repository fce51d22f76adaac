//! Helpers shared by the tests of all transports.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use postrider_core::{ClientOptions, Format, Message, MessageId, Outgoing, PublishError, Receipt, Transport};
use std::{
    future::Future,
    net::TcpListener,
    path::PathBuf,
    time::{Duration, SystemTime},
};

/// Test timeout; a test that reaches it has hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("the test has hung")
}

pub(crate) fn order(number: usize, destination: &str) -> Outgoing {
    let message = Message::builder("orders").event_type("order.placed").json(&number).build().unwrap();
    let now = SystemTime::now();
    Outgoing::write(&message, MessageId::at(now), now, "/shop", destination.to_owned(), Format::Binary)
        .unwrap()
}

pub(crate) fn orders(count: usize, destination: &str) -> Vec<Outgoing> {
    (0..count).map(|number| order(number, destination)).collect()
}

pub(crate) async fn publish(
    transport: &dyn Transport,
    batch: &[Outgoing],
) -> Vec<Result<Receipt, PublishError>> {
    let results = soon(transport.publish(batch)).await;
    assert_eq!(results.len(), batch.len(), "one result per message");
    results
}

/// Publishes until every message is accepted, because a broker that has just started may refuse some; then closes the transport.
pub(crate) async fn send(transport: &dyn Transport, mut batch: Vec<Outgoing>) {
    let sending = async {
        while !batch.is_empty() {
            let results = transport.publish(&batch).await;
            let unsent = batch.into_iter().zip(results).filter(|(_, result)| result.is_err());
            batch = unsent.map(|(outgoing, _)| outgoing).collect();
            tokio::task::yield_now().await;
        }
        transport.close().await;
    };
    soon(sending).await;
}

/// A client with this connect timeout and request timeout.
pub(crate) fn client(url: impl Into<String>, timeout: Duration) -> ClientOptions {
    ClientOptions::new(url).with_connect_timeout(timeout).with_request_timeout(timeout)
}

/// A port without a listener.
pub(crate) fn unused_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// A self-signed certificate for `localhost`, in files.
pub(crate) struct Certificate(tempfile::TempDir);

impl Certificate {
    pub(crate) fn new() -> Self {
        Self::of(&["localhost"])
    }

    pub(crate) fn of(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let this = Self(folder);
        std::fs::write(this.certificate(), made.cert.pem()).unwrap();
        std::fs::write(this.key(), made.signing_key.serialize_pem()).unwrap();
        this
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.0.path().join("certificate.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.0.path().join("key.pem")
    }
}
