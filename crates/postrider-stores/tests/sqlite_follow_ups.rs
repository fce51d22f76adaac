//! Follow-ups in SQLite: completion, counting, listing and erasure.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/sqlite.rs"]
#[allow(dead_code, reason = "not every test program needs all of it")]
mod support;

use postrider_core::{
    AuditEvent, AuditKind, AuditSink, ClaimRequest, ClaimedMessage, FollowUp, FollowUpExt, Lease, LeaseToken,
    Message, MessageBuilder, OnFailure, OutboxExt, QueueName, QueuePolicy, Reason, Reference, Store,
    SubjectId, TenantId, TxBackend,
    follow_up::{
        ErasureReport, FollowUpFilter, FollowUpGroup, FollowUpStatus, GroupProgress, StatusCounts,
        has_forgotten,
    },
    inspect::{Action, Inspect, ListRequest, Operate, StateFilter},
    schema::Schema,
};
use postrider_stores::sqlite::{SqliteStore, SqliteTransactions};
use postrider_testkit::{Fixture, TransactFixture};
use sqlx::{
    Row,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous},
};
use std::time::{Duration, SystemTime};
use support::SqliteFixture;
use uuid::Uuid;

const SUBJECTS: usize = 200;

/// Two runners, each with a store of its own, complete the last two follow-ups of each subject at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_completion_of_last_two_follow_ups_reports_last_once() {
    let fixture = SqliteFixture::new().await;
    let subjects: Vec<String> = (0..SUBJECTS).map(|number| format!("customer-{number}")).collect();
    let mut runners = Vec::new();
    for resolver in ["payments", "newsletter"] {
        stage(&fixture, subjects.iter().map(|subject| erase(subject, resolver))).await;
        let store = SqliteStore::open(fixture.path()).await.unwrap();
        let connect =
            SqliteConnectOptions::new().filename(fixture.path()).synchronous(SqliteSynchronous::Off);
        let pool = SqlitePoolOptions::new().connect_with(connect).await.unwrap();
        runners.push((claim_from(&store, SUBJECTS).await, store.transactions(pool)));
    }
    let mut tasks = Vec::new();
    for (claimed, transactions) in runners {
        assert_eq!(claimed.len(), SUBJECTS);
        tasks.push(tokio::spawn(async move {
            let mut last = 0;
            for each in claimed {
                let mut tx = transactions.begin().await.unwrap();
                let progress = transactions.land(&mut tx, &each.lease, &group_of(&each)).await.unwrap();
                assert_ne!(progress, GroupProgress::Lost);
                let kind =
                    if progress == GroupProgress::Last { AuditKind::Completed } else { AuditKind::Succeeded };
                let event = AuditEvent { subject: each.message.subject().cloned(), ..AuditEvent::new(kind) };
                transactions.record(&mut tx, &[event]).await.unwrap();
                transactions.commit(tx).await.unwrap();
                last += usize::from(progress == GroupProgress::Last);
            }
            last
        }));
    }
    let mut last = 0;
    for task in tasks {
        last += task.await.unwrap();
    }
    assert_eq!(last, SUBJECTS);
    let ledger = fixture.store.ledger();
    for subject in subjects {
        let known = ledger.read(&SubjectId::new(subject).unwrap()).await.unwrap();
        let kinds: Vec<_> = known.iter().map(|recorded| recorded.event.kind).collect();
        assert_eq!(kinds, [AuditKind::Succeeded, AuditKind::Completed]);
    }
    assert_eq!(counts(&fixture).await, StatusCounts::default());
}

/// A transaction that began without the write lock takes it before it reads.
#[tokio::test]
async fn completion_takes_the_write_lock_before_it_reads() {
    let fixture = SqliteFixture::new().await;
    stage(&fixture, [erase("17", "payments")]).await;
    let claimed = claim(&fixture, 1).await.remove(0);
    let mut first = fixture.app.begin().await.unwrap();
    let transactions = fixture.transactions();
    assert_eq!(
        transactions.land(&mut first, &stale(&claimed), &group_of(&claimed)).await.unwrap(),
        GroupProgress::Lost
    );
    let mut second_connection = fixture.app.acquire().await.unwrap();
    sqlx::query("pragma busy_timeout = 0").execute(&mut *second_connection).await.unwrap();
    let second =
        sqlx::query("begin immediate").execute(&mut *second_connection).await.unwrap_err().to_string();
    assert!(second.contains("locked"), "{second}");
    sqlx::query("pragma busy_timeout = 30000").execute(&mut *second_connection).await.unwrap();
    first.rollback().await.unwrap();
}

