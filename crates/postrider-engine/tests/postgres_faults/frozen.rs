//! A worker that is frozen past its leases, and wakes up with work in its hands that others have done since.

use crate::{
    BODY,
    orders::batch,
    postgres_shop::PostgresShop,
    process::Process,
    shop::{Ending, Shop, Told, assert_good, history, until},
};
use nix::sys::signal::Signal;
use rand::{SeedableRng, rngs::StdRng};
use std::{path::Path, time::Duration};

const PATIENCE: Duration = Duration::from_secs(60);

/// It changes nothing that it no longer owns, and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_frozen_past_its_leases_changes_nothing_and_says_so() {
    let (shop, database) = PostgresShop::fresh().await;
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let told = Told {
        address: database.url().to_owned(),
        journal: journal.clone(),
        lease_for: Duration::from_secs(1),
        deadline: PATIENCE,
        seed: None,
    };
    let mut random = StdRng::seed_from_u64(7);
    // Each round finds the worker with some of its messages in hand, or another one is made.
    for _ in 0..20 {
        let mut sleeper = Process::start(BODY, &told.text());
        freeze_at_work(&shop, &sleeper, &mut random).await;
        let mut awake = Process::start(BODY, &told.text());
        until("messages are left", PATIENCE, async || shop.left().await == 0).await;
        sleeper.signal(Signal::SIGCONT);
        for worker in [&mut sleeper, &mut awake] {
            worker.signal(Signal::SIGTERM);
            let ended = worker.ends_within(PATIENCE).await;
            assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
        }
        assert_good(&history(&shop, Path::new(&journal)).await, "after a freeze");
        if lost(&shop).await > 0 {
            return;
        }
    }
    panic!("no lease was lost: it was never frozen with work in hand");
}

/// Gives it work, and freezes it with some of that in its hands.
async fn freeze_at_work(shop: &PostgresShop, sleeper: &Process, random: &mut StdRng) {
    let in_hand = async || shop.leased().await > 0;
    loop {
        let (messages, doomed) = batch(random, 2_000);
        shop.produce(&messages, &doomed, Ending::Commit).await.unwrap();
        until("the worker claims nothing", PATIENCE, in_hand).await;
        sleeper.signal(Signal::SIGSTOP);
        if in_hand().await {
            return;
        }
        sleeper.signal(Signal::SIGCONT);
    }
}

async fn lost(shop: &PostgresShop) -> i64 {
    let lost = sqlx::query_scalar("select coalesce(sum(lost), 0)::bigint from report");
    lost.fetch_one(&shop.app).await.unwrap()
}
