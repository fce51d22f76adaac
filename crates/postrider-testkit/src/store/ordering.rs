//! Messages of one key are delivered one at a time and in staging order; keys run in parallel (decision "ordering").

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    ClaimRequest, Error, OnFailure, PruneRequest, QueuePolicy, Reason, StageOutcome, State,
    inspect::StateFilter,
};
use std::collections::HashMap;

/// Messages of each key are claimed in staging order, however the keys are interleaved.
pub async fn each_key_is_claimed_in_staging_order<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let messages: Vec<_> = (0..60)
        .map(|number: usize| {
            let key = format!("key-{}", number * number % 7 % 4);
            message("orders").key(key).payload(number.to_string()).build().unwrap()
        })
        .collect();
    for transaction in messages.chunks(11) {
        stage(&fixture, transaction).await;
    }

    let mut order: HashMap<_, Vec<String>> = HashMap::new();
    let store = fixture.store();
    loop {
        let claimed = claim(&store, "orders", 5).await;
        if claimed.is_empty() {
            break;
        }
        for (each, payload) in claimed.iter().zip(payloads(&claimed)) {
            order.entry(each.message.key().cloned()).or_default().push(payload);
        }
        done(&store, &claimed).await;
    }
    for (key, arrived) in order {
        let expected: Vec<_> = messages
            .iter()
            .filter(|message| message.key() == key.as_ref())
            .map(|message| String::from_utf8(message.payload().to_vec()).unwrap())
            .collect();
        assert_eq!(arrived, expected, "the order of {key:?}");
    }
    assert_empty(&fixture, "orders").await;
}

/// While a key has a turn, no other claim gets a message of the key, even one that the turn does not cover.
pub async fn a_key_has_one_turn_at_a_time<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let (store, other) = (fixture.store(), fixture.another_store().await);
    let staged = stage(&fixture, &numbered_of("orders", "key", 5)).await;
    let turn = claim(&store, "orders", 2).await;
    assert_eq!(ids(&turn), staged[..turn.len()]);
    assert!(!turn.is_empty());
    assert_nothing_due(&other, "orders").await;
    assert_nothing_due(&store, "orders").await;
    done(&store, &turn).await;

    assert_eq!(drain(&other, "orders").await, staged[turn.len()..]);
}

/// Different keys are claimed in parallel: the turn of one key blocks no other key.
pub async fn different_keys_are_claimed_in_parallel<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let (store, other) = (fixture.store(), fixture.another_store().await);
    let first = stage(&fixture, &numbered_of("orders", "first", 2)).await;
    let turn = claim_all(&store, "orders").await;
    assert_eq!(ids(&turn), first);
    let second = stage(&fixture, &numbered_of("orders", "second", 2)).await;
    let late = stage(&fixture, &numbered_of("orders", "first", 1)).await;

    assert_eq!(drain(&other, "orders").await, second);
    done(&store, &turn).await;
    assert_eq!(drain(&other, "orders").await, late);
}

/// One claim returns turns of several keys, each of consecutive messages with the last marked, and no more messages than the limit.
pub async fn a_turn_holds_several_messages_and_marks_the_last<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let store = fixture.store();
    let keys = ["a", "b", "c"];
    for key in keys {
        stage(&fixture, &numbered_of("orders", key, 5)).await;
    }
    let claimed = claim_all(&store, "orders").await;
    assert_eq!(claimed.len(), 15);
    for name in keys {
        let turn: Vec<_> =
            claimed.iter().filter(|each| each.lease.turn().unwrap().key == key(name)).collect();
        let numbers: Vec<_> = turn.iter().map(|each| each.message.payload().as_ref()).collect();
        assert_eq!(numbers, [b"0", b"1", b"2", b"3", b"4"]);
        let last: Vec<_> = turn.iter().map(|each| each.lease.turn().unwrap().last).collect();
        assert_eq!(last, [false, false, false, false, true]);
    }
}

/// A turn continues while its messages are settled one after the other, and ends with the last.
pub async fn a_turn_ends_with_its_last_message<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let (store, other) = (fixture.store(), fixture.another_store().await);
    stage(&fixture, &numbered_of("orders", "key", 3)).await;
    let turn = claim_all(&store, "orders").await;
    let next = stage(&fixture, &numbered_of("orders", "key", 2)).await;
    for each in &turn {
        assert_nothing_due(&other, "orders").await;
        done(&store, std::slice::from_ref(each)).await;
    }

    assert_eq!(drain(&other, "orders").await, next);
}

