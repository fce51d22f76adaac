//! Delays and named timers (decision "timers").

use super::helpers::*;
use crate::Fixture;
use postrider_core::{Outbox, OutboxExt, Reason, StageOutcome, State};
use std::time::SystemTime;

/// A delay counts from staging, by the store's clock.
pub async fn due_after_delays_delivery<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let id = stage_one(&fixture, message("orders").due_after(minutes(10))).await;
    assert_nothing_due(&store, "orders").await;
    entry_in(&fixture, "orders", id, State::Scheduled).await;
    fixture.advance(minutes(8)).await;
    assert_nothing_due(&store, "orders").await;
    fixture.advance(minutes(2)).await;

    assert_eq!(drain(&store, "orders").await, [id]);
}

/// A due time is compared with the store's clock.
pub async fn due_at_delays_delivery<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let id = stage_one(&fixture, message("orders").due_at(SystemTime::now() + minutes(10))).await;
    assert_nothing_due(&store, "orders").await;
    entry_in(&fixture, "orders", id, State::Scheduled).await;
    fixture.advance(minutes(8)).await;
    assert_nothing_due(&store, "orders").await;
    fixture.advance(minutes(3)).await;

    assert_eq!(drain(&store, "orders").await, [id]);
}

/// While a timer is active, its name is taken: a second timer is ignored, and the first stays as it is.
pub async fn a_timer_name_is_unique_in_its_queue<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, reminder("orders", 10, "first")).await;
    let (other, fate) = stage_again(&fixture, reminder("orders", 5, "second")).await;
    assert_eq!(fate, StageOutcome::Ignored);
    assert_ne!(other, id, "the id is that of the message that was not staged");
    let given = fresh_id();
    assert_eq!(
        stage_again(&fixture, reminder("orders", 5, "third").id(given)).await,
        (given, StageOutcome::Ignored)
    );

    fixture.advance(minutes(7)).await;
    assert_nothing_due(&fixture.store(), "orders").await;
    fixture.advance(minutes(3)).await;
    let claimed = claim_all(&fixture.store(), "orders").await;
    assert_eq!((ids(&claimed), payloads(&claimed)), (vec![id], vec!["first".to_owned()]));
}

/// Two timers of one name in one batch, or in one transaction, are one timer.
pub async fn a_timer_name_is_unique_in_its_batch_and_transaction<F: Fixture>(fixture: F) {
    let batch = ["first", "second"].map(|payload| reminder("orders", 10, payload).build().unwrap());
    let mut tx = fixture.begin().await;
    let staged = fixture.outbox().stage_all(&mut tx, &batch).await.unwrap();
    assert_eq!([staged.outcomes()[0].1, staged.outcomes()[1].1], [StageOutcome::New, StageOutcome::Ignored]);
    let again = fixture.outbox().stage(&mut tx, reminder("orders", 10, "third")).await.unwrap();
    assert_eq!(again.outcomes()[0].1, StageOutcome::Ignored);
    fixture.commit(tx).await;

    fixture.advance(minutes(10)).await;
    assert_eq!(payloads(&claim_all(&fixture.store(), "orders").await), ["first"]);
}

/// The same name in another queue is another timer.
pub async fn a_timer_name_is_free_in_another_queue<F: Fixture>(fixture: F) {
    let order = stage_one(&fixture, reminder("orders", 10, "order")).await;
    let letter = stage_one(&fixture, reminder("letters", 10, "letter")).await;
    fixture.advance(minutes(10)).await;

    assert_eq!(drain(&fixture.store(), "orders").await, [order]);
    assert_eq!(drain(&fixture.store(), "letters").await, [letter]);
}

/// A timer without a delay holds its name while it is due and unclaimed.
pub async fn a_due_timer_holds_its_name_until_it_is_delivered<F: Fixture>(fixture: F) {
    stage_one(&fixture, reminder("orders", 0, "now")).await;
    assert_eq!(stage_again(&fixture, reminder("orders", 10, "later")).await.1, StageOutcome::Ignored);
    stage_one(&fixture, reminder("letters", 10, "waits")).await;
    fixture.advance(minutes(11)).await;
    assert_eq!(stage_again(&fixture, reminder("letters", 0, "now")).await.1, StageOutcome::Ignored);

    assert_eq!(payloads(&claim_all(&fixture.store(), "orders").await), ["now"]);
    assert_eq!(payloads(&claim_all(&fixture.store(), "letters").await), ["waits"]);
}

/// A timer holds its name while it is leased, released, or waits for a retry; delivery frees it.
pub async fn only_delivery_frees_a_timer_name<F: Fixture>(fixture: F) {
    let store = fixture.store();
    stage_one(&fixture, reminder("orders", 0, "first")).await;
    let claimed = claim_one(&store, "orders").await;
    assert_eq!(stage_again(&fixture, reminder("orders", 0, "leased")).await.1, StageOutcome::Ignored);
    settle(&store, &[claimed.lease.release()]).await;
    assert_eq!(stage_again(&fixture, reminder("orders", 0, "released")).await.1, StageOutcome::Ignored);
    let claimed = claim_one(&store, "orders").await;
    settle(&store, &[claimed.lease.retry(minutes(5), "busy")]).await;
    assert_eq!(stage_again(&fixture, reminder("orders", 0, "retried")).await.1, StageOutcome::Ignored);
    fixture.advance(minutes(5)).await;
    let claimed = claim_one(&store, "orders").await;
    assert_eq!(claimed.message.payload().as_ref(), b"first");
    done(&store, &[claimed]).await;

    stage_one(&fixture, reminder("orders", 0, "second")).await;
    assert_eq!(payloads(&claim_all(&store, "orders").await), ["second"]);
}

/// A dead letter does not hold the name of its timer.
pub async fn dead_lettering_frees_a_timer_name<F: Fixture>(fixture: F) {
    let store = fixture.store();
    stage_one(&fixture, reminder("orders", 0, "first")).await;
    let claimed = claim_one(&store, "orders").await;
    settle(&store, &[claimed.lease.dead(Reason::Rejected, "refused")]).await;

    stage_one(&fixture, reminder("orders", 0, "second")).await;
    assert_eq!(payloads(&claim_all(&store, "orders").await), ["second"]);
}

/// A timer that was rolled back never held its name.
pub async fn a_rolled_back_timer_never_held_its_name<F: Fixture>(fixture: F) {
    let mut tx = fixture.begin().await;
    fixture.outbox().stage(&mut tx, reminder("orders", 0, "first")).await.unwrap();
    fixture.rollback(tx).await;

    stage_one(&fixture, reminder("orders", 0, "second")).await;
    assert_eq!(payloads(&claim_all(&fixture.store(), "orders").await), ["second"]);
}

fn reminder(queue: &str, delay: u64, payload: &'static str) -> postrider_core::MessageBuilder {
    message(queue).payload(payload).due_after(minutes(delay)).timer("reminder")
}
