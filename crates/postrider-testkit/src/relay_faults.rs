//! The fault matrix: a real relay carries messages to a broker that is killed, over connections that are cut.
//!
//! A producer stages messages in transactions, some of which it rolls back. A relay sends what was committed through a
//! [`FaultProxy`], which cuts, stalls and swallows at random, to a broker that is killed and started again once in every cycle. What is
//! checked at the end:
//!
//! - everything committed arrived, and nothing that was rolled back;
//! - whatever the transport had called accepted arrived, and nothing was settled that it had not;
//! - a message had the same id however often it was sent;
//! - the store is empty: nothing waits, nothing is leased, nothing is dead.
//!
//! What arrived more than once is counted and printed: nobody promised that it would not. The seed is printed, too; `POSTRIDER_SEED`
//! repeats its choices, though not the moments at which they fall. `POSTRIDER_FAULT_CYCLES` makes it longer: there are 2,000 messages and
//! one kill in a cycle, and five cycles unless said otherwise.

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
/// A transaction of the producer.
const STAGED_TOGETHER: usize = 25;
/// The producer is never further ahead, so that it is there until the end.
const AHEAD: usize = 1_000;
/// One of so many transactions is rolled back.
const ROLLED_BACK: u32 = 10;
/// Without progress for so long, it has come to a stop.
const PATIENCE: Duration = Duration::from_secs(120);

/// A broker of the test's own, and transports to it.
#[async_trait]
pub trait FaultFixture: Send + Sync + 'static {
    /// `host:port` of the broker, the same after every restart.
    fn server(&self) -> String;

    /// The proxy before the broker. A broker that tells its clients where to come has been told of it.
    async fn proxy(&self) -> FaultProxy {
        FaultProxy::before(&self.server()).await
    }

    /// Where messages go: a destination that is there, keeps everything, and survives a kill.
    fn destination(&self) -> String;

    /// A transport that reaches the broker at this `host:port` instead: the proxy.
    async fn transport(&self, proxy: &str) -> Arc<dyn Transport>;

    /// Kills the broker without a word.
    async fn kill(&self);

    /// Starts it again with its data, and returns when it answers.
    async fn restart(&self);

    /// Everything that is at the destination, each as often as it arrived. Called once, at the end.
    async fn arrived(&self) -> Vec<Received>;
}

/// What a run did, for whoever wants to tell.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// Committed, and arrived.
    pub committed: usize,
    /// Rolled back, and never seen.
    pub rolled_back: usize,
    /// Arrived again.
    pub duplicates: usize,
    /// Answers that were no success.
    pub failures: usize,
    /// How often the broker was killed.
    pub kills: usize,
    /// What the proxy did.
    pub mischief: usize,
}

/// How many cycles a run has.
pub fn cycles() -> usize {
    let asked = env::var("POSTRIDER_FAULT_CYCLES").ok().filter(|cycles| !cycles.is_empty());
    asked.map_or(CYCLES, |cycles| cycles.parse().expect("POSTRIDER_FAULT_CYCLES is a number"))
}

/// Carries messages from `outbox` to the fixture's broker through so many cycles, and checks what came of it.
///
/// # Panics
/// When a promise is broken, or nothing moves any more.
pub async fn pass_over<S: Fixture, F: FaultFixture>(outbox: S, fixture: F, cycles: usize) -> Outcome {
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
        // Down for a while: long enough to be felt, and short enough to be caught coming back.
        sleep(Duration::from_millis(random.random_range(0..300))).await;
        fixture.restart().await;
    }
    let produced = producer.await.unwrap();
    drop(stop);
    let (proxy, mischief) = mischief.await.unwrap();
    witness.until(produced.committed.len()).await;
    let left = timeout(PATIENCE, until_empty(&*outbox)).await;
    left.unwrap_or_else(|_| panic!("messages are left in the store (seed {seed})"));
    running.shutdown(Duration::from_secs(30)).await;
    let arrived = fixture.arrived().await;
    drop(proxy);

    let seen = witness.seen();
    let duplicates = judge(&produced, &seen, &arrived, seed);
    let outcome = Outcome {
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
        .pauses(Duration::from_millis(50), Duration::from_millis(500));
    // Nothing is given up here: what is refused is sent again until it arrives.
    let retry = RetryStrategy::constant(Duration::from_millis(100)).without_max_attempts();
    let route = Route::new(QUEUE).to("broker", address).retry(retry).without_max_deliveries();
    let builder = Relay::builder_on(outbox.store(), Some(outbox.wake()), "/shop");
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
            let ids = staged.fates().iter().map(|(id, _)| id.to_string());
            produced.committed.extend(numbers.zip(ids));
        }
        witness.until(produced.committed.len().saturating_sub(AHEAD)).await;
    }
    produced
}

/// Spoils connections, one way after the other, and lets them be in between.
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
            // Longer than the relay waits for answers.
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
        let counts = outbox.inspect().counts().await.unwrap();
        let left = |counts: &postrider_core::inspect::Counts| {
            [counts.pending, counts.leased, counts.waiting]
                .into_iter()
                .map(|tally| tally.at_least)
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

/// Answers with the number of those that arrived again.
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

/// Stands between relay and transport and writes down what each says.
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

    /// Returns when so many messages have been accepted.
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
