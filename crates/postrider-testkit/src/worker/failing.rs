//! Every failure ends as one attempt or one dead letter, and harms nobody else (promises 5, 6 and 7).

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    Event, Reason, RetryStrategy, State,
    inspect::{Entry, Room},
    retry::{Attempt, Verdict},
};
use postrider_engine::{Context, Failure, Queue, worker::ErrorText};
use std::{sync::Arc, time::Duration};

#[derive(Debug, thiserror::Error)]
#[error("card {0} was declined")]
struct Declined(u64);

fn declining() -> Queue {
    deciding(|number| Err(Declined(number).into()))
}

async fn the_dead<F: Fixture>(fixture: &F) -> Vec<Entry> {
    list(fixture, "orders", Room::Dead).await
}

/// Promise 5 and decision "two counters": a failure waits for its delay by the store's clock, and counts an attempt.
pub async fn a_failure_is_retried_by_the_stores_clock_and_counted<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    for attempt in 1..3 {
        let tally = handle_all(&fixture, declining().retry(three_times())).await;
        assert_eq!((tally.retried, tally.delivered), (1, 0));
        let entry = entry_in(&fixture, "orders", id, State::Waiting).await;
        assert_eq!((entry.attempts, entry.deliveries), (attempt, attempt));
        assert_eq!(handle_all(&fixture, declining()).await.fetched, 0, "its time has not come");
        fixture.advance(minutes(5)).await;
    }
    let seen = Seen::default();
    assert_eq!(handle_all(&fixture, noting(&seen)).await.delivered, 1);
    assert_empty(&fixture, "orders").await;
}

/// Promise 7: a panic, before or after the handler's first await, is a failed attempt, and the worker goes on.
pub async fn a_panic_is_one_failed_attempt<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(3)).await;
    let queue = Queue::new("orders").retry(three_times()).concurrency(1);
    let queue = queue.on(|order: Order, _: Context| {
        assert!(order.number != 0, "before it gives its future");
        async move {
            tokio::task::yield_now().await;
            assert!(order.number != 1, "while it runs");
            Ok::<(), Failure>(())
        }
    });
    let tally = handle_all(&fixture, queue).await;
    assert_eq!((tally.retried, tally.delivered), (2, 1));
    let mut waiting = list(&fixture, "orders", Room::Later).await;
    waiting.extend(list(&fixture, "orders", Room::Ready).await);
    let seen = waiting.iter().map(|entry| (entry.state, entry.error.as_deref(), entry.attempts));
    assert_eq!(seen.collect::<Vec<_>>(), [(State::Waiting, Some("Panic"), 1); 2]);
}

/// Promise 7: a handler that never ends is stopped at its timeout, and that is a failed attempt.
pub async fn an_endless_handler_is_stopped_and_counted<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    let queue = Queue::new("orders").retry(three_times()).timeout(Duration::from_millis(20));
    let queue = queue.on(|_: Order, _: Context| std::future::pending::<Result<(), Failure>>());
    assert_eq!(handle_all(&fixture, queue).await.retried, 1);
    let entry = entry_in(&fixture, "orders", id, State::Waiting).await;
    assert_eq!((entry.attempts, entry.error.as_deref()), (1, Some("Timeout")));
}

/// Promise 6: a strategy that gives up leaves a whole dead letter, and nothing else.
pub async fn retries_end_as_a_dead_letter<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, Order { number: 1 }.message().key("k").header("color", "blue")).await;
    for _ in 0..2 {
        handle_all(&fixture, declining().retry(three_times())).await;
        fixture.advance(minutes(5)).await;
    }
    assert_eq!(handle_all(&fixture, declining().retry(three_times())).await.dead, 1);
    let entry = entry_in(&fixture, "orders", id, State::Dead).await;
    assert_eq!(entry.reason, Some(Reason::RetriesExhausted));
    assert_eq!((entry.attempts, entry.deliveries, entry.error.as_deref()), (3, 3, Some("Declined")));
    assert_eq!(entry.message.payload(), r#"{"number":1}"#);
    assert_eq!(entry.message.headers().get("color"), Some("blue"));
    assert_eq!(list(&fixture, "orders", Room::Ready).await, []);
    assert_eq!(list(&fixture, "orders", Room::Later).await, []);
}

/// A rejection is not tried again.
pub async fn a_rejection_is_a_dead_letter_at_once<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(1)).await;
    let queue = deciding(|number| Err(Failure::reject(Declined(number))));
    assert_eq!(handle_all(&fixture, queue).await.dead, 1);
    let dead = the_dead(&fixture).await;
    assert_eq!((dead[0].reason, dead[0].attempts), (Some(Reason::Rejected), 1));
}

/// A failure may say when to try again; the limit of attempts still holds.
pub async fn a_failure_may_bring_its_own_delay<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(1)).await;
    let later = || deciding(|number| Err(Failure::retry_after(minutes(60), Declined(number))));
    for _ in 0..2 {
        assert_eq!(handle_all(&fixture, later().retry(three_times())).await.retried, 1);
        fixture.advance(minutes(59)).await;
        assert_eq!(handle_all(&fixture, later()).await.fetched, 0);
        fixture.advance(minutes(1)).await;
    }
    assert_eq!(handle_all(&fixture, later().retry(three_times())).await.dead, 1);
}

