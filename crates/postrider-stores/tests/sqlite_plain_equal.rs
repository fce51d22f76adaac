//! Plain SQL stages the same as the Rust API: the same rows in the same tables, and the same claims.
//!
//! Several files go through the same scenario, staged by Rust and by the view, and are compared after every step.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/clients.rs"]
mod clients;
#[path = "support/polyglot.rs"]
mod polyglot;
#[path = "support/sqlite.rs"]
mod support;

use clients::{Asked, Client};
use postrider_core::{
    ClaimRequest, ClaimedMessage, Lease, Message, OnFailure, Outbox, OutboxExt, QueuePolicy, Reason, Store,
    notifier::{IdleWorker, Notifier},
    schema::Schema,
};
use postrider_testkit::Fixture;
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};
use serde_json::Value;
use sqlx::{Column, Row, TypeInfo, ValueRef, sqlite::SqliteRow};
use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};
use support::SqliteFixture;
use uuid::Uuid;

/// The given times, in seconds since 1970, are so far ahead that no clock reaches them.
const AHEAD: u64 = 3_000_000_000;
/// The fraction of a second that identifies given times. The clock never has it, because it counts milliseconds.
const FRACTION: u64 = 123_456;

/// A step of a scenario, for both languages.
#[derive(Debug, Clone)]
enum Step {
    Stage(Vec<(&'static str, Value)>),
    Cancel(&'static str, String),
    /// Time passes, and a worker claims and settles: the same on all sides.
    Work(Duration, usize),
}

/// A given time: `seconds` after 1970, with the identifying fraction.
fn given_time(seconds: u64) -> Value {
    (seconds as f64 + FRACTION as f64 / 1e6).into()
}

fn pick<'a>(random: &mut impl Rng, of: &[&'a str]) -> &'a str {
    of[random.random_range(0..of.len())]
}

