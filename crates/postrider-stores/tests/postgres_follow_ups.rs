//! Follow-ups in PostgreSQL: one runner is told that a group is done with, whoever lands at the same moment; nothing of a payload stays;
//! and what is kept of a subject goes, wherever it is.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/postgres.rs"]
mod support;

use postrider_core::{
    Audit, AuditEvent, AuditKind, ClaimRequest, Claimed, Error, FollowUp, FollowUpExt, FollowUps, Lease,
    LeaseToken, Message, MessageId, OnFailure, Ordering, Outbox, QueueName, QueuePolicy, Reason, Reference,
    Store, SubjectId, TenantId,
    audit::verify,
    follow_up::{Docket, Erased, Follow, Group, Landing, QUEUE, Status, StatusCounts, Which, has_forgotten},
    inspect::{Action, Entry, Inspect, Operate},
    schema::Schema,
    transact::Transact,
};
use postrider_stores::postgres::{PostgresStore, PostgresTransactions};
use postrider_testkit::{Fixture, TransactFixture};
use sqlx::{AssertSqlSafe, Executor, PgPool, Postgres, Row, Transaction, postgres::PgPoolOptions};
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};
use support::PostgresFixture;
use tokio::sync::Barrier;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

fn queue() -> QueueName {
    QueueName::new(QUEUE).unwrap()
}

fn subject(name: &str) -> SubjectId {
    SubjectId::new(name).unwrap()
}

fn action() -> Action {
    Action::new("ada", "asked to be forgotten")
}

fn erase(subject: &str, resolver: &str) -> FollowUp {
    FollowUp::new(subject, resolver, "erase", Reference::new("customer", "cus_1")).unwrap()
}

fn with_payload(subject: &str) -> FollowUp {
    erase(subject, "payments").with_json(&"secret").unwrap()
}

fn group(subject: &str) -> Group {
    erase(subject, "payments").group()
}

async fn stage(fixture: &PostgresFixture, follow_ups: impl IntoIterator<Item = FollowUp>) {
    let mut tx = fixture.begin().await;
    fixture.outbox().follow_up(&mut tx, follow_ups).await.unwrap();
    fixture.commit(tx).await;
}

async fn claim(store: &PostgresStore, limit: usize) -> Vec<Claimed> {
    let request = ClaimRequest::new(queue(), limit).with_lease_for(Duration::from_secs(600));
    let mut claimed = Vec::new();
    while claimed.len() < limit {
        let more = store.claim(&request).await.unwrap();
        assert!(!more.is_empty(), "{} of {limit}", claimed.len());
        claimed.extend(more);
    }
    claimed
}

async fn claim_one(fixture: &PostgresFixture) -> Lease {
    claim(&fixture.store, 1).await.remove(0).lease
}

async fn get(fixture: &PostgresFixture, id: MessageId) -> Option<Entry> {
    fixture.store.get(&queue(), id).await.unwrap()
}

/// Lands in a transaction of its own, which commits.
async fn land(transactions: &PostgresTransactions, lease: &Lease, group: &Group) -> Landing {
    let mut tx = transactions.begin().await.unwrap();
    let landing = transactions.land(&mut tx, lease, group).await.unwrap();
    transactions.commit(tx).await.unwrap();
    landing
}

async fn counts(fixture: &PostgresFixture) -> StatusCounts {
    fixture.store.status_counts(&queue()).await.unwrap()
}

fn counted(counts: impl IntoIterator<Item = (Status, u64)>) -> StatusCounts {
    let mut all = StatusCounts::default();
    all.extend(counts);
    all
}

