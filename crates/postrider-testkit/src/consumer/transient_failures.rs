//! Transient failures.

use super::{ConsumerFixture, helpers::*};
use postrider_core::RetryStrategy;
use postrider_engine::{Context, Failure};
use std::time::Duration;

/// A message is redelivered as often as necessary.
pub async fn a_failure_without_a_limit_is_retried_and_never_dead_lettered<F: ConsumerFixture>(fixture: F) {
    let runs = Times::default();
    let counted = runs.clone();
    let decide = move |_| if counted.once_more() < 6 { Err(Failure::retry("not yet")) } else { Ok(()) };
    let consumer = with_effect(billing(&fixture).await, &fixture, decide);
    fixture.send(orders(1, &fixture.address())).await;
    let report = run_until::<F>(&consumer, |report| report.delivered == 1).await;
    assert_eq!((runs.get(), report.retried, report.dead), (7, 6, 0));
    assert_eq!(effects(&fixture).await, [0]);
}

/// A handler that panics affects no other.
pub async fn a_panic_is_a_failure<F: ConsumerFixture>(fixture: F) {
    let runs = Times::default();
    let counted = runs.clone();
    let decide = move |_| {
        assert!(counted.once_more() > 0, "a handler panics");
        Ok(())
    };
    let consumer = with_effect(billing(&fixture).await, &fixture, decide);
    fixture.send(orders(1, &fixture.address())).await;
    let report = run_until::<F>(&consumer, |report| report.delivered == 1).await;
    assert_eq!((runs.get(), report.retried), (2, 1));
}

/// A handler that exceeds its timeout is cancelled, and its transaction is rolled back.
pub async fn a_handler_past_its_timeout_is_a_failure<F: ConsumerFixture>(fixture: F) {
    let runs = Times::default();
    let counted = runs.clone();
    let consumer = billing(&fixture)
        .await
        .timeout(Duration::from_millis(50))
        .on_json(move |_: u64, _: HandlerTx<F>, _: Context| {
            let counted = counted.clone();
            async move {
                if counted.once_more() == 0 {
                    std::future::pending::<()>().await;
                }
                Ok::<(), Failure>(())
            }
        })
        .build()
        .unwrap();
    fixture.send(orders(1, &fixture.address())).await;
    let report = run_until::<F>(&consumer, |report| report.delivered == 1).await;
    assert!(report.retried >= 1);
}

/// A short failure is over before the broker is involved.
pub async fn in_process_retries_need_no_redelivery<F: ConsumerFixture>(fixture: F) {
    let runs = Times::default();
    let counted = runs.clone();
    let decide = move |_| if counted.once_more() < 2 { Err(Failure::retry("a blip")) } else { Ok(()) };
    let quickly = RetryStrategy::constant(Duration::from_millis(1)).with_max_attempts(5);
    let builder = billing(&fixture).await.retry_in_place(quickly).max_deliveries(1);
    let consumer = with_effect(builder, &fixture, decide);
    fixture.send(orders(1, &fixture.address())).await;
    let report = run_until::<F>(&consumer, |report| report.delivered == 1).await;
    assert_eq!((runs.get(), report.retried, report.dead), (3, 0, 0));
}

/// A handler that snoozes has not failed.
pub async fn a_snooze_is_not_a_failure<F: ConsumerFixture>(fixture: F) {
    let runs = Times::default();
    let counted = runs.clone();
    let decide = move |_| match counted.once_more() {
        0 => Err(Failure::snooze(Duration::from_millis(10))),
        _ => Ok(()),
    };
    let consumer = with_effect(billing(&fixture).await, &fixture, decide);
    fixture.send(orders(1, &fixture.address())).await;
    let report = run_until::<F>(&consumer, |report| report.delivered == 1).await;
    assert_eq!((runs.get(), report.retried), (2, 0));
}
