//! Every committed message reaches its handler, and nothing else does (promises 1, 2 and 7).

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    Event, Message, Outbox, QueuePolicy, Reason, RetryStrategy, State, inspect::StateFilter,
};
use postrider_engine::{Context, Failure, Queue, Worker, worker::OnUnknownType};
use std::sync::{Arc, Mutex};

/// Promise 2: every committed message is handled, once if nothing fails, and leaves nothing.
pub async fn every_committed_message_is_handled_once<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(500)).await;
    let seen = Seen::default();
    let report = handle_all(&fixture, noting(&seen).concurrency(8)).await;
    assert_eq!((report.claimed, report.delivered), (500, 500));
    assert_eq!(seen.sorted(), (0..500).collect::<Vec<_>>());
    assert_empty(&fixture, "orders").await;
}

/// Promise 1: a message whose transaction was rolled back reaches no handler.
pub async fn a_rolled_back_message_is_never_handled<F: Fixture>(fixture: F) {
    let mut tx = fixture.begin().await;
    fixture.outbox().stage_all(&mut tx, &orders(3)).await.unwrap();
    fixture.rollback(tx).await;
    let seen = Seen::default();
    assert_eq!(handle_all(&fixture, noting(&seen)).await.claimed, 0);
    assert_eq!(seen.len(), 0);
}

/// A handler receives its event and the context of its message.
pub async fn an_event_is_handled_typed_and_with_its_context<F: Fixture>(fixture: F) {
    let message =
        Order { number: 17 }.message().key("order-17").header("color", "blue").correlation_id("request-1");
    let id = stage_one(&fixture, message).await;
    let told = Arc::new(Mutex::new(None));
    let telling = Arc::clone(&told);
    let queue = Queue::new("orders").on(move |order: Order, context: Context| {
        let follow = context.follow(Message::builder("next")).build().unwrap();
        assert!(context.deadline().is_some() && !context.cancellation().is_cancelled());
        let key = context.message().key().unwrap().to_string();
        *telling.lock().unwrap() =
            Some((order, context.id(), context.attempt(), context.deliveries(), key, follow));
        async { Ok::<(), Failure>(()) }
    });
    handle_all(&fixture, queue).await;

    let (order, told_id, attempt, deliveries, key, follow) = told.lock().unwrap().take().unwrap();
    assert_eq!((order.number, told_id, attempt, deliveries, key.as_str()), (17, id, 1, 1, "order-17"));
    assert_eq!(follow.trail().causation_id, Some(id.to_string()));
    assert_eq!(follow.trail().correlation_id.as_deref(), Some("request-1"));
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Cancelled {
    number: u64,
}

impl Event for Cancelled {
    const TYPE: &'static str = "order.cancelled";
    const QUEUE: &'static str = "orders";
    type Codec = postrider_core::Json;
}

/// Several event types of one queue each have a handler, and a catch-all handler takes the rest.
pub async fn events_are_dispatched_to_their_handlers<F: Fixture>(fixture: F) {
    stage_one(&fixture, &Order { number: 1 }).await;
    stage_one(&fixture, &Cancelled { number: 2 }).await;
    stage_one(&fixture, message("orders").payload("3")).await;
    let (placed, cancelled, others) = (Seen::default(), Seen::default(), Seen::default());
    let (noting_cancelled, noting_others) = (cancelled.clone(), others.clone());
    let queue = noting(&placed)
        .on(move |event: Cancelled, _: Context| {
            noting_cancelled.note(event.number);
            async { Ok::<(), Failure>(()) }
        })
        .on_json(move |number: u64, _: Context| {
            noting_others.note(number);
            async { Ok::<(), Failure>(()) }
        });
    assert_eq!(handle_all(&fixture, queue).await.delivered, 3);
    assert_eq!((placed.numbers(), cancelled.numbers(), others.numbers()), (vec![1], vec![2], vec![3]));
}

/// Promise 7: an undecodable message is dead-lettered at once, and the others are handled.
pub async fn an_undecodable_payload_is_dead_lettered_and_blocks_nothing<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(2)).await;
    let bad = stage_one(&fixture, message("orders").event_type(Order::TYPE).payload("{\"number\":")).await;
    stage_one(&fixture, &Order { number: 2 }).await;
    let seen = Seen::default();
    let report = handle_all(&fixture, noting(&seen)).await;
    assert_eq!((report.delivered, report.dead, report.retried), (3, 1, 0));
    assert_eq!(seen.sorted(), [0, 1, 2]);
    let entry = entry_in(&fixture, "orders", bad, State::Dead).await;
    assert_eq!(entry.reason, Some(Reason::Undecodable));
    assert_eq!(entry.error.as_deref(), Some("CodecError"));
}

/// A type without a handler is dead-lettered: visible, and stored until there is one.
pub async fn an_unknown_type_is_dead_lettered<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, &Cancelled { number: 1 }).await;
    assert_eq!(handle_all(&fixture, noting(&Seen::default())).await.dead, 1);
    let entry = entry_in(&fixture, "orders", id, State::Dead).await;
    assert_eq!(entry.reason, Some(Reason::Rejected));
    assert_eq!(entry.error.as_deref(), Some("UnknownType"));
}

