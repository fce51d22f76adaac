//! An application with a database, as runs with faults see it.

use crate::orders::{Journal, batch};
use postrider_core::{Message, store::Source};
use postrider_engine::WorkerBuilder;
use postrider_testkit::History;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde::{Deserialize, Serialize};
use std::{
    future::Future,
    path::{Path, PathBuf},
    time::Duration,
};

/// A database in which messages are staged together with a witness, and workers write one row per booking.
pub(crate) trait Shop: Clone + Send + Sync + 'static {
    fn open(address: &str) -> impl Future<Output = Self> + Send;

    /// Makes the application's own tables.
    fn build(&self) -> impl Future<Output = ()> + Send;

    /// A worker on both queues.
    fn worker(&self, journal: Journal, lease_for: Duration) -> WorkerBuilder;

    /// Stages messages and writes their witness, in one transaction.
    fn produce(
        &self,
        messages: &[Message],
        doomed: &[bool],
        ending: Ending,
    ) -> impl Future<Output = Result<(), Source>> + Send;

    /// How many messages are neither delivered nor dead.
    fn left(&self) -> impl Future<Output = i64> + Send;

    /// What happened, but for the journal.
    fn history(&self) -> impl Future<Output = History> + Send;

    /// Keeps what a worker says at its end: how many leases it has lost.
    fn report(&self, lost: u64) -> impl Future<Output = ()> + Send;
}

/// How a producer's transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Commit,
    Rollback,
}

/// What another process is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) address: String,
    pub(crate) journal: PathBuf,
    pub(crate) lease_for: Duration,
    /// How long it may take to stop.
    pub(crate) deadline: Duration,
    /// Whether it also produces, and with which randomness.
    pub(crate) seed: Option<u64>,
}

impl Told {
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap()
    }
}

/// The body of another process: a worker that goes on until it is told to stop, or killed.
pub(crate) async fn work<S: Shop>(told: &str) {
    let told: Told = serde_json::from_str(told).unwrap();
    let shop = S::open(&told.address).await;
    if let Some(seed) = told.seed {
        tokio::spawn(produce_for_ever(shop.clone(), seed));
    }
    let worker = shop.worker(Journal::open(&told.journal), told.lease_for).build().unwrap();
    let stopped = worker.run_until_signal(told.deadline).await.unwrap();
    if stopped.is_clean {
        shop.report(stopped.tally.lost).await;
    }
    std::process::exit(if stopped.is_clean { 0 } else { 1 });
}

/// A producer that dies with its process, at whatever point of its transaction.
async fn produce_for_ever<S: Shop>(shop: S, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    loop {
        let (messages, doomed) = batch(&mut random, 5);
        // The witness knows what came of it.
        shop.produce(&messages, &doomed, ending(&mut random)).await.ok();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// One transaction of ten is rolled back.
pub(crate) fn ending(random: &mut StdRng) -> Ending {
    if random.random_range(0..10) == 0 { Ending::Rollback } else { Ending::Commit }
}

/// Waits for a state of the database.
pub(crate) async fn until<F: Future<Output = bool>>(
    what: &str,
    longest: Duration,
    mut is_so: impl FnMut() -> F,
) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(longest, waiting).await.unwrap_or_else(|_| panic!("{what} after {longest:?}"));
}

/// The whole history.
pub(crate) async fn history<S: Shop>(shop: &S, journal: &Path) -> History {
    History { runs: Journal::read(journal), ..shop.history().await }
}

/// Fails with what was found.
pub(crate) fn assert_good(history: &History, context: &str) {
    if let Err(violations) = history.check() {
        let violations: Vec<String> = violations.iter().map(ToString::to_string).collect();
        panic!("{context}: {}", violations.join("; "));
    }
}
