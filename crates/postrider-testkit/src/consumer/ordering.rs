//! Ordering by key, for sources that keep it.

use super::{ConsumerFixture, helpers::*};
use postrider_engine::Failure;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

/// The effects of each key are in the order sent, although some messages fail once or twice.
pub async fn a_key_keeps_its_order_through_failures<F: ConsumerFixture>(fixture: F) {
    assert!(fixture.keeps_order(), "the suite of an unordered source leaves this case out");
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
        // A batch is handled again when another message of it fails; the last time counts.
        let mut order = order.lock().unwrap();
        order.retain(|other| *other != number);
        order.push(number);
        Ok(())
    };
    let consumer = with_effect(billing(&fixture).await.concurrency(4).batch_size(5), &fixture, decide);
    fixture.send(orders(60, &fixture.address())).await;
    run_until::<F>(&consumer, |report| report.delivered == 60).await;
    assert_eq!(effects(&fixture).await, (0..60).collect::<Vec<_>>());
    let order = ended.lock().unwrap().clone();
    for key in 0..5 {
        let of_key: Vec<_> = order.iter().filter(|number| *number % 5 == key).collect();
        assert!(of_key.is_sorted(), "key {key}: {of_key:?}");
    }
}

/// A message that always fails is dead-lettered in the end. Messages that were nacked behind it were never handled, and are not
/// dead-lettered.
pub async fn messages_behind_a_poison_message_are_not_dead_lettered<F: ConsumerFixture>(fixture: F) {
    assert!(fixture.keeps_order(), "the suite of an unordered source leaves this case out");
    let decide = |number| if number == 0 { Err(Failure::retry("always")) } else { Ok(()) };
    let builder = billing(&fixture).await.concurrency(1).max_deliveries(3);
    let consumer = with_effect(builder, &fixture, decide);
    // All of one key: number 0 is ahead of the others.
    let sent = orders(50, &fixture.address()).into_iter().step_by(5).collect();
    fixture.send(sent).await;
    let report = run_until::<F>(&consumer, |report| report.delivered == 9 && report.dead >= 1).await;
    assert_eq!(report.dead, 1);
    assert_eq!(effects_in_order(&fixture).await, (1..10).map(|number| number * 5).collect::<Vec<_>>());
}
