//! Extending and cancelling named timers (decision "timers").

use super::helpers::*;
use crate::Fixture;
use postrider_core::{MessageBuilder, Outbox, OutboxExt, StageOutcome};
use std::time::Duration;

/// An extending timer is an ordinary one if no timer of its name is active.
pub async fn extending_a_missing_timer_stages_it<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, extending(10, "first")).await;
    fixture.advance(minutes(10)).await;

    assert_eq!(drain(&fixture.store(), "orders").await, [id]);
}

/// A later time wins, and brings its payload. The active timer keeps its identity.
pub async fn a_later_time_extends_a_timer<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let id = stage_one(&fixture, extending(10, "first")).await;
    assert_eq!(stage_again(&fixture, extending(30, "second")).await, (id, StageOutcome::Extended));
    fixture.advance(minutes(28)).await;
    assert_nothing_due(&store, "orders").await;
    fixture.advance(minutes(3)).await;

    let claimed = claim_all(&store, "orders").await;
    assert_eq!((ids(&claimed), payloads(&claimed)), (vec![id], vec!["second".to_owned()]));
}

/// An earlier time changes neither the time nor the payload.
pub async fn an_earlier_time_does_not_change_a_timer<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let id = stage_one(&fixture, extending(30, "first")).await;
    assert_eq!(stage_again(&fixture, extending(10, "second")).await, (id, StageOutcome::Extended));
    fixture.advance(minutes(28)).await;
    assert_nothing_due(&store, "orders").await;
    fixture.advance(minutes(3)).await;

    let claimed = claim_all(&store, "orders").await;
    assert_eq!((ids(&claimed), payloads(&claimed)), (vec![id], vec!["first".to_owned()]));
}

/// A timer that is due and not claimed can still be extended.
pub async fn a_due_timer_can_be_extended_until_it_is_leased<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let id = stage_one(&fixture, extending(10, "first")).await;
    fixture.advance(minutes(11)).await;
    assert_eq!(stage_again(&fixture, extending(10, "second")).await, (id, StageOutcome::Extended));
    assert_nothing_due(&store, "orders").await;
    fixture.advance(minutes(10)).await;

    assert_eq!(payloads(&claim_all(&store, "orders").await), ["second"]);
}

/// A leased timer is not extended: the second one is ignored, and is never delivered.
pub async fn a_leased_timer_is_not_extended<F: Fixture>(fixture: F) {
    let store = fixture.store();
    stage_one(&fixture, extending(10, "first")).await;
    fixture.advance(minutes(10)).await;
    let claimed = claim_one(&store, "orders").await;
    assert_eq!(stage_again(&fixture, extending(30, "second")).await.1, StageOutcome::Ignored);
    assert_eq!(claimed.message.payload().as_ref(), b"first");
    done(&store, &[claimed]).await;

    assert_empty(&fixture, "orders").await;
}

/// A timer that was released is free, so it can be extended: it is scheduled anew.
pub async fn a_released_timer_can_be_extended<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let id = stage_one(&fixture, extending(10, "first")).await;
    fixture.advance(minutes(11)).await;
    let claimed = claim_one(&store, "orders").await;
    settle(&store, &[claimed.lease.release()]).await;
    assert_eq!(stage_again(&fixture, extending(30, "second")).await, (id, StageOutcome::Extended));
    assert_nothing_due(&store, "orders").await;
    fixture.advance(minutes(31)).await;

    let claimed = claim_all(&store, "orders").await;
    assert_eq!((ids(&claimed), payloads(&claimed)), (vec![id], vec!["second".to_owned()]));
    assert_eq!((claimed[0].attempts, claimed[0].deliveries), (0, 1));
}

/// So can one that waits for a retry, however soon that is due.
pub async fn a_timer_awaiting_retry_can_be_extended<F: Fixture>(fixture: F) {
    for delay in [Duration::from_secs(2), minutes(5)] {
        let store = fixture.store();
        let id = stage_one(&fixture, extending(0, "first")).await;
        let claimed = claim_one(&store, "orders").await;
        settle(&store, &[claimed.lease.retry(delay, "busy")]).await;
        assert_eq!(stage_again(&fixture, extending(30, "second")).await, (id, StageOutcome::Extended));
        fixture.advance(minutes(29)).await;
        assert_nothing_due(&store, "orders").await;
        fixture.advance(minutes(2)).await;

        let claimed = claim_all(&store, "orders").await;
        assert_eq!((ids(&claimed), payloads(&claimed)), (vec![id], vec!["second".to_owned()]));
        done(&store, &claimed).await;
    }
}

/// Two extensions in one batch have the same effect as in two: the later time wins.
pub async fn one_batch_can_stage_and_extend_a_timer<F: Fixture>(fixture: F) {
    let batch = [extending(10, "first"), extending(30, "second"), extending(20, "third")];
    let staged = stage_all(&fixture, &batch.map(|each| each.build().unwrap())).await;
    let id = staged.id().unwrap();
    assert_eq!(
        staged.outcomes(),
        [(id, StageOutcome::New), (id, StageOutcome::Extended), (id, StageOutcome::Extended)]
    );
    fixture.advance(minutes(28)).await;
    assert_nothing_due(&fixture.store(), "orders").await;
    fixture.advance(minutes(3)).await;

    assert_eq!(payloads(&claim_all(&fixture.store(), "orders").await), ["second"]);
}