/// A message without a key is independent: it blocks no message, and no message blocks it.
pub async fn a_message_without_a_key_is_not_blocked<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let (store, other) = (fixture.store(), fixture.another_store().await);
    let staged = stage(&fixture, &numbered("orders", 3)).await;
    let first = claim(&store, "orders", 1).await;
    assert_eq!(first.len(), 1);
    let rest = claim_all(&other, "orders").await;

    assert_eq!(sorted([ids(&first), ids(&rest)].concat()), sorted(staged));
    assert!(first.iter().chain(&rest).all(|each| each.lease.turn().unwrap().last));
}

/// A message whose lease expired, that failed or was released is delivered before later messages of its key: nothing overtakes it.
pub async fn released_messages_count_no_attempt_and_keep_their_order<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let (store, other) = (fixture.store(), fixture.another_store().await);
    let staged = stage(&fixture, &numbered_of("orders", "key", 5)).await;
    let turn = claim_all(&store, "orders").await;
    let mut batch: Vec<_> = turn[..2].iter().map(|each| each.lease.done()).collect();
    batch.extend(turn[2..].iter().map(|each| each.lease.release()));
    settle(&store, &batch).await;

    let again = claim_all(&other, "orders").await;
    assert_eq!(ids(&again), staged[2..]);
    assert!(again.iter().all(|each| each.deliveries == 1 && each.attempts == 0), "a release is not counted");
}

/// A whole turn can be released.
pub async fn a_whole_turn_can_be_released<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let store = fixture.store();
    let staged = stage(&fixture, &numbered_of("orders", "key", 3)).await;
    for _ in 0..3 {
        let turn = claim_all(&store, "orders").await;
        assert_eq!(ids(&turn), staged);
        assert!(turn.iter().all(|each| each.deliveries == 1));
        settle(&store, &turn.iter().map(|each| each.lease.release()).collect::<Vec<_>>()).await;
    }
    assert_eq!(drain(&store, "orders").await, staged);
}

/// Duplicates are detected on ordered queues as on any other.
pub async fn a_duplicate_on_an_ordered_queue_is_one_message<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let (store, id) = (fixture.store(), fresh_id());
    let staged = || message("orders").key("key").id(id);
    stage_one(&fixture, staged()).await;
    assert_eq!(stage_again(&fixture, staged()).await, (id, StageOutcome::Duplicate));
    let turn = claim_all(&store, "orders").await;
    assert_eq!(ids(&turn), [id]);
    assert_eq!(stage_again(&fixture, staged()).await, (id, StageOutcome::Duplicate));
    done(&store, &turn).await;

    assert_empty(&fixture, "orders").await;
}

/// A timer on an ordered queue gets its position when it is due, and does not block its key before that.
pub async fn a_timer_joins_its_key_when_it_is_due<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let (store, other) = (fixture.store(), fixture.another_store().await);
    let reminder = message("orders").key("key").timer("reminder").due_after(minutes(5)).build().unwrap();
    let id = stage_one(&fixture, &reminder).await;
    let staged = stage(&fixture, &numbered_of("orders", "key", 2)).await;
    assert_eq!(drain(&store, "orders").await, staged);
    fixture.advance(minutes(5)).await;
    assert_eq!(stage_again(&fixture, &reminder).await.1, StageOutcome::Ignored);

    let turn = claim_all(&store, "orders").await;
    assert_eq!(ids(&turn), [id]);
    stage(&fixture, &numbered_of("orders", "key", 1)).await;
    assert_nothing_due(&other, "orders").await;
    done(&store, &turn).await;
    assert_eq!(drain(&other, "orders").await.len(), 1);
    stage_one(&fixture, &reminder).await;
}

