//! Injected faults, and how workers handle them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider_core::{
    Error, Event, OnFailure, Ordering, OutboxExt, QueuePolicy, Reason, RetryStrategy, State, schema::Schema,
};
use postrider_engine::{Context, Failure, Queue, Report, Worker};
use postrider_testing::{Assert, Fault, StoreCall, TestStore};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use support::{MailWanted, OrderPlaced, place};

const MINUTE: Duration = Duration::from_secs(60);

/// The orders that were handled, in that order.
type Seen = Arc<Mutex<Vec<u32>>>;

async fn ship(event: OrderPlaced, context: Context) -> Result<(), Failure> {
    context.shared::<Seen>()?.lock().unwrap().push(event.order);
    Ok(())
}

fn orders() -> Queue {
    Queue::new("orders").on(ship).retry(RetryStrategy::constant(MINUTE).with_max_attempts(3))
}

fn worker_on(store: &TestStore, queue: Queue) -> (Worker, Seen) {
    let seen = Seen::default();
    let worker = Worker::builder(store.clone()).queue(queue).share(Arc::clone(&seen)).build().unwrap();
    (worker, seen)
}

#[tokio::test]
async fn an_injected_failure_panic_or_timeout_is_retried() {
    for fault in [Fault::Fail, Fault::Panic, Fault::TimeOut] {
        let store = TestStore::new();
        let (worker, seen) = worker_on(&store, orders());
        place(&store, &[1]).await;
        store.fault_on::<OrderPlaced>(1, fault);

        let report = store.run_until_idle(&worker).await.unwrap();
        assert_eq!((report.retried, report.delivered), (1, 0), "{fault:?}");
        let waiting = store.waiting().await;
        let kind = if fault == Fault::Fail {
            "Fault"
        } else if fault == Fault::Panic {
            "Panic"
        } else {
            "Timeout"
        };
        assert_eq!((waiting[0].error.as_deref(), waiting[0].state), (Some(kind), State::Scheduled));
        assert_eq!(store.next_due().await.unwrap(), Some(MINUTE));
        assert!(seen.lock().unwrap().is_empty(), "the fault replaces the handler");

        store.advance(MINUTE);
        let report = store.run_until_idle(&worker).await.unwrap();
        assert_eq!((report.retried, report.delivered), (0, 1), "a report covers one run");
        store.assert_empty().await;
    }
}

#[tokio::test]
async fn faults_are_injected_into_the_planned_deliveries() {
    let store = TestStore::new();
    let (worker, seen) = worker_on(&store, orders());
    store.fault_on::<MailWanted>(1, Fault::Reject);
    store.fault_on::<OrderPlaced>(2, Fault::Reject);
    store.fault_on_any(3, Fault::Reject);
    place(&store, &[1, 2, 3, 4]).await;

    let report = store.run_until_settled(&worker).await.unwrap();
    assert_eq!((report.delivered, report.dead), (2, 2));
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    assert_eq!(seen, [1, 4]);
    assert_eq!(store.delivered::<OrderPlaced>().await.unwrap().len(), 2);
    let letter = store.assert_dead::<OrderPlaced>(Reason::Rejected).await;
    assert_eq!(letter.error.as_deref(), Some("Fault"));
}

#[tokio::test]
async fn exhausted_retries_are_dead_lettered_without_sleeping() {
    let store = TestStore::new();
    let (worker, _) = worker_on(&store, orders());
    let begun_at = store.now();
    place(&store, &[1]).await;
    for _ in 0..3 {
        store.fault_on::<OrderPlaced>(1, Fault::Fail);
    }
    let report = store.run_until_settled(&worker).await.unwrap();
    assert_eq!((report.retried, report.dead), (2, 1));
    assert_eq!(store.now().duration_since(begun_at).unwrap(), 2 * MINUTE);
    assert_eq!(store.assert_dead::<OrderPlaced>(Reason::RetriesExhausted).await.attempts, 3);
}

#[tokio::test]
async fn max_total_retry_time_uses_the_virtual_clock() {
    let store = TestStore::new();
    let retry = RetryStrategy::constant(MINUTE).with_max_total(Duration::from_secs(150));
    let (worker, _) = worker_on(&store, orders().retry(retry));
    place(&store, &[1]).await;
    for _ in 0..9 {
        store.fault_on::<OrderPlaced>(1, Fault::Fail);
    }
    store.run_until_settled(&worker).await.unwrap();
    assert_eq!(store.assert_dead::<OrderPlaced>(Reason::RetriesExhausted).await.attempts, 3);
}

#[tokio::test]
async fn a_lost_lease_redelivers_the_message_after_its_expiry() {
    let store = TestStore::new();
    let (worker, seen) = worker_on(&store, orders().lease_for(2 * MINUTE));
    place(&store, &[1, 2]).await;
    store.fault_on_any(1, Fault::LoseLease);

    let report = store.run_until_idle(&worker).await.unwrap();
    assert_eq!((report.lost, report.delivered), (1, 1));
    assert_eq!(store.waiting().await[0].state, State::Leased);
    assert_eq!(store.next_due().await.unwrap(), Some(2 * MINUTE));

    let report = store.run_until_settled(&worker).await.unwrap();
    assert_eq!(report.delivered, 1);
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    assert_eq!(seen, [1, 1, 2], "delivered twice: handlers must be idempotent");
    store.assert_empty().await;
}

