//! What operators see: counts, lag, lists and single messages. Looking changes nothing.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    EventType, MessageId, OnFailure, QueuePolicy, Reason, State,
    inspect::{Counts, Entry, ListRequest, Room},
};
use std::{collections::HashMap, time::Duration};

/// Counts hold every state of every queue, zeros included, and match what a scan of the rooms finds.
pub async fn counts_match_a_scan_of_every_room<F: Fixture>(fixture: F) {
    busy_queue(&fixture).await;
    stage_one(&fixture, message("letters").due_after(minutes(60))).await;
    let counts = fixture.inspect().counts().await.unwrap();

    let expected =
        [(State::Pending, 2), (State::Leased, 3), (State::Waiting, 4), (State::Dead, 5), (State::Done, 6)];
    assert_eq!(tallies(&counts[&queue("orders")]), expected);
    let mut scanned: HashMap<_, u64> = HashMap::new();
    for room in ROOMS {
        for entry in list(&fixture, "orders", room).await {
            *scanned.entry(entry.state).or_default() += 1;
        }
    }
    assert_eq!(scanned, expected.into_iter().collect(), "a scan finds what is counted");
    let zeros =
        [(State::Pending, 0), (State::Leased, 0), (State::Waiting, 1), (State::Dead, 0), (State::Done, 0)];
    assert_eq!(tallies(&counts[&queue("letters")]), zeros);
}

/// Counts of an ordered queue leave nothing out, whatever its keys do.
pub async fn counts_of_an_ordered_queue_leave_nothing_out<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let store = fixture.store();
    stage(&fixture, &numbered_of("orders", "blocked", 3)).await;
    let turn = claim_all(&store, "orders").await;
    settle(&store, &[turn[0].lease.retry(minutes(60), "busy")]).await;
    stage(&fixture, &numbered_of("orders", "leased", 2)).await;
    assert_eq!(claim_all(&store, "orders").await.len(), 2);
    stage(&fixture, &numbered_of("orders", "free", 2)).await;

    let counts = fixture.inspect().counts().await.unwrap()[&queue("orders")];
    assert_eq!(counts.pending.at_least + counts.leased.at_least + counts.waiting.at_least, 7);
    assert!(counts.leased.at_least >= 1 && counts.waiting.at_least >= 1);
    assert_eq!(list(&fixture, "orders", Room::Ready).await.len(), 7, "a blocked head stays in its place");
}

/// A message comes due by time alone: it is pending then, in whatever room it waits.
pub async fn what_has_come_due_counts_as_pending<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, message("orders").due_after(minutes(5))).await;
    entry_in(&fixture, "orders", id, State::Waiting).await;
    fixture.advance(minutes(5)).await;
    entry_in(&fixture, "orders", id, State::Pending).await;

    let counts = fixture.inspect().counts().await.unwrap()[&queue("orders")];
    assert_eq!((counts.pending.at_least, counts.waiting.at_least), (1, 0));
}

/// Looking changes nothing: neither what there is, nor what is claimed next, nor the audit.
pub async fn looking_changes_nothing<F: Fixture>(fixture: F) {
    busy_queue(&fixture).await;
    let inspect = fixture.inspect();
    let before = everything(&fixture).await;
    for _ in 0..3 {
        inspect.counts().await.unwrap();
        inspect.lag(&queue("orders")).await.unwrap();
        inspect.blocked_keys(&queue("orders"), 10).await.unwrap();
        inspect.audit(10).await.unwrap();
        for entry in &before {
            get(&fixture, "orders", entry.message.id().unwrap()).await.unwrap();
        }
    }

    assert_eq!(everything(&fixture).await, before);
    assert_eq!(inspect.audit(10).await.unwrap(), []);
    assert!(claim_all(&fixture.store(), "orders").await.iter().all(|each| each.deliveries == 1));
}

/// Lag is the age of the oldest message that is due, and nothing when none is.
pub async fn lag_is_how_long_the_oldest_due_message_has_waited<F: Fixture>(fixture: F) {
    let lag = || async { fixture.inspect().lag(&queue("orders")).await.unwrap() };
    assert_eq!(lag().await, None, "nobody has used the queue");
    stage_one(&fixture, message("orders").due_after(minutes(60))).await;
    assert_eq!(lag().await, None, "nothing is due");
    stage_one(&fixture, message("orders")).await;
    fixture.advance(Duration::from_secs(90)).await;
    stage_one(&fixture, message("orders")).await;
    assert_seconds(lag().await, 90..95);

    assert_eq!(drain(&fixture.store(), "orders").await.len(), 2);
    assert_eq!(lag().await, None, "everything due was delivered");
    fixture.advance(minutes(59)).await;
    assert_seconds(lag().await, 30..60);
}

/// A list shows a room in a stable order, and its pages show everything once, though many messages share a moment.
pub async fn pages_visit_everything_once_in_a_stable_order<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::default().with_keep_for(minutes(60))).await;
    let store = fixture.store();
    let mut expected = HashMap::new();
    for room in [Room::Dead, Room::Archive, Room::Later] {
        expected.insert(room, stage(&fixture, &numbered("orders", 25)).await);
        let claimed = claim_all(&store, "orders").await;
        let endings: Vec<_> = claimed
            .iter()
            .map(|each| match room {
                Room::Dead => each.lease.dead(Reason::Rejected, "refused"),
                Room::Archive => each.lease.done(),
                _ => each.lease.retry(minutes(60), "busy"),
            })
            .collect();
        settle(&store, &endings).await;
    }
    expected.insert(Room::Ready, stage(&fixture, &numbered("orders", 25)).await);

    for room in ROOMS {
        for limit in [1, 10, 25, 1000] {
            let request = ListRequest::new(queue("orders"), room).with_limit(limit);
            let seen = ids_of(&pages(&fixture, request).await.concat());
            assert_eq!(seen, expected[&room], "{room:?} in pages of {limit}");
        }
    }
}

