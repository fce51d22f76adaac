//! Claims and settlements specific to PostgreSQL: locked rows, cancelled futures, partitions of the archive.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/postgres.rs"]
mod support;

use postrider_core::{
    ClaimRequest, ClaimedMessage, Message, MessageId, OnFailure, OrderingKey, Outbox, OutboxExt,
    PruneRequest, QueueName, QueuePolicy, State, Store,
    inspect::{Action, Inspect, ListRequest, Operate, StateFilter},
    schema::Schema,
};
use postrider_testkit::Fixture;
use sqlx::{Executor, Row};
use std::{
    collections::{BTreeSet, HashMap},
    future::Future,
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};
use support::PostgresFixture;

fn orders() -> QueueName {
    QueueName::new("orders").unwrap()
}

async fn stage(fixture: &PostgresFixture, count: usize) -> Vec<MessageId> {
    let batch: Vec<_> = (0..count)
        .map(|n| Message::builder("orders").key(format!("{}", n % 3)).json(&n).build().unwrap())
        .collect();
    let mut tx = fixture.begin().await;
    let staged = fixture.outbox().stage_all(&mut tx, &batch).await.unwrap();
    fixture.commit(tx).await;
    staged.outcomes().iter().map(|(id, _)| *id).collect()
}

fn ids(claimed: &[ClaimedMessage]) -> Vec<MessageId> {
    claimed.iter().map(ClaimedMessage::id).collect()
}

/// A claim does not wait for rows that another transaction has locked, and finds them when the lock is released, although its
/// low-water mark has passed them.
#[tokio::test]
async fn claim_skips_locked_rows_and_finds_them_after_unlock() {
    let fixture = PostgresFixture::new().await;
    let staged = stage(&fixture, 5).await;
    let mut other = fixture.begin().await;
    let lock = "select 1 from postrider.ready order by id limit 2 for update";
    other.execute(lock).await.unwrap();

    let request = ClaimRequest::new(orders(), 10);
    assert_eq!(ids(&fixture.store.claim(&request).await.unwrap()), staged[2..]);
    fixture.rollback(other).await;
    assert_eq!(ids(&fixture.store.claim(&request).await.unwrap()), staged[..2]);
}

/// Timers that come due beside a backlog have the newest positions: they do not move the low-water mark past the backlog, and nothing newer
/// overtakes it.
#[tokio::test]
async fn timers_due_beside_a_backlog_leave_the_low_water_mark_at_the_backlog() {
    let fixture = PostgresFixture::new().await;
    let backlog = stage(&fixture, 2_000).await;
    let timers: Vec<_> = (0..100)
        .map(|n| Message::builder("orders").timer(format!("t{n}")).json(&n).build().unwrap())
        .collect();
    let mut tx = fixture.begin().await;
    fixture.outbox().stage_all(&mut tx, &timers).await.unwrap();
    fixture.commit(tx).await;
    let newer: BTreeSet<_> = stage(&fixture, 500).await.into_iter().collect();

    let request = ClaimRequest::new(orders(), 10);
    let (mut claimed_backlog, mut early) = (Vec::new(), 0);
    while claimed_backlog.len() < backlog.len() {
        let claimed = fixture.store.claim(&request).await.unwrap();
        assert!(!claimed.is_empty());
        early += claimed.iter().filter(|claimed| newer.contains(&claimed.id())).count();
        let old = claimed
            .iter()
            .filter(|claimed| claimed.message.timer().is_none() && !newer.contains(&claimed.id()));
        claimed_backlog.extend(old.map(|claimed| (claimed.lease.position().unwrap(), claimed.id())));
        let read_to = claimed_backlog.last().map_or(0, |(position, _)| *position);
        let mark = fixture.store.low_water_mark(&orders()).await.unwrap();
        if claimed_backlog.len() < backlog.len() {
            assert!(mark <= read_to, "the mark is at {mark}, and the backlog was read to {read_to}");
        }
        fixture
            .store
            .settle(&claimed.iter().map(|claimed| claimed.lease.done()).collect::<Vec<_>>())
            .await
            .unwrap();
    }
    assert_eq!(claimed_backlog.into_iter().map(|(_, id)| id).collect::<Vec<_>>(), backlog);
    assert!(early < 10, "{early} newer messages overtook the backlog");
}

