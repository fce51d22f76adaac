//! The cost of claims and settlements: bounded by an index, whatever the backlog, the schedule, the past and the statistics.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/plan.rs"]
mod plan;
#[path = "support/postgres.rs"]
mod support;

use plan::{Plan, assert_hot, connect, explain};
use postrider_core::{ClaimRequest, LeaseSettlement, LeaseToken, Message, Outbox, QueueName, Store};
use postrider_stores::postgres::PostgresStore;
use postrider_testkit::Fixture;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use support::PostgresFixture;

const LIMIT: usize = 100;
const SETTLE: usize = 5_000;
/// Every statement that claims.
const CLAIMS: [&str; 4] = ["claim", "claim of many", "claim by position", "look back"];

fn queue() -> QueueName {
    QueueName::new("orders").unwrap()
}

/// Fills a queue through plain SQL, with autovacuum disabled.
async fn fill(fixture: &PostgresFixture, leased: usize, due: usize, future: usize) {
    fixture.run("alter table postrider.ready set (autovacuum_enabled = false)").await;
    fixture.run("alter table postrider.scheduled set (autovacuum_enabled = false)").await;
    let lease = "gen_random_uuid(), clock_timestamp() + interval '1 hour'";
    let sql = format!(
        "select postrider.queue_id('orders'); \
         insert into postrider.ready (queue, message_id, payload, token, lease_until) \
         select postrider.queue_id('orders'), gen_random_uuid(), 'x', {lease} from generate_series(1, {leased}); \
         insert into postrider.ready (queue, message_id, payload) \
         select (select id from postrider.queue), gen_random_uuid(), 'x' from generate_series(1, {due}); \
         insert into postrider.scheduled (queue, message_id, payload, due_at) \
         select (select id from postrider.queue), gen_random_uuid(), 'x', clock_timestamp() + n * interval '1 s' \
         + interval '1 hour' from generate_series(1, {future}) n"
    );
    let sql = sql.replace(
        "select postrider.queue_id('orders'), gen_random_uuid()",
        "select (select id from postrider.queue), gen_random_uuid()",
    );
    fixture.app.execute(AssertSqlSafe(sql)).await.unwrap();
}

fn statement(store: &PostgresStore, name: &str) -> String {
    store.statements().into_iter().find(|(each, _)| *each == name).unwrap().1
}

async fn explain_claim(
    connection: &mut PgConnection,
    store: &PostgresStore,
    name: &str,
    start: i64,
    limit: usize,
) -> Plan {
    let (types, arguments) = match name {
        "claim" => ("uuid, float8, smallint, bigint, bigint", format!("1, {start}, {limit}")),
        "claim of many" => {
            ("uuid, float8, smallint[], bigint[], bigint", format!("'{{1}}', '{{{start}}}', {limit}"))
        }
        "claim by position" => {
            let places: Vec<_> = (start..).skip(1).take(limit).map(|position| position.to_string()).collect();
            ("uuid, float8, smallint, bigint[]", format!("1, '{{{}}}'", places.join(",")))
        }
        _ => (
            "uuid, float8, smallint[], bigint[], bigint, text[], bigint[]",
            format!("'{{1}}', '{{{start}}}', {limit}, '{{}}', '{{}}'"),
        ),
    };
    let token = LeaseToken::fresh().as_uuid();
    let arguments = format!("'{token}', 60, {arguments}");
    explain(connection, &statement(store, name), types, &arguments).await
}

/// A mixed settlement of `SETTLE` messages of one or many claims.
async fn explain_settle(
    connection: &mut PgConnection,
    store: &PostgresStore,
    settles: &[LeaseSettlement],
    name: &str,
) -> Plan {
    let one_claim = name == "settle one claim";
    let token = settles[0].lease.token().as_uuid();
    let mut types = Vec::new();
    let mut arguments = Vec::new();
    let mut add = |cast: &str, value: String| {
        types.push(cast.to_owned());
        arguments.push(value);
    };
    let array = |values: Vec<String>| format!("'{{{}}}'", values.join(","));
    if one_claim {
        add("uuid", format!("'{token}'"));
        add("smallint", "1".to_owned());
    }
    let share = settles.len() / 7;
    for kind in 0..7 {
        let mut ids: Vec<_> =
            settles[kind * share..(kind + 1) * share].iter().map(|settle| settle.lease.id()).collect();
        ids.sort_unstable();
        let each = |value: &str| array(ids.iter().map(|_| value.to_owned()).collect());
        add("uuid[]", array(ids.iter().map(ToString::to_string).collect()));
        if !one_claim {
            add("uuid[]", each(&token.to_string()));
            add("smallint[]", each("1"));
        }
        match kind {
            1 | 5 => add("float8[]", each("60")),
            2 | 6 => {
                add("float8[]", each("60"));
                add("text[]", each("oops"));
            }
            3 => {
                add("text[]", each("rejected"));
                add("text[]", each("oops"));
            }
            _ => {}
        }
    }
    explain(connection, &statement(store, name), &types.join(", "), &arguments.join(", ")).await
}