/// A list can be narrowed to a key, a type or a reason, page by page.
pub async fn lists_can_be_narrowed<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let messages: Vec<_> = (0..24)
        .map(|number| {
            let builder = message("orders").key(format!("key-{}", number % 2));
            builder.event_type(["order.placed", "order.paid", "order.sent"][number % 3]).build().unwrap()
        })
        .collect();
    let staged = stage(&fixture, &messages).await;
    let every = |step: usize, from: usize| -> Vec<MessageId> {
        staged.iter().skip(from).step_by(step).copied().collect()
    };
    let narrowed = |room| ListRequest::new(queue("orders"), room).with_limit(3);
    let by_key = narrowed(Room::Ready).with_key(key("key-1"));
    assert_eq!(ids_of(&pages(&fixture, by_key).await.concat()), every(2, 1));
    let by_type = narrowed(Room::Ready).with_event_type(EventType::new("order.paid").unwrap());
    assert_eq!(ids_of(&pages(&fixture, by_type).await.concat()), every(3, 1));

    let claimed = claim_all(&store, "orders").await;
    let endings: Vec<_> = claimed
        .iter()
        .enumerate()
        .map(|(number, each)| each.lease.dead(Reason::ALL[number % 4], "refused"))
        .collect();
    settle(&store, &endings).await;
    let by_reason = narrowed(Room::Dead).with_reason(Reason::ALL[2]);
    assert_eq!(ids_of(&pages(&fixture, by_reason).await.concat()), every(4, 2));
    let by_both = narrowed(Room::Dead).with_reason(Reason::ALL[2]).with_key(key("key-0"));
    assert_eq!(ids_of(&pages(&fixture, by_both).await.concat()), every(4, 2));
    let by_all =
        narrowed(Room::Dead).with_key(key("key-0")).with_event_type(EventType::new("order.paid").unwrap());
    assert_eq!(ids_of(&pages(&fixture, by_all).await.concat()), every(6, 4));
    let none = narrowed(Room::Dead).with_key(key("key-1")).with_reason(Reason::ALL[2]);
    assert_eq!(pages(&fixture, none).await.concat(), []);
}

/// One message is found wherever it is, with its state; what is not there is not found.
pub async fn a_message_is_found_in_every_room<F: Fixture>(fixture: F) {
    busy_queue(&fixture).await;
    for room in ROOMS {
        for entry in list(&fixture, "orders", room).await {
            let found = get(&fixture, "orders", entry.message.id().unwrap()).await;
            assert_eq!(found, Some(entry), "found alone as it is listed");
        }
    }
    let listed = list(&fixture, "orders", Room::Dead).await;
    assert_eq!(get(&fixture, "orders", fresh_id()).await, None);
    assert_eq!(
        get(&fixture, "letters", listed[0].message.id().unwrap()).await,
        None,
        "it is in another queue"
    );
}

const ROOMS: [Room; 4] = [Room::Ready, Room::Later, Room::Dead, Room::Archive];

/// Two pending, three leased, four waiting, five dead and six kept messages.
async fn busy_queue<F: Fixture>(fixture: &F) {
    declare(fixture, "orders", QueuePolicy::default().with_keep_for(minutes(60))).await;
    let store = fixture.store();
    stage(fixture, &numbered("orders", 16)).await;
    let claimed = claim_all(&store, "orders").await;
    let endings: Vec<_> = claimed[..13]
        .iter()
        .enumerate()
        .map(|(number, each)| match number {
            0..5 => each.lease.dead(Reason::Rejected, "refused"),
            5..11 => each.lease.done(),
            _ => each.lease.retry(minutes(60), "busy"),
        })
        .collect();
    settle(&store, &endings).await;
    for _ in 0..2 {
        stage_one(fixture, message("orders").due_after(minutes(60))).await;
        stage_one(fixture, message("orders")).await;
    }
}

async fn everything<F: Fixture>(fixture: &F) -> Vec<Entry> {
    let mut entries = Vec::new();
    for room in ROOMS {
        entries.extend(list(fixture, "orders", room).await);
    }
    entries
}

fn tallies(counts: &Counts) -> [(State, u64); 5] {
    let Counts { pending, leased, waiting, dead, done } = counts;
    assert!([pending, leased, waiting, dead, done].iter().all(|tally| !tally.capped));
    [
        (State::Pending, pending.at_least),
        (State::Leased, leased.at_least),
        (State::Waiting, waiting.at_least),
        (State::Dead, dead.at_least),
        (State::Done, done.at_least),
    ]
}

fn assert_seconds(lag: Option<Duration>, expected: std::ops::Range<u64>) {
    let seconds = lag.expect("something is due").as_secs();
    assert!(expected.contains(&seconds), "a lag of {seconds} s lies in {expected:?}");
}
