//! Ordered queues under retries, dead letters, crashes and stalls (promises 2 and 4, decision "ordering").
//!
//! Four claimers, each with its own handle, claim turns of about forty keys, two of them hot. They fail, crash and stall at random,
//! and every delivery is checked against the model. An operator releases parked keys, and moves the clock when nothing else
//! happens. The seed is printed; `POSTRIDER_SEED` sets another.

use super::{helpers::*, model::OrderingModel};
use crate::Fixture;
use postrider_core::{
    ClaimedMessage, LeaseSettlement, OnFailure, Outbox, QueuePolicy, Reason, Settlement, inspect::StateFilter,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{
    env,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::{
    sync::RwLock,
    task::{JoinSet, yield_now},
};

const CLAIMERS: usize = 4;
const PRODUCERS: usize = 2;
const KEYS: usize = 40;
const MESSAGES: usize = 3_000;

/// Under block, no message is overtaken, redelivered after its settlement, claimed twice at a time, or lost.
pub async fn block_survives_crashes_retries_and_stalls<F: Fixture>(fixture: F) {
    stress(fixture, OnFailure::Block).await;
}

/// Under park, no message is overtaken, redelivered after its settlement, claimed twice at a time, or lost.
pub async fn park_survives_crashes_retries_and_stalls<F: Fixture>(fixture: F) {
    stress(fixture, OnFailure::Park).await;
}

/// Under skip, only a dead letter is overtaken; no message is redelivered after its settlement, claimed twice at a time, or lost.
pub async fn skip_survives_crashes_retries_and_stalls<F: Fixture>(fixture: F) {
    stress(fixture, OnFailure::Skip).await;
}

async fn stress<F: Fixture>(fixture: F, policy: OnFailure) {
    let seed = env::var("POSTRIDER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(17);
    println!("POSTRIDER_SEED={seed}");
    declare(&fixture, "orders", QueuePolicy::by_key(policy)).await;
    let run = Arc::new(StressRun {
        fixture,
        model: Mutex::new(OrderingModel::new(policy)),
        calls: RwLock::new(()),
    });

    let mut actors = JoinSet::new();
    for number in 0..PRODUCERS {
        let rng = StdRng::seed_from_u64(seed + number as u64);
        actors.spawn(produce(Arc::clone(&run), number, rng));
    }
    for number in 0..CLAIMERS {
        let claimer = Claimer {
            store: run.fixture.another_store().await,
            run: Arc::clone(&run),
            rng: StdRng::seed_from_u64(seed + 100 + number as u64),
            stalled: Vec::new(),
        };
        actors.spawn(claimer.work());
    }
    actors.spawn(operate(Arc::clone(&run)));
    while let Some(actor) = actors.join_next().await {
        actor.unwrap(); // The first to find a violation ends the test, and the others with it.
    }

    let fixture = &run.fixture;
    assert_eq!(list(fixture, "orders", StateFilter::Ready).await, []);
    assert_eq!(list(fixture, "orders", StateFilter::Scheduled).await, []);
    let dead = ids_of(&list(fixture, "orders", StateFilter::Dead).await);
    let model = run.model();
    println!("{policy:?}: {:?} in {} generations", model.counts, model.generation());
    assert_eq!(sorted(dead), sorted(model.dead().iter().copied()), "the dead letters are those that died");
    let counts = &model.counts;
    assert!(counts.failures > 0 && counts.crashes > 0 && counts.lost > 0, "it was no torture: {counts:?}");
    assert_eq!(counts.released > 0, policy != OnFailure::Skip, "keys were parked under block and park only");
}

/// The state that all actors share.
struct StressRun<F> {
    fixture: F,
    model: Mutex<OrderingModel>,
    /// Read-locked during a call to the store; write-locked while the clock moves.
    calls: RwLock<()>,
}

impl<F: Fixture> StressRun<F> {
    fn model(&self) -> MutexGuard<'_, OrderingModel> {
        self.model.lock().expect("no other actor has found a violation")
    }

    fn is_over(&self) -> bool {
        self.model().ended() == MESSAGES
    }
}

/// Stages messages for its own share of the keys, many of them for the hot key.
async fn produce<F: Fixture>(run: Arc<StressRun<F>>, number: usize, mut rng: StdRng) {
    let outbox = run.fixture.outbox();
    let mut left = MESSAGES / PRODUCERS;
    while left > 0 {
        let size = rng.random_range(1..=20).min(left);
        let mut batch = Vec::with_capacity(size);
        for _ in 0..size {
            let of_mine = if rng.random_bool(0.4) { 0 } else { rng.random_range(0..KEYS / PRODUCERS) };
            let name = format!("key-{}", of_mine * PRODUCERS + number);
            let id = fresh_id();
            run.model().staged(&key(&name), id);
            batch.push(message("orders").key(name).id(id).build().unwrap());
        }
        let mut tx = run.fixture.begin().await;
        outbox.stage_all(&mut tx, &batch).await.unwrap();
        run.fixture.commit(tx).await;
        left -= size;
        yield_now().await;
    }
}

/// Releases parked keys, and lets every lease expire when nothing else happens.
async fn operate<F: Fixture>(run: Arc<StressRun<F>>) {
    let operate = run.fixture.operate();
    while !run.is_over() {
        for blocked in operate.blocked_keys(&queue("orders"), KEYS).await.unwrap() {
            if blocked.due_at.is_none() {
                let released =
                    operate.release_key(&queue("orders"), &blocked.key, &operator()).await.unwrap();
                assert!(released, "{} was parked, and no other actor releases keys", blocked.key);
                run.model().released();
            }
        }
        if run.model().idle() > 8 * CLAIMERS {
            let _nobody_calls = run.calls.write().await;
            run.model().expire_leases();
            expire_leases(&run.fixture).await;
        }
        yield_now().await;
    }
}

struct Claimer<F> {
    store: Handle,
    run: Arc<StressRun<F>>,
    rng: StdRng,
    /// Claims that it keeps until their leases have expired.
    stalled: Vec<(Vec<ClaimedMessage>, u64)>,
}

impl<F: Fixture> Claimer<F> {
    async fn work(mut self) {
        while !self.run.is_over() {
            let (claimed, generation) = self.claim().await;
            if claimed.is_empty() {
                yield_now().await;
            } else if self.rng.random_bool(0.03) {
                self.run.model().crashed();
            } else if self.rng.random_bool(0.03) {
                self.stalled.push((claimed, generation));
            } else {
                self.handle(&claimed, generation).await;
            }
            self.wake_up(false).await;
        }
        self.wake_up(true).await;
    }

    async fn claim(&mut self) -> (Vec<ClaimedMessage>, u64) {
        let _calling = self.run.calls.read().await;
        let claimed = claim(&self.store, "orders", self.rng.random_range(1..=20)).await;
        let generation = self.run.model().delivered(&claimed);
        (claimed, generation)
    }

    /// Continues with claims that it kept until they were late.
    async fn wake_up(&mut self, all: bool) {
        let now = self.run.model().generation();
        let late: Vec<_> = self.stalled.extract_if(.., |(_, generation)| all || *generation < now).collect();
        for (claimed, generation) in late {
            self.handle(&claimed, generation).await;
        }
    }

    /// Handles the messages of each key one after the other, up to the first failure, and settles them in one batch or one by one.
    async fn handle(&mut self, claimed: &[ClaimedMessage], generation: u64) {
        let concurrency = self.rng.random_bool(0.75);
        let mut batch = Vec::new();
        let mut failed = Vec::new();
        for each in claimed {
            let key = &each.lease.turn().expect("an ordered queue has turns").key;
            if failed.contains(key) {
                batch.extend(concurrency.then(|| each.lease.release()));
                continue;
            }
            let settle = match self.rng.random_range(0..100) {
                0..10 => each.lease.retry(Duration::from_millis(self.rng.random_range(0..200)), "busy"),
                10..13 => each.lease.dead(Reason::Rejected, "refused"),
                _ => each.lease.done(),
            };
            if settle.settlement != Settlement::Done {
                failed.push(key.clone());
            }
            batch.push(settle);
        }
        if concurrency {
            self.settle(&batch, generation).await;
        } else {
            for settle in &batch {
                self.settle(std::slice::from_ref(settle), generation).await;
            }
        }
    }

    async fn settle(&self, batch: &[LeaseSettlement], generation: u64) {
        let _calling = self.run.calls.read().await;
        self.run.model().settling(batch, generation);
        let lost = self.store.settle(batch).await.unwrap();
        self.run.model().settled(batch, &lost, generation);
    }
}
