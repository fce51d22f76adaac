//! Relays that die again and again with messages in flight.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{Reason, inspect::StateFilter};
use postrider_engine::relay::Route;
use std::{collections::HashSet, sync::Arc, time::Duration};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

const ORDERS: usize = 300;

/// A route that has every order in flight at once, so that nothing is claimed any more when the relay dies.
fn greedy() -> Route {
    to_billing().concurrency(ORDERS / 2)
}

/// Promise 7: a crash counts for the message that was sent, and not for those that were only in flight.
pub async fn a_crash_loop_dead_letters_no_prefetched_message<F: Fixture>(fixture: F) {
    let staged = stage_orders(&fixture, ORDERS as u64).await;
    let transport = ScriptedTransport::default();
    let sent = Arc::new(Notify::new());
    let sends = Arc::clone(&sent);
    transport.set_script(move |_| {
        sends.notify_one();
        Step::Hang
    });
    for _ in 0..27 {
        let running = relay(&fixture, &transport, greedy()).start();
        sent.notified().await;
        eventually(async || running.report().claimed == ORDERS as u64).await;
        running.abort().await;
        expire_leases(&fixture).await;
        // A send of several messages has notified more than once.
        let _ = timeout(Duration::ZERO, sent.notified()).await;
    }
    transport.accept_all();
    let report = relay_all(&fixture, &transport, greedy()).await;
    assert_eq!((report.delivered, report.dead), (ORDERS as u64, 0));
    assert_eq!(sorted(published(&transport)), sorted(staged));
}

/// Promise 7: a message that kills its relay each time becomes a dead letter after a bounded number of crashes, and every other
/// message is sent.
pub async fn a_message_that_kills_its_relay_is_the_only_dead_letter<F: Fixture>(fixture: F) {
    const POISON: u64 = 7;
    const MAX_DELIVERIES: u32 = 3;
    let staged = stage_orders(&fixture, ORDERS as u64).await;
    let transport = ScriptedTransport::default();
    let killed = Arc::new(Notify::new());
    let kills = Arc::clone(&killed);
    transport.set_script(move |outgoing| {
        if number_of(outgoing) != POISON {
            return Step::Accept;
        }
        kills.notify_one();
        Step::Hang
    });
    let mut crashes = 0;
    loop {
        let running = relay(&fixture, &transport, greedy().max_deliveries(MAX_DELIVERIES)).start();
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
        assert!(crashes <= MAX_DELIVERIES + 2, "the poison message is sent endlessly");
    }
    relay_all(&fixture, &transport, greedy()).await;
    let mut expected: HashSet<_> = staged.iter().copied().collect();
    expected.remove(&staged[POISON as usize]);
    assert_eq!(published(&transport).into_iter().collect::<HashSet<_>>(), expected);
    let dead = list(&fixture, "orders", StateFilter::Dead).await;
    let [letter] = &dead[..] else { panic!("{} dead letters", dead.len()) };
    assert_eq!(
        (letter.message.id().unwrap(), letter.reason),
        (staged[POISON as usize], Some(Reason::MaxDeliveries))
    );
}
