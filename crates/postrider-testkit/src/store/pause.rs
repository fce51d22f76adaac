//! Paused queues are not claimed, even if messages become due; messages in flight are settled as usual.
//!
//! Another process may learn of a pause a second later. So a case claims and releases until a claim is empty; without the pause,
//! every due message could be claimed.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    ClaimRequest, Error, OnFailure, Pausable, QueuePolicy, State,
    inspect::{Action, StateFilter},
};

fn orders() -> Pausable {
    Pausable::Queue(queue("orders"))
}

fn billing() -> Pausable {
    Pausable::Destination("billing".parse().unwrap())
}

/// Pauses a queue with a due message, and waits until this handle knows of the pause.
async fn pause<F: Fixture>(fixture: &F, store: &Handle, name: &str) {
    assert!(fixture.operate().pause(&Pausable::Queue(queue(name)), &operator()).await.unwrap());
    knows(store, name).await;
}

async fn knows(store: &Handle, name: &str) {
    loop {
        let claimed = claim(store, name, 10).await;
        if claimed.is_empty() {
            return;
        }
        settle(store, &claimed.iter().map(|each| each.lease.release()).collect::<Vec<_>>()).await;
    }
}

async fn resume<F: Fixture>(fixture: &F, store: &Handle, name: &str) {
    assert!(fixture.operate().resume(&Pausable::Queue(queue(name)), &operator()).await.unwrap());
    loop {
        let claimed = claim(store, name, 1).await;
        if !claimed.is_empty() {
            settle(store, &claimed.iter().map(|each| each.lease.release()).collect::<Vec<_>>()).await;
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// No process claims from a paused queue, and nothing of it is lost. Staging continues, and so do other queues.
pub async fn a_paused_queue_is_not_claimed<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.store(), fixture.another_store().await);
    let mut staged = stage(&fixture, &numbered("orders", 5)).await;
    pause(&fixture, &store, "orders").await;
    knows(&other, "orders").await;

    staged.push(stage_one(&fixture, message("orders")).await);
    stage_one(&fixture, message("letters")).await;
    for store in [&store, &other] {
        assert_nothing_due(store, "orders").await;
    }
    let both = ClaimRequest::of([queue("letters"), queue("orders")], 10);
    let claimed = store.claim(&both).await.unwrap();
    assert_eq!(claimed.iter().map(|each| each.lease.queue().as_str()).collect::<Vec<_>>(), ["letters"]);
    let counts = fixture.inspect().counts().await.unwrap();
    assert_eq!(counts[&queue("orders")].pending.at_least, 6, "they are counted as ever");
    assert!(fixture.inspect().lag(&queue("orders")).await.unwrap().is_some());

    resume(&fixture, &store, "orders").await;
    assert_eq!(sorted(drain(&store, "orders").await), sorted(staged));
}

/// A message in flight can be settled, and a retry of it waits.
pub async fn messages_in_flight_at_a_pause_are_settled<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let staged = stage(&fixture, &numbered("orders", 3)).await;
    let in_flight = claim(&store, "orders", 2).await;
    pause(&fixture, &store, "orders").await;
    assert_eq!(store.renew(&leases(&in_flight), minutes(5)).await.unwrap(), []);
    settle(&store, &[in_flight[0].lease.done(), in_flight[1].lease.retry(std::time::Duration::ZERO, "busy")])
        .await;
    assert_nothing_due(&store, "orders").await;
    assert_eq!(get(&fixture, "orders", in_flight[0].id()).await, None);
    assert_eq!(get(&fixture, "orders", in_flight[1].id()).await.unwrap().attempts, 1);

    resume(&fixture, &store, "orders").await;
    let left: Vec<_> = staged.into_iter().filter(|id| *id != in_flight[0].id()).collect();
    fixture.advance(minutes(1)).await;
    assert_eq!(sorted(drain(&store, "orders").await), sorted(left));
}

