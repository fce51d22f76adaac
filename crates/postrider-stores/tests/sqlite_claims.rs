//! Claims and settlements: the details that the suite leaves to each store, and that are the same as in the memory store.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/sqlite.rs"]
mod support;

use postrider_core::{
    ClaimRequest, ClaimedMessage, Message, MessageBuilder, OnFailure, OutboxExt, QueueName, QueuePolicy,
    Reason, Store,
    inspect::{Action, Inspect, ListRequest, Operate, StateFilter},
    notifier::{IdleWorker, Notifier},
    schema::Schema,
};
use postrider_testkit::Fixture;
use std::time::Duration;
use support::SqliteFixture;
use uuid::Uuid;

#[tokio::test]
async fn claim_gives_the_rest_of_the_limit_to_the_first_lanes() {
    let fixture = ordered(OnFailure::Block).await;
    for payload in ["a1", "a2", "a3", "b1", "b2", "c1"] {
        stage(&fixture, message(payload).key(&payload[..1])).await;
    }
    let first = claim(&fixture, 4).await;
    assert_eq!(payloads(&first), ["a1", "a2", "b1", "c1"]);
    let last: Vec<_> = first.iter().map(|each| each.lease.turn().unwrap().last).collect();
    assert_eq!(last, [false, true, true, true]);
}

#[tokio::test]
async fn message_without_key_is_listed_and_released_by_its_id() {
    let fixture = ordered(OnFailure::Park).await;
    for payload in ["a", "b"] {
        stage(&fixture, message(payload)).await;
    }
    let claimed = claim(&fixture, 10).await;
    assert_eq!(payloads(&claimed), ["a", "b"]);
    let store = &fixture.store;
    assert_eq!(store.settle(&[claimed[0].lease.retry(minutes(1), "busy")]).await.unwrap(), []);
    let blocked = store.blocked_keys(&queue(), 10).await.unwrap().remove(0);
    assert_eq!(blocked.key.as_str(), claimed[0].id().to_string());
    let request = ListRequest::new(queue(), StateFilter::Ready).with_key(blocked.key.clone());
    assert_eq!(store.list(&request).await.unwrap().entries.len(), 1);

    assert!(store.release_key(&queue(), &blocked.key, &Action::new("ada", "fixed")).await.unwrap());
    let again = claim(&fixture, 10).await;
    assert_eq!(payloads(&again), ["a"]);
    assert_eq!(again[0].message.key(), None);
}

#[tokio::test]
async fn release_keeps_the_count_of_expired_leases() {
    let fixture = ordered(OnFailure::Block).await;
    for payload in ["a", "b"] {
        stage(&fixture, message(payload).key("k")).await;
    }
    assert_eq!(claim(&fixture, 10).await.len(), 2);
    fixture.advance(minutes(2)).await;
    for _ in 0..2 {
        let head = claim(&fixture, 10).await;
        assert_eq!((payloads(&head), head[0].deliveries), (vec!["a".to_owned()], 2));
        assert_eq!(fixture.store.settle(&[head[0].lease.release()]).await.unwrap(), []);
    }
}

#[tokio::test]
async fn claim_takes_turns_between_keys_and_other_queues() {
    let fixture = SqliteFixture::new().await;
    let by_key: QueueName = "by-key".parse().unwrap();
    fixture.store.declare(&by_key, &QueuePolicy::by_key(OnFailure::Block)).await.unwrap();
    for number in 0..6 {
        stage(&fixture, Message::builder("by-key").key("k").payload(format!("k{number}"))).await;
        stage(&fixture, message(format!("u{number}"))).await;
    }
    let both = ClaimRequest::of([queue(), by_key], 2);
    let claimed = fixture.store.claim(&both).await.unwrap();
    assert_eq!(payloads(&claimed), ["k0", "u0"]);
    let done: Vec<_> = claimed.iter().map(|each| each.lease.done()).collect();
    fixture.store.settle(&done).await.unwrap();

    let next = fixture.store.claim(&both).await.unwrap();
    assert_eq!(payloads(&next), ["u1", "u2"], "the key went to the tail of the ring");
}

