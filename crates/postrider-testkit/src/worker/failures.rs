//! Every failure ends as one attempt or one dead letter, and affects no other message (promises 5, 6 and 7).

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    Event, Reason, RetryStrategy, State,
    inspect::{MessageRow, StateFilter},
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

async fn the_dead<F: Fixture>(fixture: &F) -> Vec<MessageRow> {
    list(fixture, "orders", StateFilter::Dead).await
}

/// Promise 5 and decision "two counters": a failed message waits for its delay by the store's clock, and counts an attempt.
pub async fn a_failure_is_retried_by_the_stores_clock_and_counted<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    for attempt in 1..3 {
        let report = handle_all(&fixture, declining().retry(three_times())).await;
        assert_eq!((report.retried, report.delivered), (1, 0));
        let entry = entry_in(&fixture, "orders", id, State::Scheduled).await;
        assert_eq!((entry.attempts, entry.deliveries), (attempt, attempt));
        assert_eq!(handle_all(&fixture, declining()).await.claimed, 0, "its time has not come");
        fixture.advance(minutes(5)).await;
    }
    let seen = Seen::default();
    assert_eq!(handle_all(&fixture, noting(&seen)).await.delivered, 1);
    assert_empty(&fixture, "orders").await;
}

/// Promise 7: a panic, before or after the handler's first await, is a failed attempt, and the worker continues.
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
    let report = handle_all(&fixture, queue).await;
    assert_eq!((report.retried, report.delivered), (2, 1));
    let mut waiting = list(&fixture, "orders", StateFilter::Scheduled).await;
    waiting.extend(list(&fixture, "orders", StateFilter::Ready).await);
    let seen = waiting.iter().map(|entry| (entry.state, entry.error.as_deref(), entry.attempts));
    assert_eq!(seen.collect::<Vec<_>>(), [(State::Scheduled, Some("Panic"), 1); 2]);
}

/// Promise 7: a handler that exceeds its timeout is cancelled, and counts a failed attempt.
pub async fn a_handler_past_its_timeout_is_cancelled_and_counted<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    let queue = Queue::new("orders").retry(three_times()).timeout(Duration::from_millis(20));
    let queue = queue.on(|_: Order, _: Context| std::future::pending::<Result<(), Failure>>());
    assert_eq!(handle_all(&fixture, queue).await.retried, 1);
    let entry = entry_in(&fixture, "orders", id, State::Scheduled).await;
    assert_eq!((entry.attempts, entry.error.as_deref()), (1, Some("Timeout")));
}

/// Promise 6: exhausted retries leave a complete dead letter, and nothing else.
pub async fn exhausted_retries_are_dead_lettered<F: Fixture>(fixture: F) {
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
    assert_eq!(list(&fixture, "orders", StateFilter::Ready).await, []);
    assert_eq!(list(&fixture, "orders", StateFilter::Scheduled).await, []);
}

/// A rejection is not retried.
pub async fn a_rejection_is_dead_lettered_at_once<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(1)).await;
    let queue = deciding(|number| Err(Failure::reject(Declined(number))));
    assert_eq!(handle_all(&fixture, queue).await.dead, 1);
    let dead = the_dead(&fixture).await;
    assert_eq!((dead[0].reason, dead[0].attempts), (Some(Reason::Rejected), 1));
}

/// A failure can set its own retry delay; the limit of attempts still applies.
pub async fn a_failure_can_set_its_own_delay<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(1)).await;
    let later = || deciding(|number| Err(Failure::retry_after(minutes(60), Declined(number))));
    for _ in 0..2 {
        assert_eq!(handle_all(&fixture, later().retry(three_times())).await.retried, 1);
        fixture.advance(minutes(59)).await;
        assert_eq!(handle_all(&fixture, later()).await.claimed, 0);
        fixture.advance(minutes(1)).await;
    }
    assert_eq!(handle_all(&fixture, later().retry(three_times())).await.dead, 1);
}

/// A snooze waits, and counts neither as an attempt nor as a delivery.
pub async fn a_snooze_is_not_a_failure<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    for _ in 0..3 {
        let queue =
            deciding(|_| Err(Failure::snooze(minutes(30)))).retry(RetryStrategy::none()).max_deliveries(1);
        assert_eq!(handle_all(&fixture, queue).await.released, 1);
        let entry = entry_in(&fixture, "orders", id, State::Scheduled).await;
        assert_eq!((entry.attempts, entry.deliveries), (0, 0));
        fixture.advance(minutes(30)).await;
    }
}

