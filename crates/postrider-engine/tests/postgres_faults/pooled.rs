//! PgBouncer in transaction mode between the application and its database.

use crate::{
    log::Log,
    orders::{Journal, batch},
    postgres_shop::PostgresShop,
    shop::{Ending, Shop, assert_good, history, until},
};
use postrider_core::{ClaimRequest, Error, Message, Store, schema::Schema, timetable::Timetable, wake::Wake};
use postrider_stores::postgres::{PostgresOptions, PostgresStore, guard};
use postrider_testkit::pooler::Pooler;
use rand::{SeedableRng, rngs::StdRng};
use sqlx::{
    PgPool, Row,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{str::FromStr, time::Duration};

const PATIENCE: Duration = Duration::from_secs(60);
const MINUTE: Duration = Duration::from_secs(60);
/// Fewer than there are clients, so that sessions change hands all the time.
const SESSIONS: u32 = 4;

async fn app(pooler: &Pooler) -> PgPool {
    let connect = PgConnectOptions::from_str(pooler.url()).unwrap();
    guard(PgPoolOptions::new().max_connections(8)).connect_with(connect).await.unwrap()
}

fn options(pooler: &Pooler) -> PostgresOptions {
    PostgresOptions::new(pooler.url()).unwrap().behind_pooler()
}

/// Delivers a few thousand messages through the pooler, and checks what happened past it.
async fn deliver(direct: &PostgresShop, pooled: &PostgresShop) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let worker = pooled.worker(Journal::open(&path), Duration::from_secs(5)).build().unwrap();
    let running = worker.start();
    let mut random = StdRng::seed_from_u64(37);
    for round in 0..60 {
        let (messages, doomed) = batch(&mut random, 50);
        let ending = if round % 10 == 0 { Ending::Rollback } else { Ending::Commit };
        pooled.produce(&messages, &doomed, ending).await.unwrap();
    }
    until("messages are left", PATIENCE, async || direct.left().await == 0).await;
    assert!(running.shutdown(MINUTE).await.is_clean);
    let history = history(direct, &path).await;
    assert_good(&history, "behind a pooler");
    assert_eq!(history.witness.len(), 54 * 50);
}

/// Everything arrives, by polling; the log says once what is wrong and what to do.
#[tokio::test]
async fn everything_arrives_behind_a_pooler() {
    let log = Log::listen();
    let (direct, database) = PostgresShop::fresh().await;
    let pooler = Pooler::before(database.url(), SESSIONS).await;
    let pooled = PostgresShop::with(options(&pooler), app(&pooler).await).await;
    deliver(&direct, &pooled).await;
    let warnings: Vec<_> = log.warnings().into_iter().filter(|line| line.name != "postrider.dead").collect();
    assert!(warnings.len() <= 1, "{warnings:#?}");
    assert!(warnings.iter().all(|line| line.text.contains("with_listen_url")), "{warnings:#?}");
}

/// With a direct way for LISTEN nothing is wrong at all, and signals are heard.
#[tokio::test]
async fn signals_are_heard_past_a_pooler() {
    let log = Log::listen();
    let (direct, database) = PostgresShop::fresh().await;
    let pooler = Pooler::before(database.url(), SESSIONS).await;
    let options = options(&pooler).with_listen_url(database.url()).unwrap();
    let pooled = PostgresShop::with(options, app(&pooler).await).await;
    deliver(&direct, &pooled).await;
    assert_eq!(log.count("postrider.listen_failed"), 0);
    pooled.store.listen(&["parcels".parse().unwrap()]).await.unwrap();
}

/// Where a pooler is known to be, nobody listens through it: its sessions would signal whoever has them next.
#[tokio::test]
async fn nobody_listens_through_a_pooler() {
    let (_direct, database) = PostgresShop::fresh().await;
    let pooler = Pooler::before(database.url(), SESSIONS).await;
    let store = PostgresStore::open(options(&pooler)).await.unwrap();
    let error = store.listen(&["parcels".parse().unwrap()]).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("with_listen_url"), "{error}");
}

/// Where it is not known, an ear that cannot hear does not open, and says why.
#[tokio::test]
async fn an_ear_that_hears_nothing_says_that_it_is_deaf() {
    let (_direct, database) = PostgresShop::fresh().await;
    let pooler = Pooler::before(database.url(), SESSIONS).await;
    let options = PostgresOptions::new(database.url()).unwrap().with_listen_url(pooler.url()).unwrap();
    let error = PostgresStore::open(options).await.unwrap().listen(&["parcels".parse().unwrap()]).await;
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("a pooler in transaction mode"), "{error}");
}

/// Sessions that go back to the pooler are as they were: other applications get them next.
#[tokio::test]
async fn no_setting_of_ours_stays_in_the_sessions_of_a_pooler() {
    let (direct, database) = PostgresShop::fresh().await;
    // One session: whatever stays in it is seen.
    let pooler = Pooler::before(database.url(), 1).await;
    let app = PgPoolOptions::new().max_connections(1).connect(pooler.url()).await.unwrap();
    let pooled = PostgresShop::with(options(&pooler), app).await;
    pooled.store.ping().await.unwrap();
    assert_eq!(pooled.store.validate().await.unwrap(), []);
    deliver(&direct, &pooled).await;
    assert_eq!(settings(&pooled.app).await, ["\"$user\", public", "on", "0"]);
    let statements: i64 = sqlx::query_scalar("select count(*) from pg_prepared_statements where name <> ''")
        .persistent(false)
        .fetch_one(&pooled.app)
        .await
        .unwrap();
    assert_eq!(statements, 0);
}

/// A tick of a schedule is a transaction of several statements: it stays in one session, and leaves it as it was.
#[tokio::test]
async fn a_tick_is_staged_once_behind_a_pooler() {
    let (direct, database) = PostgresShop::fresh().await;
    let pooler = Pooler::before(database.url(), 1).await;
    let app = PgPoolOptions::new().max_connections(1).connect(pooler.url()).await.unwrap();
    let store = PostgresStore::open(options(&pooler)).await.unwrap();
    let nightly = "nightly".parse().unwrap();
    let at = store.read(&nightly).await.unwrap().now + MINUTE;
    let letter = Message::builder("letters").payload("good night").build().unwrap();
    assert!(store.tick(&nightly, at, std::slice::from_ref(&letter)).await.unwrap());
    assert!(!store.tick(&nightly, at, &[letter]).await.unwrap());
    let letters = ClaimRequest::new("letters".parse().unwrap(), 10);
    assert_eq!(direct.store.claim(&letters).await.unwrap().len(), 1);
    assert_eq!(settings(&app).await, ["\"$user\", public", "on", "0"]);
}

/// The control: why the option is needed.
#[tokio::test]
async fn without_the_option_settings_stay_in_the_sessions_of_a_pooler() {
    let (_direct, database) = PostgresShop::fresh().await;
    let pooler = Pooler::before(database.url(), 1).await;
    let app = PgPoolOptions::new().max_connections(1).connect(pooler.url()).await.unwrap();
    PostgresStore::connect(pooler.url()).await.unwrap();
    assert_eq!(settings(&app).await, ["pg_catalog", "off", "1min"]);
}

async fn settings(app: &PgPool) -> Vec<String> {
    let shown = sqlx::raw_sql("show search_path; show enable_seqscan; show statement_timeout");
    let rows = shown.fetch_all(app).await.unwrap();
    rows.iter().map(|row| row.try_get_unchecked(0).unwrap()).collect()
}
