//! Bulk changes: counted first, applied chunk by chunk, in the order of keys, and at most once per message.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    Error, EventType, FollowUp, MessageId, OnFailure, QueuePolicy, Reason, Reference, State,
    inspect::{Chunk, DeadGroup, Fence, Selection, StateFilter},
};

/// A selection is counted, and requeued chunk by chunk; each chunk writes one audit row with its messages.
pub async fn a_selection_is_counted_and_requeued_in_chunks<F: Fixture>(fixture: F) {
    let inspect = fixture.inspect();
    let staged = dead_letter_all(&fixture, "orders", 25, "refused").await;
    let selection = dead("orders");
    let selected = inspect.summarize(&selection).await.unwrap();
    assert_eq!((selected.count, selected.follow_ups), (25, 0));

    let (looked_at, changed, chunks) = requeue(&fixture, &selection, selected.fence, 10, usize::MAX).await;
    assert_eq!((looked_at, changed, chunks), (25, 25, 3));
    assert_eq!(inspect.summarize(&selection).await.unwrap().count, 0);
    let rows = inspect.audit(10).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.ids.len()).collect::<Vec<_>>(), [5, 10, 10]);
    assert!(rows.iter().all(|row| row.verb == "requeue" && row.action == operator()));
    assert_eq!(sorted(rows.into_iter().flat_map(|row| row.ids)), sorted(staged.clone()));
    assert_eq!(sorted(drain(&fixture.store(), "orders").await), sorted(staged));
    let none = inspect.summarize(&dead("nobody")).await.unwrap();
    assert_eq!((none.count, none.follow_ups), (0, 0));
    assert_eq!(requeue(&fixture, &dead("nobody"), none.fence, 10, usize::MAX).await, (0, 0, 1));
}

/// A change that resumes after an interruption finds the rest, and no message twice.
pub async fn an_interrupted_bulk_change_resumes<F: Fixture>(fixture: F) {
    let inspect = fixture.inspect();
    let staged = dead_letter_all(&fixture, "orders", 25, "refused").await;
    let selection = dead("orders");
    let first = inspect.summarize(&selection).await.unwrap();
    assert_eq!(requeue(&fixture, &selection, first.fence, 10, 1).await, (10, 10, 1));
    let second = inspect.summarize(&selection).await.unwrap();
    assert_eq!(second.count, 15);
    assert_eq!(requeue(&fixture, &selection, second.fence, 10, usize::MAX).await, (15, 15, 2));
    assert_eq!(sorted(drain(&fixture.store(), "orders").await), sorted(staged));
}

/// No message of a key is requeued before an earlier one, wherever the change stops: even if the earlier one failed last.
pub async fn an_interrupted_requeue_keeps_key_order<F: Fixture>(fixture: F) {
    let store = fixture.store();
    declare(&fixture, "letters", QueuePolicy::by_key(OnFailure::Skip)).await;
    let mut messages = Vec::new();
    for number in 0..6 {
        for name in ["ada", "ben", "cy"] {
            messages.push(message("letters").key(name).payload(number.to_string()).build().unwrap());
        }
    }
    let staged = stage(&fixture, &messages).await;
    dead_letter_every(&fixture, "letters", "refused").await;
    // The first message of each key is dead-lettered again, after all its successors.
    fixture.advance(minutes(1)).await;
    let firsts = &staged[..3];
    fixture.operate().requeue(&queue("letters"), firsts, &operator()).await.unwrap();
    dead_letter_every(&fixture, "letters", "refused").await;

    let selection = dead("letters");
    let mut delivered = Vec::new();
    loop {
        let selected = fixture.inspect().summarize(&selection).await.unwrap();
        if selected.count == 0 {
            break;
        }
        // One small chunk, and then everything that can run.
        assert_eq!(requeue(&fixture, &selection, selected.fence, 4, 1).await.2, 1);
        loop {
            let claimed = claim(&store, "letters", 100).await;
            if claimed.is_empty() {
                break;
            }
            done(&store, &claimed).await;
            delivered.extend(claimed.into_iter().map(|each| {
                (each.message.key().cloned(), String::from_utf8(each.message.payload().to_vec()).unwrap())
            }));
        }
    }
    for name in ["ada", "ben", "cy"] {
        let of_key =
            delivered.iter().filter(|(of, _)| *of == Some(key(name))).map(|(_, number)| number.as_str());
        assert_eq!(of_key.collect::<Vec<_>>(), ["0", "1", "2", "3", "4", "5"], "the order of {name}");
    }
}

