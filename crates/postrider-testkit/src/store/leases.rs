//! One owner: every write that settles or renews a claim is guarded by its token, on every path (promise 4).

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    ClaimedMessage, Lease, LeaseToken, OnFailure, QueuePolicy, Reason, Settlement, State,
    inspect::StateFilter,
};
use std::slice;

/// Promise 4, success path: a stale owner cannot settle as done.
pub async fn a_stale_done_changes_nothing<F: Fixture>(fixture: F) {
    a_stale_settlement_changes_nothing(fixture, Settlement::Done).await;
}

/// Promise 4, retry path: a stale owner cannot settle as retry.
pub async fn a_stale_retry_changes_nothing<F: Fixture>(fixture: F) {
    let retry = Settlement::Retry { after: minutes(5), error: Some("late".into()) };
    a_stale_settlement_changes_nothing(fixture, retry).await;
}

/// Promise 4, dead-letter path: a stale owner writes no dead letter and removes nothing.
pub async fn a_stale_dead_letter_changes_nothing<F: Fixture>(fixture: F) {
    let dead = Settlement::Dead { reason: Reason::Rejected, error: Some("late".into()) };
    a_stale_settlement_changes_nothing(fixture, dead).await;
}

/// Promise 4, release path: a stale owner cannot release a message that another owner has leased.
pub async fn a_stale_release_changes_nothing<F: Fixture>(fixture: F) {
    a_stale_settlement_changes_nothing(fixture, Settlement::Release).await;
}

/// Promise 4, success path with an archive: a stale owner archives nothing.
pub async fn a_stale_done_archives_nothing<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::default().with_keep_for(minutes(60))).await;
    let (stale, current) = retaken(&fixture).await;
    assert_lost(&fixture.store().settle(&[stale.lease.done()]).await.unwrap(), [&stale.lease]);
    assert_eq!(list(&fixture, "orders", StateFilter::Done).await, []);

    done(&fixture.store(), &[current]).await;
    assert_eq!(list(&fixture, "orders", StateFilter::Done).await.len(), 1);
}

/// Promise 4, renewal path: a stale owner can neither extend nor shorten the lease of another.
pub async fn a_stale_renewal_changes_nothing<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let (stale, current) = retaken(&fixture).await;
    assert_lost(&store.renew(slice::from_ref(&stale.lease), minutes(60)).await.unwrap(), [&stale.lease]);
    expire_leases(&fixture).await;
    let third = claim_one(&store, "orders").await;
    assert_eq!((third.id(), third.deliveries), (current.id(), 3), "the lease was not prolonged");

    assert_lost(&store.renew(slice::from_ref(&stale.lease), minutes(1)).await.unwrap(), [&stale.lease]);
    fixture.advance(minutes(5)).await;
    assert_nothing_due(&store, "orders").await;
}

/// Promises 2 and 4: the lease expires while the handler runs. The message is redelivered, and no settlement of the late handler
/// changes anything for the new owner, before or after the new owner fails.
pub async fn a_late_owner_does_not_overwrite_the_new_owner<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.store(), fixture.another_store().await);
    let id = stage_one(&fixture, message("orders")).await;
    let late = claim_one(&store, "orders").await;
    expire_leases(&fixture).await;
    let new = claim_one(&other, "orders").await;
    assert_eq!((new.id(), new.deliveries), (id, 2));
    assert_lost(&store.settle(&[late.lease.done()]).await.unwrap(), [&late.lease]);

    settle(&other, &[new.lease.retry(minutes(5), "busy")]).await;
    assert_lost(&store.settle(&[late.lease.done()]).await.unwrap(), [&late.lease]);
    assert_lost(&other.settle(&[new.lease.done()]).await.unwrap(), [&new.lease]);
    let entry = entry_in(&fixture, "orders", id, State::Scheduled).await;
    assert_eq!((entry.deliveries, entry.attempts, entry.error.as_deref()), (2, 1, Some("busy")));

    fixture.advance(minutes(5)).await;
    assert_lost(&store.settle(&[late.lease.done()]).await.unwrap(), [&late.lease]);
    assert_eq!(drain(&other, "orders").await, [id]);
}

/// Promise 4: in a batch, exactly the settlements without a valid token are lost, and the others succeed.
pub async fn a_stale_settlement_in_a_batch_is_lost_alone<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let staged = stage(&fixture, &numbered("orders", 5)).await;
    let stale = claim(&store, "orders", 2).await;
    expire_leases(&fixture).await;
    let current = claim_all(&store, "orders").await;
    assert_eq!(sorted(ids(&current)), sorted(staged));

    let mut batch: Vec<_> = stale.iter().map(|each| each.lease.done()).collect();
    batch.extend(
        current.iter().filter(|each| !ids(&stale).contains(&each.id())).map(|each| each.lease.done()),
    );
    assert_lost(&store.settle(&batch).await.unwrap(), &leases(&stale));
    assert_eq!(sorted(ids_of(&list(&fixture, "orders", StateFilter::Ready).await)), sorted(ids(&stale)));
}

