//! Claimers do not miss messages of transactions that stage first and commit last (promise 2).
//!
//! A store with serial transactions has no late commits: its suite does not list these cases. Negative controls run one of them on
//! every store; it ends at once there.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{MessageId, OnFailure, Outbox, OutboxExt, QueuePolicy, StageOutcome};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};
use tokio::task::{JoinSet, yield_now};

/// A transaction stages; others that began later commit and are claimed; then it commits: its message is delivered.
pub async fn a_transaction_that_commits_last_is_not_missed<F: Fixture>(fixture: F) {
    if !fixture.features().concurrent_transactions {
        return;
    }
    declare(&fixture, "orders", QueuePolicy::default()).await;
    let store = fixture.store();
    let mut late = fixture.begin().await;
    let missed = fixture.outbox().stage(&mut late, message("orders")).await.unwrap().id().unwrap();
    for _ in 0..5 {
        let staged = stage(&fixture, &numbered("orders", 20)).await;
        assert_eq!(drain(&store, "orders").await, staged);
    }
    fixture.commit(late).await;

    assert_eq!(drain(&store, "orders").await, [missed]);
}

/// Several transactions commit in the reverse of the order in which they staged, and one rolls back.
pub async fn transactions_that_commit_in_reverse_are_not_missed<F: Fixture>(fixture: F) {
    if !fixture.features().concurrent_transactions {
        return;
    }
    declare(&fixture, "orders", QueuePolicy::default()).await;
    let store = fixture.store();
    let mut open = Vec::new();
    for _ in 0..5 {
        let mut tx = fixture.begin().await;
        let staged = fixture.outbox().stage_all(&mut tx, &numbered("orders", 3)).await.unwrap();
        open.push((tx, staged.outcomes().iter().map(|(id, _)| *id).collect::<Vec<_>>()));
    }
    fixture.rollback(open.remove(2).0).await;
    while let Some((tx, staged)) = open.pop() {
        assert_nothing_due(&store, "orders").await;
        fixture.commit(tx).await;
        assert_eq!(drain(&store, "orders").await, staged);
    }
    assert_empty(&fixture, "orders").await;
}

/// On an ordered queue, a message that commits after its successor was delivered is late, but not lost.
pub async fn a_late_commit_on_an_ordered_queue_is_not_missed<F: Fixture>(fixture: F) {
    if !fixture.features().concurrent_transactions {
        return;
    }
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let store = fixture.store();
    let mut late = fixture.begin().await;
    let staged = fixture.outbox().stage(&mut late, message("orders").key("key")).await.unwrap();
    let second = stage_one(&fixture, message("orders").key("key")).await;
    let third = stage_one(&fixture, message("orders").key("key")).await;
    let turn = claim(&store, "orders", 1).await;
    assert_eq!(ids(&turn), [second]);
    fixture.commit(late).await;
    assert_nothing_due(&store, "orders").await;
    done(&store, &turn).await;

    assert_eq!(sorted(drain(&store, "orders").await), sorted([staged.id().unwrap(), third]));
    assert_empty(&fixture, "orders").await;
}

/// Of two concurrent transactions that stage the same identity, one succeeds; if it rolls back, the other does.
pub async fn one_identity_in_two_open_transactions_is_one_message<F: Fixture>(fixture: F) {
    if !fixture.features().concurrent_transactions {
        return;
    }
    declare(&fixture, "orders", QueuePolicy::default()).await;
    let fixture = Arc::new(fixture);
    for first_commits in [true, false] {
        let id = fresh_id();
        let mut first = fixture.begin().await;
        let staged = message("orders").id(id).payload("first");
        assert_eq!(
            fixture.outbox().stage(&mut first, staged).await.unwrap().outcomes(),
            [(id, StageOutcome::New)]
        );
        let second = tokio::spawn({
            let fixture = Arc::clone(&fixture);
            async move { stage_again(&*fixture, message("orders").id(id).payload("second")).await }
        });
        if first_commits {
            fixture.commit(first).await;
        } else {
            fixture.rollback(first).await;
        }
        // The second may have waited for the first, or ended before it: only the delivery is certain.
        assert_eq!(second.await.unwrap().0, id);

        let claimed = claim_all(&fixture.store(), "orders").await;
        assert_eq!(claimed.len(), 1, "one message, not two");
        assert!(first_commits || payloads(&claimed) == ["second"], "what was rolled back does not count");
        done(&fixture.store(), &claimed).await;
    }
}

const PRODUCERS: usize = 8;
const MESSAGES: usize = 250;