#[tokio::test]
async fn claim_cost_is_independent_of_backlog_leases_and_schedule() {
    let small = PostgresFixture::new().await;
    fill(&small, 0, CLAIMS.len() * LIMIT, 0).await;
    let mut connection = connect(small.database.url()).await;
    let mut usual = Vec::new();
    // Each statement has rows of its own: an explained one leaves dead versions behind.
    for (name, start) in CLAIMS.into_iter().zip((0..).step_by(LIMIT)) {
        usual.push(explain_claim(&mut connection, &small.store, name, start, LIMIT).await.buffers);
    }
    drop(small);

    let large = PostgresFixture::new().await;
    fill(&large, 100_000, 1_000_000, 1_000_000).await;
    let mut connection = connect(large.database.url()).await;
    // The low-water mark of an active claimer is above the rows that it leased.
    let mark = sqlx::query("select max(id) from postrider.ready where token is not null");
    let mark: i64 = mark.fetch_one(&large.app).await.unwrap().get(0);
    for ((name, start), usual) in CLAIMS.into_iter().zip((mark..).step_by(LIMIT)).zip(usual) {
        let plan = explain_claim(&mut connection, &large.store, name, start, LIMIT).await;
        plan.assert_bounded(name, 3.0 * LIMIT as f64);
        assert!(
            plan.buffers <= 3.0 * usual,
            "{name}: {} buffers for {LIMIT} rows, {usual} when almost empty",
            plan.buffers
        );
    }
}

#[tokio::test]
async fn claim_cost_is_constant_while_snapshot_is_held() {
    let fixture = PostgresFixture::new().await;
    let mut holder = fixture.app.begin().await.unwrap();
    holder.execute("set transaction isolation level repeatable read").await.unwrap();
    holder.execute("select 1 from postrider.queue").await.unwrap();
    let mut connection = connect(fixture.database.url()).await;
    let batch: Vec<_> = (0..1_000).map(|n| Message::builder("orders").json(&n).build().unwrap()).collect();
    let request = ClaimRequest::new(queue(), 1_000);
    let mut usual = None;
    for round in 0..200 {
        let mut tx = fixture.begin().await;
        fixture.outbox().stage_all(&mut tx, &batch).await.unwrap();
        fixture.commit(tx).await;
        if round % 50 == 49 || round == 0 {
            let start = fixture.store.low_water_mark(&queue()).await.unwrap();
            let plan = explain_claim(&mut connection, &fixture.store, "claim", start, LIMIT).await;
            plan.assert_bounded("claim", 3.0 * LIMIT as f64);
            let usual = *usual.get_or_insert(plan.buffers);
            assert!(
                plan.buffers <= 3.0 * usual,
                "round {round}: {} buffers, {usual} in the first",
                plan.buffers
            );
        }
        let mut left = batch.len();
        while left > 0 {
            let claimed = fixture.store.claim(&request).await.unwrap();
            left -= claimed.len();
            let done: Vec<_> = claimed.iter().map(|claimed| claimed.lease.done()).collect();
            assert_eq!(fixture.store.settle(&done).await.unwrap(), []);
        }
    }
    holder.rollback().await.unwrap();
}

/// The statistics of an outbox are taken when it is empty, or nearly so, or not at all: its normal state.
#[tokio::test]
async fn plans_stay_bounded_whatever_the_statistics() {
    for rows_when_analyzed in [None, Some(0), Some(30)] {
        let fixture = PostgresFixture::new().await;
        if let Some(rows) = rows_when_analyzed {
            fill(&fixture, 0, rows, rows).await;
            fixture.run("analyze postrider.ready").await;
            fixture.run("analyze postrider.scheduled").await;
            fixture.run("analyze postrider.dead").await;
        }
        fill(&fixture, 0, 200_000, 200_000).await;
        let claimed = fixture.store.claim(&ClaimRequest::new(queue(), SETTLE)).await.unwrap();
        let settles: Vec<_> = claimed.iter().map(|claimed| claimed.lease.done()).collect();
        assert_eq!(settles.len(), SETTLE);
        let mark = fixture.store.low_water_mark(&queue()).await.unwrap();
        let mut connection = connect(fixture.database.url()).await;
        for name in CLAIMS {
            let plan = explain_claim(&mut connection, &fixture.store, name, mark, SETTLE).await;
            plan.assert_bounded(&format!("{name}, {rows_when_analyzed:?}"), 3.0 * SETTLE as f64);
        }
        let places: Vec<_> =
            settles.iter().map(|settle| settle.lease.position().unwrap().to_string()).collect();
        let token = settles[0].lease.token().as_uuid();
        let (first, last) = (&places[0], &places[places.len() - 1]);
        for (name, types, arguments) in [
            ("settle a range", "uuid, smallint, bigint, bigint", format!("{first}, {last}")),
            ("settle positions", "uuid, smallint, bigint[]", format!("'{{{}}}'", places.join(","))),
        ] {
            let sql = statement(&fixture.store, name);
            let plan = explain(&mut connection, &sql, types, &format!("'{token}', 1, {arguments}")).await;
            plan.assert_bounded(&format!("{name}, {rows_when_analyzed:?}"), 3.0 * SETTLE as f64);
        }
        for name in ["settle one claim", "settle mixed claims"] {
            let plan = explain_settle(&mut connection, &fixture.store, &settles, name).await;
            plan.assert_bounded(&format!("{name}, {rows_when_analyzed:?}"), 3.0 * SETTLE as f64);
        }
    }
}