#[tokio::test]
async fn rolled_back_completion_is_reported_again() {
    let fixture = SqliteFixture::new().await;
    stage(&fixture, [erase("17", "payments")]).await;
    let claimed = claim(&fixture, 1).await.remove(0);
    let transactions = fixture.transactions();
    for _ in 0..2 {
        let mut tx = transactions.begin().await.unwrap();
        assert_eq!(
            transactions.land(&mut tx, &claimed.lease, &group_of(&claimed)).await.unwrap(),
            GroupProgress::Last
        );
        transactions.rollback(tx).await.unwrap();
        assert_eq!(counts(&fixture).await, counted([(FollowUpStatus::InFlight, 1)]));
    }
}

/// Another tenant, another operation, another queue and another subject are other groups.
#[tokio::test]
async fn group_is_queue_tenant_subject_and_operation() {
    let fixture = SqliteFixture::new().await;
    stage(&fixture, [erase("17", "payments")]).await;
    let claimed = claim(&fixture, 1).await.remove(0);
    let reference = || Reference::new("customer", "cus_1");
    stage(
        &fixture,
        [
            erase("17", "payments").of_tenant(TenantId::new("acme").unwrap()),
            FollowUp::new("17", "payments", "rectify", reference()).unwrap(),
            erase("17", "payments").in_queue("others".parse().unwrap()),
            erase("18", "payments"),
        ],
    )
    .await;
    assert_eq!(land(&fixture, &claimed).await, GroupProgress::Last);
    // The same for each of them: no other follow-up is in their groups.
    for each in claim(&fixture, 10).await {
        assert_eq!(land(&fixture, &each).await, GroupProgress::Last);
    }
}

/// The group is open, whatever the state of the other follow-up.
#[tokio::test]
async fn unfinished_follow_up_keeps_group_open() {
    let fixture = SqliteFixture::new().await;
    let transactions = fixture.transactions();
    for (number, state) in
        ["pending", "leased", "retried", "scheduled", "staged for later", "abandoned"].iter().enumerate()
    {
        let subject = format!("customer-{number}");
        stage(&fixture, [erase(&subject, "payments")]).await;
        let claimed = claim(&fixture, 1).await.remove(0);
        let other = match *state {
            "staged for later" => erase(&subject, "newsletter").not_before(SystemTime::now() + minutes(60)),
            _ => erase(&subject, "newsletter"),
        };
        stage(&fixture, [other]).await;
        if !["pending", "staged for later"].contains(state) {
            let other = claim(&fixture, 1).await.remove(0);
            match *state {
                "retried" => assert_eq!(
                    fixture.store.settle(&[other.lease.retry(minutes(5), "busy")]).await.unwrap(),
                    []
                ),
                "scheduled" => {
                    let mut tx = transactions.begin().await.unwrap();
                    let at = SystemTime::now() + minutes(60);
                    transactions.schedule(&mut tx, &other.lease, at, Duration::ZERO).await.unwrap().unwrap();
                    transactions.commit(tx).await.unwrap();
                }
                "abandoned" => assert!(abandon(&fixture, &other).await),
                _ => {}
            }
        }
        assert_eq!(land(&fixture, &claimed).await, GroupProgress::Open, "{state}");
        // So the next round finds nothing to claim.
        let rest = claim(&fixture, 10).await;
        for each in rest {
            assert_eq!(land(&fixture, &each).await, GroupProgress::Last, "{state}");
        }
    }
    // The abandoned one closes its group when it is requeued and succeeds.
    let dead = fixture.store.follow_up_rows(&queue(), FollowUpFilter::Abandoned, 10).await.unwrap();
    assert_eq!(dead.len(), 1);
    fixture.store.requeue(&queue(), &[dead[0].id], &Action::new("ada", "fixed")).await.unwrap();
    let again = claim(&fixture, 1).await.remove(0);
    assert_eq!(land(&fixture, &again).await, GroupProgress::Last);
}