/// Two runners, each with its own connections, finish the last two follow-ups of a subject at the same moment, a thousand times.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_that_land_the_last_ones_exactly_one_is_told() {
    const SUBJECTS: usize = 1_000;
    let fixture = PostgresFixture::new().await;
    let both = (0..SUBJECTS)
        .flat_map(|n| ["crm", "payments"].map(|resolver| erase(&format!("customer-{n}"), resolver)));
    stage(&fixture, both).await;
    let mut claimed = claim(&fixture.store, 2 * SUBJECTS).await;
    claimed.sort_by_key(|claimed| claimed.message.subject().cloned());
    let barrier = Arc::new(Barrier::new(2));
    let mut runners = Vec::new();
    for half in 0..2 {
        let mine: Vec<_> = claimed.iter().skip(half).step_by(2).cloned().collect();
        let store = PostgresStore::connect(fixture.database.url()).await.unwrap();
        let pool = PgPool::connect(fixture.database.url()).await.unwrap();
        let (transactions, barrier) = (store.transactions(pool), Arc::clone(&barrier));
        runners.push(tokio::spawn(async move {
            let mut last = Vec::new();
            for claimed in mine {
                let group = FollowUp::read(&claimed.message).unwrap().group();
                let mut tx = transactions.begin().await.unwrap();
                barrier.wait().await;
                let landing = transactions.land(&mut tx, &claimed.lease, &group).await.unwrap();
                assert_ne!(landing, Landing::Lost);
                let mut events = vec![AuditEvent::new(AuditKind::Succeeded)];
                if landing == Landing::Last {
                    events.push(AuditEvent::new(AuditKind::Completed));
                    last.push(group.subject);
                }
                transactions.record(&mut tx, &events).await.unwrap();
                transactions.commit(tx).await.unwrap();
            }
            last
        }));
    }
    let mut last = Vec::new();
    for runner in runners {
        last.extend(runner.await.unwrap());
    }
    assert_eq!(last.len(), SUBJECTS);
    last.sort_unstable();
    last.dedup();
    assert_eq!(last.len(), SUBJECTS, "one of each subject");
    assert_eq!(counts(&fixture).await, StatusCounts::default());
    assert_eq!(verify(&fixture.store.ledger(), None).await.unwrap().position, 3 * SUBJECTS as u64);
}

/// Ends a claim and asks whether anything is left, as `land` does, but without the lock of the group.
async fn land_without_the_lock(
    transactions: &PostgresTransactions,
    tx: &mut Transaction<'static, Postgres>,
    lease: &Lease,
) -> bool {
    assert!(transactions.settle_in(tx, &lease.done()).await.unwrap());
    let ask = sqlx::query(
        "select postrider.is_last(id, $1, false, null, 'customer-17', 'erase') from postrider.queue where name = $2",
    );
    ask.bind(lease.id().as_uuid()).bind(QUEUE).fetch_one(&mut **tx).await.unwrap().get(0)
}

/// The negative control: without the lock, neither of the two is told. With it, the second waits, and then sees what the first has done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_lock_of_the_group_nobody_is_told() {
    let fixture = PostgresFixture::new().await;
    let transactions = fixture.transactions();
    stage(&fixture, [erase("customer-17", "crm"), erase("customer-17", "payments")]).await;
    let claimed = claim(&fixture.store, 2).await;
    let mut first = transactions.begin().await.unwrap();
    let mut second = transactions.begin().await.unwrap();
    let told = [
        land_without_the_lock(&transactions, &mut first, &claimed[0].lease).await,
        land_without_the_lock(&transactions, &mut second, &claimed[1].lease).await,
    ];
    transactions.commit(first).await.unwrap();
    transactions.commit(second).await.unwrap();
    assert_eq!(told, [false, false], "each still saw the other's");
    assert_eq!(counts(&fixture).await, StatusCounts::default(), "and yet nothing is left");

    stage(&fixture, [erase("customer-17", "crm"), erase("customer-17", "payments")]).await;
    let claimed = claim(&fixture.store, 2).await;
    let mut first = transactions.begin().await.unwrap();
    let landed = transactions.land(&mut first, &claimed[0].lease, &group("customer-17")).await.unwrap();
    assert_eq!(landed, Landing::Open);
    let mut second = transactions.begin().await.unwrap();
    // The name by which those who wait are looked for.
    second.execute("set local application_name = 'postrider'").await.unwrap();
    let (waiting, lease) = (transactions.clone(), claimed[1].lease.clone());
    let waiting = tokio::spawn(async move {
        let landed = waiting.land(&mut second, &lease, &group("customer-17")).await.unwrap();
        waiting.commit(second).await.unwrap();
        landed
    });
    fixture.database.somebody_waits().await;
    transactions.commit(first).await.unwrap();
    assert_eq!(waiting.await.unwrap(), Landing::Last);
}

/// Whoever rolls back has told nobody.
#[tokio::test]
async fn a_landing_that_is_rolled_back_is_told_again() {
    let fixture = PostgresFixture::new().await;
    let transactions = fixture.transactions();
    stage(&fixture, [erase("customer-17", "crm")]).await;
    let lease = claim_one(&fixture).await;
    let mut tx = transactions.begin().await.unwrap();
    assert_eq!(transactions.land(&mut tx, &lease, &group("customer-17")).await.unwrap(), Landing::Last);
    transactions.rollback(tx).await.unwrap();
    assert_eq!(land(&transactions, &lease, &group("customer-17")).await, Landing::Last);
}