/// Ordered and unordered queues can be claimed in one call and settled in one batch.
pub async fn ordered_and_unordered_queues_are_claimed_together<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Skip)).await;
    let store = fixture.store();
    stage(&fixture, &numbered_of("orders", "key", 2)).await;
    stage(&fixture, &numbered("letters", 2)).await;
    let request = ClaimRequest::of([queue("letters"), queue("orders")], 100).with_lease_for(LEASE);
    let mut claimed = store.claim(&request).await.unwrap();
    claimed.extend(store.claim(&request).await.unwrap());
    assert_eq!(claimed.len(), 4);
    assert!(
        claimed.iter().all(|each| each.lease.turn().is_some() == (each.lease.queue() == &queue("orders")))
    );

    let of =
        |name: &str| claimed.iter().filter(|each| each.lease.queue() == &queue(name)).collect::<Vec<_>>();
    let (orders, letters) = (of("orders"), of("letters"));
    settle(
        &store,
        &[
            letters[0].lease.dead(Reason::Rejected, "refused"),
            orders[0].lease.done(),
            letters[1].lease.retry(minutes(5), "busy"),
            orders[1].lease.dead(Reason::Undecodable, "unreadable"),
        ],
    )
    .await;
    assert_eq!(get(&fixture, "orders", orders[0].id()).await, None);
    entry_in(&fixture, "orders", orders[1].id(), State::Dead).await;
    entry_in(&fixture, "letters", letters[0].id(), State::Dead).await;
    entry_in(&fixture, "letters", letters[1].id(), State::Scheduled).await;
}

/// Decision "what success leaves": an ordered queue archives and prunes delivered messages like any other.
pub async fn an_ordered_queue_can_archive_delivered_messages<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block).with_keep_for(minutes(60))).await;
    let store = fixture.store();
    let staged = stage(&fixture, &numbered_of("orders", "key", 3)).await;
    assert_eq!(drain(&store, "orders").await, staged);
    assert_eq!(ids_of(&list(&fixture, "orders", StateFilter::Done).await), staged);
    fixture.advance(minutes(2 * 24 * 60)).await;

    assert_eq!(store.prune(&PruneRequest::new()).await.unwrap().archived, 3);
    assert_empty(&fixture, "orders").await;
}

/// The ordering of a queue cannot change while it has messages, in whatever state.
pub async fn the_ordering_cannot_change_while_the_queue_holds_messages<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let ordered = QueuePolicy::by_key(OnFailure::Block);
    stage_one(&fixture, message("orders")).await;
    assert_refused(&fixture, &ordered).await;
    let claimed = claim_one(&store, "orders").await;
    assert_refused(&fixture, &ordered).await;
    settle(&store, &[claimed.lease.retry(minutes(5), "busy")]).await;
    assert_refused(&fixture, &ordered).await;
    declare(&fixture, "orders", QueuePolicy::default().with_keep_for(minutes(60)).without_dead_letters())
        .await;
    declare(&fixture, "orders", QueuePolicy::default()).await;
    fixture.advance(minutes(5)).await;
    assert_eq!(drain(&store, "orders").await.len(), 1);

    declare(&fixture, "orders", ordered.clone()).await;
    stage(&fixture, &numbered_of("orders", "key", 2)).await;
    declare(&fixture, "orders", ordered).await;
    assert_refused(&fixture, &QueuePolicy::default()).await;
    claim(&store, "orders", 1).await;
    assert_nothing_due(&store, "orders").await;
}

async fn assert_refused<F: Fixture>(fixture: &F, policy: &QueuePolicy) {
    let Err(Error::Invalid(invalid)) = fixture.schema().declare(&queue("orders"), policy).await else {
        panic!("the ordering of a queue that holds messages cannot change")
    };
    assert_eq!(
        invalid.to_string(),
        r#"ordering: queue "orders" still holds messages; drain it, or use a new queue"#
    );
}

/// A process that last saw the queue as unordered, or as fair to its tenants, claims no message without its key.
pub async fn order_is_kept_from_the_moment_it_is_declared<F: Fixture>(fixture: F) {
    for (name, before) in
        [("plain", QueuePolicy::default()), ("fair", QueuePolicy::default().fair_by_tenant())]
    {
        let (stale, other) = (fixture.store(), fixture.another_store().await);
        stale.declare(&queue(name), &before).await.unwrap();
        stage_one(&fixture, message(name)).await;
        done(&stale, &[claim_one(&stale, name).await]).await;

        other.declare(&queue(name), &QueuePolicy::by_key(OnFailure::Block)).await.unwrap();
        for _ in 0..6 {
            stage_one(&fixture, message(name).key("k")).await;
        }
        for store in [&stale, &other, &stale] {
            let claimed = claim(store, name, 1).await;
            assert!(claimed.iter().all(|each| each.lease.turn().is_some()), "{name}: {claimed:?}");
        }
    }
}
