//! A clean stop (promise 9).

use super::helpers::*;
use crate::Fixture;
use postrider_core::{State, inspect::Room};
use postrider_engine::{Context, Failure, Queue};
use std::{sync::atomic::Ordering::SeqCst, time::Duration};

/// The queue of orders, whose handlers wait at a door and are noted then.
fn waiting_at(door: &Door, seen: &Seen) -> Queue {
    let (door, seen) = (door.clone(), seen.clone());
    Queue::new("orders").on(move |order: Order, _: Context| {
        let (door, seen) = (door.clone(), seen.clone());
        async move {
            door.pass().await;
            seen.note(order.number);
            Ok::<(), Failure>(())
        }
    })
}

/// No message is in anybody's hands, and none of those left was counted.
async fn assert_released<F: Fixture>(fixture: &F, left: usize) {
    let entries = list(fixture, "orders", Room::Ready).await;
    assert_eq!(entries.len(), left);
    for entry in entries {
        assert_eq!((entry.state, entry.deliveries, entry.attempts), (State::Pending, 0, 0));
    }
}

/// What runs is finished and settled; what was claimed and not begun is released, uncounted.
pub async fn a_stop_finishes_what_runs_and_releases_the_rest<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(20)).await;
    let (door, seen) = (Door::closed(), Seen::default());
    let running = worker(&fixture, waiting_at(&door, &seen).concurrency(3).prefetch(20)).start();
    door.waited_at_by(3).await;
    eventually(async || running.tally().fetched == 20).await;
    let stopping = tokio::spawn(running.shutdown(minutes(1)));
    // They are released before the last handler ends.
    eventually(async || {
        list(&fixture, "orders", Room::Ready).await.iter().filter(|e| e.state == State::Pending).count() == 17
    })
    .await;
    door.open(20);
    let stopped = stopping.await.unwrap();
    assert!(stopped.is_clean);
    assert_accounted_for(&stopped.tally);
    assert_eq!((stopped.tally.delivered, stopped.tally.handed_back, seen.len()), (3, 17, 3));
    assert_released(&fixture, 17).await;
}

/// What does not end in time is cancelled and released.
pub async fn a_stop_at_its_deadline_cancels_and_releases<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(3)).await;
    let (door, seen) = (Door::closed(), Seen::default());
    let running = worker(&fixture, waiting_at(&door, &seen).concurrency(2).prefetch(3)).start();
    door.waited_at_by(2).await;
    // Two seconds of these are kept for releasing: a store may be slow.
    let stopped = running.shutdown(Duration::from_secs(10)).await;
    assert!(!stopped.is_clean);
    assert_accounted_for(&stopped.tally);
    assert_eq!((stopped.tally.delivered, stopped.tally.released), (0, 2));
    assert_eq!(seen.len(), 0);
    assert_released(&fixture, 3).await;
}

/// After a stop nothing is claimed, however much is staged.
pub async fn a_stopped_worker_claims_nothing_more<F: Fixture>(fixture: F) {
    let (builder, watch) = watched(&fixture);
    let running = builder.queue(noting(&Seen::default())).build().unwrap().start();
    at_least(&watch.claims, 1).await;
    assert!(running.shutdown(minutes(1)).await.is_clean);
    let claims = watch.claims.load(SeqCst);
    stage(&fixture, &orders(5)).await;
    assert_eq!(drain(&fixture.store(), "orders").await.len(), 5);
    assert_eq!(watch.claims.load(SeqCst), claims);
}

/// Stop, then start: the same worker goes on.
pub async fn a_stopped_worker_can_be_started_again<F: Fixture>(fixture: F) {
    let seen = Seen::default();
    let worker = worker(&fixture, noting(&seen));
    for round in 1..=3 {
        stage(&fixture, &orders(10)).await;
        let running = worker.start();
        eventually(async || seen.len() == 10 * round).await;
        assert!(running.shutdown(minutes(1)).await.is_clean);
    }
    assert_empty(&fixture, "orders").await;
}

/// Ended without a word, a worker leaves leases that lapse, and nothing is lost.
pub async fn a_worker_that_is_dropped_loses_nothing<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(10)).await;
    let (door, seen) = (Door::closed(), Seen::default());
    let running = worker(&fixture, waiting_at(&door, &seen).concurrency(2)).start();
    door.waited_at_by(2).await;
    running.abort().await;
    assert_eq!(seen.len(), 0);
    lapse(&fixture).await;
    let tally = handle_all(&fixture, noting(&seen)).await;
    assert_eq!((tally.delivered, seen.len()), (10, 10));
}

/// A store that is away makes a worker unready; it is alive all the same.
pub async fn health_tells_a_lost_store_from_a_dead_worker<F: Fixture>(fixture: F) {
    let (builder, watch) = watched(&fixture);
    let mut running = builder.queue(noting(&Seen::default())).build().unwrap().start();
    let health = running.ping(minutes(1)).await;
    assert!(health.is_alive() && health.is_ready(), "{health:?}");
    watch.is_away.store(true, SeqCst);
    let health = running.ping(minutes(1)).await;
    assert!(health.is_alive() && !health.is_ready(), "{health:?}");
    watch.is_away.store(false, SeqCst);
    assert!(running.ping(minutes(1)).await.is_ready());
    assert!(running.shutdown(minutes(1)).await.is_clean);
}
