//! What finished is written together, and counts when the store says so (promises 2 and 6).

use super::helpers::*;
use crate::Fixture;
use postrider_engine::Failure;
use std::{sync::atomic::Ordering::SeqCst, time::Duration};

/// Many settlements are one round trip.
pub async fn settlements_are_written_together<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(2_000)).await;
    let (builder, watch) = watched(&fixture);
    let worker = builder.queue(noting(&Seen::default()).prefetch(1_000)).build().unwrap();
    assert_eq!(worker.run_until_idle().await.unwrap().delivered, 2_000);
    let settles = watch.settles.load(SeqCst);
    assert!(settles <= 200, "2,000 messages took {settles} settlements");
}

/// A store that is away for a while costs nothing but that while: every handler ran once.
pub async fn a_flush_that_fails_is_tried_again<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(50)).await;
    let (builder, watch) = watched(&fixture);
    watch.failing_settles.store(3, SeqCst);
    let seen = Seen::default();
    let tally = builder.queue(noting(&seen)).build().unwrap().run_until_idle().await.unwrap();
    assert_eq!((tally.delivered, tally.lost, seen.len()), (50, 0, 50));
    assert_empty(&fixture, "orders").await;
}

/// A message is not counted as delivered before the store has said so.
pub async fn nothing_is_done_before_the_store_says_so<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(5)).await;
    let (builder, watch) = watched(&fixture);
    watch.settle_gate.forget_permits(usize::MAX);
    let seen = Seen::default();
    let running = builder.queue(noting(&seen)).build().unwrap().start();
    eventually(async || seen.len() == 5).await;
    assert_eq!((running.tally().delivered, running.tally().in_hand), (0, 5));
    watch.settle_gate.add_permits(1_000);
    eventually(async || running.tally().delivered == 5).await;
    assert!(running.shutdown(minutes(1)).await.is_clean);
}

/// What cannot be settled while its lease lasts is given up, and comes again: at least once.
pub async fn what_cannot_be_settled_in_time_comes_again<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(1)).await;
    let (builder, watch) = watched(&fixture);
    watch.failing_settles.store(usize::MAX, SeqCst);
    let seen = Seen::default();
    let queue = noting(&seen).lease_for(Duration::from_millis(300)).hold_for(Duration::from_millis(1));
    let running = builder.queue(queue).build().unwrap().start();
    eventually(async || running.tally().lost >= 1).await;
    assert_eq!(running.tally().delivered, 0);
    watch.failing_settles.store(0, SeqCst);
    eventually(async || running.tally().delivered == 1).await;
    assert!(seen.len() >= 2);
    assert_accounted_for(&running.shutdown(minutes(1)).await.tally);
    assert_empty(&fixture, "orders").await;
}

/// However much waits in the store, what is in hand is bounded.
pub async fn what_is_in_hand_is_bounded<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(3_000)).await;
    let (builder, watch) = watched(&fixture);
    let queue = deciding(|_| Ok::<(), Failure>(())).concurrency(5).prefetch(50);
    let worker = builder.queue(queue).settle_together(10, Duration::from_secs(1)).build().unwrap();
    assert_eq!(worker.run_until_idle().await.unwrap().delivered, 3_000);
    let most = watch.most_in_hand.load(SeqCst);
    // The room, eight batches on the desk, and one that is being written.
    assert!(most <= 50 + 2 * 80 + 50, "{most} messages were in hand at once");
}
