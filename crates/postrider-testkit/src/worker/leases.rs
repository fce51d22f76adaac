//! One owner at a time, for as long as it runs (promise 4 and the decision "long work").

use super::helpers::*;
use crate::Fixture;
use postrider_core::State;
use postrider_engine::{Context, Failure, Queue};
use std::{sync::atomic::Ordering::SeqCst, time::Duration};

/// Long enough that a busy machine does not lose it, short enough to be renewed within a case.
const SHORT_LEASE: Duration = Duration::from_millis(1500);

/// The queue of orders, whose handlers wait at a barrier.
fn waiting_on(barrier: &Barrier) -> Queue {
    let barrier = barrier.clone();
    Queue::new("orders").on(move |_: Order, _: Context| {
        let barrier = barrier.clone();
        async move {
            barrier.pass().await;
            Ok::<(), Failure>(())
        }
    })
}

/// The queue of orders, whose handlers pass a barrier and then wait until their lease is lost.
fn waiting_for_loss(barrier: &Barrier) -> Queue {
    let barrier = barrier.clone();
    Queue::new("orders").on(move |_: Order, context: Context| {
        let barrier = barrier.clone();
        async move {
            barrier.pass().await;
            context.cancellation().cancelled().await;
            Ok::<(), Failure>(())
        }
    })
}

/// Decision "long work": leases of running and of waiting messages are renewed for as long as necessary.
pub async fn a_lease_is_renewed_while_its_message_is_in_flight<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(2)).await;
    let barrier = Barrier::closed();
    let (builder, probe) = instrumented_worker(&fixture);
    let queue = waiting_on(&barrier).concurrency(1).lease_for(SHORT_LEASE);
    let running = builder.queue(queue).build().unwrap().start();
    barrier.wait_for_arrivals(1).await;
    // By then the original duration is over.
    at_least(&probe.renewals, 4).await;
    assert_nothing_due(&fixture.another_store().await, "orders").await;
    barrier.open(2);
    eventually(async || running.report().delivered == 2).await;
    assert_eq!(running.stop(minutes(1)).await.report.lost, 0);
    assert_empty(&fixture, "orders").await;
}

/// Promise 4: a handler that lost its lease is cancelled, and its settlement changes nothing.
pub async fn a_lost_lease_cancels_its_handler_and_changes_nothing<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    let barrier = Barrier::closed();
    barrier.open(1);
    // Without free capacity it cannot reclaim the message itself.
    let queue = waiting_for_loss(&barrier).lease_for(SHORT_LEASE).concurrency(1).prefetch(1);
    let running = worker(&fixture, queue).start();
    barrier.wait_for_arrivals(1).await;
    fixture.advance(minutes(1)).await;
    // The worker renews as soon as it can, and then either of the two has the lease.
    let other = fixture.another_store().await;
    let mut stolen = claim(&other, "orders", 10).await;
    while stolen.is_empty() {
        fixture.advance(minutes(1)).await;
        stolen = claim(&other, "orders", 10).await;
    }
    eventually(async || running.report().lost == 1).await;
    let stopped = running.stop(minutes(1)).await;
    assert_eq!((stopped.report.delivered, stopped.report.lost), (0, 1));
    assert_accounted_for(&stopped.report);
    entry_in(&fixture, "orders", id, State::Leased).await;
    done(&other, &stolen).await;
    assert_empty(&fixture, "orders").await;
}

/// Promise 4: a process that cannot renew stops trusting its leases before another process can reclaim them. Leases that were not
/// reclaimed are still valid.
pub async fn a_failing_renewal_cancels_the_handler_before_the_lease_expires<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(1)).await;
    let barrier = Barrier::closed();
    barrier.open(1);
    let (builder, probe) = instrumented_worker(&fixture);
    probe.failing_renewals.store(usize::MAX, SeqCst);
    let queue = waiting_for_loss(&barrier).lease_for(Duration::from_millis(300));
    let running = builder.queue(queue.poll_interval(minutes(60), minutes(60))).build().unwrap().start();
    eventually(async || running.report().delivered == 1).await;
    assert_eq!(probe.renewals.load(SeqCst), 0);
    assert!(running.stop(minutes(1)).await.clean);
}

/// Decision "long work": a lease is renewed up to a limit; then its handler is cancelled.
pub async fn a_lease_is_not_renewed_beyond_its_limit<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(1)).await;
    let barrier = Barrier::closed();
    barrier.open(1);
    let (builder, probe) = instrumented_worker(&fixture);
    let queue =
        waiting_for_loss(&barrier).lease_for(Duration::from_millis(600)).max_lease(Duration::from_millis(1));
    let running = builder.queue(queue.poll_interval(minutes(60), minutes(60))).build().unwrap().start();
    eventually(async || running.report().delivered == 1).await;
    assert_eq!(probe.renewals.load(SeqCst), 0);
    assert!(running.stop(minutes(1)).await.clean);
}
