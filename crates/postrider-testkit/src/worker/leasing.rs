//! One owner at a time, for as long as it works (promise 4 and the decision "long work").

use super::helpers::*;
use crate::Fixture;
use postrider_core::State;
use postrider_engine::{Context, Failure, Queue};
use std::{sync::atomic::Ordering::SeqCst, time::Duration};

/// Long enough that a busy machine does not lose it, short enough to be renewed within a case.
const SHORT_LEASE: Duration = Duration::from_millis(1500);

/// The queue of orders, whose handlers wait at a door.
fn waiting_at(door: &Door) -> Queue {
    let door = door.clone();
    Queue::new("orders").on(move |_: Order, _: Context| {
        let door = door.clone();
        async move {
            door.pass().await;
            Ok::<(), Failure>(())
        }
    })
}

/// The queue of orders, whose handlers come to a door and then wait until they are told that their lease is lost.
fn waiting_for_loss(door: &Door) -> Queue {
    let door = door.clone();
    Queue::new("orders").on(move |_: Order, context: Context| {
        let door = door.clone();
        async move {
            door.pass().await;
            context.cancellation().cancelled().await;
            Ok::<(), Failure>(())
        }
    })
}

/// Decision "long work": what runs and what waits for its turn stays ours for as long as that takes.
pub async fn a_lease_is_renewed_while_its_message_is_in_hand<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(2)).await;
    let door = Door::closed();
    let (builder, watch) = watched(&fixture);
    let queue = waiting_at(&door).concurrency(1).lease_for(SHORT_LEASE);
    let running = builder.queue(queue).build().unwrap().start();
    door.waited_at_by(1).await;
    // By then the first term is over.
    at_least(&watch.renewals, 4).await;
    assert_nothing_due(&fixture.another_store().await, "orders").await;
    door.open(2);
    eventually(async || running.tally().delivered == 2).await;
    assert_eq!(running.shutdown(minutes(1)).await.tally.lost, 0);
    assert_empty(&fixture, "orders").await;
}

/// Promise 4: whoever lost its lease is told, and changes nothing any more.
pub async fn a_lost_lease_cancels_its_handler_and_changes_nothing<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    let door = Door::closed();
    door.open(1);
    // With no room for another, it cannot be the one to take it again.
    let queue = waiting_for_loss(&door).lease_for(SHORT_LEASE).concurrency(1).prefetch(1);
    let running = worker(&fixture, queue).start();
    door.waited_at_by(1).await;
    fixture.advance(minutes(1)).await;
    // The worker renews as soon as it can, and either of the two has it then.
    let other = fixture.another_store().await;
    let mut stolen = claim(&other, "orders", 10).await;
    while stolen.is_empty() {
        fixture.advance(minutes(1)).await;
        stolen = claim(&other, "orders", 10).await;
    }
    eventually(async || running.tally().lost == 1).await;
    let stopped = running.shutdown(minutes(1)).await;
    assert_eq!((stopped.tally.delivered, stopped.tally.lost), (0, 1));
    assert_accounted_for(&stopped.tally);
    entry_in(&fixture, "orders", id, State::Leased).await;
    done(&other, &stolen).await;
    assert_empty(&fixture, "orders").await;
}

/// Promise 4: a process that cannot renew distrusts its leases before anybody else may take them. What nobody took is still its
/// own.
pub async fn a_store_that_cannot_renew_cancels_in_time<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(1)).await;
    let door = Door::closed();
    door.open(1);
    let (builder, watch) = watched(&fixture);
    watch.failing_renewals.store(usize::MAX, SeqCst);
    let queue = waiting_for_loss(&door).lease_for(Duration::from_millis(300));
    let running = builder.queue(queue.waits(minutes(60), minutes(60))).build().unwrap().start();
    eventually(async || running.tally().delivered == 1).await;
    assert_eq!(watch.renewals.load(SeqCst), 0);
    assert!(running.shutdown(minutes(1)).await.is_clean);
}

/// Decision "long work": a lease is renewed up to a limit; then its handler is told.
pub async fn a_lease_is_not_renewed_for_ever<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(1)).await;
    let door = Door::closed();
    door.open(1);
    let (builder, watch) = watched(&fixture);
    let queue =
        waiting_for_loss(&door).lease_for(Duration::from_millis(600)).hold_for(Duration::from_millis(1));
    let running = builder.queue(queue.waits(minutes(60), minutes(60))).build().unwrap().start();
    eventually(async || running.tally().delivered == 1).await;
    assert_eq!(watch.renewals.load(SeqCst), 0);
    assert!(running.shutdown(minutes(1)).await.is_clean);
}
