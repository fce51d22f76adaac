//! The ledger in SQLite: it is append-only, and verification finds the position of tampered events.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/sqlite.rs"]
#[allow(dead_code, reason = "not every test program needs all of it")]
mod support;

use postrider_core::{
    AuditError, AuditEvent, AuditKind, AuditSink, SubjectId, TxBackend,
    audit::{AuditChain, ChainHead, VerifyError, verify},
};
use postrider_stores::sqlite::{SqliteLedger, SqliteStore};
use postrider_testkit::TransactFixture;
use sqlx::{AssertSqlSafe, Executor};
use std::time::{Duration, SystemTime};
use support::SqliteFixture;
use tokio::task::JoinSet;

#[tokio::test]
async fn appended_events_are_read_in_order() {
    let fixture = SqliteFixture::new().await;
    let ledger = fixture.store.ledger();
    assert_eq!(verify(&ledger, None).await.unwrap(), ChainHead::default());
    let events = [about("17"), about("18"), about("17"), AuditEvent::new(AuditKind::Erased)];
    ledger.append(&events[..1]).await.unwrap();
    ledger.append(&[]).await.unwrap();
    ledger.append(&events[1..]).await.unwrap();

    let read = ledger.read(&subject("17")).await.unwrap();
    let read: Vec<_> = read.into_iter().map(|recorded| (recorded.position, recorded.event)).collect();
    assert_eq!(read, [(1, events[0].clone()), (3, events[2].clone())]);
    let all = ledger.read_since(SystemTime::UNIX_EPOCH, 10).await.unwrap();
    assert_eq!(
        all.iter().map(|recorded| &recorded.event).collect::<Vec<_>>(),
        events.iter().collect::<Vec<_>>()
    );
    assert_eq!(ledger.read_since(SystemTime::UNIX_EPOCH, 2).await.unwrap(), all[..2]);
    assert_eq!(ledger.read_since(all[3].at, 10).await.unwrap().last(), all.last());
    assert_eq!(ledger.read_since(all[3].at + Duration::from_micros(1), 10).await.unwrap(), []);
    assert_eq!(verify(&ledger, None).await.unwrap().position, 4);
}

#[tokio::test]
async fn duplicate_event_refuses_whole_batch() {
    let fixture = SqliteFixture::new().await;
    let ledger = fixture.store.ledger();
    let first = about("17");
    ledger.append(std::slice::from_ref(&first)).await.unwrap();
    let head = ledger.head().await.unwrap();
    let twice = about("18");
    for (batch, id) in [
        (vec![first.clone()], first.id),
        (vec![about("18"), first.clone(), about("19")], first.id),
        (vec![twice.clone(), about("19"), twice.clone()], twice.id),
    ] {
        let error = ledger.append(&batch).await.unwrap_err();
        assert!(matches!(error, AuditError::Duplicate(known) if known == id), "{error:?}");
        let transactions = fixture.transactions();
        let mut tx = transactions.begin().await.unwrap();
        let error = transactions.record(&mut tx, &batch).await.unwrap_err();
        assert!(matches!(error, AuditError::Duplicate(known) if known == id), "{error:?}");
        // A commit after the error appends nothing.
        transactions.commit(tx).await.unwrap();
    }
    assert_eq!(ledger.head().await.unwrap(), head);
    assert_eq!(verify(&ledger, Some(head)).await.unwrap(), head);
}

#[tokio::test]
async fn event_with_nul_is_refused() {
    let fixture = SqliteFixture::new().await;
    let ledger = fixture.store.ledger();
    let mut bad = about("17");
    bad.error = Some("time\0out".to_owned());
    let error = ledger.append(&[about("16"), bad.clone()]).await.unwrap_err();
    assert!(matches!(&error, AuditError::Invalid(invalid) if invalid.field() == "error"), "{error:?}");
    let transactions = fixture.transactions();
    let mut tx = transactions.begin().await.unwrap();
    assert!(matches!(transactions.record(&mut tx, &[bad]).await, Err(AuditError::Invalid(_))));
    transactions.commit(tx).await.unwrap();
    assert_eq!(ledger.head().await.unwrap(), ChainHead::default());

    // A backslash is not a NUL, and all other text is stored as it was hashed.
    let mut odd = about("ünïcode-🦀");
    odd.actor = Some("\\u0000 \"quoted\"\u{1}\n\u{2028}\u{fffd}🦀".to_owned());
    ledger.append(std::slice::from_ref(&odd)).await.unwrap();
    assert_eq!(ledger.read(&subject("ünïcode-🦀")).await.unwrap().remove(0).event, odd);
    assert_eq!(verify(&ledger, None).await.unwrap().position, 1);
}

