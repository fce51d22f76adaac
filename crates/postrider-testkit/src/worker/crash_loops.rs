//! Processes that die again and again with messages in flight.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{Event, Reason, State, inspect::StateFilter};
use postrider_engine::{Context, Failure, Queue};
use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::{sync::Notify, time::sleep};

const ORDERS: usize = 300;

/// The queue of orders, all of them in flight at once, so that nothing is claimed any more when the worker dies. Its handlers never
/// return.
fn endless(begun: &Arc<AtomicUsize>) -> Queue {
    let begun = Arc::clone(begun);
    Queue::new("orders").concurrency(1).prefetch(ORDERS).on(move |_: Order, _: Context| {
        begun.fetch_add(1, SeqCst);
        pending::<Result<(), Failure>>()
    })
}

/// Lets a worker die when it has claimed every order and runs one of them.
async fn crash_with_everything_in_flight<F: Fixture>(fixture: &F) {
    let begun = Arc::default();
    let running = worker(fixture, endless(&begun)).start();
    eventually(async || running.report().claimed == ORDERS as u64 && begun.load(SeqCst) == 1).await;
    running.abort().await;
    expire_leases(fixture).await;
}

/// Promise 7: a crash counts for the message that was delivered, and not for those that were only in flight.
pub async fn a_crash_loop_dead_letters_no_prefetched_message<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(ORDERS as u64)).await;
    for _ in 0..27 {
        crash_with_everything_in_flight(&fixture).await;
    }
    let seen = Seen::default();
    let report = handle_all(&fixture, noting(&seen)).await;
    assert_eq!((report.delivered, report.dead), (ORDERS as u64, 0));
    assert_eq!(seen.sorted(), (0..ORDERS as u64).collect::<Vec<_>>());
}

/// Promise 7: a message that kills its process each time becomes a dead letter after a bounded number of crashes, and every other
/// message is delivered.
pub async fn a_message_that_kills_its_process_is_the_only_dead_letter<F: Fixture>(fixture: F) {
    const POISON: u64 = 7;
    const MAX_DELIVERIES: u32 = 3;
    let staged = stage(&fixture, &orders(ORDERS as u64)).await;
    let seen = Seen::default();
    let mut crashes = 0;
    loop {
        let killed = Arc::new(Notify::new());
        let queue = Queue::new("orders").concurrency(1).prefetch(2 * ORDERS).max_deliveries(MAX_DELIVERIES);
        let (kills, notes) = (Arc::clone(&killed), seen.clone());
        let queue = queue.on(move |order: Order, _: Context| {
            let (kills, notes) = (Arc::clone(&kills), notes.clone());
            async move {
                if order.number == POISON {
                    kills.notify_one();
                    pending::<()>().await;
                }
                notes.note(order.number);
                Ok::<(), Failure>(())
            }
        });
        let running = worker(&fixture, queue).start();
        let is_dead = loop {
            tokio::select! {
                () = killed.notified() => break false,
                () = until_dead_lettered(&running) => break true,
                // A claim of the last process may have arrived after its death.
                () = sleep(Duration::from_secs(2)) => expire_leases(&fixture).await,
            }
        };
        if is_dead {
            assert!(running.stop(minutes(1)).await.clean);
            break;
        }
        running.abort().await;
        expire_leases(&fixture).await;
        crashes += 1;
        assert!(crashes <= MAX_DELIVERIES + 2, "the poison message is delivered endlessly");
    }
    handle_all(&fixture, noting(&seen)).await;
    let mut handled = seen.sorted();
    handled.dedup();
    assert_eq!(handled, (0..ORDERS as u64).filter(|number| *number != POISON).collect::<Vec<_>>());
    let dead = list(&fixture, "orders", StateFilter::Dead).await;
    let [letter] = &dead[..] else { panic!("{} dead letters", dead.len()) };
    assert_eq!(letter.message.id(), staged.get(POISON as usize).copied());
    assert_eq!(letter.reason, Some(Reason::MaxDeliveries));
}

/// A limit of one forbids every delivery that may be a second one.
pub async fn a_limit_of_one_delivery_counts_each_expired_lease<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    claim_one(&fixture.store(), "orders").await;
    expire_leases(&fixture).await;
    let seen = Seen::default();
    assert_eq!(handle_all(&fixture, noting(&seen).max_deliveries(1)).await.dead, 1);
    assert_eq!(seen.len(), 0);
    assert_eq!(entry_in(&fixture, "orders", id, State::Dead).await.reason, Some(Reason::MaxDeliveries));
}

/// A suspect runs alone in its queue; messages behind it run when it has ended.
pub async fn a_suspect_runs_alone_in_its_queue<F: Fixture>(fixture: F) {
    stage(&fixture, &orders(3)).await;
    for _ in 0..2 {
        assert_eq!(claim(&fixture.store(), "orders", 3).await.len(), 3);
        expire_leases(&fixture).await;
    }
    stage(&fixture, &[Order { number: 3 }.message().build().unwrap()]).await;
    let (running_now, most, seen) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Seen::default());
    let (now, peak, notes) = (Arc::clone(&running_now), Arc::clone(&most), seen.clone());
    let queue = Queue::new("orders").on(move |order: Order, _: Context| {
        let (now, peak, notes) = (Arc::clone(&now), Arc::clone(&peak), notes.clone());
        async move {
            peak.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            // Others would run now, if they could.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            notes.note(order.number);
            now.fetch_sub(1, SeqCst);
            Ok::<(), Failure>(())
        }
    });
    handle_all(&fixture, queue).await;
    assert_eq!((most.load(SeqCst), seen.len()), (1, 4));
}
