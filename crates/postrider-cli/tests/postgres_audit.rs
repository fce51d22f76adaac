//! `postrider audit verify` on PostgreSQL.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider::{AuditEvent, AuditKind, AuditSink, postgres::PostgresStore, schema::Schema};
use postrider_testkit::postgres::TestDatabase;
use sqlx::{Connection, Executor, PgConnection};
use support::program::{postrider, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_verify_detects_a_changed_event() {
    let database = TestDatabase::empty().await;
    let without = run(&mut postrider(&["audit", "verify", "--db", database.url()]));
    assert_eq!(without.code, Some(1), "{}", without.err);
    assert!(without.err.contains("the ledger cannot be read"), "{}", without.err);

    let store = PostgresStore::connect(database.url()).await.unwrap();
    store.migrate().await.unwrap();
    let events: Vec<_> = (0..5).map(|_| AuditEvent::new(AuditKind::Succeeded)).collect();
    store.ledger().append(&events).await.unwrap();
    store.close().await;
    let whole = run(&mut postrider(&["audit", "verify", "--db", database.url()]));
    assert_eq!((whole.code, whole.err.as_str()), (Some(0), ""));
    assert!(whole.out.starts_with("ledger verified: 5 events\nhead 5:"), "{}", whole.out);

    let mut connection = PgConnection::connect(database.url()).await.unwrap();
    connection.execute("alter table postrider.ledger disable trigger all").await.unwrap();
    connection
        .execute("update postrider.ledger set at = at - interval '1 h' where position = 3")
        .await
        .unwrap();
    connection.close().await.unwrap();
    let broken = run(&mut postrider(&["audit", "verify", "--db", database.url(), "--json"]));
    assert_eq!((broken.code, broken.out.as_str()), (Some(1), ""));
    assert!(broken.err.contains("broken at event 3"), "{}", broken.err);
}
