//! How follow-ups end in SQLite, and what those see who look after them.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/sqlite.rs"]
#[allow(dead_code, reason = "not every test program needs all of it")]
mod support;

use postrider_core::{
    Audit, AuditEvent, AuditKind, AuditSink, ClaimRequest, Claimed, Follow, FollowUp, FollowUpExt, FollowUps,
    Lease, LeaseToken, Message, MessageBuilder, OnFailure, OutboxExt, QueueName, QueuePolicy, Reason,
    Reference, Store, SubjectId, TenantId,
    follow_up::{Erased, Group, Landing, Status, StatusCounts, Which, has_forgotten},
    inspect::{Action, Inspect, ListRequest, Operate, Room},
    schema::Schema,
    transact::Transact,
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

/// Two runners, each with a handle of its own, land the last two follow-ups of each subject at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_land_the_last_two_exactly_one_is_told() {
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
                let landing = transactions.land(&mut tx, &each.lease, &group_of(&each)).await.unwrap();
                assert_ne!(landing, Landing::Lost);
                let kind = if landing == Landing::Last { AuditKind::Completed } else { AuditKind::Succeeded };
                let event = AuditEvent { subject: each.message.subject().cloned(), ..AuditEvent::new(kind) };
                transactions.record(&mut tx, &[event]).await.unwrap();
                transactions.commit(tx).await.unwrap();
                last += usize::from(landing == Landing::Last);
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

/// A transaction that was begun without the lock takes it before it looks.
#[tokio::test]
async fn whoever_lands_holds_the_lock_before_he_looks() {
    let fixture = SqliteFixture::new().await;
    stage(&fixture, [erase("17", "payments")]).await;
    let claimed = claim(&fixture, 1).await.remove(0);
    let mut first = fixture.app.begin().await.unwrap();
    let transactions = fixture.transactions();
    assert_eq!(
        transactions.land(&mut first, &stale(&claimed), &group_of(&claimed)).await.unwrap(),
        Landing::Lost
    );
    let mut impatient = fixture.app.acquire().await.unwrap();
    sqlx::query("pragma busy_timeout = 0").execute(&mut *impatient).await.unwrap();
    let second = sqlx::query("begin immediate").execute(&mut *impatient).await.unwrap_err().to_string();
    assert!(second.contains("locked"), "{second}");
    sqlx::query("pragma busy_timeout = 30000").execute(&mut *impatient).await.unwrap();
    first.rollback().await.unwrap();
}

#[tokio::test]
async fn what_has_been_rolled_back_has_not_landed() {
    let fixture = SqliteFixture::new().await;
    stage(&fixture, [erase("17", "payments")]).await;
    let claimed = claim(&fixture, 1).await.remove(0);
    let transactions = fixture.transactions();
    for _ in 0..2 {
        let mut tx = transactions.begin().await.unwrap();
        assert_eq!(
            transactions.land(&mut tx, &claimed.lease, &group_of(&claimed)).await.unwrap(),
            Landing::Last
        );
        transactions.rollback(tx).await.unwrap();
        assert_eq!(counts(&fixture).await, counted([(Status::InFlight, 1)]));
    }
}

/// Others are others: another tenant, another operation, another queue, another subject.
#[tokio::test]
async fn only_what_belongs_together_keeps_a_group_open() {
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
    assert_eq!(land(&fixture, &claimed).await, Landing::Last);
    // The same for each of them: nothing else is of their groups.
    for each in claim(&fixture, 10).await {
        assert_eq!(land(&fixture, &each).await, Landing::Last);
    }
}

/// In whatever state the other is, the group is open.
#[tokio::test]
async fn whatever_has_not_landed_keeps_its_group_open() {
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
        assert_eq!(land(&fixture, &claimed).await, Landing::Open, "{state}");
        // So that the next round finds nothing to claim.
        let rest = claim(&fixture, 10).await;
        for each in rest {
            assert_eq!(land(&fixture, &each).await, Landing::Last, "{state}");
        }
    }
    // The one that was given up closes its group when it is put back and lands.
    let dead = fixture.store.dockets(&queue(), Which::Abandoned, 10).await.unwrap();
    assert_eq!(dead.len(), 1);
    fixture.store.requeue(&queue(), &[dead[0].id], &Action::new("ada", "mended")).await.unwrap();
    let again = claim(&fixture, 1).await.remove(0);
    assert_eq!(land(&fixture, &again).await, Landing::Last);
}

