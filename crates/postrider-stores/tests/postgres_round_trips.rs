//! The network cost of each path: round trips counted between the client and the server.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/postgres.rs"]
mod support;

use postrider_core::{
    AuditEvent, AuditKind, ClaimRequest, ClaimedMessage, FollowUp, FollowUpExt, Lease, Message,
    MessageBuilder, MessageId, OnFailure, Outbox, QueueName, QueuePolicy, Reason, Reference, Store,
    TxBackend,
    follow_up::{GroupProgress, QUEUE},
    schema::Schema,
};
use postrider_stores::postgres::PostgresStore;
use postrider_testkit::{Fixture, round_trips::CountingProxy};
use sqlx::{Connection, PgConnection, postgres::PgPoolOptions};
use std::time::{Duration, SystemTime};
use support::PostgresFixture;

/// Builds the message of a number.
type Make = fn(usize) -> MessageBuilder;

fn messages(count: usize, make: impl Fn(usize) -> MessageBuilder) -> Vec<Message> {
    (0..count).map(|n| make(n).build().unwrap()).collect()
}

#[tokio::test]
async fn stage_batch_of_any_size_is_one_round_trip() {
    let fixture = PostgresFixture::new().await;
    let (proxy, url) = CountingProxy::before_database(fixture.database.url()).await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let outbox = fixture.outbox();
    let kinds: [(&str, Make); 4] = [
        ("plain", |n| Message::builder("orders").json(&n)),
        ("several queues", |n| Message::builder(format!("queue-{}", n % 3)).json(&n)),
        ("given ids", |n| Message::builder("orders").id(MessageId::at(SystemTime::now())).json(&n)),
        ("timers", |n| {
            Message::builder("orders").timer(format!("{n}")).due_after(Duration::from_secs(60)).json(&n)
        }),
    ];
    for (kind, make) in kinds {
        for count in [1, 100, 1_000] {
            // The first call creates the queues and prepares the statement.
            for expected in [None, Some(1)] {
                let mut tx = connection.begin().await.unwrap();
                let before = proxy.round_trips();
                let staged = outbox.stage_all(&mut tx, &messages(count, make)).await.unwrap();
                let trips = proxy.round_trips() - before;
                assert_eq!(staged.outcomes().len(), count);
                assert!(
                    expected.is_none_or(|expected| trips == expected),
                    "{count} {kind}: {trips} round trips"
                );
                if expected.is_none() {
                    tx.commit().await.unwrap();
                } else {
                    tx.rollback().await.unwrap();
                }
            }
            fixture
                .run("delete from postrider.timer; delete from postrider.scheduled; delete from postrider.ready")
                .await;
        }
    }
}

#[tokio::test]
async fn settle_of_mixed_batch_is_one_round_trip() {
    let fixture = PostgresFixture::new().await;
    let lined = QueueName::new("lined").unwrap();
    fixture.store.declare(&lined, &QueuePolicy::by_key(OnFailure::Skip)).await.unwrap();
    let (proxy, url) = CountingProxy::before_database(fixture.database.url()).await;
    let store = PostgresStore::connect(&url).await.unwrap();
    let mut trips = Vec::new();
    for _ in 0..2 {
        let mut tx = fixture.begin().await;
        fixture
            .outbox()
            .stage_all(&mut tx, &messages(50, |n| Message::builder("orders").json(&n)))
            .await
            .unwrap();
        let keyed = messages(50, |n| Message::builder("lined").key(format!("{}", n % 10)).json(&n));
        fixture.outbox().stage_all(&mut tx, &keyed).await.unwrap();
        fixture.commit(tx).await;
        let mut batch = Vec::new();
        for (queue, limit) in [("orders", 25), ("orders", 25), ("lined", 50)] {
            let request = ClaimRequest::new(QueueName::new(queue).unwrap(), limit);
            for (n, claimed) in store.claim(&request).await.unwrap().into_iter().enumerate() {
                batch.push(match n % 4 {
                    _ if queue == "lined" => claimed.lease.done(),
                    0 => claimed.lease.done(),
                    1 => claimed.lease.retry(Duration::from_secs(3600), "later"),
                    2 => claimed.lease.dead(Reason::Rejected, "no"),
                    _ => claimed.lease.release(),
                });
            }
        }
        assert_eq!(batch.len(), 100);
        let before = proxy.round_trips();
        assert_eq!(store.settle(&batch).await.unwrap(), []);
        trips.push(proxy.round_trips() - before);
        fixture.run("delete from postrider.ready").await;
    }
    assert_eq!(trips[1], 1, "the first call also prepares the statement: {trips:?}");
}