/// The policy for unknown types can be changed.
pub async fn an_unknown_type_can_be_retried_or_ignored<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, &Cancelled { number: 1 }).await;
    let queue = noting(&Seen::default()).on_unknown(OnUnknownType::Retry);
    assert_eq!(handle_all(&fixture, queue.retry(RetryStrategy::constant(minutes(5)))).await.retried, 1);
    assert_eq!(entry_in(&fixture, "orders", id, State::Scheduled).await.attempts, 1);
    fixture.advance(minutes(5)).await;
    let queue = noting(&Seen::default()).on_unknown(OnUnknownType::Ignore);
    assert_eq!(handle_all(&fixture, queue).await.delivered, 1);
    assert_empty(&fixture, "orders").await;
}

/// Shared state of a worker is available to all of its handlers; missing state is an error that names it.
pub async fn shared_state_reaches_every_handler<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(1)).await;
    let queue = Queue::new("orders").on(|order: Order, context: Context| async move {
        context.shared::<Seen>()?.note(order.number);
        let missing = context.shared::<String>().unwrap_err().to_string();
        assert!(missing.contains("String") && missing.contains("`share`"), "{missing}");
        Ok::<(), Failure>(())
    });
    let seen = Seen::default();
    let worker = Worker::builder_on(fixture.store()).without_notifications();
    let report = worker.share(seen.clone()).queue(queue).build().unwrap().run_until_idle().await.unwrap();
    assert_eq!((report.delivered, seen.len()), (1, 1));
}

/// `run_until_idle` also handles messages that handlers stage, in whatever queue.
pub async fn messages_staged_by_handlers_are_handled<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(1)).await;
    let fixture = Arc::new(fixture);
    let staging = Arc::clone(&fixture);
    let first = Queue::new("orders").on(move |order: Order, context: Context| {
        let fixture = Arc::clone(&staging);
        async move {
            if order.number < 20 {
                let next = Order { number: order.number + 1 };
                stage_one(&*fixture, context.follow(next.message())).await;
                stage_one(&*fixture, message("others").payload(order.number.to_string())).await;
            }
            Ok::<(), Failure>(())
        }
    });
    let others = Seen::default();
    let noting_others = others.clone();
    let second = Queue::new("others").on_json(move |number: u64, _: Context| {
        noting_others.note(number);
        async { Ok::<(), Failure>(()) }
    });
    let worker = Worker::builder_on(fixture.store()).without_notifications().queue(first).queue(second);
    let report = worker.build().unwrap().run_until_idle().await.unwrap();
    assert_eq!(report.delivered, 41);
    assert_eq!(others.sorted(), (0..20).collect::<Vec<_>>());
}

/// `run_until_idle` does not wait for scheduled messages.
pub async fn a_message_that_is_not_due_is_not_handled<F: Fixture>(fixture: F) {
    stage_one(&fixture, Order { number: 1 }.message().due_after(minutes(10))).await;
    let seen = Seen::default();
    assert_eq!(handle_all(&fixture, noting(&seen)).await.claimed, 0);
    fixture.advance(minutes(10)).await;
    assert_eq!(handle_all(&fixture, noting(&seen)).await.delivered, 1);
}

/// A worker declares the policies of its queues; a queue with an archive archives under a worker as well.
pub async fn a_queue_archives_as_its_policy_says<F: Fixture>(fixture: F) {
    let queue = noting(&Seen::default()).policy(QueuePolicy::default().with_keep_for(minutes(60)));
    let worker = worker(&fixture, queue);
    worker.declare().await.unwrap();
    stage(&fixture, &orders(2)).await;
    worker.run_until_idle().await.unwrap();
    assert_eq!(list(&fixture, "orders", StateFilter::Done).await.len(), 2);
}

/// `run_batch` claims once from each queue, and returns when the claimed messages are settled.
pub async fn a_batch_is_one_claim_per_queue<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(7)).await;
    stage(&fixture, &numbered("letters", 2)).await;
    let (handled, read) = (Seen::default(), Seen::default());
    let note_letter = read.clone();
    let letters = Queue::new("letters").concurrency(3).prefetch(3).on_any(move |_: Context| {
        note_letter.note(1);
        async { Ok::<(), Failure>(()) }
    });
    let worker = Worker::builder_on(fixture.store())
        .queue(noting(&handled).concurrency(3).prefetch(3))
        .queue(letters)
        .build()
        .unwrap();
    let mut batches = Vec::new();
    for _ in 0..4 {
        let report = worker.run_batch().await.unwrap();
        assert_eq!((report.claimed, report.in_flight), (report.delivered, 0));
        batches.push(report.claimed);
    }
    assert_eq!(batches, [5, 3, 1, 0], "three orders and two letters, three orders, one order");
    assert_eq!((handled.sorted(), read.len()), ((0..7).collect(), 2));
    assert_empty(&fixture, "orders").await;
}