#[tokio::test]
async fn settle_with_stale_token_changes_nothing() {
    let fixture = SqliteFixture::new().await;
    fixture.store.declare(&queue(), &QueuePolicy::default().with_keep_for(minutes(60))).await.unwrap();
    stage(&fixture, [erase("17", "payments").with_json("secret").unwrap()]).await;
    let lost = claim(&fixture, 1).await.remove(0);
    fixture.advance(minutes(60)).await;
    let held = claim(&fixture, 1).await.remove(0);
    assert_eq!(held.id(), lost.id());
    let before = all_rows(&fixture).await;
    let transactions = fixture.transactions();
    let mut tx = transactions.begin().await.unwrap();
    assert_eq!(transactions.land(&mut tx, &lost.lease, &group_of(&lost)).await.unwrap(), GroupProgress::Lost);
    assert!(!transactions.abandon(&mut tx, &lost.lease, Reason::Rejected, "no").await.unwrap());
    let at = SystemTime::now() + minutes(60);
    assert_eq!(transactions.schedule(&mut tx, &lost.lease, at, Duration::ZERO).await.unwrap(), None);
    transactions.commit(tx).await.unwrap();
    assert_eq!(all_rows(&fixture).await, before);
    assert_eq!(land(&fixture, &held).await, GroupProgress::Last);
    // A follow-up cannot be completed twice.
    let after = all_rows(&fixture).await;
    assert_eq!(land(&fixture, &held).await, GroupProgress::Lost);
    assert_eq!(all_rows(&fixture).await, after);
}

#[tokio::test]
async fn finished_follow_up_keeps_no_payload() {
    let fixture = SqliteFixture::new().await;
    fixture.store.declare(&queue(), &QueuePolicy::default().with_keep_for(minutes(60))).await.unwrap();
    let follow_ups = || {
        [
            erase("17", "json").with_json("secret").unwrap(),
            erase("17", "text").with_payload("secret", "text/plain"),
            erase("17", "nothing"),
        ]
    };
    stage(&fixture, follow_ups()).await;
    for each in claim(&fixture, 3).await {
        land(&fixture, &each).await;
    }
    stage(&fixture, follow_ups()).await;
    for each in claim(&fixture, 3).await {
        assert!(abandon(&fixture, &each).await);
    }
    for state in [StateFilter::Done, StateFilter::Dead] {
        let page = fixture.store.list(&ListRequest::new(queue(), state)).await.unwrap();
        let seen: Vec<_> = page
            .entries
            .iter()
            .map(|entry| {
                (entry.message.payload().len(), entry.message.content_type(), has_forgotten(&entry.message))
            })
            .collect();
        let (json, text) = ("application/json", "text/plain");
        assert_eq!(seen, [(0, json, true), (0, text, true), (0, json, false)], "{state:?}");
    }
    let dead = fixture.store.follow_up_rows(&queue(), FollowUpFilter::Abandoned, 10).await.unwrap();
    assert_eq!(dead[0].error.as_deref(), Some("rejected"));
    assert!(dead.iter().all(|follow_up_row| follow_up_row.status == FollowUpStatus::Abandoned));
}

#[tokio::test]
async fn rescheduled_follow_up_starts_afresh_at_its_time() {
    let fixture = SqliteFixture::new().await;
    let transactions = fixture.transactions();
    stage(&fixture, [erase("17", "payments").with_json("kept").unwrap()]).await;
    // An attempt that failed, and one whose runner crashed.
    let first = claim(&fixture, 1).await.remove(0);
    assert_eq!(fixture.store.settle(&[first.lease.retry(Duration::ZERO, "busy")]).await.unwrap(), []);
    claim(&fixture, 1).await;
    fixture.advance(minutes(60)).await;
    let claimed = claim(&fixture, 1).await.remove(0);
    assert_eq!((claimed.attempts, claimed.deliveries), (1, 3));

    let at = SystemTime::now() + minutes(30);
    let until = schedule(&transactions, &claimed, at, Duration::ZERO).await;
    assert!(until >= at && until < at + Duration::from_micros(1), "{until:?} is not {at:?}");
    assert_eq!(claim(&fixture, 1).await, []);
    assert_eq!(counts(&fixture).await, counted([(FollowUpStatus::Scheduled, 1)]));
    let follow_up_row =
        fixture.store.follow_up_rows(&queue(), FollowUpFilter::Scheduled, 10).await.unwrap().remove(0);
    assert_eq!(
        (follow_up_row.id, follow_up_row.at, follow_up_row.deliveries, follow_up_row.error),
        (claimed.id(), until, 0, None)
    );
    assert_eq!(follow_up_row.message.payload(), claimed.message.payload());
    fixture.advance(minutes(29)).await;
    assert_eq!(claim(&fixture, 1).await, []);
    fixture.advance(minutes(1)).await;
    let again = claim(&fixture, 1).await.remove(0);
    assert_eq!((again.attempts, again.deliveries), (0, 1));

    // A time in the past is moved ahead, so that the follow-up does not loop.
    let before = SystemTime::now() - Duration::from_millis(1);
    let until = schedule(&transactions, &again, SystemTime::UNIX_EPOCH, minutes(5)).await;
    assert!(until >= before + minutes(5) && until <= SystemTime::now() + minutes(6), "{until:?}");
    assert_eq!(claim(&fixture, 1).await, []);
    fixture.advance(minutes(6)).await;
    let again = claim(&fixture, 1).await.remove(0);
    // A time out of range is capped.
    let never = SystemTime::now() + Duration::from_secs(1 << 36);
    assert!(schedule(&transactions, &again, never, Duration::MAX).await < never);
    assert_eq!(counts(&fixture).await, counted([(FollowUpStatus::Scheduled, 1)]));
}