#[tokio::test]
async fn a_claim_that_is_somebody_elses_ends_nothing() {
    let fixture = SqliteFixture::new().await;
    fixture.store.declare(&queue(), &QueuePolicy::default().with_keep_for(minutes(60))).await.unwrap();
    stage(&fixture, [erase("17", "payments").with_json("secret").unwrap()]).await;
    let lost = claim(&fixture, 1).await.remove(0);
    fixture.advance(minutes(60)).await;
    let held = claim(&fixture, 1).await.remove(0);
    assert_eq!(held.id(), lost.id());
    let before = everything(&fixture).await;
    let transactions = fixture.transactions();
    let mut tx = transactions.begin().await.unwrap();
    assert_eq!(transactions.land(&mut tx, &lost.lease, &group_of(&lost)).await.unwrap(), Landing::Lost);
    assert!(!transactions.abandon(&mut tx, &lost.lease, Reason::Rejected, "no").await.unwrap());
    let at = SystemTime::now() + minutes(60);
    assert_eq!(transactions.schedule(&mut tx, &lost.lease, at, Duration::ZERO).await.unwrap(), None);
    transactions.commit(tx).await.unwrap();
    assert_eq!(everything(&fixture).await, before);
    assert_eq!(land(&fixture, &held).await, Landing::Last);
    // What has landed lands no second time.
    let after = everything(&fixture).await;
    assert_eq!(land(&fixture, &held).await, Landing::Lost);
    assert_eq!(everything(&fixture).await, after);
}

#[tokio::test]
async fn what_has_ended_keeps_no_payload() {
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
    for room in [Room::Archive, Room::Dead] {
        let page = fixture.store.list(&ListRequest::new(queue(), room)).await.unwrap();
        let seen: Vec<_> = page
            .entries
            .iter()
            .map(|entry| {
                (entry.message.payload().len(), entry.message.content_type(), has_forgotten(&entry.message))
            })
            .collect();
        let (json, text) = ("application/json", "text/plain");
        assert_eq!(seen, [(0, json, true), (0, text, true), (0, json, false)], "{room:?}");
    }
    let dead = fixture.store.dockets(&queue(), Which::Abandoned, 10).await.unwrap();
    assert_eq!(dead[0].error.as_deref(), Some("rejected"));
    assert!(dead.iter().all(|docket| docket.status == Status::Abandoned));
}

#[tokio::test]
async fn what_is_put_off_begins_anew_when_its_time_has_come() {
    let fixture = SqliteFixture::new().await;
    let transactions = fixture.transactions();
    stage(&fixture, [erase("17", "payments").with_json("kept").unwrap()]).await;
    // An attempt that failed, and one whose runner died.
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
    assert_eq!(counts(&fixture).await, counted([(Status::Scheduled, 1)]));
    let docket = fixture.store.dockets(&queue(), Which::Scheduled, 10).await.unwrap().remove(0);
    assert_eq!((docket.id, docket.at, docket.deliveries, docket.error), (claimed.id(), until, 0, None));
    assert_eq!(docket.message.payload(), claimed.message.payload());
    fixture.advance(minutes(29)).await;
    assert_eq!(claim(&fixture, 1).await, []);
    fixture.advance(minutes(1)).await;
    let again = claim(&fixture, 1).await.remove(0);
    assert_eq!((again.attempts, again.deliveries), (0, 1));

    // A time that has passed is no reason to go round in circles.
    let before = SystemTime::now() - Duration::from_millis(1);
    let until = schedule(&transactions, &again, SystemTime::UNIX_EPOCH, minutes(5)).await;
    assert!(until >= before + minutes(5) && until <= SystemTime::now() + minutes(6), "{until:?}");
    assert_eq!(claim(&fixture, 1).await, []);
    fixture.advance(minutes(6)).await;
    let again = claim(&fixture, 1).await.remove(0);
    // Nor is one that no calendar has.
    let never = SystemTime::now() + Duration::from_secs(1 << 36);
    assert!(schedule(&transactions, &again, never, Duration::MAX).await < never);
    assert_eq!(counts(&fixture).await, counted([(Status::Scheduled, 1)]));
}