/// A requeued dead letter goes before the head in flight, and keeps turns and expired leases apart.
#[tokio::test]
async fn requeued_dead_letter_is_claimed_after_the_turn_in_flight() {
    let fixture = ordered(OnFailure::Skip).await;
    for payload in ["a", "b", "c"] {
        stage(&fixture, message(payload).key("k")).await;
    }
    let head = claim(&fixture, 1).await;
    let store = &fixture.store;
    assert_eq!(store.settle(&[head[0].lease.dead(Reason::Rejected, "no")]).await.unwrap(), []);
    let turn = claim(&fixture, 1).await;
    assert_eq!(payloads(&turn), ["b"]);
    store.requeue(&queue(), &[head[0].id()], &Action::new("ada", "again")).await.unwrap();
    assert_eq!(claim(&fixture, 10).await, [], "the key is leased");
    assert_eq!(store.settle(&[turn[0].lease.done()]).await.unwrap(), []);
    assert_eq!(payloads(&claim(&fixture, 10).await), ["a", "c"]);
}

/// No lane is without messages, and no message is without its lane.
#[tokio::test]
async fn lanes_exist_as_long_as_their_messages() {
    let fixture = ordered(OnFailure::Skip).await;
    for number in 0..200 {
        stage(&fixture, message("x").key(format!("key-{}", number % 20))).await;
    }
    let mut rounds = 0;
    loop {
        let claimed = claim(&fixture, 30).await;
        if claimed.is_empty() {
            break;
        }
        let settlements: Vec<_> = claimed
            .iter()
            .enumerate()
            .map(|(index, each)| match index % 7 {
                0 => each.lease.dead(Reason::Rejected, "no"),
                1 => each.lease.release(),
                _ => each.lease.done(),
            })
            .collect();
        fixture.store.settle(&settlements).await.unwrap();
        let (without_lane, empty): (i64, i64) = sqlx::query_as(
            "select (select count(*) from postrider_ready r where not exists ( \
               select 1 from postrider_lane l where l.queue = r.queue and l.key = r.key)), \
             (select count(*) from postrider_lane l where not exists ( \
               select 1 from postrider_ready r where r.queue = l.queue and r.key = l.key))",
        )
        .fetch_one(&fixture.app)
        .await
        .unwrap();
        assert_eq!((without_lane, empty), (0, 0));
        rounds += 1;
        assert!(rounds < 200);
    }
    assert!(rounds > 5);
}

#[tokio::test]
async fn extreme_durations_are_capped() {
    let fixture = SqliteFixture::new().await;
    let policy = QueuePolicy::default().with_keep_for(Duration::MAX);
    fixture.store.declare(&queue(), &policy).await.unwrap();
    stage(&fixture, message("a")).await;
    stage(&fixture, message("b")).await;
    let claimed = claim(&fixture, 10).await;
    let settlements = [claimed[0].lease.retry(Duration::MAX, "never"), claimed[1].lease.done()];
    assert_eq!(fixture.store.settle(&settlements).await.unwrap(), []);
    for state in [StateFilter::Scheduled, StateFilter::Done] {
        assert_eq!(fixture.store.list(&ListRequest::new(queue(), state)).await.unwrap().entries.len(), 1);
    }
}

#[tokio::test]
async fn listener_that_missed_notifications_gets_at_least_one() {
    let fixture = SqliteFixture::new().await;
    let idle = IdleWorker { worker: Uuid::now_v7(), queues: vec![queue()] };
    fixture.store.register_idle(&idle, minutes(1)).await.unwrap();
    let mut listener = fixture.store.listen(&[queue()]).await.unwrap();
    for _ in 0..50 {
        stage(&fixture, message("a")).await;
    }
    assert_eq!(listener.wait().await.unwrap(), queue());
}

#[tokio::test]
async fn debug_output_shows_no_message() {
    let fixture = SqliteFixture::new().await;
    stage(&fixture, message("secret")).await;
    assert!(!format!("{:?}", fixture.store).contains("secret"));
}

async fn ordered(on_failure: OnFailure) -> SqliteFixture {
    let fixture = SqliteFixture::new().await;
    fixture.store.declare(&queue(), &QueuePolicy::by_key(on_failure)).await.unwrap();
    fixture
}

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

fn queue() -> QueueName {
    "orders".parse().unwrap()
}

fn message(payload: impl Into<String>) -> MessageBuilder {
    Message::builder("orders").payload(payload.into())
}

async fn stage(fixture: &SqliteFixture, message: MessageBuilder) {
    let mut tx = fixture.begin().await;
    fixture.outbox().stage(&mut tx, message).await.unwrap();
    fixture.commit(tx).await;
}

async fn claim(fixture: &SqliteFixture, limit: usize) -> Vec<ClaimedMessage> {
    fixture.store.claim(&ClaimRequest::new(queue(), limit)).await.unwrap()
}

fn payloads(claimed: &[ClaimedMessage]) -> Vec<String> {
    claimed.iter().map(|each| String::from_utf8(each.message.payload().to_vec()).unwrap()).collect()
}