#[tokio::test]
async fn rolled_back_append_leaves_no_event() {
    let fixture = SqliteFixture::new().await;
    let (ledger, transactions) = (fixture.store.ledger(), fixture.transactions());
    let (kept, undone) = (about("17"), about("18"));
    let mut tx = transactions.begin().await.unwrap();
    transactions.record(&mut tx, std::slice::from_ref(&undone)).await.unwrap();
    transactions.rollback(tx).await.unwrap();
    assert_eq!(ledger.head().await.unwrap(), ChainHead::default());
    // Not even its id is taken. A transaction that began without the write lock takes it.
    let mut tx = fixture.app.begin().await.unwrap();
    transactions.record(&mut tx, &[kept]).await.unwrap();
    transactions.record(&mut tx, &[undone]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(verify(&ledger, None).await.unwrap().position, 2);
}

#[tokio::test]
async fn update_delete_and_replace_of_ledger_are_refused() {
    let fixture = SqliteFixture::new().await;
    let ledger = fixture.store.ledger();
    ledger.append(&[about("17"), about("18")]).await.unwrap();
    let head = ledger.head().await.unwrap();
    for (statement, text) in [
        ("update postrider_ledger set at = at + 1 where position = 1", "cannot be updated"),
        ("update postrider_ledger set body = body", "cannot be updated"),
        ("delete from postrider_ledger where position = 2", "cannot be deleted"),
        ("delete from postrider_ledger", "cannot be deleted"),
        (
            "insert into postrider_ledger select 4, at, json_set(body, '$.id', 'x'), hash, hash from postrider_ledger where position = 2",
            "to the end",
        ),
        (
            "insert into postrider_ledger select 3, at, json_set(body, '$.id', 'x'), zeroblob(32), hash from postrider_ledger where position = 2",
            "to the end",
        ),
        (
            "insert into postrider_ledger select 3, at, body, hash, hash from postrider_ledger where position = 2",
            "once",
        ),
        // These would delete conflicting rows.
        (
            "insert or replace into postrider_ledger select position, at + 1, body, previous, hash from postrider_ledger where position = 1",
            "to the end",
        ),
        (
            "replace into postrider_ledger select 3, at, body, hash, hash from postrider_ledger where position = 2",
            "once",
        ),
        ("update postrider_ledger_head set position = 1", "only with an append"),
        ("update postrider_ledger_head set hash = zeroblob(32)", "only with an append"),
        ("delete from postrider_ledger_head", "cannot be deleted"),
        ("replace into postrider_ledger_head values (1, 0, zeroblob(32))", "one head"),
    ] {
        let error = fixture.app.execute(statement).await.unwrap_err().to_string();
        assert!(error.contains(text), "{statement}: {error}");
    }
    assert_eq!(verify(&ledger, Some(head)).await.unwrap(), head);
}

/// Appends from several handles and in several kinds of transactions form one chain.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_appends_form_one_chain() {
    const EACH: usize = 40;
    let fixture = SqliteFixture::new().await;
    let mut appenders = JoinSet::new();
    for _ in 0..2 {
        let store = SqliteStore::open(fixture.path()).await.unwrap();
        let (ledger, transactions) = (store.ledger(), store.transactions(fixture.app.clone()));
        appenders.spawn(async move {
            for _ in 0..EACH {
                ledger.append(&[about("17"), about("18")]).await.unwrap();
            }
        });
        appenders.spawn(async move {
            for number in 0..EACH {
                let mut tx = transactions.begin().await.unwrap();
                transactions.record(&mut tx, &[about("19")]).await.unwrap();
                if number % 4 == 0 {
                    transactions.rollback(tx).await.unwrap();
                } else {
                    transactions.commit(tx).await.unwrap();
                }
            }
        });
    }
    while let Some(ended) = appenders.join_next().await {
        ended.unwrap();
    }
    let head = verify(&fixture.store.ledger(), None).await.unwrap();
    assert_eq!(head.position, 2 * (2 * EACH + EACH - EACH / 4) as u64);
    assert_eq!(fixture.store.ledger().head().await.unwrap(), head);
}

