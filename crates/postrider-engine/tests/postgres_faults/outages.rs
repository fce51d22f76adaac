//! Database outages. The runtime has one thread, so that the log contains this run only.

use crate::{
    log::Log,
    postgres_shop::PostgresShop,
    running_shop::{RunningShop, TIMEOUT},
    shop::{Shop, until},
};
use postrider_testkit::server::{PrivatePostgres, Stop};
use sqlx::{Connection, Executor, PgConnection};
use std::time::Duration;

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
    let staged = running_shop.finish(&shop).await.check("after an outage");
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
    let staged = running_shop.finish(&shop).await.check("after an outage");
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
    assert!(running_shop.finish(&shop).await.check("after an outage") > 0);
    assert_eq!((log.count("postrider.listen_failed"), log.count("postrider.listen_recovered")), (1, 1));
    assert_brief(&log, 1);
}