/// Eight producers commit their transactions out of order, roll back a tenth of them, and use savepoints in some, while two
/// claimers drain: exactly the committed messages are delivered, once each.
pub async fn producers_that_commit_out_of_order_lose_nothing<F: Fixture>(fixture: F) {
    lose_nothing(fixture, QueuePolicy::default()).await;
}

/// The same on a queue that is fair to tenants: each producer is a tenant, and all of them stage for two other tenants.
pub async fn producers_of_many_tenants_that_commit_out_of_order_lose_nothing<F: Fixture>(fixture: F) {
    lose_nothing(fixture, QueuePolicy::default().fair_by_tenant()).await;
}

async fn lose_nothing<F: Fixture>(fixture: F, policy: QueuePolicy) {
    if !fixture.features().concurrent_transactions {
        return;
    }
    declare(&fixture, "orders", policy).await;
    let run = Arc::new(LateCommitRun {
        fixture,
        active: AtomicUsize::new(PRODUCERS),
        holding: AtomicUsize::new(0),
        claimed: AtomicUsize::new(0),
        committed: Mutex::default(),
        produced: AtomicBool::new(false),
    });
    let mut claimers = JoinSet::new();
    for _ in 0..2 {
        let store = run.fixture.another_store().await;
        claimers.spawn(consume(Arc::clone(&run), store));
    }
    let mut producers = JoinSet::new();
    for number in 0..PRODUCERS {
        producers.spawn(produce(Arc::clone(&run), number));
    }
    producers.join_all().await;
    run.produced.store(true, SeqCst);
    let delivered = claimers.join_all().await.concat();

    let committed = run.committed.lock().unwrap().clone();
    assert!(committed.len() > PRODUCERS * MESSAGES / 2);
    assert_eq!(sorted(delivered), sorted(committed), "exactly what was committed, once each");
    assert_empty(&run.fixture, "orders").await;
}

struct LateCommitRun<F> {
    fixture: F,
    /// The number of producers that have messages left to stage, and of those with an open transaction.
    active: AtomicUsize,
    holding: AtomicUsize,
    claimed: AtomicUsize,
    committed: Mutex<Vec<MessageId>>,
    produced: AtomicBool,
}

async fn produce<F: Fixture>(run: Arc<LateCommitRun<F>>, number: usize) {
    let mut rng = StdRng::seed_from_u64(number as u64);
    let own = format!("tenant-{number}");
    let tenants = [own.as_str(), "everybody's", "another"];
    let (fixture, outbox) = (&run.fixture, run.fixture.outbox());
    let mut left = MESSAGES;
    while left > 0 {
        let size = rng.random_range(1..=5).min(left);
        left -= size;
        let mut tx = fixture.begin().await;
        let mut staged = Vec::new();
        let messages: Vec<_> = (0..size)
            .map(|each| message("orders").tenant(tenants[each % tenants.len()]).build().unwrap())
            .collect();
        for part in messages.chunks(2) {
            let with_savepoint = rng.random_bool(0.2);
            if with_savepoint {
                fixture.savepoint(&mut tx).await;
            }
            let outcomes = outbox.stage_all(&mut tx, part).await.unwrap();
            if with_savepoint && rng.random_bool(0.5) {
                fixture.rollback_to_savepoint(&mut tx).await;
            } else {
                staged.extend(outcomes.outcomes().iter().map(|(id, _)| *id));
            }
        }
        if rng.random_bool(0.3) {
            run.hold().await;
        }
        if rng.random_bool(0.1) {
            fixture.rollback(tx).await;
        } else {
            fixture.commit(tx).await;
            run.committed.lock().unwrap().extend(staged);
        }
    }
    run.active.fetch_sub(1, SeqCst);
}

impl<F> LateCommitRun<F> {
    /// Keeps a transaction open until others have committed and been claimed, unless half of the producers already do.
    async fn hold(&self) {
        let enough = self.claimed.load(SeqCst) + 20;
        self.holding.fetch_add(1, SeqCst);
        while self.claimed.load(SeqCst) < enough && self.holding.load(SeqCst) * 2 <= self.active.load(SeqCst)
        {
            yield_now().await;
        }
        self.holding.fetch_sub(1, SeqCst);
    }
}

/// Claims until all messages are staged and none is left.
async fn consume<F: Fixture>(run: Arc<LateCommitRun<F>>, store: Handle) -> Vec<MessageId> {
    let mut mine = Vec::new();
    loop {
        let is_last_look = run.produced.load(SeqCst);
        let claimed = claim(&store, "orders", 50).await;
        if claimed.is_empty() && is_last_look {
            return mine;
        }
        done(&store, &claimed).await;
        run.claimed.fetch_add(claimed.len(), SeqCst);
        mine.extend(ids(&claimed));
        yield_now().await;
    }
}
