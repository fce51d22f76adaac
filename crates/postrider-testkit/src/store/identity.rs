//! Staging a known identity in the same queue again changes nothing (decision "identity").

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    Message, MessageId, Outbox, OutboxExt, QueuePolicy, Reason, StageOutcome, State, inspect::StateFilter,
};

/// Staged twice in one batch, a message is new once, a duplicate once, and delivered once.
pub async fn the_same_identity_twice_in_one_batch_is_one_message<F: Fixture>(fixture: F) {
    let id = fresh_id();
    let other = fresh_id();
    let staged = stage_all(&fixture, &[first(id), with_id(other), second(id)]).await;

    assert_eq!(
        staged.outcomes(),
        [(id, StageOutcome::New), (other, StageOutcome::New), (id, StageOutcome::Duplicate)]
    );
    assert_eq!(staged.duplicates(), 1);
    let claimed = claim_all(&fixture.store(), "orders").await;
    assert_eq!(ids(&claimed), [id, other]);
    assert_eq!(payloads(&claimed)[0], "first");
}

/// Staged twice in one transaction, a message is delivered once.
pub async fn the_same_identity_twice_in_one_transaction_is_one_message<F: Fixture>(fixture: F) {
    let id = fresh_id();
    let mut tx = fixture.begin().await;
    assert_eq!(
        fixture.outbox().stage(&mut tx, first(id)).await.unwrap().outcomes(),
        [(id, StageOutcome::New)]
    );
    assert_eq!(
        fixture.outbox().stage(&mut tx, second(id)).await.unwrap().outcomes(),
        [(id, StageOutcome::Duplicate)]
    );
    fixture.commit(tx).await;

    assert_delivers_the_first_only(&fixture, id).await;
}

/// Staged again by a later transaction, a message stays as it is.
pub async fn the_same_identity_in_a_later_transaction_is_one_message<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, first(fresh_id())).await;
    assert_eq!(stage_again(&fixture, second(id)).await, (id, StageOutcome::Duplicate));

    assert_delivers_the_first_only(&fixture, id).await;
}

/// A duplicate among new messages is detected, and does not block them.
pub async fn a_duplicate_does_not_block_the_rest_of_its_batch<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, first(fresh_id())).await;
    let (before, after) = (fresh_id(), fresh_id());
    let staged = stage_all(&fixture, &[with_id(before), second(id), with_id(after)]).await;

    assert_eq!(
        staged.outcomes(),
        [(before, StageOutcome::New), (id, StageOutcome::Duplicate), (after, StageOutcome::New)]
    );
    assert_eq!(drain(&fixture.store(), "orders").await, [id, before, after]);
}

/// The identity of a leased message is known and cannot be staged again.
pub async fn the_identity_of_a_leased_message_is_a_duplicate<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let id = stage_one(&fixture, first(fresh_id())).await;
    let claimed = claim_one(&store, "orders").await;
    assert_eq!(stage_again(&fixture, second(id)).await, (id, StageOutcome::Duplicate));

    assert_nothing_due(&store, "orders").await;
    done(&store, &[claimed]).await;
    assert_empty(&fixture, "orders").await;
}

/// The identity of a scheduled message is known.
pub async fn the_identity_of_a_scheduled_message_is_a_duplicate<F: Fixture>(fixture: F) {
    let id = fresh_id();
    stage_one(&fixture, message("orders").id(id).payload("first").due_after(minutes(5))).await;
    assert_eq!(stage_again(&fixture, second(id)).await, (id, StageOutcome::Duplicate));

    assert_nothing_due(&fixture.store(), "orders").await;
    fixture.advance(minutes(5)).await;
    assert_delivers_the_first_only(&fixture, id).await;
}

