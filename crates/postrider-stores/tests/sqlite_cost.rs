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
            // The table of queues (`q`) is tiny, `j` is the argument, and `h` and what has no name are rows already found.
            let scanned = step.strip_prefix("SCAN ").and_then(|rest| rest.split(' ').next());
            let bad = scanned.is_some_and(|name| {
                !["j", "h", "q", "json_each", "CONSTANT"].contains(&name) && !name.starts_with('(')
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

/// A claim costs the same whether a hundred thousand messages are leased, wait or stand behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_costs_the_same_whatever_waits_is_leased_or_lies_ahead() {
    const MANY: usize = 100_000;
    let small = SqliteFixture::new().await;
    let large = SqliteFixture::new().await;
    large
        .run(
            "insert into postrider_queue (name) values ('plain'); \
             with recursive n(n) as (select 1 union all select n + 1 from n where n < 300000) \
             insert into postrider_ready (id, queue, message_id, token, lease_until, staged_at, due_at, payload) \
               select n, 1, randomblob(16), iif(n <= 100000, randomblob(16), null), \
                 iif(n <= 100000, 4000000000000000, null), 0, 0, x'00' from n where n <= 200000; \
             with recursive n(n) as (select 1 union all select n + 1 from n where n < 100000) \
             insert into postrider_later (id, queue, message_id, staged_at, due_at, payload) \
               select 200000 + n, 1, randomblob(16), 0, 4000000000000000 + n, x'00' from n; \
             update postrider_line set last = 300000",
        )
        .await;
    let mut tx = small.app.begin().await.unwrap();
    let messages = vec![Message::builder("plain").payload("0").build().unwrap(); 2_000];
    small.store.outbox().stage_all(&mut tx, &messages).await.unwrap();
    tx.commit().await.unwrap();

    let request = ClaimRequest::new("plain".parse().unwrap(), 100);
    let mut times = [Duration::MAX; 2];
    for _ in 0..20 {
        for (fixture, time) in [&small, &large].into_iter().zip(&mut times) {
            let began = std::time::Instant::now();
            assert_eq!(fixture.store.claim(&request).await.unwrap().len(), 100);
            *time = began.elapsed().min(*time);
        }
    }
    // A scan of the hundred thousand would cost ten times as much and more.
    assert!(times[1] < times[0] * 4 + Duration::from_millis(2), "of {MANY}: {times:?}");
}