/// Follow-ups in every state, counted by the store and row by row.
#[tokio::test]
async fn status_counts_are_exact_for_every_status() {
    let fixture = SqliteFixture::new().await;
    assert_eq!(
        counts(&fixture).await.iter().collect::<Vec<_>>(),
        FollowUpStatus::ALL.map(|status| (status, 0))
    );
    fixture.store.declare(&queue(), &QueuePolicy::default().with_keep_for(minutes(600))).await.unwrap();
    let transactions = fixture.transactions();
    stage(&fixture, [erase("other", "payments").in_queue("others".parse().unwrap())]).await;
    stage(&fixture, (0..120).map(|number| erase(&format!("{number}"), "payments"))).await;
    let soon = SystemTime::now() + minutes(1);
    stage(&fixture, (0..4).map(|number| erase(&format!("{number}"), "newsletter").not_before(soon))).await;
    for (number, each) in claim(&fixture, 100).await.iter().enumerate() {
        match number % 7 {
            0 | 1 => _ = land(&fixture, each).await,
            2 => assert!(abandon(&fixture, each).await),
            3 => {
                assert_eq!(fixture.store.settle(&[each.lease.retry(minutes(60), "busy")]).await.unwrap(), []);
            }
            4 => assert_eq!(fixture.store.settle(&[each.lease.retry(minutes(1), "busy")]).await.unwrap(), []),
            5 => _ = schedule(&transactions, each, SystemTime::now() + minutes(60), Duration::ZERO).await,
            // Stays in flight.
            _ => {}
        }
    }
    // Leases expire, some retries and timers come due, and some of these messages are claimed again.
    for advanced in [0, 2, 20] {
        fixture.advance(minutes(advanced)).await;
        assert_eq!(counts(&fixture).await, count_rows(&fixture).await, "after {advanced} minutes");
    }
    let counts_before = counts(&fixture).await;
    assert!(FollowUpStatus::ALL.iter().all(|status| counts_before.of(*status) > 0), "{counts_before:?}");
    assert_eq!(claim(&fixture, 30).await.len(), 30);
    assert_eq!(counts(&fixture).await, count_rows(&fixture).await);
}

