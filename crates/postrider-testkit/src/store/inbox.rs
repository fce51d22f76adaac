//! A message that arrives again has no second effect (promise 3).

use super::helpers::*;
use crate::Fixture;
use Admission::{Duplicate, First};
use postrider_core::{
    Admission, Arrival, ConsumerName, Inbox, InboxExt, MessageId, Outbox, PruneRequest, Pruned, TenantId,
};
use std::{pin::pin, sync::Arc};
use tokio::{sync::Barrier, task::JoinSet};

fn consumer(name: &str) -> ConsumerName {
    ConsumerName::new(name).unwrap()
}

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

fn arrivals(count: usize) -> Vec<Arrival> {
    (0..count).map(|_| Arrival::new(fresh_id())).collect()
}

/// Admits in a transaction of its own and commits it.
async fn admit_all<F: Fixture>(fixture: &F, name: &str, arrivals: &[Arrival]) -> Vec<Admission> {
    let mut tx = fixture.begin().await;
    let admitted = fixture.inbox().admit_all(&mut tx, &consumer(name), arrivals).await.unwrap();
    fixture.commit(tx).await;
    assert_eq!(admitted.len(), arrivals.len(), "one answer for each");
    admitted
}

async fn admit<F: Fixture>(fixture: &F, name: &str, arrival: &Arrival) -> Admission {
    admit_all(fixture, name, std::slice::from_ref(arrival)).await[0]
}

/// Promise 3: what has been admitted is new once, in this transaction and in every later one, whatever its identity looks like.
pub async fn what_was_admitted_is_a_duplicate<F: Fixture>(fixture: F) {
    let foreign = "ffffffff-ffff-4fff-bfff-ffffffffffff".parse::<MessageId>().unwrap();
    for arrival in [Arrival::new(fresh_id()), Arrival::new(foreign)] {
        let mut tx = fixture.begin().await;
        let inbox = fixture.inbox();
        let billing = consumer("billing");
        assert!(inbox.admit(&mut tx, &billing, arrival.clone()).await.unwrap().is_first());
        assert!(!inbox.admit(&mut tx, &billing, arrival.clone()).await.unwrap().is_first());
        fixture.commit(tx).await;
        for _ in 0..2 {
            assert_eq!(admit(&fixture, "billing", &arrival).await, Duplicate);
        }
    }
}

/// Promise 3: a message whose handler failed leaves no mark, and is new when it comes again.
pub async fn a_rolled_back_admission_leaves_no_mark<F: Fixture>(fixture: F) {
    let batch = arrivals(3);
    for _ in 0..2 {
        let mut tx = fixture.begin().await;
        let admitted = fixture.inbox().admit_all(&mut tx, &consumer("billing"), &batch).await.unwrap();
        assert_eq!(admitted, [First; 3]);
        fixture.rollback(tx).await;
    }
    assert_eq!(admit_all(&fixture, "billing", &batch).await, [First; 3]);
}

/// Promise 3: a savepoint takes with it what was admitted after it, and nothing else.
pub async fn a_rolled_back_savepoint_takes_its_marks_along<F: Fixture>(fixture: F) {
    let (inbox, billing) = (fixture.inbox(), consumer("billing"));
    let batch = arrivals(3);
    let mut tx = fixture.begin().await;
    assert_eq!(inbox.admit_all(&mut tx, &billing, &batch[..1]).await.unwrap(), [First]);
    fixture.savepoint(&mut tx).await;
    assert_eq!(inbox.admit_all(&mut tx, &billing, &batch).await.unwrap(), [Duplicate, First, First]);
    fixture.rollback_to_savepoint(&mut tx).await;
    assert_eq!(inbox.admit_all(&mut tx, &billing, &batch[..2]).await.unwrap(), [Duplicate, First]);
    fixture.commit(tx).await;

    assert_eq!(admit_all(&fixture, "billing", &batch).await, [Duplicate, Duplicate, First]);
}

/// Promise 3: a duplicate is an answer and no error: the transaction goes on.
pub async fn a_duplicate_leaves_the_transaction_whole<F: Fixture>(fixture: F) {
    let batch = arrivals(2);
    assert_eq!(admit(&fixture, "billing", &batch[0]).await, First);
    let mut tx = fixture.begin().await;
    let admitted = fixture.inbox().admit_all(&mut tx, &consumer("billing"), &batch).await.unwrap();
    assert_eq!(admitted, [Duplicate, First]);
    fixture.outbox().stage_all(&mut tx, &numbered("orders", 2)).await.unwrap();
    fixture.commit(tx).await;

    assert_eq!(drain(&fixture.store(), "orders").await.len(), 2);
    assert_eq!(admit_all(&fixture, "billing", &batch).await, [Duplicate; 2]);
}