/// Queues of every kind can be paused, with messages in any state.
pub async fn every_kind_of_queue_can_be_paused<F: Fixture>(fixture: F) {
    let store = fixture.store();
    declare(&fixture, "letters", QueuePolicy::by_key(OnFailure::Block)).await;
    declare(&fixture, "bills", QueuePolicy { fair_by_tenant: true, ..QueuePolicy::default() }).await;
    for name in ["letters", "bills", "orders"] {
        let now = stage_one(&fixture, message(name).key("ann").tenant("acme")).await;
        let later = stage_one(&fixture, message(name).key("bob").due_after(minutes(5))).await;
        pause(&fixture, &store, name).await;
        fixture.advance(minutes(6)).await;
        assert_nothing_due(&store, name).await;
        resume(&fixture, &store, name).await;
        assert_eq!(sorted(drain(&store, name).await), sorted([now, later]));
    }
}

/// A lease that expires while its queue is paused is not reclaimed before the queue is resumed.
pub async fn an_expired_lease_of_a_paused_queue_is_not_reclaimed<F: Fixture>(fixture: F) {
    let store = fixture.store();
    stage(&fixture, &numbered("orders", 2)).await;
    let in_flight = claim(&store, "orders", 1).await.remove(0);
    pause(&fixture, &store, "orders").await;
    expire_leases(&fixture).await;
    assert_nothing_due(&store, "orders").await;
    assert_eq!(list(&fixture, "orders", StateFilter::Ready).await.len(), 2);
    resume(&fixture, &store, "orders").await;
    assert!(drain(&store, "orders").await.contains(&in_flight.id()));
}

/// Pauses are listed with their actor, time and reason; and each change is audited once.
pub async fn pauses_are_listed_and_audited<F: Fixture>(fixture: F) {
    let (store, operate) = (fixture.store(), fixture.operate());
    let action = |number| Action::new(format!("ada-{number}"), format!("ticket {number}"));
    assert_eq!(store.paused().await.unwrap(), []);
    assert!(operate.pause(&orders(), &action(1)).await.unwrap());
    assert!(operate.pause(&billing(), &action(2)).await.unwrap());
    assert!(!operate.pause(&orders(), &action(3)).await.unwrap(), "it is paused already");
    assert!(!operate.resume(&Pausable::Queue(queue("billing")), &action(3)).await.unwrap(), "no queue is");

    let paused = store.paused().await.unwrap();
    let reported: Vec<_> = paused.iter().map(|each| (each.what.clone(), each.action.clone())).collect();
    assert_eq!(reported, [(orders(), action(1)), (billing(), action(2))]);
    assert!(paused[0].since <= paused[1].since);

    assert!(operate.resume(&billing(), &action(4)).await.unwrap());
    assert!(!operate.resume(&billing(), &action(5)).await.unwrap());
    assert_eq!(store.paused().await.unwrap(), paused[..1]);
    let rows = operate.audit(10).await.unwrap();
    let reported: Vec<_> = rows.iter().map(|row| (row.action.clone(), row.verb.as_str())).collect();
    assert_eq!(reported, [(action(4), "resume"), (action(2), "pause"), (action(1), "pause")]);
    assert_eq!((&rows[0].queue, &rows[0].destination), (&None, &Some("billing".parse().unwrap())));
    assert_eq!((&rows[2].queue, &rows[2].destination), (&Some(queue("orders")), &None));
    for (action, field) in [(Action::new("", "ticket 17"), "actor"), (Action::new("ada", ""), "why")] {
        for refused in [operate.pause(&billing(), &action).await, operate.resume(&orders(), &action).await] {
            let Err(Error::Invalid(invalid)) = refused else { panic!("refused: {refused:?}") };
            assert_eq!(invalid.field(), field);
        }
    }
}

/// Operators can requeue and discard messages of a paused queue.
pub async fn operator_actions_work_on_a_paused_queue<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let dead = stage_one(&fixture, message("orders")).await;
    dead_letter_one(&store, "orders").await;
    let waiting = stage_one(&fixture, message("orders")).await;
    pause(&fixture, &store, "orders").await;
    assert_eq!(fixture.operate().requeue(&queue("orders"), &[dead], &operator()).await.unwrap(), [dead]);
    entry_in(&fixture, "orders", dead, State::Pending).await;
    assert_eq!(
        fixture.operate().discard(&queue("orders"), &[waiting], &operator()).await.unwrap(),
        [waiting]
    );
    assert_nothing_due(&store, "orders").await;
    resume(&fixture, &store, "orders").await;
    let claimed = claim_one(&store, "orders").await;
    assert_eq!(claimed.id(), dead);
    done(&store, &[claimed]).await;
}
