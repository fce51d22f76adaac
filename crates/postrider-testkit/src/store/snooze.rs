//! A snoozed message is redelivered as if it had never been claimed (decision "two counters").

use super::helpers::*;
use crate::Fixture;
use postrider_core::{OnFailure, QueuePolicy, Settlement, State};

/// A snooze waits by the store's clock, and counts neither a delivery nor an attempt; earlier counts stay.
pub async fn a_snoozed_message_waits_and_counts_no_attempt<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let id = stage_one(&fixture, message("orders")).await;
    let claimed = claim_one(&store, "orders").await;
    settle(&store, &[claimed.lease.retry(minutes(1), "busy")]).await;
    fixture.advance(minutes(1)).await;
    for _ in 0..3 {
        let claimed = claim_one(&store, "orders").await;
        assert_eq!((claimed.deliveries, claimed.attempts), (2, 1));
        settle(&store, &[claimed.lease.snooze(minutes(30))]).await;
        let entry = entry_in(&fixture, "orders", id, State::Scheduled).await;
        assert_eq!((entry.deliveries, entry.attempts, entry.error), (1, 1, Some("busy".into())));
        fixture.advance(minutes(29)).await;
        assert_nothing_due(&store, "orders").await;
        fixture.advance(minutes(1)).await;
    }
    assert_eq!(drain(&store, "orders").await, [id]);
    assert_empty(&fixture, "orders").await;
}

/// Each snooze of a batch waits for its own delay, next to every other kind of settlement.
pub async fn each_snoozed_message_waits_for_its_own_delay<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let staged = stage(&fixture, &numbered("orders", 4)).await;
    let claimed = claim_all(&store, "orders").await;
    let endings = [
        claimed[0].lease.snooze(minutes(20)),
        claimed[1].lease.snooze(minutes(10)),
        claimed[2].lease.retry(minutes(15), "busy"),
        claimed[3].lease.done(),
    ];
    settle(&store, &endings).await;

    for (wait, id) in [(10, staged[1]), (5, staged[2]), (5, staged[0])] {
        fixture.advance(minutes(wait - 1)).await;
        assert_nothing_due(&store, "orders").await;
        fixture.advance(minutes(1)).await;
        assert_eq!(drain(&store, "orders").await, [id]);
    }
    assert_empty(&fixture, "orders").await;
}

/// On an ordered queue the key waits with its message: nothing overtakes it, and nothing is counted or parked.
pub async fn a_key_waits_for_its_snoozed_message<F: Fixture>(fixture: F) {
    for (name, policy) in [("block", OnFailure::Block), ("park", OnFailure::Park), ("skip", OnFailure::Skip)]
    {
        declare(&fixture, name, QueuePolicy::by_key(policy)).await;
        let store = fixture.store();
        let staged = stage(&fixture, &numbered_of(name, "key", 4)).await;
        let turn = claim_all(&store, name).await;
        assert_eq!(ids(&turn), staged);
        let mut endings = vec![turn[0].lease.done(), turn[1].lease.snooze(minutes(10))];
        endings.extend(turn[2..].iter().map(|each| each.lease.release()));
        settle(&store, &endings).await;

        assert_nothing_due(&store, name).await;
        fixture.advance(minutes(9)).await;
        assert_nothing_due(&store, name).await;
        fixture.advance(minutes(1)).await;
        let again = claim_all(&store, name).await;
        assert_eq!(ids(&again), staged[1..]);
        assert!(again.iter().all(|each| each.deliveries == 1 && each.attempts == 0), "{again:?}");
        done(&store, &again).await;
        assert_empty(&fixture, name).await;
    }
}

/// Settlements of later messages of the turn, in the same call as the snooze, are lost.
pub async fn later_settlements_of_a_snoozed_turn_are_lost<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let store = fixture.store();
    let staged = stage(&fixture, &numbered_of("orders", "key", 3)).await;
    let turn = claim_all(&store, "orders").await;
    let batch =
        [turn[0].lease.snooze(minutes(10)), turn[1].lease.done(), turn[2].lease.settle(Settlement::Release)];
    assert_lost(&store.settle(&batch).await.unwrap(), [&turn[1].lease]);
    fixture.advance(minutes(10)).await;
    assert_eq!(drain(&store, "orders").await, staged);
}