/// Follow-ups in every state, counted by the store and one by one.
#[tokio::test]
async fn counts_are_exact_and_every_status_is_there() {
    let fixture = SqliteFixture::new().await;
    assert_eq!(counts(&fixture).await.iter().collect::<Vec<_>>(), Status::ALL.map(|status| (status, 0)));
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
            // Stays in hand.
            _ => {}
        }
    }
    // Leases lapse, some retries and timers come due, and some of all that is claimed again.
    for advanced in [0, 2, 20] {
        fixture.advance(minutes(advanced)).await;
        assert_eq!(counts(&fixture).await, scanned(&fixture).await, "after {advanced} minutes");
    }
    let counts_before = counts(&fixture).await;
    assert!(Status::ALL.iter().all(|status| counts_before.of(*status) > 0), "{counts_before:?}");
    assert_eq!(claim(&fixture, 30).await.len(), 30);
    assert_eq!(counts(&fixture).await, scanned(&fixture).await);
}

#[tokio::test]
async fn those_who_need_a_hand_are_listed_the_oldest_first() {
    let fixture = SqliteFixture::new().await;
    let nobody = fixture.store.dockets(&queue(), Which::Overdue(Duration::ZERO), 10).await.unwrap();
    assert_eq!(nobody, []);
    for resolver in ["a", "b", "c"] {
        stage(&fixture, [erase("17", resolver)]).await;
        fixture.advance(minutes(10)).await;
    }
    let later = SystemTime::now() + minutes(20);
    stage(&fixture, [erase("17", "e").not_before(later), erase("17", "d").not_before(later - minutes(10))])
        .await;
    // "a" is given up and "b" waits for a retry.
    let claimed = claim(&fixture, 2).await;
    assert!(abandon(&fixture, &claimed[0]).await);
    assert_eq!(fixture.store.settle(&[claimed[1].lease.retry(minutes(5), "busy")]).await.unwrap(), []);

    let listed = |which, limit| {
        let store = fixture.store.clone();
        async move {
            let dockets = store.dockets(&queue(), which, limit).await.unwrap();
            let listed = dockets.iter().map(|docket| {
                let follow_up = FollowUp::read(&docket.message).unwrap();
                assert_eq!(follow_up.id(), Some(docket.id));
                format!("{} {}", follow_up.resolver().as_str(), docket.status)
            });
            listed.collect::<Vec<_>>()
        }
    };
    assert_eq!(listed(Which::Abandoned, 10).await, ["a abandoned"]);
    assert_eq!(listed(Which::Scheduled, 10).await, ["d scheduled", "e scheduled"]);
    assert_eq!(listed(Which::Scheduled, 1).await, ["d scheduled"]);
    assert_eq!(listed(Which::Overdue(minutes(15)), 10).await, ["a abandoned", "b failed"]);
    assert_eq!(listed(Which::Overdue(minutes(5)), 10).await, ["a abandoned", "b failed", "c pending"]);
    assert_eq!(listed(Which::Overdue(minutes(5)), 1).await, ["a abandoned"]);
    let failed = fixture.store.dockets(&queue(), Which::Overdue(minutes(15)), 10).await.unwrap().remove(1);
    assert_eq!((failed.deliveries, failed.error.as_deref()), (1, Some("busy")));
    assert!(failed.staged_at <= SystemTime::now() - minutes(19), "{:?}", failed.staged_at);
}