/// Promise 3: each consumer has its own effect.
pub async fn consumers_do_not_see_each_others_marks<F: Fixture>(fixture: F) {
    let arrival = Arrival::new(fresh_id());
    for name in ["billing", "shipping", "Billing"] {
        assert_eq!(admit(&fixture, name, &arrival).await, First, "{name}");
        assert_eq!(admit(&fixture, name, &arrival).await, Duplicate, "{name}");
    }
}

/// Promise 3: the same identity of two tenants, or of none, is as many messages, in one batch as in several.
pub async fn tenants_do_not_see_each_others_marks<F: Fixture>(fixture: F) {
    let id = fresh_id();
    let of = |name: &str| Arrival::new(id).of_tenant(tenant(name));
    let nobodys = Arrival::new(id);
    assert_eq!(admit(&fixture, "billing", &of("acme")).await, First);
    let batch = [of("globex"), nobodys, of("acme"), of("Acme"), of("größer \"{}\", NULL 🚚")];

    assert_eq!(admit_all(&fixture, "billing", &batch).await, [First, First, Duplicate, First, First]);
    assert_eq!(admit_all(&fixture, "billing", &batch).await, [Duplicate; 5]);
}

/// Promise 3: what is there twice in one batch is a duplicate the second time, and all are if it was known before.
pub async fn a_message_that_is_twice_in_a_batch_is_a_duplicate_the_second_time<F: Fixture>(fixture: F) {
    let [a, b, c] = [(); 3].map(|()| Arrival::new(fresh_id()));
    assert_eq!(admit(&fixture, "billing", &b).await, First);
    let batch = [c.clone(), a.clone(), b.clone(), a.clone(), b, c, a];

    let expected = [First, First, Duplicate, Duplicate, Duplicate, Duplicate, Duplicate];
    assert_eq!(admit_all(&fixture, "billing", &batch).await, expected);
}

/// Promise 3: a batch of any size is answered in its own order.
pub async fn five_thousand_messages_are_answered_in_their_order<F: Fixture>(fixture: F) {
    let mut batch: Vec<Arrival> = (0..5_000)
        .map(|number| match number % 4 {
            0 => Arrival::new(fresh_id()).of_tenant(tenant(&format!("tenant-{}", number % 7))),
            _ => Arrival::new(fresh_id()),
        })
        .collect();
    // Not in the order in which they were made.
    batch.reverse();
    batch.swap(0, 2_500);
    let known: Vec<_> = batch.iter().step_by(3).cloned().collect();
    assert_eq!(admit_all(&fixture, "billing", &known).await, vec![First; known.len()]);
    batch.push(batch[1].clone());

    let expected: Vec<_> =
        (0..=5_000).map(|n| if n % 3 == 0 || n == 5_000 { Duplicate } else { First }).collect();
    assert_eq!(admit_all(&fixture, "billing", &batch).await, expected);
    assert_eq!(admit_all(&fixture, "billing", &batch).await, vec![Duplicate; 5_001]);
}

/// Promise 3: an empty batch answers with nothing and leaves the transaction as it was.
pub async fn an_empty_batch_admits_nothing<F: Fixture>(fixture: F) {
    let mut tx = fixture.begin().await;
    assert_eq!(fixture.inbox().admit_all(&mut tx, &consumer("billing"), &[]).await.unwrap(), []);
    fixture.outbox().stage_all(&mut tx, &numbered("orders", 1)).await.unwrap();
    fixture.commit(tx).await;

    assert_eq!(drain(&fixture.store(), "orders").await.len(), 1);
}

/// Promises 1 and 3: the mark and what the handler stages are there together or not at all.
pub async fn the_mark_and_what_is_staged_commit_together<F: Fixture>(fixture: F) {
    let arrival = Arrival::new(fresh_id());
    for commits in [false, true] {
        let mut tx = fixture.begin().await;
        let admitted = fixture.inbox().admit(&mut tx, &consumer("billing"), arrival.clone()).await.unwrap();
        assert_eq!(admitted, First);
        fixture.outbox().stage_all(&mut tx, &numbered("invoices", 1)).await.unwrap();
        if commits {
            fixture.commit(tx).await;
        } else {
            fixture.rollback(tx).await;
        }
        assert_eq!(drain(&fixture.store(), "invoices").await.len(), usize::from(commits));
    }
    assert_eq!(admit(&fixture, "billing", &arrival).await, Duplicate);
}

/// Promise 3: of two that admit the same at one moment, the second waits: it is the duplicate if the first commits, and the first if
/// that one does not. Those who come after them wait for nobody.
pub async fn who_admits_the_same_waits_for_the_first<F: Fixture>(fixture: F) {
    let (inbox, billing) = (fixture.inbox(), consumer("billing"));
    let store = fixture.store();
    for commits in [true, false] {
        let batch = arrivals(3);
        let mut first = fixture.begin().await;
        assert_eq!(inbox.admit_all(&mut first, &billing, &batch[..2]).await.unwrap(), [First; 2]);
        let mut second = fixture.begin().await;
        {
            let mut waiting = pin!(inbox.admit_all(&mut second, &billing, &batch[1..]));
            // Whoever does not wait has answered long before the store has answered this often.
            for _ in 0..200 {
                tokio::select! {
                    biased;
                    early = &mut waiting => panic!("the second was answered early: {early:?}"),
                    alive = store.ping() => alive.unwrap(),
                }
            }
            if commits {
                fixture.commit(first).await;
            } else {
                fixture.rollback(first).await;
            }
            let expected = if commits { Duplicate } else { First };
            assert_eq!(waiting.await.unwrap(), [expected, First]);
        }
        fixture.commit(second).await;
        assert_eq!(admit(&fixture, "billing", &batch[1]).await, Duplicate);
    }
}

