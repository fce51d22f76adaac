//! Receiving from NATS JetStream passes the suite, and what is special about it.

#![cfg(feature = "nats")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/nats_source.rs"]
mod nats_source;
#[path = "support/nats.rs"]
mod server;
mod support;

use async_nats::{
    HeaderMap,
    jetstream::consumer::{AckPolicy, pull},
};
use nats_source::{DURABLE, NatsSourceFixture, builder, place, put, stream_of};
use postrider_core::{Answer, Parcel, QueueName, Source, SourceError};
use postrider_testkit::{
    Kind,
    proxy::{Fault, FaultProxy},
    shared,
};
use postrider_transports::nats::NatsSource;
use server::{context, stream};
use std::time::Duration;
use support::{orders, soon};

mod on_a_shared_server {
    use super::*;
    async fn fixture() -> NatsSourceFixture {
        NatsSourceFixture::shared()
    }
    postrider_testkit::source_suite!(fixture);
}

mod on_a_server_that_crashes {
    postrider_testkit::source_suite!(super::NatsSourceFixture::own);
}

fn url() -> String {
    shared::url(Kind::Nats)
}

const AN_HOUR: Duration = Duration::from_secs(3_600);

/// A place whose messages come again by an answer only: not within this test.
async fn patient_place() -> String {
    place(&url(), |config| config.ack_wait = AN_HOUR).await
}

fn source(place: &str) -> NatsSource {
    builder(&url(), place).build().unwrap()
}

/// So many, in hand at once.
async fn take(source: &NatsSource, count: usize) -> Vec<Parcel> {
    let mut taken = Vec::new();
    while taken.len() < count {
        taken.extend(soon(source.receive(count - taken.len())).await.unwrap());
    }
    taken
}

async fn tell(source: &NatsSource, parcels: &[Parcel], answer: Answer) -> Vec<Result<(), SourceError>> {
    let answers: Vec<_> = parcels.iter().map(|parcel| (parcel.ticket.clone(), answer)).collect();
    soon(source.answer(&answers)).await
}

fn all_ok(told: &[Result<(), SourceError>]) -> bool {
    told.iter().all(Result::is_ok)
}

fn all_stale(told: &[Result<(), SourceError>]) -> bool {
    told.iter().all(|told| matches!(told, Err(SourceError::Stale { .. })))
}

#[tokio::test]
async fn an_answer_is_for_the_message_and_not_for_the_connection() {
    let place = patient_place().await;
    let (proxy, through) = FaultProxy::before_url(&url()).await;
    let source = builder(&through, &place).build().unwrap();
    put(&url(), orders(3, &place)).await;
    let parcels = take(&source, 3).await;
    proxy.cut();
    // The loss is told once, and then it is over.
    assert!(matches!(soon(source.receive(1)).await, Err(SourceError::Down { .. })));
    assert!(all_ok(&tell(&source, &parcels[..2], Answer::Done).await));
    assert!(all_ok(&tell(&source, &parcels[2..], Answer::AT_ONCE).await));
    let again = take(&source, 1).await;
    assert_eq!(
        (again[0].incoming.id.as_ref(), again[0].deliveries),
        (parcels[2].incoming.id.as_ref(), Some(2))
    );
}

#[tokio::test]
async fn what_has_come_again_is_answered_with_its_new_ticket_only() {
    let place = place(&url(), |config| config.ack_wait = Duration::from_millis(200)).await;
    let source = source(&place);
    put(&url(), orders(1, &place)).await;
    let before = take(&source, 1).await;
    let after = take(&source, 1).await;
    // Where the server forgets a request, it counts one that it has not made.
    assert!(after[0].deliveries >= Some(2), "{after:?}");
    assert!(all_stale(&tell(&source, &before, Answer::Done).await));
    assert!(all_ok(&tell(&source, &after, Answer::Done).await));
    assert!(all_stale(&tell(&source, &after, Answer::Done).await));
}

/// The server forgets some requests that are over just when the message comes again; such short ones are over all the time.
#[tokio::test]
async fn a_request_that_is_forgotten_is_made_again() {
    let settings = |config: &mut pull::Config| {
        config.ack_wait = Duration::from_millis(60);
        config.max_expires = Duration::from_millis(2);
    };
    let place = place(&url(), settings).await;
    let source = source(&place);
    put(&url(), orders(1, &place)).await;
    let mut deliveries = 0;
    while deliveries < 25 {
        deliveries = take(&source, 1).await[0].deliveries.unwrap();
    }
}

