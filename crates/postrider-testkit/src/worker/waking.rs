//! Wake-ups are hints, polling is the truth (promise 8).

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

/// A worker that found nothing announces that it sleeps, and hears what is committed then.
pub async fn a_sleeping_worker_is_woken_by_a_commit<F: Fixture>(fixture: F) {
    let (builder, watch) = watched(&fixture);
    let seen = Seen::default();
    let running = builder.queue(noting(&seen)).build().unwrap().start();
    for round in 1..=3 {
        let before = watch.announcements.load(SeqCst);
        at_least(&watch.announcements, before + 1).await;
        let signals = watch.signals.load(SeqCst);
        stage_one(&fixture, &Order { number: round }).await;
        eventually(async || seen.len() as u64 == round).await;
        at_least(&watch.signals, signals + 1).await;
    }
    assert!(running.shutdown(minutes(1)).await.is_clean);
}

/// Without signals a worker finds everything by looking, and announces nothing.
pub async fn a_worker_without_signals_polls<F: Fixture>(fixture: F) {
    let (builder, watch) = watched(&fixture);
    let seen = Seen::default();
    let running = builder.without_signals().queue(noting(&seen)).build().unwrap().start();
    at_least(&watch.claims, 10).await;
    stage(&fixture, &orders(1)).await;
    eventually(async || seen.len() == 1).await;
    assert!(running.shutdown(minutes(1)).await.is_clean);
    assert_eq!((watch.announcements.load(SeqCst), watch.listens.load(SeqCst)), (0, 0));
}

/// A listener that cannot be had is no reason not to work; it is tried again, and used when it is there.
pub async fn a_listener_that_fails_leaves_the_polling_and_comes_back<F: Fixture>(fixture: F) {
    let (builder, watch) = watched(&fixture);
    watch.failing_listens.store(1, SeqCst);
    let seen = Seen::default();
    let running = builder.queue(noting(&seen)).build().unwrap().start();
    stage(&fixture, &orders(1)).await;
    eventually(async || seen.len() == 1).await;
    assert_eq!(watch.listens.load(SeqCst), 0, "it was found by looking");
    at_least(&watch.listens, 1).await;
    at_least(&watch.announcements, 1).await;
    assert!(running.shutdown(minutes(1)).await.is_clean);
}

/// A worker that looks once an hour still looks when a retry of its own comes due.
pub async fn a_retry_is_not_slept_through<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(1)).await;
    let tries = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&tries);
    let queue = deciding(move |_| match counting.fetch_add(1, SeqCst) {
        0..3 => Err(Failure::retry("not yet")),
        _ => Ok(()),
    });
    let queue =
        queue.retry(RetryStrategy::constant(Duration::from_millis(30))).waits(minutes(60), minutes(60));
    let (builder, _) = watched(&fixture);
    let running = builder.without_signals().queue(queue).build().unwrap().start();
    eventually(async || running.tally().delivered == 1).await;
    assert_eq!(tries.load(SeqCst), 4);
    assert!(running.shutdown(minutes(1)).await.is_clean);
}

/// A worker that looks once an hour still claims more as soon as it has room.
pub async fn freed_room_is_used_at_once<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(200)).await;
    let (builder, _) = watched(&fixture);
    let seen = Seen::default();
    let queue = noting(&seen).concurrency(2).prefetch(2).waits(minutes(60), minutes(60));
    let running = builder.without_signals().queue(queue).build().unwrap().start();
    eventually(async || running.tally().delivered == 200).await;
    assert!(running.shutdown(minutes(1)).await.is_clean);
}

/// A store that was away is asked again until it answers.
pub async fn a_store_that_was_away_is_asked_again<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(5)).await;
    let (builder, watch) = watched(&fixture);
    watch.failing_claims.store(3, SeqCst);
    let running = builder.queue(noting(&Seen::default())).build().unwrap().start();
    eventually(async || running.tally().delivered == 5).await;
    assert!(running.shutdown(minutes(1)).await.is_clean);
}
