//! Ordered queues under retries, dead letters, crashes and stalls (promises 2 and 4, decision "ordering").
//!
//! Four claimers, each with a handle of its own, take turns of some forty keys, two of them hot. They fail, crash and
//! stall at random, and every delivery is checked against the truth. An operator releases parked keys, and
//! moves time on when nothing else moves. The seed is printed; `POSTRIDER_SEED` chooses another.

use super::{helpers::*, truth::Truth};
use crate::Fixture;
use postrider_core::{Claimed, OnFailure, Outbox, QueuePolicy, Reason, Settle, Settlement, inspect::Room};
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

/// Under block, nothing is overtaken, delivered again after its end, in two hands, or lost.
pub async fn block_survives_crashes_retries_and_stalls<F: Fixture>(fixture: F) {
    torture(fixture, OnFailure::Block).await;
}

/// Under park, nothing is overtaken, delivered again after its end, in two hands, or lost.
pub async fn park_survives_crashes_retries_and_stalls<F: Fixture>(fixture: F) {
    torture(fixture, OnFailure::Park).await;
}

/// Under skip, nothing is overtaken but by its own dead letter, delivered again after its end, in two hands, or lost.
pub async fn skip_survives_crashes_retries_and_stalls<F: Fixture>(fixture: F) {
    torture(fixture, OnFailure::Skip).await;
}

async fn torture<F: Fixture>(fixture: F, policy: OnFailure) {
    let seed = env::var("POSTRIDER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(17);
    println!("POSTRIDER_SEED={seed}");
    declare(&fixture, "orders", QueuePolicy::by_key(policy)).await;
    let scene = Arc::new(Scene { fixture, truth: Mutex::new(Truth::new(policy)), calls: RwLock::new(()) });

    let mut actors = JoinSet::new();
    for number in 0..PRODUCERS {
        let rng = StdRng::seed_from_u64(seed + number as u64);
        actors.spawn(produce(Arc::clone(&scene), number, rng));
    }
    for number in 0..CLAIMERS {
        let claimer = Claimer {
            store: scene.fixture.another_store().await,
            scene: Arc::clone(&scene),
            rng: StdRng::seed_from_u64(seed + 100 + number as u64),
            stalled: Vec::new(),
        };
        actors.spawn(claimer.work());
    }
    actors.spawn(operate(Arc::clone(&scene)));
    while let Some(actor) = actors.join_next().await {
        actor.unwrap(); // The first to find a violation ends the test, and the others with it.
    }

    let fixture = &scene.fixture;
    assert_eq!(list(fixture, "orders", Room::Ready).await, []);
    assert_eq!(list(fixture, "orders", Room::Later).await, []);
    let dead = ids_of(&list(fixture, "orders", Room::Dead).await);
    let truth = scene.truth();
    println!("{policy:?}: {:?} in {} generations", truth.tally, truth.generation());
    assert_eq!(sorted(dead), sorted(truth.dead().iter().copied()), "the dead letters are those that died");
    let tally = &truth.tally;
    assert!(tally.failures > 0 && tally.crashes > 0 && tally.lost > 0, "it was no torture: {tally:?}");
    assert_eq!(tally.released > 0, policy != OnFailure::Skip, "keys were parked where the policy says so");
}

/// What everybody shares.
struct Scene<F> {
    fixture: F,
    truth: Mutex<Truth>,
    /// Read while a call to the store is under way; written while time is moved on.
    calls: RwLock<()>,
}

impl<F: Fixture> Scene<F> {
    fn truth(&self) -> MutexGuard<'_, Truth> {
        self.truth.lock().expect("no other actor has found a violation")
    }

    fn is_over(&self) -> bool {
        self.truth().ended() == MESSAGES
    }
}