/// A claim whose second statement fails returns what its first one has leased, and the next claim reports the error.
#[tokio::test]
async fn claim_that_fails_halfway_returns_what_it_has_leased() {
    let fixture = PostgresFixture::new().await;
    let staged = stage(&fixture, 2).await;
    let request = ClaimRequest::new(orders(), 1);
    let first = fixture.store.claim(&request).await.unwrap();
    fixture.store.settle(&[first[0].lease.retry(Duration::ZERO, "busy")]).await.unwrap();
    // Retries in place need `ready` only, and look-backs need both.
    fixture.run("alter table postrider.scheduled rename to gone").await;
    let request = ClaimRequest::new(orders(), 10);
    let claimed = fixture.store.claim(&request).await.unwrap();
    assert_eq!(ids(&claimed)[0], staged[0], "the retry");
    assert!(fixture.store.claim(&request).await.is_err());
    fixture.run("alter table postrider.gone rename to scheduled").await;
    let rest = fixture.store.claim(&request).await.unwrap();
    assert_eq!(claimed.len() + rest.len(), 2);
}

/// The same for a claim from several queues, of which the last fails.
#[tokio::test]
async fn claim_from_several_queues_returns_those_before_the_one_that_fails() {
    let fixture = PostgresFixture::new().await;
    let ordered = QueueName::new("payments").unwrap();
    fixture.store.declare(&ordered, &QueuePolicy::by_key(OnFailure::Block)).await.unwrap();
    let staged = stage(&fixture, 3).await;
    fixture.run("alter function postrider.claim_lanes rename to gone").await;
    let request = ClaimRequest::of([orders(), ordered.clone()], 10);
    assert_eq!(ids(&fixture.store.claim(&request).await.unwrap()), staged);
    assert!(fixture.store.claim(&request).await.is_err(), "nothing is left to return");
}

/// A key had a lane when discovery read it, and has none when the lane is inserted: it does not count twice.
#[tokio::test]
async fn lane_deleted_during_discovery_does_not_exceed_lane_limit() {
    let fixture = PostgresFixture::new().await;
    fixture.store.declare(&orders(), &QueuePolicy::by_key(OnFailure::Skip)).await.unwrap();
    stage(&fixture, 2).await;
    // The owner of the first key has ended its turn, and not committed yet.
    let make = "insert into postrider.lane (queue, key, after) select queue, key, 0 from postrider.ready where key = '0'";
    fixture.run(make).await;
    let mut owner = fixture.begin().await;
    owner.execute("delete from postrider.lane").await.unwrap();

    let store = fixture.store.clone();
    let claim = tokio::spawn(async move { store.claim(&ClaimRequest::new(orders(), 1)).await.unwrap() });
    fixture.database.somebody_waits().await;
    fixture.commit(owner).await;
    assert_eq!(claim.await.unwrap().len(), 1);
    assert_eq!(fixture.store.claim(&ClaimRequest::new(orders(), 10)).await.unwrap().len(), 1);
}

/// A retry that is due soon is not moved, is listed as waiting, and is claimed first when it is due, although the claimer has enough
/// messages above its low-water mark and rarely looks back.
#[tokio::test]
async fn short_retry_waits_in_place_and_is_redelivered() {
    let fixture = PostgresFixture::new().await;
    let staged = stage(&fixture, 1_000).await;
    let request = ClaimRequest::new(orders(), 10);
    let first = fixture.store.claim(&request).await.unwrap();
    let places: Vec<_> = first.iter().map(|claimed| claimed.lease.position()).collect();
    let (concurrency, soon) = first.split_at(5);
    let again = concurrency.iter().map(|claimed| claimed.lease.retry(Duration::ZERO, "busy"));
    let later = soon.iter().map(|claimed| claimed.lease.retry(Duration::from_secs(4), "busy"));
    assert_eq!(fixture.store.settle(&again.chain(later).collect::<Vec<_>>()).await.unwrap(), []);

    let counts = fixture.store.counts().await.unwrap()[&orders()];
    assert_eq!((counts.pending.at_least, counts.leased.at_least, counts.scheduled.at_least), (995, 0, 5));
    let page = fixture.store.list(&ListRequest::new(orders(), StateFilter::Ready)).await.unwrap();
    let states: Vec<_> = page.entries[..10].iter().map(|entry| (entry.state, entry.attempts)).collect();
    assert_eq!(states, [[(State::Pending, 1); 5], [(State::Scheduled, 1); 5]].concat());

    let second = fixture.store.claim(&request).await.unwrap();
    assert_eq!(ids(&second), [&staged[..5], &staged[10..15]].concat());
    assert_eq!(
        second.iter().map(|claimed| claimed.lease.position()).take(5).collect::<Vec<_>>(),
        places[..5]
    );
    assert_eq!((second[0].attempts, second[0].deliveries), (1, 2));
    // Another process does not remember them.
    let other = fixture.another_store().await;
    fixture.advance(Duration::from_secs(4)).await;
    assert_eq!(ids(&other.claim(&request).await.unwrap())[..5], staged[5..10]);
}

