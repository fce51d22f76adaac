//! The promotion of a standby while a producer and a worker run.

use crate::{
    log::Log,
    postgres_shop::PostgresShop,
    running_shop::{FinishedRun, RunningShop},
    shop::Shop,
};
use postrider_stores::postgres::{PostgresOptions, guard};
use postrider_testkit::{
    failover::{FailoverPair, Replication},
    pooler::Pooler,
};
use sqlx::postgres::PgPoolOptions;
use std::collections::HashSet;
use uuid::Uuid;

/// Enough that messages of every outcome are among them.
const SOME: usize = 300;

async fn shop(pair: &FailoverPair) -> PostgresShop {
    PostgresShop::open(&pair.url()).await.build().await;
    PostgresShop::open(&pair.url()).await
}

/// With a standby that has every confirmed commit, a failover is like a restart.
async fn assert_nothing_is_lost(pair: &mut FailoverPair, through: &PostgresShop, observer: &PostgresShop) {
    let running_shop = RunningShop::open(through, 41);
    running_shop.until_committed(SOME).await;
    pair.fail_over().await;
    running_shop.until_committed(SOME).await;
    let staged = running_shop.finish(observer).await.check("after a failover");
    assert!(staged >= 2 * SOME, "only {staged} messages were staged");
}

#[tokio::test]
async fn failover_to_a_synchronous_standby_loses_nothing() {
    let log = Log::listen();
    let mut pair = FailoverPair::start(Replication::Synchronous).await;
    let shop = shop(&pair).await;
    assert_nothing_is_lost(&mut pair, &shop, &shop).await;
    assert!(log.count("postrider.store_failed") > 0, "no outage was logged");
}

#[tokio::test]
async fn failover_behind_a_pooler_loses_nothing() {
    let mut pair = FailoverPair::start(Replication::Synchronous).await;
    let observer = shop(&pair).await;
    let pooler = Pooler::before(&pair.url(), 8).await;
    let app = guard(PgPoolOptions::new().max_connections(8)).connect(pooler.url()).await.unwrap();
    let options = PostgresOptions::new(pooler.url()).unwrap().behind_pooler();
    let pooled = PostgresShop::with(options, app).await;
    assert_nothing_is_lost(&mut pair, &pooled, &observer).await;
}

/// A standby that lags behind has lost the last commits, and Postrider delivers exactly what it has.
#[tokio::test]
async fn failover_to_a_lagging_standby_delivers_exactly_its_messages() {
    let mut pair = FailoverPair::start(Replication::Asynchronous).await;
    let shop = shop(&pair).await;
    let running_shop = RunningShop::open(&shop, 43);
    running_shop.until_committed(SOME).await;
    pair.hold_replication();
    let before: HashSet<Uuid> = running_shop.produced().committed.clone();
    running_shop.until_committed(SOME).await;
    let last: HashSet<Uuid> = running_shop.produced().committed.difference(&before).copied().collect();
    pair.fail_over().await;
    running_shop.until_committed(SOME).await;
    let FinishedRun { mut history, produced } = running_shop.finish(&shop).await;
    let lost: Vec<_> = last.iter().filter(|id| !history.witness.contains_key(id)).collect();
    assert!(!lost.is_empty(), "the standby had everything, so this run has shown nothing");
    // The old primary had the lost commits, and its worker has delivered some: these runs are no inventions.
    let (known, forgotten): (Vec<_>, Vec<_>) =
        history.runs.iter().partition(|id| history.witness.contains_key(id));
    assert!(forgotten.iter().all(|id| produced.attempted.contains(id)), "a message was invented");
    history.runs = known;
    FinishedRun { history, produced: Default::default() }.check("after a failover to a lagging standby");
}
