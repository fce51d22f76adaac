//! The fault matrix: a real relay sends messages to a broker that is killed, over connections that are cut.
//!
//! A producer stages messages in transactions, some of which it rolls back. A relay sends the committed messages through a
//! [`FaultProxy`], which cuts, stalls and drops at random, to a broker that is killed and restarted once per cycle. At the end, the
//! run checks that:
//!
//! - every committed message arrived, and no rolled-back one;
//! - every message that the transport accepted arrived, and no other message was settled;
//! - a message had the same id in every send;
//! - the store is empty: no message is pending, leased or dead.
//!
//! Duplicates are counted and printed: at-least-once delivery allows them. The seed is printed as well; `POSTRIDER_SEED` repeats
//! the random choices, but not their timing. `POSTRIDER_FAULT_CYCLES` sets the number of cycles, five by default; a cycle has 2,000
//! messages and one kill.

use crate::{
    Fixture,
    proxy::{Direction, Fault, FaultProxy},
    transport::Received,
};
use async_trait::async_trait;
use postrider_core::{
    Capacity, Finding, Message, Outbox, Outgoing, PublishError, Receipt, RetryStrategy, Transport,
};
use postrider_engine::relay::{Destination, Relay, Route};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

const QUEUE: &str = "orders";
const MESSAGES_IN_A_CYCLE: usize = 2_000;
const CYCLES: usize = 5;
/// The number of messages in a transaction of the producer.
const STAGED_TOGETHER: usize = 25;
/// The maximum lead of the producer, so that it stages until the end.
const AHEAD: usize = 1_000;
/// One in this many transactions is rolled back.
const ROLLED_BACK: u32 = 10;
/// Without progress for this long, the run has stopped.
const PATIENCE: Duration = Duration::from_secs(120);

/// A private broker, and transports to it.
#[async_trait]
pub trait FaultFixture: Send + Sync + 'static {
    /// `host:port` of the broker, the same after every restart.
    fn server(&self) -> String;

    /// The proxy in front of the broker. A broker that advertises an address advertises the proxy's.
    async fn proxy(&self) -> FaultProxy {
        FaultProxy::before(&self.server()).await
    }

    /// The destination: it exists, stores everything, and survives a kill.
    fn destination(&self) -> String;

    /// A transport that connects to this `host:port`, the proxy, instead of the broker.
    async fn transport(&self, proxy: &str) -> Arc<dyn Transport>;

    /// Kills the broker with SIGKILL.
    async fn kill(&self);

    /// Restarts the broker with its data, and returns when it is ready.
    async fn restart(&self);

    /// Every message at the destination, duplicates included. Called once, at the end.
    async fn arrived(&self) -> Vec<Received>;
}

/// The counts of a run.
#[derive(Debug, Clone, Copy)]
pub struct FaultOutcome {
    /// Messages that were committed and arrived.
    pub committed: usize,
    /// Messages that were rolled back and did not arrive.
    pub rolled_back: usize,
    /// Duplicates.
    pub duplicates: usize,
    /// Publish results other than success.
    pub failures: usize,
    /// Kills of the broker.
    pub kills: usize,
    /// Traffic of the proxy.
    pub mischief: usize,
}

/// The number of cycles of a run.
pub fn cycles() -> usize {
    let asked = env::var("POSTRIDER_FAULT_CYCLES").ok().filter(|cycles| !cycles.is_empty());
    asked.map_or(CYCLES, |cycles| cycles.parse().expect("POSTRIDER_FAULT_CYCLES is a number"))
}