#[tokio::test]
async fn follow_ups_that_need_attention_are_listed_oldest_first() {
    let fixture = SqliteFixture::new().await;
    let rows =
        fixture.store.follow_up_rows(&queue(), FollowUpFilter::Overdue(Duration::ZERO), 10).await.unwrap();
    assert_eq!(rows, []);
    for resolver in ["a", "b", "c"] {
        stage(&fixture, [erase("17", resolver)]).await;
        fixture.advance(minutes(10)).await;
    }
    let later = SystemTime::now() + minutes(20);
    stage(&fixture, [erase("17", "e").not_before(later), erase("17", "d").not_before(later - minutes(10))])
        .await;
    // "a" is abandoned and "b" waits for a retry.
    let claimed = claim(&fixture, 2).await;
    assert!(abandon(&fixture, &claimed[0]).await);
    assert_eq!(fixture.store.settle(&[claimed[1].lease.retry(minutes(5), "busy")]).await.unwrap(), []);

    let listed = |which, limit| {
        let store = fixture.store.clone();
        async move {
            let follow_up_rows = store.follow_up_rows(&queue(), which, limit).await.unwrap();
            let listed = follow_up_rows.iter().map(|follow_up_row| {
                let follow_up = FollowUp::read(&follow_up_row.message).unwrap();
                assert_eq!(follow_up.id(), Some(follow_up_row.id));
                format!("{} {}", follow_up.resolver().as_str(), follow_up_row.status)
            });
            listed.collect::<Vec<_>>()
        }
    };
    assert_eq!(listed(FollowUpFilter::Abandoned, 10).await, ["a abandoned"]);
    assert_eq!(listed(FollowUpFilter::Scheduled, 10).await, ["d scheduled", "e scheduled"]);
    assert_eq!(listed(FollowUpFilter::Scheduled, 1).await, ["d scheduled"]);
    assert_eq!(listed(FollowUpFilter::Overdue(minutes(15)), 10).await, ["a abandoned", "b failed"]);
    assert_eq!(
        listed(FollowUpFilter::Overdue(minutes(5)), 10).await,
        ["a abandoned", "b failed", "c pending"]
    );
    assert_eq!(listed(FollowUpFilter::Overdue(minutes(5)), 1).await, ["a abandoned"]);
    let failed = fixture
        .store
        .follow_up_rows(&queue(), FollowUpFilter::Overdue(minutes(15)), 10)
        .await
        .unwrap()
        .remove(1);
    assert_eq!((failed.deliveries, failed.error.as_deref()), (1, Some("busy")));
    assert!(failed.staged_at <= SystemTime::now() - minutes(19), "{:?}", failed.staged_at);
}

