//! SQS and SNS pass the suite: standard queues, FIFO queues, a topic with a queue behind it, and a FIFO topic with one.
//!
//! The server is moto, which keeps messages in memory and loses them in a crash, so `sqs_faults` has a server of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/sqs.rs"]
mod server;
mod support;

use async_trait::async_trait;
use aws_sdk_sqs::types::QueueAttributeName;
use postrider_core::{ClientOptions, Format, Message, MessageId, Outgoing, PublishError, Transport};
use postrider_testkit::{
    Kind,
    proxy::{Fault, FaultProxy},
    shared,
    transport::{Received, TransportFeatures, TransportFixture},
};
use postrider_transports::{aws::AwsOptions, sns::SnsTransport, sqs::SqsTransport};
use server::{Aws, options, options_of, unique};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};
use support::{Certificate, PATIENCE, client, order, orders, publish, soon, unused_port};
use tokio::sync::Mutex;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Queue,
    Topic,
}

struct AwsFixture {
    by: By,
    ending: &'static str,
    url: String,
    aws: Aws,
    /// The queue behind each destination, and the messages received from it so far.
    queues: Mutex<BTreeMap<String, (String, Vec<Received>)>>,
}

async fn fixture(by: By, ending: &'static str) -> AwsFixture {
    let url = shared::url(Kind::Sqs);
    AwsFixture { by, ending, aws: Aws::at(&url).await, url, queues: Mutex::default() }
}

async fn queues() -> AwsFixture {
    fixture(By::Queue, "").await
}

async fn fifo_queues() -> AwsFixture {
    fixture(By::Queue, ".fifo").await
}

async fn topics() -> AwsFixture {
    fixture(By::Topic, "").await
}

async fn fifo_topics() -> AwsFixture {
    fixture(By::Topic, ".fifo").await
}

mod on_queues {
    postrider_testkit::transport_suite!(super::queues);
}

mod on_fifo_queues {
    postrider_testkit::transport_suite!(super::fifo_queues);
}

mod on_topics {
    postrider_testkit::transport_suite!(super::topics);
}

mod on_fifo_topics {
    postrider_testkit::transport_suite!(super::fifo_topics);
}

impl AwsFixture {
    fn at(&self, url: &str) -> Arc<dyn Transport> {
        match self.by {
            By::Queue => Arc::new(SqsTransport::new(options(url)).unwrap()),
            By::Topic => Arc::new(SnsTransport::new(options(url)).unwrap()),
        }
    }
}

#[async_trait]
impl TransportFixture for AwsFixture {
    fn features(&self) -> TransportFeatures {
        TransportFeatures {
            knows_destinations: true,
            keeps_order: self.ending == ".fifo",
            survives_restarts: false,
            too_large: Some(if self.by == By::Queue { 1_048_577 } else { 262_145 }),
            carries_key: self.ending == ".fifo",
        }
    }

    async fn transport(&self) -> Arc<dyn Transport> {
        self.at(&self.url)
    }

    async fn nobody_there(&self) -> Arc<dyn Transport> {
        self.at(&format!("http://127.0.0.1:{}", unused_port()))
    }

    async fn through_proxy(&self) -> Option<(FaultProxy, Arc<dyn Transport>)> {
        let (proxy, url) = FaultProxy::before_url(&self.url).await;
        Some((proxy, self.at(&url)))
    }

    async fn destination(&self) -> String {
        let name = format!("{}{}", unique("orders"), self.ending);
        let queue = self.aws.queue(&name, &[]).await;
        if self.by == By::Topic {
            let topic = self.aws.topic(&name).await;
            self.aws.subscribe(&topic, &queue, &[("RawMessageDelivery", "true")]).await;
        }
        self.queues.lock().await.insert(name.clone(), (queue, Vec::new()));
        name
    }

    fn missing_destination(&self) -> String {
        format!("missing{}", self.ending)
    }

    async fn received(&self, destination: &str, count: usize) -> Vec<Received> {
        let mut queues = self.queues.lock().await;
        let (queue, received) = queues.get_mut(destination).unwrap();
        loop {
            let came = self.aws.drain(queue).await;
            let is_all = came.is_empty() && received.len() >= count;
            received.extend(came);
            if is_all {
                return received.clone();
            }
        }
    }