#[tokio::test]
async fn a_ticket_of_another_source_is_stale() {
    let (place, other) = (patient_place().await, patient_place().await);
    put(&url(), orders(1, &place)).await;
    let (source, other) = (source(&place), source(&other));
    let parcels = take(&source, 1).await;
    assert!(all_stale(&tell(&other, &parcels, Answer::Done).await));
    assert!(all_ok(&tell(&source, &parcels, Answer::Done).await));
}

/// A network that takes answers and carries them nowhere.
#[tokio::test]
async fn an_answer_that_nobody_hears_is_told() {
    let place = patient_place().await;
    let (proxy, through) = FaultProxy::before_url(&url()).await;
    let second = Duration::from_secs(1);
    let source = builder(&through, &place).with_ack_timeout(second).with_connect_timeout(second);
    let source = source.build().unwrap();
    put(&url(), orders(1, &place)).await;
    let parcels = take(&source, 1).await;
    proxy.set(Fault::Stall);
    let told = tell(&source, &parcels, Answer::Done).await;
    assert!(matches!(told[..], [Err(SourceError::Down { .. })]), "{told:?}");
    // It may be answered again, as soon as somebody hears.
    proxy.set(Fault::None);
    let told = async {
        while !all_ok(&tell(&source, &parcels, Answer::Done).await) {
            tokio::task::yield_now().await;
        }
    };
    soon(told).await;
}

#[tokio::test]
async fn closing_gives_back_at_once() {
    let place = patient_place().await;
    put(&url(), orders(10, &place)).await;
    let closing = source(&place);
    let parcels = take(&closing, 10).await;
    closing.close().await;
    let again = take(&source(&place), 10).await;
    assert!(again.iter().all(|parcel| parcel.deliveries == Some(2)));
    assert!(all_stale(&tell(&closing, &parcels, Answer::Done).await));
}

#[tokio::test]
async fn no_more_is_asked_for_than_was_wanted() {
    let place = patient_place().await;
    put(&url(), orders(10, &place)).await;
    let modest = builder(&url(), &place).with_pull(3).build().unwrap();
    let had = soon(modest.receive(100)).await.unwrap();
    assert!((1..=3).contains(&had.len()));
    // If it had asked for more, the other would wait for ever.
    assert_eq!(take(&source(&place), 7).await.len(), 7);
}