/// Claims change no indexed column and find free space on their page: HOT updates, which leave no dead index entries.
#[tokio::test]
async fn claims_are_hot_updates() {
    let fixture = PostgresFixture::new().await;
    // With subjects, which have an index of their own.
    let message = |n| Message::builder("orders").subject(format!("customer-{n}")).json(&n).build().unwrap();
    let batch: Vec<_> = (0..20_000).map(message).collect();
    let mut tx = fixture.begin().await;
    fixture.outbox().stage_all(&mut tx, &batch).await.unwrap();
    fixture.commit(tx).await;
    let mut left = batch.len();
    while left > 0 {
        let claimed = fixture.store.claim(&ClaimRequest::new(queue(), 1_000)).await.unwrap();
        left -= claimed.len();
        fixture
            .store
            .settle(&claimed.iter().map(|claimed| claimed.lease.done()).collect::<Vec<_>>())
            .await
            .unwrap();
    }
    fixture.store.close().await;
    assert_hot(&fixture.app, 20_000).await;
}

/// Completing follow-ups and erasing look up a subject by index, whatever the backlog and the statistics: on an application's
/// connection, without the store's settings, whose plans were made when the tables were nearly empty.
#[tokio::test]
async fn subject_lookup_uses_index_whatever_the_backlog() {
    let land = "select postrider.finish_follow_up(1::smallint, gen_random_uuid(), true, null, $1, 'erase')";
    let erase = "select postrider.erase_subject(null, $1, 'ada', 'because')";
    let tables = ["ready", "scheduled", "dead", "archive", "archive_rest"];
    for rows_when_analyzed in [None, Some(0), Some(30)] {
        let fixture = PostgresFixture::new().await;
        fixture.run("select postrider.queue_id('follow-ups')").await;
        for table in tables.into_iter().filter(|table| *table != "archive") {
            let alone = format!("alter table postrider.{table} set (autovacuum_enabled = false)");
            fixture.app.execute(AssertSqlSafe(alone)).await.unwrap();
        }
        if let Some(rows) = rows_when_analyzed {
            fill_subjects(&fixture, rows).await;
            for table in tables {
                fixture.app.execute(AssertSqlSafe(format!("analyze postrider.{table}"))).await.unwrap();
            }
        }
        let mut connection = PgConnection::connect(fixture.database.url()).await.unwrap();
        let mut usual = Vec::new();
        for sql in [land, erase] {
            // The first call plans.
            explain(&mut connection, sql, "text", "'ada'").await;
            usual.push(explain(&mut connection, sql, "text", "'ada'").await.buffers);
        }
        fill_subjects(&fixture, 30_000).await;
        for (sql, usual) in [land, erase].into_iter().zip(usual) {
            let buffers = explain(&mut connection, sql, "text", "'ada'").await.buffers;
            assert!(
                buffers <= 4.0 * usual + 20.0,
                "{sql}, {rows_when_analyzed:?}: {buffers} buffers, {usual} when almost empty"
            );
        }
    }
}

/// Inserts `rows` messages with distinct subjects into each table, otherwise all of one group.
async fn fill_subjects(fixture: &PostgresFixture, rows: usize) {
    let head = "queue, message_id, payload, event_type, subject, staged_at, due_at";
    let each = "1, gen_random_uuid(), 'x', 'erase', 'customer-' || gen_random_uuid(), clock_timestamp(), \
                clock_timestamp() + interval '1 h'";
    let sql = format!(
        "insert into postrider.ready ({head}) select {each} from generate_series(1, {rows}); \
         insert into postrider.scheduled ({head}) select {each} from generate_series(1, {rows}); \
         insert into postrider.dead ({head}, id, attempts, deliveries, ordered, reason) \
         select {each}, n, 1, 1, false, 'rejected' from generate_series(1, {rows}) n; \
         insert into postrider.archive ({head}, id, attempts, deliveries, ordered, expires_at) \
         select {each}, n, 1, 1, false, clock_timestamp() + interval '1 day' from generate_series(1, {rows}) n"
    );
    fixture.app.execute(AssertSqlSafe(sql)).await.unwrap();
}
