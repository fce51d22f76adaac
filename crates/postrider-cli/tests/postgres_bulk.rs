//! Requeue of a million dead letters on PostgreSQL: interrupted once, in the order of their keys, with bounded memory.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use nix::sys::{
    resource::{UsageWho, getrusage},
    signal::Signal,
};
use postrider::{
    ClaimRequest, LeaseSettlement, OnFailure, OrderingKey, QueueName, QueuePolicy, Settlement, Store,
    postgres::PostgresStore, schema::Schema,
};
use postrider_testkit::postgres::TestDatabase;
use sqlx::{Connection, Executor, PgConnection};
use std::collections::HashMap;
use support::program::{AtWork, CompletionOutcome, postrider, run};

const DEAD_LETTERS: i64 = 1_000_000;
const KEYS: i64 = 10_000;
/// Dead letters with another error, which stay dead.
const OTHERS: i64 = 1000;

/// The dead letters failed in another order than that of their positions, as if many had been requeued one by one and had failed again.
const INSERT_DEAD: &str = "insert into postrider.dead (id, staged_at, due_at, failed_at, message_id, attempts, deliveries, queue, \
      ordered, payload, reason, event_type, key, last_error) \
    select nextval('postrider.message_position'), now(), now(), now() - (n * 7919 % 1000) * interval '1 s', gen_random_uuid(), 1, 1, \
      q.id, true, convert_to(n::text, 'UTF8'), 'rejected', 'order.placed', 'key-' || n % $2, $3 || ': ' || n \
    from generate_series(1, $1) n, postrider.queue q where q.name = $4 order by n";

struct Bulk {
    database: TestDatabase,
    store: PostgresStore,
    connection: PgConnection,
    /// The last number that was delivered for each key.
    last: HashMap<OrderingKey, i64>,
}

impl Bulk {
    async fn open() -> Self {
        let database = TestDatabase::empty().await;
        let store = PostgresStore::connect(database.url()).await.unwrap();
        store.migrate().await.unwrap();
        for queue in ["orders", "few"] {
            let skipping = QueuePolicy::by_key(OnFailure::Skip);
            store.declare(&QueueName::stored(queue), &skipping).await.unwrap();
        }
        let connection = PgConnection::connect(database.url()).await.unwrap();
        Self { database, store, connection, last: HashMap::new() }
    }

    async fn insert_dead(&mut self, queue: &str, count: i64, error: &str) {
        let insert = sqlx::query(INSERT_DEAD).bind(count).bind(KEYS).bind(error).bind(queue);
        assert_eq!(insert.execute(&mut self.connection).await.unwrap().rows_affected(), count.unsigned_abs());
    }

    async fn number(&mut self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&mut self.connection).await.unwrap()
    }

    /// Delivers this many messages, and checks the order of each key.
    async fn deliver(&mut self, mut count: usize) {
        while count > 0 {
            let request = ClaimRequest::new(QueueName::stored("orders"), count.min(500));
            let claimed = self.store.claim(&request).await.unwrap();
            assert!(!claimed.is_empty(), "{count} more are due");
            let mut ends = Vec::new();
            for claimed in &claimed {
                let key = claimed.message.key().unwrap().clone();
                let number: i64 = std::str::from_utf8(claimed.message.payload()).unwrap().parse().unwrap();
                let last = self.last.insert(key.clone(), number);
                assert_eq!(number, last.map_or_else(|| first(&key), |last| last + KEYS), "of {key}");
                ends.push(LeaseSettlement { lease: claimed.lease.clone(), settlement: Settlement::Done });
            }
            assert_eq!(self.store.settle(&ends).await.unwrap(), []);
            count = count.saturating_sub(claimed.len());
        }
    }

    fn requeue(&self, queue: &str) -> std::process::Command {
        let error = ["--error", "no such address", "--reason", "rejected"];
        let arguments = [
            &["dead", "requeue", "--queue", queue, "--yes", "--json", "--why", "the address book is back"],
            &error[..],
        ];
        let mut command = postrider(&arguments.concat());
        command.env("POSTRIDER_DB", self.database.url());
        command
    }
}

/// The first number of a key.
fn first(key: &OrderingKey) -> i64 {
    match key.as_str().strip_prefix("key-").unwrap().parse().unwrap() {
        0 => KEYS,
        number => number,
    }
}

/// The peak memory of all ended child processes, in kilobytes.
fn peak_memory() -> i64 {
    getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss()
}

fn changed(ended: &CompletionOutcome) -> i64 {
    ended.report()["changed"].as_i64().unwrap_or_else(|| panic!("{ended:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requeue_of_a_million_dead_letters_keeps_order_across_an_interruption() {
    let mut bulk = Bulk::open().await;
    bulk.insert_dead("few", 10, "no such address").await;
    assert_eq!(changed(&run(&mut bulk.requeue("few"))), 10);
    let small = peak_memory();
    bulk.insert_dead("orders", DEAD_LETTERS, "no such address").await;
    bulk.insert_dead("orders", OTHERS, "timeout").await;
    bulk.connection.execute("vacuum analyze postrider.dead").await.unwrap();

    // Midway: some chunks are committed, and most are not.
    let at_work = AtWork::start(&mut bulk.requeue("orders"));
    while bulk.number("select count(*) from postrider.audit where verb = 'requeue'").await < 20 {}
    at_work.signal(Signal::SIGINT);
    let interrupted = at_work.end();
    assert_eq!(interrupted.code, Some(130), "{interrupted:?}");
    assert!(interrupted.err.contains("Run the command again to continue."), "{interrupted:?}");
    let before = changed(&interrupted);
    assert!(before > 0 && before < DEAD_LETTERS, "{interrupted:?}");
    assert_eq!(bulk.number("select count(*) from postrider.ready where queue = 1").await, before);

    // Requeued messages run, and must not overtake those that are still dead.
    bulk.deliver(10_000).await;
    let resumed = run(&mut bulk.requeue("orders"));
    assert_eq!((resumed.code, before + changed(&resumed)), (Some(0), DEAD_LETTERS), "{resumed:?}");
    assert_eq!(resumed.report()["matched"], DEAD_LETTERS - before, "{resumed:?}");
    bulk.deliver(10_000).await;

    // Nothing is lost, duplicated or requeued that was not selected; and each message has one audit entry.
    let delivered =
        bulk.number("select (1000000 - count(*))::bigint from postrider.ready where queue = 1").await;
    assert!(delivered >= 20_000, "{delivered}");
    assert_eq!(bulk.number("select count(*) from postrider.dead").await, OTHERS);
    let audited = "select sum(cardinality(message_ids))::bigint from postrider.audit where queue = 1";
    assert_eq!(bulk.number(audited).await, DEAD_LETTERS);
    let distinct =
        "select count(distinct u.id) from postrider.audit a, unnest(a.message_ids) u(id) where a.queue = 1";
    assert_eq!(bulk.number(distinct).await, DEAD_LETTERS);
    let unordered = "select count(*) from (select convert_from(payload, 'UTF8')::bigint as number, \
        lag(convert_from(payload, 'UTF8')::bigint) over (partition by key order by id) as before \
        from postrider.ready where queue = 1) s where number <= before";
    assert_eq!(bulk.number(unordered).await, 0);

    let limit = small + 32 * 1024;
    assert!(peak_memory() < limit, "{} kB for a million, and {small} kB for ten", peak_memory());
}
