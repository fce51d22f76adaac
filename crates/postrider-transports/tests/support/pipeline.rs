//! End-to-end test: PostgreSQL → relay → broker → consumer → another PostgreSQL, while every process is killed.
//!
//! A producer stages messages in transactions, some of which it rolls back. A relay and a consumer run in processes of their own, which are
//! killed and restarted, and so is the broker. The consumer's handler writes an effect into a table without a unique key, and stages
//! a follow-up message. The test checks at the end:
//!
//! - every committed message has exactly one effect and one follow-up, and no other message has any;
//! - deduplication records, effects and follow-ups name the same messages;
//! - some messages were delivered more than once, so the faults had an effect.
//!
//! The seed is printed; `POSTRIDER_SEED` repeats its choices, but not their timing.

use async_trait::async_trait;
use postrider_core::{
    Ack, AckHandle, Capabilities, Finding, Format, Message, MessageId, Outbox, OutboxExt, QueueName,
    ReceivedMessage, RedeliveryWindow, RetryStrategy, Source, SourceError, Transport, schema::Schema,
};
use postrider_engine::{
    Consumer, Context, Failure, Tx,
    relay::{Destination, Relay, Route, RouteTarget},
};
use postrider_stores::postgres::PostgresStore;
use postrider_testkit::{
    broker,
    postgres::TestDatabase,
    process::{Process, argument},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::{PgPool, Postgres, Row, Transaction, postgres::PgPoolOptions};
use std::{collections::BTreeSet, env, sync::Arc, time::Duration};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep},
};
use uuid::Uuid;

const MESSAGES: usize = 20_000;
const KILLS: usize = 20;
const RESTARTS: usize = 2;
/// Messages per transaction of the producer.
const BATCH_SIZE: usize = 100;
/// One in this many transactions is rolled back.
const ROLLBACK_RATIO: u32 = 10;
/// The producer stays at most this far ahead, so that it runs until the end.
const MAX_AHEAD: i64 = 3_000;
/// Without progress for this long the test fails.
const STALL_TIMEOUT: Duration = Duration::from_secs(120);
/// Lease of the relay: the messages of a dead relay wait this long.
const LEASE: Duration = Duration::from_secs(1);

/// The broker of a test, and its connection settings for other processes.
#[async_trait]
pub(crate) trait Broker: Send + Sync {
    /// Everything that another process needs to connect, and the address of the messages.
    fn connection_settings(&self) -> String;

    /// Kills the broker, restarts it with its data, and returns when it accepts connections.
    async fn kill_and_restart(&self);
}

/// The test's own broker, which other processes reach by its URL.
pub(crate) struct Killed<K>(Mutex<broker::Broker<K>>, String);

impl<K: broker::Durable> Killed<K> {
    pub(crate) fn new(broker: broker::Broker<K>) -> Self {
        let url = broker.url().to_owned();
        Self(Mutex::new(broker), url)
    }
}

#[async_trait]
impl<K: broker::Durable + Send + Sync> Broker for Killed<K> {
    fn connection_settings(&self) -> String {
        self.1.clone()
    }

    async fn kill_and_restart(&self) {
        let mut broker = self.0.lock().await;
        broker.kill();
        broker.restart().await;
    }
}

/// The names of the tests that are the bodies of the relay and consumer processes.
pub(crate) struct Bodies {
    pub(crate) relay: &'static str,
    pub(crate) consumer: &'static str,
}

/// The settings of a child process: the two databases and the broker.
struct ProcessSettings {
    outbox: String,
    inbox: String,
    broker: String,
}

impl ProcessSettings {
    fn parse(text: &str) -> Self {
        let mut parts = text.splitn(3, '\n').map(str::to_owned);
        let mut next = || parts.next().unwrap();
        Self { outbox: next(), inbox: next(), broker: next() }
    }
}

/// The body of the relay process. `make` creates the transport and returns it with its address.
pub(crate) async fn relay<F>(format: Format, make: impl FnOnce(String) -> F)
where
    F: Future<Output = (Arc<dyn Transport>, String)>,
{
    let Some(settings) = argument() else { return };
    let settings = ProcessSettings::parse(&settings);
    let (transport, address) = make(settings.broker).await;
    let store = PostgresStore::connect(&settings.outbox).await.unwrap();
    let retry = RetryStrategy::constant(Duration::from_millis(100)).without_max_attempts();
    let to = RouteTarget::new("broker", address).format(format);
    let route = Route::new("orders").to_with(to).lease_for(LEASE).retry(retry).without_max_deliveries();
    let relay = Relay::builder(store, "/shop")
        .destination(Destination::shared("broker", transport))
        .route(route)
        .build()
        .unwrap();
    let _running = relay.start();
    std::future::pending::<()>().await;
}