/// Others of the same subject hold a group open only if they are of the same queue, tenant and operation.
#[tokio::test]
async fn a_group_is_one_subject_of_one_tenant_and_one_operation_in_one_queue() {
    let fixture = PostgresFixture::new().await;
    let transactions = fixture.transactions();
    let reference = || Reference::new("customer", "cus_1");
    let rectify = FollowUp::new("customer-17", "crm", "rectify", reference()).unwrap();
    let elsewhere = erase("customer-17", "crm").in_queue(QueueName::new("elsewhere").unwrap());
    let theirs = erase("customer-17", "crm").of_tenant(TenantId::new("acme").unwrap());
    stage(&fixture, [erase("customer-17", "crm")]).await;
    let lease = claim_one(&fixture).await;
    stage(&fixture, [rectify, elsewhere, theirs.clone(), erase("customer-1", "crm")]).await;
    assert_eq!(land(&transactions, &lease, &group("customer-17")).await, Landing::Last);
    // Tenants, too, have groups.
    let claimed = claim(&fixture.store, 3).await;
    stage(&fixture, [theirs.clone(), erase("customer-17", "crm")]).await;
    let of = |claimed: &&Claimed| claimed.message.tenant().is_some();
    let lease = &claimed.iter().find(of).unwrap().lease;
    assert_eq!(land(&transactions, lease, &theirs.group()).await, Landing::Open);
}

/// Where a follow-up may be that has not landed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whereabouts {
    Released,
    InHand,
    RetriedInPlace,
    RetriedLater,
    PutOff,
    GivenUp,
    Requeued,
}

#[tokio::test]
async fn whatever_has_not_landed_holds_its_group_open() {
    use Whereabouts::*;
    let fixture = PostgresFixture::new().await;
    let transactions = fixture.transactions();
    for whereabouts in [Released, InHand, RetriedInPlace, RetriedLater, PutOff, GivenUp, Requeued] {
        stage(&fixture, [erase("customer-17", "crm"), erase("customer-17", "payments")]).await;
        let claimed = claim(&fixture.store, 2).await;
        let (lands, other) = (&claimed[0].lease, &claimed[1].lease);
        let settle = async |settle| assert_eq!(fixture.store.settle(&[settle]).await.unwrap(), []);
        match whereabouts {
            Released => settle(other.release()).await,
            InHand => {}
            RetriedInPlace => settle(other.retry(Duration::from_secs(4), "again")).await,
            RetriedLater => settle(other.retry(MINUTE, "again")).await,
            PutOff | GivenUp | Requeued => {
                let mut tx = transactions.begin().await.unwrap();
                if whereabouts == PutOff {
                    let until = transactions.schedule(&mut tx, other, SystemTime::now() + DAY, MINUTE).await;
                    assert!(until.unwrap().is_some());
                } else {
                    assert!(transactions.abandon(&mut tx, other, Reason::Rejected, "no").await.unwrap());
                }
                transactions.commit(tx).await.unwrap();
            }
        }
        if whereabouts == Requeued {
            fixture.store.requeue(&queue(), &[other.id()], &action()).await.unwrap();
        }
        let landing = land(&transactions, lands, &group("customer-17")).await;
        assert_eq!(landing, Landing::Open, "{whereabouts:?}");
        fixture
            .run("delete from postrider.ready; delete from postrider.later; delete from postrider.dead")
            .await;
    }
}

/// Every ending is guarded by the token of the claim.
#[tokio::test]
async fn a_stale_lease_changes_nothing() {
    let fixture = PostgresFixture::new().await;
    let transactions = fixture.transactions();
    fixture.store.declare(&queue(), &QueuePolicy::default().with_keep_for(DAY)).await.unwrap();
    stage(&fixture, [with_payload("customer-17")]).await;
    let lease = claim_one(&fixture).await;
    let nowhere = Lease::new(QueueName::new("nowhere").unwrap(), lease.id(), lease.token());
    let dump = "select coalesce(string_agg(r::text, chr(10)), '') from (select r::text from postrider.ready r \
        union all select r::text from postrider.later r union all select r::text from postrider.dead r \
        union all select r::text from postrider.archive r) r";
    let state = async || sqlx::query(dump).fetch_one(&fixture.app).await.unwrap().get::<String, _>(0);
    let before = state().await;
    for stale in [Lease::new(queue(), lease.id(), LeaseToken::fresh()), nowhere] {
        let mut tx = transactions.begin().await.unwrap();
        let landing = transactions.land(&mut tx, &stale, &group("customer-17")).await.unwrap();
        assert_eq!(landing, Landing::Lost);
        assert!(!transactions.abandon(&mut tx, &stale, Reason::Rejected, "no").await.unwrap());
        let until = transactions.schedule(&mut tx, &stale, SystemTime::now(), MINUTE).await.unwrap();
        assert_eq!(until, None);
        transactions.commit(tx).await.unwrap();
    }
    assert_eq!(state().await, before);
    // Each ending spends it.
    assert_eq!(land(&transactions, &lease, &group("customer-17")).await, Landing::Last);
    let after = state().await;
    assert_eq!(land(&transactions, &lease, &group("customer-17")).await, Landing::Lost);
    assert_eq!(state().await, after);
}

