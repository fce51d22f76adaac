//! Answers that are lost, and how a consumer stops (promise 9).

use super::{ConsumerFixture, Deaf, helpers::*};
use postrider_core::{Message, OutboxExt};
use postrider_engine::{Context, Failure};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::sync::Semaphore;

/// The broker does not hear that a message is done with. Others are handled all the same, and that one comes again as a duplicate.
pub async fn an_answer_that_fails_stops_nothing<F: ConsumerFixture>(fixture: F) {
    let deaf = Arc::new(Deaf::to(fixture.source().await, 1));
    let consumer = with_effect(billing_on(&fixture, deaf), &fixture, |_| Ok(()));
    fixture.send(orders(1, &fixture.place())).await;
    let running = consumer.start().await.unwrap();
    until("the first", || running.consumed().processed == 1).await;
    let more = orders(11, &fixture.place()).split_off(1);
    fixture.send(more).await;
    until("the others", || running.consumed().processed == 11).await;
    let drained = patiently("stopping", running.shutdown(Duration::from_secs(60))).await;
    assert!(drained.is_clean, "{drained:?}");
    assert_eq!(drained.consumed.failed, 0);
    assert_eq!(effects(&fixture).await, (0..11).collect::<Vec<_>>());
}

/// Nobody has to send something first.
pub async fn an_idle_consumer_stops_at_once<F: ConsumerFixture>(fixture: F) {
    let consumer = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    let running = consumer.start().await.unwrap();
    let drained = patiently("stopping", running.shutdown(Duration::from_secs(600))).await;
    assert!(drained.is_clean, "{drained:?}");
    assert_eq!(drained.consumed, postrider_engine::Consumed::default());
}

/// What runs may finish, and what nobody has begun goes back: together they are all, and each once.
pub async fn a_stop_finishes_what_is_in_hand_and_gives_back_the_rest<F: ConsumerFixture>(fixture: F) {
    let gate = Arc::new(Semaphore::new(0));
    let begun = Times::default();
    let (outbox, waiting, counted) = (fixture.outbox(), Arc::clone(&gate), begun.clone());
    let slow = billing(&fixture)
        .await
        .concurrency(2)
        .together(1)
        .on_json(move |number: u64, mut tx: Lent<F>, _: Context| {
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
    fixture.send(orders(10, &fixture.place())).await;
    let running = slow.start().await.unwrap();
    until("the first", || begun.get() >= 1).await;
    let stopping = tokio::spawn(async move { running.shutdown(Duration::from_secs(60)).await });
    gate.add_permits(2);
    let drained = patiently("stopping", stopping).await.unwrap();
    assert!(drained.is_clean, "{drained:?}");
    let ran = effects(&fixture).await;
    assert_eq!(ran.len() as u64, drained.consumed.processed);
    assert!((1..=2).contains(&ran.len()), "{ran:?}");

    let rest = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    let left = 10 - ran.len() as u64;
    run_until::<F>(&rest, |consumed| consumed.processed == left).await;
    assert_eq!(effects(&fixture).await, (0..10).collect::<Vec<_>>());
}

/// A process that dies in the middle.
pub async fn a_consumer_that_is_dropped_loses_nothing<F: ConsumerFixture>(fixture: F) {
    let consumer = with_effect(billing(&fixture).await.concurrency(2).together(3), &fixture, |_| Ok(()));
    fixture.send(orders(50, &fixture.place())).await;
    let running = consumer.start().await.unwrap();
    until("some", || running.consumed().processed >= 1).await;
    running.abort().await;
    // The source is held by the consumer, and goes with it.
    drop(consumer);
    let rest = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    let running = rest.start().await.unwrap();
    patiently("the rest", async {
        while effects(&fixture).await.len() < 50 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    patiently("stopping", running.shutdown(Duration::from_secs(60))).await;
    let effects = effects(&fixture).await;
    assert_eq!(effects.iter().collect::<BTreeSet<_>>().len(), effects.len(), "{effects:?}");
}
