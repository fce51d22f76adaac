//! Lanes, where the other side keeps an order.

use super::{SourceFixture, helpers::*};
use postrider_core::{Answer, Lane, Parcel};
use std::collections::HashMap;

fn number(parcel: &Parcel) -> u64 {
    std::str::from_utf8(letter(parcel).message.payload()).unwrap().parse().unwrap()
}

/// The numbers of each lane, in the order in which they came.
fn by_lane(parcels: &[Parcel]) -> HashMap<Lane, Vec<u64>> {
    let mut lanes: HashMap<Lane, Vec<u64>> = HashMap::new();
    for parcel in parcels {
        lanes.entry(parcel.lane.unwrap()).or_default().push(number(parcel));
    }
    lanes
}

/// The messages of a key share a lane and come in the order in which they were sent.
pub async fn a_lane_comes_in_its_order<F: SourceFixture>(fixture: F) {
    if !fixture.features().keeps_order {
        return;
    }
    let place = fixture.place().await;
    let source = fixture.source(&place).await;
    fixture.send(&place, orders(50, &place)).await;
    let mut parcels = Vec::new();
    // What is in hand may keep the rest of its lane back, so it is answered at once.
    while parcels.len() < 50 {
        let received = receive(&*source, 7).await;
        answer(&*source, &received, Answer::Done).await;
        parcels.extend(received);
    }
    let lanes = by_lane(&parcels);
    assert!(lanes.len() > 1, "all five keys are in one lane");
    assert!(lanes.values().all(|numbers| numbers.is_sorted()), "{lanes:?}");
    for parcel in &parcels {
        let same = parcels.iter().filter(|other| number(other) % 5 == number(parcel) % 5);
        assert!(same.into_iter().all(|other| other.lane == parcel.lane), "a key has two lanes");
    }
}

/// After a failure, what was received behind it is handed back, too, and comes again in its order.
pub async fn what_comes_again_is_followed_by_what_is_behind_it<F: SourceFixture>(fixture: F) {
    if !fixture.features().keeps_order {
        return;
    }
    let place = fixture.place().await;
    let source = fixture.source(&place).await;
    fixture.send(&place, orders(30, &place)).await;
    let mut failed = Vec::new();
    let mut done: HashMap<Lane, Vec<u64>> = HashMap::new();
    let mut left = 30;
    while left > 0 {
        let mut halted = Vec::new();
        let received = receive(&*source, 30).await;
        let answers: Vec<_> = received
            .iter()
            .map(|parcel| {
                let lane = parcel.lane.unwrap();
                // The second of each lane fails once.
                let fails = !failed.contains(&lane) && done.get(&lane).is_some_and(|done| done.len() == 1);
                if fails {
                    failed.push(lane);
                    halted.push(lane);
                }
                if halted.contains(&lane) {
                    return (parcel.ticket.clone(), Answer::AT_ONCE);
                }
                done.entry(lane).or_default().push(number(parcel));
                left -= 1;
                (parcel.ticket.clone(), Answer::Done)
            })
            .collect();
        for told in patiently("answering", source.answer(&answers)).await {
            told.unwrap();
        }
    }
    assert!(!failed.is_empty());
    assert!(done.values().all(|numbers| numbers.is_sorted()), "{done:?}");
    let mut all: Vec<_> = done.into_values().flatten().collect();
    all.sort_unstable();
    assert_eq!(all, (0..30).collect::<Vec<_>>());
    patiently("closing", source.close()).await;
    nothing_is_left(&fixture, &place).await;
}
