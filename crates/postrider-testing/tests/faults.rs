//! What goes wrong when it is asked to, and what workers make of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider_core::{
    Error, Event, OnFailure, Ordering, OutboxExt, QueuePolicy, Reason, RetryStrategy, State, schema::Schema,
};
use postrider_engine::{Context, Failure, Queue, Tally, Worker};
use postrider_testing::{Assert, Call, Fault, TestStore};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use support::{MailWanted, OrderPlaced, place};

const MINUTE: Duration = Duration::from_secs(60);

/// Which orders were handled, in which order.
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
async fn a_failure_a_panic_and_a_timeout_are_each_tried_again() {
    for fault in [Fault::Fail, Fault::Panic, Fault::TimeOut] {
        let store = TestStore::new();
        let (worker, seen) = worker_on(&store, orders());
        place(&store, &[1]).await;
        store.fault_on::<OrderPlaced>(1, fault);

        let tally = store.run_until_idle(&worker).await.unwrap();
        assert_eq!((tally.retried, tally.delivered), (1, 0), "{fault:?}");
        let waiting = store.waiting().await;
        let kind = if fault == Fault::Fail {
            "Fault"
        } else if fault == Fault::Panic {
            "Panic"
        } else {
            "Timeout"
        };
        assert_eq!((waiting[0].error.as_deref(), waiting[0].state), (Some(kind), State::Waiting));
        assert_eq!(store.next_due().await.unwrap(), Some(MINUTE));
        assert!(seen.lock().unwrap().is_empty(), "the fault strikes in the handler's place");

        store.advance(MINUTE);
        let tally = store.run_until_idle(&worker).await.unwrap();
        assert_eq!((tally.retried, tally.delivered), (0, 1), "a tally begins with its run");
        store.assert_empty().await;
    }
}

#[tokio::test]
async fn faults_strike_the_deliveries_that_they_are_meant_for() {
    let store = TestStore::new();
    let (worker, seen) = worker_on(&store, orders());
    store.fault_on::<MailWanted>(1, Fault::Reject);
    store.fault_on::<OrderPlaced>(2, Fault::Reject);
    store.fault_on_any(3, Fault::Reject);
    place(&store, &[1, 2, 3, 4]).await;

    let tally = store.run_until_settled(&worker).await.unwrap();
    assert_eq!((tally.delivered, tally.dead), (2, 2));
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    assert_eq!(seen, [1, 4]);
    assert_eq!(store.delivered::<OrderPlaced>().await.unwrap().len(), 2);
    let letter = store.assert_dead::<OrderPlaced>(Reason::Rejected).await;
    assert_eq!(letter.error.as_deref(), Some("Fault"));
}

#[tokio::test]
async fn retries_that_are_used_up_end_as_a_dead_letter_without_anybody_sleeping() {
    let store = TestStore::new();
    let (worker, _) = worker_on(&store, orders());
    let begun_at = store.now();
    place(&store, &[1]).await;
    for _ in 0..3 {
        store.fault_on::<OrderPlaced>(1, Fault::Fail);
    }
    let tally = store.run_until_settled(&worker).await.unwrap();
    assert_eq!((tally.retried, tally.dead), (2, 1));
    assert_eq!(store.now().duration_since(begun_at).unwrap(), 2 * MINUTE);
    assert_eq!(store.assert_dead::<OrderPlaced>(Reason::RetriesExhausted).await.attempts, 3);
}

#[tokio::test]
async fn a_limit_on_the_time_of_all_retries_goes_by_the_stores_clock() {
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
async fn a_lost_lease_brings_the_message_again_when_it_has_lapsed() {
    let store = TestStore::new();
    let (worker, seen) = worker_on(&store, orders().lease_for(2 * MINUTE));
    place(&store, &[1, 2]).await;
    store.fault_on_any(1, Fault::LoseLease);

    let tally = store.run_until_idle(&worker).await.unwrap();
    assert_eq!((tally.lost, tally.delivered), (1, 1));
    assert_eq!(store.waiting().await[0].state, State::Leased);
    assert_eq!(store.next_due().await.unwrap(), Some(2 * MINUTE));

    let tally = store.run_until_settled(&worker).await.unwrap();
    assert_eq!(tally.delivered, 1);
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    assert_eq!(seen, [1, 1, 2], "delivered twice: handlers have to bear that");
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

    let tally = store.run_until_settled(&worker).await.unwrap();
    assert_eq!(tally.delivered, 3);
    // The worker does not know yet, so the third one runs, too; both come again, in their order.
    assert_eq!(*seen.lock().unwrap(), [1, 2, 3, 2, 3]);
    store.assert_empty().await;
}

#[tokio::test]
async fn a_worker_that_does_not_know_of_the_faults_is_refused() {
    let store = TestStore::new();
    let (worker, seen) = worker_on(&store, orders());
    place(&store, &[1]).await;
    store.fault_on_any(1, Fault::Panic);
    let error = worker.run_until_idle().await.unwrap_err();
    assert!(error.to_string().contains("run_until_settled"), "{error}");

    store.rehearse(&worker);
    assert_eq!(worker.run_until_idle().await.unwrap().retried, 1);
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_store_that_is_away_loses_nothing() {
    let store = TestStore::new();
    let (worker, seen) = worker_on(&store, orders());
    place(&store, &[1, 2]).await;

    store.fail(Call::Claim, 1);
    let error = store.run_until_idle(&worker).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error}");

    store.fail(Call::Claim, 2);
    store.fail(Call::Settle, 2);
    let tally = store.run_until_settled(&worker).await.unwrap();
    assert_eq!(tally.delivered, 2);
    assert_eq!(seen.lock().unwrap().len(), 2, "a settlement that failed was repeated, not the work");
    store.assert_empty().await;
}

#[tokio::test]
async fn staging_can_be_made_to_fail_for_so_many_calls() {
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
async fn a_dead_letter_that_cannot_be_written_leaves_the_message_where_it_is() {
    let store = TestStore::new();
    let (worker, _) = worker_on(&store, orders());
    place(&store, &[1]).await;
    store.fault_on_any(1, Fault::Reject);
    store.break_dead_letters(true);
    let tally = store.run_until_idle(&worker).await.unwrap();
    assert_eq!((tally.lost, tally.dead), (1, 0));
    store.assert_staged::<OrderPlaced>(1).await;

    store.break_dead_letters(false);
    assert_eq!(store.run_until_settled(&worker).await.unwrap().delivered, 1);
}

#[tokio::test]
async fn a_transactional_handler_whose_end_fails_has_no_effect() {
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
    store.fail(Call::Commit, 1);
    assert_eq!(store.run_until_idle(&worker).await.unwrap().retried, 1);
    store.assert_not_staged::<MailWanted>().await;

    let tally = store.run_until_settled(&worker).await.unwrap();
    // Its lease was lost once.
    assert_eq!(tally, Tally { fetched: 1, reclaimed: 1, delivered: 1, ..Tally::default() });
    assert_eq!(store.deliveries().await.unwrap().len(), 1);
    store.assert_only_staged(&[MailWanted::TYPE]).await;
}

#[tokio::test]
async fn what_keeps_itself_alive_is_found_out() {
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