/// A retry that waits in place is not in flight.
#[tokio::test]
async fn retry_waiting_in_place_can_be_discarded() {
    let fixture = PostgresFixture::new().await;
    let staged = stage(&fixture, 2).await;
    let claimed = fixture.store.claim(&ClaimRequest::new(orders(), 1)).await.unwrap();
    fixture.store.settle(&[claimed[0].lease.retry(Duration::from_secs(4), "busy")]).await.unwrap();
    let action = Action::new("operator", "no longer wanted");
    assert_eq!(fixture.store.discard(&orders(), &staged[..1], &action).await.unwrap(), staged[..1]);
    assert_eq!(fixture.store.get(&orders(), staged[0]).await.unwrap(), None);
}

/// Every future is dropped after each number of polls: no transaction stays open, and no message is lost.
#[tokio::test]
async fn cancelled_claim_or_settle_loses_no_message() {
    for policy in [QueuePolicy::default(), QueuePolicy::by_key(OnFailure::Block)] {
        let fixture = PostgresFixture::new().await;
        fixture.store.declare(&orders(), &policy).await.unwrap();
        let mut waiting: BTreeSet<_> = stage(&fixture, 60).await.into_iter().collect();
        let lease = Duration::from_secs(60);
        let request = ClaimRequest::new(orders(), 5).with_lease_for(lease);
        for polls in 1..25 {
            cancel(fixture.store.claim(&request), polls).await;
            fixture.advance(lease).await;
            let claimed = fixture.store.claim(&request).await.unwrap();
            let done: Vec<_> = claimed.iter().map(|claimed| claimed.lease.done()).collect();
            cancel(fixture.store.settle(&done), polls).await;
            fixture.advance(lease).await;
        }
        let open = sqlx::query(
            "select count(*) from pg_stat_activity where state like 'idle in transaction%' and datname = current_database()",
        );
        assert_eq!(open.fetch_one(&fixture.app).await.unwrap().get::<i64, _>(0), 0);
        // Only the database knows the result of a cancelled call, which may still be running: the lease of a late claim expires.
        loop {
            let left = sqlx::query("select message_id from postrider.ready").fetch_all(&fixture.app).await;
            let left: BTreeSet<_> =
                left.unwrap().iter().map(|row| MessageId::from_uuid(row.get(0))).collect();
            assert!(left.is_subset(&waiting), "what was settled came back");
            waiting = left;
            if waiting.is_empty() {
                break;
            }
            fixture.advance(lease).await;
            let claimed = fixture.store.claim(&request).await.unwrap();
            let done: Vec<_> = claimed.iter().map(|claimed| claimed.lease.done()).collect();
            fixture.store.settle(&done).await.unwrap();
        }
    }
}

async fn cancel(future: impl Future, polls: usize) {
    let mut future = pin!(future);
    for _ in 0..polls {
        if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        // Lets the driver read the server's replies.
        tokio::task::yield_now().await;
    }
}

/// Pruning drops the partition of a past day as a whole.
#[tokio::test]
async fn prune_drops_archive_partition_of_past_day() {
    let fixture = PostgresFixture::new().await;
    let days = Duration::from_secs(30 * 86_400);
    fixture.store.declare(&orders(), &QueuePolicy::default().with_keep_for(days)).await.unwrap();
    stage(&fixture, 3).await;
    let claimed = fixture.store.claim(&ClaimRequest::new(orders(), 10)).await.unwrap();
    fixture
        .store
        .settle(&claimed.iter().map(|claimed| claimed.lease.done()).collect::<Vec<_>>())
        .await
        .unwrap();
    let partitions = async || {
        let sql = "select c.relname::text, (select count(*) from postrider.archive a where a.tableoid = c.oid) \
                   from pg_class c join pg_inherits i on i.inhrelid = c.oid \
                   where i.inhparent = 'postrider.archive'::regclass order by 1";
        let rows = sqlx::query(sql).fetch_all(&fixture.app).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect::<Vec<(String, i64)>>()
    };
    let before = partitions().await;
    assert_eq!(before.len(), 4, "three days ahead, and the rest: {before:?}");
    assert_eq!(before[0].1, 3, "what was kept lies in its day: {before:?}");
    fixture
        .run(
            "create table postrider.archive_20200101 partition of postrider.archive \
             for values from ('2020-01-01') to ('2020-01-02')",
        )
        .await;
    fixture
        .run(
            "insert into postrider.archive (id, staged_at, due_at, expires_at, message_id, attempts, deliveries, queue, \
             ordered, payload) select 1, now(), now(), '2020-01-01 12:00+00', gen_random_uuid(), 0, 1, 1, false, '' \
             from generate_series(1, 7)",
        )
        .await;
    fixture.run("analyze postrider.archive_20200101").await;

    assert_eq!(fixture.store.prune(&PruneRequest::new()).await.unwrap().archived, 7);
    assert_eq!(partitions().await, before);
    assert_eq!(fixture.store.validate().await.unwrap(), []);
}