/// Promise 4: a token that was never issued changes nothing, on a message that is pending, leased, or absent.
pub async fn a_forged_token_changes_nothing<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let staged = stage(&fixture, &numbered("orders", 2)).await;
    let held = claim(&store, "orders", 1).await.remove(0);
    let forged =
        [staged[0], staged[1], fresh_id()].map(|id| Lease::new(queue("orders"), id, LeaseToken::fresh()));
    for settlement in every_settlement() {
        let batch: Vec<_> = forged.iter().map(|lease| lease.settle(settlement.clone())).collect();
        assert_lost(&store.settle(&batch).await.unwrap(), &forged);
    }
    assert_lost(&store.renew(&forged, LEASE).await.unwrap(), &forged);

    assert_eq!(list(&fixture, "orders", StateFilter::Dead).await, []);
    done(&store, &[held]).await;
    let free = claim_one(&store, "orders").await;
    assert_eq!((free.id(), free.deliveries, free.attempts), (staged[1], 1, 0));
}

/// Promise 4: every settlement invalidates the token. Later settlements of the same owner are lost.
pub async fn every_settlement_invalidates_the_token<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let staged = stage(&fixture, &numbered("orders", 5)).await;
    let claimed = claim_all(&store, "orders").await;
    let endings: Vec<_> =
        claimed.iter().zip(every_settlement()).map(|(each, ending)| each.lease.settle(ending)).collect();
    settle(&store, &endings).await;

    for settlement in every_settlement() {
        let again: Vec<_> = claimed.iter().map(|each| each.lease.settle(settlement.clone())).collect();
        assert_lost(&store.settle(&again).await.unwrap(), &leases(&claimed));
    }
    assert_lost(&store.renew(&leases(&claimed), LEASE).await.unwrap(), &leases(&claimed));
    assert_eq!(get(&fixture, "orders", staged[0]).await, None);
    assert_eq!(entry_in(&fixture, "orders", staged[1], State::Scheduled).await.attempts, 1);
    entry_in(&fixture, "orders", staged[2], State::Dead).await;
    entry_in(&fixture, "orders", staged[3], State::Pending).await;
    assert_eq!(entry_in(&fixture, "orders", staged[4], State::Scheduled).await.attempts, 0);
}

/// Promise 4: of two settlements in one batch, the first succeeds and the second is lost.
pub async fn the_first_of_two_settlements_of_one_message_wins<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let staged = stage(&fixture, &numbered("orders", 2)).await;
    let claimed = claim_all(&store, "orders").await;
    let batch = [
        claimed[0].lease.done(),
        claimed[1].lease.retry(minutes(5), "busy"),
        claimed[0].lease.dead(Reason::Rejected, "refused"),
        claimed[1].lease.done(),
    ];
    assert_lost(&store.settle(&batch).await.unwrap(), &leases(&claimed));

    assert_eq!(get(&fixture, "orders", staged[0]).await, None);
    entry_in(&fixture, "orders", staged[1], State::Scheduled).await;
    assert_eq!(list(&fixture, "orders", StateFilter::Dead).await, []);
}

/// Decision "long work": a renewed lease outlives its original duration, and expires after the new one.
pub async fn a_renewed_lease_outlives_its_original_duration<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let staged = stage(&fixture, &numbered("orders", 2)).await;
    let claimed = claim_all(&store, "orders").await;
    fixture.advance(LEASE - minutes(2)).await;
    assert_eq!(store.renew(slice::from_ref(&claimed[0].lease), minutes(30)).await.unwrap(), []);
    fixture.advance(minutes(10)).await;
    let expired = claim_one(&store, "orders").await;
    assert_eq!(expired.id(), staged[1], "only the lease that was not renewed has expired");
    done(&store, &[expired]).await;

    fixture.advance(minutes(21)).await;
    let again = claim_one(&store, "orders").await;
    assert_eq!((again.id(), again.deliveries), (staged[0], 2));
}

/// Decision "crash loops": deliveries in isolation are counted until one fails; a stale owner counts nothing.
pub async fn deliveries_in_isolation_are_counted_until_a_failure<F: Fixture>(fixture: F) {
    counts_deliveries_in_isolation(&fixture, QueuePolicy::default()).await;
}

/// The same on a queue ordered by key.
pub async fn deliveries_in_isolation_are_counted_on_ordered_queues<F: Fixture>(fixture: F) {
    counts_deliveries_in_isolation(&fixture, QueuePolicy::by_key(OnFailure::Block)).await;
}

