//! On a queue ordered by key, handlers run in order, one at a time for each key (decision "ordering").

use super::helpers::*;
use crate::Fixture;
use postrider_core::{Event, OnFailure, QueuePolicy, inspect::StateFilter};
use postrider_engine::{Context, Failure, Queue};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

/// The handled numbers by key, in the order of completion; asserts that no key runs twice at a time.
#[derive(Debug, Clone, Default)]
struct Runs(Arc<Mutex<HashMap<String, Run>>>);

/// The runs of one key.
#[derive(Debug, Default)]
struct Run {
    is_running: bool,
    ended: Vec<u64>,
}

impl Runs {
    fn begin(&self, key: &str) {
        let mut runs = self.0.lock().unwrap();
        let run = runs.entry(key.to_owned()).or_default();
        assert!(!std::mem::replace(&mut run.is_running, true), "two of {key} run at once");
    }

    fn end(&self, key: &str, number: u64) {
        let mut runs = self.0.lock().unwrap();
        let run = runs.get_mut(key).unwrap();
        run.is_running = false;
        run.ended.push(number);
    }

    fn of(&self, key: &str) -> Vec<u64> {
        self.0.lock().unwrap().get(key).map(|run| run.ended.clone()).unwrap_or_default()
    }
}

/// The queue of orders, whose handlers record their runs and return a result by number.
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

/// At any concurrency: in order, and one at a time for each key.
pub async fn a_key_runs_in_order_and_one_at_a_time<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let mut messages = Vec::new();
    for number in 0..40 {
        messages
            .extend((0..10).map(|key| Order { number }.message().key(format!("key-{key}")).build().unwrap()));
    }
    stage(&fixture, &messages).await;
    let runs = Runs::default();
    let report = handle_all(&fixture, ordered(&runs, |_| Ok(())).concurrency(8)).await;
    assert_eq!((report.delivered, report.lost), (400, 0));
    for key in 0..10 {
        assert_eq!(runs.of(&format!("key-{key}")), (0..40).collect::<Vec<_>>());
    }
    assert_empty(&fixture, "orders").await;
}

/// A failure blocks its own key, which keeps its order, and no other.
pub async fn a_failed_head_blocks_its_key_and_nothing_else<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    stage(&fixture, &orders_of("bad", 6)).await;
    let good: Vec<_> =
        (10..16).map(|number| Order { number }.message().key("good").build().unwrap()).collect();
    stage(&fixture, &good).await;
    let runs = Runs::default();
    let report =
        handle_all(&fixture, ordered(&runs, |n| if n == 2 { Err("not yet".into()) } else { Ok(()) })).await;
    assert_eq!((report.delivered, report.retried, report.lost), (8, 1, 0));
    assert_eq!((runs.of("bad"), runs.of("good")), (vec![0, 1, 2], (10..16).collect()));

    fixture.advance(minutes(5)).await;
    assert_eq!(handle_all(&fixture, ordered(&runs, |_| Ok(()))).await.delivered, 4);
    assert_eq!(runs.of("bad"), [0, 1, 2, 2, 3, 4, 5]);
    assert_empty(&fixture, "orders").await;
}

/// Under the policy *skip*, a permanently failed message becomes a dead letter and its key continues.
pub async fn a_rejected_head_is_skipped_under_the_skip_policy<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Skip)).await;
    stage(&fixture, &orders_of("key", 6)).await;
    let runs = Runs::default();
    let reject = |n| if n == 2 { Err(Failure::reject("never")) } else { Ok(()) };
    let report = handle_all(&fixture, ordered(&runs, reject)).await;
    assert_eq!((report.delivered, report.dead, report.lost), (5, 1, 0));
    assert_eq!(runs.of("key"), [0, 1, 2, 3, 4, 5]);
    assert_eq!(list(&fixture, "orders", StateFilter::Dead).await.len(), 1);
}

/// A stop releases the rest of a turn, and the next worker continues there.
pub async fn a_stop_in_the_middle_of_a_turn_keeps_the_order<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    stage(&fixture, &orders_of("key", 10)).await;
    stage_one(&fixture, Order { number: 100 }.message().key("other")).await;
    let (barrier, seen) = (Barrier::closed(), Seen::default());
    let (waiting, noting_seen) = (barrier.clone(), seen.clone());
    let queue = Queue::new("orders").prefetch(20).concurrency(1).on(move |order: Order, _: Context| {
        let (barrier, seen) = (waiting.clone(), noting_seen.clone());
        async move {
            barrier.pass().await;
            seen.note(order.number);
            Ok::<(), Failure>(())
        }
    });
    let running = worker(&fixture, queue).start();
    barrier.open(2);
    barrier.wait_for_arrivals(3).await;
    let stopping = tokio::spawn(running.stop(minutes(1)));
    // The running handler continues after the stop has begun: messages that had not started are released by then.
    let mut free = Vec::new();
    eventually(async || {
        free = claim(&fixture.another_store().await, "orders", 10).await;
        !free.is_empty()
    })
    .await;
    barrier.open(1);
    let stopped = stopping.await.unwrap();
    assert!(stopped.clean);
    assert_accounted_for(&stopped.report);
    assert_eq!((seen.numbers(), barrier.arrivals()), (vec![0, 1, 2], 3));
    done(&fixture.store(), &free).await;
    handle_all(&fixture, noting(&seen)).await;
    assert_eq!(seen.numbers(), (0..10).collect::<Vec<_>>());
    assert_empty(&fixture, "orders").await;
}
