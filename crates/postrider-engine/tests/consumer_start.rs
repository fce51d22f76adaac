//! A consumer receives only when its source has reported how long messages can be redelivered, and deduplication records are kept
//! that long.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use postrider_core::Incoming;
use postrider_engine::{Consumer, ConsumerBuilder, Context, Failure, Running, Tx, consumer::StartError};
use postrider_stores::memory::{MemoryStore, MemoryTransaction};
use postrider_testkit::consumer::FaultySource;
use postrider_transports::memory::MemoryQueue;
use std::{sync::Arc, time::Duration};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const PATIENCE: Duration = Duration::from_secs(60);

/// A source of one message.
fn source() -> Arc<FaultySource> {
    let orders = MemoryQueue::new("orders");
    let mut order = Incoming::new("orders", "17");
    order.id = Some("A-1".into());
    orders.put(order);
    Arc::new(FaultySource::new(Arc::new(orders.source())))
}

fn billing(source: Arc<FaultySource>) -> ConsumerBuilder<MemoryStore> {
    Consumer::builder_on("billing", source, MemoryStore::new())
        .restart_backoff_max(Duration::from_millis(1))
        .idle_after(Duration::from_millis(20))
        .on_any(|_: Tx<MemoryTransaction>, _: Context| async { Ok::<(), Failure>(()) })
}

async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    tokio::time::timeout(PATIENCE, async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

/// Waits until the consumer is not ready for a reason that satisfies the condition.
async fn until_not_ready(running: &mut Running, is_expected: impl Fn(&StartError) -> bool) {
    eventually(async || {
        let health = running.ping(PATIENCE).await;
        assert!(health.is_alive() && !health.is_ready(), "{health:?}");
        health.start_error.as_deref().is_some_and(&is_expected)
    })
    .await;
}

/// A broker that is unavailable at the start delays the consumer, and stops nothing else.
#[tokio::test]
async fn unavailable_source_delays_the_start_until_it_answers() {
    let source = source();
    source.set_silent(true);
    let consumer = billing(Arc::clone(&source)).build().unwrap();
    assert!(matches!(consumer.run_until_idle().await, Err(StartError::Source(_))));
    assert!(matches!(consumer.run_batch().await, Err(StartError::Source(_))));
    let mut running = consumer.start();
    until_not_ready(&mut running, |error| matches!(error, StartError::Source(_))).await;
    assert_eq!(running.report().claimed, 0);
    source.set_silent(false);
    eventually(async || running.report().delivered == 1).await;
    assert!(running.ping(PATIENCE).await.is_ready());
    assert!(running.stop(PATIENCE).await.clean);
}

/// A duplicate that arrives after its deduplication record has expired would take effect twice, so nothing is received.
#[tokio::test]
async fn retention_shorter_than_the_redelivery_window_receives_nothing() {
    let consumer = billing(source())
        .redelivery_window(14 * DAY)
        .keep_deduplication_records_for(2 * DAY)
        .build()
        .unwrap();
    let is_too_short = |error: &StartError| matches!(error, StartError::RetentionTooShort { .. });
    assert!(is_too_short(&consumer.run_until_idle().await.unwrap_err()));
    assert!(is_too_short(&consumer.run_batch().await.unwrap_err()));
    let error =
        tokio::time::timeout(PATIENCE, consumer.run_until_signal(PATIENCE)).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("Set `keep_deduplication_records_for` to at least 15 d"), "{error}");
    let mut running = consumer.start();
    until_not_ready(&mut running, is_too_short).await;
    let stopped = running.stop(PATIENCE).await;
    assert_eq!((stopped.clean, stopped.report.claimed), (true, 0));
}
