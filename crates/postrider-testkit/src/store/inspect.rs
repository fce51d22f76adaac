//! The operator's view: counts, lag, lists and single messages. Reading changes nothing.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    EventType, MessageId, OnFailure, QueuePolicy, Reason, State,
    inspect::{Counts, ListRequest, MessageRow, StateFilter},
};
use std::{collections::HashMap, time::Duration};

/// Counts contain every state of every queue, including zeros, and match a scan of all states.
pub async fn counts_match_a_scan_of_every_state<F: Fixture>(fixture: F) {
    busy_queue(&fixture).await;
    stage_one(&fixture, message("letters").due_after(minutes(60))).await;
    let counts = fixture.inspect().counts().await.unwrap();

    let expected =
        [(State::Pending, 2), (State::Leased, 3), (State::Scheduled, 4), (State::Dead, 5), (State::Done, 6)];
    assert_eq!(reports(&counts[&queue("orders")]), expected);
    let mut scanned: HashMap<_, u64> = HashMap::new();
    for filter in FILTERS {
        for entry in list(&fixture, "orders", filter).await {
            *scanned.entry(entry.state).or_default() += 1;
        }
    }
    assert_eq!(scanned, expected.into_iter().collect(), "a scan finds what is counted");
    let zeros =
        [(State::Pending, 0), (State::Leased, 0), (State::Scheduled, 1), (State::Dead, 0), (State::Done, 0)];
    assert_eq!(reports(&counts[&queue("letters")]), zeros);
}

/// Counts of an ordered queue are complete, whatever the state of its keys.
pub async fn counts_of_an_ordered_queue_are_complete<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let store = fixture.store();
    stage(&fixture, &numbered_of("orders", "blocked", 3)).await;
    let turn = claim_all(&store, "orders").await;
    settle(&store, &[turn[0].lease.retry(minutes(60), "busy")]).await;
    stage(&fixture, &numbered_of("orders", "leased", 2)).await;
    assert_eq!(claim_all(&store, "orders").await.len(), 2);
    stage(&fixture, &numbered_of("orders", "free", 2)).await;

    let counts = fixture.inspect().counts().await.unwrap()[&queue("orders")];
    assert_eq!(counts.pending.at_least + counts.leased.at_least + counts.scheduled.at_least, 7);
    assert!(counts.leased.at_least >= 1 && counts.scheduled.at_least >= 1);
    assert_eq!(
        list(&fixture, "orders", StateFilter::Ready).await.len(),
        7,
        "a blocked head stays in its position"
    );
}

/// A scheduled message becomes pending by time alone, without any write.
pub async fn a_due_message_counts_as_pending<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, message("orders").due_after(minutes(5))).await;
    entry_in(&fixture, "orders", id, State::Scheduled).await;
    fixture.advance(minutes(5)).await;
    entry_in(&fixture, "orders", id, State::Pending).await;

    let counts = fixture.inspect().counts().await.unwrap()[&queue("orders")];
    assert_eq!((counts.pending.at_least, counts.scheduled.at_least), (1, 0));
}

/// Inspecting changes neither the messages, nor the next claim, nor the audit.
pub async fn inspect_changes_nothing<F: Fixture>(fixture: F) {
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

/// Lag is the age of the oldest due message, and `None` if none is due.
pub async fn lag_is_the_waiting_time_of_the_oldest_due_message<F: Fixture>(fixture: F) {
    let lag = || async { fixture.inspect().lag(&queue("orders")).await.unwrap() };
    assert_eq!(lag().await, None, "the queue is unused");
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

/// A list has a stable order, and its pages contain every message once, even if many messages have the same time.
pub async fn pages_visit_everything_once_in_a_stable_order<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::default().with_keep_for(minutes(60))).await;
    let store = fixture.store();
    let mut expected = HashMap::new();
    for filter in [StateFilter::Dead, StateFilter::Done, StateFilter::Scheduled] {
        expected.insert(filter, stage(&fixture, &numbered("orders", 25)).await);
        let claimed = claim_all(&store, "orders").await;
        let endings: Vec<_> = claimed
            .iter()
            .map(|each| match filter {
                StateFilter::Dead => each.lease.dead(Reason::Rejected, "refused"),
                StateFilter::Done => each.lease.done(),
                _ => each.lease.retry(minutes(60), "busy"),
            })
            .collect();
        settle(&store, &endings).await;
    }
    expected.insert(StateFilter::Ready, stage(&fixture, &numbered("orders", 25)).await);

    for filter in FILTERS {
        for limit in [1, 10, 25, 1000] {
            let request = ListRequest::new(queue("orders"), filter).with_limit(limit);
            let seen = ids_of(&pages(&fixture, request).await.concat());
            assert_eq!(seen, expected[&filter], "{filter:?} in pages of {limit}");
        }
    }
}

