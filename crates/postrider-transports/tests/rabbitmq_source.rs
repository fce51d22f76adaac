//! Receiving from RabbitMQ passes the suite, and what is special about it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/rabbit.rs"]
mod rabbit;
#[path = "support/rabbitmq_source.rs"]
mod rabbitmq_source;
mod support;

use futures_util::future::join_all;
use lapin::{
    BasicProperties,
    options::{BasicPublishOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable},
};
use postrider_core::{Answer, Incoming, Parcel, QueueName, Source, SourceError, Ticket};
use postrider_testkit::{
    Kind,
    proxy::{Fault, FaultProxy},
    shared,
    source::{run, trouble},
};
use postrider_transports::rabbitmq::{RabbitMqSource, RabbitMqSourceBuilder, RabbitMqTransport};
use rabbit::{Rabbit, durable, table, text, unique};
use rabbitmq_source::{RabbitSourceFixture, quorum};
use std::time::Duration;
use support::{orders, send, soon};

mod quorum_queues {
    use super::*;
    async fn fixture() -> RabbitSourceFixture {
        RabbitSourceFixture::quorum()
    }
    postrider_testkit::source_suite!(fixture);
}

/// They count nothing.
mod classic_queues {
    use super::*;
    async fn fixture() -> RabbitSourceFixture {
        RabbitSourceFixture::classic()
    }
    postrider_testkit::source_suite!(fixture);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_loses_nothing_of_a_quorum_queue() {
    run(RabbitSourceFixture::own(true), trouble::a_crash_loses_nothing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_loses_nothing_of_a_classic_queue() {
    run(RabbitSourceFixture::own(false), trouble::a_crash_loses_nothing).await;
}

fn url() -> String {
    shared::url(Kind::RabbitMq)
}

async fn queue_with(arguments: FieldTable) -> String {
    let queue = unique("orders");
    Rabbit::at(&url()).await.declare(&queue, durable(), arguments).await;
    queue
}

fn source(queue: &str) -> RabbitMqSource {
    RabbitMqSource::builder(url(), queue).with_quorum(true).build().unwrap()
}

async fn put(queue: &str, count: usize) {
    send(&RabbitMqTransport::new(url()).unwrap(), orders(count, queue)).await;
}

/// So many, in hand at once.
async fn take(source: &RabbitMqSource, count: usize) -> Vec<Parcel> {
    let mut taken = Vec::new();
    while taken.len() < count {
        taken.extend(soon(source.receive(count - taken.len())).await.unwrap());
    }
    taken
}

async fn tell(source: &RabbitMqSource, parcels: &[Parcel], answer: Answer) -> Vec<Result<(), SourceError>> {
    let answers: Vec<_> = parcels.iter().map(|parcel| (parcel.ticket.clone(), answer)).collect();
    soon(source.answer(&answers)).await
}

fn all_stale(told: &[Result<(), SourceError>]) -> bool {
    told.iter().all(|told| matches!(told, Err(SourceError::Stale { .. })))
}

#[tokio::test]
async fn no_more_is_fetched_than_may_be_in_hand() {
    let queue = queue_with(quorum()).await;
    put(&queue, 10).await;
    let modest = RabbitMqSource::builder(url(), &queue).with_prefetch(3).build().unwrap();
    let had = take(&modest, 3).await;
    // If it had fetched more, the other would wait for ever.
    let rest = take(&source(&queue), 7).await;
    assert_eq!((had.len(), rest.len()), (3, 7));
}

/// Handlers end in any order and at the same moment. If one answer went out under a tag that another had answered for, the broker
/// would close the channel, and what is in hand would come again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_from_many_hands_do_not_run_into_each_other() {
    let queue = queue_with(quorum()).await;
    put(&queue, 200).await;
    let source = source(&queue);
    let parcels = take(&source, 200).await;
    let mut hands: Vec<Vec<(Ticket, Answer)>> = vec![Vec::new(); 16];
    for (number, parcel) in parcels.iter().enumerate() {
        hands[(number * 7) % 16].push((parcel.ticket.clone(), Answer::Done));
    }
    let told = soon(join_all(hands.iter().map(|answers| source.answer(answers)))).await;
    assert!(told.iter().flatten().all(Result::is_ok));
    put(&queue, 1).await;
    assert_eq!(take(&source, 1).await[0].deliveries, Some(1));
    source.close().await;
    assert_eq!(take(&self::source(&queue), 1).await[0].deliveries, Some(2), "only the last one is left");
}

#[tokio::test]
async fn tickets_of_a_channel_that_has_ended_are_stale() {
    let queue = queue_with(quorum()).await;
    let (proxy, through) = FaultProxy::before_url(&url()).await;
    let source = RabbitMqSource::builder(through, &queue).with_quorum(true).build().unwrap();
    put(&queue, 2).await;
    let before = take(&source, 2).await;
    proxy.cut();
    // The loss is told once, and then it is over.
    assert!(matches!(soon(source.receive(1)).await, Err(SourceError::Down { .. })));
    let after = take(&source, 2).await;
    assert!(all_stale(&tell(&source, &before, Answer::Done).await));
    assert!(all_stale(&tell(&source, &before, Answer::Refuse).await));
    let tickets: Vec<_> = before.iter().map(|parcel| parcel.ticket.clone()).collect();
    assert!(all_stale(&source.extend(&tickets).await));
    assert!(after.iter().all(|parcel| parcel.deliveries == Some(2)));
    assert!(tell(&source, &after, Answer::Done).await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_ticket_of_another_source_is_stale() {
    let queue = queue_with(quorum()).await;
    put(&queue, 2).await;
    let source = source(&queue);
    let parcels = take(&source, 2).await;
    let other = self::source(&queue_with(quorum()).await);
    assert!(all_stale(&tell(&other, &parcels, Answer::Done).await));
    assert!(tell(&source, &parcels, Answer::Done).await.iter().all(Result::is_ok));
}

/// A network that takes answers and carries them nowhere.
#[tokio::test]
async fn an_answer_that_nobody_hears_is_told() {
    let queue = queue_with(quorum()).await;
    let (proxy, through) = FaultProxy::before_url(&url()).await;
    let source = RabbitMqSource::builder(through, &queue);
    let source = source.with_connect_timeout(Duration::from_secs(1)).build().unwrap();
    put(&queue, 1).await;
    let parcels = take(&source, 1).await;
    proxy.set(Fault::Stall);
    assert!(all_stale(&tell(&source, &parcels, Answer::Done).await));
}

#[tokio::test]
async fn a_queue_that_is_deleted_is_down_until_it_is_there_again() {
    let queue = queue_with(quorum()).await;
    let rabbit = Rabbit::at(&url()).await;
    let source = source(&queue);
    put(&queue, 1).await;
    let parcels = take(&source, 1).await;
    rabbit.channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
    assert!(matches!(soon(source.receive(1)).await, Err(SourceError::Down { .. })));
    let error = soon(source.receive(1)).await.unwrap_err().to_string();
    assert!(error.contains("there is no queue") && error.contains(&queue), "{error}");
    assert!(all_stale(&tell(&source, &parcels, Answer::Done).await));
    rabbit.declare(&queue, durable(), quorum()).await;
    put(&queue, 1).await;
    assert_eq!(take(&source, 1).await.len(), 1);
}

#[tokio::test]
async fn what_is_refused_goes_to_the_dead_letter_exchange() {
    let rabbit = Rabbit::at(&url()).await;
    let dead = rabbit.queue().await;
    let to_dead = [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text(&dead))];
    let queue = queue_with(table(to_dead)).await;
    put(&queue, 1).await;
    let source = source(&queue);
    tell(&source, &take(&source, 1).await, Answer::Refuse).await;
    let letters = take(&self::source(&dead), 1).await;
    assert!(letters[0].incoming.read(&QueueName::new("orders").unwrap()).is_ok(), "{letters:?}");
    // The history that the broker adds is no text.
    assert!(letters[0].incoming.headers.iter().all(|(name, _)| name != "x-death"), "{letters:?}");
}

#[tokio::test]
async fn headers_of_others_are_read_as_far_as_they_are_text() {
    let queue = queue_with(quorum()).await;
    let headers = table([
        ("cloudEvents:specversion", text("1.0")),
        ("cloudEvents_id", text("A-1")),
        ("ce-source", text("/shop")),
        ("x_type", text("order.placed")),
        ("count", AMQPValue::LongInt(-3)),
        ("sure", AMQPValue::Boolean(true)),
        ("nothing", AMQPValue::Void),
        ("at", AMQPValue::Timestamp(17)),
        ("nested", AMQPValue::FieldTable(FieldTable::default())),
        ("latin", AMQPValue::LongString(vec![b'a', 0xe4].into())),
        // Before the first failure it is the sender who says so.
        ("x-delivery-count", AMQPValue::LongLongInt(41)),
    ]);
    let channel = Rabbit::at(&url()).await.confirming().await;
    let properties = BasicProperties::default().with_headers(headers).with_content_type("text/plain".into());
    let options = BasicPublishOptions::default();
    let sent = channel.basic_publish("".into(), queue.as_str().into(), options, b"17", properties).await;
    sent.unwrap().await.unwrap();
    let source = RabbitMqSource::builder(url(), &queue).with_quorum(true).with_prefix("x_").build().unwrap();
    let parcel = take(&source, 1).await.remove(0);
    assert_eq!(parcel.deliveries, Some(1));
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let Incoming { content_type, mut attributes, mut headers, .. } = parcel.incoming.clone();
    attributes.sort_unstable();
    headers.sort_unstable();
    let wanted = [("id", "A-1"), ("source", "/shop"), ("specversion", "1.0"), ("type", "order.placed")];
    assert_eq!((content_type.as_deref(), attributes), (Some("text/plain"), pairs(&wanted)));
    assert_eq!(headers, pairs(&[("count", "-3"), ("latin", "a\u{fffd}"), ("sure", "true")]));
    assert!(parcel.incoming.read(&QueueName::new("orders").unwrap()).is_ok());
    tell(&source, &[parcel], Answer::AT_ONCE).await;
    assert_eq!(take(&source, 1).await[0].deliveries, Some(2));
}

#[test]
fn settings_that_make_no_sense_are_refused_and_say_no_password() {
    let at = "amqp://relay:secret@rabbit.example/shop";
    let refused = |builder: RabbitMqSourceBuilder| builder.build().unwrap_err().to_string();
    let of = |url: &str, queue: &str| RabbitMqSource::builder(url, queue);
    for (builder, field) in [
        (of("http://relay:secret@rabbit.example", "orders"), "url: "),
        (of(at, ""), "queue: "),
        (of(at, &"q".repeat(256)), "queue: "),
        (of(at, "orders").with_prefetch(0), "prefetch: "),
        (of(at, "orders").with_prefix(""), "prefix: "),
        (of(at, "orders").with_connect_timeout(Duration::ZERO), "connect_timeout: "),
    ] {
        let shown = format!("{builder:?} {}", refused(builder.clone()));
        assert!(shown.contains(field) && !shown.contains("secret"), "{shown}");
    }
    assert!(!format!("{:?}", of(at, "orders").build().unwrap()).contains("secret"));
}

#[tokio::test]
async fn redelivery_ends_with_the_time_to_live() {
    let limited = queue_with(table([("x-message-ttl", AMQPValue::LongLongInt(60_000))])).await;
    assert_eq!(source(&limited).redelivers().await.unwrap().within, Some(Duration::from_secs(60)));
    let mut arguments = quorum();
    arguments.insert("x-message-ttl".into(), AMQPValue::LongLongInt(60_000));
    let limited = queue_with(arguments).await;
    assert_eq!(source(&limited).redelivers().await.unwrap().within, Some(Duration::from_secs(60)));
    assert_eq!(source(&queue_with(quorum()).await).redelivers().await.unwrap().within, None);
    assert!(source(&unique("nowhere")).redelivers().await.is_err());
}
