//! SQS under faults: a server that is stopped repeatedly, behind connections that are cut, with partial failures.
//!
//! SQS keeps confirmed messages; the network fails. moto forgets all messages when it is killed, and takes longer for a hundred messages
//! than the matrix waits for them. So the test has a server of its own: it implements the protocol of SQS, keeps accepted messages
//! across restarts, refuses every seventeenth entry, and omits others from its response, whether it has kept them or not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/sqs_protocol.rs"]
mod protocol;
#[path = "http/receiver.rs"]
#[allow(dead_code, reason = "the tests of webhooks need more of it")]
mod receiver;
#[path = "support/sqs.rs"]
mod server;
#[path = "../../postrider-stores/tests/support/sqlite.rs"]
#[allow(dead_code, reason = "the suite of stores needs more of it")]
mod sqlite;
mod support;

use async_trait::async_trait;
use aws_sdk_sqs::types::SendMessageBatchRequestEntry;
use postrider_core::{Capacity, ClientOptions, Finding, Outgoing, PublishError, Receipt, Transport};
use postrider_testkit::{
    relay_faults::{FaultFixture, cycles, pass_over},
    transport::Received,
};
use postrider_transports::sqs::SqsTransport;
use protocol::{BatchResponse, entries, respond};
use receiver::{ReceivedRequest, Receiver, ScriptedResponse};
use serde_json::{Value, json};
use server::{decode, options_of};
use sqlite::SqliteFixture;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

const QUEUE: &str = "http://sqs.example/1/orders";

/// The entries that were kept, and the number of entries received so far.
type Kept = Arc<Mutex<(Vec<Received>, usize)>>;

struct Stopped {
    server: Receiver,
    kept: Kept,
    is_naive: bool,
}

impl Stopped {
    async fn new(is_naive: bool) -> Self {
        let (server, kept) = (Receiver::start().await, Kept::default());
        let keeping = Arc::clone(&kept);
        server.respond_with(move |arrived| match arrived.header("x-amz-target") {
            "AmazonSQS.GetQueueUrl" => respond(200, &json!({"QueueUrl": QUEUE})),
            _ => take(arrived, &keeping),
        });
        Self { server, kept, is_naive }
    }
}

fn take(arrived: &ReceivedRequest, kept: &Kept) -> ScriptedResponse {
    let mut kept = kept.lock().unwrap();
    let mut answer = BatchResponse::default();
    for entry in entries(arrived) {
        kept.1 += 1;
        answer.unwell(kept.1, entry["Id"].as_str().unwrap(), || {
            kept.0.push(received(&entry));
            Ok(())
        });
    }
    answer.reply()
}

fn received(entry: &Value) -> Received {
    let attributes = entry["MessageAttributes"].as_object().cloned().unwrap_or_default().into_iter();
    let named = attributes.map(|(name, value)| (name, value["StringValue"].as_str().unwrap().to_owned()));
    decode(entry["MessageBody"].as_str().unwrap(), named.collect())
}

#[async_trait]
impl FaultFixture for Stopped {
    fn server(&self) -> String {
        self.server.address.to_string()
    }

    fn destination(&self) -> String {
        "orders".to_owned()
    }

    async fn transport(&self, proxy: &str) -> Arc<dyn Transport> {
        let url = format!("http://{proxy}");
        if self.is_naive {
            return Arc::new(NaiveTransport(aws_sdk_sqs::Client::new(&server::config(&url).await)));
        }
        let client = ClientOptions::new(url).with_connect_timeout(Duration::from_secs(1));
        Arc::new(SqsTransport::new(options_of(client)).unwrap())
    }

    async fn kill(&self) {
        self.server.stop().await;
    }

    async fn restart(&self) {
        self.server.restart().await;
    }

    async fn arrived(&self) -> Vec<Received> {
        self.kept.lock().unwrap().0.clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_and_cuts_lose_nothing() {
    let outcome = pass_over(SqliteFixture::new().await, Stopped::new(false).await, cycles()).await;
    assert!(outcome.failures > 0 && outcome.rolled_back > 0, "too few faults were injected: {outcome:?}");
}

/// Treats a successful request as success of all its messages. It is correct in every other respect.
#[derive(Debug)]
struct NaiveTransport(aws_sdk_sqs::Client);

#[async_trait]
impl Transport for NaiveTransport {
    fn kind(&self) -> &'static str {
        "naive"
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
        let sent = self.0.send_message_batch().queue_url(QUEUE).set_entries(Some(entries)).send().await;
        let answer = |_| match &sent {
            Ok(_) => Ok(Receipt::new()),
            Err(error) => Err(PublishError::unknown(error.to_string())),
        };
        batch.iter().map(answer).collect()
    }

    async fn check(&self, _: &[&str]) -> Result<Vec<Finding>, PublishError> {
        Ok(Vec::new())
    }

    async fn close(&self) {}
}

/// Control: the matrix catches a transport that does not read the lists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_naive_transport_loses_messages() {
    let (outbox, stopped) = (SqliteFixture::new().await, Stopped::new(true).await);
    let caught = tokio::spawn(pass_over(outbox, stopped, 1)).await.unwrap_err().into_panic();
    let message = caught.downcast_ref::<String>().expect("the panic has a message");
    assert!(message.contains("were committed and never arrived"), "{message}");
}
