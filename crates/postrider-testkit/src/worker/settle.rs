//! Settlements are batched, and count when the store has confirmed them (promises 2 and 6).

use super::helpers::*;
use crate::Fixture;
use postrider_core::{OnFailure, QueuePolicy};
use postrider_engine::{Context, Failure, Queue};
use std::{sync::atomic::Ordering::SeqCst, time::Duration};

/// Many settlements take one round trip.
pub async fn settlements_are_batched<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(2_000)).await;
    let (builder, probe) = instrumented_worker(&fixture);
    let worker = builder.queue(noting(&Seen::default()).prefetch(1_000)).build().unwrap();
    assert_eq!(worker.run_until_idle().await.unwrap().delivered, 2_000);
    let settles = probe.settles.load(SeqCst);
    assert!(settles <= 200, "2,000 messages took {settles} settlements");
}

/// A store outage only delays settlements: every handler ran once.
pub async fn a_failed_flush_is_retried<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(50)).await;
    let (builder, probe) = instrumented_worker(&fixture);
    probe.failing_settles.store(3, SeqCst);
    let seen = Seen::default();
    let report = builder.queue(noting(&seen)).build().unwrap().run_until_idle().await.unwrap();
    assert_eq!((report.delivered, report.lost, seen.len()), (50, 0, 50));
    assert_empty(&fixture, "orders").await;
}

/// A message counts as delivered only after the store has confirmed its settlement.
pub async fn a_message_is_delivered_only_after_the_store_settled_it<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(5)).await;
    let (builder, probe) = instrumented_worker(&fixture);
    probe.settle_gate.forget_permits(usize::MAX);
    let seen = Seen::default();
    let running = builder.queue(noting(&seen)).build().unwrap().start();
    eventually(async || seen.len() == 5).await;
    assert_eq!((running.report().delivered, running.report().in_flight), (0, 5));
    probe.settle_gate.add_permits(1_000);
    eventually(async || running.report().delivered == 5).await;
    assert!(running.stop(minutes(1)).await.clean);
}

/// A settlement that cannot be written before its lease expires is dropped, and the message is redelivered: at least once.
pub async fn a_message_not_settled_in_time_is_redelivered<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(1)).await;
    let (builder, probe) = instrumented_worker(&fixture);
    probe.failing_settles.store(usize::MAX, SeqCst);
    let seen = Seen::default();
    let queue = noting(&seen).lease_for(Duration::from_millis(300)).max_lease(Duration::from_millis(1));
    let running = builder.queue(queue).build().unwrap().start();
    eventually(async || running.report().lost >= 1).await;
    assert_eq!(running.report().delivered, 0);
    probe.failing_settles.store(0, SeqCst);
    eventually(async || running.report().delivered == 1).await;
    assert!(seen.len() >= 2);
    assert_accounted_for(&running.stop(minutes(1)).await.report);
    assert_empty(&fixture, "orders").await;
}

/// The store refuses the settlement of one message of a turn: later messages of the turn are not settled before it, since the last
/// one ends the turn, and the refused one would be delivered after it.
pub async fn messages_behind_a_refused_settlement_of_their_turn_wait<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let staged = stage(&fixture, &orders_of("k", 5)).await;
    stage(&fixture, &orders_of("other", 5)).await;
    let (builder, probe) = instrumented_worker(&fixture);
    *probe.refused.lock().unwrap() = Some((staged[2], 4));
    let seen = Seen::default();
    // One flush for all messages of both turns.
    let worker = builder.queue(noting(&seen)).settle_batch(100, minutes(1)).build().unwrap();
    let report = worker.run_until_idle().await.unwrap();
    assert_eq!((report.delivered, report.lost), (10, 0), "{report:?}");
    assert_eq!(seen.sorted(), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4], "each was handled once");
    assert_empty(&fixture, "orders").await;
}

/// The number of messages in flight is bounded, however many are pending.
pub async fn messages_in_flight_are_bounded<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(3_000)).await;
    let (builder, probe) = instrumented_worker(&fixture);
    let queue = deciding(|_| Ok::<(), Failure>(())).concurrency(5).prefetch(50);
    let worker = builder.queue(queue).settle_batch(10, Duration::from_secs(1)).build().unwrap();
    assert_eq!(worker.run_until_idle().await.unwrap().delivered, 3_000);
    let most = probe.max_in_flight.load(SeqCst);
    // The concurrency, eight batches in the settle buffer, and one that is being written.
    assert!(most <= 50 + 2 * 80 + 50, "{most} messages were in flight at once");
}

/// Decision "memory": the payload bytes in flight are bounded, whatever the prefetch.
pub async fn bytes_in_flight_are_bounded<F: Fixture>(fixture: F) {
    const PAYLOAD: usize = 16 * 1024;
    let payload = bytes::Bytes::from(vec![b'x'; PAYLOAD]);
    let messages: Vec<_> =
        (0..1_000).map(|_| message("orders").payload(payload.clone()).build().unwrap()).collect();
    stage(&fixture, &messages).await;
    let (builder, probe) = instrumented_worker(&fixture);
    let queue = Queue::new("orders").prefetch(2_000).max_bytes_in_flight(8 * PAYLOAD);
    let queue = queue.on_any(|_: Context| async { Ok::<(), Failure>(()) });
    let worker = builder.queue(queue).build().unwrap();
    assert_eq!(worker.run_until_idle().await.unwrap().delivered, 1_000);
    let most = probe.max_in_flight.load(SeqCst);
    assert!(most <= 8, "{most} messages were in flight at once");
    assert!(most > 1, "claims grow when the payload size is known");
}
