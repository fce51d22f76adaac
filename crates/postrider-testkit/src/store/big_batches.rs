//! A settlement of thousands of leases settles each as requested, and loses exactly the stale ones (promise 4).

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    ClaimedMessage, LeaseSettlement, MessageId, QueuePolicy, Reason, Settlement, State, inspect::StateFilter,
};
use std::{collections::HashMap, time::Duration};

const SIZE: usize = 5_000;

/// Promise 4: five thousand settlements of every kind, a tenth of them with stale tokens. Half of the stale ones are on messages
/// that the same batch settles with the valid token. Exactly the stale ones are lost, and every message ends in the right state.
pub async fn a_mixed_batch_of_5000_settles_each_message_as_requested<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::default().with_keep_for(minutes(60))).await;
    let store = fixture.store();
    let staged = stage(&fixture, &numbered("orders", SIZE)).await;
    let stale = claim(&store, "orders", SIZE / 10).await;
    assert_eq!(ids(&stale), staged[..SIZE / 10]);
    expire_leases(&fixture).await;
    let current: HashMap<_, _> =
        claim_all(&store, "orders").await.into_iter().map(|each| (each.id(), each)).collect();
    assert_eq!(current.len(), SIZE, "messages with expired leases are reclaimed");

    // Of the messages with a stale lease, every other is settled with its valid lease as well.
    let settled: Vec<_> =
        staged.iter().enumerate().filter(|(number, _)| *number >= SIZE / 10 || number % 2 == 0).collect();
    let mut batch: Vec<_> = settled.iter().map(|(number, id)| ending(*number, &current[id])).collect();
    for (number, late) in stale.iter().enumerate() {
        let at = number * batch.len() / stale.len();
        batch.insert(at, ending(number + 1, late));
    }
    assert_lost(&store.settle(&batch).await.unwrap(), &leases(&stale));

    let states = states_by_id(&fixture).await;
    assert_eq!(states.len(), SIZE, "every message is in exactly one state");
    for (number, id) in staged.iter().enumerate() {
        let expected = match number {
            _ if number < SIZE / 10 && number % 2 == 1 => State::Leased,
            _ => STATES[number % 4],
        };
        assert_eq!(states[id], expected, "message {number}");
    }
}

/// Promise 2: a batch of five thousand retries, each with its own delay, keeps every message.
pub async fn a_batch_of_5000_retries_keeps_every_message<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let staged = stage(&fixture, &numbered("orders", SIZE)).await;
    let claimed = claim_all(&store, "orders").await;
    let retries: Vec<_> = claimed
        .iter()
        .enumerate()
        .map(|(number, each)| each.lease.retry(Duration::from_secs(60 + number as u64), "busy"))
        .collect();
    settle(&store, &retries).await;
    fixture.advance(Duration::from_secs(60 + SIZE as u64)).await;

    let again = claim_all(&store, "orders").await;
    assert_eq!(ids(&again), staged, "in the order they fell due");
    assert!(again.iter().all(|each| each.attempts == 1 && each.deliveries == 2));
}

const STATES: [State; 4] = [State::Done, State::Scheduled, State::Dead, State::Pending];

fn ending(number: usize, claimed: &ClaimedMessage) -> LeaseSettlement {
    claimed.lease.settle(match STATES[number % 4] {
        State::Done => Settlement::Done,
        State::Scheduled => {
            Settlement::Retry { after: minutes(5) + Duration::from_secs(number as u64), error: None }
        }
        State::Dead => {
            Settlement::Dead { reason: Reason::ALL[number / 4 % 4], error: Some("refused".into()) }
        }
        _ => Settlement::Release,
    })
}

/// The state of every message, each of which is in one state.
async fn states_by_id<F: Fixture>(fixture: &F) -> HashMap<MessageId, State> {
    let mut states = HashMap::new();
    for filter in [StateFilter::Ready, StateFilter::Scheduled, StateFilter::Dead, StateFilter::Done] {
        for entry in list(fixture, "orders", filter).await {
            let id = entry.message.id().unwrap();
            assert_eq!(states.insert(id, entry.state), None, "{id} is in two states");
        }
    }
    states
}
