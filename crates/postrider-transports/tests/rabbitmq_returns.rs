//! An unroutable message is never reported as accepted; with controls that show how other publishers lose messages.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/rabbit.rs"]
mod rabbit;

use lapin::{BasicProperties, Channel, Confirmation, PublisherConfirm, options::BasicPublishOptions};
use postrider_core::{Format, Message, MessageId, Outgoing, PublishError, Transport};
use postrider_testkit::{Kind, shared};
use postrider_transports::rabbitmq::RabbitMqTransport;
use rabbit::{Rabbit, unique};
use std::time::SystemTime;

const BATCH: usize = 100;

fn written(destination: &str, number: usize) -> Outgoing {
    let now = SystemTime::now();
    let message = Message::builder("orders").event_type("order.placed").json(&number).build().unwrap();
    Outgoing::write(&message, MessageId::at(now), now, "/shop", destination.to_owned(), Format::Binary)
        .unwrap()
}

/// Whether a message of a mixed batch is unroutable, in runs of various lengths.
fn is_unroutable(round: usize, number: usize) -> bool {
    (number * 7 + round * 13).is_multiple_of(3 + round % 5)
}

/// Two hundred mixed batches, two at a time: each message has its own result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unroutable_message_is_never_accepted() {
    let url = shared::url(Kind::RabbitMq);
    let rabbit = Rabbit::at(&url).await;
    let (queue, unbound) = (rabbit.queue().await, unique("unbound"));
    let transport = RabbitMqTransport::new(url).unwrap();
    let (mut unroutable, mut accepted) = (0, Vec::new());
    for round in 0..100 {
        let batch = |round: usize| -> Vec<Outgoing> {
            let to = |number| if is_unroutable(round, number) { &unbound } else { &queue };
            (0..BATCH).map(|number| written(to(number), number)).collect()
        };
        let (one, other) = (batch(2 * round), batch(2 * round + 1));
        let (ones, others) = tokio::join!(transport.publish(&one), transport.publish(&other));
        for (sent, result) in one.iter().chain(&other).zip(ones.into_iter().chain(others)) {
            if sent.destination == unbound {
                unroutable += 1;
                assert!(matches!(&result, Err(error) if error.name() == "Unroutable"), "{result:?}");
                let Err(PublishError::AddressUnavailable { source }) = result else { panic!("{result:?}") };
                let text = source.to_string();
                assert!(text.contains("unroutable") && text.contains(&unbound), "{text}");
            } else {
                assert!(result.is_ok(), "{result:?}");
                accepted.push(sent.id.to_string());
            }
        }
    }
    let mut arrived: Vec<_> =
        rabbit.take_all(&queue, accepted.len()).await.iter().map(|one| one.identity().to_owned()).collect();
    arrived.sort_unstable();
    accepted.sort_unstable();
    assert_eq!(arrived, accepted);
    println!("{unroutable} unroutable messages, none accepted");
}

/// Publishes as many applications do, and returns which messages a naive publisher takes for accepted: those whose own confirm is an ack
/// without a returned message.
async fn publish_naively(channel: &Channel, mandatory: bool, keys: &[&str]) -> Vec<bool> {
    let options = BasicPublishOptions { mandatory, ..BasicPublishOptions::default() };
    let mut confirms: Vec<PublisherConfirm> = Vec::new();
    for key in keys {
        let properties = BasicProperties::default().with_delivery_mode(2);
        let publishing = channel.basic_publish("".into(), (*key).into(), options, b"x", properties);
        confirms.push(publishing.await.unwrap());
    }
    let mut accepted = Vec::new();
    for confirm in confirms {
        accepted.push(matches!(confirm.await.unwrap(), Confirmation::Ack(None)));
    }
    accepted
}

/// Control: a publisher that trusts the client's pairing of returns and confirms loses messages. It depends on how the broker batches its
/// confirms, so the test repeats until it happens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publisher_that_pairs_returns_with_confirms_loses_messages() {
    let rabbit = Rabbit::at(&shared::url(Kind::RabbitMq)).await;
    let (queue, unbound) = (rabbit.queue().await, unique("unbound"));
    for round in 0..2_000 {
        let keys: Vec<_> = (0..BATCH)
            .map(|number| if is_unroutable(round, number) { unbound.as_str() } else { queue.as_str() })
            .collect();
        let channel = rabbit.confirming().await;
        let accepted = publish_naively(&channel, true, &keys).await;
        let lost =
            keys.iter().zip(&accepted).filter(|(key, accepted)| **key == unbound && **accepted).count();
        if lost > 0 {
            println!("round {round}: {lost} unroutable messages of {BATCH} were taken for accepted");
            return;
        }
        channel.close(200, "done".into()).await.unwrap();
    }
    panic!("the client paired all returns of 2,000 batches correctly: is collecting them still needed?");
}

/// Control: without `mandatory`, every unroutable message is confirmed.
#[tokio::test]
async fn publisher_without_mandatory_loses_messages() {
    let rabbit = Rabbit::at(&shared::url(Kind::RabbitMq)).await;
    let unbound = unique("unbound");
    let channel = rabbit.confirming().await;
    assert_eq!(publish_naively(&channel, false, &[unbound.as_str(); BATCH]).await, [true; BATCH]);
    let channel = rabbit.confirming().await;
    let mandatory = publish_naively(&channel, true, &[unbound.as_str()]).await;
    assert_eq!(mandatory, [false], "a single mandatory message is returned");
}

/// Control: without confirms, the client reports success for every message at once.
#[tokio::test]
async fn publisher_without_confirms_gets_no_result() {
    let rabbit = Rabbit::at(&shared::url(Kind::RabbitMq)).await;
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let unbound = unique("unbound");
    let publishing = rabbit.channel.basic_publish(
        "".into(),
        unbound.as_str().into(),
        options,
        b"x",
        BasicProperties::default(),
    );
    assert_eq!(publishing.await.unwrap().await.unwrap(), Confirmation::NotRequested);
}
