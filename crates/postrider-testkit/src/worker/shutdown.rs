//! Graceful shutdown (promise 9).

use super::helpers::*;
use crate::Fixture;
use postrider_core::{State, inspect::StateFilter};
use postrider_engine::{Context, Failure, Queue};
use std::{sync::atomic::Ordering::SeqCst, time::Duration};

/// The queue of orders, whose handlers wait at a barrier and are then recorded.
fn waiting_on(barrier: &Barrier, seen: &Seen) -> Queue {
    let (barrier, seen) = (barrier.clone(), seen.clone());
    Queue::new("orders").on(move |order: Order, _: Context| {
        let (barrier, seen) = (barrier.clone(), seen.clone());
        async move {
            barrier.pass().await;
            seen.note(order.number);
            Ok::<(), Failure>(())
        }
    })
}

/// Asserts that no message is leased, and that none of the rest counted a delivery.
async fn assert_released<F: Fixture>(fixture: &F, left: usize) {
    let entries = list(fixture, "orders", StateFilter::Ready).await;
    assert_eq!(entries.len(), left);
    for entry in entries {
        assert_eq!((entry.state, entry.deliveries, entry.attempts), (State::Pending, 0, 0));
    }
}

/// Running handlers finish and are settled; claimed messages that have not started are released, uncounted.
pub async fn a_stop_finishes_running_handlers_and_releases_the_rest<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(20)).await;
    let (barrier, seen) = (Barrier::closed(), Seen::default());
    let running = worker(&fixture, waiting_on(&barrier, &seen).concurrency(3).prefetch(20)).start();
    barrier.wait_for_arrivals(3).await;
    eventually(async || running.report().claimed == 20).await;
    let stopping = tokio::spawn(running.stop(minutes(1)));
    // They are released before the last handler ends.
    eventually(async || {
        list(&fixture, "orders", StateFilter::Ready)
            .await
            .iter()
            .filter(|e| e.state == State::Pending)
            .count()
            == 17
    })
    .await;
    barrier.open(20);
    let stopped = stopping.await.unwrap();
    assert!(stopped.clean);
    assert_accounted_for(&stopped.report);
    assert_eq!((stopped.report.delivered, stopped.report.unstarted, seen.len()), (3, 17, 3));
    assert_released(&fixture, 17).await;
}

/// Handlers that do not finish in time are cancelled and their messages released.
pub async fn a_stop_at_its_deadline_cancels_and_releases<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(3)).await;
    let (barrier, seen) = (Barrier::closed(), Seen::default());
    let running = worker(&fixture, waiting_on(&barrier, &seen).concurrency(2).prefetch(3)).start();
    barrier.wait_for_arrivals(2).await;
    // Two seconds of the deadline are reserved for releasing: a store may be slow.
    let stopped = running.stop(Duration::from_secs(10)).await;
    assert!(!stopped.clean);
    assert_accounted_for(&stopped.report);
    assert_eq!((stopped.report.delivered, stopped.report.released), (0, 2));
    assert_eq!(seen.len(), 0);
    assert_released(&fixture, 3).await;
}

/// After a stop nothing is claimed, whatever is staged.
pub async fn a_stopped_worker_claims_nothing_more<F: Fixture>(fixture: F) {
    let (builder, probe) = instrumented_worker(&fixture);
    let running = builder.queue(noting(&Seen::default())).build().unwrap().start();
    at_least(&probe.claims, 1).await;
    assert!(running.stop(minutes(1)).await.clean);
    let claims = probe.claims.load(SeqCst);
    stage(&fixture, &orders(5)).await;
    assert_eq!(drain(&fixture.store(), "orders").await.len(), 5);
    assert_eq!(probe.claims.load(SeqCst), claims);
}

/// Stop, then start: the same worker continues.
pub async fn a_stopped_worker_can_be_started_again<F: Fixture>(fixture: F) {
    let seen = Seen::default();
    let worker = worker(&fixture, noting(&seen));
    for round in 1..=3 {
        stage(&fixture, &orders(10)).await;
        let running = worker.start();
        eventually(async || seen.len() == 10 * round).await;
        assert!(running.stop(minutes(1)).await.clean);
    }
    assert_empty(&fixture, "orders").await;
}

/// A worker that is dropped leaves leases that expire, and nothing is lost.
pub async fn a_dropped_worker_loses_nothing<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(10)).await;
    let (barrier, seen) = (Barrier::closed(), Seen::default());
    let running = worker(&fixture, waiting_on(&barrier, &seen).concurrency(2)).start();
    barrier.wait_for_arrivals(2).await;
    running.abort().await;
    assert_eq!(seen.len(), 0);
    expire_leases(&fixture).await;
    let report = handle_all(&fixture, noting(&seen)).await;
    assert_eq!((report.delivered, seen.len()), (10, 10));
}

/// An unavailable store makes a worker unready, but it stays alive.
pub async fn health_distinguishes_a_lost_store_from_a_dead_worker<F: Fixture>(fixture: F) {
    let (builder, probe) = instrumented_worker(&fixture);
    let mut running = builder.queue(noting(&Seen::default())).build().unwrap().start();
    let health = running.ping(minutes(1)).await;
    assert!(health.is_alive() && health.is_ready(), "{health:?}");
    probe.is_unavailable.store(true, SeqCst);
    let health = running.ping(minutes(1)).await;
    assert!(health.is_alive() && !health.is_ready(), "{health:?}");
    probe.is_unavailable.store(false, SeqCst);
    assert!(running.ping(minutes(1)).await.is_ready());
    assert!(running.stop(minutes(1)).await.clean);
}
