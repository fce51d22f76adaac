//! The broker examples on Redis: with a stream, and with a key of another type.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider_testkit::broker::Redis;
use support::{run, run_as_printed};

#[tokio::test]
async fn relay_publishes_committed_messages_and_consumer_processes_them_once() {
    let server = Redis::start_with(&["--appendfsync", "always"]).await;
    assert_eq!(
        run_as_printed("redis", "relay_broker", server.url(), "orders").await,
        "2 published, 0 to be retried, 0 dead\n"
    );
    for (guide, expected) in
        [("redis", "2 processed, 0 duplicates\n"), ("consuming", "0 processed, 0 duplicates\n")]
    {
        assert_eq!(run_as_printed(guide, "consume_broker", server.url(), "orders").await, expected);
    }

    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let () = redis::cmd("SET").arg("list").arg("a").query_async(&mut connection).await.unwrap();
    assert_eq!(
        run("relay_broker", &["redis", server.url(), "list"]).await,
        "problem wrong_type: RENAMENX list list.before\n0 published, 0 to be retried, 2 dead\n"
    );
}
