//! Many processes share one queue: no duplicates, no losses (promises 2 and 4).

use super::helpers::*;
use crate::Fixture;
use postrider_core::Settlement;
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::task::{JoinSet, yield_now};

const CLAIMERS: usize = 8;
const MESSAGES: usize = 10_000;

/// Eight claimers, each with its own handle, drain ten thousand messages: disjoint, none lost, none twice.
pub async fn eight_claimers_drain_ten_thousand_messages_once_each<F: Fixture>(fixture: F) {
    let mut staged = Vec::new();
    for batch in numbered("orders", MESSAGES).chunks(1_000) {
        staged.extend(stage(&fixture, batch).await);
    }
    let handled = Arc::new(AtomicUsize::new(0));
    let mut claimers = JoinSet::new();
    for number in 0..CLAIMERS {
        let (store, handled) = (fixture.another_store().await, Arc::clone(&handled));
        claimers.spawn(async move {
            let mut mine = Vec::new();
            while handled.load(SeqCst) < MESSAGES {
                let claimed = claim(&store, "orders", 20 + 10 * number).await;
                if claimed.is_empty() {
                    yield_now().await;
                    continue;
                }
                assert!(claimed.iter().all(|each| each.deliveries == 1), "nothing is claimed twice");
                done(&store, &claimed).await;
                handled.fetch_add(claimed.len(), SeqCst);
                mine.extend(ids(&claimed));
            }
            mine
        });
    }
    let handled = claimers.join_all().await.concat();

    assert_eq!(handled.len(), MESSAGES, "nothing is handled twice");
    assert_eq!(handled.into_iter().collect::<HashSet<_>>(), staged.into_iter().collect());
    assert_empty(&fixture, "orders").await;
}

/// Concurrent claims, renewals and settlements of every kind, by eight claimers: each message is handled once, and no lease is
/// lost, since none expired.
pub async fn no_lease_is_lost_before_it_expires<F: Fixture>(fixture: F) {
    const FEWER: usize = 2_000;
    let staged = stage(&fixture, &numbered("orders", FEWER)).await;
    let handled = Arc::new(AtomicUsize::new(0));
    let mut claimers = JoinSet::new();
    for number in 0..CLAIMERS {
        let (store, handled) = (fixture.another_store().await, Arc::clone(&handled));
        claimers.spawn(async move {
            let mut mine = Vec::new();
            while handled.load(SeqCst) < FEWER {
                let claimed = claim(&store, "orders", 10 + number).await;
                assert_eq!(store.renew(&leases(&claimed), LEASE).await.unwrap(), []);
                let mut batch = Vec::new();
                for (at, each) in claimed.iter().enumerate() {
                    batch.push(match (each.attempts, at % 3) {
                        (0, 0) => each.lease.retry(Duration::ZERO, "busy"),
                        (0, 1) if number % 2 == 0 => each.lease.release(),
                        _ => {
                            mine.push(each.id());
                            each.lease.done()
                        }
                    });
                }
                settle(&store, &batch).await;
                handled.fetch_add(
                    batch.iter().filter(|each| each.settlement == Settlement::Done).count(),
                    SeqCst,
                );
                yield_now().await;
            }
            mine
        });
    }

    assert_eq!(sorted(claimers.join_all().await.concat()), sorted(staged));
    assert_empty(&fixture, "orders").await;
}