/// A message that was requeued and failed again is excluded by the fence, on ordered and unordered queues: it is requeued once.
pub async fn a_message_that_fails_again_is_not_requeued_twice<F: Fixture>(fixture: F) {
    declare(&fixture, "letters", QueuePolicy::by_key(OnFailure::Skip)).await;
    stage(&fixture, &numbered_of("letters", "ada", 6)).await;
    stage(&fixture, &numbered("orders", 6)).await;
    for name in ["letters", "orders"] {
        dead_letter_every(&fixture, name, "refused").await;
        let selection = dead(name);
        let fence = fixture.inspect().summarize(&selection).await.unwrap().fence;
        let mut chunk = Chunk::first(fence, 2);
        let mut changed = 0;
        loop {
            let done = fixture.operate().requeue_next(&selection, &chunk, &operator()).await.unwrap();
            changed += done.changed;
            dead_letter_every(&fixture, name, "refused").await;
            let Some(next) = done.next else { break };
            chunk.after = Some(next);
        }
        assert_eq!(changed, 6, "each of {name:?} was put back once");
        assert_eq!(fixture.inspect().summarize(&selection).await.unwrap().count, 6);
    }
}

/// Messages that become dead letters after the count are not requeued, nor are those outside a given time.
pub async fn a_message_dead_after_the_count_is_not_requeued<F: Fixture>(fixture: F) {
    dead_letter_all(&fixture, "orders", 3, "refused").await;
    let selection = dead("orders");
    let selected = fixture.inspect().summarize(&selection).await.unwrap();
    fixture.advance(minutes(1)).await;
    let late = dead_letter_all(&fixture, "orders", 2, "refused").await;
    let until = Selection { until: Some(selected.fence.at), ..selection.clone() };
    assert_eq!(fixture.inspect().summarize(&until).await.unwrap().count, 3);
    assert_eq!(requeue(&fixture, &selection, selected.fence, 10, usize::MAX).await.1, 3);
    assert_eq!(sorted(ids_of(&list(&fixture, "orders", StateFilter::Dead).await)), sorted(late));
}

/// A selection is filtered by reason, type, key and the prefix of the error.
pub async fn a_selection_can_be_filtered<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let messages = [
        message("orders").event_type("order.placed").key("ada"),
        message("orders").event_type("order.placed").key("ben"),
        message("orders").event_type("order.paid").key("ada"),
    ];
    let messages: Vec<_> = messages.into_iter().map(|builder| builder.build().unwrap()).collect();
    let ids = stage(&fixture, &messages).await;
    let claimed = claim_all(&store, "orders").await;
    let ends = [
        claimed[0].lease.dead(Reason::Rejected, "100% refused: 7"),
        claimed[1].lease.dead(Reason::Undecodable, "refused: 8"),
        claimed[2].lease.dead(Reason::Rejected, "refused_by nobody"),
    ];
    settle(&store, &ends).await;
    let all = || dead("orders");
    for (selection, expected) in [
        (all(), vec![ids[0], ids[1], ids[2]]),
        (Selection { reason: Some(Reason::Rejected), ..all() }, vec![ids[0], ids[2]]),
        (Selection { event_type: Some(EventType::stored("order.placed")), ..all() }, vec![ids[0], ids[1]]),
        (Selection { key: Some(key("ada")), ..all() }, vec![ids[0], ids[2]]),
        (Selection { error: Some("refused".to_owned()), ..all() }, vec![ids[1], ids[2]]),
        (Selection { error: Some("refused: ".to_owned()), ..all() }, vec![ids[1]]),
        (Selection { error: Some("100%".to_owned()), ..all() }, vec![ids[0]]),
        (Selection { error: Some("refuseX".to_owned()), ..all() }, vec![]),
    ] {
        let selected = fixture.inspect().summarize(&selection).await.unwrap();
        assert_eq!(selected.count, expected.len() as u64, "{selection:?}");
        let changed = requeue(&fixture, &selection, selected.fence, 10, usize::MAX).await.1;
        assert_eq!(changed, expected.len() as u64, "{selection:?}");
        for id in &expected {
            entry_in(&fixture, "orders", *id, State::Pending).await;
        }
        let claimed = claim_all(&store, "orders").await;
        let back: Vec<_> = claimed
            .iter()
            .map(|each| {
                let was = ids.iter().position(|id| *id == each.id()).unwrap();
                let (reason, error) = [
                    (Reason::Rejected, "100% refused: 7"),
                    (Reason::Undecodable, "refused: 8"),
                    (Reason::Rejected, "refused_by nobody"),
                ][was];
                each.lease.dead(reason, error)
            })
            .collect();
        settle(&store, &back).await;
    }
}