/// The identity of a message that waits for a retry is known.
pub async fn the_identity_of_a_retried_message_is_a_duplicate<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let id = stage_one(&fixture, first(fresh_id())).await;
    let claimed = claim_one(&store, "orders").await;
    settle(&store, &[claimed.lease.retry(minutes(5), "busy")]).await;
    assert_eq!(stage_again(&fixture, second(id)).await, (id, StageOutcome::Duplicate));

    assert_nothing_due(&store, "orders").await;
    fixture.advance(minutes(5)).await;
    assert_delivers_the_first_only(&fixture, id).await;
}

/// The identity of a dead letter is known: staging it again does not run it without the operator.
pub async fn the_identity_of_a_dead_letter_is_a_duplicate<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let id = stage_one(&fixture, first(fresh_id())).await;
    let claimed = claim_one(&store, "orders").await;
    settle(&store, &[claimed.lease.dead(Reason::Rejected, "refused")]).await;
    assert_eq!(stage_again(&fixture, second(id)).await, (id, StageOutcome::Duplicate));

    assert_nothing_due(&store, "orders").await;
    assert_eq!(ids_of(&list(&fixture, "orders", StateFilter::Dead).await), [id]);
}

/// The identity of an archived message is known until it is pruned.
pub async fn the_identity_of_an_archived_message_is_a_duplicate<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::default().with_keep_for(minutes(60))).await;
    let id = stage_one(&fixture, first(fresh_id())).await;
    assert_eq!(drain(&fixture.store(), "orders").await, [id]);
    assert_eq!(stage_again(&fixture, second(id)).await, (id, StageOutcome::Duplicate));

    assert_nothing_due(&fixture.store(), "orders").await;
    entry_in(&fixture, "orders", id, State::Done).await;
}

/// The identity of a delivered message that is not archived is free and can be staged again.
pub async fn a_delivered_identity_can_be_staged_again_without_an_archive<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, first(fresh_id())).await;
    assert_eq!(drain(&fixture.store(), "orders").await, [id]);
    assert_eq!(stage_again(&fixture, first(id)).await, (id, StageOutcome::New));

    assert_delivers_the_first_only(&fixture, id).await;
}

/// A rolled-back transaction does not use up an identity.
pub async fn a_rolled_back_identity_can_be_staged_again<F: Fixture>(fixture: F) {
    let id = fresh_id();
    let mut tx = fixture.begin().await;
    fixture.outbox().stage_all(&mut tx, &[second(id)]).await.unwrap();
    fixture.rollback(tx).await;
    assert_eq!(stage_again(&fixture, first(id)).await, (id, StageOutcome::New));

    assert_delivers_the_first_only(&fixture, id).await;
}

/// The same identity in two queues is two independent messages.
pub async fn the_same_identity_in_two_queues_is_two_messages<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let id = fresh_id();
    let staged =
        stage(&fixture, &["orders", "invoices"].map(|name| message(name).id(id).build().unwrap())).await;
    assert_eq!(staged, [id, id]);

    let order = claim_one(&store, "orders").await;
    let invoice = claim_one(&store, "invoices").await;
    settle(&store, &[order.lease.done(), invoice.lease.dead(Reason::Rejected, "refused")]).await;
    assert_empty(&fixture, "orders").await;
    assert_eq!(ids_of(&list(&fixture, "invoices", StateFilter::Dead).await), [id]);
}

fn with_id(id: MessageId) -> Message {
    message("orders").id(id).build().unwrap()
}

fn first(id: MessageId) -> Message {
    message("orders").id(id).payload("first").build().unwrap()
}

fn second(id: MessageId) -> Message {
    message("orders").id(id).payload("second").build().unwrap()
}

async fn assert_delivers_the_first_only<F: Fixture>(fixture: &F, id: MessageId) {
    let claimed = claim_all(&fixture.store(), "orders").await;
    assert_eq!(ids(&claimed), [id]);
    assert_eq!(payloads(&claimed), ["first"]);
    done(&fixture.store(), &claimed).await;
    assert_empty(fixture, "orders").await;
}
