//! The broker examples on SQS: without a queue, and with one.

#![cfg(feature = "sqs")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider_testkit::{Kind, shared};
use support::run_as_printed;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Creates a queue without a client, in the older of SQS's protocols.
async fn create_queue(url: &str, queue: &str) {
    let form = format!("Action=CreateQueue&QueueName={queue}");
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
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
}

#[tokio::test]
async fn relay_publishes_where_there_is_a_queue_and_consumer_processes_it() {
    let url = shared::url(Kind::Sqs);
    let queue = format!("example-{}", postrider::MessageId::at(std::time::SystemTime::now()));
    let printed = run_as_printed("sqs", "relay_broker", &url, &queue).await;
    assert!(printed.starts_with("problem no_queue: "), "{printed}");
    assert!(printed.ends_with("0 published, 2 to be retried, 0 dead\n"), "{printed}");
    create_queue(&url, &queue).await;
    let printed = run_as_printed("sqs", "relay_broker", &url, &queue).await;
    assert!(printed.starts_with("warning no_redrive: "), "{printed}");
    assert!(printed.ends_with("2 published, 0 to be retried, 0 dead\n"), "{printed}");
    let printed = run_as_printed("sqs", "consume_broker", &url, &queue).await;
    assert!(printed.ends_with("2 processed, 0 duplicates\n"), "{printed}");
}
