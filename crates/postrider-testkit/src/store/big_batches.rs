//! One settlement of thousands, whatever its mix, ends each message as told and loses exactly what is stale (promise 4).

use super::helpers::*;
use crate::Fixture;
use postrider_core::{Claimed, MessageId, QueuePolicy, Reason, Settle, Settlement, State, inspect::Room};
use std::{collections::HashMap, time::Duration};

const SIZE: usize = 5_000;

/// Promise 4: five thousand settlements of every kind, a tenth of them under stale tokens. Half of the stale ones are on
/// messages that the same batch settles under the living token too. Exactly the stale ones are lost, and every message
/// ends in the right room.
pub async fn a_mixed_batch_of_five_thousand_ends_each_message_as_told<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::default().with_keep_for(minutes(60))).await;
    let store = fixture.store();
    let staged = stage(&fixture, &numbered("orders", SIZE)).await;
    let stale = claim(&store, "orders", SIZE / 10).await;
    assert_eq!(ids(&stale), staged[..SIZE / 10]);
    lapse(&fixture).await;
    let living: HashMap<_, _> =
        claim_all(&store, "orders").await.into_iter().map(|each| (each.id(), each)).collect();
    assert_eq!(living.len(), SIZE, "the lapsed ones are claimed again");

    // Of the messages that have a stale lease, every other is settled under its living lease too.
    let settled: Vec<_> =
        staged.iter().enumerate().filter(|(number, _)| *number >= SIZE / 10 || number % 2 == 0).collect();
    let mut batch: Vec<_> = settled.iter().map(|(number, id)| ending(*number, &living[id])).collect();
    for (number, late) in stale.iter().enumerate() {
        let at = number * batch.len() / stale.len();
        batch.insert(at, ending(number + 1, late));
    }
    assert_lost(&store.settle(&batch).await.unwrap(), &leases(&stale));

    let rooms = whereabouts(&fixture).await;
    assert_eq!(rooms.len(), SIZE, "every message is in exactly one room");
    for (number, id) in staged.iter().enumerate() {
        let expected = match number {
            _ if number < SIZE / 10 && number % 2 == 1 => State::Leased,
            _ => STATES[number % 4],
        };
        assert_eq!(rooms[id], expected, "message {number}");
    }
}

/// Promise 2: a batch of five thousand retries, each with its own delay, comes back whole.
pub async fn five_thousand_retries_come_back_whole<F: Fixture>(fixture: F) {
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

const STATES: [State; 4] = [State::Done, State::Waiting, State::Dead, State::Pending];

fn ending(number: usize, claimed: &Claimed) -> Settle {
    claimed.lease.settle(match STATES[number % 4] {
        State::Done => Settlement::Done,
        State::Waiting => {
            Settlement::Retry { after: minutes(5) + Duration::from_secs(number as u64), error: None }
        }
        State::Dead => {
            Settlement::Dead { reason: Reason::ALL[number / 4 % 4], error: Some("refused".into()) }
        }
        _ => Settlement::Release,
    })
}

/// The state of every message, each of which is in one room.
async fn whereabouts<F: Fixture>(fixture: &F) -> HashMap<MessageId, State> {
    let mut states = HashMap::new();
    for room in [Room::Ready, Room::Later, Room::Dead, Room::Archive] {
        for entry in list(fixture, "orders", room).await {
            let id = entry.message.id().unwrap();
            assert_eq!(states.insert(id, entry.state), None, "{id} is in two rooms");
        }
    }
    states
}