#[tokio::test]
async fn what_has_ended_keeps_no_payload() {
    let fixture = PostgresFixture::new().await;
    let transactions = fixture.transactions();
    fixture.store.declare(&queue(), &QueuePolicy::default().with_keep_for(DAY)).await.unwrap();
    let plain = with_payload("d").with_payload(&b"bytes"[..], "application/octet-stream");
    stage(&fixture, [with_payload("a"), with_payload("b"), erase("c", "crm"), plain, erase("e", "crm")])
        .await;
    let claimed = claim(&fixture.store, 5).await;
    for (claimed, lands) in claimed.iter().zip([true, false, true, true, false]) {
        let mut tx = transactions.begin().await.unwrap();
        if lands {
            let group = FollowUp::read(&claimed.message).unwrap().group();
            assert_eq!(transactions.land(&mut tx, &claimed.lease, &group).await.unwrap(), Landing::Last);
        } else {
            assert!(
                transactions.abandon(&mut tx, &claimed.lease, Reason::Rejected, "refused").await.unwrap()
            );
        }
        transactions.commit(tx).await.unwrap();
    }
    let mut had = Vec::new();
    for claimed in &claimed {
        let entry = get(&fixture, claimed.id()).await.unwrap();
        assert!(entry.message.payload().is_empty());
        assert_eq!(entry.message.headers(), claimed.message.headers());
        had.push((has_forgotten(&entry.message), entry.message.content_type().to_owned()));
    }
    let had: Vec<_> = had.iter().map(|(forgotten, kind)| (*forgotten, kind.as_str())).collect();
    let (json, bytes) = ("application/json", "application/octet-stream");
    assert_eq!(had, [(true, json), (true, json), (false, json), (true, bytes), (false, json)]);
    assert_eq!(counts(&fixture).await, counted([(Status::Succeeded, 3), (Status::Abandoned, 2)]));
}

/// Where dead letters are not kept, nothing is, and the group is done without it.
#[tokio::test]
async fn what_is_given_up_is_gone_where_dead_letters_are_not_kept() {
    let fixture = PostgresFixture::new().await;
    let transactions = fixture.transactions();
    fixture.store.declare(&queue(), &QueuePolicy::default().without_dead_letters()).await.unwrap();
    stage(&fixture, [with_payload("customer-17")]).await;
    let lease = claim_one(&fixture).await;
    let mut tx = transactions.begin().await.unwrap();
    assert!(transactions.abandon(&mut tx, &lease, Reason::Rejected, "refused").await.unwrap());
    transactions.commit(tx).await.unwrap();
    assert_eq!(get(&fixture, lease.id()).await, None);
}

#[tokio::test]
async fn what_is_put_off_starts_afresh_and_not_before_its_time() {
    let fixture = PostgresFixture::new().await;
    let transactions = fixture.transactions();
    stage(&fixture, [with_payload("customer-17")]).await;
    // With a failure behind it, so that there is something to reset.
    let lease = claim_one(&fixture).await;
    fixture.store.settle(&[lease.retry(MINUTE, "oops")]).await.unwrap();
    fixture.advance(MINUTE).await;
    let lease = claim_one(&fixture).await;
    let at = SystemTime::now() + DAY;
    let mut tx = transactions.begin().await.unwrap();
    let until = transactions.schedule(&mut tx, &lease, at, MINUTE).await.unwrap().unwrap();
    transactions.commit(tx).await.unwrap();
    assert!(until >= at && until < at + Duration::from_micros(2), "{until:?} is not {at:?}");
    let entry = get(&fixture, lease.id()).await.unwrap();
    assert_eq!((entry.attempts, entry.deliveries, entry.error, entry.at), (0, 0, None, until));
    assert!(!entry.message.payload().is_empty(), "it is still needed");
    assert_eq!(counts(&fixture).await, counted([(Status::Scheduled, 1)]));
    fixture.advance(DAY - MINUTE).await;
    assert_eq!(fixture.store.claim(&ClaimRequest::new(queue(), 1)).await.unwrap(), []);
    fixture.advance(MINUTE).await;
    assert_eq!(counts(&fixture).await, counted([(Status::Pending, 1)]));
    let claimed = claim(&fixture.store, 1).await.remove(0);
    assert_eq!((claimed.id(), claimed.deliveries), (lease.id(), 1));
}