/// Stages messages of its own share of the keys, many of them for the hot one among these.
async fn produce<F: Fixture>(scene: Arc<Scene<F>>, number: usize, mut rng: StdRng) {
    let outbox = scene.fixture.outbox();
    let mut left = MESSAGES / PRODUCERS;
    while left > 0 {
        let size = rng.random_range(1..=20).min(left);
        let mut batch = Vec::with_capacity(size);
        for _ in 0..size {
            let of_mine = if rng.random_bool(0.4) { 0 } else { rng.random_range(0..KEYS / PRODUCERS) };
            let name = format!("key-{}", of_mine * PRODUCERS + number);
            let id = fresh_id();
            scene.truth().staged(&key(&name), id);
            batch.push(message("orders").key(name).id(id).build().unwrap());
        }
        let mut tx = scene.fixture.begin().await;
        outbox.stage_all(&mut tx, &batch).await.unwrap();
        scene.fixture.commit(tx).await;
        left -= size;
        yield_now().await;
    }
}

/// Releases parked keys, and lets every lease lapse when nothing else moves.
async fn operate<F: Fixture>(scene: Arc<Scene<F>>) {
    let operate = scene.fixture.operate();
    while !scene.is_over() {
        for blocked in operate.blocked_keys(&queue("orders"), KEYS).await.unwrap() {
            if blocked.due_at.is_none() {
                let released =
                    operate.release_key(&queue("orders"), &blocked.key, &operator()).await.unwrap();
                assert!(released, "{} was parked, and nobody else releases keys", blocked.key);
                scene.truth().released();
            }
        }
        if scene.truth().idle() > 8 * CLAIMERS {
            let _nobody_calls = scene.calls.write().await;
            scene.truth().lapse();
            lapse(&scene.fixture).await;
        }
        yield_now().await;
    }
}

struct Claimer<F> {
    store: Handle,
    scene: Arc<Scene<F>>,
    rng: StdRng,
    /// Claims that it sits on until their leases have lapsed.
    stalled: Vec<(Vec<Claimed>, u64)>,
}

impl<F: Fixture> Claimer<F> {
    async fn work(mut self) {
        while !self.scene.is_over() {
            let (claimed, generation) = self.claim().await;
            if claimed.is_empty() {
                yield_now().await;
            } else if self.rng.random_bool(0.03) {
                self.scene.truth().crashed();
            } else if self.rng.random_bool(0.03) {
                self.stalled.push((claimed, generation));
            } else {
                self.handle(&claimed, generation).await;
            }
            self.wake_up(false).await;
        }
        self.wake_up(true).await;
    }

    async fn claim(&mut self) -> (Vec<Claimed>, u64) {
        let _calling = self.scene.calls.read().await;
        let claimed = claim(&self.store, "orders", self.rng.random_range(1..=20)).await;
        let generation = self.scene.truth().delivered(&claimed);
        (claimed, generation)
    }

    /// Goes on with what it had forgotten about, now that it is late.
    async fn wake_up(&mut self, all: bool) {
        let now = self.scene.truth().generation();
        let late: Vec<_> = self.stalled.extract_if(.., |(_, generation)| all || *generation < now).collect();
        for (claimed, generation) in late {
            self.handle(&claimed, generation).await;
        }
    }

    /// Runs each key's messages one after the other, up to the first that fails, and settles: all at once, or one by one.
    async fn handle(&mut self, claimed: &[Claimed], generation: u64) {
        let at_once = self.rng.random_bool(0.75);
        let mut batch = Vec::new();
        let mut failed = Vec::new();
        for each in claimed {
            let key = &each.lease.turn().expect("an ordered queue hands out turns").key;
            if failed.contains(key) {
                batch.extend(at_once.then(|| each.lease.release()));
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
        if at_once {
            self.settle(&batch, generation).await;
        } else {
            for settle in &batch {
                self.settle(std::slice::from_ref(settle), generation).await;
            }
        }
    }

    async fn settle(&self, batch: &[Settle], generation: u64) {
        let _calling = self.scene.calls.read().await;
        self.scene.truth().settling(batch, generation);
        let lost = self.store.settle(batch).await.unwrap();
        self.scene.truth().settled(batch, &lost, generation);
    }
}
