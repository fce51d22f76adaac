//! The cost of a chunk of a bulk operation: bounded by an index, whatever the statistics and the number of messages before and after.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/plan.rs"]
#[allow(dead_code, reason = "not every test program needs all of it")]
mod plan;
#[path = "support/postgres.rs"]
mod support;

use plan::{connect, explain};
use sqlx::{AssertSqlSafe, Executor};
use support::PostgresFixture;

const LETTERS: usize = 20_000;
const CHUNK: usize = 100;

const TYPES: &str = "smallint, text, text, text, text, timestamptz, timestamptz, bigint, timestamptz, timestamptz, bigint, \
    bigint, text, text";

#[tokio::test]
async fn chunk_cost_is_independent_of_backlog() {
    for rows_when_analyzed in [None, Some(0), Some(30)] {
        let fixture = PostgresFixture::new().await;
        fixture.run("alter table postrider.dead set (autovacuum_enabled = false)").await;
        fixture.run("select postrider.queue_id('orders')").await;
        let bury = async |count: usize| {
            let sql = format!(
                "insert into postrider.dead (id, staged_at, due_at, failed_at, message_id, attempts, deliveries, queue, \
                   ordered, payload, reason, key) \
                 select nextval('postrider.message_position'), now(), now(), now() - n % 1000 * interval '1 s', gen_random_uuid(), 1, 1, \
                   q.id, false, 'x', 'rejected', 'key-' || n % 10 from generate_series(1, {count}) n, postrider.queue q"
            );
            fixture.app.execute(AssertSqlSafe(sql)).await.unwrap();
        };
        if let Some(rows) = rows_when_analyzed {
            bury(rows).await;
            fixture.run("analyze postrider.dead").await;
        }
        bury(LETTERS).await;
        let mut connection = connect(fixture.database.url()).await;
        for (name, statement) in fixture.store.statements() {
            if !matches!(name, "next dead letters to requeue" | "next dead letters to discard") {
                continue;
            }
            // From the middle on, all of them and a tenth of them.
            for (key, most) in [("null", 1), ("'key-7'", 10)] {
                let middle = LETTERS / 2;
                let arguments = format!(
                    "1, {key}, null, null, null, null, null, 1000000, now() + interval '1 day', null, {middle}, {CHUNK}, \
                     'ada', 'ticket 17'"
                );
                let plan = explain(&mut connection, &statement, TYPES, &arguments).await;
                let what = format!("{name}, analyzed with {rows_when_analyzed:?}, of {key}");
                plan.assert_bounded(&what, (2 * most * CHUNK) as f64);
                let picked = plan.nodes.iter().find(|node| node.relation == "dead");
                assert!(picked.is_some_and(|node| node.rows >= CHUNK as f64), "{what}: {:#?}", plan.nodes);
            }
        }
    }
}
