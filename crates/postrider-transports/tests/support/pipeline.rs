//! The whole way, with everything that can die dying: PostgreSQL → relay → broker → consumer → another PostgreSQL.
//!
//! A producer stages messages in transactions, some of which it rolls back. A relay and a consumer run in processes of their own, which are
//! killed and started again, and so is the broker. The consumer's handler writes an effect into a table that would take it twice, and stages
//! a follow-up. What is checked at the end:
//!
//! - every committed message has exactly one effect and one follow-up, and nothing else has any;
//! - inbox, effects and follow-ups name the same messages: none of the three has one that another has not;
//! - some messages were delivered more than once: it was not too quiet.
//!
//! The seed is printed; `POSTRIDER_SEED` repeats its choices, though not the moments at which they fall.

use async_trait::async_trait;
use postrider_core::{
    Abilities, Answer, Finding, Format, Message, MessageId, Outbox, OutboxExt, Parcel, QueueName, Redelivers,
    RetryStrategy, Source, SourceError, Ticket, Transport, schema::Schema,
};
use postrider_engine::{
    Consumer, Context, Failure, Tx,
    relay::{Destination, Relay, Route, To},
};
use postrider_stores::postgres::PostgresStore;
use postrider_testkit::{
    broker,
    postgres::TestDatabase,
    process::{Process, told},
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
/// A transaction of the producer.
const STAGED_TOGETHER: usize = 100;
/// One of so many transactions is rolled back.
const ROLLED_BACK: u32 = 10;
/// The producer is never further ahead, so that it is there until the end.
const AHEAD: i64 = 3_000;
/// Without progress for so long, it has come to a stop.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a dead relay's messages wait.
const LEASE: Duration = Duration::from_secs(1);

/// The broker of a test, and how processes reach it.
#[async_trait]
pub(crate) trait Broker: Send + Sync {
    /// Everything that another process has to be told to reach it, and the place that is sent to and read.
    fn told(&self) -> String;

    /// Kills it without a word, starts it again with its data, and returns when it answers.
    async fn kill_and_restart(&self);
}

/// A broker of the test's own, told by its URL.
pub(crate) struct Killed<K>(Mutex<broker::Broker<K>>, String);

impl<K: broker::Durable> Killed<K> {
    pub(crate) fn new(broker: broker::Broker<K>) -> Self {
        let url = broker.url().to_owned();
        Self(Mutex::new(broker), url)
    }
}

#[async_trait]
impl<K: broker::Durable + Send + Sync> Broker for Killed<K> {
    fn told(&self) -> String {
        self.1.clone()
    }

    async fn kill_and_restart(&self) {
        let mut broker = self.0.lock().await;
        broker.kill();
        broker.restart().await;
    }
}

/// The names of the tests that are the bodies of the processes.
pub(crate) struct Bodies {
    pub(crate) relay: &'static str,
    pub(crate) consumer: &'static str,
}

/// What a process is told: the two databases and the broker.
struct Told {
    outbox: String,
    inbox: String,
    broker: String,
}

impl Told {
    fn read(told: &str) -> Self {
        let mut parts = told.splitn(3, '\n').map(str::to_owned);
        let mut next = || parts.next().unwrap();
        Self { outbox: next(), inbox: next(), broker: next() }
    }
}

/// The body of the relay's process. `make` gives the transport, and where it sends to.
pub(crate) async fn relay<F>(format: Format, make: impl FnOnce(String) -> F)
where
    F: Future<Output = (Arc<dyn Transport>, String)>,
{
    let Some(told) = told() else { return };
    let told = Told::read(&told);
    let (transport, address) = make(told.broker).await;
    let store = PostgresStore::connect(&told.outbox).await.unwrap();
    let again = RetryStrategy::constant(Duration::from_millis(100)).without_max_attempts();
    let to = To::new("broker", address).format(format);
    let route = Route::new("orders").to_with(to).lease_for(LEASE).retry(again).without_max_deliveries();
    let relay = Relay::builder(store, "/shop")
        .destination(Destination::shared("broker", transport))
        .route(route)
        .build()
        .unwrap();
    let _running = relay.start();
    std::future::pending::<()>().await;
}

/// The body of the consumer's process.
pub(crate) async fn consumer<F>(make: impl FnOnce(String) -> F)
where
    F: Future<Output = Arc<dyn Source>>,
{
    let Some(told) = told() else { return };
    let told = Told::read(&told);
    let source = make(told.broker).await;
    let pool = pool(&told.inbox).await;
    let store = PostgresStore::connect(&told.inbox).await.unwrap();
    let outbox = store.outbox();
    let witnessed = Arc::new(Witnessed { source, pool: pool.clone() });
    let soon = RetryStrategy::constant(Duration::from_millis(50)).without_max_attempts();
    let consumer = Consumer::builder_on("billing", witnessed, store.transactions(pool))
        .concurrency(3)
        .redeliver(soon)
        .redelivered_within(Duration::from_secs(60))
        .on_json(move |number: i64, mut tx: Tx<Transaction<'static, Postgres>>, context: Context| {
            let outbox = outbox.clone();
            async move {
                // Now and then a handler fails after it has written.
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
    let _running = consumer.start().await.unwrap();
    std::future::pending::<()>().await;
}

async fn pool(url: &str) -> PgPool {
    PgPoolOptions::new().max_connections(5).connect(url).await.unwrap()
}

/// Writes down what is delivered, whatever becomes of it.
#[derive(Debug)]
struct Witnessed {
    source: Arc<dyn Source>,
    pool: PgPool,
}

#[async_trait]
impl Source for Witnessed {
    fn kind(&self) -> &'static str {
        self.source.kind()
    }

    fn origin(&self) -> &str {
        self.source.origin()
    }

    fn abilities(&self) -> Abilities {
        self.source.abilities()
    }

    async fn receive(&self, most: usize) -> Result<Vec<Parcel>, SourceError> {
        let parcels = self.source.receive(most).await?;
        let queue = QueueName::stored("witnessed");
        let ids: Vec<Uuid> = parcels
            .iter()
            .filter_map(|parcel| Some(parcel.incoming.read(&queue).ok()?.id.as_uuid()))
            .collect();
        sqlx::query("insert into delivered select unnest($1::uuid[])")
            .bind(ids)
            .execute(&self.pool)
            .await
            .unwrap();
        Ok(parcels)
    }

    async fn answer(&self, answers: &[(Ticket, Answer)]) -> Vec<Result<(), SourceError>> {
        self.source.answer(answers).await
    }

    async fn extend(&self, tickets: &[Ticket]) -> Vec<Result<(), SourceError>> {
        self.source.extend(tickets).await
    }

    async fn redelivers(&self) -> Result<Redelivers, SourceError> {
        self.source.redelivers().await
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        self.source.check().await
    }

    async fn close(&self) {
        self.source.close().await;
    }
}

/// A database with our tables.
async fn database() -> TestDatabase {
    let database = TestDatabase::empty().await;
    PostgresStore::connect(database.url()).await.unwrap().migrate().await.unwrap();
    database
}

/// Sends everything the whole way, and checks what came of it.
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
    let told = format!("{}\n{}\n{}", outbox.url(), inbox.url(), broker.told());
    let start = |body: &str| Process::start(body, &told);
    let producer = tokio::spawn(produce(outbox.url().to_owned(), effects.clone(), random.random()));
    let (mut relay, mut consumer) = (Some(start(bodies.relay)), Some(start(bodies.consumer)));

    // Every kill has its share of the way, at a random moment of it.
    let steps = KILLS * 2 + RESTARTS;
    let mut mischief: Vec<usize> = (0..steps).collect();
    for place in (1..steps).rev() {
        mischief.swap(place, random.random_range(0..=place));
    }
    for (step, what) in mischief.into_iter().enumerate() {
        let share = MESSAGES * 8 / 10 / steps;
        until_effects(&effects, (step * share + random.random_range(0..share)) as i64).await;
        if what < KILLS {
            drop(relay.take());
            relay = Some(start(bodies.relay));
        } else if what < 2 * KILLS {
            drop(consumer.take());
            consumer = Some(start(bodies.consumer));
        } else {
            broker.kill_and_restart().await;
        }
    }
    let (committed, rolled_back) = producer.await.unwrap();
    until_effects(&effects, committed.len() as i64).await;
    until_sent(outbox.url()).await;
    // Whatever is still on its way has time to do harm until the consumer has seen the last of it.
    sleep(Duration::from_secs(2)).await;
    drop((relay, consumer));
    judge(&effects, &committed, &rolled_back).await;
}

/// Stages everything, and answers with what was committed and what was rolled back.
async fn produce(url: String, effects: PgPool, seed: u64) -> (BTreeSet<Uuid>, BTreeSet<Uuid>) {
    let mut random = StdRng::seed_from_u64(seed);
    let pool = pool(&url).await;
    let store = PostgresStore::connect(&url).await.unwrap();
    let (mut committed, mut rolled_back, mut number) = (BTreeSet::new(), BTreeSet::new(), 0_i64);
    while committed.len() < MESSAGES {
        let done = committed.len() as i64;
        until_effects(&effects, done - AHEAD).await;
        let batch: Vec<Message> = (0..STAGED_TOGETHER)
            .map(|_| {
                number += 1;
                let message =
                    Message::builder("orders").event_type("order.placed").key(format!("key-{}", number % 50));
                message.json(&number).build().unwrap()
            })
            .collect();
        let mut tx = pool.begin().await.unwrap();
        let staged = store.outbox().stage_all(&mut tx, &batch).await.unwrap();
        let ids = staged.fates().iter().map(|(id, _): &(MessageId, _)| id.as_uuid());
        if random.random_ratio(1, ROLLED_BACK) {
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

/// Waits until there are so many effects. Panics when there is no progress.
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
        assert!(since.elapsed() < PATIENCE, "{now} effects, and no more: {wanted} are wanted");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn until_sent(url: &str) {
    let (pool, since) = (pool(url).await, Instant::now());
    while count(
        &pool,
        "select (select count(*) from postrider.ready) + (select count(*) from postrider.later)",
    )
    .await
        > 0
    {
        assert!(since.elapsed() < PATIENCE, "messages are left in the outbox");
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(count(&pool, "select count(*) from postrider.dead").await, 0, "the relay gave up");
}

async fn judge(pool: &PgPool, committed: &BTreeSet<Uuid>, rolled_back: &BTreeSet<Uuid>) {
    // Nobody has had the time to tell the planner how much there is.
    sqlx::query("analyze").execute(pool).await.unwrap();
    let rows = sqlx::query("select message_id from effect").fetch_all(pool).await.unwrap();
    let effects: Vec<Uuid> = rows.iter().map(|row| row.try_get(0).unwrap()).collect();
    let distinct: BTreeSet<Uuid> = effects.iter().copied().collect();
    assert_eq!(distinct.len(), effects.len(), "an effect happened twice");
    assert!(distinct.is_disjoint(rolled_back), "what was rolled back had an effect");
    assert_eq!(distinct.difference(committed).count(), 0, "an effect was invented");
    assert_eq!(committed.difference(&distinct).count(), 0, "an effect is missing");
    // A follow-up is caused by its message.
    let follow_ups = "(select (r.headers ->> 'causation-id')::uuid as message_id from postrider.ready r \
        join postrider.queue q on q.id = r.queue and q.name = 'follow-ups')";
    let inbox = "(select message_id from postrider.inbox where consumer = 'billing')";
    let sets = [("effects", "effect"), ("follow-ups", follow_ups), ("marks", inbox)];
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
        "{} committed, {} rolled back, {delivered} delivered, {duplicates} of them again",
        committed.len(),
        rolled_back.len()
    );
    assert!(duplicates > 0, "it was too quiet");
    assert_eq!(count(pool, "select count(*) from postrider.dead").await, 0, "something was parked");
}
