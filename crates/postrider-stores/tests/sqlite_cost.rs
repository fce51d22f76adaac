//! The cost of a claim and a settlement: bounded by an index, whatever the backlog, the scheduled and leased messages, and the
//! statistics.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/sqlite.rs"]
mod support;

use postrider_core::{ClaimRequest, Message, OnFailure, Outbox, QueuePolicy, Store, schema::Schema};
use postrider_testkit::Fixture;
use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use support::SqliteFixture;

/// Every statement of the hot paths finds its rows by an index, and none has another query plan for other statistics.
#[tokio::test]
async fn query_plans_use_indexes_whatever_the_statistics() {
    let fixture = SqliteFixture::new().await;
    assert_bounded(&fixture, "never analyzed").await;
    fixture.run("analyze").await;
    assert_bounded(&fixture, "analyzed empty").await;
    fill(&fixture, 30).await;
    fixture.run("analyze").await;
    assert_bounded(&fixture, "analyzed at thirty rows").await;
    fill(&fixture, 3_000).await;
    fixture.run("analyze").await;
    assert_bounded(&fixture, "analyzed at three thousand rows").await;
}

async fn assert_bounded(fixture: &SqliteFixture, when: &str) {
    // A connection reads the statistics when it is opened.
    let mut connection =
        SqliteConnection::connect(&format!("sqlite:{}", fixture.path().display())).await.unwrap();
    for (name, sql) in fixture.store.statements() {
        let explain = AssertSqlSafe(format!("explain query plan {sql}"));
        let rows = sqlx::query(explain).fetch_all(&mut connection).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get(3)).collect();
        for step in &plan {
            // The table of queues (`q`) is tiny, the sequence (`positions`) is one row, `j` is the parameter, and `h`, `t` and
            // unnamed tables are rows already found.
            let scanned = step.strip_prefix("SCAN ").and_then(|rest| rest.split(' ').next());
            let is_scan = scanned.is_some_and(|name| {
                !["j", "h", "q", "t", "positions", "json_each", "CONSTANT"].contains(&name)
                    && !name.starts_with('(')
            });
            let is_automatic_index = step.contains("AUTOMATIC");
            assert!(!is_scan && !is_automatic_index, "{name}, {when}: {plan:#?}\n{sql}");
        }
    }
}

/// Where tenants take turns, a claim reads as many rows as it returns and one for each tenant, however large the backlog is.
#[tokio::test]
async fn fair_claim_cost_is_independent_of_tenant_backlog() {
    let mut steps = Vec::new();
    for noisy in [1_000, 150_000] {
        let fixture = SqliteFixture::new().await;
        let queue = "tenants".parse().unwrap();
        fixture.store.declare(&queue, &QueuePolicy::default().fair_by_tenant()).await.unwrap();
        let of = |tenant: &str| Message::builder("tenants").tenant(tenant).build().unwrap();
        let messages: Vec<Message> = (0..noisy)
            .map(|_| of("noisy"))
            .chain((0..20).map(|number| of(&format!("quiet-{number}"))))
            .collect();
        let mut tx = fixture.app.begin().await.unwrap();
        fixture.store.outbox().stage_all(&mut tx, &messages).await.unwrap();
        tx.commit().await.unwrap();
        // Some messages are leased, and some of the leases have expired.
        let short_lease = ClaimRequest::new(queue.clone(), 300).with_lease_for(Duration::from_secs(30));
        fixture.store.claim(&short_lease).await.unwrap();
        fixture.advance(Duration::from_secs(60)).await;
        fixture.store.claim(&ClaimRequest::new(queue.clone(), 100)).await.unwrap();
        let mut connection =
            SqliteConnection::connect(&format!("sqlite:{}", fixture.path().display())).await.unwrap();
        let taken = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&taken);
        let count = move || {
            counter.fetch_add(1, SeqCst);
            true
        };
        connection.lock_handle().await.unwrap().set_progress_handler(1, count);
        for (name, sql) in fixture.store.statements() {
            let query = sqlx::query(AssertSqlSafe(sql)).bind(1_i64);
            let query = match name {
                "tenants" => query,
                "messages of a tenant" => query.bind("noisy").bind(0_i64).bind(100_i64),
                "expired messages of tenants" => query.bind(i64::MAX).bind(100_i64),
                _ => continue,
            };
            taken.store(0, SeqCst);
            let rows = query.fetch_all(&mut connection).await.unwrap();
            assert!(!rows.is_empty(), "{name}");
            steps.push((noisy, name, taken.load(SeqCst)));
        }
    }
    let (short, long) = steps.split_at(steps.len() / 2);
    for ((_, name, few), (_, _, many)) in short.iter().zip(long) {
        assert!(
            *many < 2 * few && *many < 5_000,
            "{name}: {many} steps with a large backlog, {few} with a small one"
        );
    }
}

/// Messages in every state, ordered and not.
async fn fill(fixture: &SqliteFixture, count: usize) {
    let (store, outbox) = (&fixture.store, fixture.store.outbox());
    store.declare(&"keys".parse().unwrap(), &QueuePolicy::by_key(OnFailure::Skip)).await.unwrap();
    store.declare(&"tenants".parse().unwrap(), &QueuePolicy::default().fair_by_tenant()).await.unwrap();
    for queue in ["plain", "keys", "tenants"] {
        let messages: Vec<Message> = (0..count)
            .map(|number| {
                let message = Message::builder(queue).key(format!("key-{}", number % 7));
                let message = message.tenant(format!("tenant-{}", number % 5));
                let message = message.subject(format!("subject-{}", number % 11)).event_type("erase");
                let due = if number % 3 == 0 { Duration::from_secs(3600) } else { Duration::ZERO };
                message.due_after(due).build().unwrap()
            })
            .collect();
        let mut tx = fixture.app.begin().await.unwrap();
        outbox.stage_all(&mut tx, &messages).await.unwrap();
        tx.commit().await.unwrap();
        let request = ClaimRequest::new(queue.parse().unwrap(), count / 3);
        let claimed = store.claim(&request).await.unwrap();
        let dead: Vec<_> = claimed
            .iter()
            .take(claimed.len() / 2)
            .map(|each| each.lease.dead(postrider_core::Reason::Rejected, "no"))
            .collect();
        store.settle(&dead).await.unwrap();
    }
}