const ROWS: u64 = 20;

/// Any change to any event, with the permissions of the file's owner, is found with its position.
#[tokio::test]
async fn verify_finds_position_of_tampered_event() {
    let (fixture, ledger, head) = ledger_without_triggers().await;
    for n in 1..=ROWS {
        let mut tamperings = vec![
            ("position", format!("update postrider_ledger set position = 1000 where position = {n}"), n),
            ("at", format!("update postrider_ledger set at = at + 1 where position = {n}"), n),
            (
                "body",
                format!(
                    "update postrider_ledger set body = json_set(body, '$.kind', 'failed') where position = {n}"
                ),
                n,
            ),
            ("a space", format!("update postrider_ledger set body = body || ' ' where position = {n}"), n),
            (
                "previous",
                format!("update postrider_ledger set previous = randomblob(32) where position = {n}"),
                n,
            ),
            ("hash", format!("update postrider_ledger set hash = randomblob(32) where position = {n}"), n),
            ("delete", format!("delete from postrider_ledger where position = {n}"), n),
            (
                "delete and close the gap",
                format!("delete from postrider_ledger where position = {n}; {}", shift(n + 1, -1)),
                n,
            ),
            // The next event does not follow the forged one; after the last event, the head does not.
            (
                "insert",
                format!("{}; {}", shift(n, 1), forge(n, head_before(&ledger, n).await)),
                (n + 1).min(ROWS),
            ),
            ("insert a copy", format!("{}; {}", shift(n, 1), copy(n)), n),
            ("cut off", format!("delete from postrider_ledger where position >= {n}"), n),
        ];
        if n < ROWS {
            let swap = |set: &str| {
                format!(
                    "update postrider_ledger set {set} from kept k \
                     where k.position = {n} + {n} + 1 - postrider_ledger.position and k.position between {n} and {n} + 1"
                )
            };
            tamperings.push(("swap bodies", without_unique_index(&swap("body = k.body")), n));
            tamperings.push((
                "swap rows",
                without_unique_index(&swap("at = k.at, body = k.body, previous = k.previous, hash = k.hash")),
                n,
            ));
        }
        for (what, sql, position) in tamperings {
            fixture.app.execute(AssertSqlSafe(sql)).await.unwrap();
            match verify(&ledger, None).await.unwrap_err() {
                VerifyError::Broken(found) => assert_eq!(found.position, position, "{what} at {n}: {found}"),
                VerifyError::Unread(error) => panic!("{what} at {n}: {error}"),
            }
            restore(&fixture).await;
            assert_eq!(verify(&ledger, None).await.unwrap(), head, "after {what} at {n}");
        }
    }
}

/// The chain alone cannot detect a moved head or a rewritten chain. A head that was recorded elsewhere detects both.
#[tokio::test]
async fn recorded_head_detects_a_rewritten_chain() {
    let (fixture, ledger, pinned) = ledger_without_triggers().await;
    let shorter = head_before(&ledger, ROWS).await;
    let cut = format!(
        "delete from postrider_ledger where position = {ROWS}; \
         update postrider_ledger_head set position = {}, hash = x'{}'",
        shorter.position,
        hash(shorter)
    );
    fixture.app.execute(AssertSqlSafe(cut)).await.unwrap();
    assert_eq!(verify(&ledger, None).await.unwrap(), shorter);
    assert!(
        matches!(verify(&ledger, Some(pinned)).await, Err(VerifyError::Broken(found)) if found.position == ROWS)
    );

    fixture.run("delete from postrider_ledger; update postrider_ledger_head set position = 0, hash = zeroblob(32)").await;
    let events: Vec<_> = (0..ROWS).map(|number| about(&format!("forged-{number}"))).collect();
    fixture
        .run(
            "create trigger appended after insert on postrider_ledger begin \
              update postrider_ledger_head set position = new.position, hash = new.hash; end",
        )
        .await;
    ledger.append(&events).await.unwrap();
    assert_eq!(verify(&ledger, None).await.unwrap().position, ROWS);
    assert!(
        matches!(verify(&ledger, Some(pinned)).await, Err(VerifyError::Broken(found)) if found.position == ROWS)
    );
}

