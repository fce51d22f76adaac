//! Operator actions: requeue, discard, release; each writes exactly one audit row (promise 2).

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    Error, MessageId, OnFailure, QueuePolicy, Reason, StageOutcome, State,
    inspect::{Action, AuditRow, StateFilter},
};

/// A requeued dead letter can be claimed at once, under its own identity, with its counters at zero.
pub async fn a_requeued_dead_letter_has_no_attempts<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let id = stage_one(&fixture, message("orders").payload("again")).await;
    let claimed = claim_one(&store, "orders").await;
    settle(&store, &[claimed.lease.retry(std::time::Duration::ZERO, "busy")]).await;
    dead_letter_one(&store, "orders").await;
    assert_eq!(requeue(&fixture, &[id]).await, [id]);

    assert_eq!(list(&fixture, "orders", StateFilter::Dead).await, []);
    let entry = entry_in(&fixture, "orders", id, State::Pending).await;
    assert_eq!((entry.deliveries, entry.attempts, entry.reason, entry.error), (0, 0, None, None));
    let claimed = claim_one(&store, "orders").await;
    assert_eq!((claimed.id(), claimed.deliveries, claimed.attempts), (id, 1, 0));
    assert_eq!(claimed.message.payload().as_ref(), b"again");
    done(&store, &[claimed]).await;
    assert_empty(&fixture, "orders").await;
}

/// A requeued dead letter can become a dead letter again.
pub async fn a_requeued_dead_letter_can_die_again<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let id = stage_one(&fixture, message("orders")).await;
    for _ in 0..3 {
        assert_eq!(dead_letter_one(&store, "orders").await, id);
        assert_eq!(ids_of(&list(&fixture, "orders", StateFilter::Dead).await), [id]);
        assert_eq!(requeue(&fixture, &[id]).await, [id]);
    }
    assert_eq!(drain(&store, "orders").await, [id]);
}

/// Requeue changes dead letters only, and skips every other message.
pub async fn requeue_touches_dead_letters_only<F: Fixture>(fixture: F) {
    let [pending, leased, waiting, dead, kept] = one_in_each_state(&fixture).await;
    let asked = [pending, leased, waiting, dead, kept, fresh_id(), dead];
    assert_eq!(requeue(&fixture, &asked).await, [dead]);
    assert_eq!(requeue(&fixture, &asked).await, [], "it is no dead letter any more");

    entry_in(&fixture, "orders", pending, State::Pending).await;
    entry_in(&fixture, "orders", dead, State::Pending).await;
    let leased = entry_in(&fixture, "orders", leased, State::Leased).await;
    assert_eq!(leased.deliveries, 1);
    let waiting = entry_in(&fixture, "orders", waiting, State::Scheduled).await;
    assert_eq!((waiting.attempts, waiting.error.as_deref()), (1, Some("busy")));
    entry_in(&fixture, "orders", kept, State::Done).await;
    assert_eq!(fixture.operate().requeue(&queue("nobody"), &asked, &operator()).await.unwrap(), []);
}

/// Many dead letters can be requeued in one call.
pub async fn many_dead_letters_can_be_requeued_at_once<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let staged = stage(&fixture, &numbered("orders", 1_000)).await;
    let claimed = claim_all(&store, "orders").await;
    settle(&store, &claimed.iter().map(|each| each.lease.dead(Reason::Rejected, "no")).collect::<Vec<_>>())
        .await;
    assert_eq!(sorted(requeue(&fixture, &staged).await), sorted(staged.clone()));

    assert_eq!(sorted(drain(&store, "orders").await), sorted(staged));
}

/// Messages that are not leased can be discarded in every state; a leased message is skipped and delivered.
pub async fn discard_removes_only_messages_that_are_not_leased<F: Fixture>(fixture: F) {
    let [pending, leased, waiting, dead, kept] = one_in_each_state(&fixture).await;
    let timer = stage_one(&fixture, message("orders").due_after(minutes(60)).timer("reminder")).await;
    let asked = [pending, leased, waiting, dead, kept, timer, fresh_id(), pending];
    assert_eq!(sorted(discard(&fixture, &asked).await), sorted([pending, waiting, dead, kept, timer]));
    assert_eq!(discard(&fixture, &asked).await, [], "they are gone");

    assert_nothing_due(&fixture.store(), "orders").await;
    assert_eq!(ids_of(&list(&fixture, "orders", StateFilter::Ready).await), [leased]);
    for filter in [StateFilter::Scheduled, StateFilter::Dead, StateFilter::Done] {
        assert_eq!(list(&fixture, "orders", filter).await, []);
    }
    entry_in(&fixture, "orders", leased, State::Leased).await;
    fixture.advance(minutes(120)).await;
    assert_eq!(drain(&fixture.store(), "orders").await, [leased]);
}