/// Decision "crash loops": a message whose deliveries began as often as allowed, and never ended, is not handled again.
pub async fn a_message_claimed_too_often_is_not_handled<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    for _ in 0..2 {
        let claimed = claim_one(&fixture.store(), "orders").await;
        assert!(fixture.store().count_isolated(&claimed.lease).await.unwrap());
        expire_leases(&fixture).await;
    }
    let seen = Seen::default();
    assert_eq!(handle_all(&fixture, noting(&seen).max_deliveries(2)).await.dead, 1);
    assert_eq!(seen.len(), 0);
    let entry = entry_in(&fixture, "orders", id, State::Dead).await;
    assert_eq!((entry.reason, entry.deliveries), (Some(Reason::MaxDeliveries), 3));
}

/// Decision "error text": errors can quote personal data of messages, so only the error type is stored.
pub async fn only_the_error_type_is_stored_by_default<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(1)).await;
    handle_all(&fixture, declining().retry(RetryStrategy::none())).await;
    assert_eq!(the_dead(&fixture).await[0].error.as_deref(), Some("Declined"));
}

/// The same decision: the full text is stored if configured, without the parts that a redactor removes.
pub async fn the_full_error_text_is_stored_when_configured<F: Fixture>(fixture: F) {
    stage_one(&fixture, &Order { number: 4711 }).await;
    let redact = ErrorText::Full(Arc::new(|text| text.replace("4711", "****")));
    handle_all(&fixture, declining().retry(RetryStrategy::none()).error_text(redact)).await;
    assert_eq!(the_dead(&fixture).await[0].error.as_deref(), Some("Declined: card **** was declined"));
}

/// The same decision: a redactor that panics stores no text, and affects no other message.
pub async fn a_panicking_redactor_stores_no_error_text<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(2)).await;
    let broken = ErrorText::Full(Arc::new(|_| panic!("no idea")));
    handle_all(&fixture, declining().retry(RetryStrategy::none()).error_text(broken)).await;
    assert!(the_dead(&fixture).await.iter().all(|entry| entry.error.as_deref() == Some("Declined")));
}

/// Decision "retry strategies": a strategy that panics is terminal, and its message is not lost.
pub async fn a_panicking_retry_strategy_dead_letters_the_message<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(1)).await;
    let queue = declining().retry_with(|_: &Attempt<'_>| -> Verdict { panic!("no idea") });
    assert_eq!(handle_all(&fixture, queue).await.dead, 1);
    assert_eq!(the_dead(&fixture).await[0].reason, Some(Reason::RetriesExhausted));
}

/// Promise 6: while dead letters cannot be written, their messages stay, and the others of the batch are settled.
pub async fn an_unwritable_dead_letter_keeps_its_message<F: Fixture>(fixture: F) {
    fixture.break_dead_letters(true).await;
    stage(&fixture, &orders(10)).await;
    let queue = deciding(|number| if number == 3 { Err(Failure::reject("no")) } else { Ok(()) });
    let running = worker(&fixture, queue).start();
    eventually(async || running.report().delivered == 9).await;
    assert_eq!(running.report().dead, 0);
    assert_eq!(list(&fixture, "orders", StateFilter::Ready).await.len(), 1, "it is still there");

    fixture.break_dead_letters(false).await;
    eventually(async || running.report().dead == 1).await;
    assert_eq!(the_dead(&fixture).await.len(), 1);
    assert!(running.stop(minutes(1)).await.clean);
}

/// Many failures are settled in batches, each with its own result: all reach their last attempt.
pub async fn a_hundred_failures_in_one_batch_are_all_settled<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(100)).await;
    let strategy = RetryStrategy::constant(Duration::ZERO).with_max_attempts(10);
    let report = handle_all(&fixture, declining().retry(strategy).concurrency(20)).await;
    assert_eq!((report.retried, report.dead), (900, 100));
    assert!(the_dead(&fixture).await.iter().all(|entry| entry.attempts == 10 && entry.deliveries == 10));
}

/// Promise 7: whatever fails for some messages, all others are delivered.
pub async fn one_failing_message_affects_no_other<F: Fixture>(fixture: F) {
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
    let report = handle_all(&fixture, queue).await;
    assert_eq!((report.delivered, report.dead, report.released), (95, 5, 1));
}
