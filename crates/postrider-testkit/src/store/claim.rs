//! Due messages are claimed, oldest first, by one owner at a time (promises 2, 4 and 5).

use super::helpers::*;
use crate::Fixture;
use postrider_core::{ClaimRequest, Error, MessageId, Outbox, hlc::HybridClock};
use std::{
    slice,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::{sync::Barrier, task::JoinSet};

/// Promise 2: a claim takes the oldest messages first, up to its limit.
pub async fn a_limited_claim_takes_the_oldest_first<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let mut staged = Vec::new();
    for _ in 0..10 {
        staged.push(stage_one(&fixture, message("orders")).await);
    }

    assert_eq!(ids(&claim(&store, "orders", 4).await), staged[..4]);
    assert_eq!(ids(&claim(&store, "orders", 4).await), staged[4..8]);
    assert_eq!(ids(&claim(&store, "orders", 4).await), staged[8..]);
    assert_eq!(ids(&claim(&store, "orders", 4).await), []);
}

/// Promise 2: messages of one transaction are claimed in staging order, across several calls.
pub async fn messages_of_one_transaction_are_claimed_in_staging_order<F: Fixture>(fixture: F) {
    let mut tx = fixture.begin().await;
    for part in numbered("orders", 100).chunks(7) {
        fixture.outbox().stage_all(&mut tx, part).await.unwrap();
    }
    fixture.commit(tx).await;

    let expected: Vec<_> = (0..100).map(|number| number.to_string()).collect();
    assert_eq!(payloads(&claim_all(&fixture.store(), "orders").await), expected);
}

/// Decision "timers": messages that are due at the same time are claimed in staging order.
pub async fn messages_due_at_the_same_time_are_claimed_in_staging_order<F: Fixture>(fixture: F) {
    let due_at = SystemTime::now() + minutes(5);
    let messages: Vec<_> = (0..50)
        .map(|number| message("orders").payload(number.to_string()).due_at(due_at).build().unwrap())
        .collect();
    stage(&fixture, &messages).await;
    fixture.advance(minutes(6)).await;

    let expected: Vec<_> = (0..50).map(|number| number.to_string()).collect();
    assert_eq!(payloads(&claim_all(&fixture.store(), "orders").await), expected);
}

/// Decision "timers": scheduled messages are claimed in the order of their due times.
pub async fn scheduled_messages_are_claimed_in_due_order<F: Fixture>(fixture: F) {
    let delays = [5, 1, 4, 2, 3];
    let messages = delays
        .map(|delay| message("orders").payload(delay.to_string()).due_after(minutes(delay)).build().unwrap());
    stage(&fixture, &messages).await;
    fixture.advance(minutes(6)).await;

    let mut order = payloads(&claim(&fixture.store(), "orders", 2).await);
    order.extend(payloads(&claim_all(&fixture.store(), "orders").await));
    assert_eq!(order, ["1", "2", "3", "4", "5"]);
}

/// Promise 2: identities do not determine the order. A message with a smaller identity, staged later, is not missed.
pub async fn a_smaller_identity_staged_later_is_not_missed<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let smaller = MessageId::at(SystemTime::now() - minutes(60));
    let greater = stage_one(&fixture, message("orders").id(fresh_id())).await;
    assert_eq!(drain(&store, "orders").await, [greater]);
    stage_one(&fixture, message("orders").id(smaller)).await;

    assert_eq!(drain(&store, "orders").await, [smaller]);
}

/// Decision "causal order": messages that processes with different wall clocks stage because of each other are claimed in the order
/// of their hybrid logical clocks.
pub async fn effects_are_claimed_after_their_causes<F: Fixture>(fixture: F) {
    let now = SystemTime::now();
    let behind_by = [0, 2, 1].map(minutes);
    let clocks = behind_by.map(|_| HybridClock::resume(None));
    let mut cause = None;
    for step in 0..30 {
        let (clock, wall) = (&clocks[step % 3], now - behind_by[step % 3]);
        let reading = match cause {
            Some(cause) => clock.merge(cause, wall).unwrap(),
            None => clock.tick(wall),
        };
        stage_one(&fixture, message("orders").hlc(reading)).await;
        cause = Some(reading);
    }

    let claimed = claim_all(&fixture.store(), "orders").await;
    let readings: Vec<_> = claimed.iter().map(|each| each.message.trail().hlc.unwrap()).collect();
    assert_eq!(readings.len(), 30);
    assert!(readings.is_sorted_by(|earlier, later| earlier < later), "claimed in causal order: {readings:?}");
}

