//! Workers that are stopped gracefully, under load.

use crate::{
    BODY,
    orders::batch,
    postgres_shop::PostgresShop,
    process::Process,
    shop::{Ending, Shop, WorkerArgs, assert_valid, history, until},
};
use nix::sys::signal::Signal;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::task::JoinHandle;

const TIMEOUT: Duration = Duration::from_secs(60);
const DEADLINE: Duration = Duration::from_secs(10);
const ROUNDS: usize = 100;

/// Exit code 0 within the drain timeout, and no lease left behind: every time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundred_graceful_stops_under_load_leave_no_lease() {
    let (shop, database) = PostgresShop::fresh().await;
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let mut random = StdRng::seed_from_u64(11);
    let load = keep_loaded(&shop, 17);
    for round in 0..ROUNDS {
        let mut worker = start(database.url(), &journal);
        until("the worker claims nothing", TIMEOUT, async || shop.leased().await > 0).await;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..100))).await;
        worker.signal(Signal::SIGTERM);
        let ended = worker.ends_within(DEADLINE).await;
        assert!(ended.is_some_and(|status| status.success()), "round {round}: {ended:?}");
        assert_eq!(leases(&shop).await, 0, "round {round}: leases are left");
    }
    load.abort();
    finish(&shop, database.url(), &journal).await;
}

/// The second signal ends the process at once, whatever it is doing; its leases expire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_signal_ends_a_worker_at_once_and_loses_nothing() {
    let (shop, database) = PostgresShop::fresh().await;
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let load = keep_loaded(&shop, 19);
    for _ in 0..5 {
        let mut worker = start(database.url(), &journal);
        until("the worker claims nothing", TIMEOUT, async || shop.leased().await > 0).await;
        // It cannot finish while the effects of its handlers cannot be written.
        let mut lock = shop.app.begin().await.unwrap();
        sqlx::query("lock table effect in exclusive mode").execute(&mut *lock).await.unwrap();
        until("no handler waits", TIMEOUT, async || is_waited_for(&shop).await).await;
        worker.signal(Signal::SIGTERM);
        assert_eq!(
            worker.ends_within(Duration::from_millis(300)).await,
            None,
            "the worker had nothing to finish"
        );
        worker.signal(Signal::SIGTERM);
        let ended = worker.ends_within(DEADLINE / 2).await.map(|status| status.code());
        assert_eq!(ended, Some(Some(1)), "the worker did not end at once, or not with exit code 1");
        lock.rollback().await.unwrap();
        // So that the leases of the next worker are its own.
        until("leases do not expire", TIMEOUT, async || shop.leased().await == 0).await;
    }
    load.abort();
    finish(&shop, database.url(), &journal).await;
}

/// Whether a handler waits to write its effect.
async fn is_waited_for(shop: &PostgresShop) -> bool {
    let waiting =
        "select exists (select from pg_locks l where l.relation = 'effect'::regclass and not l.granted)";
    sqlx::query_scalar(waiting).fetch_one(&shop.app).await.unwrap()
}

/// Leases, expired or not.
async fn leases(shop: &PostgresShop) -> i64 {
    let leases = sqlx::query_scalar("select count(*) from postrider.ready where token is not null");
    leases.fetch_one(&shop.app).await.unwrap()
}

fn start(address: &str, journal: &Path) -> Process {
    let args = WorkerArgs {
        address: address.to_owned(),
        journal: PathBuf::from(journal),
        lease_for: Duration::from_secs(2),
        deadline: DEADLINE,
        seed: None,
    };
    Process::start(BODY, &args.text())
}

/// Keeps some thousands of messages pending.
fn keep_loaded(shop: &PostgresShop, seed: u64) -> JoinHandle<()> {
    let shop = shop.clone();
    tokio::spawn(async move {
        let mut random = StdRng::seed_from_u64(seed);
        loop {
            if shop.left().await < 2_000 {
                let (messages, doomed) = batch(&mut random, 500);
                shop.produce(&messages, &doomed, Ending::Commit).await.unwrap();
            } else {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    })
}

/// Delivers the remaining messages, and checks the history.
async fn finish(shop: &PostgresShop, address: &str, journal: &Path) {
    let worker = start(address, journal);
    until("messages are left", TIMEOUT, async || shop.left().await == 0).await;
    worker.kill();
    assert_valid(&history(shop, journal).await, "after stops");
}
