//! Settlements that stage: a message is done in its queue and staged in others, in one step.

use super::{helpers::*, notifications::IdleListener};
use crate::Fixture;
use postrider_core::{Message, OnFailure, QueueName, QueuePolicy, State};

fn copies(claimed: &postrider_core::ClaimedMessage, queues: &[&str]) -> Vec<Message> {
    queues.iter().map(|name| claimed.message.redirected(QueueName::new(*name).unwrap())).collect()
}

/// The message leaves its queue and is pending in the others, unchanged, under its identity, with counters at zero.
pub async fn a_forwarded_message_is_done_in_its_queue_and_pending_in_the_target<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let order = message("orders").event_type("order.placed").key("k").tenant("acme").header("color", "blue");
    let id = stage_one(&fixture, order).await;
    let claimed = claim_one(&store, "orders").await;
    settle(&store, &[claimed.lease.forward(copies(&claimed, &["billing", "mail"]))]).await;
    assert_empty(&fixture, "orders").await;
    for name in ["billing", "mail"] {
        let copy = claim_one(&store, name).await;
        assert_eq!(copy.message, claimed.message.redirected(queue(name)), "everything but the queue");
        assert_eq!((copy.id(), copy.attempts, copy.deliveries), (id, 0, 1));
    }
}

/// A lost claim stages nothing, and is reported as lost.
pub async fn a_stale_forward_stages_nothing<F: Fixture>(fixture: F) {
    let store = fixture.store();
    stage(&fixture, &numbered("orders", 2)).await;
    let stale = claim(&store, "orders", 1).await.remove(0);
    expire_leases(&fixture).await;
    let current = claim_all(&store, "orders").await;
    let batch: Vec<_> = [&stale]
        .into_iter()
        .chain(&current)
        .map(|each| each.lease.forward(copies(each, &["billing"])))
        .collect();
    assert_lost(&store.settle(&batch).await.unwrap(), [&stale.lease]);
    assert_eq!(sorted(ids(&claim_all(&store, "billing").await)), sorted(ids(&current)), "each once");
}

/// An identity that the target queue knows is not staged again.
pub async fn a_repeated_forward_is_a_duplicate<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let id = fresh_id();
    stage_one(&fixture, message("billing").id(id)).await;
    stage_one(&fixture, message("orders").id(id)).await;
    let claimed = claim_one(&store, "orders").await;
    settle(&store, &[claimed.lease.forward(copies(&claimed, &["billing"]))]).await;
    assert_empty(&fixture, "orders").await;
    assert_eq!(ids(&claim_all(&store, "billing").await), [id]);
}

/// In a batch of several kinds of settlements, each has its own effect.
pub async fn a_mixed_batch_forwards_the_selected_messages<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let staged = stage(&fixture, &numbered("orders", 4)).await;
    let claimed = claim_all(&store, "orders").await;
    let batch = [
        claimed[0].lease.done(),
        claimed[1].lease.forward(copies(&claimed[1], &["billing"])),
        claimed[2].lease.retry(minutes(5), "busy"),
        claimed[3].lease.release(),
    ];
    settle(&store, &batch).await;
    assert_eq!(ids(&claim_all(&store, "billing").await), [staged[1]]);
    assert_eq!(get(&fixture, "orders", staged[0]).await, None);
    entry_in(&fixture, "orders", staged[2], State::Scheduled).await;
    entry_in(&fixture, "orders", staged[3], State::Pending).await;
}

/// From one ordered queue to another, the messages of a key keep their order.
pub async fn a_forwarded_key_keeps_its_order<F: Fixture>(fixture: F) {
    let store = fixture.store();
    for name in ["orders", "billing"] {
        declare(&fixture, name, QueuePolicy::by_key(OnFailure::Block)).await;
    }
    let staged = stage(&fixture, &numbered_of("orders", "k", 6)).await;
    for _ in 0..3 {
        let claimed = claim(&store, "orders", 2).await;
        let batch: Vec<_> =
            claimed.iter().map(|each| each.lease.forward(copies(each, &["billing"]))).collect();
        settle(&store, &batch).await;
    }
    assert_empty(&fixture, "orders").await;
    assert_eq!(ids(&claim_all(&store, "billing").await), staged);
}

/// A forwarded message wakes the idle workers of the target queue.
pub async fn a_forwarded_message_wakes_its_queue<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let mut listener = IdleListener::of(&fixture, &["billing"]).await;
    stage(&fixture, &numbered("orders", 1)).await;
    let claimed = claim_one(&store, "orders").await;
    settle(&store, &[claimed.lease.forward(copies(&claimed, &["billing"]))]).await;
    assert_eq!(listener.notified_queues(&fixture).await, ["billing"]);
}
