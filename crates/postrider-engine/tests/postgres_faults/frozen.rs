//! A worker that is frozen past its leases, and resumes with messages in flight that others have delivered since.

use crate::{
    BODY,
    orders::batch,
    postgres_shop::PostgresShop,
    process::Process,
    shop::{Ending, Shop, WorkerArgs, assert_valid, history, until},
};
use nix::sys::signal::Signal;
use rand::{SeedableRng, rngs::StdRng};
use std::{path::Path, time::Duration};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A frozen worker changes nothing that it no longer owns, and reports lost leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_frozen_past_its_leases_changes_nothing_and_reports_lost_leases() {
    let (shop, database) = PostgresShop::fresh().await;
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let args = WorkerArgs {
        address: database.url().to_owned(),
        journal: journal.clone(),
        lease_for: Duration::from_secs(1),
        deadline: TIMEOUT,
        seed: None,
    };
    let mut random = StdRng::seed_from_u64(7);
    // Repeated until the worker was frozen with messages in flight.
    for _ in 0..20 {
        let mut idle = Process::start(BODY, &args.text());
        freeze_at_work(&shop, &idle, &mut random).await;
        let mut awake = Process::start(BODY, &args.text());
        until("messages are left", TIMEOUT, async || shop.left().await == 0).await;
        idle.signal(Signal::SIGCONT);
        for worker in [&mut idle, &mut awake] {
            worker.signal(Signal::SIGTERM);
            let ended = worker.ends_within(TIMEOUT).await;
            assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
        }
        assert_valid(&history(&shop, Path::new(&journal)).await, "after a freeze");
        if lost(&shop).await > 0 {
            return;
        }
    }
    panic!("no lease was lost: the worker was never frozen with messages in flight");
}

/// Gives the worker messages, and freezes it while some are in flight.
async fn freeze_at_work(shop: &PostgresShop, idle: &Process, random: &mut StdRng) {
    let in_flight = async || shop.leased().await > 0;
    loop {
        let (messages, doomed) = batch(random, 2_000);
        shop.produce(&messages, &doomed, Ending::Commit).await.unwrap();
        until("the worker claims nothing", TIMEOUT, in_flight).await;
        idle.signal(Signal::SIGSTOP);
        if in_flight().await {
            return;
        }
        idle.signal(Signal::SIGCONT);
    }
}

async fn lost(shop: &PostgresShop) -> i64 {
    let lost = sqlx::query_scalar("select coalesce(sum(lost), 0)::bigint from report");
    lost.fetch_one(&shop.app).await.unwrap()
}
