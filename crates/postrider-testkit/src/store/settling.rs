//! However a delivery ends, its message ends in exactly one room, and nothing is dropped in silence (promises 2 and 6).

use super::helpers::*;
use crate::Fixture;
use postrider_core::{Claimed, Error, QueuePolicy, Reason, Settlement, State, inspect::Room, limits};
use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

/// Settling nothing answers with nothing.
pub async fn settling_nothing_loses_nothing<F: Fixture>(fixture: F) {
    assert_eq!(fixture.store().settle(&[]).await.unwrap(), []);
}

/// Whoever has the lease ends it, though the queue is younger than what this handle knows of queues.
pub async fn a_queue_that_was_made_elsewhere_meanwhile_is_settled_and_renewed<F: Fixture>(fixture: F) {
    let (one, other) = (fixture.store(), fixture.another_store().await);
    // One looks around, and then the queues are made.
    assert_nothing_due(&one, "orders").await;
    stage(&fixture, &numbered("orders", 1)).await;
    let claimed = claim_all(&other, "orders").await;
    assert_eq!(one.settle(&[claimed[0].lease.done()]).await.unwrap(), []);
    assert_empty(&fixture, "orders").await;
    assert_nothing_due(&one, "letters").await;
    stage(&fixture, &numbered("letters", 1)).await;
    let claimed = claim_all(&other, "letters").await;
    assert_eq!(one.renew(&[claimed[0].lease.clone()], minutes(5)).await.unwrap(), []);
}

/// Promise 6: success leaves nothing by default, least of all a dead letter.
pub async fn success_leaves_nothing_and_writes_no_dead_letter<F: Fixture>(fixture: F) {
    let store = fixture.store();
    stage(&fixture, &numbered("orders", 3)).await;
    let retried = claim(&store, "orders", 1).await.remove(0);
    settle(&store, &[retried.lease.retry(Duration::ZERO, "busy")]).await;
    assert_eq!(drain(&store, "orders").await.len(), 3);

    assert_empty(&fixture, "orders").await;
}

/// Promise 5: a retry waits for as long as its own delay says, by the store's clock, whatever the others of its batch do.
pub async fn every_retry_waits_for_its_own_delay<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let staged = stage(&fixture, &numbered("orders", 4)).await;
    let claimed = claim_all(&store, "orders").await;
    let delays = [30, 10, 20, 0].map(minutes);
    let retries: Vec<_> =
        claimed.iter().zip(delays).map(|(each, after)| each.lease.retry(after, "busy")).collect();
    settle(&store, &retries).await;

    assert_eq!(drain(&store, "orders").await, [staged[3]], "no delay means now");
    fixture.advance(minutes(8)).await;
    assert_nothing_due(&store, "orders").await;
    fixture.advance(minutes(2)).await;
    assert_eq!(drain(&store, "orders").await, [staged[1]]);
    fixture.advance(minutes(10)).await;
    assert_eq!(drain(&store, "orders").await, [staged[2]]);
    fixture.advance(minutes(8)).await;
    assert_nothing_due(&store, "orders").await;
    fixture.advance(minutes(2)).await;
    assert_eq!(drain(&store, "orders").await, [staged[0]]);
}

/// Decision "two counters": a retry counts an attempt, keeps what failed, and the next claim counts a delivery.
pub async fn a_retry_counts_an_attempt_and_keeps_its_error<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let id = stage_one(&fixture, message("orders")).await;
    for attempt in 1..=3 {
        let claimed = claim_one(&store, "orders").await;
        assert_eq!((claimed.deliveries, claimed.attempts), (attempt, attempt - 1));
        let error = format!("failure {attempt}");
        settle(&store, &[claimed.lease.retry(minutes(5), error.clone())]).await;
        let entry = entry_in(&fixture, "orders", id, State::Waiting).await;
        assert_eq!((entry.deliveries, entry.attempts, entry.error), (attempt, attempt, Some(error)));
        assert_eq!(entry.reason, None);
        fixture.advance(minutes(5)).await;
    }
}

/// Decision "error text": a failure may be told without a text.
pub async fn a_failure_may_have_no_text<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let staged = stage(&fixture, &numbered("orders", 2)).await;
    let claimed = claim_all(&store, "orders").await;
    let retry = Settlement::Retry { after: minutes(5), error: None };
    let dead = Settlement::Dead { reason: Reason::Rejected, error: None };
    settle(&store, &[claimed[0].lease.settle(retry), claimed[1].lease.settle(dead)]).await;

    assert_eq!(entry_in(&fixture, "orders", staged[0], State::Waiting).await.error, None);
    assert_eq!(entry_in(&fixture, "orders", staged[1], State::Dead).await.error, None);
}