/// Promise 5: a scheduled message is skipped until it is due by the store's clock, and then claimed.
pub async fn a_scheduled_message_is_skipped_until_it_is_due<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let later = stage_one(&fixture, message("orders").due_after(minutes(10))).await;
    let now = stage_one(&fixture, message("orders")).await;
    assert_eq!(drain(&store, "orders").await, [now]);
    fixture.advance(minutes(8)).await;
    assert_nothing_due(&store, "orders").await;
    fixture.advance(minutes(2)).await;

    assert_eq!(drain(&store, "orders").await, [later], "due exactly now is due");
}

/// Promise 5: a time in the past means due now.
pub async fn a_past_due_time_is_due_now<F: Fixture>(fixture: F) {
    let past = message("orders").due_at(SystemTime::now() - minutes(60));
    let id = stage_one(&fixture, past).await;

    assert_eq!(drain(&fixture.store(), "orders").await, [id]);
}

/// Promise 4: a leased message is not claimed again, by any process.
pub async fn a_leased_message_is_not_claimed_again<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.store(), fixture.another_store().await);
    stage_one(&fixture, message("orders")).await;
    claim_one(&store, "orders").await;

    assert_nothing_due(&store, "orders").await;
    assert_nothing_due(&other, "orders").await;
    fixture.advance(LEASE - minutes(2)).await;
    assert_nothing_due(&store, "orders").await;
    assert_nothing_due(&other, "orders").await;
}

/// Promise 2: a message with an expired lease is claimed again, under a new token, and the delivery is counted.
pub async fn a_message_with_an_expired_lease_is_reclaimed<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.store(), fixture.another_store().await);
    let id = stage_one(&fixture, message("orders")).await;
    let first = claim_one(&store, "orders").await;
    expire_leases(&fixture).await;
    let second = claim_one(&other, "orders").await;
    expire_leases(&fixture).await;
    let third = claim_one(&store, "orders").await;

    assert_eq!(ids(&[first.clone(), second.clone(), third.clone()]), [id; 3]);
    assert_eq!([first.deliveries, second.deliveries, third.deliveries], [1, 2, 3]);
    assert_eq!([first.attempts, second.attempts, third.attempts], [0; 3], "a lapse is no reported failure");
    assert_ne!(first.lease.token(), second.lease.token());
    assert_ne!(second.lease.token(), third.lease.token());
    assert_ne!(first.lease.token(), third.lease.token());
}

/// Promise 2: messages with expired leases are claimed, and those with valid leases are not.
pub async fn only_expired_leases_are_reclaimed<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let staged = stage(&fixture, &numbered("orders", 4)).await;
    for (at, lease_for) in [(0, minutes(5)), (1, minutes(60)), (2, minutes(5)), (3, minutes(60))] {
        let request = ClaimRequest::new(queue("orders"), 1).with_lease_for(lease_for);
        assert_eq!(ids(&store.claim(&request).await.unwrap()), [staged[at]]);
    }
    fixture.advance(minutes(6)).await;

    assert_eq!(sorted(ids(&claim_all(&store, "orders").await)), sorted([staged[0], staged[2]]));
}

/// Promise 4: every claim has its own token.
pub async fn every_claim_has_a_fresh_token<F: Fixture>(fixture: F) {
    let store = fixture.store();
    stage(&fixture, &numbered("orders", 2)).await;
    let first = claim(&store, "orders", 1).await;
    let second = claim(&store, "orders", 1).await;
    settle(&store, &[second[0].lease.release()]).await;
    let third = claim(&store, "orders", 1).await;

    assert_ne!(first[0].lease.token(), second[0].lease.token());
    assert_eq!(second[0].id(), third[0].id());
    assert_ne!(second[0].lease.token(), third[0].lease.token());
}

/// A claim of no queue, with limit 0, or of an unused queue returns nothing and takes nothing.
pub async fn an_empty_claim_takes_nothing<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let id = stage_one(&fixture, message("orders")).await;

    assert_eq!(store.claim(&ClaimRequest::of([], 10)).await.unwrap(), []);
    assert_eq!(store.claim(&ClaimRequest::new(queue("orders"), 0)).await.unwrap(), []);
    assert_eq!(store.claim(&ClaimRequest::new(queue("nobody"), 10)).await.unwrap(), []);
    let claimed = claim_one(&store, "orders").await;
    assert_eq!((claimed.id(), claimed.deliveries), (id, 1));
}

