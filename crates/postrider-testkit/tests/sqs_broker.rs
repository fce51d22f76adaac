//! SQS, emulated by moto: the shared one, and a private one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider_testkit::{Kind, broker::Sqs, shared};
use support::{Talk, address, is_down};

async fn ask(url: &str, form: &str) -> String {
    let mut talk = Talk::with(url).await;
    let credential =
        "Credential=test/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=none";
    talk.say(format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: AWS4-HMAC-SHA256 {credential}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
        address(url),
        form.len()
    ))
    .await;
    let answer = talk.rest().await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    answer
}

async fn takes_messages(url: &str) {
    let queue = format!("harness-{}", uuid::Uuid::now_v7());
    let answer = ask(url, &format!("Action=CreateQueue&QueueName={queue}")).await;
    let queue = answer.split("<QueueUrl>").nth(1).and_then(|rest| rest.split("</QueueUrl>").next()).unwrap();
    ask(url, &format!("Action=SendMessage&QueueUrl={queue}&MessageBody=hello")).await;
    let answer = ask(url, &format!("Action=ReceiveMessage&QueueUrl={queue}")).await;
    assert!(answer.contains("<Body>hello</Body>"), "{answer}");
}

#[tokio::test]
async fn the_shared_server_accepts_messages() {
    takes_messages(&shared::url(Kind::Sqs)).await;
}

#[tokio::test]
async fn a_private_server_can_be_stopped() {
    let mut sqs = Sqs::start().await;
    let url = sqs.url().to_owned();
    takes_messages(&url).await;
    sqs.stop();
    assert!(is_down(&url).await);
}
