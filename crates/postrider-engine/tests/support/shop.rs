//! An application with a database, as fault tests use it.

use crate::orders::{Journal, batch};
use postrider_core::{BoxError, Message};
use postrider_engine::WorkerBuilder;
use postrider_testkit::History;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde::{Deserialize, Serialize};
use std::{
    future::Future,
    path::{Path, PathBuf},
    time::Duration,
};

/// A database in which messages are staged together with a witness row, and workers write one row per booking.
pub(crate) trait Shop: Clone + Send + Sync + 'static {
    fn open(address: &str) -> impl Future<Output = Self> + Send;

    /// Creates the application's own tables.
    fn build(&self) -> impl Future<Output = ()> + Send;

    /// A worker on both queues.
    fn worker(&self, journal: Journal, lease_for: Duration) -> WorkerBuilder;

    /// Stages messages and writes their witness rows, in one transaction.
    fn produce(
        &self,
        messages: &[Message],
        doomed: &[bool],
        ending: Ending,
    ) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// How many messages are neither delivered nor dead.
    fn left(&self) -> impl Future<Output = i64> + Send;

    /// The history without the journal.
    fn history(&self) -> impl Future<Output = History> + Send;

    /// Records how many leases a worker has lost, at its end.
    fn report(&self, lost: u64) -> impl Future<Output = ()> + Send;
}

/// How a producer's transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Commit,
    Rollback,
}

/// The arguments of a worker process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WorkerArgs {
    pub(crate) address: String,
    pub(crate) journal: PathBuf,
    pub(crate) lease_for: Duration,
    /// The drain timeout.
    pub(crate) deadline: Duration,
    /// The random seed if it also produces.
    pub(crate) seed: Option<u64>,
}

impl WorkerArgs {
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap()
    }
}

/// The body of a worker process: it runs until it is stopped or killed.
pub(crate) async fn work<S: Shop>(args: &str) {
    let args: WorkerArgs = serde_json::from_str(args).unwrap();
    let shop = S::open(&args.address).await;
    if let Some(seed) = args.seed {
        tokio::spawn(produce_until_killed(shop.clone(), seed));
    }
    let worker = shop.worker(Journal::open(&args.journal), args.lease_for).build().unwrap();
    let stopped = worker.run_until_signal(args.deadline).await.unwrap();
    if stopped.clean {
        shop.report(stopped.report.lost).await;
    }
    std::process::exit(if stopped.clean { 0 } else { 1 });
}

/// A producer that dies with its process, at any point of its transaction.
async fn produce_until_killed<S: Shop>(shop: S, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    loop {
        let (messages, doomed) = batch(&mut random, 5);
        // The witness table shows the result.
        shop.produce(&messages, &doomed, ending(&mut random)).await.ok();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// One transaction in ten is rolled back.
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

/// Fails with all violations.
pub(crate) fn assert_valid(history: &History, context: &str) {
    if let Err(violations) = history.check() {
        let violations: Vec<String> = violations.iter().map(ToString::to_string).collect();
        panic!("{context}: {}", violations.join("; "));
    }
}