/// A time that has passed, or is too near or too far for any calendar, is moved to where it may be. Short ones wait like long ones.
#[tokio::test]
async fn a_time_that_cannot_be_is_moved() {
    let fixture = PostgresFixture::new().await;
    let transactions = fixture.transactions();
    let (now, century) = (SystemTime::now(), Duration::from_secs(100 * 366 * 24 * 60 * 60));
    for (not_before, at_least, expected) in [
        (SystemTime::UNIX_EPOCH - DAY, MINUTE, MINUTE),
        (SystemTime::UNIX_EPOCH - Duration::from_secs(1 << 50), MINUTE, MINUTE),
        (now, MINUTE, MINUTE),
        (now - DAY, Duration::from_secs(2), Duration::from_secs(2)),
        (now + Duration::from_secs(1 << 50), MINUTE, century),
        (now, Duration::MAX, century),
    ] {
        stage(&fixture, [erase("customer-17", "crm")]).await;
        let lease = claim_one(&fixture).await;
        let read = async || {
            let row = sqlx::query("select extract(epoch from clock_timestamp())::float8")
                .fetch_one(&fixture.app)
                .await;
            SystemTime::UNIX_EPOCH + Duration::from_secs_f64(row.unwrap().get(0))
        };
        let before = read().await;
        let mut tx = transactions.begin().await.unwrap();
        let until = transactions.schedule(&mut tx, &lease, not_before, at_least).await.unwrap().unwrap();
        transactions.commit(tx).await.unwrap();
        let slack = Duration::from_micros(10);
        assert!(
            until + slack >= before + expected && until <= read().await + expected + slack,
            "{not_before:?}: {until:?}"
        );
        assert_eq!(get(&fixture, lease.id()).await.unwrap().at, until);
        assert_eq!(fixture.store.claim(&ClaimRequest::new(queue(), 1)).await.unwrap(), []);
        fixture.store.discard(&queue(), &[lease.id()], &action()).await.unwrap();
    }
}

/// In a stricter isolation nobody would see that the others have ended.
#[tokio::test]
async fn landing_needs_read_committed_and_says_so() {
    let fixture = PostgresFixture::new().await;
    stage(&fixture, [erase("customer-17", "crm")]).await;
    let lease = claim_one(&fixture).await;
    for isolation in ["repeatable read", "serializable"] {
        let set = format!("set default_transaction_isolation = '{isolation}'");
        let pool = PgPoolOptions::new().max_connections(1).connect(fixture.database.url()).await.unwrap();
        pool.execute(AssertSqlSafe(set)).await.unwrap();
        let strict = fixture.store.transactions(pool);
        let mut tx = strict.begin().await.unwrap();
        let refused = strict.land(&mut tx, &lease, &group("customer-17")).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
        assert!(
            refused.to_string().contains(isolation) && refused.to_string().contains("read_committed"),
            "{refused}"
        );
        strict.rollback(tx).await.unwrap();
        let right = strict.read_committed();
        let mut tx = right.begin().await.unwrap();
        assert_eq!(right.land(&mut tx, &lease, &group("customer-17")).await.unwrap(), Landing::Last);
        right.rollback(tx).await.unwrap();
    }
}

/// Follow-ups wait in unordered queues: on an ordered one, what failed would hold its key.
#[tokio::test]
async fn an_ordered_queue_is_refused() {
    let fixture = PostgresFixture::new().await;
    let transactions = fixture.transactions();
    let ordered = QueuePolicy { ordering: Ordering::ByKey(OnFailure::Block), ..QueuePolicy::default() };
    fixture.store.declare(&queue(), &ordered).await.unwrap();
    stage(&fixture, [erase("customer-17", "crm")]).await;
    let lease = claim_one(&fixture).await;
    let mut tx = transactions.begin().await.unwrap();
    let refused = transactions.land(&mut tx, &lease, &group("customer-17")).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    let refused = transactions.abandon(&mut tx, &lease, Reason::Rejected, "no").await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    let refused = transactions.schedule(&mut tx, &lease, SystemTime::now(), MINUTE).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}

