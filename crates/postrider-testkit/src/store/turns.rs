//! On an ordered queue the key is leased: one owner for a whole turn (promise 4).

use super::helpers::*;
use crate::Fixture;
use postrider_core::{Claimed, MessageId, OnFailure, QueuePolicy, Reason, Settlement, State, inspect::Room};

/// Promise 2: a turn that lapsed hands out its head alone, and counts it, so that a message that kills its worker is
/// found. Once it is done, the rest follows in order.
pub async fn a_lapsed_turn_hands_out_its_head_alone_and_counts_it<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let (store, other) = (fixture.store(), fixture.another_store().await);
    let staged = stage(&fixture, &numbered_of("orders", "key", 3)).await;
    let turn = claim_all(&store, "orders").await;
    assert_eq!(ids(&turn), staged);
    assert_eq!(turn[0].deliveries, 1);
    for (deliveries, store) in [(2, &other), (3, &store), (4, &other)] {
        lapse(&fixture).await;
        let head = claim_one(store, "orders").await;
        assert_eq!((head.id(), head.deliveries, head.attempts), (staged[0], deliveries, 0));
        assert!(head.lease.turn().unwrap().last);
        assert_ne!(head.lease.token(), turn[0].lease.token());
    }
    lapse(&fixture).await;
    let head = claim_one(&store, "orders").await;
    done(&store, &[head]).await;

    assert_eq!(drain(&other, "orders").await, staged[1..]);
}

/// Promise 4, success path: a stale turn cannot settle as done.
pub async fn a_stale_turn_cannot_settle_as_done<F: Fixture>(fixture: F) {
    a_stale_turn_changes_nothing(fixture, Settlement::Done).await;
}

/// Promise 4, retry path: a stale turn cannot block its key.
pub async fn a_stale_turn_cannot_ask_for_a_retry<F: Fixture>(fixture: F) {
    let retry = Settlement::Retry { after: minutes(5), error: Some("late".into()) };
    a_stale_turn_changes_nothing(fixture, retry).await;
}

/// Promise 4, dead-letter path: a stale turn writes no dead letter.
pub async fn a_stale_turn_cannot_write_a_dead_letter<F: Fixture>(fixture: F) {
    let dead = Settlement::Dead { reason: Reason::Rejected, error: Some("late".into()) };
    a_stale_turn_changes_nothing(fixture, dead).await;
}

/// Promise 4, release path: a stale turn cannot hand back what another has in hand.
pub async fn a_stale_turn_cannot_release<F: Fixture>(fixture: F) {
    a_stale_turn_changes_nothing(fixture, Settlement::Release).await;
}

/// Promise 4, renewal path: a stale turn cannot prolong the turn of another.
pub async fn a_stale_turn_cannot_be_renewed<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let (staged, stale, living) = retaken(&fixture).await;
    assert_lost(&store.renew(&leases(&stale), minutes(60)).await.unwrap(), &leases(&stale));
    lapse(&fixture).await;

    let third = claim_one(&store, "orders").await;
    assert_eq!((third.id(), third.deliveries), (staged[0], living.deliveries + 1));
}

/// Decision "long work": a renewed turn outlives its first term, for all its messages.
pub async fn a_renewed_turn_outlives_its_first_term<F: Fixture>(fixture: F) {
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

/// Promise 4: a turn that lapsed and that nobody took since is still good.
pub async fn a_lapsed_turn_that_nobody_took_can_be_settled<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let store = fixture.store();
    stage(&fixture, &numbered_of("orders", "key", 3)).await;
    let turn = claim_all(&store, "orders").await;
    lapse(&fixture).await;
    done(&store, &turn).await;

    assert_empty(&fixture, "orders").await;
}

/// Decision "ordering": a failure ends the turn. What its owner says of the messages behind it is lost, so that nothing
/// overtakes.
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

/// Promise 4: what a turn has settled stays settled when its rest lapses.
pub async fn a_turn_that_lapses_halfway_keeps_what_it_settled<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let (store, other) = (fixture.store(), fixture.another_store().await);
    let staged = stage(&fixture, &numbered_of("orders", "key", 4)).await;
    let turn = claim_all(&store, "orders").await;
    done(&store, &turn[..2]).await;
    lapse(&fixture).await;
    let head = claim_one(&other, "orders").await;
    assert_eq!(head.id(), staged[2]);
    let late: Vec<_> = turn[2..].iter().map(|each| each.lease.done()).collect();
    assert_lost(&store.settle(&late).await.unwrap(), &leases(&turn[2..]));
    done(&other, &[head]).await;

    assert_eq!(drain(&other, "orders").await, staged[3..]);
}

/// Promise 4: a stalled owner loses the keys that were taken over, and settles the others.
pub async fn a_stalled_owner_loses_only_the_keys_taken_over<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let (store, other) = (fixture.store(), fixture.another_store().await);
    stage(&fixture, &numbered_of("orders", "first", 2)).await;
    stage(&fixture, &numbered_of("orders", "second", 2)).await;
    let claimed = claim_all(&store, "orders").await;
    assert_eq!(claimed.len(), 4);
    lapse(&fixture).await;
    let retaken = claim(&other, "orders", 1).await.remove(0);
    let taken_over = retaken.lease.turn().unwrap().key.clone();

    let batch: Vec<_> = claimed.iter().map(|each| each.lease.done()).collect();
    let lost: Vec<_> =
        leases(&claimed).into_iter().filter(|lease| lease.turn().unwrap().key == taken_over).collect();
    assert_eq!(lost.len(), 2);
    assert_lost(&store.settle(&batch).await.unwrap(), &lost);
    let left = list(&fixture, "orders", Room::Ready).await;
    assert!(left.len() == 2 && left.iter().all(|entry| entry.message.key() == Some(&taken_over)));
}

/// A key whose first turn lapsed and is another's now: the ids, the stale turn, and the living one.
async fn retaken<F: Fixture>(fixture: &F) -> (Vec<MessageId>, Vec<Claimed>, Claimed) {
    declare(fixture, "orders", QueuePolicy::by_key(OnFailure::Skip)).await;
    let staged = stage(fixture, &numbered_of("orders", "key", 3)).await;
    let stale = claim_all(&fixture.store(), "orders").await;
    assert_eq!(ids(&stale), staged);
    lapse(fixture).await;
    let living = claim_one(&fixture.another_store().await, "orders").await;
    assert_eq!(living.id(), staged[0]);
    (staged, stale, living)
}

async fn a_stale_turn_changes_nothing<F: Fixture>(fixture: F, settlement: Settlement) {
    let store = fixture.store();
    let (staged, stale, living) = retaken(&fixture).await;
    let batch: Vec<_> = stale.iter().map(|each| each.lease.settle(settlement.clone())).collect();
    assert_lost(&store.settle(&batch).await.unwrap(), &leases(&stale));

    assert_nothing_due(&store, "orders").await;
    assert_eq!(list(&fixture, "orders", Room::Dead).await, []);
    assert_eq!(fixture.inspect().blocked_keys(&queue("orders"), 10).await.unwrap(), []);
    assert_eq!(entry_in(&fixture, "orders", living.id(), State::Leased).await.attempts, 0);
    done(&store, &[living]).await;
    assert_eq!(drain(&store, "orders").await, staged[1..], "nothing was removed, and nothing overtakes");
}
