//! Workers remove delivered messages past their retention (decision "retention").

use super::helpers::*;
use crate::Fixture;
use postrider_core::{QueuePolicy, inspect::StateFilter};
use postrider_engine::{Worker, WorkerBuilder};
use std::{sync::atomic::Ordering::SeqCst, time::Duration};

/// A store may prune whole days at once, so expired messages may stay until the day is over.
const DAY: Duration = minutes(24 * 60);
/// Often enough for a test that waits for it.
const SOON: Duration = Duration::from_millis(20);

async fn archived<F: Fixture>(fixture: &F) -> usize {
    list(fixture, "orders", StateFilter::Done).await.len()
}

fn keeping(builder: WorkerBuilder, seen: &Seen) -> Worker {
    let policy = QueuePolicy::default().with_keep_for(minutes(60));
    builder.queue(noting(seen).policy(policy)).build().unwrap()
}

/// Nobody else prunes: day after day, the archive has the messages of the last days only.
pub async fn a_running_worker_keeps_its_archive_bounded<F: Fixture>(fixture: F) {
    let seen = Seen::default();
    let worker = keeping(Worker::builder_on(fixture.store()).prune_interval(SOON), &seen);
    worker.declare().await.unwrap();
    let running = worker.start();
    for day in 1..=5 {
        stage(&fixture, &orders(10)).await;
        eventually(async || running.report().delivered == day * 10).await;
        fixture.advance(DAY * 2).await;
        eventually(async || archived(&fixture).await == 0).await;
    }
    assert!(running.stop(minutes(1)).await.clean);
}

/// Pruning fails: messages are delivered all the same, the worker stays alive, and prunes when that succeeds again.
pub async fn a_failing_prune_delays_no_delivery<F: Fixture>(fixture: F) {
    let (builder, probe) = instrumented_worker(&fixture);
    probe.failing_prunes.store(usize::MAX, SeqCst);
    let seen = Seen::default();
    let worker = keeping(builder.prune_interval(SOON), &seen);
    worker.declare().await.unwrap();
    let mut running = worker.start();
    at_least(&probe.prunes, 2).await;
    stage(&fixture, &orders(10)).await;
    eventually(async || running.report().delivered == 10).await;
    fixture.advance(DAY * 2).await;
    let tried = probe.prunes.load(SeqCst);
    at_least(&probe.prunes, tried + 2).await;
    assert_eq!(archived(&fixture).await, 10);
    let health = running.ping(minutes(1)).await;
    assert!(health.is_ready(), "{health:?}");

    probe.failing_prunes.store(0, SeqCst);
    eventually(async || archived(&fixture).await == 0).await;
    assert!(running.stop(minutes(1)).await.clean);
}

/// A worker may leave pruning to others.
pub async fn a_worker_without_pruning_prunes_nothing<F: Fixture>(fixture: F) {
    let (builder, idle) = instrumented_worker(&fixture);
    let without = keeping(builder.prune_interval(None), &Seen::default()).start();
    let (builder, probe) = instrumented_worker(&fixture);
    let with = keeping(builder.prune_interval(SOON), &Seen::default()).start();
    at_least(&probe.prunes, 3).await;
    assert_eq!(idle.prunes.load(SeqCst), 0);
    for running in [without, with] {
        assert!(running.stop(minutes(1)).await.clean);
    }
}