/// Erasure removes the messages about a subject from every table of every queue, and reports those that must stay.
#[tokio::test]
async fn erase_subject_removes_rows_from_every_table() {
    let fixture = SqliteFixture::new().await;
    let store = &fixture.store;
    let orders = QueuePolicy::default().with_keep_for(minutes(600));
    store.declare(&"orders".parse().unwrap(), &orders).await.unwrap();
    store.declare(&queue(), &orders).await.unwrap();
    store.declare(&"keys".parse().unwrap(), &QueuePolicy::by_key(OnFailure::Skip)).await.unwrap();
    let about = |queue: &str| Message::builder(queue).subject("17").payload("secret");

    // An archived message, a dead letter, and a message in flight.
    stage_messages(&fixture, [about("orders"), about("orders"), about("orders")]).await;
    let orders = claim_of(&fixture, "orders", 3).await;
    let settlements = [orders[0].lease.done(), orders[1].lease.dead(Reason::Rejected, "no")];
    assert_eq!(store.settle(&settlements).await.unwrap(), []);
    // A due message, one whose lease has expired, a scheduled one, and a timer.
    stage_messages(&fixture, [about("expired")]).await;
    claim_of(&fixture, "expired", 1).await;
    sqlx::query("update postrider_ready set lease_until = 1 where queue = (select id from postrider_queue where name = 'expired')")
        .execute(&fixture.app)
        .await
        .unwrap();
    stage_messages(
        &fixture,
        [
            about("plain"),
            about("plain").due_after(minutes(60)),
            about("plain").timer("reminder").due_after(minutes(60)),
        ],
    )
    .await;
    // Keys: a message in the middle of a lane, the only message of a lane, one in a leased lane.
    let other = |key: &str| Message::builder("keys").key(key).subject("18");
    stage_messages(&fixture, [other("busy"), about("keys").key("busy")]).await;
    assert_eq!(claim_of(&fixture, "keys", 1).await.len(), 1);
    stage_messages(
        &fixture,
        [other("k"), about("keys").key("k"), other("k"), about("keys").key("alone"), about("keys")],
    )
    .await;
    // Follow-ups: a succeeded one is removed. A pending, an in-flight, a scheduled and an abandoned one stay.
    stage(&fixture, [erase("17", "succeeded"), erase("17", "abandoned"), erase("17", "in-flight")]).await;
    let follow_ups = claim(&fixture, 3).await;
    land(&fixture, &follow_ups[0]).await;
    assert!(abandon(&fixture, &follow_ups[1]).await);
    stage(
        &fixture,
        [erase("17", "pending"), erase("17", "scheduled").not_before(SystemTime::now() + minutes(60))],
    )
    .await;
    // Messages about another subject, and about a subject of the same name of another tenant.
    let acme = TenantId::new("acme").unwrap();
    stage_messages(
        &fixture,
        [about("plain").tenant("acme"), Message::builder("plain").subject("18"), Message::builder("plain")],
    )
    .await;

    let (subject, why) = (SubjectId::new("17").unwrap(), Action::new("ada", "asked for it"));
    let erased = store.erase_subject(None, &subject, &why).await.unwrap();
    // Due or scheduled: "expired", three of "plain", three of "keys".
    assert_eq!(erased, ErasureReport { waiting: 7, dead: 1, archived: 2, in_flight: 2, follow_ups: 4 });
    let again = store.erase_subject(None, &subject, &why).await.unwrap();
    assert_eq!(again, ErasureReport { in_flight: 2, follow_ups: 4, ..ErasureReport::default() });

    let left = "select count(*) from (select subject, tenant from postrider_ready union all select subject, tenant from postrider_scheduled \
        union all select subject, tenant from postrider_dead union all select subject, tenant from postrider_archive) \
        where subject = '17' and tenant is null";
    let left: i64 = sqlx::query_scalar(left).fetch_one(&fixture.app).await.unwrap();
    assert_eq!(left, 6, "messages in flight and follow-ups");
    // The timer's name is free, and lanes without messages are deleted.
    let timers: i64 =
        sqlx::query_scalar("select count(*) from postrider_timer").fetch_one(&fixture.app).await.unwrap();
    assert_eq!(timers, 0);
    let lanes: Vec<String> = sqlx::query_scalar("select key from postrider_lane order by key")
        .fetch_all(&fixture.app)
        .await
        .unwrap();
    assert_eq!(lanes, ["busy", "k"]);
    assert_eq!(claim_of(&fixture, "keys", 10).await.len(), 2, "the other messages of the key still run");
    assert_eq!(claim_of(&fixture, "plain", 10).await.len(), 3);

    // One audit row for each changed queue, without the subject's name.
    let audit = store.audit(100).await.unwrap();
    let mut rows: Vec<_> = audit
        .iter()
        .map(|row| {
            (row.queue.as_ref().unwrap().as_str(), row.verb.as_str(), row.ids.len(), row.action.clone())
        })
        .collect();
    rows.sort_by_key(|row| row.0);
    let row = |queue, messages| (queue, "erase_subject", messages, why.clone());
    assert_eq!(
        rows,
        [row("expired", 1), row("follow-ups", 1), row("keys", 3), row("orders", 2), row("plain", 3)]
    );
    let named: i64 = sqlx::query_scalar(
        "select count(*) from postrider_audit where message_ids like '%\"17\"%' or key is not null",
    )
    .fetch_one(&fixture.app)
    .await
    .unwrap();
    assert_eq!(named, 0);
    // The message claimed above is in flight.
    let erased = store.erase_subject(Some(&acme), &subject, &why).await.unwrap();
    assert_eq!(erased, ErasureReport { in_flight: 1, ..ErasureReport::default() });
    assert!(store.erase_subject(None, &subject, &Action::new("", "")).await.is_err());
}

fn queue() -> QueueName {
    "follow-ups".parse().unwrap()
}

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

fn erase(subject: &str, resolver: &str) -> FollowUp {
    FollowUp::new(subject, resolver, "erase", Reference::new("customer", "cus_1")).unwrap()
}

fn group_of(claimed: &ClaimedMessage) -> FollowUpGroup {
    FollowUp::read(&claimed.message).unwrap().group()
}

/// A lease with a token that was never issued.
fn stale(claimed: &ClaimedMessage) -> Lease {
    Lease::new(queue(), claimed.id(), LeaseToken::from_uuid(Uuid::nil()))
}

async fn stage(fixture: &SqliteFixture, follow_ups: impl IntoIterator<Item = FollowUp>) {
    let mut tx = fixture.begin().await;
    fixture.outbox().follow_up(&mut tx, follow_ups).await.unwrap();
    fixture.commit(tx).await;
}

async fn stage_messages(fixture: &SqliteFixture, messages: impl IntoIterator<Item = MessageBuilder>) {
    for message in messages {
        let mut tx = fixture.begin().await;
        fixture.outbox().stage(&mut tx, message).await.unwrap();
        fixture.commit(tx).await;
    }
}

async fn claim(fixture: &SqliteFixture, limit: usize) -> Vec<ClaimedMessage> {
    claim_from(&fixture.store, limit).await
}

