//! Invalid worker settings are rejected, and dubious ones give warnings.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use postrider_core::{Event, Json, OnFailure, QueuePolicy, RetryStrategy};
use postrider_engine::{Context, Failure, Queue, Worker};
use postrider_stores::memory::MemoryStore;
use std::time::Duration;

fn queue() -> Queue {
    Queue::new("orders").on_any(async |_: Context| Ok::<(), Failure>(()))
}

fn refused(queue: Queue) -> String {
    Worker::builder(MemoryStore::new()).queue(queue).build().unwrap_err().to_string()
}

fn warnings(queue: Queue) -> Vec<String> {
    Worker::builder(MemoryStore::new()).queue(queue).build().unwrap().warnings().to_vec()
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Placed;

impl Event for Placed {
    const TYPE: &'static str = "order.placed";
    const QUEUE: &'static str = "orders";
    type Codec = Json;
}

async fn place(_: Placed, _: Context) -> Result<(), Failure> {
    Ok(())
}

#[test]
fn invalid_settings_are_rejected() {
    let minute = Duration::from_secs(60);
    let refusals = [
        Worker::builder(MemoryStore::new()).build().unwrap_err().to_string(),
        Worker::builder(MemoryStore::new()).queue(queue()).concurrency(0).build().unwrap_err().to_string(),
        Worker::builder(MemoryStore::new()).queue(queue()).queue(queue()).build().unwrap_err().to_string(),
        refused(Queue::new("two words").on_any(async |_: Context| Ok::<(), Failure>(()))),
        refused(Queue::new("orders")),
        refused(Queue::new("orders").on(place).on(place)),
        refused(queue().concurrency(0)),
        refused(queue().weight(0)),
        refused(queue().prefetch(3)),
        refused(queue().tenant_weight("acme", 0)),
        refused(queue().tenant_weight("", 2)),
        refused(queue().policy(QueuePolicy::by_key(OnFailure::Block).fair_by_tenant())),
        refused(queue().rate_limit(0, minute)),
        refused(queue().rate_limit(10, Duration::ZERO)),
        refused(queue().poll_interval(minute, Duration::from_secs(1))),
        refused(queue().poll_interval(Duration::ZERO, minute)),
        refused(queue().lease_for(Duration::from_millis(1))),
        refused(queue().timeout(Duration::ZERO)),
        refused(queue().max_deliveries(0)),
        refused(queue().retry(RetryStrategy::exponential(Duration::ZERO, 2.0))),
    ];
    insta::assert_snapshot!(refusals.join("\n"));
}

#[test]
fn dubious_settings_give_warnings() {
    assert_eq!(warnings(queue()), [] as [&str; 0]);
    let second = Duration::from_secs(1);
    let dubious = [
        warnings(queue().timeout(3600 * second)),
        warnings(queue().lease_for(second / 10)),
        warnings(queue().prefetch(1_000).concurrency(10).timeout(30 * second)),
        warnings(queue().retry(RetryStrategy::none())),
        warnings(queue().max_deliveries(3)),
        warnings(queue().policy(QueuePolicy::default().without_dead_letters())),
        warnings(queue().policy(QueuePolicy::default()).tenant_weight("acme", 3)),
    ];
    insta::assert_snapshot!(dubious.concat().join("\n"));
}
