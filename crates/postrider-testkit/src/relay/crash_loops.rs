//! Relays that die again and again with messages in flight.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{Reason, inspect::StateFilter};
use postrider_engine::relay::Route;
use std::{collections::HashSet, sync::Arc};
use tokio::sync::Notify;

const ORDERS: usize = 300;

/// A route that has every order in flight at once.
fn greedy() -> Route {
    to_billing().concurrency(ORDERS)
}

/// Promise 7: a crash counts for the message that was sent, and not for those that were only in flight.
pub async fn a_crash_loop_dead_letters_no_prefetched_message<F: Fixture>(fixture: F) {
    let staged = stage_orders(&fixture, ORDERS as u64).await;
    let transport = ScriptedTransport::default();
    transport.set_script(|_| Step::Hang);
    for _ in 0..27 {
        let calls = transport.calls().len();
        let running = relay(&fixture, &transport, greedy()).start();
        eventually(async || running.report().claimed == ORDERS as u64 && transport.calls().len() > calls)
            .await;
        running.abort().await;
        expire_leases(&fixture).await;
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
        tokio::select! {
            () = killed.notified() => {}
            () = until_dead_lettered(&running) => {
                assert!(running.stop(minutes(1)).await.clean);
                break;
            }
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