/// A lease duration that is too short or too long is rejected, and nothing is claimed.
pub async fn a_lease_duration_out_of_range_is_rejected<F: Fixture>(fixture: F) {
    let store = fixture.store();
    stage_one(&fixture, message("orders")).await;
    for lease_for in [Duration::from_millis(9), minutes(24 * 60) + Duration::from_millis(1)] {
        let request = ClaimRequest::new(queue("orders"), 1).with_lease_for(lease_for);
        let Err(Error::Invalid(invalid)) = store.claim(&request).await else {
            panic!("a lease of {lease_for:?} is refused")
        };
        assert_eq!(invalid.field(), "lease_for");
    }

    let claimed = claim_one(&store, "orders").await;
    assert_eq!(claimed.deliveries, 1);
    for lease_for in [Duration::from_millis(9), minutes(24 * 60) + Duration::from_millis(1)] {
        let renewed = store.renew(slice::from_ref(&claimed.lease), lease_for).await;
        assert!(matches!(renewed, Err(Error::Invalid(_))), "a renewal for {lease_for:?} is refused");
    }
}

/// Promise 2: one call claims from several queues, each in its order, and does not touch others.
pub async fn several_queues_are_claimed_together<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let names = ["orders", "invoices", "letters"];
    let messages: Vec<_> = (0..30).map(|number| message(names[number % 3]).build().unwrap()).collect();
    let staged = stage(&fixture, &messages).await;

    let request =
        ClaimRequest::of([queue("letters"), queue("orders"), queue("orders")], 6).with_lease_for(LEASE);
    let mut claimed = Vec::new();
    loop {
        let some = store.claim(&request).await.unwrap();
        assert!(some.len() <= 6, "the limit holds for all queues together");
        if some.is_empty() {
            break;
        }
        claimed.extend(some);
    }
    for (at, name) in names.iter().enumerate() {
        let of_queue: Vec<_> = claimed.iter().filter(|each| each.lease.queue().as_str() == *name).collect();
        assert!(of_queue.iter().all(|each| each.message.queue() == each.lease.queue()));
        let expected: Vec<_> = staged[at..].iter().step_by(3).copied().collect();
        let arrived: Vec<_> = of_queue.iter().map(|each| each.id()).collect();
        assert_eq!(arrived, if *name == "invoices" { vec![] } else { expected });
    }
    assert_eq!(claim_all(&store, "invoices").await.len(), 10);
}

/// Promise 5: a claim reports when its message was staged and when it was due, by the store's clock.
pub async fn a_claim_reports_when_its_message_was_staged_and_due<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let before = SystemTime::now() - Duration::from_secs(2);
    stage_one(&fixture, message("orders")).await;
    stage_one(&fixture, message("letters").due_after(minutes(60))).await;
    let now = claim_one(&store, "orders").await;
    let after = SystemTime::now() + Duration::from_secs(2);
    assert!((before..after).contains(&now.staged_at), "staged just now: {:?}", now.staged_at);
    assert!((before..after).contains(&now.due_at), "due at once: {:?}", now.due_at);
    assert_eq!((now.deliveries, now.attempts), (1, 0));

    fixture.advance(minutes(61)).await;
    let later = claim_one(&store, "letters").await;
    let waited = later.due_at.duration_since(later.staged_at).unwrap();
    assert!(
        waited.abs_diff(minutes(60)) < Duration::from_secs(2),
        "due an hour after it was staged: {waited:?}"
    );
    assert_eq!((later.deliveries, later.attempts), (1, 0));
}

/// Promise 4: concurrent claims, by any number of processes, never share a message.
pub async fn concurrent_claims_never_share_a_message<F: Fixture>(fixture: F) {
    const CLAIMERS: usize = 6;
    let staged = stage(&fixture, &numbered("orders", 60)).await;
    let start = Arc::new(Barrier::new(CLAIMERS));
    let mut claimers = JoinSet::new();
    for _ in 0..CLAIMERS {
        let (store, start) = (fixture.another_store().await, Arc::clone(&start));
        claimers.spawn(async move {
            start.wait().await;
            claim(&store, "orders", 20).await
        });
    }
    let mut claimed = claimers.join_all().await.concat();
    // A claim skips messages that another is taking; the rest is free.
    claimed.extend(claim_all(&fixture.store(), "orders").await);

    assert_eq!(sorted(ids(&claimed)), sorted(staged), "everything is claimed, by one claimer each");
}

/// Promise 4: a lease is valid in any process that presents its token.
pub async fn a_lease_can_be_settled_through_any_handle<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.store(), fixture.another_store().await);
    stage(&fixture, &numbered("orders", 2)).await;
    let claimed = claim_all(&store, "orders").await;
    assert_eq!(claimed.len(), 2);
    assert_eq!(other.renew(&leases(&claimed), LEASE).await.unwrap(), []);
    done(&other, &claimed).await;

    assert_empty(&fixture, "orders").await;
}
