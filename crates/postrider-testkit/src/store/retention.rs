//! Delivered messages are archived for as long as the queue says, and pruned in bounded steps (decision "what success leaves").

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    Arrival, ConsumerName, Inbox, PruneReport, PruneRequest, QueuePolicy, State,
    inspect::{Prunable, StateFilter},
};
use std::time::Duration;

/// A store may prune whole days at once, so expired messages may stay until the day is over.
const DAY: Duration = minutes(24 * 60);

/// A delivered message of a queue with an archive is in the archive, and in no other state.
pub async fn a_done_message_is_archived<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::default().with_keep_for(minutes(60))).await;
    let store = fixture.store();
    let id = stage_one(&fixture, message("orders").payload("kept")).await;
    let claimed = claim_one(&store, "orders").await;
    settle(&store, &[claimed.lease.retry(Duration::ZERO, "busy")]).await;
    assert_eq!(drain(&store, "orders").await, [id]);

    let archive = list(&fixture, "orders", StateFilter::Done).await;
    assert_eq!(ids_of(&archive), [id]);
    assert_eq!(archive[0].message.payload().as_ref(), b"kept");
    assert_eq!((archive[0].state, archive[0].deliveries, archive[0].attempts), (State::Done, 2, 1));
    assert_eq!(archive[0].reason, None);
    for filter in [StateFilter::Ready, StateFilter::Scheduled, StateFilter::Dead] {
        assert_eq!(list(&fixture, "orders", filter).await, []);
    }
    assert_nothing_due(&store, "orders").await;
}

/// Archived messages are pruned after their retention, and not before.
pub async fn archived_messages_are_pruned_after_their_retention<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::default().with_keep_for(minutes(60))).await;
    declare(&fixture, "letters", QueuePolicy::default().with_keep_for(10 * DAY)).await;
    let store = fixture.store();
    for name in ["orders", "letters"] {
        stage(&fixture, &numbered(name, 3)).await;
        assert_eq!(drain(&store, name).await.len(), 3);
    }
    fixture.advance(minutes(50)).await;
    assert_eq!(store.prune(&PruneRequest::new()).await.unwrap(), PruneReport::default());
    fixture.advance(2 * DAY).await;
    let pruned = store.prune(&PruneRequest::new()).await.unwrap();

    assert_eq!(pruned, PruneReport { archived: 3, ..PruneReport::default() });
    assert_empty(&fixture, "orders").await;
    assert_eq!(
        list(&fixture, "letters", StateFilter::Done).await.len(),
        3,
        "each queue keeps for its own time"
    );
}

/// Prunable rows are counted before they are pruned, and counting removes nothing.
pub async fn prunable_rows_are_counted_before_pruning<F: Fixture>(fixture: F) {
    let (store, inspect) = (fixture.store(), fixture.inspect());
    declare(&fixture, "orders", QueuePolicy::default().with_keep_for(minutes(60))).await;
    stage(&fixture, &numbered("orders", 3)).await;
    assert_eq!(drain(&store, "orders").await.len(), 3);
    for _ in 0..2 {
        stage_one(&fixture, message("orders")).await;
        dead_letter_one(&store, "orders").await;
    }
    let mut tx = fixture.begin().await;
    let consumer = ConsumerName::new("billing").unwrap();
    fixture.inbox().admit_all(&mut tx, &consumer, &[Arrival::new(fresh_id())]).await.unwrap();
    fixture.commit(tx).await;
    let all = PruneRequest::new().with_dead_older_than(minutes(60)).with_inbox_older_than(minutes(60));
    assert_eq!(inspect.prunable(&all, Some(minutes(60))).await.unwrap(), Prunable::default());

    fixture.advance(2 * DAY).await;
    let reported = inspect.prunable(&all, Some(minutes(60))).await.unwrap();
    assert_eq!(reported, Prunable { archived: 3, dead: 2, inbox: 1, audit: 0 });
    assert_eq!(inspect.prunable(&all, None).await.unwrap(), reported);
    let archive = inspect.prunable(&PruneRequest::new(), None).await.unwrap();
    assert_eq!(archive, Prunable { archived: 3, ..Prunable::default() });
    let others = PruneRequest::new().with_inbox_of(ConsumerName::new("shipping").unwrap(), minutes(60));
    assert_eq!(inspect.prunable(&others, None).await.unwrap().inbox, 0);
    let pruned = store.prune(&all).await.unwrap();
    assert_eq!(
        (pruned.archived, pruned.dead, pruned.inbox),
        (reported.archived, reported.dead, reported.inbox)
    );
    assert_eq!(inspect.prunable(&all, None).await.unwrap(), Prunable::default());
}

