//! Transactional handlers: one effect for each message, without an inbox (promise 3).

use super::helpers::*;
use crate::{Fixture, TransactFixture};
use postrider_core::{Event, OnFailure, OutboxExt, QueuePolicy, State, inspect::Room};
use postrider_engine::{Context, Failure, Queue, Tx};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

/// The queue of orders, whose handlers stage an effect in their transaction and then decide by number.
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
    let effects = list(fixture, "effects", Room::Ready).await;
    let mut numbers: Vec<u64> = effects
        .iter()
        .map(|entry| std::str::from_utf8(entry.message.payload()).unwrap().parse().unwrap())
        .collect();
    numbers.sort_unstable();
    numbers
}

/// What a handler stages and the end of its message commit together.
pub async fn effects_and_the_end_of_a_message_commit_together<F: TransactFixture>(fixture: F) {
    stage(&fixture, &orders(30)).await;
    let tally = handle_all(&fixture, with_effect(&fixture, |_| Ok(()))).await;
    assert_eq!((tally.delivered, tally.lost), (30, 0));
    assert_eq!(effects(&fixture).await, (0..30).collect::<Vec<_>>());
    assert_empty(&fixture, "orders").await;
}

/// A handler that fails leaves nothing of what it did; tried again, it has one effect.
pub async fn a_failure_undoes_its_effects<F: TransactFixture>(fixture: F) {
    stage(&fixture, &orders(10)).await;
    let odd = |number| if number % 2 == 1 { Err(Failure::retry("odd")) } else { Ok(()) };
    let tally = handle_all(&fixture, with_effect(&fixture, odd)).await;
    assert_eq!((tally.delivered, tally.retried), (5, 5));
    assert_eq!(effects(&fixture).await, [0, 2, 4, 6, 8]);
    fixture.advance(minutes(5)).await;
    handle_all(&fixture, with_effect(&fixture, |_| Ok(()))).await;
    assert_eq!(effects(&fixture).await, (0..10).collect::<Vec<_>>());
}

/// A handler whose message was taken by somebody else has no effect, though it succeeded.
pub async fn a_lost_lease_undoes_its_effects<F: TransactFixture>(fixture: F) {
    stage(&fixture, &orders(1)).await;
    let fixture = Arc::new(fixture);
    let (builder, watch) = watched(&*fixture);
    let stolen = Arc::new(Mutex::new(Vec::new()));
    let (victim, loot) = (Arc::clone(&fixture), Arc::clone(&stolen));
    *watch.thief.lock().unwrap() = Some(Box::new(move || {
        Box::pin(async move {
            lapse(&*victim).await;
            let claimed = claim_all(&victim.another_store().await, "orders").await;
            *loot.lock().unwrap() = claimed;
        })
    }));
    let tally =
        builder.queue(with_effect(&*fixture, |_| Ok(()))).build().unwrap().run_until_idle().await.unwrap();
    assert_eq!((tally.delivered, tally.lost), (0, 1));
    assert_accounted_for(&tally);
    assert!(effects(&*fixture).await.is_empty());
    let stolen = std::mem::take(&mut *stolen.lock().unwrap());
    done(&fixture.store(), &stolen).await;
}

/// A handler that does not give its transaction back has failed: nothing is committed behind its back.
pub async fn a_kept_transaction_is_a_failure<F: TransactFixture>(fixture: F) {
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
    // SQLite has one writer: while the transaction is kept, nobody else can settle anything.
    drop(kept.lock().unwrap().take());
    eventually(async || running.tally().retried == 1).await;
    assert!(running.shutdown(minutes(1)).await.is_clean);
    assert_eq!(
        entry_in(&fixture, "orders", id, State::Waiting).await.error.as_deref(),
        Some("TransactionKept")
    );
}

/// On an ordered queue with handlers of both kinds nothing overtakes: what is settled later never waits behind what is
/// committed at once.
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
    let tally = handle_all(&fixture, queue).await;
    assert_eq!((tally.delivered, tally.lost, runs.load(SeqCst)), (40, 0, 14));
    assert_eq!(seen.numbers(), (0..40).collect::<Vec<_>>());
}
