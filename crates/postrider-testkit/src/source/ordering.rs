//! Lanes, for sources that keep an order.

use super::{SourceFixture, helpers::*};
use postrider_core::{Ack, LaneId, ReceivedMessage};
use std::collections::HashMap;

fn number(message: &ReceivedMessage) -> u64 {
    std::str::from_utf8(decoded(message).message.payload()).unwrap().parse().unwrap()
}

/// The numbers of each lane, in the order received.
fn by_lane(messages: &[ReceivedMessage]) -> HashMap<LaneId, Vec<u64>> {
    let mut lanes: HashMap<LaneId, Vec<u64>> = HashMap::new();
    for message in messages {
        lanes.entry(message.lane.unwrap()).or_default().push(number(message));
    }
    lanes
}

/// The messages of a key share a lane and are received in the order sent.
pub async fn a_lane_is_received_in_order<F: SourceFixture>(fixture: F) {
    assert!(fixture.features().keeps_order, "the suite of an unordered source leaves this case out");
    let address = fixture.address().await;
    let source = fixture.source(&address).await;
    fixture.send(&address, orders(50, &address)).await;
    let mut messages = Vec::new();
    // A message in flight may block the rest of its lane, so it is acked at once.
    while messages.len() < 50 {
        let received = receive(&*source, 7).await;
        ack(&*source, &received, Ack::Ack).await;
        messages.extend(received);
    }
    let lanes = by_lane(&messages);
    assert!(lanes.len() > 1, "all five keys are in one lane");
    assert!(lanes.values().all(|numbers| numbers.is_sorted()), "{lanes:?}");
    for message in &messages {
        let same = messages.iter().filter(|other| number(other) % 5 == number(message) % 5);
        assert!(same.into_iter().all(|other| other.lane == message.lane), "a key has two lanes");
    }
}

/// After a failure, the messages received behind it are nacked as well, and redelivered in order.
pub async fn a_redelivered_message_is_followed_by_its_successors<F: SourceFixture>(fixture: F) {
    assert!(fixture.features().keeps_order, "the suite of an unordered source leaves this case out");
    let address = fixture.address().await;
    let source = fixture.source(&address).await;
    fixture.send(&address, orders(30, &address)).await;
    let mut failed = Vec::new();
    let mut done: HashMap<LaneId, Vec<u64>> = HashMap::new();
    let mut left = 30;
    while left > 0 {
        let mut halted = Vec::new();
        let received = receive(&*source, 30).await;
        let acks: Vec<_> = received
            .iter()
            .map(|message| {
                let lane = message.lane.unwrap();
                // The second of each lane fails once.
                let fails = !failed.contains(&lane) && done.get(&lane).is_some_and(|done| done.len() == 1);
                if fails {
                    failed.push(lane);
                    halted.push(lane);
                }
                if halted.contains(&lane) {
                    return (message.ack_handle.clone(), Ack::REDELIVER_NOW);
                }
                done.entry(lane).or_default().push(number(message));
                left -= 1;
                (message.ack_handle.clone(), Ack::Ack)
            })
            .collect();
        for reported in within_patience("acking", source.ack(&acks)).await {
            reported.unwrap();
        }
    }
    assert!(!failed.is_empty());
    assert!(done.values().all(|numbers| numbers.is_sorted()), "{done:?}");
    let mut all: Vec<_> = done.into_values().flatten().collect();
    all.sort_unstable();
    assert_eq!(all, (0..30).collect::<Vec<_>>());
    within_patience("closing", source.close()).await;
    assert_nothing_left(&fixture, &address).await;
}
