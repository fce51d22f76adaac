//! What happens to a key when its head fails: block, park or skip; in no case does anything overtake (decision "ordering").

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    OnFailure, QueuePolicy, Reason, State,
    inspect::{BlockedKey, Room},
};
use std::time::Duration;

/// Block: a retry waits in place and its key with it; other keys flow; then the head comes first.
pub async fn block_keeps_the_key_waiting_behind_a_retry<F: Fixture>(fixture: F) {
    a_retry_waits_in_place(fixture, OnFailure::Block).await;
}

/// Skip: a retry waits in place too: only what failed for good is skipped.
pub async fn skip_keeps_the_key_waiting_behind_a_retry<F: Fixture>(fixture: F) {
    a_retry_waits_in_place(fixture, OnFailure::Skip).await;
}

/// Block: what failed for good parks its key, visibly, and is neither skipped nor a dead letter.
pub async fn block_parks_a_key_whose_head_failed_for_good<F: Fixture>(fixture: F) {
    a_failure_for_good_parks(fixture, OnFailure::Block).await;
}

/// Park: what failed for good parks its key too.
pub async fn park_parks_a_key_whose_head_failed_for_good<F: Fixture>(fixture: F) {
    a_failure_for_good_parks(fixture, OnFailure::Park).await;
}

/// Park: the first failure parks the key, whatever delay was asked for. Released by hand, it runs in order.
pub async fn park_holds_the_key_after_its_first_failure<F: Fixture>(fixture: F) {
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

/// Skip: what failed for good becomes a dead letter, and its key goes on.
pub async fn skip_goes_on_after_a_dead_letter<F: Fixture>(fixture: F) {
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

/// Skip, without dead letters: what failed for good leaves no trace, and its key goes on.
pub async fn skip_without_dead_letters_leaves_no_trace<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Skip).without_dead_letters()).await;
    let store = fixture.store();
    let staged = stage(&fixture, &numbered_of("orders", "key", 2)).await;
    let turn = claim(&store, "orders", 1).await;
    settle(&store, &[turn[0].lease.dead(Reason::Rejected, "refused")]).await;

    assert_eq!(drain(&store, "orders").await, staged[1..]);
    assert_empty(&fixture, "orders").await;
}

/// Promise 6: while the dead-letter room is broken, the head of a key is neither lost nor overtaken.
pub async fn a_broken_dead_letter_room_loses_no_head<F: Fixture>(fixture: F) {
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

    assert_eq!(ids_of(&list(&fixture, "orders", Room::Dead).await), staged[..1]);
    assert_eq!(drain(&store, "orders").await, staged[1..]);
}

/// A dead letter that is put back goes before what its key has pending, and several keep their order, however they are
/// named.
pub async fn requeued_dead_letters_go_back_to_their_place<F: Fixture>(fixture: F) {
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
    assert_eq!(ids_of(&list(&fixture, "orders", Room::Dead).await), [staged[1]]);
}

/// A dead letter that is put back runs, though nothing else of its key is left.
pub async fn a_requeued_dead_letter_brings_its_key_back<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Skip)).await;
    let store = fixture.store();
    let id = stage_one(&fixture, message("orders").key("key")).await;
    kill_one(&store, "orders").await;
    assert_nothing_due(&store, "orders").await;
    fixture.operate().requeue(&queue("orders"), &[id], &operator()).await.unwrap();

    assert_eq!(drain(&store, "orders").await, [id]);
}

/// An operator can let a key run at once that waits for a retry.
pub async fn a_waiting_key_can_be_released_by_hand<F: Fixture>(fixture: F) {
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

/// An operator can get rid of the head of a parked key, and let the rest run.
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
    assert_eq!(drain(&store, "orders").await, others, "a blocked key stops nobody else");
    let blocked = only_blocked_key(&fixture).await;
    assert_eq!((blocked.key, blocked.head, blocked.reason), (key("key"), staged[0], None));
    assert!(blocked.due_at.is_some());
    assert_eq!(blocked.error.as_deref(), Some("busy"));
    assert_eq!(entry_in(&fixture, "orders", staged[0], State::Waiting).await.attempts, 1);
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
    assert_eq!(list(&fixture, "orders", Room::Dead).await, []);
    let blocked = only_blocked_key(&fixture).await;
    assert_eq!((blocked.key, blocked.head, blocked.due_at), (key("key"), staged[1], None));
    assert_eq!((blocked.reason, blocked.error.as_deref()), (Some(Reason::RetriesExhausted), Some("gave up")));
    entry_in(&fixture, "orders", staged[1], State::Waiting).await;
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
