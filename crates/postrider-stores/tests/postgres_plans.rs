//! One plan for each statement, whatever the statistics say: an outbox that keeps up is empty when autovacuum analyzes it, and with the
//! statistics of an empty table every index costs the same. Beside a held snapshot, the wrong one is full of dead rows.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "not every test program needs all of it")]
#[path = "support/plan.rs"]
mod plan;
#[path = "support/postgres.rs"]
mod support;

use plan::{connect, explain};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use std::collections::BTreeMap;
use support::PostgresFixture;

const DEAD_ROWS: usize = 200_000;
const TABLES: [&str; 7] = ["ready", "scheduled", "lane", "timer", "dead", "inbox", "inbox_count"];
const TOKEN: &str = "00000000-0000-4000-8000-000000000001";
/// The numbers of live rows with which the tables are analyzed.
const ANALYZED: [usize; 3] = [0, 30, 1_685];
/// Leased messages, and as many free ones.
const LEASED: usize = 70;
/// The part of the pages that may be others: where inserts find space is not a matter of the plan.
const TOLERANCE: f64 = 0.02;

/// Inserts messages into `ready`, and a tenth of them into every other table. The layout of the indexes is the same each time.
async fn fill(connection: &mut PgConnection, tag: &str, rows: usize) {
    let body = format!("md5('{tag}' || n)::uuid, 'x', 'customer-{tag}-' || n");
    let (ready, others) =
        (format!("from generate_series(1, {rows}) n"), format!("from generate_series(1, {rows} / 10) n"));
    let sql = format!(
        "insert into postrider.ready (queue, message_id, payload, subject) select 1, {body} {ready}; \
         insert into postrider.scheduled (queue, due_at, message_id, payload, subject) \
         select 1, now() - interval '1 h', {body} {others}; \
         insert into postrider.dead (queue, message_id, payload, subject, id, staged_at, due_at, attempts, deliveries, ordered, reason) \
         select 1, {body}, n, now(), now(), 1, 1, false, 'rejected' {others}; \
         insert into postrider.lane (queue, key, after) select 2, '{tag}-' || n, 0 {others}; \
         insert into postrider.timer (queue, name, message_id) select 1, '{tag}-' || n, md5('{tag}' || n)::uuid {others}; \
         insert into postrider.inbox (admitted_at, message_id, consumer, tenant) \
         select now(), md5('{tag}' || n)::uuid, 'billing', '' {others}; \
         insert into postrider.inbox_count (counted_at, message_id, deliveries, consumer, tenant) \
         select now(), md5('{tag}' || n)::uuid, 1, 'billing', '' {others}"
    );
    connection.execute(AssertSqlSafe(sql)).await.unwrap();
}

async fn each_table(connection: &mut PgConnection, statement: &str) {
    for table in TABLES {
        let sql = statement.replace("{table}", &format!("postrider.{table}"));
        connection.execute(AssertSqlSafe(sql)).await.unwrap();
    }
}

/// A few live messages: leased and free ones of an unordered queue, two for each of 30 keys of an ordered queue, and for each of 30
/// tenants of a fair one. Returns the position before the first of them.
async fn fill_live(connection: &mut PgConnection) -> i64 {
    let start = sqlx::query("select nextval('postrider.message_position')")
        .fetch_one(&mut *connection)
        .await
        .unwrap();
    let sql = format!(
        "insert into postrider.ready (queue, message_id, payload, token, lease_until, subject) \
         select 1, ('00000000-0000-4000-9000-' || lpad(n::text, 12, '0'))::uuid, 'x', '{TOKEN}', now() + interval '1 h', 'live-' || n \
         from generate_series(1, {LEASED}) n; \
         insert into postrider.ready (queue, message_id, payload) select 1, md5('free' || n)::uuid, 'x' from generate_series(1, {LEASED}) n; \
         insert into postrider.ready (queue, message_id, payload, ordered, key) \
         select 2, md5('lane' || n)::uuid, 'x', true, 'key-' || n % 30 from generate_series(1, 60) n; \
         insert into postrider.lane (queue, key, after, token, lease_until) \
         select 2, 'key-' || n, 0, '{TOKEN}', now() + interval '1 h' from generate_series(0, 19) n; \
         insert into postrider.ready (queue, message_id, payload, fair, tenant) \
         select 3, md5('fair' || n)::uuid, 'x', true, 'tenant-' || n % 30 from generate_series(1, 60) n; \
         insert into postrider.inbox_count (counted_at, message_id, deliveries, consumer, tenant) \
         select now(), ('00000000-0000-4000-9000-' || lpad(n::text, 12, '0'))::uuid, 1, 'billing', '' from generate_series(1, {LEASED}) n"
    );
    connection.execute(AssertSqlSafe(sql)).await.unwrap();
    start.get(0)
}