/// Old audit rows are pruned in bounded steps, and the pruning is audited.
pub async fn pruning_the_audit_log_is_audited<F: Fixture>(fixture: F) {
    let operate = fixture.operate();
    for _ in 0..5 {
        let id = stage_one(&fixture, message("orders")).await;
        operate.discard(&queue("orders"), &[id], &operator()).await.unwrap();
    }
    let before = operate.clock().await.unwrap();
    assert_eq!(operate.prune_audit(minutes(60), 10, &operator()).await.unwrap(), 0);
    assert_eq!(operate.prunable(&PruneRequest::new(), Some(Duration::ZERO)).await.unwrap().audit, 5);
    assert_eq!(operate.prune_audit(Duration::ZERO, 3, &operator()).await.unwrap(), 3);
    let rows = operate.audit(10).await.unwrap();
    assert_eq!(
        rows.iter().map(|row| row.verb.as_str()).collect::<Vec<_>>(),
        ["prune_audit", "discard", "discard"]
    );
    assert_eq!((&rows[0].queue, &rows[0].action), (&None, &operator()));
    assert!(rows[0].at >= before);
}

/// Decision "bounded work": pruning works in steps of at most the given size, and reports whether there is more.
pub async fn prune_works_in_bounded_steps<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::default().with_keep_for(minutes(60))).await;
    let store = fixture.store();
    stage(&fixture, &numbered("orders", 25)).await;
    assert_eq!(drain(&store, "orders").await.len(), 25);
    fixture.advance(2 * DAY).await;

    let mut removed = Vec::new();
    loop {
        let pruned = store.prune(&PruneRequest::new().with_limit(10)).await.unwrap();
        removed.push(pruned.archived);
        if !pruned.more {
            break;
        }
        assert!(removed.len() < 10, "pruning comes to an end: {removed:?}");
    }
    assert!(removed.iter().all(|step| *step <= 10), "no step is longer than asked: {removed:?}");
    assert_eq!(removed.iter().sum::<u64>(), 25);
    assert_empty(&fixture, "orders").await;
}

/// Promise 6: dead letters are pruned only when requested, and only if they are old enough.
pub async fn dead_letters_are_pruned_only_when_requested_and_old_enough<F: Fixture>(fixture: F) {
    let store = fixture.store();
    stage_one(&fixture, message("orders")).await;
    dead_letter_one(&store, "orders").await;
    fixture.advance(minutes(60)).await;
    stage_one(&fixture, message("orders")).await;
    let young = dead_letter_one(&store, "orders").await;
    assert_eq!(store.prune(&PruneRequest::new()).await.unwrap(), PruneReport::default());

    let request = PruneRequest::new().with_dead_older_than(minutes(30));
    assert_eq!(store.prune(&request).await.unwrap(), PruneReport { dead: 1, ..PruneReport::default() });
    assert_eq!(ids_of(&list(&fixture, "orders", StateFilter::Dead).await), [young]);
}

/// Promise 2: pruning never removes an undelivered message, however old it is.
pub async fn prune_keeps_live_messages<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::default().with_keep_for(minutes(1))).await;
    let store = fixture.store();
    stage_one(&fixture, message("orders")).await;
    let retried = claim_one(&store, "orders").await;
    settle(&store, &[retried.lease.retry(minutes(100_000), "busy")]).await;
    stage_one(&fixture, message("orders")).await;
    let leased = claim_one(&store, "orders").await;
    let pending = stage_one(&fixture, message("orders")).await;
    let timer = stage_one(&fixture, message("orders").due_after(minutes(100_000))).await;
    fixture.advance(minutes(10_000)).await;
    let request = PruneRequest::new().with_dead_older_than(minutes(1));

    assert_eq!(store.prune(&request).await.unwrap(), PruneReport::default());
    for id in [retried.id(), leased.id(), pending, timer] {
        assert!(get(&fixture, "orders", id).await.is_some());
    }
}
