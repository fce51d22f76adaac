//! On an ordered queue the key is leased: one owner for a whole turn (promise 4).

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    ClaimedMessage, MessageId, OnFailure, QueuePolicy, Reason, Settlement, State, inspect::StateFilter,
};

/// Promise 2: an expired turn is reclaimed with its head alone, and counted, so that a message that kills its worker is found.
/// After the head is done, the rest follows in order.
pub async fn an_expired_turn_is_reclaimed_with_its_head_alone_and_counted<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let (store, other) = (fixture.store(), fixture.another_store().await);
    let staged = stage(&fixture, &numbered_of("orders", "key", 3)).await;
    let turn = claim_all(&store, "orders").await;
    assert_eq!(ids(&turn), staged);
    assert_eq!(turn[0].deliveries, 1);
    for (deliveries, store) in [(2, &other), (3, &store), (4, &other)] {
        expire_leases(&fixture).await;
        let head = claim_one(store, "orders").await;
        assert_eq!((head.id(), head.deliveries, head.attempts), (staged[0], deliveries, 0));
        assert!(head.lease.turn().unwrap().last);
        assert_ne!(head.lease.token(), turn[0].lease.token());
    }
    expire_leases(&fixture).await;
    let head = claim_one(&store, "orders").await;
    done(&store, &[head]).await;

    assert_eq!(drain(&other, "orders").await, staged[1..]);
}

/// Promise 4, success path: a stale turn cannot settle as done.
pub async fn a_stale_turn_cannot_settle_as_done<F: Fixture>(fixture: F) {
    a_stale_turn_changes_nothing(fixture, Settlement::Done).await;
}

/// Promise 4, retry path: a stale turn cannot block its key.
pub async fn a_stale_turn_cannot_settle_as_retry<F: Fixture>(fixture: F) {
    let retry = Settlement::Retry { after: minutes(5), error: Some("late".into()) };
    a_stale_turn_changes_nothing(fixture, retry).await;
}

/// Promise 4, dead-letter path: a stale turn writes no dead letter.
pub async fn a_stale_turn_cannot_write_a_dead_letter<F: Fixture>(fixture: F) {
    let dead = Settlement::Dead { reason: Reason::Rejected, error: Some("late".into()) };
    a_stale_turn_changes_nothing(fixture, dead).await;
}

/// Promise 4, release path: a stale turn cannot release messages that another owner has leased.
pub async fn a_stale_turn_cannot_release<F: Fixture>(fixture: F) {
    a_stale_turn_changes_nothing(fixture, Settlement::Release).await;
}

/// Promise 4, renewal path: a stale turn cannot extend the turn of another.
pub async fn a_stale_turn_cannot_be_renewed<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let (staged, stale, current) = retaken(&fixture).await;
    assert_lost(&store.renew(&leases(&stale), minutes(60)).await.unwrap(), &leases(&stale));
    expire_leases(&fixture).await;

    let third = claim_one(&store, "orders").await;
    assert_eq!((third.id(), third.deliveries), (staged[0], current.deliveries + 1));
}

/// Decision "long work": a renewed turn outlives its original duration, for all its messages.
pub async fn a_renewed_turn_outlives_its_original_duration<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let (store, other) = (fixture.store(), fixture.another_store().await);
    stage(&fixture, &numbered_of("orders", "key", 3)).await;
    let turn = claim_all(&store, "orders").await;
    fixture.advance(LEASE - minutes(2)).await;
    assert_eq!(store.renew(&leases(&turn), minutes(30)).await.unwrap(), []);
    fixture.advance(minutes(20)).await;
    assert_nothing_due(&other, "orders").await;

    done(&store, &turn).await;
    assert_empty(&fixture, "orders").await;
}

/// Promise 4: an expired turn that was not reclaimed is still valid.
pub async fn an_expired_turn_without_a_new_owner_can_be_settled<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let store = fixture.store();
    stage(&fixture, &numbered_of("orders", "key", 3)).await;
    let turn = claim_all(&store, "orders").await;
    expire_leases(&fixture).await;
    done(&store, &turn).await;

    assert_empty(&fixture, "orders").await;
}

