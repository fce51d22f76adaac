//! Database outages. The runtime has one thread, so that the log contains this run only.

use crate::{
    log::Log,
    orders::{Journal, batch},
    postgres_shop::PostgresShop,
    shop::{Shop, assert_valid, ending, history, until},
};
use postrider_engine::Running;
use postrider_testkit::server::{PrivatePostgres, Stop};
use rand::{SeedableRng, rngs::StdRng};
use sqlx::{Connection, Executor, PgConnection};
use std::{path::PathBuf, time::Duration};
use tempfile::TempDir;
use tokio::task::JoinHandle;

const TIMEOUT: Duration = Duration::from_secs(60);
const MINUTE: Duration = Duration::from_secs(60);

/// A worker and a producer in this process.
struct RunningShop {
    shop: PostgresShop,
    running: Running,
    producer: JoinHandle<()>,
    folder: TempDir,
}

impl RunningShop {
    fn open(shop: &PostgresShop, seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(&folder.path().join("journal"));
        // Longer than the outages: messages in flight stay leased.
        let worker = shop.worker(journal, Duration::from_secs(10)).build().unwrap();
        let producer = tokio::spawn(produce(shop.clone(), seed));
        Self { shop: shop.clone(), running: worker.start(), producer, folder }
    }

    fn journal(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    /// Asserts that everything that was staged is delivered, and nothing else.
    async fn finish(self) -> usize {
        let journal = self.journal();
        self.producer.abort();
        self.producer.await.ok();
        until("messages are left", TIMEOUT, async || self.shop.left().await == 0).await;
        assert!(self.running.stop(MINUTE).await.clean);
        let history = history(&self.shop, &journal).await;
        assert_valid(&history, "after an outage");
        history.witness.len()
    }
}

/// Continues whatever happens: the witness table shows what was committed.
async fn produce(shop: PostgresShop, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    loop {
        let (messages, doomed) = batch(&mut random, 10);
        shop.produce(&messages, &doomed, ending(&mut random)).await.ok();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Asserts that the log is brief. Dead letters are logged one by one, as they should be.
fn assert_brief(log: &Log, max: usize) {
    let lines: Vec<_> = log.warnings().into_iter().filter(|line| line.name != "postrider.dead").collect();
    assert!(lines.len() <= max, "{} lines: {lines:#?}", lines.len());
}

#[tokio::test]
async fn repeatedly_terminated_sessions_lose_nothing() {
    let log = Log::listen();
    let (shop, database) = PostgresShop::fresh().await;
    let running_shop = RunningShop::open(&shop, 23);
    let mut terminator = PgConnection::connect(database.url()).await.unwrap();
    for _ in 0..100 {
        let end = "select pg_terminate_backend(pid) from pg_stat_activity \
                   where datname = current_database() and pid <> pg_backend_pid()";
        terminator.execute(end).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let staged = running_shop.finish().await;
    assert!(staged > 0, "nothing was staged in all this time");
    assert!(log.count("postrider.store_failed") > 0, "no outage was logged");
    assert_brief(&log, 30);
}

#[tokio::test]
async fn server_restarts_and_crashes_lose_nothing() {
    let log = Log::listen();
    let mut server = PrivatePostgres::start().await;
    let shop = PostgresShop::open(&server.url()).await;
    shop.build().await;
    let running_shop = RunningShop::open(&shop, 29);
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
    let staged = running_shop.finish().await;
    assert!(staged > 0, "nothing was staged in all this time");
    assert!(log.count("postrider.store_failed") > 0, "no outage was logged");
    assert_brief(&log, 20);
}

/// The outage is logged once, and once when it is resolved; meanwhile polling finds everything.
#[tokio::test]
async fn lost_listener_falls_back_to_polling_and_reconnects() {
    let log = Log::listen();
    let (shop, _database) = PostgresShop::fresh().await;
    let running_shop = RunningShop::open(&shop, 31);
    // Repeatedly, since a listener that has just connected reconnects silently.
    let is_logged = async || {
        let end = "select pg_terminate_backend(pid) from pg_stat_activity \
                   where datname = current_database() and application_name = 'postrider listener'";
        shop.app.execute(end).await.unwrap();
        log.count("postrider.listen_failed") == 1
    };
    until("no lost listener was logged", TIMEOUT, is_logged).await;
    until("the listener did not reconnect", TIMEOUT, async || log.count("postrider.listen_recovered") == 1)
        .await;
    assert!(running_shop.finish().await > 0);
    assert_eq!((log.count("postrider.listen_failed"), log.count("postrider.listen_recovered")), (1, 1));
    assert_brief(&log, 1);
}
