//! However a delivery ends, its message ends in exactly one state, and nothing is lost silently (promises 2 and 6).

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    ClaimedMessage, Error, QueuePolicy, Reason, Settlement, State, inspect::StateFilter, limits,
};
use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

/// Settling no leases returns no lost leases.
pub async fn settling_no_leases_loses_none<F: Fixture>(fixture: F) {
    assert_eq!(fixture.store().settle(&[]).await.unwrap(), []);
}

/// A lease can be settled through a handle that has not seen the queue before.
pub async fn a_queue_declared_by_another_process_is_settled_and_renewed<F: Fixture>(fixture: F) {
    let (one, other) = (fixture.store(), fixture.another_store().await);
    // This handle loads the queues first, and then another one creates the queues.
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

/// Promise 6: by default success leaves nothing, in particular no dead letter.
pub async fn done_removes_the_message_and_writes_no_dead_letter<F: Fixture>(fixture: F) {
    let store = fixture.store();
    stage(&fixture, &numbered("orders", 3)).await;
    let retried = claim(&store, "orders", 1).await.remove(0);
    settle(&store, &[retried.lease.retry(Duration::ZERO, "busy")]).await;
    assert_eq!(drain(&store, "orders").await.len(), 3);

    assert_empty(&fixture, "orders").await;
}

/// Promise 5: a retry waits for its own delay, by the store's clock, whatever the rest of the batch does.
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

/// Decision "two counters": a retry counts an attempt, stores the error, and the next claim counts a delivery.
pub async fn a_retry_counts_an_attempt_and_keeps_its_error<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let id = stage_one(&fixture, message("orders")).await;
    for attempt in 1..=3 {
        let claimed = claim_one(&store, "orders").await;
        assert_eq!((claimed.deliveries, claimed.attempts), (attempt, attempt - 1));
        let error = format!("failure {attempt}");
        settle(&store, &[claimed.lease.retry(minutes(5), error.clone())]).await;
        let entry = entry_in(&fixture, "orders", id, State::Scheduled).await;
        assert_eq!((entry.deliveries, entry.attempts, entry.error), (attempt, attempt, Some(error)));
        assert_eq!(entry.reason, None);
        fixture.advance(minutes(5)).await;
    }
}

/// Decision "error text": a failure can have no error text.
pub async fn a_failure_without_error_text_is_stored<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let staged = stage(&fixture, &numbered("orders", 2)).await;
    let claimed = claim_all(&store, "orders").await;
    let retry = Settlement::Retry { after: minutes(5), error: None };
    let dead = Settlement::Dead { reason: Reason::Rejected, error: None };
    settle(&store, &[claimed[0].lease.settle(retry), claimed[1].lease.settle(dead)]).await;

    assert_eq!(entry_in(&fixture, "orders", staged[0], State::Scheduled).await.error, None);
    assert_eq!(entry_in(&fixture, "orders", staged[1], State::Dead).await.error, None);
}

/// Promise 7: an error text that databases reject (a NUL, far too long) fails neither its own settlement nor the others.
pub async fn unusual_error_texts_are_stored<F: Fixture>(fixture: F) {
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

    for (id, state) in [(staged[0], State::Scheduled), (staged[1], State::Dead)] {
        let error = entry_in(&fixture, "orders", id, state).await.error.unwrap();
        assert!(error.starts_with("before") && error.contains("after ü"), "what can be kept is kept");
        assert!(error.len() <= limits::ERROR_BYTES, "at most {} bytes are kept", limits::ERROR_BYTES);
    }
    assert_eq!(get(&fixture, "orders", staged[2]).await, None);
}

/// Promise 6: a permanently failed message is a dead letter, once and complete, and in no other state.
pub async fn a_dead_letter_is_complete_and_in_one_state_only<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let plain = message("orders").payload("plain").key("key-1").event_type("order.placed").build().unwrap();
    let timer = message("orders").payload("timer").timer("reminder").build().unwrap();
    let staged = stage(&fixture, &[plain, timer]).await;
    for claimed in claim_all(&store, "orders").await {
        settle(&store, &[claimed.lease.dead(Reason::RetriesExhausted, "gave up")]).await;
    }

    assert_nothing_due(&store, "orders").await;
    assert_eq!(list(&fixture, "orders", StateFilter::Ready).await, []);
    assert_eq!(list(&fixture, "orders", StateFilter::Scheduled).await, []);
    let dead = list(&fixture, "orders", StateFilter::Dead).await;
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

/// Promise 6: while dead letters cannot be written, the settlement fails as a whole: the message stays, and so does everything else
/// of the batch. Once repaired, it succeeds.
pub async fn a_failing_dead_letter_table_loses_nothing<F: Fixture>(fixture: F) {
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
    expire_leases(&fixture).await;
    let again = claim_all(&store, "orders").await;
    assert_eq!(sorted(ids(&again)), sorted(staged.clone()), "everything is claimable again");
    fixture.break_dead_letters(false).await;
    settle(
        &store,
        &[again.iter().find(|each| each.id() == staged[2]).unwrap().lease.dead(Reason::Rejected, "no")],
    )
    .await;
    assert_eq!(ids_of(&list(&fixture, "orders", StateFilter::Dead).await), [staged[2]]);
}

/// Promise 6: while dead letters cannot be written, settlements without dead letters succeed.
pub async fn a_failing_dead_letter_table_blocks_nothing_else<F: Fixture>(fixture: F) {
    let store = fixture.store();
    stage(&fixture, &numbered("orders", 3)).await;
    fixture.break_dead_letters(true).await;

    assert_eq!(drain(&store, "orders").await.len(), 3);
    fixture.break_dead_letters(false).await;
    assert_empty(&fixture, "orders").await;
}

/// Decision "what failure leaves": a queue without dead letters deletes permanently failed messages.
pub async fn without_dead_letters_a_failed_message_is_deleted<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::default().without_dead_letters()).await;
    stage_one(&fixture, message("orders")).await;
    dead_letter_one(&fixture.store(), "orders").await;

    assert_nothing_due(&fixture.store(), "orders").await;
    assert_empty(&fixture, "orders").await;
}

/// Decision "two counters": a release counts no attempt, and the message can be claimed at once.
pub async fn a_release_counts_no_attempt<F: Fixture>(fixture: F) {
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

/// Decision "two counters": a release uncounts its own delivery, and no earlier one.
pub async fn a_release_uncounts_only_its_own_delivery<F: Fixture>(fixture: F) {
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

/// Promise 2: messages that exhaust their attempts all end as dead letters, with every attempt counted.
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

    assert_eq!(list(&fixture, "orders", StateFilter::Ready).await, []);
    assert_eq!(list(&fixture, "orders", StateFilter::Scheduled).await, []);
    let dead: HashMap<_, _> = list(&fixture, "orders", StateFilter::Dead)
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

/// A failed settlement is reported as an error of the right kind, and not as a lost lease.
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
fn one_of_each(claimed: &[ClaimedMessage]) -> Vec<postrider_core::LeaseSettlement> {
    vec![
        claimed[0].lease.done(),
        claimed[1].lease.retry(minutes(5), "busy"),
        claimed[2].lease.dead(Reason::Rejected, "refused"),
        claimed[3].lease.release(),
    ]
}
