//! The negative control: webhooks as they are written in ten lines, and what that loses.

use crate::{receiver::*, *};
use async_trait::async_trait;
use postrider_core::{Capacity, Finding};
use reqwest::Client;
use rustls::crypto::ring;

/// Posts, and takes any answer for a success.
#[derive(Debug)]
struct Naive(Client);

impl Naive {
    fn new() -> Self {
        // Other tests of this process may have done it.
        ring::default_provider().install_default().ok();
        Self(Client::new())
    }
}

#[async_trait]
impl Transport for Naive {
    fn kind(&self) -> &'static str {
        "naive"
    }

    fn capacity(&self) -> Capacity {
        Capacity::of(64)
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Answer> {
        let mut answers = Vec::new();
        for outgoing in batch {
            let sent = self.0.post(&outgoing.destination).body(outgoing.body.clone()).send().await;
            answers.push(sent.map(|_| Receipt::new()).map_err(PublishError::retry));
        }
        answers
    }

    async fn check(&self, _: &[&str]) -> Result<Vec<Finding>, PublishError> {
        Ok(Vec::new())
    }

    async fn close(&self) {}
}

/// The receiver did not take it, and says so. The naive one has it settled all the same: the message is lost.
#[tokio::test]
async fn any_answer_for_a_success_loses_messages() {
    let receiver = Receiver::start().await;
    for status in [302, 404, 429, 500, 503] {
        receiver.answers(move |_| Reply::Status(status));
        assert!(publish_one(&Naive::new(), &receiver.url("/")).await.is_ok(), "{status}: lost");
        assert!(
            is_retry(&publish_one(&transport(open()), &receiver.url("/")).await),
            "{status}: comes again"
        );
    }
}

/// A receiver sends whoever follows redirects to a server that it could not reach itself, and a 303 makes a GET of it: the message
/// arrives nowhere, and counts as delivered.
#[tokio::test]
async fn whoever_follows_redirects_is_led_inside() {
    let (inside, outside) = (Receiver::start().await, Receiver::start().await);
    for status in [303, 307] {
        let location = inside.url("/latest/meta-data");
        outside.answers(move |_| Reply::With(status, "location", location.clone()));
        let connections = inside.seen().connections;
        assert!(is_retry(&publish_one(&transport(open()), &outside.url("/")).await));
        assert_eq!(inside.seen().connections, connections, "ours is not led there");
        assert!(publish_one(&Naive::new(), &outside.url("/")).await.is_ok());
        assert_eq!(inside.seen().connections, connections + 1, "the naive one is");
    }
    let methods: Vec<_> = inside.seen().arrived.into_iter().map(|arrived| arrived.method).collect();
    assert_eq!(methods, ["GET", "POST"]);
}