/// Promise 7: an error text that no database likes (a NUL, far too long) fails neither its own settlement nor the others.
pub async fn an_awkward_error_text_harms_nobody<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let staged = stage(&fixture, &numbered("orders", 3)).await;
    let claimed = claim_all(&store, "orders").await;
    let awkward = format!("before\0after {}", "ü".repeat(limits::ERROR_BYTES));
    settle(
        &store,
        &[
            claimed[0].lease.retry(minutes(5), awkward.clone()),
            claimed[1].lease.dead(Reason::Rejected, awkward),
            claimed[2].lease.done(),
        ],
    )
    .await;

    for (id, state) in [(staged[0], State::Waiting), (staged[1], State::Dead)] {
        let error = entry_in(&fixture, "orders", id, state).await.error.unwrap();
        assert!(error.starts_with("before") && error.contains("after ü"), "what can be kept is kept");
        assert!(error.len() <= limits::ERROR_BYTES, "at most {} bytes are kept", limits::ERROR_BYTES);
    }
    assert_eq!(get(&fixture, "orders", staged[2]).await, None);
}

/// Promise 6: what failed for good is in the dead-letter room, once and whole, and nowhere else.
pub async fn a_dead_letter_is_whole_and_in_one_room_only<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let plain = message("orders").payload("plain").key("key-1").event_type("order.placed").build().unwrap();
    let timer = message("orders").payload("timer").timer("reminder").build().unwrap();
    let staged = stage(&fixture, &[plain, timer]).await;
    for claimed in claim_all(&store, "orders").await {
        settle(&store, &[claimed.lease.dead(Reason::RetriesExhausted, "gave up")]).await;
    }

    assert_nothing_due(&store, "orders").await;
    assert_eq!(list(&fixture, "orders", Room::Ready).await, []);
    assert_eq!(list(&fixture, "orders", Room::Later).await, []);
    let dead = list(&fixture, "orders", Room::Dead).await;
    assert_eq!(sorted(ids_of(&dead)), sorted(staged.clone()));
    for letter in &dead {
        assert_eq!((letter.state, letter.reason), (State::Dead, Some(Reason::RetriesExhausted)));
        assert_eq!((letter.deliveries, letter.attempts, letter.error.as_deref()), (1, 1, Some("gave up")));
        let age = SystemTime::now().duration_since(letter.at).unwrap_or(Duration::ZERO);
        assert!(age < minutes(1), "failed just now, {age:?} ago");
    }
    let [plain, timer] = [staged[0], staged[1]]
        .map(|id| &dead.iter().find(|letter| letter.message.id() == Some(id)).unwrap().message);
    assert_eq!(plain.payload().as_ref(), b"plain");
    assert_eq!(plain.key().unwrap().as_str(), "key-1");
    assert_eq!(plain.event_type().unwrap().as_str(), "order.placed");
    assert_eq!(plain.timer(), None);
    assert_eq!(timer.payload().as_ref(), b"timer");
    assert_eq!(timer.timer().unwrap().name.as_str(), "reminder");
}

/// Decision "reasons": each of the four is recorded as it was given.
pub async fn every_reason_is_recorded<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let staged = stage(&fixture, &numbered("orders", Reason::ALL.len())).await;
    let claimed = claim_all(&store, "orders").await;
    let batch: Vec<_> = claimed
        .iter()
        .zip(Reason::ALL)
        .map(|(each, reason)| each.lease.dead(reason, reason.as_str()))
        .collect();
    settle(&store, &batch).await;

    for (id, reason) in staged.into_iter().zip(Reason::ALL) {
        let letter = entry_in(&fixture, "orders", id, State::Dead).await;
        assert_eq!((letter.reason, letter.error.as_deref()), (Some(reason), Some(reason.as_str())));
    }
}

/// Promise 6: while the dead-letter room is broken, the settlement fails as a whole: the message stays, and so does
/// everything else of the batch. Once mended, it goes through.
pub async fn a_broken_dead_letter_room_loses_nothing<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let staged = stage(&fixture, &numbered("orders", 4)).await;
    let claimed = claim_all(&store, "orders").await;
    let batch = one_of_each(&claimed);
    fixture.break_dead_letters(true).await;
    assert!(store.settle(&batch).await.is_err(), "the dead letter cannot be written");

    for id in &staged {
        let entry = entry_in(&fixture, "orders", *id, State::Leased).await;
        assert_eq!((entry.deliveries, entry.attempts), (1, 0), "a failed settle has changed nothing");
    }
    lapse(&fixture).await;
    let again = claim_all(&store, "orders").await;
    assert_eq!(sorted(ids(&again)), sorted(staged.clone()), "everything is claimable again");
    fixture.break_dead_letters(false).await;
    settle(
        &store,
        &[again.iter().find(|each| each.id() == staged[2]).unwrap().lease.dead(Reason::Rejected, "no")],
    )
    .await;
    assert_eq!(ids_of(&list(&fixture, "orders", Room::Dead).await), [staged[2]]);
}