/// What is about a subject goes from every room of every queue, and what must stay stays and is told of.
#[tokio::test]
async fn what_is_kept_of_a_subject_is_removed_from_every_room() {
    let fixture = SqliteFixture::new().await;
    let store = &fixture.store;
    let orders = QueuePolicy::default().with_keep_for(minutes(600));
    store.declare(&"orders".parse().unwrap(), &orders).await.unwrap();
    store.declare(&queue(), &orders).await.unwrap();
    store.declare(&"keys".parse().unwrap(), &QueuePolicy::by_key(OnFailure::Skip)).await.unwrap();
    let about = |queue: &str| Message::builder(queue).subject("17").payload("secret");

    // One that is kept, one that is dead, and one in hand.
    stage_messages(&fixture, [about("orders"), about("orders"), about("orders")]).await;
    let orders = claim_of(&fixture, "orders", 3).await;
    let endings = [orders[0].lease.done(), orders[1].lease.dead(Reason::Rejected, "no")];
    assert_eq!(store.settle(&endings).await.unwrap(), []);
    // One that is due, one whose lease has lapsed, one that waits, and a timer.
    stage_messages(&fixture, [about("lapsed")]).await;
    claim_of(&fixture, "lapsed", 1).await;
    sqlx::query("update postrider_ready set lease_until = 1 where queue = (select id from postrider_queue where name = 'lapsed')")
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
    // Keys: one in the middle of a lane, one that is a lane's only message, one in a lane that is in hand.
    let other = |key: &str| Message::builder("keys").key(key).subject("18");
    stage_messages(&fixture, [other("busy"), about("keys").key("busy")]).await;
    assert_eq!(claim_of(&fixture, "keys", 1).await.len(), 1);
    stage_messages(
        &fixture,
        [other("k"), about("keys").key("k"), other("k"), about("keys").key("alone"), about("keys")],
    )
    .await;
    // Follow-ups: one that succeeded goes. One that is pending, one in hand, one that waits and one given up do not.
    stage(&fixture, [erase("17", "succeeded"), erase("17", "abandoned"), erase("17", "in-hand")]).await;
    let follow_ups = claim(&fixture, 3).await;
    land(&fixture, &follow_ups[0]).await;
    assert!(abandon(&fixture, &follow_ups[1]).await);
    stage(
        &fixture,
        [erase("17", "pending"), erase("17", "waits").not_before(SystemTime::now() + minutes(60))],
    )
    .await;
    // Somebody else's, and another's of the same name.
    let acme = TenantId::new("acme").unwrap();
    stage_messages(
        &fixture,
        [about("plain").tenant("acme"), Message::builder("plain").subject("18"), Message::builder("plain")],
    )
    .await;

    let (subject, why) = (SubjectId::new("17").unwrap(), Action::new("ada", "asked for it"));
    let erased = store.erase_subject(None, &subject, &why).await.unwrap();
    // Due or waiting: lapsed, three of "plain", three of "keys".
    assert_eq!(erased, Erased { waiting: 7, dead: 1, archived: 2, in_hand: 2, follow_ups: 4 });
    let again = store.erase_subject(None, &subject, &why).await.unwrap();
    assert_eq!(again, Erased { in_hand: 2, follow_ups: 4, ..Erased::default() });

    let left = "select count(*) from (select subject, tenant from postrider_ready union all select subject, tenant from postrider_later \
        union all select subject, tenant from postrider_dead union all select subject, tenant from postrider_archive) \
        where subject = '17' and tenant is null";
    let left: i64 = sqlx::query_scalar(left).fetch_one(&fixture.app).await.unwrap();
    assert_eq!(left, 6, "what is in hand, and the follow-ups");
    // The timer's name is free, and lanes live as long as their messages.
    let timers: i64 =
        sqlx::query_scalar("select count(*) from postrider_timer").fetch_one(&fixture.app).await.unwrap();
    assert_eq!(timers, 0);
    let lanes: Vec<String> = sqlx::query_scalar("select key from postrider_lane order by key")
        .fetch_all(&fixture.app)
        .await
        .unwrap();
    assert_eq!(lanes, ["busy", "k"]);
    assert_eq!(claim_of(&fixture, "keys", 10).await.len(), 2, "the others of the key run on");
    assert_eq!(claim_of(&fixture, "plain", 10).await.len(), 3);

    // A row for each queue that was touched, once, with nobody's name in it.
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
        [row("follow-ups", 1), row("keys", 3), row("lapsed", 1), row("orders", 2), row("plain", 3)]
    );
    let named: i64 = sqlx::query_scalar(
        "select count(*) from postrider_audit where message_ids like '%\"17\"%' or key is not null",
    )
    .fetch_one(&fixture.app)
    .await
    .unwrap();
    assert_eq!(named, 0);
    // What was claimed just now is in hand.
    let erased = store.erase_subject(Some(&acme), &subject, &why).await.unwrap();
    assert_eq!(erased, Erased { in_hand: 1, ..Erased::default() });
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