    async fn kill_and_restart(&self) {
        unreachable!("it holds everything in memory")
    }
}

fn sqs() -> SqsTransport {
    SqsTransport::new(options(&shared::url(Kind::Sqs))).unwrap()
}

async fn aws() -> Aws {
    Aws::at(&shared::url(Kind::Sqs)).await
}

fn keyed(number: usize, key: &str, destination: &str) -> Outgoing {
    let message = Message::builder("orders").key(key).json(&number).build().unwrap();
    let now = SystemTime::now();
    Outgoing::write(&message, MessageId::at(now), now, "/shop", destination.to_owned(), Format::Binary)
        .unwrap()
}

fn bodies(received: &[Received]) -> Vec<String> {
    received.iter().map(|one| String::from_utf8(one.body.to_vec()).unwrap()).collect()
}

#[tokio::test]
async fn batch_of_any_size_is_split_into_requests() {
    let (aws, name) = (aws().await, unique("orders"));
    let queue = aws.queue(&name, &[]).await;
    let mut batch = orders(37, &name);
    // Two of these do not fit into a request.
    for outgoing in batch.iter_mut().take(5) {
        outgoing.body = vec![b'x'; 600_000].into();
    }
    for result in publish(&sqs(), &batch).await {
        result.unwrap();
    }
    assert_eq!(aws.drain(&queue).await.len(), 37);
}

/// The size includes attributes: ten messages that fit by their bodies alone do not fit into one request.
#[tokio::test]
async fn size_limit_includes_attributes() {
    let (aws, name) = (aws().await, unique("orders"));
    let queue = aws.queue(&name, &[]).await;
    let mut batch = orders(2, &name);
    for outgoing in &mut batch {
        outgoing.body = vec![b'x'; 1_048_576 - 400].into();
        outgoing.headers.push(("long".to_owned(), "v".repeat(400)));
    }
    for result in publish(&sqs(), &batch).await {
        assert!(matches!(result, Err(PublishError::Reject { .. })), "{result:?}");
    }
    assert_eq!(aws.drain(&queue).await.len(), 0);
}

#[tokio::test]
async fn queue_is_addressed_by_name_or_url() {
    let (aws, name) = (aws().await, unique("orders"));
    let queue = aws.queue(&name, &[]).await;
    publish(&sqs(), &orders(1, &queue)).await.remove(0).unwrap();
    assert_eq!(aws.drain(&queue).await.len(), 1);
    let gone = queue.replace(&name, "missing");
    let result = publish(&sqs(), &orders(1, &gone)).await.remove(0);
    let Err(PublishError::AddressUnavailable { source }) = result else { panic!("{result:?}") };
    assert!(source.to_string().ends_with("aws sqs create-queue --queue-name missing"), "{source}");
}

#[tokio::test]
async fn topic_is_addressed_by_name_or_arn() {
    let (aws, name) = (aws().await, unique("orders"));
    let (topic, queue) = (aws.topic(&name).await, aws.queue(&name, &[]).await);
    aws.subscribe(&topic, &queue, &[("RawMessageDelivery", "true")]).await;
    let sns = SnsTransport::new(options(&shared::url(Kind::Sqs))).unwrap();
    publish(&sns, &orders(1, &topic)).await.remove(0).unwrap();
    assert_eq!(aws.drain(&queue).await.len(), 1);
    let result = publish(&sns, &orders(1, "missing.fifo")).await.remove(0);
    let Err(PublishError::AddressUnavailable { source }) = result else { panic!("{result:?}") };
    let command = "aws sns create-topic --name missing.fifo --attributes FifoTopic=true";
    assert!(source.to_string().ends_with(command), "{source}");
}

/// The list of topics has pages of a hundred.
#[tokio::test]
async fn topic_is_found_on_later_pages() {
    let (aws, prefix) = (aws().await, unique("many"));
    for number in 0..250 {
        aws.topic(&format!("{prefix}-{number}")).await;
    }
    let (name, sns) = (format!("{prefix}-249"), SnsTransport::new(options(&shared::url(Kind::Sqs))).unwrap());
    publish(&sns, &orders(1, &name)).await.remove(0).unwrap();
}