/// Promise 6: while the dead-letter room is broken, what needs none goes on.
pub async fn a_broken_dead_letter_room_stops_nothing_else<F: Fixture>(fixture: F) {
    let store = fixture.store();
    stage(&fixture, &numbered("orders", 3)).await;
    fixture.break_dead_letters(true).await;

    assert_eq!(drain(&store, "orders").await.len(), 3);
    fixture.break_dead_letters(false).await;
    assert_empty(&fixture, "orders").await;
}

/// Decision "what failure leaves": a queue without dead letters keeps no trace of what failed for good.
pub async fn without_dead_letters_failure_leaves_no_trace<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::default().without_dead_letters()).await;
    stage_one(&fixture, message("orders")).await;
    kill_one(&fixture.store(), "orders").await;

    assert_nothing_due(&fixture.store(), "orders").await;
    assert_empty(&fixture, "orders").await;
}

/// Decision "two counters": a release is not counted, and the message is claimable at once.
pub async fn a_release_is_not_counted<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let id = stage_one(&fixture, message("orders")).await;
    for _ in 0..3 {
        let claimed = claim_one(&store, "orders").await;
        assert_eq!((claimed.id(), claimed.deliveries, claimed.attempts), (id, 1, 0));
        settle(&store, &[claimed.lease.release()]).await;
        let entry = entry_in(&fixture, "orders", id, State::Pending).await;
        assert_eq!((entry.deliveries, entry.attempts), (0, 0));
    }
}

/// Decision "two counters": a release undoes its own delivery, and no earlier one.
pub async fn a_release_undoes_only_its_own_delivery<F: Fixture>(fixture: F) {
    let store = fixture.store();
    stage_one(&fixture, message("orders")).await;
    let first = claim_one(&store, "orders").await;
    settle(&store, &[first.lease.retry(Duration::ZERO, "busy")]).await;
    let second = claim_one(&store, "orders").await;
    assert_eq!((second.deliveries, second.attempts), (2, 1));
    settle(&store, &[second.lease.release()]).await;

    let third = claim_one(&store, "orders").await;
    assert_eq!((third.deliveries, third.attempts), (2, 1));
}

/// Promise 2: messages that fail until their attempts are used up all end as dead letters, with every attempt counted.
pub async fn a_hundred_messages_failing_ten_times_all_become_dead_letters<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let staged = stage(&fixture, &numbered("orders", 100)).await;
    for attempt in 1..=10 {
        let claimed = claim_all(&store, "orders").await;
        assert_eq!(claimed.len(), 100);
        assert!(claimed.iter().all(|each| each.attempts == attempt - 1 && each.deliveries == attempt));
        let batches: Vec<_> = claimed
            .iter()
            .enumerate()
            .map(|(number, each)| match attempt {
                10 => each.lease.dead(Reason::RetriesExhausted, "gave up"),
                _ => each.lease.retry(Duration::from_secs(number as u64), "busy"),
            })
            .collect();
        for batch in batches.chunks(20) {
            settle(&store, batch).await;
        }
        fixture.advance(minutes(2)).await;
    }

    assert_eq!(list(&fixture, "orders", Room::Ready).await, []);
    assert_eq!(list(&fixture, "orders", Room::Later).await, []);
    let dead: HashMap<_, _> = list(&fixture, "orders", Room::Dead)
        .await
        .into_iter()
        .map(|each| (each.message.id(), each))
        .collect();
    assert_eq!(dead.len(), 100);
    for id in staged {
        let letter = &dead[&Some(id)];
        assert_eq!((letter.attempts, letter.deliveries), (10, 10));
        assert_eq!(letter.reason, Some(Reason::RetriesExhausted));
    }
}

/// House plan, "errors": the failure of a settlement is told by kind, not hidden.
pub async fn a_failed_settlement_is_an_error_and_not_a_lost_lease<F: Fixture>(fixture: F) {
    let store = fixture.store();
    stage_one(&fixture, message("orders")).await;
    let claimed = claim_one(&store, "orders").await;
    fixture.break_dead_letters(true).await;
    let error = store.settle(&[claimed.lease.dead(Reason::Rejected, "refused")]).await.unwrap_err();
    fixture.break_dead_letters(false).await;

    assert!(!matches!(error, Error::Invalid(_)), "the input was right: {error}");
    settle(&store, &[claimed.lease.dead(Reason::Rejected, "refused")]).await;
}

/// One settlement of each kind, the dead letter third, for four claims in staging order.
fn one_of_each(claimed: &[Claimed]) -> Vec<postrider_core::Settle> {
    vec![
        claimed[0].lease.done(),
        claimed[1].lease.retry(minutes(5), "busy"),
        claimed[2].lease.dead(Reason::Rejected, "refused"),
        claimed[3].lease.release(),
    ]
}