fn group_of(claimed: &Claimed) -> Group {
    FollowUp::read(&claimed.message).unwrap().group()
}

/// The lease of one who never claimed.
fn stale(claimed: &Claimed) -> Lease {
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

async fn claim(fixture: &SqliteFixture, limit: usize) -> Vec<Claimed> {
    claim_from(&fixture.store, limit).await
}

async fn claim_from(store: &SqliteStore, limit: usize) -> Vec<Claimed> {
    store.claim(&ClaimRequest::new(queue(), limit)).await.unwrap()
}

async fn claim_of(fixture: &SqliteFixture, queue: &str, limit: usize) -> Vec<Claimed> {
    fixture.store.claim(&ClaimRequest::new(queue.parse().unwrap(), limit)).await.unwrap()
}

async fn land(fixture: &SqliteFixture, claimed: &Claimed) -> Landing {
    let transactions = fixture.transactions();
    let mut tx = transactions.begin().await.unwrap();
    let landing = transactions.land(&mut tx, &claimed.lease, &group_of(claimed)).await.unwrap();
    transactions.commit(tx).await.unwrap();
    landing
}

async fn abandon(fixture: &SqliteFixture, claimed: &Claimed) -> bool {
    let transactions = fixture.transactions();
    let mut tx = transactions.begin().await.unwrap();
    let is_ours = transactions.abandon(&mut tx, &claimed.lease, Reason::Rejected, "rejected").await.unwrap();
    transactions.commit(tx).await.unwrap();
    is_ours
}

async fn schedule(
    transactions: &SqliteTransactions,
    claimed: &Claimed,
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

fn counted(statuses: impl IntoIterator<Item = (Status, u64)>) -> StatusCounts {
    let mut counts = StatusCounts::default();
    counts.extend(statuses);
    counts
}

/// Each row by itself, by the rules as they are written down.
async fn scanned(fixture: &SqliteFixture) -> StatusCounts {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros();
    let rows = sqlx::query(
        "select 'ready', token is not null, due_at, attempts, queue from postrider_ready \
         union all select 'later', 0, due_at, attempts, queue from postrider_later \
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
            "dead" => Status::Abandoned,
            "archive" => Status::Succeeded,
            _ if is_leased => Status::InFlight,
            _ if attempts > 0 => Status::Failed,
            _ if is_due => Status::Pending,
            _ => Status::Scheduled,
        };
        counts.extend([(status, 1)]);
    }
    counts
}

/// All rows of all rooms, with all that is in them.
async fn everything(fixture: &SqliteFixture) -> Vec<String> {
    let mut all = Vec::new();
    for sql in [
        "select json_array('ready', id, hex(token), lease_until, due_at, attempts, deliveries, last_error, content_type, hex(payload)) from postrider_ready order by id",
        "select json_array('later', id, due_at, attempts, deliveries, last_error, content_type, hex(payload)) from postrider_later order by id",
        "select json_array('dead', id, attempts, deliveries, last_error, content_type, hex(payload)) from postrider_dead order by id",
        "select json_array('archive', id, attempts, deliveries, last_error, content_type, hex(payload)) from postrider_archive order by id",
    ] {
        let rows: Vec<String> = sqlx::query_scalar(sql).fetch_all(&fixture.app).await.unwrap();
        all.extend(rows);
    }
    all
}
