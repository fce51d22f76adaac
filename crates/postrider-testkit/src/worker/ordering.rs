//! On a queue ordered by key, handlers run in order, one at a time for each key (decision "ordering").

use super::helpers::*;
use crate::Fixture;
use postrider_core::{Event, OnFailure, QueuePolicy, inspect::Room};
use postrider_engine::{Context, Failure, Queue};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

/// What ran, by key, in the order in which it ended; and that no key ran twice at once.
#[derive(Debug, Clone, Default)]
struct Runs(Arc<Mutex<HashMap<String, Run>>>);

/// Whether a key runs now, and what of it has ended.
type Run = (bool, Vec<u64>);

impl Runs {
    fn begin(&self, key: &str) {
        let mut runs = self.0.lock().unwrap();
        let (is_running, _) = runs.entry(key.to_owned()).or_default();
        assert!(!std::mem::replace(is_running, true), "two of {key} run at once");
    }

    fn end(&self, key: &str, number: u64) {
        let mut runs = self.0.lock().unwrap();
        let (is_running, ended) = runs.get_mut(key).unwrap();
        *is_running = false;
        ended.push(number);
    }

    fn of(&self, key: &str) -> Vec<u64> {
        self.0.lock().unwrap().get(key).map(|(_, ended)| ended.clone()).unwrap_or_default()
    }
}

/// The queue of orders, whose handlers note what they do and decide by number.
fn ordered(runs: &Runs, decide: impl Fn(u64) -> Result<(), Failure> + Send + Sync + 'static) -> Queue {
    let runs = runs.clone();
    let decide = Arc::new(decide);
    Queue::new("orders").retry(three_times()).on(move |order: Order, context: Context| {
        let (runs, decide) = (runs.clone(), Arc::clone(&decide));
        async move {
            let key = context.message().key().unwrap().to_string();
            runs.begin(&key);
            tokio::task::yield_now().await;
            let result = decide(order.number);
            runs.end(&key, order.number);
            result
        }
    })
}

/// Whatever the concurrency: in order, and one at a time for each key.
pub async fn a_key_runs_in_order_and_one_at_a_time<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let mut messages = Vec::new();
    for number in 0..40 {
        messages
            .extend((0..10).map(|key| Order { number }.message().key(format!("key-{key}")).build().unwrap()));
    }
    stage(&fixture, &messages).await;
    let runs = Runs::default();
    let tally = handle_all(&fixture, ordered(&runs, |_| Ok(())).concurrency(8)).await;
    assert_eq!((tally.delivered, tally.lost), (400, 0));
    for key in 0..10 {
        assert_eq!(runs.of(&format!("key-{key}")), (0..40).collect::<Vec<_>>());
    }
    assert_empty(&fixture, "orders").await;
}

/// A failure holds up its own key, which waits in order, and nobody else.
pub async fn a_failed_head_blocks_its_key_and_nothing_else<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    stage(&fixture, &orders_of("bad", 6)).await;
    let good: Vec<_> =
        (10..16).map(|number| Order { number }.message().key("good").build().unwrap()).collect();
    stage(&fixture, &good).await;
    let runs = Runs::default();
    let tally =
        handle_all(&fixture, ordered(&runs, |n| if n == 2 { Err("not yet".into()) } else { Ok(()) })).await;
    assert_eq!((tally.delivered, tally.retried, tally.lost), (8, 1, 0));
    assert_eq!((runs.of("bad"), runs.of("good")), (vec![0, 1, 2], (10..16).collect()));

    fixture.advance(minutes(5)).await;
    assert_eq!(handle_all(&fixture, ordered(&runs, |_| Ok(()))).await.delivered, 4);
    assert_eq!(runs.of("bad"), [0, 1, 2, 2, 3, 4, 5]);
    assert_empty(&fixture, "orders").await;
}

/// Where the policy says *skip*, what failed for good becomes a dead letter and its key goes on.
pub async fn a_rejected_head_is_skipped_where_the_policy_says_so<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Skip)).await;
    stage(&fixture, &orders_of("key", 6)).await;
    let runs = Runs::default();
    let reject = |n| if n == 2 { Err(Failure::reject("never")) } else { Ok(()) };
    let tally = handle_all(&fixture, ordered(&runs, reject)).await;
    assert_eq!((tally.delivered, tally.dead, tally.lost), (5, 1, 0));
    assert_eq!(runs.of("key"), [0, 1, 2, 3, 4, 5]);
    assert_eq!(list(&fixture, "orders", Room::Dead).await.len(), 1);
}

/// A stop hands back what is left of a turn, and the next worker goes on where it ended.
pub async fn a_stop_in_the_middle_of_a_turn_keeps_the_order<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    stage(&fixture, &orders_of("key", 10)).await;
    stage_one(&fixture, Order { number: 100 }.message().key("other")).await;
    let (door, seen) = (Door::closed(), Seen::default());
    let (waiting, noting_seen) = (door.clone(), seen.clone());
    let queue = Queue::new("orders").prefetch(20).concurrency(1).on(move |order: Order, _: Context| {
        let (door, seen) = (waiting.clone(), noting_seen.clone());
        async move {
            door.pass().await;
            seen.note(order.number);
            Ok::<(), Failure>(())
        }
    });
    let running = worker(&fixture, queue).start();
    door.open(2);
    door.waited_at_by(3).await;
    let stopping = tokio::spawn(running.shutdown(minutes(1)));
    // The handler that runs is let go when the stop has begun: what nobody had begun with is free by then.
    let mut free = Vec::new();
    eventually(async || {
        free = claim(&fixture.another_store().await, "orders", 10).await;
        !free.is_empty()
    })
    .await;
    door.open(1);
    let stopped = stopping.await.unwrap();
    assert!(stopped.is_clean);
    assert_accounted_for(&stopped.tally);
    assert_eq!((seen.numbers(), door.visitors()), (vec![0, 1, 2], 3));
    done(&fixture.store(), &free).await;
    handle_all(&fixture, noting(&seen)).await;
    assert_eq!(seen.numbers(), (0..10).collect::<Vec<_>>());
    assert_empty(&fixture, "orders").await;
}