const ROUNDS: usize = 50;

/// Promise 3: batches with the same messages in other orders wait for each other one by one, and each message is new for one of them.
pub async fn batches_that_overlap_never_deadlock<F: Fixture>(fixture: F) {
    let fixture = Arc::new(fixture);
    let rounds: Arc<Vec<Vec<Arrival>>> = Arc::new((0..ROUNDS).map(|_| arrivals(20)).collect());
    let start = Arc::new(Barrier::new(3));
    let mut consumers = JoinSet::new();
    for number in 0..3 {
        let (fixture, rounds, start) = (Arc::clone(&fixture), Arc::clone(&rounds), Arc::clone(&start));
        consumers.spawn(async move {
            let mut new = Vec::new();
            for round in rounds.iter() {
                let mut batch = round.clone();
                match number {
                    0 => {}
                    1 => batch.reverse(),
                    _ => batch.rotate_left(10),
                }
                start.wait().await;
                let admitted = admit_all(&*fixture, "billing", &batch).await;
                let firsts = batch.into_iter().zip(admitted).filter(|(_, admitted)| admitted.is_first());
                new.extend(firsts.map(|(arrival, _)| arrival.id));
            }
            new
        });
    }
    let new = consumers.join_all().await.concat();

    assert_eq!(sorted(new), sorted(rounds.iter().flatten().map(|arrival| arrival.id)), "each was new once");
}

/// Decision "bounded work": marks go when they are old enough, in steps that are no longer than asked, and what is gone is new again.
pub async fn pruning_removes_what_is_older_in_bounded_steps<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let (old, young) = (arrivals(25), arrivals(5));
    admit_all(&fixture, "billing", &old).await;
    fixture.advance(minutes(60)).await;
    admit_all(&fixture, "billing", &young).await;
    let request = PruneRequest::new().with_inbox_older_than(minutes(30)).with_limit(10);

    let mut removed = Vec::new();
    loop {
        let pruned = store.prune(&request).await.unwrap();
        assert_eq!((pruned.archived, pruned.dead), (0, 0));
        removed.push(pruned.inbox);
        if !pruned.more {
            break;
        }
        assert!(removed.len() < 10, "pruning comes to an end: {removed:?}");
    }
    assert_eq!(removed, [10, 10, 5]);
    assert_eq!(admit_all(&fixture, "billing", &young).await, [Duplicate; 5]);
    assert_eq!(admit_all(&fixture, "billing", &old).await, [First; 25]);
}

/// Each consumer keeps its marks as long as it has to: one that forgets soon does not make another forget.
pub async fn pruning_for_one_consumer_leaves_the_marks_of_others<F: Fixture>(fixture: F) {
    let batch = arrivals(15);
    for name in ["archive", "billing", "shipping"] {
        admit_all(&fixture, name, &batch).await;
    }
    fixture.advance(minutes(60)).await;
    let request = PruneRequest::new().with_inbox_of(consumer("billing"), minutes(30)).with_limit(10);

    let store = fixture.store();
    let mut pruned = Vec::new();
    for _ in 0..3 {
        pruned.push(store.prune(&request).await.unwrap().inbox);
    }
    assert_eq!(pruned, [10, 5, 0]);
    assert_eq!(admit_all(&fixture, "archive", &batch).await, [Duplicate; 15]);
    assert_eq!(admit_all(&fixture, "billing", &batch).await, [First; 15]);
    assert_eq!(admit_all(&fixture, "shipping", &batch).await, [Duplicate; 15]);
    // And without a name, everybody's.
    fixture.advance(minutes(60)).await;
    let everybodys = PruneRequest::new().with_inbox_older_than(minutes(30));
    assert_eq!(store.prune(&everybodys).await.unwrap().inbox, 45);
}

/// Promise 3: marks stay for ever unless somebody asks otherwise.
pub async fn pruning_leaves_marks_alone_unless_asked<F: Fixture>(fixture: F) {
    let batch = arrivals(3);
    admit_all(&fixture, "billing", &batch).await;
    fixture.advance(minutes(1_000_000)).await;
    let request = PruneRequest::new().with_dead_older_than(minutes(1));

    assert_eq!(fixture.store().prune(&request).await.unwrap(), Pruned::default());
    assert_eq!(admit_all(&fixture, "billing", &batch).await, [Duplicate; 3]);
}
