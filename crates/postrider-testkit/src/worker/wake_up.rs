//! Notifications are hints; polling finds every message (promise 8).

use super::helpers::*;
use crate::Fixture;
use postrider_core::RetryStrategy;
use postrider_engine::Failure;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

/// A worker that finds nothing registers as idle, and is notified of the next commit.
pub async fn an_idle_worker_is_woken_by_a_commit<F: Fixture>(fixture: F) {
    let (builder, probe) = instrumented_worker(&fixture);
    let seen = Seen::default();
    let running = builder.queue(noting(&seen)).build().unwrap().start();
    for round in 1..=3 {
        let before = probe.announcements.load(SeqCst);
        at_least(&probe.announcements, before + 1).await;
        let signals = probe.signals.load(SeqCst);
        stage_one(&fixture, &Order { number: round }).await;
        eventually(async || seen.len() as u64 == round).await;
        at_least(&probe.signals, signals + 1).await;
    }
    assert!(running.stop(minutes(1)).await.clean);
}

/// Without notifications a worker finds every message by polling, and does not register.
pub async fn a_worker_without_notifications_polls<F: Fixture>(fixture: F) {
    let (builder, probe) = instrumented_worker(&fixture);
    let seen = Seen::default();
    let running = builder.without_notifications().queue(noting(&seen)).build().unwrap().start();
    at_least(&probe.claims, 10).await;
    stage(&fixture, &orders(1)).await;
    eventually(async || seen.len() == 1).await;
    assert!(running.stop(minutes(1)).await.clean);
    assert_eq!((probe.announcements.load(SeqCst), probe.listens.load(SeqCst)), (0, 0));
}

/// A worker without a listener keeps polling; it retries to listen, and uses the listener once it works.
pub async fn a_failed_listener_falls_back_to_polling_and_reconnects<F: Fixture>(fixture: F) {
    let (builder, probe) = instrumented_worker(&fixture);
    probe.failing_listens.store(1, SeqCst);
    let seen = Seen::default();
    let running = builder.queue(noting(&seen)).build().unwrap().start();
    stage(&fixture, &orders(1)).await;
    eventually(async || seen.len() == 1).await;
    assert_eq!(probe.listens.load(SeqCst), 0, "it was found by looking");
    at_least(&probe.listens, 1).await;
    at_least(&probe.announcements, 1).await;
    assert!(running.stop(minutes(1)).await.clean);
}

/// A worker that polls once an hour still polls when its own retry is due.
pub async fn a_due_retry_ends_the_idle_wait<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(1)).await;
    let tries = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&tries);
    let queue = deciding(move |_| match counting.fetch_add(1, SeqCst) {
        0..3 => Err(Failure::retry("not yet")),
        _ => Ok(()),
    });
    let queue = queue
        .retry(RetryStrategy::constant(Duration::from_millis(30)))
        .poll_interval(minutes(60), minutes(60));
    let (builder, _) = instrumented_worker(&fixture);
    let running = builder.without_notifications().queue(queue).build().unwrap().start();
    eventually(async || running.report().delivered == 1).await;
    assert_eq!(tries.load(SeqCst), 4);
    assert!(running.stop(minutes(1)).await.clean);
}

/// A worker that polls once an hour still claims more as soon as it has capacity.
pub async fn freed_capacity_is_used_at_once<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(200)).await;
    let (builder, _) = instrumented_worker(&fixture);
    let seen = Seen::default();
    let queue = noting(&seen).concurrency(2).prefetch(2).poll_interval(minutes(60), minutes(60));
    let running = builder.without_notifications().queue(queue).build().unwrap().start();
    eventually(async || running.report().delivered == 200).await;
    assert!(running.stop(minutes(1)).await.clean);
}

/// An unavailable store is polled again until it responds.
pub async fn an_unavailable_store_is_polled_again<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(5)).await;
    let (builder, probe) = instrumented_worker(&fixture);
    probe.failing_claims.store(3, SeqCst);
    let running = builder.queue(noting(&Seen::default())).build().unwrap().start();
    eventually(async || running.report().delivered == 5).await;
    assert!(running.stop(minutes(1)).await.clean);
}
