//! Negative controls: a naive ten-line webhook sender, and the messages that it loses.

use crate::{receiver::*, *};
use async_trait::async_trait;
use postrider_core::{Capacity, Finding};
use reqwest::Client;
use rustls::crypto::ring;

/// Posts, and treats any response as a success.
#[derive(Debug)]
struct NaiveTransport(Client);

impl NaiveTransport {
    fn new() -> Self {
        // Another test of this process may have installed it.
        ring::default_provider().install_default().ok();
        Self(Client::new())
    }
}

#[async_trait]
impl Transport for NaiveTransport {
    fn kind(&self) -> &'static str {
        "naive"
    }

    fn capacity(&self) -> Capacity {
        Capacity::of(64)
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<PublishResult> {
        let mut results = Vec::new();
        for outgoing in batch {
            let sent = self.0.post(&outgoing.destination).body(outgoing.body.clone()).send().await;
            results.push(sent.map(|_| Receipt::new()).map_err(PublishError::retry));
        }
        results
    }

    async fn check(&self, _: &[&str]) -> Result<Vec<Finding>, PublishError> {
        Ok(Vec::new())
    }

    async fn close(&self) {}
}

/// The receiver refuses the message. The naive sender settles it all the same: the message is lost.
#[tokio::test]
async fn control_sender_that_trusts_any_response_loses_messages() {
    let receiver = Receiver::start().await;
    for status in [302, 404, 429, 500, 503] {
        receiver.respond_with(move |_| ScriptedResponse::Status(status));
        assert!(publish_one(&NaiveTransport::new(), &receiver.url("/")).await.is_ok(), "{status}: lost");
        assert!(is_retry(&publish_one(&transport(open()), &receiver.url("/")).await), "{status}: is retried");
    }
}

/// A redirect leads the naive sender to a server that the receiver could not reach itself, and a 303 turns the POST into a GET: the message
/// is lost, and counts as delivered.
#[tokio::test]
async fn control_sender_that_follows_redirects_reaches_private_hosts() {
    let (inside, outside) = (Receiver::start().await, Receiver::start().await);
    for status in [303, 307] {
        let location = inside.url("/latest/meta-data");
        outside.respond_with(move |_| ScriptedResponse::WithHeader(status, "location", location.clone()));
        let connections = inside.log().connections;
        assert!(is_retry(&publish_one(&transport(open()), &outside.url("/")).await));
        assert_eq!(inside.log().connections, connections, "our transport does not follow");
        assert!(publish_one(&NaiveTransport::new(), &outside.url("/")).await.is_ok());
        assert_eq!(inside.log().connections, connections + 1, "the naive sender follows");
    }
    let methods: Vec<_> = inside.log().arrived.into_iter().map(|arrived| arrived.method).collect();
    assert_eq!(methods, ["GET", "POST"]);
}
