//! The failure policies of a key: block, park or skip; no policy lets a message overtake (decision "ordering").

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    OnFailure, QueuePolicy, Reason, State,
    inspect::{BlockedKey, StateFilter},
};
use std::time::Duration;

/// Block: a retry blocks its key; other keys continue; then the head is delivered first.
pub async fn block_keeps_the_key_waiting_behind_a_retry<F: Fixture>(fixture: F) {
    a_retry_waits_in_place(fixture, OnFailure::Block).await;
}

/// Skip: a retry blocks its key as well: only permanently failed messages are skipped.
pub async fn skip_keeps_the_key_waiting_behind_a_retry<F: Fixture>(fixture: F) {
    a_retry_waits_in_place(fixture, OnFailure::Skip).await;
}

/// Block: a permanent failure parks its key, visibly, and the message is neither skipped nor dead-lettered.
pub async fn block_parks_a_key_whose_head_failed_permanently<F: Fixture>(fixture: F) {
    a_failure_for_good_parks(fixture, OnFailure::Block).await;
}

/// Park: a permanent failure parks its key as well.
pub async fn park_parks_a_key_whose_head_failed_permanently<F: Fixture>(fixture: F) {
    a_failure_for_good_parks(fixture, OnFailure::Park).await;
}

/// Park: the first failure parks the key, whatever delay was requested. Released by an operator, it runs in order.
pub async fn park_parks_the_key_at_its_first_failure<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Park)).await;
    let store = fixture.store();
    let staged = stage(&fixture, &numbered_of("orders", "key", 3)).await;
    let turn = claim_all(&store, "orders").await;
    settle(&store, &[turn[0].lease.retry(Duration::ZERO, "busy")]).await;

    fixture.advance(minutes(100)).await;
    assert_nothing_due(&store, "orders").await;
    let blocked = only_blocked_key(&fixture).await;
    assert_eq!((blocked.key, blocked.head, blocked.due_at), (key("key"), staged[0], None));
    assert_eq!(blocked.error.as_deref(), Some("busy"));
    assert!(release(&fixture, "key").await);
    assert_eq!(fixture.inspect().blocked_keys(&queue("orders"), 10).await.unwrap(), []);
    let again = claim(&store, "orders", 1).await;
    assert_eq!((again[0].id(), again[0].attempts, again[0].deliveries), (staged[0], 1, 2));
    done(&store, &again).await;
    assert_eq!(drain(&store, "orders").await, staged[1..]);
}

/// Skip: a permanently failed message becomes a dead letter, and its key continues.
pub async fn skip_continues_after_a_dead_letter<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Skip)).await;
    let store = fixture.store();
    let staged = stage(&fixture, &numbered_of("orders", "key", 3)).await;
    let turn = claim_all(&store, "orders").await;
    settle(&store, &[turn[0].lease.done(), turn[1].lease.dead(Reason::Undecodable, "unreadable")]).await;

    let letter = entry_in(&fixture, "orders", staged[1], State::Dead).await;
    assert_eq!((letter.reason, letter.error.as_deref()), (Some(Reason::Undecodable), Some("unreadable")));
    assert_eq!(letter.message.key(), Some(&key("key")));
    assert_eq!(fixture.inspect().blocked_keys(&queue("orders"), 10).await.unwrap(), []);
    assert_eq!(drain(&store, "orders").await, staged[2..]);
}

/// Skip without dead letters: a permanently failed message is deleted, and its key continues.
pub async fn skip_without_dead_letters_deletes_the_message<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Skip).without_dead_letters()).await;
    let store = fixture.store();
    let staged = stage(&fixture, &numbered_of("orders", "key", 2)).await;
    let turn = claim(&store, "orders", 1).await;
    settle(&store, &[turn[0].lease.dead(Reason::Rejected, "refused")]).await;

    assert_eq!(drain(&store, "orders").await, staged[1..]);
    assert_empty(&fixture, "orders").await;
}

/// Promise 6: while dead letters cannot be written, the head of a key is neither lost nor overtaken.
pub async fn a_failing_dead_letter_table_loses_no_head<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Skip)).await;
    let store = fixture.store();
    let staged = stage(&fixture, &numbered_of("orders", "key", 2)).await;
    let turn = claim(&store, "orders", 1).await;
    let dead = [turn[0].lease.dead(Reason::Rejected, "refused")];
    fixture.break_dead_letters(true).await;
    assert!(store.settle(&dead).await.is_err());
    fixture.break_dead_letters(false).await;
    assert_nothing_due(&store, "orders").await;
    settle(&store, &dead).await;

    assert_eq!(ids_of(&list(&fixture, "orders", StateFilter::Dead).await), staged[..1]);
    assert_eq!(drain(&store, "orders").await, staged[1..]);
}

/// A requeued dead letter goes before the pending messages of its key, and several keep their order, in whatever order they are
/// listed.
pub async fn requeued_dead_letters_keep_their_position<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Skip)).await;
    let store = fixture.store();
    let staged = stage(&fixture, &numbered_of("orders", "key", 5)).await;
    for id in &staged[..3] {
        let head = claim(&store, "orders", 1).await.remove(0);
        assert_eq!(head.id(), *id);
        settle(&store, &[head.lease.dead(Reason::Rejected, "refused")]).await;
    }
    let back = [staged[2], staged[0]];
    let requeued = fixture.operate().requeue(&queue("orders"), &back, &operator()).await.unwrap();
    assert_eq!(sorted(requeued), sorted(back));

    let turn = claim(&store, "orders", 1).await;
    assert_eq!((turn[0].id(), turn[0].deliveries, turn[0].attempts), (staged[0], 1, 0));
    done(&store, &turn).await;
    assert_eq!(drain(&store, "orders").await, staged[2..]);
    assert_eq!(ids_of(&list(&fixture, "orders", StateFilter::Dead).await), [staged[1]]);
}

