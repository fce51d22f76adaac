//! The source suite on Redis Streams, on a shared server and on one that is killed; and tests of consumer groups.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/redis_source.rs"]
mod fixture;
#[path = "support/redis.rs"]
mod server;
mod support;

use fixture::{builder, own_server, send, shared_server, stream};
use postrider_core::{Ack, ClientOptions, Pem, ReceivedMessage, RedeliveryWindow, Source, SourceError};
use postrider_testkit::{Kind, shared};
use postrider_transports::redis::{RedisSource, RedisSourceBuilder};
use server::{connection, entries, new_stream, run};
use std::{collections::HashMap, time::Duration};
use support::{order, orders, soon};

mod shared_server_suite {
    postrider_testkit::source_suite!(super::shared_server, unordered);
}

mod crashing_server_suite {
    postrider_testkit::source_suite!(super::own_server, unordered);
}

/// Longer than any test: nothing is redelivered by its deadline.
const LONG_DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);

fn url() -> String {
    shared::url(Kind::Redis)
}

async fn receive(source: &RedisSource, count: usize) -> Vec<ReceivedMessage> {
    let mut messages = Vec::new();
    while messages.len() < count {
        messages.extend(soon(source.receive(count - messages.len())).await.unwrap());
    }
    messages
}

async fn ack(source: &RedisSource, messages: &[ReceivedMessage], with: Ack) -> Vec<Result<(), SourceError>> {
    let acks: Vec<_> = messages.iter().map(|message| (message.ack_handle.clone(), with)).collect();
    soon(source.ack(&acks)).await
}

async fn ack_all(source: &RedisSource, messages: &[ReceivedMessage]) {
    for result in ack(source, messages, Ack::Ack).await {
        result.unwrap();
    }
}

fn bodies(messages: &[ReceivedMessage]) -> Vec<String> {
    messages.iter().map(|message| String::from_utf8_lossy(&message.incoming.body).into_owned()).collect()
}

fn is_stale(result: &Result<(), SourceError>) -> bool {
    matches!(result, Err(SourceError::Stale { .. }))
}

/// How many entries are pending.
async fn pending(stream: &str) -> u64 {
    let reply: redis::Value = run(&url(), &format!("XPENDING {stream} billing")).await;
    let redis::Value::Array(parts) = reply else { panic!("{reply:?}") };
    redis::from_redis_value(parts.into_iter().next().unwrap()).unwrap()
}

/// The names of a group's consumers.
async fn consumers(stream: &str) -> Vec<String> {
    let consumers: Vec<HashMap<String, redis::Value>> =
        run(&url(), &format!("XINFO CONSUMERS {stream} billing")).await;
    let name =
        |mut consumer: HashMap<_, _>| redis::from_redis_value(consumer.remove("name").unwrap()).unwrap();
    consumers.into_iter().map(name).collect()
}

/// An entry that a slow consumer received and another consumer claimed.
async fn claimed_by_another() -> (String, RedisSource, ReceivedMessage, RedisSource, ReceivedMessage) {
    let stream = stream(&url()).await;
    let slow = builder(&url(), &stream).with_reject_to(format!("{stream}-rejected")).build().unwrap();
    let fast = builder(&url(), &stream).build().unwrap();
    send(&url(), &orders(1, &stream)).await;
    let late = receive(&slow, 1).await.remove(0);
    let claimed = receive(&fast, 1).await.remove(0);
    (stream, slow, late, fast, claimed)
}

#[tokio::test]
async fn claimed_entry_has_a_delivery_count_of_two() {
    let (_, _, late, _, claimed) = claimed_by_another().await;
    assert_eq!((late.deliveries, claimed.deliveries), (Some(1), Some(2)));
    assert_eq!(late.incoming, claimed.incoming);
}