#[tokio::test]
async fn a_key_that_loses_its_lease_keeps_its_order() {
    let store = TestStore::new();
    let policy = QueuePolicy { ordering: Ordering::ByKey(OnFailure::Block), ..QueuePolicy::default() };
    store.declare(&"orders".parse().unwrap(), &policy).await.unwrap();
    let (worker, seen) = worker_on(&store, orders());
    let mut tx = store.begin();
    for order in [1, 2, 3] {
        store.stage(&mut tx, OrderPlaced { order }.message().key("one")).await.unwrap();
    }
    tx.commit();
    store.fault_on_any(2, Fault::LoseLease);

    let report = store.run_until_settled(&worker).await.unwrap();
    assert_eq!(report.delivered, 3);
    // The worker does not know yet that the lease is lost, so the third one runs as well; both are redelivered in order.
    assert_eq!(*seen.lock().unwrap(), [1, 2, 3, 2, 3]);
    store.assert_empty().await;
}

#[tokio::test]
async fn a_worker_without_fault_injection_is_rejected_when_faults_are_planned() {
    let store = TestStore::new();
    let (worker, seen) = worker_on(&store, orders());
    place(&store, &[1]).await;
    store.fault_on_any(1, Fault::Panic);
    let error = worker.run_until_idle().await.unwrap_err();
    assert!(error.to_string().contains("run_until_settled"), "{error}");

    store.inject_faults(&worker);
    assert_eq!(worker.run_until_idle().await.unwrap().retried, 1);
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_unavailable_store_loses_nothing() {
    let store = TestStore::new();
    let (worker, seen) = worker_on(&store, orders());
    place(&store, &[1, 2]).await;

    store.fail(StoreCall::Claim, 1);
    let error = store.run_until_idle(&worker).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error}");

    store.fail(StoreCall::Claim, 2);
    store.fail(StoreCall::Settle, 2);
    let report = store.run_until_settled(&worker).await.unwrap();
    assert_eq!(report.delivered, 2);
    assert_eq!(seen.lock().unwrap().len(), 2, "the failed settlement was retried, not the handler");
    store.assert_empty().await;
}

#[tokio::test]
async fn unavailable_fails_the_given_number_of_stage_calls() {
    let store = TestStore::new();
    store.unavailable(2);
    let mut tx = store.begin();
    for expected in [false, false, true] {
        assert_eq!(store.stage(&mut tx, &OrderPlaced { order: 1 }).await.is_ok(), expected);
    }
    tx.commit();
    store.assert_staged::<OrderPlaced>(1).await;
}

#[tokio::test(start_paused = true)]
async fn an_unwritable_dead_letter_leaves_the_message_staged() {
    let store = TestStore::new();
    let (worker, _) = worker_on(&store, orders());
    place(&store, &[1]).await;
    store.fault_on_any(1, Fault::Reject);
    store.break_dead_letters(true);
    let report = store.run_until_idle(&worker).await.unwrap();
    assert_eq!((report.lost, report.dead), (1, 0));
    store.assert_staged::<OrderPlaced>(1).await;

    store.break_dead_letters(false);
    assert_eq!(store.run_until_settled(&worker).await.unwrap().delivered, 1);
}

#[tokio::test]
async fn a_transactional_handler_whose_settlement_fails_has_no_effect() {
    let store = TestStore::new();
    let staging = store.clone();
    let queue = Queue::new("orders").retry(RetryStrategy::constant(MINUTE)).on_in_transaction(
        &store,
        move |_: OrderPlaced, mut tx, _: Context| {
            let store = staging.clone();
            async move {
                store.stage(&mut tx, &MailWanted { to: "ann".into() }).await?;
                Ok::<(), Failure>(())
            }
        },
    );
    let (worker, _) = worker_on(&store, queue);
    place(&store, &[1]).await;
    store.fault_on::<OrderPlaced>(1, Fault::LoseLease);
    assert_eq!(store.run_until_idle(&worker).await.unwrap().lost, 1);
    store.assert_not_staged::<MailWanted>().await;

    store.advance(MINUTE);
    store.fail(StoreCall::Commit, 1);
    assert_eq!(store.run_until_idle(&worker).await.unwrap().retried, 1);
    store.assert_not_staged::<MailWanted>().await;

    let report = store.run_until_settled(&worker).await.unwrap();
    // Its lease was lost once.
    assert_eq!(report, Report { claimed: 1, reclaimed: 1, delivered: 1, ..Report::default() });
    assert_eq!(store.deliveries().await.unwrap().len(), 1);
    store.assert_only_staged(&[MailWanted::TYPE]).await;
}

#[tokio::test]
async fn a_message_that_snoozes_without_end_is_an_error() {
    let store = TestStore::new();
    let snooze = |_: OrderPlaced, _: Context| async { Err::<(), _>(Failure::snooze(MINUTE)) };
    let (worker, _) = worker_on(&store, Queue::new("orders").on(snooze));
    place(&store, &[7]).await;
    let error = store.run_until_settled(&worker).await.unwrap_err().to_string();
    assert!(
        error.contains("moved 1000 times") && error.contains(r#"orders: order.placed {"order":7}"#),
        "{error}"
    );
}
