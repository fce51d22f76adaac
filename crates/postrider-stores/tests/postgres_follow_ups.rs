//! Follow-ups in PostgreSQL: exactly one runner learns that a group is complete, also when several complete follow-ups at the same time;
//! no payload stays; and erasure removes a subject from every table.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/postgres.rs"]
mod support;

use postrider_core::{
    AuditEvent, AuditKind, ClaimRequest, ClaimedMessage, Error, FollowUp, FollowUpExt, Lease, LeaseToken,
    Message, MessageId, OnFailure, Ordering, Outbox, QueueName, QueuePolicy, Reason, Reference, Store,
    SubjectId, TenantId, TxBackend,
    audit::verify,
    follow_up::{
        ErasureReport, FollowUpFilter, FollowUpGroup, FollowUpRow, FollowUpStatus, GroupProgress, QUEUE,
        StatusCounts, has_forgotten,
    },
    inspect::{Action, Inspect, MessageRow, Operate},
    schema::Schema,
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

fn group(subject: &str) -> FollowUpGroup {
    erase(subject, "payments").group()
}

async fn stage(fixture: &PostgresFixture, follow_ups: impl IntoIterator<Item = FollowUp>) {
    let mut tx = fixture.begin().await;
    fixture.outbox().follow_up(&mut tx, follow_ups).await.unwrap();
    fixture.commit(tx).await;
}

async fn claim(store: &PostgresStore, limit: usize) -> Vec<ClaimedMessage> {
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

async fn get(fixture: &PostgresFixture, id: MessageId) -> Option<MessageRow> {
    fixture.store.get(&queue(), id).await.unwrap()
}

/// Completes a follow-up in a transaction of its own, which commits.
async fn land(transactions: &PostgresTransactions, lease: &Lease, group: &FollowUpGroup) -> GroupProgress {
    let mut tx = transactions.begin().await.unwrap();
    let landing = transactions.land(&mut tx, lease, group).await.unwrap();
    transactions.commit(tx).await.unwrap();
    landing
}

async fn counts(fixture: &PostgresFixture) -> StatusCounts {
    fixture.store.status_counts(&queue()).await.unwrap()
}

fn counted(counts: impl IntoIterator<Item = (FollowUpStatus, u64)>) -> StatusCounts {
    let mut all = StatusCounts::default();
    all.extend(counts);
    all
}

/// Two runners, each with its own connections, finish the last two follow-ups of a subject at the same moment, a thousand times.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_completion_of_last_two_follow_ups_reports_last_once() {
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
                assert_ne!(landing, GroupProgress::Lost);
                let mut events = vec![AuditEvent::new(AuditKind::Succeeded)];
                if landing == GroupProgress::Last {
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

/// Settles a claim and checks whether any follow-up is left, as `land` does, but without the lock of the group.
async fn land_without_the_lock(
    transactions: &PostgresTransactions,
    tx: &mut Transaction<'static, Postgres>,
    lease: &Lease,
) -> bool {
    assert!(transactions.settle_in(tx, &lease.done()).await.unwrap());
    let ask = sqlx::query(
        "select postrider.finish_follow_up(id, $1, false, null, 'customer-17', 'erase') from postrider.queue where name = $2",
    );
    ask.bind(lease.id().as_uuid()).bind(QUEUE).fetch_one(&mut **tx).await.unwrap().get(0)
}

/// The negative control: without the lock, neither of the two is the last. With it, the second waits, and then sees the first's result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_without_group_lock_reports_no_last() {
    let fixture = PostgresFixture::new().await;
    let transactions = fixture.transactions();
    stage(&fixture, [erase("customer-17", "crm"), erase("customer-17", "payments")]).await;
    let claimed = claim(&fixture.store, 2).await;
    let mut first = transactions.begin().await.unwrap();
    let mut second = transactions.begin().await.unwrap();
    let last = [
        land_without_the_lock(&transactions, &mut first, &claimed[0].lease).await,
        land_without_the_lock(&transactions, &mut second, &claimed[1].lease).await,
    ];
    transactions.commit(first).await.unwrap();
    transactions.commit(second).await.unwrap();
    assert_eq!(last, [false, false], "each still saw the other's");
    assert_eq!(counts(&fixture).await, StatusCounts::default(), "and yet nothing is left");

    stage(&fixture, [erase("customer-17", "crm"), erase("customer-17", "payments")]).await;
    let claimed = claim(&fixture.store, 2).await;
    let mut first = transactions.begin().await.unwrap();
    let landed = transactions.land(&mut first, &claimed[0].lease, &group("customer-17")).await.unwrap();
    assert_eq!(landed, GroupProgress::Open);
    let mut second = transactions.begin().await.unwrap();
    // The application name by which waiting sessions are found.
    second.execute("set local application_name = 'postrider'").await.unwrap();
    let (waiting, lease) = (transactions.clone(), claimed[1].lease.clone());
    let waiting = tokio::spawn(async move {
        let landed = waiting.land(&mut second, &lease, &group("customer-17")).await.unwrap();
        waiting.commit(second).await.unwrap();
        landed
    });
    fixture.database.somebody_waits().await;
    transactions.commit(first).await.unwrap();
    assert_eq!(waiting.await.unwrap(), GroupProgress::Last);
}

/// A rolled-back completion has no effect.
#[tokio::test]
async fn rolled_back_completion_is_reported_again() {
    let fixture = PostgresFixture::new().await;
    let transactions = fixture.transactions();
    stage(&fixture, [erase("customer-17", "crm")]).await;
    let lease = claim_one(&fixture).await;
    let mut tx = transactions.begin().await.unwrap();
    assert_eq!(transactions.land(&mut tx, &lease, &group("customer-17")).await.unwrap(), GroupProgress::Last);
    transactions.rollback(tx).await.unwrap();
    assert_eq!(land(&transactions, &lease, &group("customer-17")).await, GroupProgress::Last);
}

/// Others of the same subject hold a group open only if they are of the same queue, tenant and operation.
#[tokio::test]
async fn group_is_queue_tenant_subject_and_operation() {
    let fixture = PostgresFixture::new().await;
    let transactions = fixture.transactions();
    let reference = || Reference::new("customer", "cus_1");
    let rectify = FollowUp::new("customer-17", "crm", "rectify", reference()).unwrap();
    let elsewhere = erase("customer-17", "crm").in_queue(QueueName::new("elsewhere").unwrap());
    let theirs = erase("customer-17", "crm").of_tenant(TenantId::new("acme").unwrap());
    stage(&fixture, [erase("customer-17", "crm")]).await;
    let lease = claim_one(&fixture).await;
    stage(&fixture, [rectify, elsewhere, theirs.clone(), erase("customer-1", "crm")]).await;
    assert_eq!(land(&transactions, &lease, &group("customer-17")).await, GroupProgress::Last);
    // Tenants, too, have groups.
    let claimed = claim(&fixture.store, 3).await;
    stage(&fixture, [theirs.clone(), erase("customer-17", "crm")]).await;
    let of = |claimed: &&ClaimedMessage| claimed.message.tenant().is_some();
    let lease = &claimed.iter().find(of).unwrap().lease;
    assert_eq!(land(&transactions, lease, &theirs.group()).await, GroupProgress::Open);
}

/// The states of a follow-up that has not succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whereabouts {
    Released,
    InFlight,
    RetriedInPlace,
    RetriedLater,
    PutOff,
    GivenUp,
    Requeued,
}

#[tokio::test]
async fn unfinished_follow_up_keeps_group_open() {
    use Whereabouts::*;
    let fixture = PostgresFixture::new().await;
    let transactions = fixture.transactions();
    for whereabouts in [Released, InFlight, RetriedInPlace, RetriedLater, PutOff, GivenUp, Requeued] {
        stage(&fixture, [erase("customer-17", "crm"), erase("customer-17", "payments")]).await;
        let claimed = claim(&fixture.store, 2).await;
        let (lands, other) = (&claimed[0].lease, &claimed[1].lease);
        let settle = async |settle| assert_eq!(fixture.store.settle(&[settle]).await.unwrap(), []);
        match whereabouts {
            Released => settle(other.release()).await,
            InFlight => {}
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
        assert_eq!(landing, GroupProgress::Open, "{whereabouts:?}");
        fixture
            .run("delete from postrider.ready; delete from postrider.scheduled; delete from postrider.dead")
            .await;
    }
}

/// Every settlement is guarded by the token of the claim.
#[tokio::test]
async fn settle_with_stale_token_changes_nothing() {
    let fixture = PostgresFixture::new().await;
    let transactions = fixture.transactions();
    fixture.store.declare(&queue(), &QueuePolicy::default().with_keep_for(DAY)).await.unwrap();
    stage(&fixture, [with_payload("customer-17")]).await;
    let lease = claim_one(&fixture).await;
    let nowhere = Lease::new(QueueName::new("nowhere").unwrap(), lease.id(), lease.token());
    let dump = "select coalesce(string_agg(r::text, chr(10)), '') from (select r::text from postrider.ready r \
        union all select r::text from postrider.scheduled r union all select r::text from postrider.dead r \
        union all select r::text from postrider.archive r) r";
    let state = async || sqlx::query(dump).fetch_one(&fixture.app).await.unwrap().get::<String, _>(0);
    let before = state().await;
    for stale in [Lease::new(queue(), lease.id(), LeaseToken::fresh()), nowhere] {
        let mut tx = transactions.begin().await.unwrap();
        let landing = transactions.land(&mut tx, &stale, &group("customer-17")).await.unwrap();
        assert_eq!(landing, GroupProgress::Lost);
        assert!(!transactions.abandon(&mut tx, &stale, Reason::Rejected, "no").await.unwrap());
        let until = transactions.schedule(&mut tx, &stale, SystemTime::now(), MINUTE).await.unwrap();
        assert_eq!(until, None);
        transactions.commit(tx).await.unwrap();
    }
    assert_eq!(state().await, before);
    // Each settlement invalidates the token.
    assert_eq!(land(&transactions, &lease, &group("customer-17")).await, GroupProgress::Last);
    let after = state().await;
    assert_eq!(land(&transactions, &lease, &group("customer-17")).await, GroupProgress::Lost);
    assert_eq!(state().await, after);
}

#[tokio::test]
async fn finished_follow_up_keeps_no_payload() {
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
            assert_eq!(
                transactions.land(&mut tx, &claimed.lease, &group).await.unwrap(),
                GroupProgress::Last
            );
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
    assert_eq!(
        counts(&fixture).await,
        counted([(FollowUpStatus::Succeeded, 3), (FollowUpStatus::Abandoned, 2)])
    );
}

/// Without dead letters the follow-up is deleted, and the group completes without it.
#[tokio::test]
async fn abandoned_follow_up_is_deleted_without_dead_letters() {
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
async fn rescheduled_follow_up_starts_afresh_at_its_time() {
    let fixture = PostgresFixture::new().await;
    let transactions = fixture.transactions();
    stage(&fixture, [with_payload("customer-17")]).await;
    // After a failure, so that there is something to reset.
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
    assert_eq!(counts(&fixture).await, counted([(FollowUpStatus::Scheduled, 1)]));
    fixture.advance(DAY - MINUTE).await;
    assert_eq!(fixture.store.claim(&ClaimRequest::new(queue(), 1)).await.unwrap(), []);
    fixture.advance(MINUTE).await;
    assert_eq!(counts(&fixture).await, counted([(FollowUpStatus::Pending, 1)]));
    let claimed = claim(&fixture.store, 1).await.remove(0);
    assert_eq!((claimed.id(), claimed.deliveries), (lease.id(), 1));
}

/// A time that has passed, or is too near or too far, is moved into the allowed range. Short delays are scheduled like long ones.
#[tokio::test]
async fn schedule_clamps_time_out_of_range() {
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

/// A stricter isolation would hide that the others have ended.
#[tokio::test]
async fn land_refuses_isolation_stricter_than_read_committed() {
    let fixture = PostgresFixture::new().await;
    stage(&fixture, [erase("customer-17", "crm")]).await;
    let lease = claim_one(&fixture).await;
    for isolation in ["repeatable read", "serializable"] {
        let set = format!("set default_transaction_isolation = '{isolation}'");
        let pool = PgPoolOptions::new().max_connections(1).connect(fixture.database.url()).await.unwrap();
        pool.execute(AssertSqlSafe(set)).await.unwrap();
        let strict = fixture.store.transactions(pool.clone());
        let mut tx = pool.begin().await.unwrap();
        let refused = strict.land(&mut tx, &lease, &group("customer-17")).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
        assert!(
            refused.to_string().contains(isolation) && refused.to_string().contains("read_committed"),
            "{refused}"
        );
        strict.rollback(tx).await.unwrap();
        let right = strict.read_committed();
        let mut tx = right.begin().await.unwrap();
        assert_eq!(right.land(&mut tx, &lease, &group("customer-17")).await.unwrap(), GroupProgress::Last);
        right.rollback(tx).await.unwrap();
    }
}

/// Follow-ups need unordered queues: on an ordered one, a failed follow-up would block its key.
#[tokio::test]
async fn follow_up_on_ordered_queue_is_refused() {
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

/// One follow-up in each status; the counts match the status of each message.
#[tokio::test]
async fn status_counts_are_exact_for_every_status() {
    let fixture = PostgresFixture::new().await;
    let transactions = fixture.transactions();
    let nowhere = fixture.store.status_counts(&QueueName::new("nowhere").unwrap()).await.unwrap();
    assert_eq!(nowhere, StatusCounts::default());
    assert_eq!(nowhere.iter().count(), FollowUpStatus::ALL.len());
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
    // Failed: in place and in `scheduled`; one is due and not claimed yet. Some are released, the rest in flight.
    let retries: Vec<_> =
        (9..14).map(|n| claimed[n].lease.retry(MINUTE * u32::from(n > 11), "timeout")).collect();
    assert_eq!(fixture.store.settle(&retries).await.unwrap(), []);
    let released: Vec<_> = (14..16).map(|n| claimed[n].lease.release()).collect();
    assert_eq!(fixture.store.settle(&released).await.unwrap(), []);
    stage(&fixture, [erase("new", "crm"), erase("timed", "crm").not_before(SystemTime::now() + 2 * DAY)])
        .await;
    let expected = counted([
        (FollowUpStatus::Succeeded, 3),
        (FollowUpStatus::Abandoned, 2),
        (FollowUpStatus::Scheduled, 5),
        (FollowUpStatus::Failed, 5),
        (FollowUpStatus::Pending, 3),
        (FollowUpStatus::InFlight, 4),
    ]);
    assert_eq!(counts(&fixture).await, expected);

    // An expired lease still counts as in flight; time makes scheduled follow-ups due.
    fixture.advance(3 * DAY).await;
    let scheduled_is_pending = counted([
        (FollowUpStatus::Succeeded, 3),
        (FollowUpStatus::Abandoned, 2),
        (FollowUpStatus::Failed, 5),
        (FollowUpStatus::Pending, 8),
        (FollowUpStatus::InFlight, 4),
    ]);
    assert_eq!(counts(&fixture).await, scheduled_is_pending);
    let overdue = fixture.store.follow_up_rows(&queue(), FollowUpFilter::Overdue(DAY), 100).await.unwrap();
    let scan = overdue.iter().map(|row| (row.status, 1)).chain([(FollowUpStatus::Succeeded, 3)]);
    assert_eq!(counted(scan), scheduled_is_pending, "message by message");
}

#[tokio::test]
async fn follow_up_rows_are_ordered_by_filter() {
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
    let names = |follow_up_rows: &[FollowUpRow]| {
        let name = |row: &FollowUpRow| row.message.subject().unwrap().as_str().to_owned();
        follow_up_rows.iter().map(name).collect::<Vec<_>>()
    };
    let follow_up_rows =
        async |which, limit| fixture.store.follow_up_rows(&queue(), which, limit).await.unwrap();
    let abandoned = follow_up_rows(FollowUpFilter::Abandoned, 2).await;
    assert_eq!(names(&abandoned), ["first", "second"]);
    let first = &abandoned[0];
    assert_eq!((first.id, first.status, first.deliveries), (claimed[0].id(), FollowUpStatus::Abandoned, 1));
    assert_eq!(first.error.as_deref(), Some("refused"));
    assert!(has_forgotten(&first.message) && first.staged_at < first.at);
    assert!(FollowUp::read(&first.message).is_ok());
    let scheduled = follow_up_rows(FollowUpFilter::Scheduled, 10).await;
    assert_eq!(names(&scheduled), ["in 1", "in 2", "in 3"]);
    assert!(scheduled.iter().all(|row| row.status == FollowUpStatus::Scheduled && row.deliveries == 0));
    assert_eq!(follow_up_rows(FollowUpFilter::Overdue(MINUTE), 10).await, []);
    assert_eq!(follow_up_rows(FollowUpFilter::Overdue(Duration::MAX), 10).await, []);
    let overdue = follow_up_rows(FollowUpFilter::Overdue(Duration::ZERO), 4).await;
    assert_eq!(names(&overdue), ["in 3", "in 1", "in 2", "first"], "the oldest first");
    assert_eq!(follow_up_rows(FollowUpFilter::Abandoned, 0).await, []);
    let nowhere =
        fixture.store.follow_up_rows(&QueueName::new("nowhere").unwrap(), FollowUpFilter::Abandoned, 1).await;
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

/// The number of rows of a subject that are left in all tables.
async fn left(fixture: &PostgresFixture, name: &str) -> i64 {
    let count = "select (select count(*) from postrider.ready where subject = $1) \
        + (select count(*) from postrider.scheduled where subject = $1) + (select count(*) from postrider.dead where subject = $1) \
        + (select count(*) from postrider.archive where subject = $1)";
    sqlx::query(count).bind(name).fetch_one(&fixture.app).await.unwrap().get(0)
}

#[tokio::test]
async fn erase_subject_removes_rows_from_every_table() {
    let fixture = PostgresFixture::new().await;
    let orders = QueueName::new("orders").unwrap();
    let ordered = QueueName::new("ordered").unwrap();
    fixture.store.declare(&orders, &QueuePolicy::default().with_keep_for(DAY)).await.unwrap();
    let by_key = QueuePolicy { ordering: Ordering::ByKey(OnFailure::Block), ..QueuePolicy::default() };
    fixture.store.declare(&ordered, &by_key).await.unwrap();
    // Dead, archived and in flight.
    stage_messages(&fixture, (0..3).map(|_| about("orders", "ada"))).await;
    let claimed = fixture.store.claim(&ClaimRequest::new(orders.clone(), 3)).await.unwrap();
    let settles = [claimed[0].lease.done(), claimed[1].lease.dead(Reason::Rejected, "no")];
    assert_eq!(fixture.store.settle(&settles).await.unwrap(), []);
    // A leased key with two messages, and one that is not leased.
    stage_messages(&fixture, ["k", "k"].map(|key| about("ordered", "ada").key(key))).await;
    let turn = fixture.store.claim(&ClaimRequest::new(ordered.clone(), 1)).await.unwrap();
    stage_messages(&fixture, [about("ordered", "ada").key("free"), about("ordered", "bob").key("free")])
        .await;
    // Due, scheduled, and a timer; of a tenant, of another subject, without a subject.
    let acme = || about("orders", "ada").tenant("acme");
    let timer = || about("orders", "ada").timer("remind").due_after(MINUTE);
    stage_messages(&fixture, [about("orders", "ada"), about("orders", "ada").due_after(DAY), timer()]).await;
    stage_messages(&fixture, [acme(), about("orders", "bob"), Message::builder("orders").json(&1)]).await;
    // Follow-ups: one pending, one abandoned, one in flight.
    stage(&fixture, ["a", "b"].map(|resolver| erase("ada", resolver))).await;
    let runs = claim(&fixture.store, 2).await;
    assert_eq!(fixture.store.settle(&[runs[0].lease.dead(Reason::Rejected, "no")]).await.unwrap(), []);
    stage(&fixture, [erase("ada", "c")]).await;

    let erased = fixture.store.erase_subject(None, &subject("ada"), &action()).await.unwrap();
    assert_eq!(erased, ErasureReport { waiting: 4, dead: 1, archived: 1, in_flight: 3, follow_ups: 3 });
    assert_eq!(
        left(&fixture, "ada").await,
        3 + 3 + 1,
        "messages in flight, follow-ups, and another tenant's"
    );
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

    // The timer's name is free, and messages in flight are untouched: both can be settled.
    stage_messages(&fixture, [timer()]).await;
    assert_eq!(fixture.store.settle(&[claimed[2].lease.done(), turn[0].lease.done()]).await.unwrap(), []);
    let erased = fixture.store.erase_subject(None, &subject("ada"), &action()).await.unwrap();
    assert_eq!(erased, ErasureReport { waiting: 2, archived: 1, follow_ups: 3, ..ErasureReport::default() });
    let again = fixture.store.erase_subject(None, &subject("ada"), &action()).await.unwrap();
    assert_eq!(again, ErasureReport { follow_ups: 3, ..ErasureReport::default() });
    assert_eq!(fixture.store.audit(10).await.unwrap().len(), 4, "what touches nothing leaves no row");
    // The other key continues after the erased messages.
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
    assert_eq!(erased, ErasureReport { waiting: 1, ..ErasureReport::default() });
    // After success, follow-ups are erased like other messages.
    assert_eq!(
        land(&fixture.transactions(), &runs[1].lease, &erase("ada", "b").group()).await,
        GroupProgress::Open
    );
    let refused = fixture.store.erase_subject(None, &subject("ada"), &Action::new("", "")).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}

/// A row that is claimed during the erasure is left and counted as in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_claimed_during_erasure_counts_as_in_flight() {
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
    assert_eq!(
        erasing.await.unwrap(),
        ErasureReport { waiting: 1, in_flight: 1, ..ErasureReport::default() }
    );
}

/// A pooler may lend the session to another client next.
#[tokio::test]
async fn no_prepared_statement_remains_behind_pooler() {
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
        assert_eq!(transactions.land(&mut tx, &claimed[0].lease, &lands).await.unwrap(), GroupProgress::Last);
        assert!(transactions.abandon(&mut tx, &claimed[1].lease, Reason::Rejected, "no").await.unwrap());
        let until = transactions.schedule(&mut tx, &claimed[2].lease, SystemTime::now(), DAY).await.unwrap();
        assert!(until.is_some());
        let count = "select count(*) > 0 from pg_prepared_statements where not from_sql";
        let row = sqlx::raw_sql(count).fetch_one(&mut *tx).await.unwrap();
        assert_eq!(row.try_get_unchecked::<&str, _>(0).unwrap() == "t", !pooled);
        transactions.commit(tx).await.unwrap();
        assert_eq!(
            counts(&fixture).await,
            counted([(FollowUpStatus::Abandoned, 1), (FollowUpStatus::Scheduled, 1)])
        );
        let erased = fixture.store.erase_subject(None, &subject("b"), &action()).await.unwrap();
        assert_eq!(erased.follow_ups, 1);
    }
}