/// The body of the consumer process.
pub(crate) async fn consumer<F>(make: impl FnOnce(String) -> F)
where
    F: Future<Output = Arc<dyn Source>>,
{
    let Some(settings) = argument() else { return };
    let settings = ProcessSettings::parse(&settings);
    let source = make(settings.broker).await;
    let pool = pool(&settings.inbox).await;
    let store = PostgresStore::connect(&settings.inbox).await.unwrap();
    let outbox = store.outbox();
    let recording = Arc::new(RecordingSource { source, pool: pool.clone() });
    let soon = RetryStrategy::constant(Duration::from_millis(50)).without_max_attempts();
    let consumer = Consumer::builder_on("billing", recording, store.transactions(pool))
        .concurrency(3)
        .retry(soon)
        .redelivery_window(Duration::from_secs(60))
        .on_json(move |number: i64, mut tx: Tx<Transaction<'static, Postgres>>, context: Context| {
            let outbox = outbox.clone();
            async move {
                // Occasionally the handler fails after it has written.
                sqlx::query("insert into effect (message_id, number) values ($1, $2)")
                    .bind(context.id().as_uuid())
                    .bind(number)
                    .execute(&mut **tx)
                    .await?;
                let follow_up = Message::builder("follow-ups").json(&number);
                outbox.stage(&mut *tx, context.follow(follow_up)).await?;
                match rand::random_ratio(1, 500) {
                    true => Err(Failure::retry("by chance")),
                    false => Ok(()),
                }
            }
        })
        .build()
        .unwrap();
    let _running = consumer.start();
    std::future::pending::<()>().await;
}

async fn pool(url: &str) -> PgPool {
    PgPoolOptions::new().max_connections(5).connect(url).await.unwrap()
}

/// Records every delivery.
#[derive(Debug)]
struct RecordingSource {
    source: Arc<dyn Source>,
    pool: PgPool,
}

#[async_trait]
impl Source for RecordingSource {
    fn kind(&self) -> &'static str {
        self.source.kind()
    }

    fn origin(&self) -> &str {
        self.source.origin()
    }

    fn capabilities(&self) -> Capabilities {
        self.source.capabilities()
    }

    async fn receive(&self, max: usize) -> Result<Vec<ReceivedMessage>, SourceError> {
        let messages = self.source.receive(max).await?;
        let queue = QueueName::stored("recorded");
        let ids: Vec<Uuid> = messages
            .iter()
            .filter_map(|message| Some(message.incoming.read(&queue).ok()?.id.as_uuid()))
            .collect();
        sqlx::query("insert into delivered select unnest($1::uuid[])")
            .bind(ids)
            .execute(&self.pool)
            .await
            .unwrap();
        Ok(messages)
    }

    async fn ack(&self, acks: &[(AckHandle, Ack)]) -> Vec<Result<(), SourceError>> {
        self.source.ack(acks).await
    }

    async fn extend(&self, handles: &[AckHandle]) -> Vec<Result<(), SourceError>> {
        self.source.extend(handles).await
    }

    async fn redelivery_window(&self) -> Result<RedeliveryWindow, SourceError> {
        self.source.redelivery_window().await
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        self.source.check().await
    }

    async fn close(&self) {
        self.source.close().await;
    }
}

/// A database with Postrider's tables.
async fn database() -> TestDatabase {
    let database = TestDatabase::empty().await;
    PostgresStore::connect(database.url()).await.unwrap().migrate().await.unwrap();
    database
}

