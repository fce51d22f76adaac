//! A database that goes away and comes back. The runtime has one thread, so that the log of the run is all its own.

use crate::{
    log::Log,
    orders::{Journal, batch},
    postgres_shop::PostgresShop,
    shop::{Shop, assert_good, ending, history, until},
};
use postrider_engine::Running;
use postrider_testkit::server::{PrivatePostgres, Stop};
use rand::{SeedableRng, rngs::StdRng};
use sqlx::{Connection, Executor, PgConnection};
use std::{path::PathBuf, time::Duration};
use tempfile::TempDir;
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(60);
const MINUTE: Duration = Duration::from_secs(60);

/// A worker and a producer in this process.
struct Business {
    shop: PostgresShop,
    running: Running,
    producer: JoinHandle<()>,
    folder: TempDir,
}

impl Business {
    fn open(shop: &PostgresShop, seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(&folder.path().join("journal"));
        // Longer than the outages: what is in hand stays there.
        let worker = shop.worker(journal, Duration::from_secs(10)).build().unwrap();
        let producer = tokio::spawn(produce(shop.clone(), seed));
        Self { shop: shop.clone(), running: worker.start(), producer, folder }
    }

    fn journal(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    /// Everything that was staged is delivered, and nothing else.
    async fn finish(self) -> usize {
        let journal = self.journal();
        self.producer.abort();
        self.producer.await.ok();
        until("messages are left", PATIENCE, async || self.shop.left().await == 0).await;
        assert!(self.running.shutdown(MINUTE).await.is_clean);
        let history = history(&self.shop, &journal).await;
        assert_good(&history, "after an outage");
        history.witness.len()
    }
}

/// Goes on whatever happens: the witness knows what was committed.
async fn produce(shop: PostgresShop, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    loop {
        let (messages, doomed) = batch(&mut random, 10);
        shop.produce(&messages, &doomed, ending(&mut random)).await.ok();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The log tells it in a few lines. Dead letters are told one by one, and are meant to be.
fn assert_brief(log: &Log, most: usize) {
    let lines: Vec<_> = log.warnings().into_iter().filter(|line| line.name != "postrider.dead").collect();
    assert!(lines.len() <= most, "{} lines: {lines:#?}", lines.len());
}

#[tokio::test]
async fn sessions_that_are_ended_again_and_again_lose_nothing() {
    let log = Log::listen();
    let (shop, database) = PostgresShop::fresh().await;
    let business = Business::open(&shop, 23);
    let mut terminator = PgConnection::connect(database.url()).await.unwrap();
    for _ in 0..100 {
        let end = "select pg_terminate_backend(pid) from pg_stat_activity \
                   where datname = current_database() and pid <> pg_backend_pid()";
        terminator.execute(end).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let staged = business.finish().await;
    assert!(staged > 0, "nothing was staged in all this time");
    assert!(log.count("postrider.store_failed") > 0, "nobody noticed");
    assert_brief(&log, 30);
}

#[tokio::test]
async fn a_server_that_restarts_and_crashes_loses_nothing() {
    let log = Log::listen();
    let mut server = PrivatePostgres::start().await;
    let shop = PostgresShop::open(&server.url()).await;
    shop.build().await;
    let business = Business::open(&shop, 29);
    for how in [Stop::Fast, Stop::Crash, Stop::Fast, Stop::Crash] {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server = tokio::task::spawn_blocking(move || {
            server.stop(how);
            server
        })
        .await
        .unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.resume().await;
    }
    let staged = business.finish().await;
    assert!(staged > 0, "nothing was staged in all this time");
    assert!(log.count("postrider.store_failed") > 0, "nobody noticed");
    assert_brief(&log, 20);
}

/// Said once, and once when it is over; meanwhile everything is found by looking.
#[tokio::test]
async fn a_lost_listener_leaves_the_polling_and_comes_back() {
    let log = Log::listen();
    let (shop, _database) = PostgresShop::fresh().await;
    let business = Business::open(&shop, 31);
    // Again and again, since one that has only just connected connects anew.
    let is_noticed = async || {
        let end = "select pg_terminate_backend(pid) from pg_stat_activity \
                   where datname = current_database() and application_name = 'postrider listener'";
        shop.app.execute(end).await.unwrap();
        log.count("postrider.listen_failed") == 1
    };
    until("nobody noticed", PATIENCE, is_noticed).await;
    until("nobody listens again", PATIENCE, async || log.count("postrider.listens") == 1).await;
    assert!(business.finish().await > 0);
    assert_eq!((log.count("postrider.listen_failed"), log.count("postrider.listens")), (1, 1));
    assert_brief(&log, 1);
}
