//! Lost acks, and graceful shutdown of a consumer (promise 9).

use super::{ConsumerFixture, FaultySource, helpers::*};
use postrider_core::{Message, OutboxExt};
use postrider_engine::{Context, Failure};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::sync::Semaphore;

/// The ack of a message is lost. Others are handled, and that message is redelivered as a duplicate.
pub async fn a_failed_ack_does_not_stop_the_consumer<F: ConsumerFixture>(fixture: F) {
    let source = Arc::new(FaultySource::new(fixture.source().await).drop_acks(1));
    let consumer = with_effect(billing_on(&fixture, source), &fixture, |_| Ok(()));
    fixture.send(orders(1, &fixture.address())).await;
    let running = consumer.start();
    until("the first", || running.report().delivered == 1).await;
    let more = orders(11, &fixture.address()).split_off(1);
    fixture.send(more).await;
    until("the others", || running.report().delivered == 11).await;
    let drained = within_patience("stopping", running.stop(Duration::from_secs(60))).await;
    assert!(drained.clean, "{drained:?}");
    assert_eq!(drained.report.retried, 0);
    assert_eq!(effects(&fixture).await, (0..11).collect::<Vec<_>>());
}

/// The stop does not wait for the next message.
pub async fn an_idle_consumer_stops_at_once<F: ConsumerFixture>(fixture: F) {
    let consumer = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    let running = consumer.start();
    let drained = within_patience("stopping", running.stop(Duration::from_secs(600))).await;
    assert!(drained.clean, "{drained:?}");
    assert_eq!(drained.report, postrider_engine::Report::default());
}

/// Running handlers finish, and messages that have not started are nacked: together they are all messages, each once.
pub async fn a_stop_finishes_running_handlers_and_nacks_the_rest<F: ConsumerFixture>(fixture: F) {
    let gate = Arc::new(Semaphore::new(0));
    let begun = Times::default();
    let (outbox, waiting, counted) = (fixture.outbox(), Arc::clone(&gate), begun.clone());
    let slow = billing(&fixture)
        .await
        .concurrency(2)
        .batch_size(1)
        .on_json(move |number: u64, mut tx: HandlerTx<F>, _: Context| {
            let (outbox, waiting, counted) = (outbox.clone(), Arc::clone(&waiting), counted.clone());
            async move {
                counted.once_more();
                waiting.acquire().await.unwrap().forget();
                let effect = Message::builder("effects").payload(number.to_string());
                Box::pin(outbox.stage(&mut *tx, effect)).await?;
                Ok::<(), Failure>(())
            }
        })
        .build()
        .unwrap();
    fixture.send(orders(10, &fixture.address())).await;
    let running = slow.start();
    until("the first", || begun.get() >= 1).await;
    let stopping = tokio::spawn(async move { running.stop(Duration::from_secs(60)).await });
    gate.add_permits(2);
    let drained = within_patience("stopping", stopping).await.unwrap();
    assert!(drained.clean, "{drained:?}");
    let ran = effects(&fixture).await;
    assert_eq!(ran.len() as u64, drained.report.delivered);
    assert!((1..=2).contains(&ran.len()), "{ran:?}");

    let rest = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    let left = 10 - ran.len() as u64;
    run_until::<F>(&rest, |report| report.delivered == left).await;
    assert_eq!(effects(&fixture).await, (0..10).collect::<Vec<_>>());
}

/// A process that dies in the middle of its work.
pub async fn a_dropped_consumer_loses_nothing<F: ConsumerFixture>(fixture: F) {
    let consumer = with_effect(billing(&fixture).await.concurrency(2).batch_size(3), &fixture, |_| Ok(()));
    fixture.send(orders(50, &fixture.address())).await;
    let running = consumer.start();
    until("some", || running.report().delivered >= 1).await;
    running.abort().await;
    // The consumer owns the source, which is dropped with it.
    drop(consumer);
    let rest = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    let running = rest.start();
    within_patience("the rest", async {
        while effects(&fixture).await.len() < 50 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    within_patience("stopping", running.stop(Duration::from_secs(60))).await;
    let effects = effects(&fixture).await;
    assert_eq!(effects.iter().collect::<BTreeSet<_>>().len(), effects.len(), "{effects:?}");
}

/// `run_batch` handles and acks what one receive call returns, and leaves the source open for the next.
pub async fn a_batch_is_one_receive_call<F: ConsumerFixture>(fixture: F) {
    let consumer = with_effect(billing(&fixture).await.prefetch(4).batch_size(2), &fixture, |_| Ok(()));
    fixture.send(orders(10, &fixture.address())).await;
    let mut handled = 0;
    within_patience("all batches", async {
        while handled < 10 {
            let report = consumer.run_batch().await.unwrap();
            assert_eq!((report.claimed, report.in_flight), (report.delivered, 0), "{report:?}");
            assert!(report.claimed <= 4, "{report:?}");
            handled += report.claimed;
        }
    })
    .await;
    assert_eq!(effects(&fixture).await, (0..10).collect::<Vec<_>>());
    let last = within_patience("an empty batch", consumer.run_batch()).await.unwrap();
    assert_eq!(last, postrider_engine::Report::default(), "every message was acked");
}

/// `run_until_idle` ends when no message arrives any more and none is in flight.
pub async fn an_idle_consumer_ends_its_run<F: ConsumerFixture>(fixture: F) {
    let consumer = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    fixture.send(orders(5, &fixture.address())).await;
    let mut handled = 0;
    within_patience("all messages", async {
        // A broker may take longer than `idle_after` to deliver the first message.
        while handled < 5 {
            handled += consumer.run_until_idle().await.unwrap().delivered;
        }
    })
    .await;
    assert_eq!(effects(&fixture).await, (0..5).collect::<Vec<_>>());
}
