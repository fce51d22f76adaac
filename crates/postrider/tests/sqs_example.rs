//! The example for SQS does what it says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../../examples/consume_sqs.rs"]
mod consume_sqs;
#[path = "../../../examples/relay_sqs.rs"]
mod relay_sqs;

use postrider_testkit::{Kind, shared};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

async fn told(url: &str, queue: &str) -> String {
    let mut out = Vec::new();
    relay_sqs::run(url, queue, &mut out).await.unwrap();
    String::from_utf8(out).unwrap()
}

/// Asks SQS without a client, in the older of its protocols.
async fn ask(url: &str, form: &str) -> String {
    let server = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(server).await.unwrap();
    let credential =
        "Credential=test/20260101/eu-central-1/sqs/aws4_request, SignedHeaders=host, Signature=none";
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\nAuthorization: AWS4-HMAC-SHA256 {credential}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
        form.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    answer
}

#[tokio::test]
async fn the_sqs_example_publishes_where_there_is_a_queue() {
    let url = shared::url(Kind::Sqs);
    let queue = format!("example-{}", postrider::MessageId::at(std::time::SystemTime::now()));
    assert_eq!(
        told(&url, &queue).await,
        "problem: no_queue, there is no such queue; every message is refused\n0 published, 2 to be sent again\n"
    );
    ask(&url, &format!("Action=CreateQueue&QueueName={queue}")).await;
    assert_eq!(
        told(&url, &queue).await,
        "warning: no_redrive, it has no dead-letter queue: what its readers fail at comes again until it is dropped for \
         its age\n2 published, 0 to be sent again\n"
    );
    let count = "AttributeName.1=ApproximateNumberOfMessages";
    let answer =
        ask(&url, &format!("Action=GetQueueAttributes&QueueUrl={url}/123456789012/{queue}&{count}")).await;
    assert!(answer.contains("<Value>2</Value>"), "{answer}");
}

#[tokio::test]
async fn the_consumer_receives_what_the_relay_has_published() {
    let url = shared::url(Kind::Sqs);
    let queue = format!("example-{}", postrider::MessageId::at(std::time::SystemTime::now()));
    ask(&url, &format!("Action=CreateQueue&QueueName={queue}")).await;
    told(&url, &queue).await;
    let mut out = Vec::new();
    consume_sqs::run(&url, &queue, &mut out).await.unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(out.ends_with("2 processed, 0 duplicates, 0 parked, 0 failed\n"), "{out}");
}
