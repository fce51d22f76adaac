//! Parked messages that are tried again.

use super::{ConsumerFixture, helpers::*};
use postrider_core::{Arrival, Inbox, Receive, inspect::Operate, transact::Transact};
use postrider_engine::Failure;
use std::time::Duration;

/// Parks so many orders, and answers with how they are kept.
async fn park<F: ConsumerFixture>(fixture: &F, count: u64) -> Vec<postrider_core::MessageId> {
    let consumer = with_effect(billing(fixture).await, fixture, |_| Err(Failure::reject("not yet")));
    fixture.send(orders(count as usize, &fixture.place())).await;
    run_until::<F>(&consumer, |consumed| consumed.parked == count).await;
    parked_ids(&parked(fixture).await)
}

/// Once what was wrong is mended, a replay has the effect, and is done with.
pub async fn a_replayed_message_runs_once_and_succeeds<F: ConsumerFixture>(fixture: F) {
    let ids = park(&fixture, 2).await;
    let mended = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    let replayed = patiently("replaying", mended.replay(&ids, &an_operator())).await.unwrap();
    assert_eq!((replayed.requeued, replayed.processed, replayed.duplicates), (2, 2, 0));
    assert_eq!(effects(&fixture).await, [0, 1]);
    assert!(parked(&fixture).await.is_empty());
    let again = patiently("replaying", mended.replay(&ids, &an_operator())).await.unwrap();
    assert_eq!((again.requeued, again.processed), (0, 0));
    assert_eq!(effects(&fixture).await, [0, 1]);
}

/// Another delivery of the same message had its effect meanwhile: the replay does nothing, and says so.
pub async fn what_had_succeeded_is_not_replayed_and_that_is_told<F: ConsumerFixture>(fixture: F) {
    let ids = park(&fixture, 2).await;
    let store = fixture.receive();
    let mut tx = store.begin().await.unwrap();
    let known = [Arrival::new(ids[0])];
    store.admit_all(&mut tx, &"billing".parse().unwrap(), &known).await.unwrap();
    store.commit(tx).await.unwrap();
    let mended = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    let replayed = patiently("replaying", mended.replay(&ids, &an_operator())).await.unwrap();
    assert_eq!((replayed.requeued, replayed.processed, replayed.duplicates), (2, 1, 1));
    assert_eq!(effects(&fixture).await.len(), 1);
    assert!(parked(&fixture).await.is_empty());
}

/// What nobody can read now is a dead letter again, as it came.
pub async fn what_cannot_be_read_stays_dead<F: ConsumerFixture>(fixture: F) {
    let consumer = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    fixture.send_bare("who am I?").await;
    run_until::<F>(&consumer, |consumed| consumed.parked == 1).await;
    let before = parked(&fixture).await;
    let again = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    let replayed = patiently("replaying", again.replay(&parked_ids(&before), &an_operator())).await.unwrap();
    assert_eq!((replayed.requeued, replayed.processed, replayed.parked), (1, 0, 1));
    let after = parked(&fixture).await;
    assert_eq!(after[0].message, before[0].message);
}

/// An operator only has to requeue.
pub async fn a_running_consumer_takes_up_what_is_requeued<F: ConsumerFixture>(fixture: F) {
    let ids = park(&fixture, 3).await;
    let mended = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    let running = mended.start().await.unwrap();
    fixture.receive().store().requeue(&parking(), &ids, &an_operator()).await.unwrap();
    until("the replays", || running.consumed().processed == 3).await;
    patiently("stopping", running.shutdown(Duration::from_secs(60))).await;
    assert_eq!(effects(&fixture).await, [0, 1, 2]);
}