#[tokio::test]
async fn recreated_queue_is_resolved_again() {
    let (aws, name, sqs) = (aws().await, unique("orders"), sqs());
    let queue = aws.queue(&name, &[]).await;
    publish(&sqs, &orders(1, &name)).await.remove(0).unwrap();
    aws.sqs.delete_queue().queue_url(&queue).send().await.unwrap();
    let result = publish(&sqs, &orders(1, &name)).await.remove(0);
    assert!(matches!(result, Err(PublishError::AddressUnavailable { .. })), "{result:?}");
    let queue = aws.queue(&name, &[]).await;
    publish(&sqs, &orders(1, &name)).await.remove(0).unwrap();
    assert_eq!(aws.drain(&queue).await.len(), 1);
}

#[tokio::test]
async fn invalid_queue_name_is_rejected() {
    let batch = [order(1, ""), order(2, "no queue"), order(3, "a.b")];
    for result in publish(&sqs(), &batch).await {
        assert!(matches!(result, Err(PublishError::Reject { .. })), "{result:?}");
    }
}

/// moto refuses the whole request because of one message, and does not say which one.
#[tokio::test]
async fn bad_message_is_rejected_and_its_batch_is_delivered() {
    let (aws, name) = (aws().await, unique("orders"));
    let queue = aws.queue(&name, &[(QueueAttributeName::MaximumMessageSize, "1024")]).await;
    let mut batch = orders(10, &name);
    batch[4].body = vec![b'x'; 2_000].into();
    let results = publish(&sqs(), &batch).await;
    for (number, result) in results.iter().enumerate() {
        match number {
            4 => assert!(matches!(result, Err(PublishError::Reject { .. })), "{result:?}"),
            _ => assert!(result.is_ok(), "{number}: {result:?}"),
        }
    }
    assert_eq!(aws.drain(&queue).await.len(), 9);
}

/// A failure in the middle of a group stops the messages behind it; other groups continue.
#[tokio::test]
async fn fifo_group_stops_at_first_failure() {
    let (aws, name) = (aws().await, unique("orders") + ".fifo");
    let queue = aws.queue(&name, &[(QueueAttributeName::MaximumMessageSize, "1024")]).await;
    let mut batch: Vec<_> =
        (0..4).flat_map(|number| [keyed(number, "a", &name), keyed(number, "b", &name)]).collect();
    batch[2].body = vec![b'x'; 2_000].into(); // the second of a; the server refuses it
    let results = publish(&sqs(), &batch).await;
    assert!(matches!(results[2], Err(PublishError::Reject { .. })), "{results:?}");
    for behind in [4, 6] {
        assert!(matches!(results[behind], Err(PublishError::Retry { .. })), "{results:?}");
    }
    assert!([0, 1, 3, 5, 7].into_iter().all(|good| results[good].is_ok()), "{results:?}");

    batch[2].body = "1".into(); // fixed
    let again: Vec<_> = [2, 4, 6].into_iter().map(|number: usize| batch[number].clone()).collect();
    assert!(publish(&sqs(), &again).await.iter().all(Result::is_ok));
    let received = aws.drain(&queue).await;
    for key in ["a", "b"] {
        let of_key: Vec<_> = received.iter().filter(|one| one.key.as_deref() == Some(key)).cloned().collect();
        assert_eq!(bodies(&of_key), ["0", "1", "2", "3"], "{key}");
    }
}

/// The same for a message that was never sent.
#[tokio::test]
async fn fifo_group_stops_at_oversized_message() {
    let (aws, name) = (aws().await, unique("orders") + ".fifo");
    let queue = aws.queue(&name, &[]).await;
    let mut batch: Vec<_> = (0..3).map(|number| keyed(number, "a", &name)).collect();
    batch[1].body = vec![b'x'; 2_000_000].into();
    let results = publish(&sqs(), &batch).await;
    assert!(results[0].is_ok(), "{results:?}");
    assert!(matches!(results[1], Err(PublishError::Reject { .. })), "{results:?}");
    assert!(matches!(results[2], Err(PublishError::Retry { .. })), "{results:?}");
    assert_eq!(bodies(&aws.drain(&queue).await), ["0"]);
}

