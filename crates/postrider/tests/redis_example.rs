//! The example does what it says, on a good server and where something else has the stream's name.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../../examples/consume_redis.rs"]
mod consume_redis;
#[path = "../../../examples/relay_redis.rs"]
mod relay_redis;

use postrider_testkit::broker::Redis;

async fn told(server: &Redis, stream: &str) -> String {
    let mut out = Vec::new();
    relay_redis::run(server.url(), stream, &mut out).await.unwrap();
    String::from_utf8(out).unwrap()
}

#[tokio::test]
async fn the_relay_publishes_what_was_committed() {
    let server = Redis::start_with(&["--appendfsync", "always"]).await;
    assert_eq!(told(&server, "orders").await, "2 published, 0 dead\n");
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let count: u64 = redis::cmd("XLEN").arg("orders").query_async(&mut connection).await.unwrap();
    assert_eq!(count, 2);

    let () = redis::cmd("SET").arg("list").arg("a").query_async(&mut connection).await.unwrap();
    assert_eq!(
        told(&server, "list").await,
        "problem wrong_type: RENAMENX list list.before\n0 published, 2 dead\n"
    );
}

#[tokio::test]
async fn the_consumer_receives_what_the_relay_has_published() {
    let server = Redis::start_with(&["--appendfsync", "always"]).await;
    assert_eq!(told(&server, "orders").await, "2 published, 0 dead\n");
    for expected in
        ["2 processed, 0 duplicates, 0 parked, 0 failed\n", "0 processed, 0 duplicates, 0 parked, 0 failed\n"]
    {
        let mut out = Vec::new();
        consume_redis::run(server.url(), "orders", &mut out).await.unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
