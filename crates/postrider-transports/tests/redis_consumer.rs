//! The consumer suite on Redis Streams.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/consuming.rs"]
mod consuming;
#[path = "support/redis_source.rs"]
mod redis_source;
#[path = "support/redis.rs"]
mod server;
mod support;

async fn streams() -> consuming::OnMemoryStore<redis_source::RedisSourceFixture> {
    consuming::OnMemoryStore::new(redis_source::shared_server().await).await
}

postrider_testkit::consumer_suite!(streams, unordered);
