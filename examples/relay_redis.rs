//! A relay to Redis Streams: looks at the server first, then publishes what was committed.
//!
//! `REDIS_URL` says where the server is; `redis://127.0.0.1:6379` unless it is set.

use postrider::{
    Destination, Message, OutboxExt, Relay, Route, Transport, memory::MemoryStore,
    transports::redis::RedisTransport,
};
use std::{error::Error, io::Write, sync::Arc};

/// Publishes to `stream`, and writes what happens to `out`.
pub(crate) async fn run(
    url: &str,
    stream: &str,
    out: &mut (impl Write + Send),
) -> Result<(), Box<dyn Error>> {
    let redis = Arc::new(RedisTransport::connect(url)?);

    // What would lose messages is told before anything is sent.
    for finding in redis.check(&[stream]).await? {
        writeln!(out, "{} {}: {}", finding.severity, finding.code, finding.fix)?;
    }

    let store = MemoryStore::new();
    for (order, is_paid) in [(1, true), (2, false), (3, true)] {
        let mut tx = store.begin();
        store.stage(&mut tx, Message::builder("orders").event_type("placed").json(&order)).await?;
        match is_paid {
            true => tx.commit(),
            false => drop(tx), // rolled back: nobody hears of it
        }
    }

    let relay = Relay::builder(store, "/shop")
        .destination(Destination::shared("redis", redis.clone()))
        .route(Route::new("orders").to("redis", stream))
        .build()?;
    let report = relay.run_once().await?;
    writeln!(out, "{} published, {} dead", report.delivered, report.dead)?;
    redis.close().await;
    Ok(())
}

#[allow(dead_code, reason = "the tests call `run`")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    run(&url, "orders", &mut std::io::stdout()).await
}
