//! What no queue wants is never taken for accepted; and how that goes wrong.

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

/// Whether a message of a mixed batch has nowhere to go. Runs of various lengths, as they come.
fn is_unroutable(round: usize, number: usize) -> bool {
    (number * 7 + round * 13).is_multiple_of(3 + round % 5)
}

/// Two hundred mixed batches, some at one moment: each message has its own answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unroutable_message_is_never_accepted() {
    let url = shared::url(Kind::RabbitMq);
    let rabbit = Rabbit::at(&url).await;
    let (queue, nobody) = (rabbit.queue().await, unique("nobody"));
    let transport = RabbitMqTransport::new(url).unwrap();
    let (mut unroutable, mut accepted) = (0, Vec::new());
    for round in 0..100 {
        let batch = |round: usize| -> Vec<Outgoing> {
            let to = |number| if is_unroutable(round, number) { &nobody } else { &queue };
            (0..BATCH).map(|number| written(to(number), number)).collect()
        };
        let (one, other) = (batch(2 * round), batch(2 * round + 1));
        let (ones, others) = tokio::join!(transport.publish(&one), transport.publish(&other));
        for (sent, answer) in one.iter().chain(&other).zip(ones.into_iter().chain(others)) {
            if sent.destination == nobody {
                unroutable += 1;
                assert!(matches!(&answer, Err(error) if error.name() == "Unroutable"), "{answer:?}");
                let Err(PublishError::Retry { source, .. }) = answer else { panic!("{answer:?}") };
                let text = source.to_string();
                assert!(text.contains("unroutable") && text.contains(&nobody), "{text}");
            } else {
                assert!(answer.is_ok(), "{answer:?}");
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

/// Publishes as many do, and says which messages a naive reading takes for accepted: those whose own confirm is an ack without a
/// returned message.
async fn naively(channel: &Channel, mandatory: bool, keys: &[&str]) -> Vec<bool> {
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

/// The control: whoever trusts the client's pairing of returns and confirms loses messages. It depends on how the broker gathers its
/// confirms, so it is tried until it shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_that_trusts_the_pairing_loses_messages() {
    let rabbit = Rabbit::at(&shared::url(Kind::RabbitMq)).await;
    let (queue, nobody) = (rabbit.queue().await, unique("nobody"));
    for round in 0..2_000 {
        let keys: Vec<_> = (0..BATCH)
            .map(|number| if is_unroutable(round, number) { nobody.as_str() } else { queue.as_str() })
            .collect();
        let channel = rabbit.confirming().await;
        let accepted = naively(&channel, true, &keys).await;
        let lost = keys.iter().zip(&accepted).filter(|(key, accepted)| **key == nobody && **accepted).count();
        if lost > 0 {
            println!("round {round}: {lost} unroutable messages of {BATCH} were taken for accepted");
            return;
        }
        channel.close(200, "done".into()).await.unwrap();
    }
    panic!("two thousand batches, and the client paired them all: is the collecting still needed?");
}

/// The control: without `mandatory`, all that is unroutable is confirmed.
#[tokio::test]
async fn a_publisher_that_does_not_insist_loses_messages() {
    let rabbit = Rabbit::at(&shared::url(Kind::RabbitMq)).await;
    let nobody = unique("nobody");
    let channel = rabbit.confirming().await;
    assert_eq!(naively(&channel, false, &[nobody.as_str(); BATCH]).await, [true; BATCH]);
    let channel = rabbit.confirming().await;
    let insists = naively(&channel, true, &[nobody.as_str()]).await;
    assert_eq!(insists, [false], "alone, and mandatory, it is told");
}

/// The control: without confirms, the client says yes to everything, at once.
#[tokio::test]
async fn a_publisher_without_confirms_hears_nothing() {
    let rabbit = Rabbit::at(&shared::url(Kind::RabbitMq)).await;
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let nobody = unique("nobody");
    let publishing = rabbit.channel.basic_publish(
        "".into(),
        nobody.as_str().into(),
        options,
        b"x",
        BasicProperties::default(),
    );
    assert_eq!(publishing.await.unwrap().await.unwrap(), Confirmation::NotRequested);
}