async fn counts_deliveries_in_isolation<F: Fixture>(fixture: &F, policy: QueuePolicy) {
    let store = fixture.store();
    fixture.schema().declare(&queue("orders"), &policy).await.unwrap();
    let id = stage_one(fixture, message("orders").key("k")).await;
    let mut stale: Option<ClaimedMessage> = None;
    for isolated in 0..3 {
        let claimed = claim_one(&store, "orders").await;
        assert_eq!((claimed.id(), claimed.isolated, claimed.deliveries), (id, isolated, isolated + 1));
        if let Some(stale) = stale.replace(claimed.clone()) {
            assert!(!store.count_isolated(&stale.lease).await.unwrap());
        }
        assert!(store.count_isolated(&claimed.lease).await.unwrap());
        expire_leases(fixture).await;
    }
    let claimed = claim_one(&store, "orders").await;
    assert_eq!((claimed.isolated, claimed.begun(), claimed.expired_leases()), (3, 3, 3));
    settle(&store, &[claimed.lease.release()]).await;
    let claimed = claim_one(&store, "orders").await;
    assert_eq!(claimed.isolated, 3, "a release changes nothing");
    settle(&store, &[claimed.lease.retry(minutes(1), "busy")]).await;
    assert!(!store.count_isolated(&claimed.lease).await.unwrap(), "its lease has ended");
    fixture.advance(minutes(2)).await;
    let claimed = claim_one(&store, "orders").await;
    assert_eq!((claimed.isolated, claimed.attempts), (0, 1));
}

/// Decision "long work": renewing no leases returns no lost leases.
pub async fn renewing_no_leases_loses_none<F: Fixture>(fixture: F) {
    assert_eq!(fixture.store().renew(&[], LEASE).await.unwrap(), []);
}

/// Promise 4: an expired lease that was not reclaimed is still valid: the work that was done counts.
pub async fn an_expired_lease_without_a_new_owner_can_be_settled<F: Fixture>(fixture: F) {
    let store = fixture.store();
    stage(&fixture, &numbered("orders", 5)).await;
    let claimed = claim_all(&store, "orders").await;
    expire_leases(&fixture).await;
    let endings: Vec<_> =
        claimed.iter().zip(every_settlement()).map(|(each, ending)| each.lease.settle(ending)).collect();
    settle(&store, &endings).await;

    assert_eq!(get(&fixture, "orders", claimed[0].id()).await, None);
    entry_in(&fixture, "orders", claimed[1].id(), State::Scheduled).await;
    entry_in(&fixture, "orders", claimed[2].id(), State::Dead).await;
    entry_in(&fixture, "orders", claimed[3].id(), State::Pending).await;
    entry_in(&fixture, "orders", claimed[4].id(), State::Scheduled).await;
}

/// Promise 4: an expired lease that was not reclaimed can be renewed.
pub async fn an_expired_lease_without_a_new_owner_can_be_renewed<F: Fixture>(fixture: F) {
    let store = fixture.store();
    stage_one(&fixture, message("orders")).await;
    let claimed = claim_one(&store, "orders").await;
    expire_leases(&fixture).await;
    assert_eq!(store.renew(slice::from_ref(&claimed.lease), LEASE).await.unwrap(), []);

    assert_nothing_due(&store, "orders").await;
    done(&store, &[claimed]).await;
}

/// One settlement of each kind.
fn every_settlement() -> [Settlement; 5] {
    [
        Settlement::Done,
        Settlement::Retry { after: minutes(5), error: Some("busy".into()) },
        Settlement::Dead { reason: Reason::Rejected, error: Some("refused".into()) },
        Settlement::Release,
        Settlement::Snooze { after: minutes(5) },
    ]
}

/// A message whose first lease expired and that another process has leased: the stale claim and the valid one.
async fn retaken<F: Fixture>(fixture: &F) -> (ClaimedMessage, ClaimedMessage) {
    stage_one(fixture, message("orders")).await;
    let stale = claim_one(&fixture.store(), "orders").await;
    expire_leases(fixture).await;
    let current = claim_one(&fixture.another_store().await, "orders").await;
    assert_eq!(stale.id(), current.id());
    (stale, current)
}

async fn a_stale_settlement_changes_nothing<F: Fixture>(fixture: F, settlement: Settlement) {
    let store = fixture.store();
    let (stale, current) = retaken(&fixture).await;
    assert_lost(&store.settle(&[stale.lease.settle(settlement)]).await.unwrap(), [&stale.lease]);

    assert_nothing_due(&store, "orders").await;
    let entry = entry_in(&fixture, "orders", current.id(), State::Leased).await;
    assert_eq!((entry.deliveries, entry.attempts, entry.error), (2, 0, None));
    assert_eq!(list(&fixture, "orders", StateFilter::Scheduled).await, []);
    assert_eq!(list(&fixture, "orders", StateFilter::Dead).await, []);
    done(&store, &[current]).await;
    assert_empty(&fixture, "orders").await;
}
