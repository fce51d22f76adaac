//! The ledger in PostgreSQL: it cannot be changed, it is one chain whoever appends, and whoever has been at it is found.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/postgres.rs"]
mod support;

use postrider_core::{
    Audit, AuditError, AuditEvent, AuditKind, AuditSink, SubjectId,
    audit::{BEGINNING, Chain, Head, Unverified, verify},
    transact::Transact,
};
use postrider_stores::postgres::{PostgresLedger, PostgresStore};
use postrider_testkit::TransactFixture;
use sqlx::{AssertSqlSafe, Executor, Row};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use support::PostgresFixture;

fn subject(name: &str) -> SubjectId {
    SubjectId::new(name).unwrap()
}

fn event(name: &str) -> AuditEvent {
    AuditEvent { subject: Some(subject(name)), ..AuditEvent::new(AuditKind::Succeeded) }
}

fn events(count: u32) -> Vec<AuditEvent> {
    (0..count).map(|n| AuditEvent { attempt: Some(n), ..event("customer-17") }).collect()
}

/// Where the ledger is broken, which it must be.
async fn broken_at(ledger: &PostgresLedger) -> u64 {
    match verify(ledger, None).await {
        Err(Unverified::Broken(found)) => found.position,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_is_appended_is_read_again_in_its_order() {
    let fixture = PostgresFixture::new().await;
    let ledger = fixture.store.ledger();
    assert_eq!(verify(&ledger, None).await.unwrap(), Head::default());
    let all = [
        event("customer-17"),
        AuditEvent { actor: Some("Zoë \"the 猫\" \\u0000 \n".to_owned()), ..event("Zoë") },
        AuditEvent::new(AuditKind::Erased),
        AuditEvent { error: Some("timeout".to_owned()), until_ms: Some(u64::MAX), ..event("customer-17") },
    ];
    ledger.append(&all[..2]).await.unwrap();
    ledger.append(&[]).await.unwrap();
    ledger.append(&all[2..]).await.unwrap();

    let read = ledger.read_since(UNIX_EPOCH, 10).await.unwrap();
    assert_eq!(
        read.iter().map(|recorded| &recorded.event).collect::<Vec<_>>(),
        all.iter().collect::<Vec<_>>()
    );
    assert_eq!(read.iter().map(|recorded| recorded.position).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(ledger.read_since(UNIX_EPOCH, 3).await.unwrap(), read[..3]);
    assert_eq!(ledger.read_since(read[2].at, 10).await.unwrap(), read[2..]);
    assert_eq!(ledger.read_since(read[3].at + Duration::from_nanos(1), 10).await.unwrap(), []);
    assert_eq!(ledger.read_since(SystemTime::now() + Duration::from_secs(1 << 50), 10).await.unwrap(), []);

    let of = ledger.read(&subject("customer-17")).await.unwrap();
    assert_eq!(of, [read[0].clone(), read[3].clone()]);
    assert_eq!(ledger.read(&subject("Zoë")).await.unwrap(), [read[1].clone()]);
    assert_eq!(ledger.read(&subject("nobody")).await.unwrap(), []);

    let links = ledger.links(1, 2).await.unwrap();
    assert_eq!(links.iter().map(|link| link.position).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(ledger.links(0, 1).await.unwrap()[0].previous, BEGINNING);
}

/// The database hashes; what is compared here was hashed by this program.
#[tokio::test]
async fn the_database_hashes_as_the_rules_say() {
    let fixture = PostgresFixture::new().await;
    let ledger = fixture.store.ledger();
    ledger.append(&[AuditEvent { actor: Some("Zoë 猫".to_owned()), ..event("é") }]).await.unwrap();
    ledger.append(&events(3)).await.unwrap();
    let mut head = Head::default();
    for link in ledger.links(0, 10).await.unwrap() {
        head = head.followed_by(link.at_micros, &link.body);
        assert_eq!(link.hash, head.hash);
    }
    assert_eq!(head.position, 4);
    assert_eq!(ledger.head().await.unwrap(), head);
}

#[tokio::test]
async fn an_event_is_appended_once_and_all_of_a_batch_or_none() {
    let fixture = PostgresFixture::new().await;
    let ledger = fixture.store.ledger();
    let all = events(3);
    ledger.append(&all[..1]).await.unwrap();
    let head = ledger.head().await.unwrap();
    let again = [all[1].clone(), all[0].clone(), all[2].clone()];
    let twice = [all[1].clone(), all[2].clone(), all[1].clone()];
    for (batch, known) in [(&again, all[0].id), (&twice, all[1].id)] {
        let refused = ledger.append(batch).await;
        assert!(matches!(refused, Err(AuditError::Duplicate(id)) if id == known), "{refused:?}");
        assert_eq!(ledger.head().await.unwrap(), head);
    }
    // In a transaction, too, which goes on.
    let transactions = fixture.transactions();
    let mut tx = transactions.begin().await.unwrap();
    let refused = transactions.record(&mut tx, &again).await;
    assert!(matches!(refused, Err(AuditError::Duplicate(id)) if id == all[0].id), "{refused:?}");
    transactions.record(&mut tx, &all[1..]).await.unwrap();
    transactions.commit(tx).await.unwrap();
    assert_eq!(verify(&ledger, Some(head)).await.unwrap().position, 3);
}

#[tokio::test]
async fn what_postgres_cannot_keep_is_refused_before_it_is_sent() {
    let fixture = PostgresFixture::new().await;
    let (ledger, transactions) = (fixture.store.ledger(), fixture.transactions());
    let mut tx = transactions.begin().await.unwrap();
    for bad in [
        AuditEvent { error: Some("a\0b".to_owned()), ..event("customer-17") },
        AuditEvent { actor: Some("\0".to_owned()), ..event("customer-17") },
    ] {
        let batch = [event("customer-17"), bad];
        assert!(matches!(ledger.append(&batch).await, Err(AuditError::Invalid(_))));
        assert!(matches!(transactions.record(&mut tx, &batch).await, Err(AuditError::Invalid(_))));
    }
    transactions.record(&mut tx, &events(1)).await.unwrap();
    transactions.commit(tx).await.unwrap();
    assert_eq!(ledger.head().await.unwrap().position, 1);
}

#[tokio::test]
async fn the_ledger_refuses_to_be_changed() {
    let fixture = PostgresFixture::new().await;
    let ledger = fixture.store.ledger();
    ledger.append(&events(2)).await.unwrap();
    let head = ledger.head().await.unwrap();
    for sql in [
        "update postrider.ledger set body = body",
        "update postrider.ledger set body = body where false",
        "insert into postrider.ledger (position, at, body, previous, hash) select position, at, body, previous, hash \
         from postrider.ledger on conflict (position) do update set body = excluded.body",
        "delete from postrider.ledger where position = 1",
        "truncate postrider.ledger",
        "truncate postrider.ledger, postrider.ledger_head",
        "delete from postrider.ledger_head",
        "truncate postrider.ledger_head",
        "set session_replication_role = replica; delete from postrider.ledger",
    ] {
        let mut tx = fixture.app.begin().await.unwrap();
        let refused = tx.execute(sql).await.unwrap_err();
        tx.rollback().await.unwrap();
        let refused = refused.as_database_error().unwrap();
        assert_eq!(refused.code().as_deref(), Some("23001"), "{sql}: {refused}");
        assert!(refused.message().contains("is refused: the ledger is appended to and read"), "{refused}");
    }
    assert_eq!(verify(&ledger, None).await.unwrap(), head);
}

#[tokio::test]
async fn a_record_that_is_rolled_back_leaves_nothing() {
    let fixture = PostgresFixture::new().await;
    let (ledger, transactions) = (fixture.store.ledger(), fixture.transactions());
    ledger.append(&events(1)).await.unwrap();
    let head = ledger.head().await.unwrap();
    let mut tx = transactions.begin().await.unwrap();
    let lost = event("nobody");
    transactions.record(&mut tx, std::slice::from_ref(&lost)).await.unwrap();
    transactions.rollback(tx).await.unwrap();
    assert_eq!(ledger.head().await.unwrap(), head);
    assert_eq!(ledger.read(&subject("nobody")).await.unwrap(), []);
    ledger.append(&[lost]).await.unwrap();
    assert_eq!(verify(&ledger, Some(head)).await.unwrap().position, 2, "and no gap");
}

/// Whoever appends alone, in a transaction that commits, or in one that does not: there is one chain, without gaps.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_appends_at_once_leaves_one_chain() {
    const EACH: u32 = 30;
    let fixture = PostgresFixture::new().await;
    let mut appenders = Vec::new();
    for n in 0..6 {
        let store = PostgresStore::connect(fixture.database.url()).await.unwrap();
        let transactions = store.transactions(fixture.app.clone());
        appenders.push(tokio::spawn(async move {
            let mut kept = 0;
            for round in 0..EACH {
                let batch = events(1 + round % 3);
                if n % 2 == 0 {
                    store.ledger().append(&batch).await.unwrap();
                    kept += u64::from(1 + round % 3);
                    continue;
                }
                let mut tx = transactions.begin().await.unwrap();
                transactions.record(&mut tx, &batch).await.unwrap();
                if round % 2 == 0 {
                    transactions.commit(tx).await.unwrap();
                    kept += u64::from(1 + round % 3);
                } else {
                    transactions.rollback(tx).await.unwrap();
                }
            }
            kept
        }));
    }
    let mut kept = 0;
    for appender in appenders {
        kept += appender.await.unwrap();
    }
    let ledger = fixture.store.ledger();
    assert_eq!(verify(&ledger, None).await.unwrap().position, kept);
    let read = ledger.read_since(UNIX_EPOCH, usize::MAX).await.unwrap();
    assert!(
        read.iter().map(|recorded| recorded.position).eq(1..=kept),
        "the order of time is that of positions"
    );
}

/// A clock that is set back makes no event older than the one before it.
#[tokio::test]
async fn no_event_is_older_than_the_one_before() {
    let fixture = PostgresFixture::new().await;
    let ledger = fixture.store.ledger();
    ledger.append(&events(1)).await.unwrap();
    // As if the clock had been an hour ahead until now.
    fixture.run("update postrider.ledger_head set at = at + interval '1 hour'").await;
    ledger.append(&events(2)).await.unwrap();
    let read = ledger.read_since(UNIX_EPOCH, 10).await.unwrap();
    assert_eq!(read[1].at, read[0].at + Duration::from_secs(3_600));
    assert_eq!(read[2].at, read[1].at);
    verify(&ledger, None).await.unwrap();
}

/// A ledger of twenty events whose triggers somebody has turned off, and a copy to put it right again.
async fn unguarded() -> (PostgresFixture, PostgresLedger) {
    let fixture = PostgresFixture::new().await;
    let ledger = fixture.store.ledger();
    for batch in events(20).chunks(3) {
        ledger.append(batch).await.unwrap();
    }
    fixture
        .run(
            "alter table postrider.ledger disable trigger all; alter table postrider.ledger_head disable trigger all; \
             create table kept as select position, at, body, previous, hash from postrider.ledger; \
             create table kept_head as table postrider.ledger_head; \
             create function forge(n bigint, forged text) returns void language sql as $$ \
               insert into postrider.ledger (position, at, body, previous, hash) \
               select n, k.at, forged, k.hash, sha256(k.hash || int8send(n) \
                 || int8send((extract(epoch from k.at) * 1000000)::bigint) || convert_to(forged, 'UTF8')) \
               from kept k where k.position = n - 1 $$",
        )
        .await;
    verify(&ledger, None).await.unwrap();
    (fixture, ledger)
}

async fn tamper(fixture: &PostgresFixture, sql: &str) {
    fixture.app.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
}

async fn put_right(fixture: &PostgresFixture) {
    fixture
        .run(
            "delete from postrider.ledger; \
             insert into postrider.ledger (position, at, body, previous, hash) select * from kept; \
             delete from postrider.ledger_head; insert into postrider.ledger_head select * from kept_head",
        )
        .await;
}

#[tokio::test]
async fn whatever_is_done_to_an_event_is_found_where_it_is() {
    let (fixture, ledger) = unguarded().await;
    for n in 1..=20_u64 {
        let at = format!("where position = {n}");
        let changes = [
            // Not even a blank.
            format!("update postrider.ledger set body = body || ' ' {at}"),
            format!("update postrider.ledger set body = replace(body, 'succeeded', 'abandoned') {at}"),
            format!("update postrider.ledger set at = at + interval '1 microsecond' {at}"),
            format!("update postrider.ledger set at = 'infinity' {at}"),
            format!(
                "update postrider.ledger set previous = set_byte(previous, 31, get_byte(previous, 31) # 1) {at}"
            ),
            format!("update postrider.ledger set hash = set_byte(hash, 0, get_byte(hash, 0) # 1) {at}"),
            format!("update postrider.ledger set hash = '' {at}"),
            format!("update postrider.ledger set position = position + 100 {at}"),
            format!("update postrider.ledger set position = -position {at}"),
            format!("delete from postrider.ledger {at}"),
            // Put out of the way first, since two cannot be in one place.
            format!(
                "update postrider.ledger set position = -position {at}; \
                 update postrider.ledger set position = {n} where position = {n} % 20 + 1; \
                 update postrider.ledger set position = {n} % 20 + 1 where position = -{n}"
            ),
            // As it was, but moved by one, with another in front of it that nobody hashed.
            format!(
                "update postrider.ledger set position = -position - 1 where position >= {n}; \
                 update postrider.ledger set position = -position where position < 0; \
                 insert into postrider.ledger (position, at, body, previous, hash) \
                 select {n}, k.at, jsonb_set(k.body::jsonb, '{{id}}', to_jsonb(gen_random_uuid()))::text, k.previous, k.hash \
                 from kept k {at}"
            ),
        ];
        for change in changes {
            tamper(&fixture, &change).await;
            // The first and the last are exchanged: found at the first.
            let expected = if change.contains("% 20") && n == 20 { 1 } else { n };
            assert_eq!(broken_at(&ledger).await, expected, "{change}");
            put_right(&fixture).await;
        }
    }
    verify(&ledger, None).await.unwrap();
}

/// Whoever also writes the right hash is betrayed by the next event, or by the head.
#[tokio::test]
async fn a_forged_event_is_found_by_the_one_behind_it() {
    let (fixture, ledger) = unguarded().await;
    let body = serde_json::to_string(&event("forged")).unwrap();
    for n in 2..=21_u64 {
        if n <= 20 {
            tamper(
                &fixture,
                &format!("delete from postrider.ledger where position = {n}; select forge({n}, '{body}')"),
            )
            .await;
            assert_eq!(broken_at(&ledger).await, (n + 1).min(20), "in its place");
            put_right(&fixture).await;
        }
        tamper(
            &fixture,
            &format!(
                "update postrider.ledger set position = -position - 1 where position >= {n}; \
                 update postrider.ledger set position = -position where position < 0; select forge({n}, '{body}')"
            ),
        )
        .await;
        assert_eq!(broken_at(&ledger).await, if n == 20 { 20 } else { (n + 1).min(21) }, "in front of {n}");
        put_right(&fixture).await;
    }
    for (change, position) in [
        ("update postrider.ledger_head set position = 21", 21),
        ("update postrider.ledger_head set position = 19", 19),
        ("update postrider.ledger_head set hash = set_byte(hash, 0, get_byte(hash, 0) # 1)", 20),
        ("delete from postrider.ledger_head", 1),
    ] {
        tamper(&fixture, change).await;
        assert_eq!(broken_at(&ledger).await, position, "{change}");
        put_right(&fixture).await;
    }
    // Links and head alike: only a head that was written down tells.
    let pinned = ledger.head().await.unwrap();
    tamper(
        &fixture,
        &format!(
            "delete from postrider.ledger where position = 20; select forge(20, '{body}'); \
             update postrider.ledger_head set hash = (select hash from postrider.ledger where position = 20)"
        ),
    )
    .await;
    verify(&ledger, None).await.unwrap();
    match verify(&ledger, Some(pinned)).await {
        Err(Unverified::Broken(found)) => assert_eq!(found.position, 20),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn without_a_head_nothing_is_appended() {
    let (fixture, ledger) = unguarded().await;
    fixture.run("delete from postrider.ledger_head").await;
    let refused = ledger.append(&events(1)).await.unwrap_err();
    assert!(refused.to_string().contains("verify the ledger"), "{refused}");
}

/// A pooler may lend the session to somebody else next.
#[tokio::test]
async fn behind_a_pooler_nothing_stays_prepared() {
    for (pooled, kept) in [(true, "0"), (false, "1")] {
        let configure = move |options: postrider_stores::postgres::PostgresOptions| {
            if pooled { options.behind_pooler() } else { options }
        };
        let fixture = PostgresFixture::open(configure).await;
        fixture.store.ledger().append(&events(2)).await.unwrap();
        let transactions = fixture.transactions();
        let mut tx = transactions.begin().await.unwrap();
        transactions.record(&mut tx, &events(2)).await.unwrap();
        let count = "select count(*) from pg_prepared_statements where statement like '%append_ledger%'";
        let row = sqlx::raw_sql(count).fetch_one(&mut *tx).await.unwrap();
        assert_eq!(row.try_get_unchecked::<&str, _>(0).unwrap(), kept);
        transactions.commit(tx).await.unwrap();
        assert_eq!(verify(&fixture.store.ledger(), None).await.unwrap().position, 4);
    }
}