/// An unreadable event is not skipped.
#[tokio::test]
async fn unreadable_event_fails_the_read() {
    for damage in [
        "body = json_set(body, '$.kind', 'unheard of')",
        "body = json_set(body, '$.actor', cast(x'ff' as text))",
    ] {
        let (fixture, ledger, _) = ledger_without_triggers().await;
        let sql = format!(
            "drop index postrider_ledger_event; drop index postrider_ledger_subject; \
            update postrider_ledger set {damage} where position = 7"
        );
        fixture.app.execute(AssertSqlSafe(sql)).await.unwrap();
        let read = ledger.read_since(SystemTime::UNIX_EPOCH, 100).await;
        assert!(matches!(read, Err(AuditError::Unreadable { position: 7, .. })), "{damage}: {read:?}");
        assert!(
            matches!(verify(&ledger, None).await, Err(VerifyError::Broken(found)) if found.position == 7),
            "{damage}"
        );
    }
}

fn about(who: &str) -> AuditEvent {
    AuditEvent { subject: Some(subject(who)), ..AuditEvent::new(AuditKind::Succeeded) }
}

fn subject(who: &str) -> SubjectId {
    SubjectId::new(who).unwrap()
}

/// A ledger of twenty events without its triggers, and a copy in the table `kept`.
async fn ledger_without_triggers() -> (SqliteFixture, SqliteLedger, ChainHead) {
    let fixture = SqliteFixture::new().await;
    let ledger = fixture.store.ledger();
    for number in 0..ROWS / 2 {
        ledger.append(&[about(&format!("{number}")), about(&format!("{number}"))]).await.unwrap();
    }
    let head = verify(&ledger, None).await.unwrap();
    assert_eq!(head.position, ROWS);
    let triggers: Vec<String> = sqlx::query_scalar(
        "select name from sqlite_schema where type = 'trigger' and tbl_name like 'postrider_ledger%'",
    )
    .fetch_all(&fixture.app)
    .await
    .unwrap();
    assert_eq!(triggers.len(), 7);
    for trigger in triggers {
        fixture.app.execute(AssertSqlSafe(format!("drop trigger {trigger}"))).await.unwrap();
    }
    fixture.run("create table kept as select position, at, body, previous, hash from postrider_ledger").await;
    (fixture, ledger, head)
}

async fn restore(fixture: &SqliteFixture) {
    fixture
        .run("delete from postrider_ledger; insert into postrider_ledger (position, at, body, previous, hash) select * from kept")
        .await;
}

/// The head of the chain before event `n`.
async fn head_before(ledger: &SqliteLedger, n: u64) -> ChainHead {
    let links = ledger.links(0, usize::try_from(n - 1).unwrap()).await.unwrap();
    links.iter().fold(ChainHead::default(), |head, link| head.followed_by(link.at_micros, &link.body))
}

/// Moves all events from `n` on by `by` positions.
fn shift(n: u64, by: i64) -> String {
    format!(
        "update postrider_ledger set position = position + 1000 where position >= {n}; \
         update postrider_ledger set position = position - 1000 + {by} where position > 1000"
    )
}

/// Inserts a forged event at `n`, which follows its predecessor.
fn forge(n: u64, before: ChainHead) -> String {
    let body = serde_json::to_string(&about("forged")).unwrap();
    let forged = before.followed_by(17, &body);
    format!(
        "insert into postrider_ledger (position, at, body, previous, hash) \
         values ({n}, 17, '{body}', x'{}', x'{}')",
        hash(before),
        hash(forged)
    )
}

/// Inserts an event at `n` with the hashes of the one that was there.
fn copy(n: u64) -> String {
    format!(
        "insert into postrider_ledger (position, at, body, previous, hash) \
         select {n}, at, json_set(body, '$.id', 'another'), previous, hash from kept where position = {n}"
    )
}

/// Two rows cannot swap ids while the unique index exists.
fn without_unique_index(sql: &str) -> String {
    format!("drop index if exists postrider_ledger_event; {sql}")
}

fn hash(head: ChainHead) -> String {
    head.hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