/// One of each, and every count is what a look at each message says.
#[tokio::test]
async fn counts_are_exact_and_name_every_status() {
    let fixture = PostgresFixture::new().await;
    let transactions = fixture.transactions();
    let nowhere = fixture.store.status_counts(&QueueName::new("nowhere").unwrap()).await.unwrap();
    assert_eq!(nowhere, StatusCounts::default());
    assert_eq!(nowhere.iter().count(), Status::ALL.len());
    fixture.store.declare(&queue(), &QueuePolicy::default().with_keep_for(DAY)).await.unwrap();
    stage(&fixture, (0..20).map(|n| erase(&format!("customer-{n}"), "crm"))).await;
    let claimed = claim(&fixture.store, 20).await;
    for (n, claimed) in claimed.iter().enumerate() {
        let lease = &claimed.lease;
        let mut tx = transactions.begin().await.unwrap();
        match n {
            0..3 => {
                let group = FollowUp::read(&claimed.message).unwrap().group();
                transactions.land(&mut tx, lease, &group).await.unwrap();
            }
            3..5 => assert!(transactions.abandon(&mut tx, lease, Reason::Rejected, "refused").await.unwrap()),
            5..9 => {
                transactions.schedule(&mut tx, lease, SystemTime::now() + DAY, MINUTE).await.unwrap();
            }
            _ => {}
        }
        transactions.commit(tx).await.unwrap();
    }
    // Failed: in place and in the other room; one has its time, and nobody has it yet. Some are released, the rest in hand.
    let retries: Vec<_> =
        (9..14).map(|n| claimed[n].lease.retry(MINUTE * u32::from(n > 11), "timeout")).collect();
    assert_eq!(fixture.store.settle(&retries).await.unwrap(), []);
    let released: Vec<_> = (14..16).map(|n| claimed[n].lease.release()).collect();
    assert_eq!(fixture.store.settle(&released).await.unwrap(), []);
    stage(&fixture, [erase("new", "crm"), erase("timed", "crm").not_before(SystemTime::now() + 2 * DAY)])
        .await;
    let expected = counted([
        (Status::Succeeded, 3),
        (Status::Abandoned, 2),
        (Status::Scheduled, 5),
        (Status::Failed, 5),
        (Status::Pending, 3),
        (Status::InFlight, 4),
    ]);
    assert_eq!(counts(&fixture).await, expected);

    // A lease that lapsed is still that of a runner's; times that pass make things due.
    fixture.advance(3 * DAY).await;
    let scheduled_is_pending = counted([
        (Status::Succeeded, 3),
        (Status::Abandoned, 2),
        (Status::Failed, 5),
        (Status::Pending, 8),
        (Status::InFlight, 4),
    ]);
    assert_eq!(counts(&fixture).await, scheduled_is_pending);
    let overdue = fixture.store.dockets(&queue(), Which::Overdue(DAY), 100).await.unwrap();
    let scan = overdue.iter().map(|docket| (docket.status, 1)).chain([(Status::Succeeded, 3)]);
    assert_eq!(counted(scan), scheduled_is_pending, "message by message");
}

#[tokio::test]
async fn dockets_come_in_the_order_of_what_is_asked() {
    let fixture = PostgresFixture::new().await;
    let transactions = fixture.transactions();
    let at = |days: u32| SystemTime::now() + DAY * days;
    stage(&fixture, [3, 1, 2].map(|days| erase(&format!("in {days}"), "crm").not_before(at(days)))).await;
    stage(&fixture, ["first", "second", "third"].map(with_payload)).await;
    let claimed = claim(&fixture.store, 3).await;
    for (claimed, error) in claimed.iter().zip(["refused", "timeout", "gone"]) {
        let mut tx = transactions.begin().await.unwrap();
        assert!(transactions.abandon(&mut tx, &claimed.lease, Reason::Rejected, error).await.unwrap());
        transactions.commit(tx).await.unwrap();
    }
    let names = |dockets: &[Docket]| {
        let name = |docket: &Docket| docket.message.subject().unwrap().as_str().to_owned();
        dockets.iter().map(name).collect::<Vec<_>>()
    };
    let dockets = async |which, limit| fixture.store.dockets(&queue(), which, limit).await.unwrap();
    let abandoned = dockets(Which::Abandoned, 2).await;
    assert_eq!(names(&abandoned), ["first", "second"]);
    let first = &abandoned[0];
    assert_eq!((first.id, first.status, first.deliveries), (claimed[0].id(), Status::Abandoned, 1));
    assert_eq!(first.error.as_deref(), Some("refused"));
    assert!(has_forgotten(&first.message) && first.staged_at < first.at);
    assert!(FollowUp::read(&first.message).is_ok());
    let scheduled = dockets(Which::Scheduled, 10).await;
    assert_eq!(names(&scheduled), ["in 1", "in 2", "in 3"]);
    assert!(scheduled.iter().all(|docket| docket.status == Status::Scheduled && docket.deliveries == 0));
    assert_eq!(dockets(Which::Overdue(MINUTE), 10).await, []);
    assert_eq!(dockets(Which::Overdue(Duration::MAX), 10).await, []);
    let overdue = dockets(Which::Overdue(Duration::ZERO), 4).await;
    assert_eq!(names(&overdue), ["in 3", "in 1", "in 2", "first"], "the oldest first");
    assert_eq!(dockets(Which::Abandoned, 0).await, []);
    let nowhere = fixture.store.dockets(&QueueName::new("nowhere").unwrap(), Which::Abandoned, 1).await;
    assert_eq!(nowhere.unwrap(), []);
}

