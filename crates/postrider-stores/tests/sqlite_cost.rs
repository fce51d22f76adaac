//! What a claim and a settle cost: bounded by an index, whatever the backlog, the future, what is leased and the statistics.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/sqlite.rs"]
mod support;

use postrider_core::{ClaimRequest, Message, OnFailure, Outbox, QueuePolicy, Store, schema::Schema};
use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection};
use std::time::Duration;
use support::SqliteFixture;

/// Every statement of the hot paths finds its rows by an index, and none has another plan for other statistics.
#[tokio::test]
async fn no_statistics_make_a_plan_that_scans() {
    let fixture = SqliteFixture::new().await;
    assert_bounded(&fixture, "never analyzed").await;
    fixture.run("analyze").await;
    assert_bounded(&fixture, "analyzed empty").await;
    busy(&fixture, 30).await;
    fixture.run("analyze").await;
    assert_bounded(&fixture, "analyzed at thirty rows").await;
    busy(&fixture, 3_000).await;
    fixture.run("analyze").await;
    assert_bounded(&fixture, "analyzed at three thousand rows").await;
}

async fn assert_bounded(fixture: &SqliteFixture, when: &str) {
    // A connection reads the statistics when it is opened.
    let mut fresh = SqliteConnection::connect(&format!("sqlite:{}", fixture.path().display())).await.unwrap();
    for (name, sql) in fixture.store.statements() {
        let explain = AssertSqlSafe(format!("explain query plan {sql}"));
        let rows = sqlx::query(explain).fetch_all(&mut fresh).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get(3)).collect();
        for step in &plan {
            // The table of queues (`q`) is tiny, the line (`places`) is one row, `j` is the argument, and `h` and what has no
            // name are rows already found.
            let scanned = step.strip_prefix("SCAN ").and_then(|rest| rest.split(' ').next());
            let bad = scanned.is_some_and(|name| {
                !["j", "h", "q", "places", "json_each", "CONSTANT"].contains(&name) && !name.starts_with('(')
            });
            let made_up = step.contains("AUTOMATIC");
            assert!(!bad && !made_up, "{name}, {when}: {plan:#?}\n{sql}");
        }
    }
}

/// Messages in every room and state, ordered and not.
async fn busy(fixture: &SqliteFixture, count: usize) {
    let (store, outbox) = (&fixture.store, fixture.store.outbox());
    store.declare(&"keys".parse().unwrap(), &QueuePolicy::by_key(OnFailure::Skip)).await.unwrap();
    for queue in ["plain", "keys"] {
        let messages: Vec<Message> = (0..count)
            .map(|number| {
                let message = Message::builder(queue).key(format!("key-{}", number % 7));
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
