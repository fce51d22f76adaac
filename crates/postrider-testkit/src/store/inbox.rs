//! A redelivered message has no second effect (promise 3).

use super::helpers::*;
use crate::Fixture;
use Admission::{Duplicate, First};
use postrider_core::{
    Admission, Arrival, ConsumerName, Inbox, InboxExt, MessageId, Outbox, PruneReport, PruneRequest, TenantId,
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

/// Admits in one transaction and commits it.
async fn admit_all<F: Fixture>(fixture: &F, name: &str, arrivals: &[Arrival]) -> Vec<Admission> {
    let mut tx = fixture.begin().await;
    let admitted = fixture.inbox().admit_all(&mut tx, &consumer(name), arrivals).await.unwrap();
    fixture.commit(tx).await;
    assert_eq!(admitted.len(), arrivals.len(), "one result for each");
    admitted
}

async fn admit<F: Fixture>(fixture: &F, name: &str, arrival: &Arrival) -> Admission {
    admit_all(fixture, name, std::slice::from_ref(arrival)).await[0]
}

/// Promise 3: an admitted message is new once, in this transaction and in every later one, whatever the form of its identity.
pub async fn an_admitted_message_is_a_duplicate<F: Fixture>(fixture: F) {
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

/// Promise 3: a message whose handler failed leaves no deduplication record, and is new when it is redelivered.
pub async fn a_rolled_back_admission_leaves_no_deduplication_record<F: Fixture>(fixture: F) {
    let batch = arrivals(3);
    for _ in 0..2 {
        let mut tx = fixture.begin().await;
        let admitted = fixture.inbox().admit_all(&mut tx, &consumer("billing"), &batch).await.unwrap();
        assert_eq!(admitted, [First; 3]);
        fixture.rollback(tx).await;
    }
    assert_eq!(admit_all(&fixture, "billing", &batch).await, [First; 3]);
}

/// Promise 3: rolling back to a savepoint removes the records written after it, and nothing else.
pub async fn a_rolled_back_savepoint_removes_its_deduplication_records<F: Fixture>(fixture: F) {
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

/// Promise 3: a duplicate is a result and not an error: the transaction stays usable.
pub async fn a_duplicate_leaves_the_transaction_usable<F: Fixture>(fixture: F) {
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
pub async fn consumers_have_separate_deduplication_records<F: Fixture>(fixture: F) {
    let arrival = Arrival::new(fresh_id());
    for name in ["billing", "shipping", "Billing"] {
        assert_eq!(admit(&fixture, name, &arrival).await, First, "{name}");
        assert_eq!(admit(&fixture, name, &arrival).await, Duplicate, "{name}");
    }
}

/// Promise 3: the same identity of two tenants and of none is three messages, in one batch as in several.
pub async fn tenants_have_separate_deduplication_records<F: Fixture>(fixture: F) {
    let id = fresh_id();
    let of = |name: &str| Arrival::new(id).of_tenant(tenant(name));
    let nobodys = Arrival::new(id);
    assert_eq!(admit(&fixture, "billing", &of("acme")).await, First);
    let batch = [of("globex"), nobodys, of("acme"), of("Acme"), of("größer \"{}\", NULL 🚚")];

    assert_eq!(admit_all(&fixture, "billing", &batch).await, [First, First, Duplicate, First, First]);
    assert_eq!(admit_all(&fixture, "billing", &batch).await, [Duplicate; 5]);
}

/// Promise 3: a message that is twice in one batch is a duplicate the second time, and both times if it was known before.
pub async fn a_repeated_message_in_a_batch_is_a_duplicate<F: Fixture>(fixture: F) {
    let [a, b, c] = [(); 3].map(|()| Arrival::new(fresh_id()));
    assert_eq!(admit(&fixture, "billing", &b).await, First);
    let batch = [c.clone(), a.clone(), b.clone(), a.clone(), b, c, a];

    let expected = [First, First, Duplicate, Duplicate, Duplicate, Duplicate, Duplicate];
    assert_eq!(admit_all(&fixture, "billing", &batch).await, expected);
}

/// Promise 3: the results of a batch of any size are in the order of the batch.
pub async fn admissions_of_5000_messages_are_in_batch_order<F: Fixture>(fixture: F) {
    let mut batch: Vec<Arrival> = (0..5_000)
        .map(|number| match number % 4 {
            0 => Arrival::new(fresh_id()).of_tenant(tenant(&format!("tenant-{}", number % 7))),
            _ => Arrival::new(fresh_id()),
        })
        .collect();
    // Not in the order of their creation.
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

/// Promise 3: an empty batch returns no results and leaves the transaction as it was.
pub async fn an_empty_batch_admits_nothing<F: Fixture>(fixture: F) {
    let mut tx = fixture.begin().await;
    assert_eq!(fixture.inbox().admit_all(&mut tx, &consumer("billing"), &[]).await.unwrap(), []);
    fixture.outbox().stage_all(&mut tx, &numbered("orders", 1)).await.unwrap();
    fixture.commit(tx).await;

    assert_eq!(drain(&fixture.store(), "orders").await.len(), 1);
}

/// Promises 1 and 3: the deduplication record and the messages that the handler stages commit together or not at all.
pub async fn deduplication_record_and_staged_messages_commit_together<F: Fixture>(fixture: F) {
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

/// Promise 3: of two concurrent admissions of one message, the second waits: it is the duplicate if the first commits, and the
/// first if that one rolls back. Later admissions do not wait.
pub async fn a_concurrent_admission_of_the_same_message_waits_for_the_first<F: Fixture>(fixture: F) {
    let (inbox, billing) = (fixture.inbox(), consumer("billing"));
    let store = fixture.store();
    for commits in [true, false] {
        let batch = arrivals(3);
        let mut first = fixture.begin().await;
        assert_eq!(inbox.admit_all(&mut first, &billing, &batch[..2]).await.unwrap(), [First; 2]);
        let mut second = fixture.begin().await;
        {
            let mut waiting = pin!(inbox.admit_all(&mut second, &billing, &batch[1..]));
            // An admission that does not wait would return long before the store has replied this often.
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

/// Promise 3: batches with the same messages in different orders wait for each other without a deadlock, and each message is new in
/// one of them.
pub async fn overlapping_batches_never_deadlock<F: Fixture>(fixture: F) {
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

/// Decision "bounded work": deduplication records are pruned when they are old enough, in steps of at most the given size, and a
/// pruned message is new again.
pub async fn prune_removes_old_deduplication_records_in_bounded_steps<F: Fixture>(fixture: F) {
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

/// Each consumer has its own retention: pruning for one does not remove the records of another.
pub async fn prune_for_one_consumer_keeps_the_records_of_others<F: Fixture>(fixture: F) {
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
    // Without a name, records of every consumer.
    fixture.advance(minutes(60)).await;
    let everybodys = PruneRequest::new().with_inbox_older_than(minutes(30));
    assert_eq!(store.prune(&everybodys).await.unwrap().inbox, 45);
}

/// Promise 3: deduplication records are kept permanently by default.
pub async fn prune_keeps_deduplication_records_by_default<F: Fixture>(fixture: F) {
    let batch = arrivals(3);
    admit_all(&fixture, "billing", &batch).await;
    fixture.advance(minutes(1_000_000)).await;
    let request = PruneRequest::new().with_dead_older_than(minutes(1));

    assert_eq!(fixture.store().prune(&request).await.unwrap(), PruneReport::default());
    assert_eq!(admit_all(&fixture, "billing", &batch).await, [Duplicate; 3]);
}