/// An extension that is rolled back leaves the timer as it was.
pub async fn a_rolled_back_extension_changes_nothing<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, extending(10, "first")).await;
    let mut tx = fixture.begin().await;
    let staged = fixture.outbox().stage(&mut tx, extending(30, "second")).await.unwrap();
    assert_eq!(staged.outcomes(), [(id, StageOutcome::Extended)]);
    fixture.rollback(tx).await;
    fixture.advance(minutes(10)).await;

    assert_eq!(payloads(&claim_all(&fixture.store(), "orders").await), ["first"]);
}

/// A cancelled timer is never delivered, and its name is free.
pub async fn a_cancelled_timer_is_never_delivered<F: Fixture>(fixture: F) {
    let store = fixture.store();
    stage_one(&fixture, extending(10, "first")).await;
    assert!(cancel(&fixture).await);
    assert!(!cancel(&fixture).await, "it can be cancelled once");
    fixture.advance(minutes(11)).await;
    assert_nothing_due(&store, "orders").await;
    assert_empty(&fixture, "orders").await;

    let id = stage_one(&fixture, extending(10, "second")).await;
    fixture.advance(minutes(10)).await;
    assert_eq!(drain(&store, "orders").await, [id]);
}

/// A timer that is due can be cancelled until it is leased.
pub async fn a_due_timer_can_be_cancelled_until_it_is_leased<F: Fixture>(fixture: F) {
    stage_one(&fixture, extending(10, "first")).await;
    fixture.advance(minutes(11)).await;
    assert!(cancel(&fixture).await);

    assert_empty(&fixture, "orders").await;
}

/// A leased timer cannot be cancelled.
pub async fn a_leased_timer_cannot_be_cancelled<F: Fixture>(fixture: F) {
    let store = fixture.store();
    stage_one(&fixture, extending(10, "first")).await;
    fixture.advance(minutes(10)).await;
    let claimed = claim_one(&store, "orders").await;
    assert!(!cancel(&fixture).await);

    done(&store, &[claimed]).await;
    assert_empty(&fixture, "orders").await;
}

/// A timer that waits for a retry is not leased, and can be cancelled.
pub async fn a_timer_awaiting_retry_can_be_cancelled<F: Fixture>(fixture: F) {
    for delay in [Duration::from_secs(2), minutes(5)] {
        let store = fixture.store();
        stage_one(&fixture, extending(0, "first")).await;
        let claimed = claim_one(&store, "orders").await;
        settle(&store, &[claimed.lease.retry(delay, "busy")]).await;
        assert!(cancel(&fixture).await, "{delay:?}");

        assert_empty(&fixture, "orders").await;
    }
}

/// A cancellation that is rolled back changes nothing: the timer is delivered.
pub async fn a_rolled_back_cancellation_changes_nothing<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, extending(10, "first")).await;
    let mut tx = fixture.begin().await;
    assert!(fixture.outbox().cancel_timer(&mut tx, &queue("orders"), &timer("reminder")).await.unwrap());
    fixture.rollback(tx).await;
    fixture.advance(minutes(10)).await;

    assert_eq!(drain(&fixture.store(), "orders").await, [id]);
}

/// A transaction can cancel a timer that it has staged itself.
pub async fn a_transaction_can_cancel_its_own_timer<F: Fixture>(fixture: F) {
    let mut tx = fixture.begin().await;
    fixture.outbox().stage(&mut tx, extending(10, "first")).await.unwrap();
    assert!(fixture.outbox().cancel_timer(&mut tx, &queue("orders"), &timer("reminder")).await.unwrap());
    fixture.commit(tx).await;

    assert_empty(&fixture, "orders").await;
}

/// There is nothing to cancel in an unused queue, under another name, or in another queue.
pub async fn an_unknown_timer_cannot_be_cancelled<F: Fixture>(fixture: F) {
    assert!(!cancel(&fixture).await, "the queue is unused");
    stage_one(&fixture, message("orders").due_after(minutes(10)).timer("another")).await;
    stage_one(&fixture, message("letters").due_after(minutes(10)).timer("reminder")).await;
    stage_one(&fixture, message("orders").due_after(minutes(10))).await;
    assert!(!cancel(&fixture).await);

    fixture.advance(minutes(10)).await;
    assert_eq!(drain(&fixture.store(), "orders").await.len(), 2);
    assert_eq!(drain(&fixture.store(), "letters").await.len(), 1);
}

fn extending(delay: u64, payload: &'static str) -> MessageBuilder {
    message("orders").payload(payload).due_after(minutes(delay)).extending_timer("reminder")
}

async fn cancel<F: Fixture>(fixture: &F) -> bool {
    let mut tx = fixture.begin().await;
    let cancelled =
        fixture.outbox().cancel_timer(&mut tx, &queue("orders"), &timer("reminder")).await.unwrap();
    fixture.commit(tx).await;
    cancelled
}
