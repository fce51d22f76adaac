//! NATS with JetStream: the shared one, and one that a test kills.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider_testkit::{Kind, broker::Nats, shared};
use serde_json::{Value, json};
use support::{Talk, dies_with_its_holder, hold, is_down};

struct Client(Talk);

impl Client {
    async fn connect(url: &str) -> Self {
        let mut talk = Talk::with(url).await;
        assert!(talk.line().await.starts_with("INFO "));
        talk.say("CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB inbox 1\r\n").await;
        Self(talk)
    }

    /// Publishes, and returns the reply.
    async fn ask(&mut self, subject: &str, body: &str) -> Value {
        self.0.say(format!("PUB {subject} inbox {}\r\n{body}\r\n", body.len())).await;
        let head = self.0.line().await;
        assert!(head.starts_with("MSG "), "{head}");
        serde_json::from_str(&self.0.line().await).unwrap()
    }

    async fn create_stream(&mut self, name: &str) {
        let stream = json!({ "name": name, "subjects": [format!("{name}.>")], "storage": "file", "num_replicas": 1, "retention": "limits" });
        let answer = self.ask(&format!("$JS.API.STREAM.CREATE.{name}"), &stream.to_string()).await;
        assert!(answer["error"].is_null(), "{answer}");
    }

    async fn count(&mut self, name: &str) -> Value {
        self.ask(&format!("$JS.API.STREAM.INFO.{name}"), "").await["state"]["messages"].clone()
    }
}

#[tokio::test]
async fn the_shared_broker_accepts_messages() {
    let stream = format!("harness-{}", uuid::Uuid::now_v7());
    let mut client = Client::connect(&shared::url(Kind::Nats)).await;
    client.create_stream(&stream).await;
    assert_eq!(client.ask(&format!("{stream}.a"), "hello").await["seq"], 1);
    assert_eq!(client.count(&stream).await, 1);
}

#[tokio::test]
async fn confirmed_messages_survive_a_kill() {
    let mut broker = Nats::start().await;
    let url = broker.url().to_owned();
    let mut client = Client::connect(&url).await;
    client.create_stream("durable").await;
    assert_eq!(client.ask("durable.a", "hello").await["seq"], 1);
    broker.kill();
    assert!(is_down(&url).await);
    broker.restart().await;
    assert_eq!(broker.url(), url);
    assert_eq!(Client::connect(&url).await.count("durable").await, 1);
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
    hold::<postrider_servers::Nats>().await;
}