/// Redis would permit it: an entry that another consumer owns by now is neither nacked, nor rejected, nor extended.
#[tokio::test]
async fn nack_and_extend_of_a_claimed_entry_change_nothing() {
    let (stream, slow, late, fast, claimed) = claimed_by_another().await;
    for with in [Ack::REDELIVER_NOW, Ack::Reject] {
        assert!(is_stale(&ack(&slow, std::slice::from_ref(&late), with).await[0]), "{with:?}");
    }
    assert!(is_stale(&soon(slow.extend(std::slice::from_ref(&late.ack_handle))).await[0]));
    assert_eq!(run::<u64>(&url(), &format!("XLEN {stream}-rejected")).await, 0);
    soon(fast.extend(std::slice::from_ref(&claimed.ack_handle))).await.remove(0).unwrap();
    // An ack is valid from any consumer. The later ack is stale.
    ack_all(&slow, &[late]).await;
    assert_eq!(pending(&stream).await, 0);
    assert!(is_stale(&ack(&fast, &[claimed], Ack::Ack).await[0]));
}

/// The handle of an earlier delivery to the same consumer.
#[tokio::test]
async fn ack_handle_of_an_earlier_delivery_is_stale() {
    let stream = stream(&url()).await;
    let source = builder(&url(), &stream).build().unwrap();
    send(&url(), &orders(1, &stream)).await;
    let first = receive(&source, 1).await;
    let second = receive(&source, 1).await;
    assert_eq!(second[0].deliveries, Some(2));
    assert!(is_stale(&soon(source.extend(&[first[0].ack_handle.clone()])).await[0]));
    assert!(is_stale(&ack(&source, &first, Ack::REDELIVER_NOW).await[0]));
    ack_all(&source, &second).await;
}

#[tokio::test]
async fn named_consumer_is_redelivered_its_pending_entries_at_once() {
    let stream = stream(&url()).await;
    let named =
        || builder(&url(), &stream).with_consumer("ann").with_ack_deadline(LONG_DEADLINE).build().unwrap();
    send(&url(), &orders(5, &stream)).await;
    let before = receive(&named(), 3).await;
    // One of them is deleted.
    let ids: Vec<(String, Vec<String>)> = run(&url(), &format!("XRANGE {stream} - +")).await;
    run::<u64>(&url(), &format!("XDEL {stream} {}", ids[1].0)).await;
    let after = named();
    let again = receive(&after, 4).await;
    assert_eq!(bodies(&again), ["0", "2", "3", "4"]);
    let counts: Vec<_> = again.iter().map(|message| message.deliveries).collect();
    assert_eq!(counts, [Some(2), Some(2), Some(1), Some(1)]);
    assert!(is_stale(&ack(&after, &before, Ack::REDELIVER_NOW).await[0]), "handle of an earlier delivery");
    ack_all(&after, &again).await;
    assert_eq!(pending(&stream).await, 0);
}

#[tokio::test]
async fn deleted_pending_entry_is_acknowledged() {
    let stream = stream(&url()).await;
    send(&url(), &orders(3, &stream)).await;
    let dead = builder(&url(), &stream).build().unwrap();
    receive(&dead, 3).await;
    drop(dead);
    run::<u64>(&url(), &format!("XTRIM {stream} MAXLEN 1")).await;
    let other = builder(&url(), &stream).build().unwrap();
    let messages = receive(&other, 1).await;
    assert_eq!(bodies(&messages), ["2"]);
    ack_all(&other, &messages).await;
    assert_eq!(pending(&stream).await, 0);
}

/// The server keeps the delay: it outlives the process that nacked.
#[tokio::test]
async fn delayed_nack_of_a_dead_consumer_is_redelivered_to_another() {
    let stream = stream(&url()).await;
    send(&url(), &orders(1, &stream)).await;
    let dead = builder(&url(), &stream).build().unwrap();
    let messages = receive(&dead, 1).await;
    let after = Duration::from_secs(1);
    let nacked_at = tokio::time::Instant::now();
    ack(&dead, &messages, Ack::Nack { after }).await.remove(0).unwrap();
    assert_eq!(
        run::<Vec<redis::Value>>(&url(), &format!("XPENDING {stream} billing - + 9 postrider-waiting"))
            .await
            .len(),
        1
    );
    drop(dead);
    let other = builder(&url(), &stream).build().unwrap();
    let messages = receive(&other, 1).await;
    assert!(nacked_at.elapsed() >= after, "{:?}", nacked_at.elapsed());
    assert_eq!(messages[0].deliveries, Some(2));
    ack_all(&other, &messages).await;
}