/// A claim that fills its limit at once is one round trip; one that finds nothing also looks back, once.
#[tokio::test]
async fn claim_that_fills_its_limit_is_one_round_trip() {
    let fixture = PostgresFixture::new().await;
    let (proxy, url) = CountingProxy::before_database(fixture.database.url()).await;
    let store = PostgresStore::connect(&url).await.unwrap();
    let mut tx = fixture.begin().await;
    fixture
        .outbox()
        .stage_all(&mut tx, &messages(1_000, |n| Message::builder("orders").json(&n)))
        .await
        .unwrap();
    fixture.commit(tx).await;
    let request = ClaimRequest::new(QueueName::new("orders").unwrap(), 10);
    let mut trips = Vec::new();
    for _ in 0..50 {
        let before = proxy.round_trips();
        assert_eq!(store.claim(&request).await.unwrap().len(), 10);
        trips.push(proxy.round_trips() - before);
    }
    let single = trips.iter().filter(|trips| **trips == 1).count();
    assert!(single >= 25, "most claims are one round trip; some look back first: {trips:?}");
}

/// Completing a follow-up locks its group, settles the claim and checks the rest of the group; other settlements take one round trip or
/// two. The first of each prepares.
#[tokio::test]
async fn settling_follow_up_takes_few_round_trips() {
    let fixture = PostgresFixture::new().await;
    let keep = QueuePolicy::default().with_keep_for(Duration::from_secs(86_400));
    fixture.store.declare(&QueueName::new(QUEUE).unwrap(), &keep).await.unwrap();
    let (proxy, url) = CountingProxy::before_database(fixture.database.url()).await;
    let store = PostgresStore::connect(&url).await.unwrap();
    let transactions =
        store.transactions(PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap());
    let erase = |n| FollowUp::new(format!("{n}"), "crm", "erase", Reference::new("customer", "1")).unwrap();
    let mut tx = fixture.begin().await;
    fixture.outbox().follow_up(&mut tx, (0..8).map(erase)).await.unwrap();
    fixture.commit(tx).await;
    let claimed = store.claim(&ClaimRequest::new(QueueName::new(QUEUE).unwrap(), 8)).await.unwrap();
    let mut trips = Vec::new();
    for pair in claimed.chunks(4) {
        let mut tx = transactions.begin().await.unwrap();
        // The cache of the queues is read again every second.
        let mut count = async |what: Ends| {
            let before = proxy.round_trips();
            match what {
                Ends::Lands(claimed) => {
                    let group = FollowUp::read(&claimed.message).unwrap().group();
                    assert_eq!(
                        transactions.land(&mut tx, &claimed.lease, &group).await.unwrap(),
                        GroupProgress::Last
                    );
                }
                Ends::IsGivenUp(lease) => {
                    assert!(transactions.abandon(&mut tx, lease, Reason::Rejected, "no").await.unwrap());
                }
                Ends::IsPutOff(lease) => {
                    let until = transactions
                        .schedule(&mut tx, lease, SystemTime::now(), Duration::from_secs(60))
                        .await;
                    assert!(until.unwrap().is_some());
                }
                Ends::IsRecorded => {
                    transactions.record(&mut tx, &[AuditEvent::new(AuditKind::Completed)]).await.unwrap();
                }
            }
            proxy.round_trips() - before
        };
        trips = vec![
            count(Ends::Lands(&pair[0])).await,
            count(Ends::IsGivenUp(&pair[1].lease)).await,
            count(Ends::IsPutOff(&pair[2].lease)).await,
            count(Ends::IsRecorded).await,
        ];
        transactions.commit(tx).await.unwrap();
    }
    // One more when the queues were read.
    assert!(trips.iter().zip([3, 2, 1, 1]).all(|(trips, most)| *trips <= most + 1), "{trips:?}");
    assert!(trips.iter().sum::<usize>() <= 8, "{trips:?}");
}

/// The ways to settle a follow-up.
enum Ends<'c> {
    Lands(&'c ClaimedMessage),
    IsGivenUp(&'c Lease),
    IsPutOff(&'c Lease),
    IsRecorded,
}