/// Decision "ordering": a failure ends the turn. Settlements of later messages of the turn are lost, so that nothing overtakes.
pub async fn a_failure_ends_the_turn<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let store = fixture.store();
    let staged = stage(&fixture, &numbered_of("orders", "key", 3)).await;
    let turn = claim_all(&store, "orders").await;
    settle(&store, &[turn[0].lease.retry(minutes(5), "busy")]).await;
    let overtaking = [turn[1].lease.done(), turn[2].lease.done()];
    assert_lost(&store.settle(&overtaking).await.unwrap(), &leases(&turn[1..]));

    assert_nothing_due(&store, "orders").await;
    fixture.advance(minutes(5)).await;
    assert_eq!(drain(&store, "orders").await, staged);
}

/// Promise 4: settlements of a turn stay in effect when the rest of the turn expires.
pub async fn a_turn_that_expires_halfway_keeps_its_settlements<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let (store, other) = (fixture.store(), fixture.another_store().await);
    let staged = stage(&fixture, &numbered_of("orders", "key", 4)).await;
    let turn = claim_all(&store, "orders").await;
    done(&store, &turn[..2]).await;
    expire_leases(&fixture).await;
    let head = claim_one(&other, "orders").await;
    assert_eq!(head.id(), staged[2]);
    let late: Vec<_> = turn[2..].iter().map(|each| each.lease.done()).collect();
    assert_lost(&store.settle(&late).await.unwrap(), &leases(&turn[2..]));
    done(&other, &[head]).await;

    assert_eq!(drain(&other, "orders").await, staged[3..]);
}

/// Promise 4: a stalled owner loses the keys that were reclaimed, and can settle the others.
pub async fn a_stalled_owner_loses_only_the_reclaimed_keys<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let (store, other) = (fixture.store(), fixture.another_store().await);
    stage(&fixture, &numbered_of("orders", "first", 2)).await;
    stage(&fixture, &numbered_of("orders", "second", 2)).await;
    let claimed = claim_all(&store, "orders").await;
    assert_eq!(claimed.len(), 4);
    expire_leases(&fixture).await;
    let retaken = claim(&other, "orders", 1).await.remove(0);
    let taken_over = retaken.lease.turn().unwrap().key.clone();

    let batch: Vec<_> = claimed.iter().map(|each| each.lease.done()).collect();
    let lost: Vec<_> =
        leases(&claimed).into_iter().filter(|lease| lease.turn().unwrap().key == taken_over).collect();
    assert_eq!(lost.len(), 2);
    assert_lost(&store.settle(&batch).await.unwrap(), &lost);
    let left = list(&fixture, "orders", StateFilter::Ready).await;
    assert!(left.len() == 2 && left.iter().all(|entry| entry.message.key() == Some(&taken_over)));
}

/// A key whose first turn expired and was reclaimed: the ids, the stale turn, and the valid one.
async fn retaken<F: Fixture>(fixture: &F) -> (Vec<MessageId>, Vec<ClaimedMessage>, ClaimedMessage) {
    declare(fixture, "orders", QueuePolicy::by_key(OnFailure::Skip)).await;
    let staged = stage(fixture, &numbered_of("orders", "key", 3)).await;
    let stale = claim_all(&fixture.store(), "orders").await;
    assert_eq!(ids(&stale), staged);
    expire_leases(fixture).await;
    let current = claim_one(&fixture.another_store().await, "orders").await;
    assert_eq!(current.id(), staged[0]);
    (staged, stale, current)
}

async fn a_stale_turn_changes_nothing<F: Fixture>(fixture: F, settlement: Settlement) {
    let store = fixture.store();
    let (staged, stale, current) = retaken(&fixture).await;
    let batch: Vec<_> = stale.iter().map(|each| each.lease.settle(settlement.clone())).collect();
    assert_lost(&store.settle(&batch).await.unwrap(), &leases(&stale));

    assert_nothing_due(&store, "orders").await;
    assert_eq!(list(&fixture, "orders", StateFilter::Dead).await, []);
    assert_eq!(fixture.inspect().blocked_keys(&queue("orders"), 10).await.unwrap(), []);
    assert_eq!(entry_in(&fixture, "orders", current.id(), State::Leased).await.attempts, 0);
    done(&store, &[current]).await;
    assert_eq!(drain(&store, "orders").await, staged[1..], "nothing was removed, and nothing overtakes");
}