/// A producer did not know yet that its queue is ordered: its message joins its key all the same.
#[tokio::test]
async fn message_staged_as_unordered_joins_its_key_on_ordered_queue() {
    let fixture = PostgresFixture::new().await;
    fixture.store.declare(&orders(), &QueuePolicy::by_key(OnFailure::Block)).await.unwrap();
    let staged = stage(&fixture, 4).await;
    fixture.run("update postrider.ready set ordered = false, key = null where id % 2 = 0").await;

    let claimed = fixture.store.claim(&ClaimRequest::new(orders(), 10)).await.unwrap();
    assert_eq!(ids(&claimed), staged);
    assert!(claimed.iter().all(|claimed| claimed.lease.turn().is_some()));
}

/// Two transactions use a new queue at the same time: the second waits for the first and then uses its queue.
#[tokio::test]
async fn concurrent_first_use_creates_queue_once() {
    let fixture = PostgresFixture::new().await;
    let outbox = fixture.outbox();
    let mut first = fixture.begin().await;
    outbox.stage(&mut first, Message::builder("orders").json(&1)).await.unwrap();
    let second = async {
        let mut second = fixture.begin().await;
        outbox.stage(&mut second, Message::builder("orders").json(&2)).await.unwrap();
        fixture.commit(second).await;
    };
    tokio::join!(second, fixture.commit(first));

    assert_eq!(fixture.store.claim(&ClaimRequest::new(orders(), 10)).await.unwrap().len(), 2);
    let queues = sqlx::query("select count(*) from postrider.queue").fetch_one(&fixture.app).await.unwrap();
    assert_eq!(queues.get::<i64, _>(0), 1);
}

/// A backlog far deeper than one claim reads, with a hot key in front: every message is claimed, in the order of its key, and the hot
/// key does not delay the others.
#[tokio::test]
async fn deep_backlog_with_hot_key_is_claimed_in_order_and_fairly() {
    let fixture = PostgresFixture::new().await;
    fixture.store.declare(&orders(), &QueuePolicy::by_key(OnFailure::Block)).await.unwrap();
    let message = |key: String, n: usize| Message::builder("orders").key(key).json(&n).build().unwrap();
    let busy = (0..10_000).map(|n| message("busy".to_owned(), n));
    let batch: Vec<_> = busy.chain((0..10_000).map(|n| message(format!("key-{}", n % 500), n))).collect();
    let mut tx = fixture.begin().await;
    fixture.outbox().stage_all(&mut tx, &batch).await.unwrap();
    fixture.commit(tx).await;

    let request = ClaimRequest::new(orders(), 500);
    let (mut left, mut busy_before_others) = (batch.len(), 0);
    let mut last: HashMap<OrderingKey, i64> = HashMap::new();
    let mut others = 10_000;
    while left > 0 {
        let claimed = fixture.store.claim(&request).await.unwrap();
        assert!(!claimed.is_empty(), "{left} messages are left and none is claimed");
        for claimed in &claimed {
            let turn = claimed.lease.turn().unwrap();
            let before = last.insert(turn.key.clone(), turn.position);
            assert!(before.is_none_or(|before| before < turn.position), "{} came out of order", claimed.id());
            match turn.key.as_str() {
                "busy" if others > 0 => busy_before_others += 1,
                "busy" => {}
                _ => others -= 1,
            }
        }
        left -= claimed.len();
        let done: Vec<_> = claimed.iter().map(|claimed| claimed.lease.done()).collect();
        assert_eq!(fixture.store.settle(&done).await.unwrap(), []);
    }
    assert!(
        busy_before_others < 9_000,
        "{busy_before_others} messages of the busy key came before the last of the others"
    );
}

/// The position below which no transaction can still write may lie above undiscovered messages: the cursor of a new lane must not
/// skip them.
#[tokio::test]
async fn new_lane_skips_no_undiscovered_message() {
    let fixture = PostgresFixture::new().await;
    fixture.store.declare(&orders(), &QueuePolicy::by_key(OnFailure::Block)).await.unwrap();
    stage(&fixture, 6).await;
    let far_floor = 1_000_000_i64;
    let sql = "select key, id from postrider.claim_lanes(1::smallint, gen_random_uuid(), 60, 100, 10, 0, '{}', '{}', 100, $1, 0) \
               where not header";
    let rows = sqlx::query(sql).bind(far_floor).fetch_all(&fixture.app).await.unwrap();
    assert_eq!(rows.len(), 6);
}