fn array(values: impl IntoIterator<Item = String>) -> String {
    format!("'{{{}}}'", values.into_iter().collect::<Vec<_>>().join(","))
}

fn ids(numbers: std::ops::Range<usize>) -> String {
    array(numbers.map(|number| format!("00000000-0000-4000-9000-{:012}", number + 1)))
}

/// The arguments of a settlement of the leased messages in seven ways.
fn settlement(one_claim: bool) -> (String, String) {
    let (mut types, mut arguments) = (Vec::new(), Vec::new());
    let mut add = |cast: &str, value: String| {
        types.push(cast.to_owned());
        arguments.push(value);
    };
    if one_claim {
        add("uuid", format!("'{TOKEN}'"));
        add("smallint", "1".to_owned());
    }
    let share = LEASED / 7;
    let each = |value: &str| array((0..share).map(|_| value.to_owned()));
    for kind in 0..7 {
        add("uuid[]", ids(kind * share..(kind + 1) * share));
        if !one_claim {
            add("uuid[]", each(TOKEN));
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
    (types.join(", "), arguments.join(", "))
}

/// Every statement of claim, renew, settle, lanes, tenants, follow-ups and inbox, with its types and arguments.
fn statements(fixture: &PostgresFixture, start: i64) -> Vec<(String, String, String, String)> {
    let text = |name: &str| {
        let statements = fixture.store.statements();
        statements.into_iter().find(|(each, _)| *each == name).expect("the statement exists").1
    };
    let (first, last) = (start + 1, start + LEASED as i64);
    let leased = array((first..=last).map(|position| position.to_string()));
    let free = array((last + 1..=last + LEASED as i64).map(|position| position.to_string()));
    let claim = format!("'{TOKEN}', 60");
    let tenants = array((0..30).map(|tenant| format!("tenant-{tenant}")));
    let thirty = |value: &str| array((0..30).map(|_| value.to_owned()));
    let keys = array((0..20).map(|key| format!("key-{key}")));
    let twenty = |value: &str| array((0..20).map(|_| value.to_owned()));
    let mut all: Vec<(String, String, String, String)> = Vec::new();
    let mut add = |name: &str, sql: String, types: &str, arguments: String| {
        all.push((name.to_owned(), sql, types.to_owned(), arguments));
    };
    add("claim", text("claim"), "uuid, float8, smallint, bigint, bigint", format!("{claim}, 1, {start}, 50"));
    add(
        "claim of many",
        text("claim of many"),
        "uuid, float8, smallint[], bigint[], bigint",
        format!("{claim}, '{{1}}', '{{{start}}}', 50"),
    );
    add(
        "claim by position",
        text("claim by position"),
        "uuid, float8, smallint, bigint[]",
        format!("{claim}, 1, {free}"),
    );
    add(
        "look back",
        text("look back"),
        "uuid, float8, smallint[], bigint[], bigint, text[], bigint[]",
        format!("{claim}, '{{1}}', '{{{start}}}', 50, '{{}}', '{{}}'"),
    );
    add(
        "take turns",
        text("take turns"),
        "uuid, float8, smallint, text[], bigint[], bigint[]",
        format!("{claim}, 3, {tenants}, {}, {}", thirty(&start.to_string()), thirty("1")),
    );
    add(
        "survey",
        text("survey"),
        "smallint, integer, bigint, text[], bigint[], integer, text[], bigint[], boolean, boolean",
        format!(
            "3, 50, {start}, '{{}}', '{{}}', 1000, {tenants}, {}, true, false",
            thirty(&start.to_string())
        ),
    );
    add(
        "claim lanes",
        format!(
            "select * from postrider.claim_lanes(2::smallint, $1, 60, 100, 32, {start}, '{{}}', '{{}}', 1000, {start}, 1000000)"
        ),
        "uuid",
        "gen_random_uuid()".to_owned(),
    );
    let heads = array((0..20).map(|key| {
        // Keys alternate: the first message of key n is the n-th of the ordered queue, key 0 comes last.
        let offset = if key == 0 { 30 } else { key };
        (last + LEASED as i64 + offset).to_string()
    }));
    add(
        "settle lanes",
        format!(
            "select postrider.settle_lanes({}, {keys}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})",
            twenty("2"),
            twenty(TOKEN),
            twenty("true"),
            twenty("false"),
            array((0..20).map(|key| if key < 5 {
                (last + LEASED as i64 + 31 + key).to_string()
            } else {
                "null".to_owned()
            })),
            twenty("null"),
            array((0..20).map(|key| (key % 2 == 0).to_string())),
            twenty("rejected"),
            twenty("oops"),
            twenty(&start.to_string()),
            array((1..=20).map(|lane: i32| lane.to_string())),
            heads,
        ),
        "integer",
        "1".to_owned(),
    );
    for (name, one_claim) in [("settle one claim", true), ("settle mixed claims", false)] {
        let (types, arguments) = settlement(one_claim);
        all.push((name.to_owned(), text(name), types, arguments));
    }
    let mut add = |name: &str, sql: String, types: &str, arguments: String| {
        all.push((name.to_owned(), sql, types.to_owned(), arguments));
    };
    add(
        "settle a range",
        text("settle a range"),
        "uuid, smallint, bigint, bigint",
        format!("'{TOKEN}', 1, {first}, {last}"),
    );
    add(
        "settle positions",
        text("settle positions"),
        "uuid, smallint, bigint[]",
        format!("'{TOKEN}', 1, {leased}"),
    );
    let all_leased = |value: &str| array((0..LEASED).map(|_| value.to_owned()));
    add(
        "renew",
        text("renew"),
        "float8, uuid[], uuid[], smallint[], smallint[], text[], uuid[]",
        format!(
            "60, {}, {}, {}, {}, {keys}, {}",
            ids(0..LEASED),
            all_leased(TOKEN),
            all_leased("1"),
            twenty("2"),
            twenty(TOKEN)
        ),
    );
    add(
        "finish a follow-up",
        "select postrider.finish_follow_up(1::smallint, $1, false, null, 'live-7', 'erase')".to_owned(),
        "uuid",
        "gen_random_uuid()".to_owned(),
    );
    add(
        "admit",
        "select * from postrider.admit('billing', $1, $2)".to_owned(),
        "text[], uuid[]",
        format!("{}, {}", all_leased("\"\""), ids(0..LEASED)),
    );
    add(
        "delete counts",
        text("delete counts"),
        "text, text[], uuid[]",
        format!("'billing', {}, {}", all_leased("\"\""), ids(0..LEASED)),
    );
    all
}

/// The buffers of each statement, planned with the statistics of `analyzed` live rows, in tables with or without dead rows. The tables
/// are the same whatever `analyzed` is: only the statistics are not.
async fn buffers(analyzed: Option<usize>, dead: usize) -> BTreeMap<String, f64> {
    let fixture = PostgresFixture::new().await;
    fixture
        .run(
            "select postrider.queue_id('orders'); \
             select postrider.declare_queue('lanes', true, 'block', null, true, false); \
             select postrider.declare_queue('fair', false, 'block', null, true, true)",
        )
        .await;
    // One connection, so that each run finds space on the same pages.
    let mut writer = PgConnection::connect(fixture.database.url()).await.unwrap();
    each_table(&mut writer, "alter table {table} set (autovacuum_enabled = false)").await;
    let mut holder = fixture.app.begin().await.unwrap();
    holder.execute("set transaction isolation level repeatable read").await.unwrap();
    holder.execute("select 1 from postrider.queue").await.unwrap();
    fill(&mut writer, "dead", dead).await;
    each_table(&mut writer, "delete from {table}").await;
    for live in ANALYZED {
        fill(&mut writer, &format!("live-{live}"), live).await;
        if analyzed == Some(live) {
            each_table(&mut writer, "analyze {table}").await;
        }
        each_table(&mut writer, "delete from {table}").await;
    }
    let start = fill_live(&mut writer).await;
    let mut connection: PgConnection = connect(fixture.database.url()).await;
    let mut buffers = BTreeMap::new();
    for (name, sql, types, arguments) in statements(&fixture, start) {
        // The first execution plans the statements of functions.
        explain(&mut connection, &sql, &types, &arguments).await;
        buffers.insert(name, explain(&mut connection, &sql, &types, &arguments).await.buffers);
    }
    holder.rollback().await.unwrap();
    buffers
}

async fn plans_are_equal(dead: usize) {
    let usual = buffers(None, dead).await;
    let mut flipped = Vec::new();
    for live in ANALYZED {
        for (name, buffers) in buffers(Some(live), dead).await {
            let usual = usual[&name];
            println!(
                "{name}, analyzed at {live} live rows, {dead} dead rows: {buffers} buffers, {usual} without statistics"
            );
            if (buffers - usual).abs() > 2.0 + TOLERANCE * usual {
                flipped.push(format!(
                    "{name}, analyzed at {live} live rows: {buffers} buffers, {usual} without statistics"
                ));
            }
        }
    }
    assert!(flipped.is_empty(), "{flipped:#?}");
}

#[tokio::test]
async fn statements_read_the_same_pages_whatever_the_statistics() {
    plans_are_equal(0).await;
}

#[tokio::test]
async fn statements_read_the_same_pages_beside_dead_rows_whatever_the_statistics() {
    plans_are_equal(DEAD_ROWS).await;
}