#[tokio::test]
async fn how_long_a_message_may_be_in_hand_is_known_after_the_first_call() {
    let place = patient_place().await;
    let source = source(&place);
    assert_eq!(source.abilities().holds_for, Some(Duration::from_secs(30)));
    put(&url(), orders(1, &place)).await;
    take(&source, 1).await;
    assert_eq!(source.abilities().holds_for, Some(AN_HOUR));
    let backoff = vec![Duration::from_secs(7), Duration::from_secs(60)];
    let place = nats_source::place(&url(), |config| {
        (config.backoff, config.max_deliver) = (backoff, 5);
    })
    .await;
    let source = self::source(&place);
    source.redelivers().await.unwrap();
    assert_eq!(source.abilities().holds_for, Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn a_consumer_is_made_only_where_that_was_asked_for() {
    let (mut stream, subject) = stream(&url(), |_| ()).await;
    put(&url(), orders(1, &subject)).await;
    let error = soon(source(&subject).receive(1)).await.unwrap_err().to_string();
    assert!(error.contains("nats consumer add"), "{error}");
    assert_eq!(stream.info().await.unwrap().state.consumer_count, 0);
    let making = || builder(&url(), &subject).with_created_consumer(">", AN_HOUR).build().unwrap();
    assert_eq!(making().abilities().holds_for, Some(AN_HOUR));
    assert_eq!(take(&making(), 1).await.len(), 1);
    let config = stream.consumer_info(DURABLE).await.unwrap().config;
    assert_eq!((config.ack_policy, config.max_deliver, config.ack_wait), (AckPolicy::Explicit, -1, AN_HOUR));
    // One that is there stays as it is.
    let other =
        builder(&url(), &subject).with_created_consumer("other", Duration::from_secs(1)).build().unwrap();
    other.redelivers().await.unwrap();
    assert_eq!(stream.consumer_info(DURABLE).await.unwrap().config, config);
}

#[tokio::test]
async fn a_consumer_that_is_deleted_is_down() {
    let place = patient_place().await;
    let source = source(&place);
    put(&url(), orders(1, &place)).await;
    let parcels = take(&source, 1).await;
    let stream = context(&url()).await.get_stream(stream_of(&place)).await.unwrap();
    let (received, deleted) = tokio::join!(soon(source.receive(1)), stream.delete_consumer(DURABLE));
    assert!(deleted.unwrap().success);
    assert!(matches!(received, Err(SourceError::Down { .. })), "{received:?}");
    assert!(!all_ok(&tell(&source, &parcels, Answer::Done).await));
    let error = soon(source.receive(1)).await.unwrap_err().to_string();
    assert!(error.contains("there is no consumer"), "{error}");
}

#[tokio::test]
async fn headers_of_others_are_read_however_they_are_written() {
    let place = patient_place().await;
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("CE-SpecVersion", "1.0"),
        ("ce-id", "A-1"),
        ("ce-source", "/shop"),
        ("ce-type", "order%2Eplaced"),
        ("ce-subject", "%E2%82%AC%ff"),
        ("ce-datacontenttype", "text/plain"),
        ("Nats-Expected-Stream", stream_of(&place)),
        ("color", "100%25"),
    ] {
        headers.insert(name, value);
    }
    headers.append("color", "blue");
    let context = context(&url()).await;
    let sent = context.publish_with_headers(place.clone(), headers, "17".into()).await;
    sent.unwrap().await.unwrap();
    let incoming = take(&source(&place), 1).await.remove(0).incoming;
    let mut attributes = incoming.attributes.clone();
    attributes.sort_unstable();
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let wanted = [
        ("id", "A-1"),
        ("source", "/shop"),
        ("specversion", "1.0"),
        ("subject", "€\u{fffd}"),
        ("type", "order.placed"),
    ];
    assert_eq!(attributes, pairs(&wanted));
    assert_eq!(
        (incoming.content_type.as_deref(), incoming.headers.clone()),
        (Some("text/plain"), pairs(&[("color", "blue")]))
    );
    assert!(incoming.read(&QueueName::new("orders").unwrap()).is_ok());
}

#[tokio::test]
async fn redelivery_ends_with_the_age_of_the_stream() {
    assert_eq!(source(&patient_place().await).redelivers().await.unwrap().within, None);
    let (stream, subject) = stream(&url(), |config| config.max_age = AN_HOUR).await;
    stream.create_consumer(nats_source::config()).await.unwrap();
    assert_eq!(source(&subject).redelivers().await.unwrap().within, Some(AN_HOUR));
    assert!(source("NOBODY.made.this").redelivers().await.is_err());
}

#[test]
fn settings_that_make_no_sense_are_refused_and_say_no_password() {
    let at = "nats://relay:secret@nats.example:4222";
    let of = |url: &str, stream: &str, durable: &str| NatsSource::builder(url, stream, durable);
    let good = || of(at, "ORDERS", "billing");
    for (builder, field) in [
        (of("http://relay:secret@nats.example", "ORDERS", "billing"), "url: "),
        (of(at, "", "billing"), "stream: "),
        (of(at, "OR.DERS", "billing"), "stream: "),
        (of(at, "ORDERS", "bil ling"), "consumer: "),
        (good().with_pull(0), "pull: "),
        (good().with_created_consumer("", AN_HOUR), "subject: "),
        (good().with_created_consumer(">", Duration::ZERO), "ack_wait: "),
        (good().with_ack_timeout(Duration::ZERO), "ack_timeout: "),
        (good().with_credentials("secret"), "credentials: "),
    ] {
        let shown = format!("{builder:?} {}", builder.clone().build().unwrap_err());
        assert!(shown.contains(field) && !shown.contains("secret"), "{shown}");
    }
    assert!(!format!("{:?}", good().build().unwrap()).contains("secret"));
}
