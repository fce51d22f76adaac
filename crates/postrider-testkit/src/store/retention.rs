//! What success leaves is kept for as long as the queue says, and removed in bounded steps (decision "what success leaves").

use super::helpers::*;
use crate::Fixture;
use postrider_core::{PruneRequest, Pruned, QueuePolicy, State, inspect::Room};
use std::time::Duration;

/// A store may remove whole days at once, so what has expired may stay until the day is over.
const DAY: Duration = minutes(24 * 60);

/// A queue that keeps what it delivered has it in the archive, and in no other room.
pub async fn a_kept_message_is_in_the_archive<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::default().with_keep_for(minutes(60))).await;
    let store = fixture.store();
    let id = stage_one(&fixture, message("orders").payload("kept")).await;
    let claimed = claim_one(&store, "orders").await;
    settle(&store, &[claimed.lease.retry(Duration::ZERO, "busy")]).await;
    assert_eq!(drain(&store, "orders").await, [id]);

    let archive = list(&fixture, "orders", Room::Archive).await;
    assert_eq!(ids_of(&archive), [id]);
    assert_eq!(archive[0].message.payload().as_ref(), b"kept");
    assert_eq!((archive[0].state, archive[0].deliveries, archive[0].attempts), (State::Done, 2, 1));
    assert_eq!(archive[0].reason, None);
    for room in [Room::Ready, Room::Later, Room::Dead] {
        assert_eq!(list(&fixture, "orders", room).await, []);
    }
    assert_nothing_due(&store, "orders").await;
}

/// The archive is pruned when its time is over, and not before.
pub async fn the_archive_is_pruned_when_its_time_is_over<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::default().with_keep_for(minutes(60))).await;
    declare(&fixture, "letters", QueuePolicy::default().with_keep_for(10 * DAY)).await;
    let store = fixture.store();
    for name in ["orders", "letters"] {
        stage(&fixture, &numbered(name, 3)).await;
        assert_eq!(drain(&store, name).await.len(), 3);
    }
    fixture.advance(minutes(50)).await;
    assert_eq!(store.prune(&PruneRequest::new()).await.unwrap(), Pruned::default());
    fixture.advance(2 * DAY).await;
    let pruned = store.prune(&PruneRequest::new()).await.unwrap();

    assert_eq!(pruned, Pruned { archived: 3, ..Pruned::default() });
    assert_empty(&fixture, "orders").await;
    assert_eq!(list(&fixture, "letters", Room::Archive).await.len(), 3, "each queue keeps for its own time");
}

/// Decision "bounded work": pruning works in steps that are no longer than asked, and says when there is more.
pub async fn pruning_works_in_bounded_steps<F: Fixture>(fixture: F) {
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

/// Promise 6: dead letters go only when asked, and only those that are old enough.
pub async fn dead_letters_are_pruned_only_when_asked_and_old_enough<F: Fixture>(fixture: F) {
    let store = fixture.store();
    stage_one(&fixture, message("orders")).await;
    kill_one(&store, "orders").await;
    fixture.advance(minutes(60)).await;
    stage_one(&fixture, message("orders")).await;
    let young = kill_one(&store, "orders").await;
    assert_eq!(store.prune(&PruneRequest::new()).await.unwrap(), Pruned::default());

    let request = PruneRequest::new().with_dead_older_than(minutes(30));
    assert_eq!(store.prune(&request).await.unwrap(), Pruned { dead: 1, ..Pruned::default() });
    assert_eq!(ids_of(&list(&fixture, "orders", Room::Dead).await), [young]);
}

/// Promise 2: pruning never touches what is still to be delivered, however old it is.
pub async fn pruning_leaves_what_is_alive<F: Fixture>(fixture: F) {
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

    assert_eq!(store.prune(&request).await.unwrap(), Pruned::default());
    for id in [retried.id(), leased.id(), pending, timer] {
        assert!(get(&fixture, "orders", id).await.is_some());
    }
}
