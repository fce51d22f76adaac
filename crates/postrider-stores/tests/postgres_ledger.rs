//! The ledger in PostgreSQL: it is append-only, concurrent appends form one chain, and verification finds tampering.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/postgres.rs"]
mod support;

use postrider_core::{
    AuditError, AuditEvent, AuditKind, AuditSink, SubjectId, TxBackend,
    audit::{AuditChain, BEGINNING, ChainHead, VerifyError, verify},
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

/// The position at which verification fails, which it must.
async fn broken_at(ledger: &PostgresLedger) -> u64 {
    match verify(ledger, None).await {
        Err(VerifyError::Broken(found)) => found.position,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn appended_events_are_read_in_order() {
    let fixture = PostgresFixture::new().await;
    let ledger = fixture.store.ledger();
    assert_eq!(verify(&ledger, None).await.unwrap(), ChainHead::default());
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

/// The database hashes; the test compares with hashes of this program.
#[tokio::test]
async fn database_hashes_match_verification() {
    let fixture = PostgresFixture::new().await;
    let ledger = fixture.store.ledger();
    ledger.append(&[AuditEvent { actor: Some("Zoë 猫".to_owned()), ..event("é") }]).await.unwrap();
    ledger.append(&events(3)).await.unwrap();
    let mut head = ChainHead::default();
    for link in ledger.links(0, 10).await.unwrap() {
        head = head.followed_by(link.at_micros, &link.body);
        assert_eq!(link.hash, head.hash);
    }
    assert_eq!(head.position, 4);
    assert_eq!(ledger.head().await.unwrap(), head);
}

#[tokio::test]
async fn duplicate_event_refuses_whole_batch() {
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
    // In a transaction, too, which stays usable.
    let transactions = fixture.transactions();
    let mut tx = transactions.begin().await.unwrap();
    let refused = transactions.record(&mut tx, &again).await;
    assert!(matches!(refused, Err(AuditError::Duplicate(id)) if id == all[0].id), "{refused:?}");
    transactions.record(&mut tx, &all[1..]).await.unwrap();
    transactions.commit(tx).await.unwrap();
    assert_eq!(verify(&ledger, Some(head)).await.unwrap().position, 3);
}

#[tokio::test]
async fn event_with_nul_is_refused() {
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
async fn update_delete_and_truncate_of_ledger_are_refused() {
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
        assert!(refused.message().contains("is refused: the ledger is append-only"), "{refused}");
    }
    assert_eq!(verify(&ledger, None).await.unwrap(), head);
}

#[tokio::test]
async fn rolled_back_append_leaves_no_event() {
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

/// Appends alone, in transactions that commit, and in transactions that roll back: one chain without gaps.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_appends_form_one_chain() {
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

/// A clock that is set back does not make an event older than the one before it.
#[tokio::test]
async fn event_times_never_decrease() {
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

/// A ledger of twenty events with its triggers disabled, and a copy to restore it.
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
async fn verify_finds_position_of_tampered_event() {
    let (fixture, ledger) = unguarded().await;
    for n in 1..=20_u64 {
        let at = format!("where position = {n}");
        let changes = [
            // Not even a blank may change.
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
            // Moved away first, because two events cannot have one position.
            format!(
                "update postrider.ledger set position = -position {at}; \
                 update postrider.ledger set position = {n} where position = {n} % 20 + 1; \
                 update postrider.ledger set position = {n} % 20 + 1 where position = -{n}"
            ),
            // Shifted by one position, with an unhashed event before it.
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

/// A forged event with the right hash is found by the next event, or by the head.
#[tokio::test]
async fn verify_finds_forged_event_by_next_link() {
    let (fixture, ledger) = unguarded().await;
    let body = serde_json::to_string(&event("forged")).unwrap();
    for n in 2..=21_u64 {
        if n <= 20 {
            tamper(
                &fixture,
                &format!("delete from postrider.ledger where position = {n}; select forge({n}, '{body}')"),
            )
            .await;
            assert_eq!(broken_at(&ledger).await, (n + 1).min(20), "in its position");
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
    // Events and head were both forged: only a recorded head shows it.
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
        Err(VerifyError::Broken(found)) => assert_eq!(found.position, 20),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn append_without_head_is_refused() {
    let (fixture, ledger) = unguarded().await;
    fixture.run("delete from postrider.ledger_head").await;
    let refused = ledger.append(&events(1)).await.unwrap_err();
    assert!(refused.to_string().contains("verify the ledger"), "{refused}");
}

/// A pooler may lend the session to another client next.
#[tokio::test]
async fn no_prepared_statement_remains_behind_pooler() {
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
