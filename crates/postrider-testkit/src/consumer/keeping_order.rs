//! Keys, where the source keeps their order.

use super::{ConsumerFixture, helpers::*};
use postrider_engine::Failure;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

/// Each key has its effects in the order in which they were sent, though some of them fail once or twice on the way.
pub async fn a_key_keeps_its_order_through_failures<F: ConsumerFixture>(fixture: F) {
    if !fixture.keeps_order() {
        return;
    }
    let runs: Arc<Mutex<HashMap<u64, usize>>> = Arc::default();
    let ended: Arc<Mutex<Vec<u64>>> = Arc::default();
    let (counted, order) = (Arc::clone(&runs), Arc::clone(&ended));
    let decide = move |number| {
        let mut counted = counted.lock().unwrap();
        let runs = counted.entry(number).or_default();
        *runs += 1;
        if number % 7 == 3 && *runs <= 2 {
            return Err(Failure::retry("not yet"));
        }
        // What a batch does is done again when another message of it fails, and counts the last time.
        let mut order = order.lock().unwrap();
        order.retain(|other| *other != number);
        order.push(number);
        Ok(())
    };
    let consumer = with_effect(billing(&fixture).await.concurrency(4).together(5), &fixture, decide);
    fixture.send(orders(60, &fixture.place())).await;
    run_until::<F>(&consumer, |consumed| consumed.processed == 60).await;
    assert_eq!(effects(&fixture).await, (0..60).collect::<Vec<_>>());
    let order = ended.lock().unwrap().clone();
    for key in 0..5 {
        let of_key: Vec<_> = order.iter().filter(|number| *number % 5 == key).collect();
        assert!(of_key.is_sorted(), "key {key}: {of_key:?}");
    }
}

/// A message that always fails is parked in the end. What was handed back behind it, every time, was never run, and is not given up.
pub async fn what_waits_behind_poison_is_not_parked_for_it<F: ConsumerFixture>(fixture: F) {
    if !fixture.keeps_order() {
        return;
    }
    let decide = |number| if number == 0 { Err(Failure::retry("always")) } else { Ok(()) };
    let builder = billing(&fixture).await.concurrency(1).max_deliveries(3);
    let consumer = with_effect(builder, &fixture, decide);
    // All of one key: number 0 is in front of the others.
    let sent = orders(50, &fixture.place()).into_iter().step_by(5).collect();
    fixture.send(sent).await;
    let consumed =
        run_until::<F>(&consumer, |consumed| consumed.processed == 9 && consumed.parked >= 1).await;
    assert_eq!(consumed.parked, 1);
    assert_eq!(effects_in_order(&fixture).await, (1..10).map(|number| number * 5).collect::<Vec<_>>());
}
