//! Transactional handlers: one effect for each message, without an inbox (promise 3).

use super::helpers::*;
use crate::{Fixture, TransactFixture};
use postrider_core::{Event, OnFailure, OutboxExt, QueuePolicy, State, inspect::StateFilter};
use postrider_engine::{Context, Failure, Queue, Tx};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

/// The queue of orders, whose handlers stage an effect in their transaction and then return a result by number.
fn with_effect<F: TransactFixture>(
    fixture: &F,
    decide: impl Fn(u64) -> Result<(), Failure> + Send + Sync + 'static,
) -> Queue {
    let outbox = fixture.outbox();
    let decide = Arc::new(decide);
    Queue::new("orders").retry(three_times()).on_in_transaction(
        &fixture.transactions(),
        move |order: Order, mut tx: Tx<F::Tx>, context: Context| {
            let (outbox, decide) = (outbox.clone(), Arc::clone(&decide));
            async move {
                let effect = message("effects").payload(order.number.to_string());
                // Boxed, because a driver's future may be large.
                Box::pin(outbox.stage(&mut *tx, context.follow(effect))).await?;
                decide(order.number)
            }
        },
    )
}

/// The numbers of the effects that happened.
async fn effects<F: Fixture>(fixture: &F) -> Vec<u64> {
    let effects = list(fixture, "effects", StateFilter::Ready).await;
    let mut numbers: Vec<u64> = effects
        .iter()
        .map(|entry| std::str::from_utf8(entry.message.payload()).unwrap().parse().unwrap())
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Messages that a handler stages and the settlement of its message commit together.
pub async fn effects_and_settlement_commit_together<F: TransactFixture>(fixture: F) {
    stage(&fixture, &orders(30)).await;
    let report = handle_all(&fixture, with_effect(&fixture, |_| Ok(()))).await;
    assert_eq!((report.delivered, report.lost), (30, 0));
    assert_eq!(effects(&fixture).await, (0..30).collect::<Vec<_>>());
    assert_empty(&fixture, "orders").await;
}

/// A failed handler leaves no effect; after the retry there is one effect.
pub async fn a_failure_rolls_back_its_effects<F: TransactFixture>(fixture: F) {
    stage(&fixture, &orders(10)).await;
    let odd = |number| if number % 2 == 1 { Err(Failure::retry("odd")) } else { Ok(()) };
    let report = handle_all(&fixture, with_effect(&fixture, odd)).await;
    assert_eq!((report.delivered, report.retried), (5, 5));
    assert_eq!(effects(&fixture).await, [0, 2, 4, 6, 8]);
    fixture.advance(minutes(5)).await;
    handle_all(&fixture, with_effect(&fixture, |_| Ok(()))).await;
    assert_eq!(effects(&fixture).await, (0..10).collect::<Vec<_>>());
}

/// A handler whose lease was lost has no effect, although it succeeded.
pub async fn a_lost_lease_rolls_back_its_effects<F: TransactFixture>(fixture: F) {
    stage(&fixture, &orders(1)).await;
    let fixture = Arc::new(fixture);
    let (builder, probe) = instrumented_worker(&*fixture);
    let stolen = Arc::new(Mutex::new(Vec::new()));
    let (victim, loot) = (Arc::clone(&fixture), Arc::clone(&stolen));
    *probe.thief.lock().unwrap() = Some(Box::new(move || {
        Box::pin(async move {
            expire_leases(&*victim).await;
            let claimed = claim_all(&victim.another_store().await, "orders").await;
            *loot.lock().unwrap() = claimed;
        })
    }));
    let report =
        builder.queue(with_effect(&*fixture, |_| Ok(()))).build().unwrap().run_until_idle().await.unwrap();
    assert_eq!((report.delivered, report.lost), (0, 1));
    assert_accounted_for(&report);
    assert!(effects(&*fixture).await.is_empty());
    let stolen = std::mem::take(&mut *stolen.lock().unwrap());
    done(&fixture.store(), &stolen).await;
}

/// A handler that does not return its transaction has failed: nothing is committed.
pub async fn a_transaction_kept_by_its_handler_is_a_failure<F: TransactFixture>(fixture: F) {
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    let kept = Arc::new(Mutex::new(None));
    let keeping = Arc::clone(&kept);
    let queue = Queue::new("orders").retry(three_times()).on_in_transaction(
        &fixture.transactions(),
        move |_: Order, tx: Tx<F::Tx>, _: Context| {
            *keeping.lock().unwrap() = Some(tx);
            async { Ok::<(), Failure>(()) }
        },
    );
    let running = worker(&fixture, queue).start();
    eventually(async || kept.lock().unwrap().is_some()).await;
    // SQLite has one writer: while the handler keeps the transaction, no other can settle.
    drop(kept.lock().unwrap().take());
    eventually(async || running.report().retried == 1).await;
    assert!(running.stop(minutes(1)).await.clean);
    assert_eq!(
        entry_in(&fixture, "orders", id, State::Scheduled).await.error.as_deref(),
        Some("TransactionKept")
    );
}

/// On an ordered queue with handlers of both kinds nothing overtakes: a transactional settlement, which commits at once, waits for
/// buffered settlements before it.
pub async fn plain_and_transactional_handlers_keep_the_order_of_a_key<F: TransactFixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let messages: Vec<_> = (0..40)
        .map(|number| {
            let message = Order { number }.message().key("key");
            if number % 3 == 0 { message.event_type("order.plain") } else { message }.build().unwrap()
        })
        .collect();
    stage(&fixture, &messages).await;
    let seen = Seen::default();
    let (plain, transactional) = (seen.clone(), seen.clone());
    let runs = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&runs);
    let queue = Queue::new("orders")
        .on_in_transaction(&fixture.transactions(), move |order: Order, _: Tx<F::Tx>, _: Context| {
            transactional.note(order.number);
            async { Ok::<(), Failure>(()) }
        })
        .on_json(move |order: Order, _: Context| {
            counting.fetch_add(1, SeqCst);
            plain.note(order.number);
            async { Ok::<(), Failure>(()) }
        });
    let report = handle_all(&fixture, queue).await;
    assert_eq!((report.delivered, report.lost, runs.load(SeqCst)), (40, 0, 14));
    assert_eq!(seen.numbers(), (0..40).collect::<Vec<_>>());
}