/// Relays messages from `outbox` to the fixture's broker for this many cycles, and checks the result.
///
/// # Panics
/// When a guarantee is violated, or the run makes no progress.
pub async fn pass_over<S: Fixture, F: FaultFixture>(outbox: S, fixture: F, cycles: usize) -> FaultOutcome {
    let seed =
        env::var("POSTRIDER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    println!("POSTRIDER_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let proxy = fixture.proxy().await;
    let through = fixture.transport(&proxy.address().to_string()).await;
    let witness = Witness::of(through);
    let outbox = Arc::new(outbox);

    let running = relay(&*outbox, &witness, fixture.destination()).start();
    let producer = tokio::spawn(produce(
        Arc::clone(&outbox),
        witness.clone(),
        cycles * MESSAGES_IN_A_CYCLE,
        random.random(),
    ));
    let (stop, stopped) = watch::channel(());
    let mischief = tokio::spawn(make_mischief(proxy, stopped, random.random()));
    for cycle in 0..cycles {
        let within = random.random_range(0..MESSAGES_IN_A_CYCLE / 2);
        witness.until(cycle * MESSAGES_IN_A_CYCLE / 2 + within).await;
        fixture.kill().await;
        // Down for a while: long enough to cause failures, and short enough that the relay sees the recovery.
        sleep(Duration::from_millis(random.random_range(0..300))).await;
        fixture.restart().await;
    }
    let produced = producer.await.unwrap();
    drop(stop);
    let (proxy, mischief) = mischief.await.unwrap();
    witness.until(produced.committed.len()).await;
    let left = timeout(PATIENCE, until_empty(&*outbox)).await;
    left.unwrap_or_else(|_| panic!("messages are left in the store (seed {seed})"));
    running.stop(Duration::from_secs(30)).await;
    let arrived = fixture.arrived().await;
    drop(proxy);

    let seen = witness.seen();
    let duplicates = judge(&produced, &seen, &arrived, seed);
    let outcome = FaultOutcome {
        committed: produced.committed.len(),
        rolled_back: produced.rolled_back.len(),
        duplicates,
        failures: seen.failures,
        kills: cycles,
        mischief,
    };
    println!("{outcome:?}");
    outcome
}

fn relay<S: Fixture>(outbox: &S, witness: &Witness, address: String) -> Relay {
    let destination = Destination::shared("broker", Arc::new(witness.clone()))
        .timeout(Duration::from_secs(1))
        .circuit_backoff(Duration::from_millis(50), Duration::from_millis(500));
    // No message is dead-lettered here: a rejected message is retried until it arrives.
    let retry = RetryStrategy::constant(Duration::from_millis(100)).without_max_attempts();
    let route = Route::new(QUEUE).to("broker", address).retry(retry).without_max_deliveries();
    let builder = Relay::builder_on(outbox.store(), "/shop");
    builder.destination(destination).route(route).build().unwrap()
}

/// The numbers of messages.
#[derive(Debug, Default)]
struct Produced {
    committed: BTreeMap<u64, String>,
    rolled_back: BTreeSet<u64>,
}

async fn produce<S: Fixture>(outbox: Arc<S>, witness: Witness, count: usize, seed: u64) -> Produced {
    let mut random = StdRng::seed_from_u64(seed);
    let mut produced = Produced::default();
    let mut number = 0_u64;
    while produced.committed.len() < count {
        let messages: Vec<Message> = (0..STAGED_TOGETHER)
            .map(|_| {
                number += 1;
                let key = format!("key-{}", number % 7);
                Message::builder(QUEUE).event_type("order.placed").key(key).json(&number).build().unwrap()
            })
            .collect();
        let numbers = number + 1 - STAGED_TOGETHER as u64..=number;
        let mut tx = outbox.begin().await;
        let staged = outbox.outbox().stage_all(&mut tx, &messages).await.unwrap();
        if random.random_ratio(1, ROLLED_BACK) {
            outbox.rollback(tx).await;
            produced.rolled_back.extend(numbers);
        } else {
            outbox.commit(tx).await;
            let ids = staged.outcomes().iter().map(|(id, _)| id.to_string());
            produced.committed.extend(numbers.zip(ids));
        }
        witness.until(produced.committed.len().saturating_sub(AHEAD)).await;
    }
    produced
}

/// Injects faults into connections, one kind after the other, with pauses in between.
async fn make_mischief(
    proxy: FaultProxy,
    mut stopped: watch::Receiver<()>,
    seed: u64,
) -> (FaultProxy, usize) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut count = 0;
    loop {
        let pause = Duration::from_millis(random.random_range(20..400));
        if timeout(pause, stopped.changed()).await.is_ok() {
            return (proxy, count);
        }
        count += 1;
        let bytes = random.random_range(1..50_000);
        let lasts = Duration::from_millis(random.random_range(10..500));
        match random.random_range(0..8) {
            0 => proxy.cut(),
            1 => proxy.set_once(Fault::DropReply),
            2 => proxy.set_once(Fault::CutAfter { direction: Direction::ToServer, bytes }),
            3 => proxy.set_once(Fault::CutAfter { direction: Direction::ToClient, bytes: bytes % 500 + 1 }),
            4 => lasting(&proxy, Fault::Stall, lasts).await,
            // Longer than the relay's publish timeout.
            5 => lasting(&proxy, Fault::Stall, lasts + Duration::from_secs(1)).await,
            6 => lasting(&proxy, Fault::Delay(lasts / 20), lasts).await,
            _ => {
                lasting(&proxy, Fault::BlackHole, lasts).await;
                proxy.cut();
            }
        }
    }
}