#[tokio::test]
async fn close_nacks_entries_in_flight_and_removes_the_consumer_name() {
    let stream = stream(&url()).await;
    send(&url(), &orders(5, &stream)).await;
    let source = || builder(&url(), &stream).with_ack_deadline(LONG_DEADLINE).build().unwrap();
    let (one, other) = (source(), source());
    let messages = receive(&one, 3).await;
    ack_all(&one, &messages[..1]).await;
    let in_flight = receive(&other, 2).await;
    soon(one.close()).await;
    assert_eq!(pending(&stream).await, 4, "two were nacked, and two are in flight");
    assert_eq!(consumers(&stream).await.len(), 2, "the other consumer, and the owner of nacked entries");
    let again = receive(&other, 2).await;
    assert_eq!(bodies(&again), ["1", "2"]);
    ack_all(&other, &in_flight).await;
    ack_all(&other, &again).await;
    soon(other.close()).await;
    assert_eq!((pending(&stream).await, consumers(&stream).await), (0, vec!["postrider-waiting".to_owned()]));
}

#[tokio::test]
async fn names_of_dead_consumers_without_pending_entries_are_removed() {
    let stream = stream(&url()).await;
    let short = || builder(&url(), &stream).with_ack_deadline(Duration::from_secs(1)).build().unwrap();
    send(&url(), &orders(2, &stream)).await;
    let dead = short();
    receive(&dead, 2).await;
    drop(dead);
    let name = consumers(&stream).await.remove(0);
    // A configured consumer name is never removed.
    run::<u64>(&url(), &format!("XGROUP CREATECONSUMER {stream} billing theirs")).await;
    let other = short();
    let messages = receive(&other, 2).await;
    ack_all(&other, &messages).await;
    let removal = async {
        while consumers(&stream).await.contains(&name) {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = soon(removal) => {}
        received = other.receive(1) => panic!("{received:?}"),
    }
    assert!(consumers(&stream).await.contains(&"theirs".to_owned()));
}

#[tokio::test]
async fn delete_when_done_deletes_acked_and_rejected_entries() {
    let stream = stream(&url()).await;
    send(&url(), &orders(3, &stream)).await;
    let source = builder(&url(), &stream).with_delete_when_done().build().unwrap();
    let messages = receive(&source, 3).await;
    ack_all(&source, &messages[..1]).await;
    ack(&source, &messages[1..2], Ack::Reject).await.remove(0).unwrap();
    assert_eq!(run::<u64>(&url(), &format!("XLEN {stream}")).await, 1);
    ack(&source, &messages[2..], Ack::REDELIVER_NOW).await.remove(0).unwrap();
    assert_eq!(bodies(&receive(&source, 1).await), ["2"], "a nacked entry stays");
}

#[tokio::test]
async fn rejected_entry_is_copied_to_the_reject_stream() {
    let (stream, rejected) = (stream(&url()).await, new_stream());
    send(&url(), &orders(2, &stream)).await;
    let source = builder(&url(), &stream).with_reject_to(&rejected).build().unwrap();
    let messages = receive(&source, 2).await;
    ack(&source, &messages[..1], Ack::Reject).await.remove(0).unwrap();
    let (copied, sent) = (entries(&url(), &rejected).await, entries(&url(), &stream).await);
    assert_eq!(copied, sent[..1]);
    // A second reject is stale.
    assert!(is_stale(&ack(&source, &messages[..1], Ack::Reject).await[0]));
    assert_eq!(entries(&url(), &rejected).await.len(), 1);
    // If it cannot be copied, the entry stays pending.
    run::<()>(&url(), &format!("DEL {rejected}")).await;
    run::<u64>(&url(), &format!("LPUSH {rejected} a")).await;
    let results = ack(&source, &messages[1..], Ack::Reject).await;
    assert!(
        matches!(&results[0], Err(SourceError::Unavailable { source }) if source.to_string().contains("WRONGTYPE")),
        "{results:?}"
    );
    assert_eq!(pending(&stream).await, 1);
    ack_all(&source, &messages[1..]).await;
}

#[tokio::test]
async fn group_must_exist_unless_create_group_is_set() {
    let stream = new_stream();
    send(&url(), &orders(2, &stream)).await;
    let source = builder(&url(), &stream).build().unwrap();
    let error = soon(source.receive(1)).await.unwrap_err().to_string();
    let command = format!("XGROUP CREATE {stream} billing 0 MKSTREAM");
    assert!(error.contains(&command), "{error}");
    // At the end: the group does not get existing entries.
    let late = builder(&url(), &stream).with_group("late").create_group_at_end().build().unwrap();
    tokio::select! {
        received = late.receive(1) => panic!("{received:?}"),
        () = async {
            let exists = async || run::<Vec<redis::Value>>(&url(), &format!("XINFO GROUPS {stream}")).await.len() == 1;
            while !exists().await {}
        } => {}
    }
    // From the beginning: the group misses nothing.
    let creator = builder(&url(), &stream).create_group().build().unwrap();
    assert_eq!(bodies(&receive(&creator, 2).await), ["0", "1"]);
    // The first source finds the group by itself.
    send(&url(), &[order(7, &stream)]).await;
    assert_eq!(bodies(&receive(&source, 1).await), ["7"]);
    assert_eq!(bodies(&receive(&late, 1).await), ["7"]);
    // An existing group is not changed.
    let again = builder(&url(), &stream).create_group().build().unwrap();
    send(&url(), &[order(8, &stream)]).await;
    assert_eq!(bodies(&receive(&again, 1).await), ["8"]);
}

#[tokio::test]
async fn foreign_entry_is_received() {
    let stream = stream(&url()).await;
    let mut add = redis::cmd("XADD");
    add.arg(&stream).arg("*").arg(b"\xff\xfe").arg(b"\xff").arg("ce_").arg("").arg("id").arg(b"\xff");
    add.query_async::<String>(&mut connection(&url()).await).await.unwrap();
    let source = builder(&url(), &stream).build().unwrap();
    let messages = receive(&source, 1).await;
    assert_eq!(messages[0].incoming.id.as_deref(), Some("\u{fffd}"));
    assert_eq!(messages[0].incoming.body, "");
    ack_all(&source, &messages).await;
}

#[tokio::test]
async fn redelivery_window_is_unbounded_unless_the_stream_expires() {
    let stream = stream(&url()).await;
    let source = builder(&url(), &stream).build().unwrap();
    assert_eq!(soon(source.redelivery_window()).await.unwrap().within, None);
    run::<u64>(&url(), &format!("PEXPIRE {stream} 3600000")).await;
    let RedeliveryWindow { within, reason } = soon(source.redelivery_window()).await.unwrap();
    assert!(within.is_some_and(|within| within <= Duration::from_secs(3_600)), "{within:?}");
    assert!(reason.starts_with(&format!("PTTL {stream} = ")), "{reason}");
}

#[test]
fn invalid_settings_are_rejected_with_the_reason() {
    let of = |client: ClientOptions| RedisSource::builder(client, "orders");
    let client = || ClientOptions::new("rediss://ann:s3cret@127.0.0.1:6379");
    let new = || of("redis://ann:s3cret@127.0.0.1:6379".into());
    let error = |builder: RedisSourceBuilder| builder.build().unwrap_err().to_string();
    let errors = [
        error(RedisSource::builder("http://ann:s3cret@host", "orders")),
        error(RedisSource::builder("redis://ann:s3cret@host", "")),
        error(new().with_group("")),
        error(new().with_consumer("")),
        error(new().with_consumer("postrider-waiting")),
        error(new().with_reject_to("orders")),
        error(new().with_ack_deadline(Duration::from_millis(999))),
        error(new().with_ack_deadline(LONG_DEADLINE * 2)),
        error(of(client().with_request_timeout(Duration::ZERO))),
        error(of(client().with_ca_bundle(Pem::file("/nowhere")))),
        error(of("rediss://ann:s3cret@host#insecure".into())),
    ];
    insta::assert_snapshot!("source_settings", errors.join("\n"));
    let shown = format!("{:?} {:?} {}", new(), new().build().unwrap(), errors.join("\n"));
    assert!(!shown.contains("s3cret"), "{shown}");
    RedisSource::connect("redis://127.0.0.1:6379", "orders").unwrap();
}
