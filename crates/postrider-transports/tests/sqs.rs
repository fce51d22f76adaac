//! SQS and SNS pass the suite: standard queues, FIFO queues, a topic with a queue behind it, and a FIFO topic with one.
//!
//! The server is moto, which holds everything in memory: nothing there survives a crash, so `sqs_faults` has a server of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/sqs.rs"]
mod server;
mod support;

use async_trait::async_trait;
use aws_sdk_sqs::types::QueueAttributeName;
use postrider_core::{Format, Message, MessageId, Outgoing, PublishError, Transport};
use postrider_testkit::{
    Kind,
    proxy::{Fault, FaultProxy},
    shared,
    transport::{Received, TransportFeatures, TransportFixture},
};
use postrider_transports::{aws::AwsOptions, sns::SnsTransport, sqs::SqsTransport};
use server::{Aws, options, unique};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};
use support::{Certificate, order, orders, publish, soon, unused_port};
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
    /// The queue behind each destination, and what came out of it so far.
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
async fn a_batch_of_any_size_is_cut_into_requests() {
    let (aws, name) = (aws().await, unique("orders"));
    let queue = aws.queue(&name, &[]).await;
    let mut batch = orders(37, &name);
    // Two of these do not fit into a request.
    for outgoing in batch.iter_mut().take(5) {
        outgoing.body = vec![b'x'; 600_000].into();
    }
    for answer in publish(&sqs(), &batch).await {
        answer.unwrap();
    }
    assert_eq!(aws.drain(&queue).await.len(), 37);
}

/// Bytes are counted with attributes: ten that fit by their bodies alone do not go together.
#[tokio::test]
async fn attributes_count_where_the_limit_is_reached() {
    let (aws, name) = (aws().await, unique("orders"));
    let queue = aws.queue(&name, &[]).await;
    let mut batch = orders(2, &name);
    for outgoing in &mut batch {
        outgoing.body = vec![b'x'; 1_048_576 - 400].into();
        outgoing.headers.push(("long".to_owned(), "v".repeat(400)));
    }
    for answer in publish(&sqs(), &batch).await {
        assert!(matches!(answer, Err(PublishError::Reject { .. })), "{answer:?}");
    }
    assert_eq!(aws.drain(&queue).await.len(), 0);
}

#[tokio::test]
async fn a_queue_is_named_by_its_url_as_well() {
    let (aws, name) = (aws().await, unique("orders"));
    let queue = aws.queue(&name, &[]).await;
    publish(&sqs(), &orders(1, &queue)).await.remove(0).unwrap();
    assert_eq!(aws.drain(&queue).await.len(), 1);
    let gone = queue.replace(&name, "missing");
    let answer = publish(&sqs(), &orders(1, &gone)).await.remove(0);
    let Err(PublishError::Retry { source, .. }) = answer else { panic!("{answer:?}") };
    assert!(source.to_string().ends_with("aws sqs create-queue --queue-name missing"), "{source}");
}

#[tokio::test]
async fn a_topic_is_named_by_its_arn_as_well() {
    let (aws, name) = (aws().await, unique("orders"));
    let (topic, queue) = (aws.topic(&name).await, aws.queue(&name, &[]).await);
    aws.subscribe(&topic, &queue, &[("RawMessageDelivery", "true")]).await;
    let sns = SnsTransport::new(options(&shared::url(Kind::Sqs))).unwrap();
    publish(&sns, &orders(1, &topic)).await.remove(0).unwrap();
    assert_eq!(aws.drain(&queue).await.len(), 1);
    let answer = publish(&sns, &orders(1, "missing.fifo")).await.remove(0);
    let Err(PublishError::Retry { source, .. }) = answer else { panic!("{answer:?}") };
    let command = "aws sns create-topic --name missing.fifo --attributes FifoTopic=true";
    assert!(source.to_string().ends_with(command), "{source}");
}

/// The list of topics has pages of a hundred.
#[tokio::test]
async fn a_topic_is_found_among_many() {
    let (aws, prefix) = (aws().await, unique("many"));
    for number in 0..250 {
        aws.topic(&format!("{prefix}-{number}")).await;
    }
    let (name, sns) = (format!("{prefix}-249"), SnsTransport::new(options(&shared::url(Kind::Sqs))).unwrap());
    publish(&sns, &orders(1, &name)).await.remove(0).unwrap();
}

#[tokio::test]
async fn a_queue_that_was_deleted_and_made_again_is_found_again() {
    let (aws, name, sqs) = (aws().await, unique("orders"), sqs());
    let queue = aws.queue(&name, &[]).await;
    publish(&sqs, &orders(1, &name)).await.remove(0).unwrap();
    aws.sqs.delete_queue().queue_url(&queue).send().await.unwrap();
    let answer = publish(&sqs, &orders(1, &name)).await.remove(0);
    assert!(matches!(answer, Err(PublishError::Retry { .. })), "{answer:?}");
    let queue = aws.queue(&name, &[]).await;
    publish(&sqs, &orders(1, &name)).await.remove(0).unwrap();
    assert_eq!(aws.drain(&queue).await.len(), 1);
}

#[tokio::test]
async fn what_names_no_queue_is_refused_for_good() {
    let batch = [order(1, ""), order(2, "no queue"), order(3, "a.b")];
    for answer in publish(&sqs(), &batch).await {
        assert!(matches!(answer, Err(PublishError::Reject { .. })), "{answer:?}");
    }
}