/// A list can be filtered by key, type or reason, page by page.
pub async fn lists_can_be_filtered<F: Fixture>(fixture: F) {
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
    let narrowed = |filter| ListRequest::new(queue("orders"), filter).with_limit(3);
    let by_key = narrowed(StateFilter::Ready).with_key(key("key-1"));
    assert_eq!(ids_of(&pages(&fixture, by_key).await.concat()), every(2, 1));
    let by_type = narrowed(StateFilter::Ready).with_event_type(EventType::new("order.paid").unwrap());
    assert_eq!(ids_of(&pages(&fixture, by_type).await.concat()), every(3, 1));

    let claimed = claim_all(&store, "orders").await;
    let endings: Vec<_> = claimed
        .iter()
        .enumerate()
        .map(|(number, each)| each.lease.dead(Reason::ALL[number % 4], "refused"))
        .collect();
    settle(&store, &endings).await;
    let by_reason = narrowed(StateFilter::Dead).with_reason(Reason::ALL[2]);
    assert_eq!(ids_of(&pages(&fixture, by_reason).await.concat()), every(4, 2));
    let by_both = narrowed(StateFilter::Dead).with_reason(Reason::ALL[2]).with_key(key("key-0"));
    assert_eq!(ids_of(&pages(&fixture, by_both).await.concat()), every(4, 2));
    let by_all = narrowed(StateFilter::Dead)
        .with_key(key("key-0"))
        .with_event_type(EventType::new("order.paid").unwrap());
    assert_eq!(ids_of(&pages(&fixture, by_all).await.concat()), every(6, 4));
    let none = narrowed(StateFilter::Dead).with_key(key("key-1")).with_reason(Reason::ALL[2]);
    assert_eq!(pages(&fixture, none).await.concat(), []);
}

/// A message is found in whatever state it is, with that state; an unknown message is not found.
pub async fn a_message_is_found_in_every_state<F: Fixture>(fixture: F) {
    busy_queue(&fixture).await;
    for filter in FILTERS {
        for entry in list(&fixture, "orders", filter).await {
            let found = get(&fixture, "orders", entry.message.id().unwrap()).await;
            assert_eq!(found, Some(entry), "found alone as it is listed");
        }
    }
    let listed = list(&fixture, "orders", StateFilter::Dead).await;
    assert_eq!(get(&fixture, "orders", fresh_id()).await, None);
    assert_eq!(
        get(&fixture, "letters", listed[0].message.id().unwrap()).await,
        None,
        "it is in another queue"
    );
}

const FILTERS: [StateFilter; 4] =
    [StateFilter::Ready, StateFilter::Scheduled, StateFilter::Dead, StateFilter::Done];

/// Two pending, three leased, four scheduled, five dead and six archived messages.
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

async fn everything<F: Fixture>(fixture: &F) -> Vec<MessageRow> {
    let mut entries = Vec::new();
    for filter in FILTERS {
        entries.extend(list(fixture, "orders", filter).await);
    }
    entries
}

fn reports(counts: &Counts) -> [(State, u64); 5] {
    let Counts { pending, leased, scheduled, dead, done } = counts;
    assert!([pending, leased, scheduled, dead, done].iter().all(|tally| !tally.capped));
    [
        (State::Pending, pending.at_least),
        (State::Leased, leased.at_least),
        (State::Scheduled, scheduled.at_least),
        (State::Dead, dead.at_least),
        (State::Done, done.at_least),
    ]
}

fn assert_seconds(lag: Option<Duration>, expected: std::ops::Range<u64>) {
    let seconds = lag.expect("something is due").as_secs();
    assert!(expected.contains(&seconds), "a lag of {seconds} s lies in {expected:?}");
}