/// Runs the pipeline under faults and checks the result.
pub(crate) async fn run(broker: impl Broker, bodies: Bodies) {
    let seed =
        env::var("POSTRIDER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    println!("POSTRIDER_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let (outbox, inbox) = tokio::join!(database(), database());
    let effects = pool(inbox.url()).await;
    sqlx::raw_sql(
        "create table effect (message_id uuid not null, number bigint not null); \
        create unlogged table delivered (message_id uuid not null)",
    )
    .execute(&effects)
    .await
    .unwrap();
    let settings = format!("{}\n{}\n{}", outbox.url(), inbox.url(), broker.connection_settings());
    let start = |body: &str| Process::start(body, &settings);
    let producer = tokio::spawn(produce(outbox.url().to_owned(), effects.clone(), random.random()));
    let (mut relay, mut consumer) = (Some(start(bodies.relay)), Some(start(bodies.consumer)));

    // Each fault has its share of the messages, and happens at a random moment of it.
    let steps = KILLS * 2 + RESTARTS;
    let mut faults: Vec<usize> = (0..steps).collect();
    for index in (1..steps).rev() {
        faults.swap(index, random.random_range(0..=index));
    }
    for (step, fault) in faults.into_iter().enumerate() {
        let share = MESSAGES * 8 / 10 / steps;
        until_effects(&effects, (step * share + random.random_range(0..share)) as i64).await;
        if fault < KILLS {
            drop(relay.take());
            relay = Some(start(bodies.relay));
        } else if fault < 2 * KILLS {
            drop(consumer.take());
            consumer = Some(start(bodies.consumer));
        } else {
            broker.kill_and_restart().await;
        }
    }
    let (committed, rolled_back) = producer.await.unwrap();
    until_effects(&effects, committed.len() as i64).await;
    until_sent(outbox.url()).await;
    // Late redeliveries get time to cause duplicates.
    sleep(Duration::from_secs(2)).await;
    drop((relay, consumer));
    check_result(&effects, &committed, &rolled_back).await;
}

/// Stages all messages. Returns the committed and the rolled-back ids.
async fn produce(url: String, effects: PgPool, seed: u64) -> (BTreeSet<Uuid>, BTreeSet<Uuid>) {
    let mut random = StdRng::seed_from_u64(seed);
    let pool = pool(&url).await;
    let store = PostgresStore::connect(&url).await.unwrap();
    let (mut committed, mut rolled_back, mut number) = (BTreeSet::new(), BTreeSet::new(), 0_i64);
    while committed.len() < MESSAGES {
        let done = committed.len() as i64;
        until_effects(&effects, done - MAX_AHEAD).await;
        let batch: Vec<Message> = (0..BATCH_SIZE)
            .map(|_| {
                number += 1;
                let message =
                    Message::builder("orders").event_type("order.placed").key(format!("key-{}", number % 50));
                message.json(&number).build().unwrap()
            })
            .collect();
        let mut tx = pool.begin().await.unwrap();
        let staged = store.outbox().stage_all(&mut tx, &batch).await.unwrap();
        let ids = staged.outcomes().iter().map(|(id, _): &(MessageId, _)| id.as_uuid());
        if random.random_ratio(1, ROLLBACK_RATIO) {
            rolled_back.extend(ids);
            tx.rollback().await.unwrap();
        } else {
            committed.extend(ids);
            tx.commit().await.unwrap();
        }
    }
    (committed, rolled_back)
}

async fn count(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query(sql).fetch_one(pool).await.unwrap().try_get(0).unwrap()
}

/// Waits until there are `wanted` effects. Panics without progress.
async fn until_effects(pool: &PgPool, wanted: i64) {
    let (mut last, mut since) = (-1, Instant::now());
    loop {
        let now = count(pool, "select count(*) from effect").await;
        if now >= wanted {
            return;
        }
        if now > last {
            (last, since) = (now, Instant::now());
        }
        assert!(since.elapsed() < STALL_TIMEOUT, "stalled at {now} effects of {wanted}");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn until_sent(url: &str) {
    let (pool, since) = (pool(url).await, Instant::now());
    while count(
        &pool,
        "select (select count(*) from postrider.ready) + (select count(*) from postrider.scheduled)",
    )
    .await
        > 0
    {
        assert!(since.elapsed() < STALL_TIMEOUT, "messages are left in the outbox");
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(count(&pool, "select count(*) from postrider.dead").await, 0, "the relay gave up");
}

async fn check_result(pool: &PgPool, committed: &BTreeSet<Uuid>, rolled_back: &BTreeSet<Uuid>) {
    // Autoanalyze had no time yet.
    sqlx::query("analyze").execute(pool).await.unwrap();
    let rows = sqlx::query("select message_id from effect").fetch_all(pool).await.unwrap();
    let effects: Vec<Uuid> = rows.iter().map(|row| row.try_get(0).unwrap()).collect();
    let distinct: BTreeSet<Uuid> = effects.iter().copied().collect();
    assert_eq!(distinct.len(), effects.len(), "an effect happened twice");
    assert!(distinct.is_disjoint(rolled_back), "a rolled-back message had an effect");
    assert_eq!(distinct.difference(committed).count(), 0, "an effect was invented");
    assert_eq!(committed.difference(&distinct).count(), 0, "an effect is missing");
    // A follow-up is caused by its message.
    let follow_ups = "(select (r.headers ->> 'causation-id')::uuid as message_id from postrider.ready r \
        join postrider.queue q on q.id = r.queue and q.name = 'follow-ups')";
    let inbox = "(select message_id from postrider.inbox where consumer = 'billing')";
    let sets = [("effects", "effect"), ("follow-ups", follow_ups), ("deduplication records", inbox)];
    for (one, these) in sets {
        let all = format!("select count(*) from {these} t");
        let all: i64 =
            sqlx::query(sqlx::AssertSqlSafe(all)).fetch_one(pool).await.unwrap().try_get(0).unwrap();
        assert_eq!(all, committed.len() as i64, "{one}");
        for (other, those) in sets {
            let missing = format!(
                "select count(*) from {these} t where not exists (select from {those} o where o.message_id = t.message_id)"
            );
            let missing: i64 =
                sqlx::query(sqlx::AssertSqlSafe(missing)).fetch_one(pool).await.unwrap().try_get(0).unwrap();
            assert_eq!(missing, 0, "{one} without {other}");
        }
    }
    let delivered = count(pool, "select count(*) from delivered").await;
    let duplicates = delivered - count(pool, "select count(distinct message_id) from delivered").await;
    println!(
        "{} committed, {} rolled back, {delivered} delivered, {duplicates} of them redelivered",
        committed.len(),
        rolled_back.len()
    );
    assert!(duplicates > 0, "no message was redelivered: too few faults");
    assert_eq!(count(pool, "select count(*) from postrider.dead").await, 0, "a message was dead-lettered");
}