fn about(queue: &str, name: &str) -> postrider_core::MessageBuilder {
    Message::builder(queue).subject(name).json(&name)
}

async fn stage_messages(
    fixture: &PostgresFixture,
    messages: impl IntoIterator<Item = postrider_core::MessageBuilder>,
) {
    let messages: Vec<_> = messages.into_iter().map(|message| message.build().unwrap()).collect();
    let mut tx = fixture.begin().await;
    fixture.outbox().stage_all(&mut tx, &messages).await.unwrap();
    fixture.commit(tx).await;
}

/// What is left about a subject, by table, with what is in hand and with whomever it is.
async fn left(fixture: &PostgresFixture, name: &str) -> i64 {
    let count = "select (select count(*) from postrider.ready where subject = $1) \
        + (select count(*) from postrider.later where subject = $1) + (select count(*) from postrider.dead where subject = $1) \
        + (select count(*) from postrider.archive where subject = $1)";
    sqlx::query(count).bind(name).fetch_one(&fixture.app).await.unwrap().get(0)
}

#[tokio::test]
async fn a_subject_is_erased_wherever_it_is() {
    let fixture = PostgresFixture::new().await;
    let orders = QueueName::new("orders").unwrap();
    let ordered = QueueName::new("ordered").unwrap();
    fixture.store.declare(&orders, &QueuePolicy::default().with_keep_for(DAY)).await.unwrap();
    let by_key = QueuePolicy { ordering: Ordering::ByKey(OnFailure::Block), ..QueuePolicy::default() };
    fixture.store.declare(&ordered, &by_key).await.unwrap();
    // Dead, kept and in hand.
    stage_messages(&fixture, (0..3).map(|_| about("orders", "ada"))).await;
    let claimed = fixture.store.claim(&ClaimRequest::new(orders.clone(), 3)).await.unwrap();
    let settles = [claimed[0].lease.done(), claimed[1].lease.dead(Reason::Rejected, "no")];
    assert_eq!(fixture.store.settle(&settles).await.unwrap(), []);
    // A key in hand, with two messages, and one that is not.
    stage_messages(&fixture, ["k", "k"].map(|key| about("ordered", "ada").key(key))).await;
    let turn = fixture.store.claim(&ClaimRequest::new(ordered.clone(), 1)).await.unwrap();
    stage_messages(&fixture, [about("ordered", "ada").key("free"), about("ordered", "bob").key("free")])
        .await;
    // Due, waiting, and a timer; of a tenant, of somebody else, about nobody.
    let acme = || about("orders", "ada").tenant("acme");
    let timer = || about("orders", "ada").timer("remind").due_after(MINUTE);
    stage_messages(&fixture, [about("orders", "ada"), about("orders", "ada").due_after(DAY), timer()]).await;
    stage_messages(&fixture, [acme(), about("orders", "bob"), Message::builder("orders").json(&1)]).await;
    // Follow-ups: one waits, one is given up, one is in a runner's hands.
    stage(&fixture, ["a", "b"].map(|resolver| erase("ada", resolver))).await;
    let runs = claim(&fixture.store, 2).await;
    assert_eq!(fixture.store.settle(&[runs[0].lease.dead(Reason::Rejected, "no")]).await.unwrap(), []);
    stage(&fixture, [erase("ada", "c")]).await;

    let erased = fixture.store.erase_subject(None, &subject("ada"), &action()).await.unwrap();
    assert_eq!(erased, Erased { waiting: 4, dead: 1, archived: 1, in_hand: 3, follow_ups: 3 });
    assert_eq!(left(&fixture, "ada").await, 3 + 3 + 1, "what is in hand, follow-ups, and another tenant's");
    assert_eq!(left(&fixture, "bob").await, 2);
    let audit = fixture.store.audit(10).await.unwrap();
    let mut touched: Vec<_> = audit
        .iter()
        .map(|row| (row.verb.as_str(), row.queue.as_ref().unwrap().as_str(), row.ids.len()))
        .collect();
    touched.sort_unstable();
    assert_eq!(touched, [("erase_subject", "ordered", 1), ("erase_subject", "orders", 5)]);
    let said = sqlx::query("select string_agg(a::text, '') from postrider.audit a")
        .fetch_one(&fixture.app)
        .await
        .unwrap();
    let said: String = said.get(0);
    assert!(
        said.contains("asked to be forgotten")
            && !said.contains("\"ada\"")
            && said.matches("ada").count() == 2,
        "{said}"
    );

    // The timer's name is free, and the one of somebody in hand is not touched: both can end.
    stage_messages(&fixture, [timer()]).await;
    assert_eq!(fixture.store.settle(&[claimed[2].lease.done(), turn[0].lease.done()]).await.unwrap(), []);
    let erased = fixture.store.erase_subject(None, &subject("ada"), &action()).await.unwrap();
    assert_eq!(erased, Erased { waiting: 2, archived: 1, follow_ups: 3, ..Erased::default() });
    let again = fixture.store.erase_subject(None, &subject("ada"), &action()).await.unwrap();
    assert_eq!(again, Erased { follow_ups: 3, ..Erased::default() });
    assert_eq!(fixture.store.audit(10).await.unwrap().len(), 4, "what touches nothing leaves no row");
    // The other line goes on behind what was removed.
    let next = fixture.store.claim(&ClaimRequest::new(ordered, 10)).await.unwrap();
    assert_eq!(
        next.iter().map(|claimed| claimed.message.subject().unwrap().as_str()).collect::<Vec<_>>(),
        ["bob"]
    );
    let erased = fixture
        .store
        .erase_subject(Some(&TenantId::new("acme").unwrap()), &subject("ada"), &action())
        .await
        .unwrap();
    assert_eq!(erased, Erased { waiting: 1, ..Erased::default() });
    // Once they have succeeded, follow-ups are messages like any other.
    assert_eq!(
        land(&fixture.transactions(), &runs[1].lease, &erase("ada", "b").group()).await,
        Landing::Open
    );
    let refused = fixture.store.erase_subject(None, &subject("ada"), &Action::new("", "")).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}

