//! SQS under faults: away again and again, over connections that are cut.
//!
//! SQS keeps what it has confirmed; it is the way to it that fails. moto, which plays it here, keeps everything in memory, so killing it would lose
//! what was confirmed and show nothing about SQS or about us. Instead a proxy of its own stands before it: a kill ends every connection
//! in the middle of whatever it carried, and until the restart every new one ends at once. Requests that had reached the server are carried
//! out, and nobody hears of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/sqs.rs"]
mod server;
#[path = "../../postrider-stores/tests/support/sqlite.rs"]
#[allow(dead_code, reason = "the suite of stores needs more of it")]
mod sqlite;
mod support;

use async_trait::async_trait;
use aws_sdk_sqs::types::SendMessageBatchRequestEntry;
use postrider_core::{Capacity, Finding, Outgoing, PublishError, Receipt, Transport};
use postrider_testkit::{
    broker::Sqs,
    proxy::{Fault, FaultProxy},
    relay_faults::{FaultFixture, cycles, pass_over},
    transport::Received,
};
use postrider_transports::sqs::SqsTransport;
use server::{Aws, held, options, unique};
use sqlite::SqliteFixture;
use std::{sync::Arc, time::Duration};

struct Away {
    server: Sqs,
    /// What is before the server, and makes it be away.
    front: FaultProxy,
    name: String,
    queue: String,
    is_hasty: bool,
}

impl Away {
    async fn new(is_hasty: bool) -> Self {
        let server = Sqs::start().await;
        let (front, _) = FaultProxy::before_url(server.url()).await;
        let name = unique("orders");
        let queue = Aws::at(server.url()).await.queue(&name, &[]).await;
        Self { server, front, name, queue, is_hasty }
    }
}

#[async_trait]
impl FaultFixture for Away {
    fn server(&self) -> String {
        self.front.address().to_string()
    }

    fn destination(&self) -> String {
        self.name.clone()
    }

    async fn transport(&self, proxy: &str) -> Arc<dyn Transport> {
        let url = format!("http://{proxy}");
        if self.is_hasty {
            let client = aws_sdk_sqs::Client::new(&server::config(&url).await);
            return Arc::new(Hasty { client, queue: self.queue.clone() });
        }
        let second = Duration::from_secs(1);
        let options = options(&url).with_connect_timeout(second).with_answer_timeout(second);
        Arc::new(Few(SqsTransport::new(options).unwrap()))
    }

    async fn kill(&self) {
        self.front.set(Fault::Refuse);
    }

    async fn restart(&self) {
        self.front.set(Fault::None);
    }

    async fn arrived(&self) -> Vec<Received> {
        held(self.server.url().trim_start_matches("http://")).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_and_cuts_lose_nothing() {
    let outcome = pass_over(SqliteFixture::new().await, Away::new(false).await, cycles()).await;
    assert!(outcome.failures > 0 && outcome.rolled_back > 0, "it was too quiet: {outcome:?}");
}

/// Takes few at once: moto is so slow that a hundred are seldom answered within the second that the matrix gives them.
#[derive(Debug)]
struct Few(SqsTransport);

#[async_trait]
impl Transport for Few {
    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    fn capacity(&self) -> Capacity {
        Capacity::of(20)
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        self.0.publish(batch).await
    }

    async fn check(&self, destinations: &[&str]) -> Result<Vec<Finding>, PublishError> {
        self.0.check(destinations).await
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

/// Calls messages accepted as soon as they are on their way.
#[derive(Debug)]
struct Hasty {
    client: aws_sdk_sqs::Client,
    queue: String,
}

#[async_trait]
impl Transport for Hasty {
    fn kind(&self) -> &'static str {
        "hasty"
    }

    fn capacity(&self) -> Capacity {
        Capacity::of(10)
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        let entry = |(number, outgoing): (usize, &Outgoing)| {
            let body = String::from_utf8(outgoing.body.to_vec()).unwrap();
            SendMessageBatchRequestEntry::builder().id(number.to_string()).message_body(body).build().unwrap()
        };
        let entries = batch.iter().enumerate().map(entry).collect();
        let sending =
            self.client.send_message_batch().queue_url(&self.queue).set_entries(Some(entries)).send();
        tokio::time::timeout(Duration::from_millis(500), sending).await.ok();
        batch.iter().map(|_| Ok(Receipt::new())).collect()
    }

    async fn check(&self, _: &[&str]) -> Result<Vec<Finding>, PublishError> {
        Ok(Vec::new())
    }

    async fn close(&self) {}
}

/// The control: the matrix catches a transport that takes what it has sent for what has arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hasty_transport_is_caught() {
    let (outbox, away) = (SqliteFixture::new().await, Away::new(true).await);
    let caught = tokio::spawn(pass_over(outbox, away, 1)).await.unwrap_err().into_panic();
    let told = caught.downcast_ref::<String>().expect("it panics with words");
    assert!(told.contains("were committed and never arrived"), "{told}");
}