/// Follow-ups are counted separately and skipped: their audit chain must record the change.
pub async fn follow_ups_are_skipped<F: Fixture>(fixture: F) {
    let plain = stage_one(&fixture, message("orders")).await;
    let erase =
        FollowUp::new("customer-17", "payments", "erase", Reference::new("customer", "cus_1")).unwrap();
    let follow_up = stage_one(&fixture, erase.in_queue(queue("orders"))).await;
    dead_letter_every(&fixture, "orders", "refused").await;
    let selection = dead("orders");
    let selected = fixture.inspect().summarize(&selection).await.unwrap();
    assert_eq!((selected.count, selected.follow_ups), (1, 1));
    assert_eq!(requeue(&fixture, &selection, selected.fence, 10, usize::MAX).await, (1, 1, 1));
    entry_in(&fixture, "orders", plain, State::Pending).await;
    let chunk = Chunk::first(selected.fence, 10);
    let removed = fixture.operate().discard_next(&selection, &chunk, &operator()).await.unwrap();
    assert_eq!(removed.looked_at, 0);
    entry_in(&fixture, "orders", follow_up, State::Dead).await;
}

/// A selection can be discarded in every state, except leased messages; only dead letters can be requeued.
pub async fn a_selection_can_be_discarded_in_every_state<F: Fixture>(fixture: F) {
    let (store, operate) = (fixture.store(), fixture.operate());
    declare(&fixture, "orders", QueuePolicy::default().with_keep_for(minutes(600))).await;
    let kept = stage(&fixture, &numbered("orders", 5)).await;
    assert_eq!(drain(&store, "orders").await, kept);
    let dead_ones = dead_letter_all(&fixture, "orders", 5, "refused").await;
    let leased = stage_one(&fixture, message("orders")).await;
    assert_eq!(claim_one(&store, "orders").await.id(), leased);
    stage(&fixture, &numbered("orders", 5)).await;
    for number in 1..6 {
        stage_one(&fixture, message("orders").due_after(minutes(number))).await;
    }
    assert_eq!(dead_ones.len(), 5);
    for (filter, there) in
        [(StateFilter::Done, 5), (StateFilter::Dead, 5), (StateFilter::Ready, 6), (StateFilter::Scheduled, 5)]
    {
        let selection = Selection::new(queue("orders"), filter);
        let selected = operate.summarize(&selection).await.unwrap();
        assert_eq!(selected.count, there, "{filter:?}");
        let mut chunk = Chunk::first(selected.fence, 2);
        let (mut looked_at, mut changed) = (0, 0);
        loop {
            let done = operate.discard_next(&selection, &chunk, &operator()).await.unwrap();
            looked_at += done.looked_at;
            changed += done.changed;
            let Some(next) = done.next else { break };
            chunk.after = Some(next);
        }
        assert_eq!((looked_at, changed), (there, 5), "{filter:?}");
        if matches!(filter, StateFilter::Ready | StateFilter::Scheduled) {
            let refused =
                operate.requeue_next(&selection, &Chunk::first(selected.fence, 2), &operator()).await;
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        }
    }
    assert_eq!(ids_of(&list(&fixture, "orders", StateFilter::Ready).await), [leased]);
}