/// A row that a claim takes at the same moment is left, and told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_claimed_meanwhile_is_in_hand() {
    let fixture = PostgresFixture::new().await;
    stage_messages(&fixture, [about("orders", "ada"), about("orders", "ada")]).await;
    let mut tx = fixture.begin().await;
    let take = "update postrider.ready set token = gen_random_uuid(), lease_until = clock_timestamp() + interval '1 hour' \
        where id = (select min(id) from postrider.ready)";
    tx.execute(take).await.unwrap();
    let store = fixture.store.clone();
    let erasing =
        tokio::spawn(async move { store.erase_subject(None, &subject("ada"), &action()).await.unwrap() });
    fixture.database.somebody_waits().await;
    fixture.commit(tx).await;
    assert_eq!(erasing.await.unwrap(), Erased { waiting: 1, in_hand: 1, ..Erased::default() });
}

/// A pooler may lend the session to somebody else next.
#[tokio::test]
async fn behind_a_pooler_nothing_stays_prepared() {
    for pooled in [true, false] {
        let fixture =
            PostgresFixture::open(move |options| if pooled { options.behind_pooler() } else { options })
                .await;
        let transactions = fixture.transactions();
        let mut tx = transactions.begin().await.unwrap();
        transactions.follow_up(&mut tx, ["a", "b", "c"].map(with_payload)).await.unwrap();
        transactions.commit(tx).await.unwrap();
        let claimed = claim(&fixture.store, 3).await;
        let mut tx = transactions.begin().await.unwrap();
        tx.execute("deallocate all").await.unwrap();
        let lands = FollowUp::read(&claimed[0].message).unwrap().group();
        assert_eq!(transactions.land(&mut tx, &claimed[0].lease, &lands).await.unwrap(), Landing::Last);
        assert!(transactions.abandon(&mut tx, &claimed[1].lease, Reason::Rejected, "no").await.unwrap());
        let until = transactions.schedule(&mut tx, &claimed[2].lease, SystemTime::now(), DAY).await.unwrap();
        assert!(until.is_some());
        let count = "select count(*) > 0 from pg_prepared_statements where not from_sql";
        let row = sqlx::raw_sql(count).fetch_one(&mut *tx).await.unwrap();
        assert_eq!(row.try_get_unchecked::<&str, _>(0).unwrap() == "t", !pooled);
        transactions.commit(tx).await.unwrap();
        assert_eq!(counts(&fixture).await, counted([(Status::Abandoned, 1), (Status::Scheduled, 1)]));
        let erased = fixture.store.erase_subject(None, &subject("b"), &action()).await.unwrap();
        assert_eq!(erased.follow_ups, 1);
    }
}