#[tokio::test]
async fn fifo_retry_is_accepted_and_deduplicated() {
    let (aws, name) = (aws().await, unique("orders") + ".fifo");
    let queue = aws.queue(&name, &[]).await;
    let batch: Vec<_> = (0..12).map(|number| keyed(number, &format!("key {number}"), &name)).collect();
    for _ in 0..3 {
        assert!(publish(&sqs(), &batch).await.iter().all(Result::is_ok));
    }
    assert_eq!(aws.drain(&queue).await.len(), 12);
}

/// All characters in payloads and headers, for both services.
#[tokio::test]
async fn every_character_is_delivered_unchanged() {
    let aws = aws().await;
    let name = unique("orders");
    let (topic, queue) = (aws.topic(&name).await, aws.queue(&name, &[]).await);
    aws.subscribe(&topic, &queue, &[("RawMessageDelivery", "true")]).await;
    let sns = SnsTransport::new(options(&shared::url(Kind::Sqs))).unwrap();
    let texts =
        ["a\tb\r\nc\n", " <&>\"' ", "\u{1}\u{7f}\u{85}\u{FFFD}\u{FFFE}\u{FFFF}😀", "empty", "%41+ =", ""];
    for text in texts {
        for transport in [&sqs() as &dyn Transport, &sns] {
            let mut sent = order(1, &name);
            sent.body = text.to_owned().into();
            sent.headers.push(("odd".to_owned(), text.to_owned()));
            publish(transport, std::slice::from_ref(&sent)).await.remove(0).unwrap();
            let received = soon(async {
                loop {
                    if let Some(received) = aws.drain(&queue).await.pop() {
                        return received;
                    }
                }
            })
            .await;
            assert_eq!(received.body, sent.body, "{text:?} by {}", transport.kind());
            assert_eq!(received.headers["odd"], text, "by {}", transport.kind());
        }
    }
}

/// The connection stays open, and no response arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_response_is_unknown_after_timeout() {
    let (url, name) = (shared::url(Kind::Sqs), unique("orders"));
    Aws::at(&url).await.queue(&name, &[]).await;
    let (proxy, through) = FaultProxy::before_url(&url).await;
    let impatient = SqsTransport::new(options_of(client(&through, Duration::from_secs(2)))).unwrap();
    soon(async { while impatient.publish(&orders(1, &name)).await.remove(0).is_err() {} }).await;
    proxy.set(Fault::BlackHole);
    for result in publish(&impatient, &orders(3, &name)).await {
        assert!(matches!(result, Err(PublishError::Unknown { .. })), "{result:?}");
    }
}

/// If TLS fails there is no connection, and nothing was sent.
#[tokio::test]
async fn failed_or_untrusted_tls_is_unavailable() {
    let plain = shared::url(Kind::Sqs).replace("http://", "https://");
    let (folder, client) = (Certificate::new(), client(&plain, PATIENCE));
    let transport = SqsTransport::new(options_of(client.with_ca_bundle(folder.certificate()))).unwrap();
    for result in publish(&transport, &orders(2, "orders")).await {
        assert!(matches!(result, Err(PublishError::Unavailable { .. })), "{result:?}");
    }

    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    let impatient = ClientOptions::new(url).with_connect_timeout(Duration::from_millis(100));
    let transport = SqsTransport::new(options_of(impatient)).unwrap();
    let result = publish(&transport, &orders(1, "orders")).await.remove(0);
    assert!(matches!(result, Err(PublishError::Unavailable { .. })), "{result:?}");
}

#[tokio::test]
async fn secrets_are_never_shown() {
    let transport = sqs();
    let results = publish(&transport, &orders(1, "missing")).await;
    let shown = format!("{transport:?} {:?} {results:?}", options("http://127.0.0.1:1"));
    assert!(!shown.contains("s3cret"), "{shown}");
    let error = SqsTransport::new(AwsOptions::new().with_client("http://ann:s3cret@host")).unwrap_err();
    assert!(!error.to_string().contains("s3cret"), "{error}");
}
