//! Replay of a consumer's dead letters.

use super::{ConsumerFixture, helpers::*};
use postrider_core::{Arrival, TxBackend, inspect::Operate};
use postrider_engine::Failure;
use std::time::Duration;

/// Dead-letters this many orders, and returns the ids of the dead letters.
async fn dead_letter<F: ConsumerFixture>(fixture: &F, count: u64) -> Vec<postrider_core::MessageId> {
    let consumer = with_effect(billing(fixture).await, fixture, |_| Err(Failure::reject("not yet")));
    fixture.send(orders(count as usize, &fixture.address())).await;
    run_until::<F>(&consumer, |report| report.dead == count).await;
    dead_letter_ids(&dead_letters(fixture).await)
}

/// Once the cause is fixed, a replay has the effect, and the dead letter is settled.
pub async fn a_replayed_message_runs_once_and_succeeds<F: ConsumerFixture>(fixture: F) {
    let ids = dead_letter(&fixture, 2).await;
    let fixed = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    let replayed = within_patience("replaying", fixed.replay(&ids, &an_operator())).await.unwrap();
    assert_eq!((replayed.requeued, replayed.delivered, replayed.duplicates), (2, 2, 0));
    assert_eq!(effects(&fixture).await, [0, 1]);
    assert!(dead_letters(&fixture).await.is_empty());
    let again = within_patience("replaying", fixed.replay(&ids, &an_operator())).await.unwrap();
    assert_eq!((again.requeued, again.delivered), (0, 0));
    assert_eq!(effects(&fixture).await, [0, 1]);
}

/// Another delivery of the same message had its effect meanwhile: the replay does nothing, and reports a duplicate.
pub async fn an_already_handled_message_is_not_replayed_and_is_logged<F: ConsumerFixture>(fixture: F) {
    let ids = dead_letter(&fixture, 2).await;
    let store = fixture.receive();
    let mut tx = store.begin().await.unwrap();
    let known = [Arrival::new(ids[0])];
    store.admit_in(&mut tx, &"billing".parse().unwrap(), &known).await.unwrap();
    store.commit(tx).await.unwrap();
    let fixed = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    let replayed = within_patience("replaying", fixed.replay(&ids, &an_operator())).await.unwrap();
    assert_eq!((replayed.requeued, replayed.delivered, replayed.duplicates), (2, 1, 1));
    assert_eq!(effects(&fixture).await.len(), 1);
    assert!(dead_letters(&fixture).await.is_empty());
}

/// A message that still cannot be read becomes a dead letter again, unchanged.
pub async fn an_unreadable_message_stays_dead<F: ConsumerFixture>(fixture: F) {
    let consumer = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    fixture.send_bare("who am I?").await;
    run_until::<F>(&consumer, |report| report.dead == 1).await;
    let before = dead_letters(&fixture).await;
    let again = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    let replayed =
        within_patience("replaying", again.replay(&dead_letter_ids(&before), &an_operator())).await.unwrap();
    assert_eq!((replayed.requeued, replayed.delivered, replayed.dead), (1, 0, 1));
    let after = dead_letters(&fixture).await;
    assert_eq!(after[0].message, before[0].message);
}

/// An operator only has to requeue the dead letters.
pub async fn a_running_consumer_handles_requeued_messages<F: ConsumerFixture>(fixture: F) {
    let ids = dead_letter(&fixture, 3).await;
    let fixed = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    let running = fixed.start();
    fixture.receive().backend().requeue(&dead_letter_queue(), &ids, &an_operator()).await.unwrap();
    until("the replays", || running.report().delivered == 3).await;
    within_patience("stopping", running.stop(Duration::from_secs(60))).await;
    assert_eq!(effects(&fixture).await, [0, 1, 2]);
}