async fn lasting(proxy: &FaultProxy, fault: Fault, lasts: Duration) {
    proxy.set(fault);
    sleep(lasts).await;
    proxy.set(Fault::None);
}

async fn until_empty<S: Fixture>(outbox: &S) {
    loop {
        let counts = outbox.store().counts().await.unwrap();
        let left = |counts: &postrider_core::inspect::Counts| {
            [counts.pending, counts.leased, counts.scheduled]
                .into_iter()
                .map(|report| report.at_least)
                .sum::<u64>()
        };
        assert!(
            counts.values().all(|counts| counts.dead.at_least == 0),
            "there are dead letters: {counts:?}"
        );
        if counts.values().map(left).sum::<u64>() == 0 {
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Returns the number of duplicates.
fn judge(produced: &Produced, seen: &Seen, arrived: &[Received], seed: u64) -> usize {
    let mut by_number: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for received in arrived {
        let number = serde_json::from_slice(&received.body).unwrap();
        by_number.entry(number).or_default().push(received.identity());
    }
    let lost: Vec<_> = produced.committed.keys().filter(|number| !by_number.contains_key(number)).collect();
    let accepted_and_lost = seen.accepted.iter().filter(|number| !by_number.contains_key(number)).count();
    assert!(
        lost.is_empty(),
        "{} of {} were committed and never arrived, {accepted_and_lost} of them though they were accepted (seed {seed}): {:?} …",
        lost.len(),
        produced.committed.len(),
        &lost[..lost.len().min(20)],
    );
    for (number, ids) in &by_number {
        let Some(id) = produced.committed.get(number) else {
            let what =
                if produced.rolled_back.contains(number) { "was rolled back" } else { "was never staged" };
            panic!("message {number} arrived and {what} (seed {seed})");
        };
        assert!(
            ids.iter().all(|arrived| arrived == id),
            "message {number} is {id}, and arrived as {ids:?} (seed {seed})"
        );
    }
    for (number, ids) in &seen.ids {
        assert_eq!(ids.len(), 1, "message {number} was sent under several ids: {ids:?} (seed {seed})");
    }
    for number in produced.committed.keys() {
        assert!(
            seen.accepted.contains(number),
            "message {number} was settled, and never accepted (seed {seed})"
        );
    }
    arrived.len() - by_number.len()
}

/// Wraps the transport and records every message and result.
#[derive(Debug, Clone)]
struct Witness {
    transport: Arc<dyn Transport>,
    seen: Arc<Mutex<Seen>>,
    accepted: Arc<watch::Sender<usize>>,
}

#[derive(Debug, Clone, Default)]
struct Seen {
    accepted: BTreeSet<u64>,
    ids: BTreeMap<u64, BTreeSet<String>>,
    failures: usize,
}

impl Witness {
    fn of(transport: Arc<dyn Transport>) -> Self {
        Self { transport, seen: Arc::default(), accepted: Arc::new(watch::Sender::new(0)) }
    }

    fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    /// Returns when this many messages were accepted.
    async fn until(&self, wanted: usize) {
        let mut accepted = self.accepted.subscribe();
        let mut so_far = *accepted.borrow_and_update();
        while so_far < wanted {
            let moved = timeout(PATIENCE, accepted.changed()).await;
            assert!(moved.is_ok(), "nothing moves: {so_far} of {wanted} are accepted");
            so_far = *accepted.borrow_and_update();
        }
    }
}

#[async_trait]
impl Transport for Witness {
    fn kind(&self) -> &'static str {
        self.transport.kind()
    }

    fn capacity(&self) -> Capacity {
        self.transport.capacity()
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        let numbers: Vec<u64> =
            batch.iter().map(|outgoing| serde_json::from_slice(&outgoing.body).unwrap()).collect();
        {
            let mut seen = self.seen.lock().unwrap();
            for (number, outgoing) in numbers.iter().zip(batch) {
                seen.ids.entry(*number).or_default().insert(outgoing.id.to_string());
            }
        }
        let answers = self.transport.publish(batch).await;
        let mut seen = self.seen.lock().unwrap();
        for (number, answer) in numbers.into_iter().zip(&answers) {
            match answer {
                Ok(_) => drop(seen.accepted.insert(number)),
                Err(_) => seen.failures += 1,
            }
        }
        self.accepted.send_replace(seen.accepted.len());
        answers
    }

    async fn check(&self, destinations: &[&str]) -> Result<Vec<Finding>, PublishError> {
        self.transport.check(destinations).await
    }

    async fn close(&self) {
        self.transport.close().await;
    }
}