fn step(random: &mut StdRng, ids: &mut Vec<Uuid>) -> Step {
    let queue = pick(random, &["plain", "keyed", "kept"]);
    let kind = random.random_range(0..10);
    if kind == 0 {
        return Step::Cancel(queue, format!("t{}", random.random_range(0..2)));
    } else if kind <= 2 {
        let by = if random.random_bool(0.3) { AHEAD } else { u64::from(random.random_range(0..3_u32)) * 40 };
        return Step::Work(Duration::from_secs(by), random.random_range(0..4));
    }
    let id = match random.random_range(0..5) {
        0 if !ids.is_empty() => ids[random.random_range(0..ids.len())],
        // The bits of a version 7, from a seed.
        _ => uuid::Builder::from_unix_timestamp_millis(1_700_000_000_000, &random.random()).into_uuid(),
    };
    ids.push(id);
    let mut columns: Vec<(&'static str, Value)> = vec![
        ("queue", queue.into()),
        ("payload", format!("{{\"n\": {}}}", ids.len()).into()),
        ("id", id.to_string().into()),
    ];
    let mut maybe = |column: &'static str, of: &[&str]| {
        if random.random_bool(0.4) {
            columns.push((column, pick(random, of).into()));
        }
    };
    maybe("key", &["k0", "Köln am Rhein"]);
    maybe("timer", &["t0", "t1"]);
    maybe("on_conflict", &["extend", "extend", "ignore"]);
    maybe("type", &["order.placed", "order.paid"]);
    maybe("tenant", &["acme", "ümläut"]);
    maybe("subject", &["customer-4"]);
    maybe("content_type", &["application/json", "text/plain"]);
    maybe("headers", &["{\"b\":\"2\",\"A\":\"a \\\"quoted\\\" \\\\ /\"}", "{}", "{\"z\":\"€🦀\"}"]);
    maybe("correlation_id", &["request-9"]);
    maybe("causation_id", &["01890a5d"]);
    maybe("traceparent", &["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]);
    // Which of two times by the clock is later depends on the milliseconds in between, so extensions use given times.
    let extends = columns.iter().any(|(column, value)| *column == "on_conflict" && value == "extend");
    match random.random_range(0..if extends { 1 } else { 4 }) {
        0 => {
            let at = AHEAD + u64::from(random.random_range(0..4_u32));
            columns.push(("due_at", given_time(at)));
        }
        1 => columns.push(("due_at", 1_000_000_000.into())),
        2 => columns.push(("due_after", 0.into())),
        _ => {}
    }
    Step::Stage(columns)
}

fn insert(view: &str, columns: &[(&'static str, Value)]) -> Asked {
    let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
    let placeholders = vec!["?"; columns.len()].join(", ");
    let sql = format!("insert into postrider_{view} ({}) values ({placeholders})", names.join(", "));
    (sql, columns.iter().map(|(_, value)| value.clone()).collect())
}

fn message(columns: &[(&'static str, Value)]) -> Message {
    let text = |name: &str| columns.iter().find(|(column, _)| *column == name)?.1.as_str();
    let seconds = |name: &str| columns.iter().find(|(column, _)| *column == name)?.1.as_f64();
    let mut message = Message::builder(text("queue").unwrap())
        .payload(text("payload").unwrap().to_owned())
        .id(text("id").unwrap().parse().unwrap());
    if let Some(key) = text("key") {
        message = message.key(key);
    }
    if let Some(timer) = text("timer") {
        message = match text("on_conflict") {
            Some("extend") => message.extending_timer(timer),
            _ => message.timer(timer),
        };
    }
    if let Some(event_type) = text("type") {
        message = message.event_type(event_type);
    }
    if let Some(tenant) = text("tenant") {
        message = message.tenant(tenant);
    }
    if let Some(subject) = text("subject") {
        message = message.subject(subject);
    }
    if let Some(content_type) = text("content_type") {
        message = message.content_type(content_type);
    }
    let headers: serde_json::Map<String, Value> =
        serde_json::from_str(text("headers").unwrap_or("{}")).unwrap();
    for (name, value) in headers {
        message = message.header(name, value.as_str().unwrap());
    }
    if let Some(id) = text("correlation_id") {
        message = message.correlation_id(id);
    }
    if let Some(id) = text("causation_id") {
        message = message.causation_id(id);
    }
    if let Some(trace) = text("traceparent") {
        message = message.traceparent(trace);
    }
    if let Some(at) = seconds("due_at") {
        let micros = (at * 1e6).round() as u64;
        message = message.due_at(SystemTime::UNIX_EPOCH + Duration::from_micros(micros));
    }
    if let Some(after) = seconds("due_after") {
        message = message.due_after(Duration::from_secs_f64(after));
    }
    message.build().unwrap()
}

/// The contents of the tables without the times by the clock and the tokens, which differ between the sides.
async fn contents(fixture: &SqliteFixture) -> Vec<String> {
    let mut contents = Vec::new();
    for (table, order, sql) in [
        ("ready", "id", "select * from postrider_ready order by id"),
        ("scheduled", "id", "select * from postrider_scheduled order by id"),
        ("dead", "id", "select * from postrider_dead order by id"),
        ("archive", "id", "select * from postrider_archive order by id"),
        ("timer", "name", "select * from postrider_timer order by queue, name"),
        ("lane", "key", "select * from postrider_lane order by queue, key"),
        ("queue", "id", "select * from postrider_queue order by id"),
        ("position", "id", "select * from postrider_position"),
    ] {
        let rows = sqlx::query(sql).fetch_all(&fixture.app).await.unwrap();
        contents.extend(rows.iter().map(|row| format!("{table} by {order}: {}", show(row))));
    }
    contents
}

fn show(row: &SqliteRow) -> String {
    let cell = |column: &sqlx::sqlite::SqliteColumn| {
        let (name, at) = (column.name(), column.ordinal());
        let raw = row.try_get_raw(at).unwrap();
        let is_null = raw.is_null();
        let value = match raw.type_info().name() {
            _ if is_null => "null".to_owned(),
            _ if name == "token" => "a token".to_owned(),
            "INTEGER" => match row.get::<i64, _>(at) {
                time if (name.ends_with("_at") && name != "turn") || name == "lease_until" => {
                    let is_given = time.rem_euclid(1_000_000) == FRACTION as i64;
                    if is_given { time.to_string() } else { "by the clock".to_owned() }
                }
                number => number.to_string(),
            },
            "TEXT" => format!("{:?}", row.get::<&str, _>(at)),
            kind => format!("{kind} {:x?}", row.get::<&[u8], _>(at)),
        };
        format!("{name}={value}")
    };
    row.columns().iter().map(cell).collect::<Vec<_>>().join(" ")
}

/// One side of the comparison.
struct Side {
    fixture: SqliteFixture,
    client: Option<Client>,
}

impl Side {
    async fn new(client: Option<Client>) -> Self {
        let fixture = SqliteFixture::new().await;
        let keeping =
            QueuePolicy::default().with_keep_for(Duration::from_secs(1_000_000_000_000)).fair_by_tenant();
        fixture.store.declare(&"kept".parse().unwrap(), &keeping).await.unwrap();
        fixture
            .store
            .declare(&"keyed".parse().unwrap(), &QueuePolicy::by_key(OnFailure::Skip))
            .await
            .unwrap();
        let idle = IdleWorker { worker: Uuid::nil(), queues: vec!["plain".parse().unwrap()] };
        fixture.store.register_idle(&idle, Duration::from_secs(1_000_000)).await.unwrap();
        Self { fixture, client }
    }

    /// Steps of producers, each in a transaction of its own.
    async fn produce(&self, steps: &[Step]) {
        if let Some(client) = self.client {
            let statements: Vec<_> = steps
                .iter()
                .filter_map(|step| match step {
                    Step::Stage(columns) => Some(insert("outbox", columns)),
                    Step::Cancel(queue, timer) => {
                        let columns = [("queue", (*queue).into()), ("timer", timer.as_str().into())];
                        Some(insert("cancel_timer", &columns))
                    }
                    Step::Work(..) => None,
                })
                .collect();
            for result in client.all(&self.fixture.path(), &statements).await {
                result.unwrap();
            }
            return;
        }
        for step in steps {
            let mut tx = self.fixture.begin().await;
            match step {
                Step::Stage(columns) => {
                    self.fixture.outbox().stage(&mut tx, message(columns)).await.unwrap();
                }
                Step::Cancel(queue, timer) => {
                    let (queue, timer) = (queue.parse().unwrap(), timer.parse().unwrap());
                    self.fixture.outbox().cancel_timer(&mut tx, &queue, &timer).await.unwrap();
                }
                Step::Work(..) => {}
            }
            self.fixture.commit(tx).await;
        }
    }

    /// Lets time pass, claims, and settles the claimed messages in four ways by their ids.
    async fn work(&self, by: Duration, limit: usize) -> Vec<(bool, u32, u32, Message)> {
        self.fixture.advance(by).await;
        let mut seen = Vec::new();
        for queue in ["plain", "keyed", "kept"] {
            let request =
                ClaimRequest::new(queue.parse().unwrap(), limit).with_lease_for(Duration::from_secs(30));
            let claimed = self.fixture.store.claim(&request).await.unwrap();
            let settlements: Vec<_> = claimed
                .iter()
                .filter_map(|one| match one.id().as_uuid().as_bytes()[15] % 4 {
                    0 => Some(one.lease.done()),
                    1 => Some(one.lease.retry(Duration::from_secs(60), "not yet")),
                    2 => Some(one.lease.dead(Reason::Rejected, "no")),
                    _ => None, // Its worker crashes.
                })
                .collect();
            // A failure ends the turn of its key, and the leases of the messages behind it are lost.
            let lost: BTreeSet<_> =
                self.fixture.store.settle(&settlements).await.unwrap().iter().map(Lease::id).collect();
            let summary =
                |one: ClaimedMessage| (lost.contains(&one.id()), one.deliveries, one.attempts, one.message);
            seen.extend(claimed.into_iter().map(summary));
        }
        seen
    }
}

/// Runs one scenario with Rust and both clients, and compares after every part. Returns the number of claims.
async fn compare(name: &str, steps: &[Step]) -> usize {
    let rust = Side::new(None).await;
    let plain = [Side::new(Some(Client::Python)).await, Side::new(Some(Client::BuiltIn)).await];
    let mut claims = 0;
    for part in steps.split_inclusive(|step| matches!(step, Step::Work(..))) {
        let work = match part.last() {
            Some(Step::Work(by, limit)) => (*by, *limit),
            _ => (Duration::ZERO, 0),
        };
        rust.produce(part).await;
        let staged = contents(&rust.fixture).await;
        let claimed = rust.work(work.0, work.1).await;
        for side in &plain {
            side.produce(part).await;
            let client = side.client;
            assert_eq!(contents(&side.fixture).await, staged, "{name}, {client:?}, after {part:#?}");
            assert_eq!(side.work(work.0, work.1).await, claimed, "{name}, {client:?}, {work:?}");
        }
        claims += claimed.len();
    }
    claims
}

#[tokio::test]
async fn plain_sql_and_rust_produce_the_same_rows_and_claims() {
    for seed in 0..3 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut ids = Vec::new();
        let steps: Vec<_> = (0..70).map(|_| step(&mut random, &mut ids)).collect();
        let claims = compare(&format!("seed {seed}"), &steps).await;
        assert!(ids.len() > 30 && claims > 5, "{} messages, {claims} claims", ids.len());
    }
}

/// A message of a queue whose id ends in `last`, which determines its settlement.
fn stage(queue: &'static str, last: u8, more: &[(&'static str, &str)]) -> Step {
    let id = Uuid::from_bytes([1, 2, 3, 4, 5, 6, 0x70, 8, 0x80, 0, 0, 0, 0, 0, 0, last]);
    let mut columns: Vec<(&'static str, Value)> = vec![
        ("queue", queue.into()),
        ("payload", format!("payload {last}").into()),
        ("id", id.to_string().into()),
    ];
    columns.extend(more.iter().map(|(column, value)| (*column, Value::from(*value))));
    Step::Stage(columns)
}

fn due_ahead(step: Step, by: u64) -> Step {
    let Step::Stage(mut columns) = step else { return step };
    columns.push(("due_at", given_time(AHEAD + by)));
    Step::Stage(columns)
}

/// Edge cases that random scenarios seldom find.
#[tokio::test]
async fn plain_sql_and_rust_agree_on_timer_edge_cases() {
    let (now, lapse, years) = (Duration::ZERO, Duration::from_secs(40), Duration::from_secs(AHEAD));
    let timer = [("timer", "t0"), ("key", "k0")];
    let extending = [("timer", "t0"), ("on_conflict", "extend"), ("type", "order.paid")];
    let (dies, retries) = (3, 1);
    let stories = [
        (
            "a timer that was tried is extended and starts afresh",
            vec![
                stage("plain", retries, &timer),
                Step::Work(now, 1),
                due_ahead(stage("plain", 8, &extending), 0),
                Step::Work(now, 1),
            ],
        ),
        (
            "the same moment is not later",
            vec![
                due_ahead(stage("plain", 0, &timer), 1),
                due_ahead(stage("plain", 4, &extending), 1),
                due_ahead(stage("plain", 8, &extending), 0),
                Step::Work(years + lapse, 1),
            ],
        ),
        (
            "a timer that killed its workers is cancelled, and leaves its key as it should be",
            vec![
                stage("keyed", dies, &timer),
                Step::Work(now, 1),
                Step::Work(lapse, 1),
                stage("keyed", 4, &[("key", "k0")]),
                Step::Work(lapse, 0),
                Step::Cancel("keyed", "t0".to_owned()),
                Step::Work(now, 2),
            ],
        ),
        (
            "a timer that is being delivered stays",
            vec![
                stage("keyed", dies, &timer),
                stage("plain", dies, &timer),
                Step::Work(now, 1),
                Step::Cancel("keyed", "t0".to_owned()),
                Step::Cancel("plain", "t0".to_owned()),
                due_ahead(stage("keyed", 4, &extending), 0),
                due_ahead(stage("plain", 4, &extending), 0),
                Step::Work(lapse, 2),
            ],
        ),
        (
            "a timer that has come due behind another is extended, and cancelled",
            vec![
                stage("keyed", dies, &[("key", "k0")]),
                Step::Work(now, 1),
                stage("keyed", 7, &timer),
                Step::Work(lapse, 1),
                due_ahead(stage("keyed", 8, &extending), 0),
                Step::Work(lapse, 1),
                Step::Cancel("keyed", "t0".to_owned()),
                Step::Work(years, 3),
            ],
        ),
        (
            "a timer alone in its key has come due and is extended without a key",
            vec![
                stage("keyed", 4, &[("key", "k1")]),
                stage("keyed", 7, &timer),
                stage("keyed", 11, &[("timer", "t1")]),
                Step::Work(now, 1),
                due_ahead(stage("keyed", 8, &extending), 0),
                due_ahead(stage("keyed", 12, &[("timer", "t1"), ("on_conflict", "extend")]), 0),
                Step::Work(years + lapse, 5),
            ],
        ),
    ];
    for (name, steps) in stories {
        assert!(compare(name, &steps).await > 0, "{name}");
    }
}
