//! PgBouncer in transaction mode between the application and its database.

use crate::{
    log::Log,
    orders::{Journal, batch},
    postgres_shop::PostgresShop,
    shop::{Ending, Shop, assert_valid, history, until},
};
use postrider_core::{ClaimRequest, Error, Message, Store, notifier::Notifier, schema::Schema};
use postrider_stores::postgres::{PostgresOptions, PostgresStore, guard};
use postrider_testkit::pooler::Pooler;
use rand::{SeedableRng, rngs::StdRng};
use sqlx::{
    PgPool, Row,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{str::FromStr, time::Duration};

const TIMEOUT: Duration = Duration::from_secs(60);
const MINUTE: Duration = Duration::from_secs(60);
/// Fewer than there are clients, so that sessions change clients all the time.
const SESSIONS: u32 = 4;

async fn app(pooler: &Pooler) -> PgPool {
    let connect = PgConnectOptions::from_str(pooler.url()).unwrap();
    guard(PgPoolOptions::new().max_connections(8)).connect_with(connect).await.unwrap()
}

fn options(pooler: &Pooler) -> PostgresOptions {
    PostgresOptions::new(pooler.url()).unwrap().behind_pooler()
}

/// Delivers a few thousand messages through the pooler, and checks the result on a direct connection.
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
    until("messages are left", TIMEOUT, async || direct.left().await == 0).await;
    assert!(running.stop(MINUTE).await.clean);
    let history = history(direct, &path).await;
    assert_valid(&history, "behind a pooler");
    assert_eq!(history.witness.len(), 54 * 50);
}

/// Everything is delivered by polling; the log says once what is wrong and what to do.
#[tokio::test]
async fn messages_are_delivered_by_polling_behind_a_pooler() {
    let log = Log::listen();
    let (direct, database) = PostgresShop::fresh().await;
    let pooler = Pooler::before(database.url(), SESSIONS).await;
    let pooled = PostgresShop::with(options(&pooler), app(&pooler).await).await;
    deliver(&direct, &pooled).await;
    let warnings: Vec<_> = log.warnings().into_iter().filter(|line| line.name != "postrider.dead").collect();
    assert!(warnings.len() <= 1, "{warnings:#?}");
    assert!(warnings.iter().all(|line| line.text.contains("with_listen_url")), "{warnings:#?}");
}

/// With a direct connection for LISTEN there is no warning, and notifications arrive.
#[tokio::test]
async fn notifications_arrive_with_a_direct_listen_url() {
    let log = Log::listen();
    let (direct, database) = PostgresShop::fresh().await;
    let pooler = Pooler::before(database.url(), SESSIONS).await;
    let options = options(&pooler).with_listen_url(database.url()).unwrap();
    let pooled = PostgresShop::with(options, app(&pooler).await).await;
    deliver(&direct, &pooled).await;
    assert_eq!(log.count("postrider.listen_failed"), 0);
    pooled.store.listen(&["parcels".parse().unwrap()]).await.unwrap();
}

/// Behind a known pooler LISTEN is refused: its sessions would notify whichever client gets them next.
#[tokio::test]
async fn listen_through_a_known_pooler_is_refused() {
    let (_direct, database) = PostgresShop::fresh().await;
    let pooler = Pooler::before(database.url(), SESSIONS).await;
    let store = PostgresStore::open(options(&pooler)).await.unwrap();
    let error = store.listen(&["parcels".parse().unwrap()]).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("with_listen_url"), "{error}");
}

/// Through an unknown pooler, a listener that gets no notifications does not open, and its error says why.
#[tokio::test]
async fn listen_through_an_unknown_pooler_is_detected() {
    let (_direct, database) = PostgresShop::fresh().await;
    let pooler = Pooler::before(database.url(), SESSIONS).await;
    let options = PostgresOptions::new(database.url()).unwrap().with_listen_url(pooler.url()).unwrap();
    let error = PostgresStore::open(options).await.unwrap().listen(&["parcels".parse().unwrap()]).await;
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("a pooler in transaction mode"), "{error}");
}

/// Sessions return to the pooler unchanged: other applications get them next.
#[tokio::test]
async fn behind_pooler_leaves_no_setting_in_its_sessions() {
    let (direct, database) = PostgresShop::fresh().await;
    // One session: a setting that stays in it is seen.
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

/// A tick of a schedule is a transaction of several statements: it stays in one session, and leaves that unchanged.
#[tokio::test]
async fn tick_is_staged_once_behind_a_pooler() {
    let (direct, database) = PostgresShop::fresh().await;
    let pooler = Pooler::before(database.url(), 1).await;
    let app = PgPoolOptions::new().max_connections(1).connect(pooler.url()).await.unwrap();
    let store = PostgresStore::open(options(&pooler)).await.unwrap();
    let nightly = "nightly".parse().unwrap();
    let at = store.read_schedule(&nightly).await.unwrap().now + MINUTE;
    let letter = Message::builder("letters").payload("good night").build().unwrap();
    assert!(store.tick(&nightly, at, std::slice::from_ref(&letter)).await.unwrap());
    assert!(!store.tick(&nightly, at, &[letter]).await.unwrap());
    let letters = ClaimRequest::new("letters".parse().unwrap(), 10);
    assert_eq!(direct.store.claim(&letters).await.unwrap().len(), 1);
    assert_eq!(settings(&app).await, ["\"$user\", public", "on", "0"]);
}

/// The control: why the option `behind_pooler` is needed.
#[tokio::test]
async fn without_behind_pooler_settings_stay_in_its_sessions() {
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