/// A snooze waits, and counts neither as an attempt nor as a delivery.
pub async fn a_snooze_is_no_failure<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    for _ in 0..3 {
        let queue =
            deciding(|_| Err(Failure::snooze(minutes(30)))).retry(RetryStrategy::none()).max_deliveries(1);
        assert_eq!(handle_all(&fixture, queue).await.released, 1);
        let entry = entry_in(&fixture, "orders", id, State::Waiting).await;
        assert_eq!((entry.attempts, entry.deliveries), (0, 0));
        fixture.advance(minutes(30)).await;
    }
}

/// Decision "two counters": a message that was claimed more often than allowed may be what kills its workers, and is not
/// run again.
pub async fn a_message_that_was_claimed_too_often_is_not_run<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    for _ in 0..2 {
        claim_one(&fixture.store(), "orders").await;
        lapse(&fixture).await;
    }
    let seen = Seen::default();
    assert_eq!(handle_all(&fixture, noting(&seen).max_deliveries(2)).await.dead, 1);
    assert_eq!(seen.len(), 0);
    let entry = entry_in(&fixture, "orders", id, State::Dead).await;
    assert_eq!((entry.reason, entry.deliveries), (Some(Reason::MaxDeliveries), 3));
}

/// Decision "error text": messages carry personal data, and errors quote them, so that only the type is kept.
pub async fn only_the_type_of_an_error_is_kept<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(1)).await;
    handle_all(&fixture, declining().retry(RetryStrategy::none())).await;
    assert_eq!(the_dead(&fixture).await[0].error.as_deref(), Some("Declined"));
}

/// The same decision: the whole text is kept when asked for, without what a redactor takes away.
pub async fn the_whole_text_of_an_error_is_kept_when_asked_for<F: Fixture>(fixture: F) {
    stage_one(&fixture, &Order { number: 4711 }).await;
    let redact = ErrorText::Full(Arc::new(|text| text.replace("4711", "****")));
    handle_all(&fixture, declining().retry(RetryStrategy::none()).error_text(redact)).await;
    assert_eq!(the_dead(&fixture).await[0].error.as_deref(), Some("Declined: card **** was declined"));
}

/// The same decision: a redactor that fails lets nothing through, and harms nobody.
pub async fn a_redactor_that_panics_lets_nothing_through<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(2)).await;
    let broken = ErrorText::Full(Arc::new(|_| panic!("no idea")));
    handle_all(&fixture, declining().retry(RetryStrategy::none()).error_text(broken)).await;
    assert!(the_dead(&fixture).await.iter().all(|entry| entry.error.as_deref() == Some("Declined")));
}

/// Decision "retry strategies": one that panics is terminal, and its message is not lost.
pub async fn a_strategy_that_panics_gives_up<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(1)).await;
    let queue = declining().retry_with(|_: &Attempt<'_>| -> Verdict { panic!("no idea") });
    assert_eq!(handle_all(&fixture, queue).await.dead, 1);
    assert_eq!(the_dead(&fixture).await[0].reason, Some(Reason::RetriesExhausted));
}

/// Promise 6: while dead letters cannot be written, their messages stay, and the others of the batch are settled.
pub async fn a_dead_letter_that_cannot_be_written_keeps_its_message<F: Fixture>(fixture: F) {
    fixture.break_dead_letters(true).await;
    stage(&fixture, &orders(10)).await;
    let queue = deciding(|number| if number == 3 { Err(Failure::reject("no")) } else { Ok(()) });
    let running = worker(&fixture, queue).start();
    eventually(async || running.tally().delivered == 9).await;
    assert_eq!(running.tally().dead, 0);
    assert_eq!(list(&fixture, "orders", Room::Ready).await.len(), 1, "it is still there");

    fixture.break_dead_letters(false).await;
    eventually(async || running.tally().dead == 1).await;
    assert_eq!(the_dead(&fixture).await.len(), 1);
    assert!(running.shutdown(minutes(1)).await.is_clean);
}

/// Many failures settle together, each with its own fate: all reach their last attempt.
pub async fn a_hundred_failures_in_one_batch_all_end<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(100)).await;
    let strategy = RetryStrategy::constant(Duration::ZERO).with_max_attempts(10);
    let tally = handle_all(&fixture, declining().retry(strategy).concurrency(20)).await;
    assert_eq!((tally.retried, tally.dead), (900, 100));
    assert!(the_dead(&fixture).await.iter().all(|entry| entry.attempts == 10 && entry.deliveries == 10));
}

/// Promise 7: whatever is wrong with some messages, all the others are delivered.
pub async fn one_bad_message_harms_only_itself<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(100)).await;
    stage_one(&fixture, message("orders").event_type(Order::TYPE).payload("nonsense")).await;
    let queue = Queue::new("orders").timeout(Duration::from_millis(50)).retry(RetryStrategy::none());
    let queue = queue.on(|order: Order, _: Context| async move {
        match order.number {
            10 => panic!("it cannot be helped"),
            20 => std::future::pending().await,
            30 => Err(Failure::reject("never")),
            40 => Err(Failure::snooze(minutes(5))),
            50 => Err(Failure::retry("not now")),
            _ => Ok(()),
        }
    });
    let tally = handle_all(&fixture, queue).await;
    assert_eq!((tally.delivered, tally.dead, tally.released), (95, 5, 1));
}
