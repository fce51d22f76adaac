//! Workers that are killed at any moment.

use crate::{
    BODY,
    postgres_shop::PostgresShop,
    storm::{Storm, pass_over},
};
use std::time::Duration;

/// Nothing is lost, nothing is invented, effects in transactions happen once; and plain handlers are seen to run again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_kills_lose_nothing_and_double_no_effect() {
    let (shop, database) = PostgresShop::fresh().await;
    let folder = tempfile::tempdir().unwrap();
    let storm = Storm {
        body: BODY,
        address: database.url().to_owned(),
        journal: folder.path().join("journal"),
        workers: 3,
        kills: 200,
        messages: 100_000,
        producers: 3,
        batch: 100,
        lease_for: Duration::from_secs(2),
    };
    pass_over(&shop, &storm).await;
}
