//! Workers that are killed at any moment.

use crate::{BODY, kill_test::KillTest, postgres_shop::PostgresShop};
use std::time::Duration;

/// No message is lost or invented, transactional effects happen once, and plain handlers are seen to run again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_kills_lose_no_message_and_duplicate_no_effect() {
    let (shop, database) = PostgresShop::fresh().await;
    let folder = tempfile::tempdir().unwrap();
    let kill_test = KillTest {
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
    kill_test.run(&shop).await;
}
