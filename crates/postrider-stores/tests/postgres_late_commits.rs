//! Late commits beside an idle writer and a held snapshot: none is missed. Positions are not commit order, and claims start at a
//! low-water mark, so look-backs below it must find late commits.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/postgres.rs"]
mod support;

use postrider_core::{
    ClaimRequest, Message, MessageId, Outbox, QueueName, QueuePolicy, Store, schema::Schema,
};
use postrider_stores::postgres::{PostgresOptions, PostgresStore};
use postrider_testkit::Fixture;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::{Executor, Postgres, Transaction};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use support::PostgresFixture;
use tokio::task::JoinSet;

const PRODUCERS: u64 = 8;
const CLAIMERS: u64 = 4;
const PRODUCE_FOR: Duration = Duration::from_secs(6);
/// A claimer that finds nothing for this time and number of claims will find nothing more.
const QUIET_FOR: Duration = Duration::from_secs(4);
const QUIET_LOOKS: u32 = 200;
const LEASE: Duration = Duration::from_millis(1_000);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_find_all_late_commits() {
    let fixture = Arc::new(PostgresFixture::new().await);
    let writer = idle_writer(&fixture).await;
    let snapshot = held_snapshot(&fixture).await;
    let missed = missed(&fixture, |options| options).await;
    assert_eq!(missed, BTreeMap::new(), "message and how often it was settled");
    drop((writer, snapshot));
}

/// The same for fair queues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fair_claims_find_all_late_commits() {
    let fixture = Arc::new(fair_fixture().await);
    let writer = idle_writer(&fixture).await;
    let snapshot = held_snapshot(&fixture).await;
    let missed = missed(&fixture, |options| options).await;
    assert_eq!(missed, BTreeMap::new(), "message and how often it was settled");
    drop((writer, snapshot));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_fair_claims_without_sweeps_miss_late_commits() {
    let fixture = Arc::new(fair_fixture().await);
    assert!(!missed(&fixture, PostgresOptions::without_sweeps).await.is_empty());
}

async fn fair_fixture() -> PostgresFixture {
    let fixture = PostgresFixture::new().await;
    let policy = QueuePolicy::default().fair_by_tenant();
    fixture.store.declare(&QueueName::new("orders").unwrap(), &policy).await.unwrap();
    fixture
}

/// The negative control: the low-water mark alone misses late commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_claims_without_sweeps_miss_late_commits() {
    let fixture = Arc::new(PostgresFixture::new().await);
    assert!(!missed(&fixture, PostgresOptions::without_sweeps).await.is_empty());
}

/// A transaction that has written and then stays idle.
async fn idle_writer(fixture: &PostgresFixture) -> Transaction<'static, Postgres> {
    let mut tx = fixture.begin().await;
    tx.execute("create table idle (n int)").await.unwrap();
    tx
}

/// A transaction whose snapshot keeps vacuum from removing dead rows.
async fn held_snapshot(fixture: &PostgresFixture) -> Transaction<'static, Postgres> {
    let mut tx = fixture.begin().await;
    tx.execute("set transaction isolation level repeatable read").await.unwrap();
    tx.execute("select 1 from postrider.queue").await.unwrap();
    tx
}

/// Producers commit out of order while claimers claim, settle and crash. Returns every committed message that was not settled exactly
/// once, and every uncommitted one that was settled.
async fn missed(
    fixture: &Arc<PostgresFixture>,
    configure: fn(PostgresOptions) -> PostgresOptions,
) -> BTreeMap<MessageId, usize> {
    let committed = Arc::new(Mutex::new(BTreeSet::new()));
    let settled: Arc<Mutex<BTreeMap<MessageId, usize>>> = Arc::default();
    let mut producers = JoinSet::new();
    for seed in 0..PRODUCERS {
        let (fixture, committed) = (Arc::clone(fixture), Arc::clone(&committed));
        producers.spawn(async move { produce(&fixture, seed, &committed).await });
    }
    let mut claimers = JoinSet::new();
    let all_committed = Arc::new(AtomicBool::new(false));
    for seed in 0..CLAIMERS {
        let options = configure(PostgresOptions::new(fixture.database.url()).unwrap().with_connections(2));
        let (store, settled) = (PostgresStore::open(options).await.unwrap(), Arc::clone(&settled));
        let all_committed = Arc::clone(&all_committed);
        claimers.spawn(async move { claim(&store, seed, &settled, &all_committed).await });
    }
    while let Some(done) = producers.join_next().await {
        done.unwrap();
    }
    all_committed.store(true, SeqCst);
    while let Some(done) = claimers.join_next().await {
        done.unwrap();
    }
    let (committed, settled) = (committed.lock().unwrap(), settled.lock().unwrap());
    assert!(committed.len() > 500, "only {} messages were committed", committed.len());
    let all: BTreeSet<_> = committed.iter().chain(settled.keys()).copied().collect();
    let count = |id| settled.get(&id).copied().unwrap_or(0);
    let wrong = all.into_iter().map(|id| (id, count(id)));
    wrong.filter(|(id, count)| *count != usize::from(committed.contains(id))).collect()
}

async fn produce(fixture: &PostgresFixture, seed: u64, committed: &Mutex<BTreeSet<MessageId>>) {
    let mut random = StdRng::seed_from_u64(seed);
    let outbox = fixture.outbox();
    let began = Instant::now();
    while began.elapsed() < PRODUCE_FOR {
        let batch: Vec<_> = (0..random.random_range(1..5))
            .map(|n| {
                let tenant = if n == 0 { seed } else { random.random_range(0..20) };
                Message::builder("orders").tenant(format!("tenant-{tenant}")).json(&n).build().unwrap()
            })
            .collect();
        let mut tx = fixture.begin().await;
        let staged = outbox.stage_all(&mut tx, &batch).await.unwrap();
        // The work of the transaction: most are quick, some take seconds.
        let takes = if random.random_bool(0.02) { 2_000 } else { random.random_range(0..80) };
        tokio::time::sleep(Duration::from_millis(takes)).await;
        if random.random_bool(0.1) {
            fixture.rollback(tx).await;
        } else {
            // Recorded before it can be claimed.
            committed.lock().unwrap().extend(staged.outcomes().iter().map(|(id, _)| *id));
            fixture.commit(tx).await;
        }
    }
}

async fn claim(
    store: &PostgresStore,
    seed: u64,
    settled: &Mutex<BTreeMap<MessageId, usize>>,
    all_committed: &AtomicBool,
) {
    let mut random = StdRng::seed_from_u64(1_000 + seed);
    let request = ClaimRequest::new(QueueName::new("orders").unwrap(), 50).with_lease_for(LEASE);
    let (mut quiet_since, mut looks) = (Instant::now(), 0);
    while quiet_since.elapsed() < QUIET_FOR || looks < QUIET_LOOKS {
        let may_be_last = all_committed.load(SeqCst);
        let claimed = store.claim(&request).await.unwrap();
        looks += 1;
        if !may_be_last || !claimed.is_empty() {
            (quiet_since, looks) = (Instant::now(), 0);
        }
        if claimed.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        if random.random_bool(0.03) {
            // It crashes with messages in flight: others claim them when the lease expires.
            continue;
        }
        let done: Vec<_> = claimed.iter().map(|claimed| claimed.lease.done()).collect();
        let lost = store.settle(&done).await.unwrap();
        let mut settled = settled.lock().unwrap();
        for claimed in claimed.iter().filter(|claimed| !lost.contains(&claimed.lease)) {
            *settled.entry(claimed.id()).or_default() += 1;
        }
    }
}