/// Discarding a message frees its identity and the name of its timer.
pub async fn discard_frees_identities_and_timer_names<F: Fixture>(fixture: F) {
    let reminder = message("orders").id(fresh_id()).due_after(minutes(60)).timer("reminder").build().unwrap();
    let id = stage_one(&fixture, &reminder).await;
    assert_eq!(discard(&fixture, &[id]).await, [id]);

    assert_eq!(stage_again(&fixture, &reminder).await, (id, StageOutcome::New));
}

/// Promise 2: every action writes exactly one audit row: actor, reason, action, queue and messages, newest first.
pub async fn every_action_leaves_one_audit_row<F: Fixture>(fixture: F) {
    let operate = fixture.operate();
    declare(&fixture, "letters", QueuePolicy::by_key(OnFailure::Park)).await;
    let [pending, leased, _, dead, _] = one_in_each_state(&fixture).await;
    stage_one(&fixture, message("letters").key("key")).await;
    let turn = claim_one(&fixture.store(), "letters").await;
    settle(&fixture.store(), &[turn.lease.retry(minutes(5), "busy")]).await;
    assert_eq!(operate.audit(10).await.unwrap(), []);

    let action = |number| Action::new(format!("ada-{number}"), format!("ticket {number}"));
    operate.requeue(&queue("orders"), &[dead, leased], &action(1)).await.unwrap();
    operate.discard(&queue("orders"), &[pending, dead, leased], &action(2)).await.unwrap();
    assert!(operate.release_key(&queue("letters"), &key("key"), &action(3)).await.unwrap());

    let rows = operate.audit(10).await.unwrap();
    let reported: Vec<_> = rows
        .iter()
        .map(|row| (row.action.clone(), row.verb.as_str(), row.queue.as_ref().unwrap().as_str()))
        .collect();
    let expected = [
        (action(3), "release_key", "letters"),
        (action(2), "discard", "orders"),
        (action(1), "requeue", "orders"),
    ];
    assert_eq!(reported, expected);
    assert_eq!(rows[0].key, Some(key("key")));
    assert_eq!((&rows[1].key, &rows[2].key), (&None, &None));
    assert_eq!(
        sorted(rows[1].ids.clone()),
        sorted([pending, dead]),
        "those that it touched, not those asked for"
    );
    assert_eq!(rows[2].ids, [dead]);
    assert!(rows.is_sorted_by(|newer, older: &AuditRow| newer.at >= older.at));
    assert_eq!(operate.audit(2).await.unwrap(), rows[..2]);
}

/// Promise 2: an action without an actor or a reason is rejected.
pub async fn an_action_needs_an_actor_and_a_reason<F: Fixture>(fixture: F) {
    let operate = fixture.operate();
    declare(&fixture, "letters", QueuePolicy::by_key(OnFailure::Park)).await;
    let [pending, _, _, dead, _] = one_in_each_state(&fixture).await;
    stage_one(&fixture, message("letters").key("key")).await;
    let turn = claim_one(&fixture.store(), "letters").await;
    settle(&fixture.store(), &[turn.lease.retry(minutes(5), "busy")]).await;
    for (action, field) in [(Action::new("", "ticket 17"), "actor"), (Action::new("ada", ""), "why")] {
        let refusals = [
            operate.requeue(&queue("orders"), &[dead], &action).await.err(),
            operate.discard(&queue("orders"), &[pending], &action).await.err(),
            operate.release_key(&queue("letters"), &key("key"), &action).await.err(),
        ];
        for refusal in refusals {
            let Some(Error::Invalid(invalid)) = refusal else { panic!("refused: {refusal:?}") };
            assert_eq!(invalid.field(), field);
        }
    }

    entry_in(&fixture, "orders", pending, State::Pending).await;
    entry_in(&fixture, "orders", dead, State::Dead).await;
    assert_nothing_due(&fixture.store(), "letters").await;
    assert_eq!(operate.audit(10).await.unwrap(), []);
}

/// One message in each state: pending, leased, scheduled, dead, and done and archived.
async fn one_in_each_state<F: Fixture>(fixture: &F) -> [MessageId; 5] {
    declare(fixture, "orders", QueuePolicy::default().with_keep_for(minutes(600))).await;
    let store = fixture.store();
    let staged = stage(fixture, &numbered("orders", 4)).await;
    let claimed = claim_all(&store, "orders").await;
    assert_eq!(ids(&claimed), staged);
    let endings = [
        claimed[1].lease.retry(minutes(60), "busy"),
        claimed[2].lease.dead(Reason::Rejected, "refused"),
        claimed[3].lease.done(),
    ];
    settle(&store, &endings).await;
    let pending = stage_one(fixture, message("orders")).await;
    [pending, staged[0], staged[1], staged[2], staged[3]]
}

async fn requeue<F: Fixture>(fixture: &F, asked: &[MessageId]) -> Vec<MessageId> {
    fixture.operate().requeue(&queue("orders"), asked, &operator()).await.unwrap()
}

async fn discard<F: Fixture>(fixture: &F, asked: &[MessageId]) -> Vec<MessageId> {
    fixture.operate().discard(&queue("orders"), asked, &operator()).await.unwrap()
}