/// A requeued dead letter runs even if its key has no other message.
pub async fn a_requeued_dead_letter_unparks_its_key<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Skip)).await;
    let store = fixture.store();
    let id = stage_one(&fixture, message("orders").key("key")).await;
    dead_letter_one(&store, "orders").await;
    assert_nothing_due(&store, "orders").await;
    fixture.operate().requeue(&queue("orders"), &[id], &operator()).await.unwrap();

    assert_eq!(drain(&store, "orders").await, [id]);
}

/// An operator can release a key that waits for a retry.
pub async fn a_blocked_key_can_be_released_by_an_operator<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let store = fixture.store();
    let staged = stage(&fixture, &numbered_of("orders", "key", 2)).await;
    assert!(!release(&fixture, "key").await, "it is not blocked");
    let turn = claim_all(&store, "orders").await;
    settle(&store, &[turn[0].lease.retry(minutes(60), "busy")]).await;
    assert_nothing_due(&store, "orders").await;
    assert!(!release(&fixture, "another").await, "another key is not blocked");
    assert!(release(&fixture, "key").await);

    assert_eq!(drain(&store, "orders").await, staged);
}

/// An operator can discard the head of a parked key, and release the rest.
pub async fn the_head_of_a_parked_key_can_be_discarded<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Park)).await;
    let store = fixture.store();
    let staged = stage(&fixture, &numbered_of("orders", "key", 3)).await;
    let turn = claim_all(&store, "orders").await;
    settle(&store, &[turn[0].lease.retry(Duration::ZERO, "busy")]).await;
    let discarded = fixture.operate().discard(&queue("orders"), &staged[..1], &operator()).await.unwrap();
    assert_eq!(discarded, staged[..1]);
    release(&fixture, "key").await;

    assert_eq!(drain(&store, "orders").await, staged[1..]);
}

/// A message in the middle of its key can be discarded, and the others keep their order.
pub async fn a_message_in_the_middle_can_be_discarded<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let staged = stage(&fixture, &numbered_of("orders", "key", 3)).await;
    let discarded = fixture.operate().discard(&queue("orders"), &staged[1..2], &operator()).await.unwrap();
    assert_eq!(discarded, staged[1..2]);

    assert_eq!(drain(&fixture.store(), "orders").await, [staged[0], staged[2]]);
}

async fn a_retry_waits_in_place<F: Fixture>(fixture: F, policy: OnFailure) {
    declare(&fixture, "orders", QueuePolicy::by_key(policy)).await;
    let store = fixture.store();
    let staged = stage(&fixture, &numbered_of("orders", "key", 3)).await;
    let turn = claim_all(&store, "orders").await;
    assert_eq!(ids(&turn), staged);
    settle(&store, &[turn[0].lease.retry(minutes(10), "busy")]).await;

    let others = stage(&fixture, &numbered_of("orders", "another", 2)).await;
    let behind = stage(&fixture, &numbered_of("orders", "key", 1)).await;
    assert_eq!(drain(&store, "orders").await, others, "a blocked key blocks no other");
    let blocked = only_blocked_key(&fixture).await;
    assert_eq!((blocked.key, blocked.head, blocked.reason), (key("key"), staged[0], None));
    assert!(blocked.due_at.is_some());
    assert_eq!(blocked.error.as_deref(), Some("busy"));
    assert_eq!(entry_in(&fixture, "orders", staged[0], State::Scheduled).await.attempts, 1);
    fixture.advance(minutes(8)).await;
    assert_nothing_due(&store, "orders").await;
    fixture.advance(minutes(2)).await;

    let head = claim(&store, "orders", 1).await;
    assert_eq!((head[0].id(), head[0].attempts, head[0].deliveries), (staged[0], 1, 2));
    done(&store, &head).await;
    assert_eq!(drain(&store, "orders").await, [&staged[1..], &behind[..]].concat());
    assert_empty(&fixture, "orders").await;
}

async fn a_failure_for_good_parks<F: Fixture>(fixture: F, policy: OnFailure) {
    declare(&fixture, "orders", QueuePolicy::by_key(policy)).await;
    let store = fixture.store();
    let staged = stage(&fixture, &numbered_of("orders", "key", 3)).await;
    let turn = claim_all(&store, "orders").await;
    settle(&store, &[turn[0].lease.done(), turn[1].lease.dead(Reason::RetriesExhausted, "gave up")]).await;

    fixture.advance(minutes(100)).await;
    assert_nothing_due(&store, "orders").await;
    assert_eq!(list(&fixture, "orders", StateFilter::Dead).await, []);
    let blocked = only_blocked_key(&fixture).await;
    assert_eq!((blocked.key, blocked.head, blocked.due_at), (key("key"), staged[1], None));
    assert_eq!((blocked.reason, blocked.error.as_deref()), (Some(Reason::RetriesExhausted), Some("gave up")));
    entry_in(&fixture, "orders", staged[1], State::Scheduled).await;
    assert!(release(&fixture, "key").await);
    assert_eq!(drain(&store, "orders").await, staged[1..]);
    assert_empty(&fixture, "orders").await;
}

async fn only_blocked_key<F: Fixture>(fixture: &F) -> BlockedKey {
    let mut blocked = fixture.inspect().blocked_keys(&queue("orders"), 10).await.unwrap();
    assert_eq!(blocked.len(), 1, "one key is blocked");
    blocked.remove(0)
}

async fn release<F: Fixture>(fixture: &F, name: &str) -> bool {
    fixture.operate().release_key(&queue("orders"), &key(name), &operator()).await.unwrap()
}
