//! Controls: how others publish to SNS, and which messages they lose that this transport does not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/sqs.rs"]
mod server;
mod support;

use aws_sdk_sns::types::PublishBatchRequestEntry;
use aws_sdk_sqs::types::QueueAttributeName;
use postrider_core::{Outgoing, PublishError};
use postrider_testkit::{Kind, shared};
use postrider_transports::sns::SnsTransport;
use server::{Aws, options, unique};
use support::{orders, publish, soon};

/// The usual publisher: treats a successful request as success of all its messages.
async fn naive_publish(aws: &Aws, topic: &str, batch: &[Outgoing]) -> bool {
    let entry = |(number, outgoing): (usize, &Outgoing)| {
        let body = String::from_utf8(outgoing.body.to_vec()).unwrap();
        PublishBatchRequestEntry::builder().id(number.to_string()).message(body).build().unwrap()
    };
    let entries = batch.iter().enumerate().map(entry).collect();
    let request = aws.sns.publish_batch().topic_arn(topic).set_publish_batch_request_entries(Some(entries));
    soon(request.send()).await.is_ok()
}

/// A topic, and a subscribed queue with this size limit.
async fn topic(aws: &Aws, bytes: &str) -> (String, String) {
    let name = unique("orders");
    let queue = aws.queue(&name, &[(QueueAttributeName::MaximumMessageSize, bytes)]).await;
    let topic = aws.topic(&name).await;
    aws.subscribe(&topic, &queue, &[("RawMessageDelivery", "true")]).await;
    (topic, queue)
}

/// moto lists the oversized message as failed, and responds with 200.
#[tokio::test]
async fn control_status_200_hides_refused_messages() {
    let aws = Aws::at(&shared::url(Kind::Sqs)).await;
    let (topic, queue) = topic(&aws, "1048576").await;
    let mut batch = orders(3, &topic);
    batch[1].body = vec![b'x'; 262_145].into();
    assert!(naive_publish(&aws, &topic, &batch).await, "the naive publisher settles all three");
    assert_eq!(aws.drain(&queue).await.len(), 2, "one message is lost");
    let answers = publish(&SnsTransport::new(options(&shared::url(Kind::Sqs))).unwrap(), &batch).await;
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    assert!(matches!(answers[1], Err(PublishError::Reject { .. })), "{answers:?}");
}

/// moto fails to deliver one message to the queue, responds with 200, and lists that message nowhere.
#[tokio::test]
async fn control_status_200_hides_unlisted_messages() {
    let aws = Aws::at(&shared::url(Kind::Sqs)).await;
    let (topic, queue) = topic(&aws, "1024").await;
    let mut batch = orders(3, &topic);
    batch[1].body = vec![b'x'; 2_000].into();
    assert!(naive_publish(&aws, &topic, &batch).await, "the naive publisher settles all three");
    assert_eq!(aws.drain(&queue).await.len(), 2, "one message is lost");
    let answers = publish(&SnsTransport::new(options(&shared::url(Kind::Sqs))).unwrap(), &batch).await;
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    assert!(matches!(answers[1], Err(PublishError::Unknown { .. })), "{answers:?}");
}