/// Dead letters are grouped by queue, reason and the part of the error before its details, largest group first.
pub async fn dead_letters_are_grouped_by_cause<F: Fixture>(fixture: F) {
    let store = fixture.store();
    dead_letter_all(&fixture, "orders", 2, "no such address: Elm Street 7").await;
    dead_letter_all(&fixture, "orders", 1, "no such address: Oak Street 9\nand more").await;
    dead_letter_all(&fixture, "letters", 2, "timeout\nat once: 12").await;
    let claimed = {
        stage_one(&fixture, message("letters")).await;
        claim_one(&store, "letters").await
    };
    let dead = postrider_core::Settlement::Dead { reason: Reason::Undecodable, error: None };
    settle(&store, &[postrider_core::LeaseSettlement { lease: claimed.lease, settlement: dead }]).await;
    let reported = |groups: Vec<DeadGroup>| {
        groups
            .into_iter()
            .map(|group| {
                assert!(group.oldest <= group.newest);
                (group.queue.to_string(), group.reason, group.error, group.count)
            })
            .collect::<Vec<_>>()
    };
    let group = |name: &str, reason, error: Option<&str>, count| {
        (name.to_owned(), Some(reason), error.map(str::to_owned), count)
    };
    let all = reported(fixture.inspect().dead_groups(None, 10).await.unwrap());
    let expected = [
        group("orders", Reason::Rejected, Some("no such address"), 3),
        group("letters", Reason::Rejected, Some("timeout"), 2),
        group("letters", Reason::Undecodable, None, 1),
    ];
    assert_eq!(all, expected);
    let fewer = reported(fixture.inspect().dead_groups(Some(&queue("letters")), 1).await.unwrap());
    assert_eq!(fewer, expected[1..2]);
    assert_eq!(reported(fixture.inspect().dead_groups(Some(&queue("nobody")), 10).await.unwrap()), []);
}

fn dead(name: &str) -> Selection {
    Selection::new(queue(name), StateFilter::Dead)
}

/// Stages this many messages, and dead-letters them.
async fn dead_letter_all<F: Fixture>(fixture: &F, name: &str, count: usize, error: &str) -> Vec<MessageId> {
    let staged = stage(fixture, &numbered(name, count)).await;
    dead_letter_every(fixture, name, error).await;
    staged
}

/// Dead-letters every message that is due.
async fn dead_letter_every<F: Fixture>(fixture: &F, name: &str, error: &str) {
    let store = fixture.store();
    loop {
        // One by one on ordered queues: a failure ends the turn.
        let claimed = claim(&store, name, 1).await;
        if claimed.is_empty() {
            return;
        }
        settle(&store, &[claimed[0].lease.dead(Reason::Rejected, error)]).await;
    }
}

/// Requeues at most this many chunks. Returns how many messages were examined, how many were changed, and in how many chunks.
async fn requeue<F: Fixture>(
    fixture: &F,
    selection: &Selection,
    fence: Fence,
    limit: usize,
    most: usize,
) -> (u64, u64, usize) {
    let mut chunk = Chunk::first(fence, limit);
    let (mut looked_at, mut changed, mut chunks) = (0, 0, 0);
    loop {
        let done = fixture.operate().requeue_next(selection, &chunk, &operator()).await.unwrap();
        looked_at += done.looked_at;
        changed += done.changed;
        chunks += 1;
        match done.next {
            Some(next) if chunks < most => chunk.after = Some(next),
            _ => return (looked_at, changed, chunks),
        }
    }
}