/// moto refuses the whole request for it, and does not say which one it was.
#[tokio::test]
async fn one_that_spoils_its_request_is_found_and_its_neighbours_arrive() {
    let (aws, name) = (aws().await, unique("orders"));
    let queue = aws.queue(&name, &[(QueueAttributeName::MaximumMessageSize, "1024")]).await;
    let mut batch = orders(10, &name);
    batch[4].body = vec![b'x'; 2_000].into();
    let answers = publish(&sqs(), &batch).await;
    for (number, answer) in answers.iter().enumerate() {
        match number {
            4 => assert!(matches!(answer, Err(PublishError::Reject { .. })), "{answer:?}"),
            _ => assert!(answer.is_ok(), "{number}: {answer:?}"),
        }
    }
    assert_eq!(aws.drain(&queue).await.len(), 9);
}

/// What fails in the middle of a group keeps what is behind it from being sent; other groups go on.
#[tokio::test]
async fn a_group_of_fifo_halts_at_its_first_failure() {
    let (aws, name) = (aws().await, unique("orders") + ".fifo");
    let queue = aws.queue(&name, &[(QueueAttributeName::MaximumMessageSize, "1024")]).await;
    let mut batch: Vec<_> =
        (0..4).flat_map(|number| [keyed(number, "a", &name), keyed(number, "b", &name)]).collect();
    batch[2].body = vec![b'x'; 2_000].into(); // the second of a; the server says so
    let answers = publish(&sqs(), &batch).await;
    assert!(matches!(answers[2], Err(PublishError::Reject { .. })), "{answers:?}");
    for behind in [4, 6] {
        assert!(matches!(answers[behind], Err(PublishError::Retry { .. })), "{answers:?}");
    }
    assert!([0, 1, 3, 5, 7].into_iter().all(|good| answers[good].is_ok()), "{answers:?}");

    batch[2].body = "1".into(); // as somebody mended it
    let again: Vec<_> = [2, 4, 6].into_iter().map(|number: usize| batch[number].clone()).collect();
    assert!(publish(&sqs(), &again).await.iter().all(Result::is_ok));
    let received = aws.drain(&queue).await;
    for key in ["a", "b"] {
        let of_key: Vec<_> = received.iter().filter(|one| one.key.as_deref() == Some(key)).cloned().collect();
        assert_eq!(bodies(&of_key), ["0", "1", "2", "3"], "{key}");
    }
}

/// The same where it was never sent.
#[tokio::test]
async fn a_group_of_fifo_halts_at_what_is_too_large() {
    let (aws, name) = (aws().await, unique("orders") + ".fifo");
    let queue = aws.queue(&name, &[]).await;
    let mut batch: Vec<_> = (0..3).map(|number| keyed(number, "a", &name)).collect();
    batch[1].body = vec![b'x'; 2_000_000].into();
    let answers = publish(&sqs(), &batch).await;
    assert!(answers[0].is_ok(), "{answers:?}");
    assert!(matches!(answers[1], Err(PublishError::Reject { .. })), "{answers:?}");
    assert!(matches!(answers[2], Err(PublishError::Retry { .. })), "{answers:?}");
    assert_eq!(bodies(&aws.drain(&queue).await), ["0"]);
}

#[tokio::test]
async fn what_comes_again_to_fifo_is_accepted_and_there_once() {
    let (aws, name) = (aws().await, unique("orders") + ".fifo");
    let queue = aws.queue(&name, &[]).await;
    let batch: Vec<_> = (0..12).map(|number| keyed(number, &format!("key {number}"), &name)).collect();
    for _ in 0..3 {
        assert!(publish(&sqs(), &batch).await.iter().all(Result::is_ok));
    }
    assert_eq!(aws.drain(&queue).await.len(), 12);
}

/// Whatever characters there are in payloads and headers, on both ways.
#[tokio::test]
async fn every_character_arrives() {
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

/// No connection ends, and no answer comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_is_unknown_after_a_while() {
    let (url, name) = (shared::url(Kind::Sqs), unique("orders"));
    Aws::at(&url).await.queue(&name, &[]).await;
    let (proxy, through) = FaultProxy::before_url(&url).await;
    let impatient = options(&through).with_answer_timeout(Duration::from_secs(2));
    let impatient = SqsTransport::new(impatient).unwrap();
    soon(async { while impatient.publish(&orders(1, &name)).await.remove(0).is_err() {} }).await;
    proxy.set(Fault::BlackHole);
    for answer in publish(&impatient, &orders(3, &name)).await {
        assert!(matches!(answer, Err(PublishError::Unknown { .. })), "{answer:?}");
    }
}

/// Without TLS there is no connection, and nothing was sent.
#[tokio::test]
async fn tls_that_is_not_answered_or_not_trusted_is_down() {
    let plain = shared::url(Kind::Sqs).replace("http://", "https://");
    let mine = std::fs::read_to_string(Certificate::new().certificate()).unwrap();
    let transport = SqsTransport::new(options(&plain).with_root_certificates(mine)).unwrap();
    for answer in publish(&transport, &orders(2, "orders")).await {
        assert!(matches!(answer, Err(PublishError::Down { .. })), "{answer:?}");
    }

    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    let impatient = options(&url).with_connect_timeout(Duration::from_millis(100));
    let answer = publish(&SqsTransport::new(impatient).unwrap(), &orders(1, "orders")).await.remove(0);
    assert!(matches!(answer, Err(PublishError::Down { .. })), "{answer:?}");
}

#[tokio::test]
async fn secrets_are_never_shown() {
    let transport = sqs();
    let answers = publish(&transport, &orders(1, "missing")).await;
    let shown = format!("{transport:?} {:?} {answers:?}", options("http://127.0.0.1:1"));
    assert!(!shown.contains("s3cret"), "{shown}");
    let error = SqsTransport::new(AwsOptions::new().with_endpoint_url("http://ann:s3cret@host")).unwrap_err();
    assert!(!error.to_string().contains("s3cret"), "{error}");
}