async fn claim_from(store: &SqliteStore, limit: usize) -> Vec<ClaimedMessage> {
    store.claim(&ClaimRequest::new(queue(), limit)).await.unwrap()
}

async fn claim_of(fixture: &SqliteFixture, queue: &str, limit: usize) -> Vec<ClaimedMessage> {
    fixture.store.claim(&ClaimRequest::new(queue.parse().unwrap(), limit)).await.unwrap()
}

async fn land(fixture: &SqliteFixture, claimed: &ClaimedMessage) -> GroupProgress {
    let transactions = fixture.transactions();
    let mut tx = transactions.begin().await.unwrap();
    let progress = transactions.land(&mut tx, &claimed.lease, &group_of(claimed)).await.unwrap();
    transactions.commit(tx).await.unwrap();
    progress
}

async fn abandon(fixture: &SqliteFixture, claimed: &ClaimedMessage) -> bool {
    let transactions = fixture.transactions();
    let mut tx = transactions.begin().await.unwrap();
    let is_ours = transactions.abandon(&mut tx, &claimed.lease, Reason::Rejected, "rejected").await.unwrap();
    transactions.commit(tx).await.unwrap();
    is_ours
}

async fn schedule(
    transactions: &SqliteTransactions,
    claimed: &ClaimedMessage,
    not_before: SystemTime,
    at_least: Duration,
) -> SystemTime {
    let mut tx = transactions.begin().await.unwrap();
    let until = transactions.schedule(&mut tx, &claimed.lease, not_before, at_least).await.unwrap().unwrap();
    transactions.commit(tx).await.unwrap();
    until
}

async fn counts(fixture: &SqliteFixture) -> StatusCounts {
    fixture.store.status_counts(&queue()).await.unwrap()
}

fn counted(statuses: impl IntoIterator<Item = (FollowUpStatus, u64)>) -> StatusCounts {
    let mut counts = StatusCounts::default();
    counts.extend(statuses);
    counts
}

/// The counts computed row by row, by the documented rules.
async fn count_rows(fixture: &SqliteFixture) -> StatusCounts {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros();
    let rows = sqlx::query(
        "select 'ready', token is not null, due_at, attempts, queue from postrider_ready \
         union all select 'scheduled', 0, due_at, attempts, queue from postrider_scheduled \
         union all select 'dead', 0, 0, 0, queue from postrider_dead \
         union all select 'archive', 0, 0, 0, queue from postrider_archive",
    );
    let number: i64 = sqlx::query_scalar("select id from postrider_queue where name = 'follow-ups'")
        .fetch_one(&fixture.app)
        .await
        .unwrap();
    let mut counts = StatusCounts::default();
    for row in rows.fetch_all(&fixture.app).await.unwrap() {
        if row.get::<i64, _>(4) != number {
            continue;
        }
        let (is_leased, due_at, attempts): (bool, i64, i64) = (row.get(1), row.get(2), row.get(3));
        let is_due = u128::try_from(due_at).unwrap() <= now;
        let status = match row.get::<&str, _>(0) {
            "dead" => FollowUpStatus::Abandoned,
            "archive" => FollowUpStatus::Succeeded,
            _ if is_leased => FollowUpStatus::InFlight,
            _ if attempts > 0 => FollowUpStatus::Failed,
            _ if is_due => FollowUpStatus::Pending,
            _ => FollowUpStatus::Scheduled,
        };
        counts.extend([(status, 1)]);
    }
    counts
}

/// All rows of all tables, with all columns.
async fn all_rows(fixture: &SqliteFixture) -> Vec<String> {
    let mut all = Vec::new();
    for sql in [
        "select json_array('ready', id, hex(token), lease_until, due_at, attempts, deliveries, last_error, content_type, hex(payload)) from postrider_ready order by id",
        "select json_array('scheduled', id, due_at, attempts, deliveries, last_error, content_type, hex(payload)) from postrider_scheduled order by id",
        "select json_array('dead', id, attempts, deliveries, last_error, content_type, hex(payload)) from postrider_dead order by id",
        "select json_array('archive', id, attempts, deliveries, last_error, content_type, hex(payload)) from postrider_archive order by id",
    ] {
        let rows: Vec<String> = sqlx::query_scalar(sql).fetch_all(&fixture.app).await.unwrap();
        all.extend(rows);
    }
    all
}
