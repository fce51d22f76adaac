//! The memory store passes all store suites; its peculiarities are tested in the module `special`.

#![cfg(feature = "memory")]
// A test fails by panicking.
#![allow(clippy::unwrap_used)]

#[path = "support/consuming.rs"]
mod consuming;

use async_trait::async_trait;
use postrider_core::{
    Arrival, Backend, ClaimRequest, ClaimedMessage, ConsumerName, Error, InboxExt, Limits, Message,
    MessageBuilder, MessageId, OnFailure, Outbox, OutboxExt, QueueName, QueuePolicy, StageOutcome, Store,
    TxBackend,
    audit::AuditChain,
    inspect::{Action, Inspect, ListRequest, Operate, StateFilter},
    notifier::{IdleWorker, Notifier},
    schema::Schema,
};
use postrider_stores::memory::{ManualClock, MemoryStore, MemoryTransaction};
use postrider_testkit::{Features, Fixture, TransactFixture, saga::SagaFixture};
use std::{
    future::{Ready, ready},
    pin::pin,
    sync::Arc,
    time::{Duration, SystemTime},
};
use uuid::Uuid;

struct MemoryFixture {
    store: MemoryStore,
}

fn memory() -> Ready<MemoryFixture> {
    ready(MemoryFixture { store: MemoryStore::new() })
}

#[async_trait]
impl Fixture for MemoryFixture {
    type Tx = MemoryTransaction;
    type Outbox = MemoryStore;
    type Inbox = MemoryStore;

    fn features(&self) -> Features {
        Features { concurrent_transactions: true }
    }

    fn store(&self) -> Arc<dyn Backend> {
        Arc::new(self.store.clone())
    }

    /// There is only one process: another handle to the same messages.
    async fn another_store(&self) -> Arc<dyn Backend> {
        Arc::new(self.store.clone())
    }

    fn outbox(&self) -> MemoryStore {
        self.store.clone()
    }

    fn inbox(&self) -> MemoryStore {
        self.store.clone()
    }

    async fn begin(&self) -> MemoryTransaction {
        self.store.begin()
    }

    async fn commit(&self, tx: MemoryTransaction) {
        tx.commit();
    }

    async fn rollback(&self, tx: MemoryTransaction) {
        tx.rollback();
    }

    async fn savepoint(&self, tx: &mut MemoryTransaction) {
        tx.savepoint();
    }

    async fn rollback_to_savepoint(&self, tx: &mut MemoryTransaction) {
        tx.rollback_to_savepoint();
    }

    async fn advance(&self, by: Duration) {
        self.store.advance(by);
    }

    async fn break_dead_letters(&self, broken: bool) {
        self.store.break_dead_letters(broken);
    }
}

impl SagaFixture for MemoryFixture {
    type Sagas = MemoryStore;

    fn sagas(&self) -> MemoryStore {
        self.store.clone()
    }

    fn chain(&self) -> Arc<dyn AuditChain> {
        Arc::new(self.store.ledger())
    }
}

impl TransactFixture for MemoryFixture {
    type Transactions = MemoryStore;

    fn transactions(&self) -> MemoryStore {
        self.store.clone()
    }
}

/// `docs/guides/own-store.md` names every trait of a store with its number of methods, and the suites that prove it.
#[test]
fn own_store_guide_lists_every_trait_and_suite() {
    let guide = include_str!("../../../docs/guides/own-store.md");
    for line in include_str!("memory.rs").lines().filter(|line| line.starts_with("postrider_testkit::")) {
        assert!(guide.contains(line), "the guide does not have {line}");
    }
    let core = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../postrider-core/src");
    for (name, file) in [
        ("Store", "store.rs"),
        ("Notifier", "notifier.rs"),
        ("Listener", "notifier.rs"),
        ("Inspect", "inspect.rs"),
        ("Operate", "inspect/operate.rs"),
        ("Schema", "schema.rs"),
        ("TxBackend", "tx_backend.rs"),
        ("AuditSink", "audit/mod.rs"),
        ("AuditChain", "audit/chain.rs"),
    ] {
        let source = std::fs::read_to_string(core.join(file)).unwrap();
        let (_, body) = source.split_once(&format!("pub trait {name}:")).unwrap();
        let (body, _) = body.split_once("\n}\n").unwrap();
        let methods = body
            .lines()
            .filter(|line| line.starts_with("    fn ") || line.starts_with("    async fn "))
            .count();
        let row = guide.lines().find(|line| line.starts_with(&format!("| `{name}` | {methods} |")));
        assert!(row.is_some_and(|row| row.contains(file)), "{name} has {methods} methods, in {file}");
    }
}

postrider_testkit::store_suite!(memory);
postrider_testkit::worker_suite!(memory);
postrider_testkit::relay_suite!(memory);
postrider_testkit::consumer_suite!(receiving);
postrider_testkit::saga_suite!(memory);

async fn receiving() -> consuming::OnMemoryQueue<MemoryFixture> {
    consuming::OnMemoryQueue::new(memory().await)
}

mod special {
    use super::*;

    #[tokio::test]
    async fn manual_clock_moves_only_when_advanced() {
        let began = SystemTime::UNIX_EPOCH + minutes(1);
        let clock = ManualClock::at(began);
        let (orders, letters) =
            (MemoryStore::with_clock(clock.clone()), MemoryStore::with_clock(clock.clone()));
        assert_eq!((orders.now(), orders.now()), (began, began));
        stage(&orders, message("a").due_after(minutes(5))).await;
        stage(&letters, message("b").due_after(minutes(5))).await;
        clock.advance(minutes(4));
        assert_eq!(payloads(&claim(&orders, 10).await), [""; 0]);

        letters.advance(minutes(1));
        assert_eq!((clock.now(), orders.now()), (began + minutes(5), began + minutes(5)));
        assert_eq!(payloads(&claim(&orders, 10).await), ["a"]);
        assert_eq!(payloads(&claim(&letters, 10).await), ["b"]);
    }

    #[tokio::test]
    async fn store_time_follows_the_wall_clock_by_default() {
        let store = MemoryStore::new();
        let ahead = store.now().duration_since(SystemTime::now()).unwrap_or_default();
        assert!(ahead < Duration::from_secs(1));

        store.advance(minutes(60));
        let ahead = store.now().duration_since(SystemTime::now()).unwrap();
        assert!(ahead.abs_diff(minutes(60)) < Duration::from_secs(1));
    }

    #[tokio::test]
    async fn dropped_transaction_is_rolled_back() {
        let store = MemoryStore::new();
        let mut tx = store.begin();
        store.stage(&mut tx, message("a")).await.unwrap();
        drop(tx);

        assert_eq!(claim(&store, 10).await, []);
        assert_eq!(store.counts().await.unwrap().len(), 0, "not even the queue was created");
    }

    #[tokio::test]
    async fn transaction_of_another_store_is_refused() {
        let (store, other) = (MemoryStore::new(), MemoryStore::new());
        let mut tx = other.begin();
        let Err(Error::Invalid(invalid)) = store.stage(&mut tx, message("a")).await else {
            panic!("a transaction of another store is refused")
        };
        assert_eq!(invalid.field(), "transaction");
        assert!(store.cancel_timer(&mut tx, &queue(), &"reminder".parse().unwrap()).await.is_err());
        assert!(store.admit(&mut tx, &billing(), arrival()).await.is_err());
        assert!(!cancel(&other, &mut tx, "reminder").await);
        tx.commit();
        assert_eq!(other.counts().await.unwrap().len(), 0, "cancelling an unknown timer creates no queue");
    }

    #[tokio::test]
    async fn deadlock_of_two_admitting_transactions_fails_the_second() {
        let (store, billing) = (MemoryStore::new(), billing());
        let (one, two) = (arrival(), arrival());
        let (mut early, mut late) = (store.begin(), store.begin());
        assert!(store.admit(&mut early, &billing, one.clone()).await.unwrap().is_first());
        assert!(store.admit(&mut late, &billing, two.clone()).await.unwrap().is_first());
        {
            // A dropped future does not wait any more.
            let mut dropped = pin!(store.admit(&mut late, &billing, one.clone()));
            assert_waits(&mut dropped).await;
        }
        let mut waiting = pin!(store.admit(&mut early, &billing, two));
        assert_waits(&mut waiting).await;
        let result = store.admit(&mut late, &billing, one).await;
        assert!(matches!(result, Err(Error::Unavailable(_))), "{result:?}");
        late.rollback();
        assert!(waiting.await.unwrap().is_first());
    }

    async fn assert_waits<F: Future<Output: std::fmt::Debug> + Unpin>(future: &mut F) {
        tokio::select! {
            biased;
            result = future => panic!("it does not wait: {result:?}"),
            () = ready(()) => {}
        }
    }

    #[tokio::test]
    async fn failed_commit_releases_its_locks() {
        let store = MemoryStore::new();
        stage(&store, message("handled")).await;
        stage(&store, message("due").timer("reminder")).await;
        let claimed = claim(&store, 1).await;
        let arrival = arrival();
        let mut tx = store.begin();
        assert!(store.settle_in(&mut tx, &claimed[0].lease.done()).await.unwrap());
        assert!(store.admit(&mut tx, &billing(), arrival.clone()).await.unwrap().is_first());
        assert!(cancel(&store, &mut tx, "reminder").await);
        store.advance(minutes(60));
        assert_eq!(payloads(&claim(&store, 10).await), ["handled"]);
        assert!(TxBackend::commit(&store, tx).await.is_err());

        let mut tx = store.begin();
        assert!(store.admit(&mut tx, &billing(), arrival).await.unwrap().is_first());
        assert!(cancel(&store, &mut tx, "reminder").await);
    }

    fn billing() -> ConsumerName {
        ConsumerName::new("billing").unwrap()
    }

    fn arrival() -> Arrival {
        Arrival::new(MessageId::at(SystemTime::now()))
    }

    #[tokio::test]
    async fn size_limits_belong_to_the_handle() {
        let store = MemoryStore::new();
        let strict = store.clone().with_limits(Limits::default().with_payload_bytes(3));
        let mut tx = store.begin();
        assert!(strict.stage(&mut tx, message("four")).await.is_err());
        assert!(store.stage(&mut tx, message("four")).await.is_ok());
    }

    #[tokio::test]
    async fn first_commit_wins_for_the_same_id() {
        let store = MemoryStore::new();
        let id = MessageId::at(SystemTime::now());
        let (mut early, mut late) = (store.begin(), store.begin());
        store.stage(&mut early, message("early").id(id)).await.unwrap();
        store.stage(&mut late, message("late").id(id)).await.unwrap();
        late.commit();
        early.commit();

        assert_eq!(payloads(&claim(&store, 10).await), ["late"]);
    }

    #[tokio::test]
    async fn second_commit_extends_the_timer_of_the_first() {
        let store = MemoryStore::new();
        let (mut first, mut second, mut third) = (store.begin(), store.begin(), store.begin());
        let extending = |payload, due| message(payload).due_after(minutes(due)).extending_timer("reminder");
        store.stage(&mut first, extending("first", 10)).await.unwrap();
        store.stage(&mut second, extending("second", 20)).await.unwrap();
        store.stage(&mut third, message("third").due_after(minutes(30)).timer("reminder")).await.unwrap();
        first.commit();
        second.commit();
        third.commit();
        store.advance(minutes(15));
        assert_eq!(claim(&store, 10).await, []);

        store.advance(minutes(20));
        assert_eq!(payloads(&claim(&store, 10).await), ["second"]);
    }

    #[tokio::test]
    async fn claim_skips_timer_locked_by_open_transaction() {
        let store = MemoryStore::new();
        for name in ["cancelled", "extended", "spared"] {
            stage(&store, message(name).due_after(minutes(10)).timer(name)).await;
        }
        let mut tx = store.begin();
        assert!(cancel(&store, &mut tx, "cancelled").await);
        let longer = message("extended").due_after(minutes(30)).extending_timer("extended");
        assert_eq!(
            store.stage(&mut tx, &longer.build().unwrap()).await.unwrap().outcomes()[0].1,
            StageOutcome::Extended
        );
        store.advance(minutes(10));
        let spared = claim(&store, 10).await;
        assert_eq!(payloads(&spared), ["spared"]);
        assert_eq!(store.settle(&[spared[0].lease.done()]).await.unwrap(), []);

        let mut other = store.begin();
        assert!(!cancel(&store, &mut other, "cancelled").await, "the first transaction has locked it");
        assert!(!cancel(&store, &mut other, "extended").await);
        let again = message("again").due_after(minutes(60)).extending_timer("extended");
        assert_eq!(store.stage(&mut other, again).await.unwrap().outcomes()[0].1, StageOutcome::Ignored);
        tx.commit();
        assert_eq!(claim(&store, 10).await, []);
        store.advance(minutes(20));
        assert_eq!(payloads(&claim(&store, 10).await), ["extended"]);
    }

    #[tokio::test]
    async fn due_timer_that_was_not_claimed_can_be_extended() {
        let store = MemoryStore::new();
        let extending = |payload, due| message(payload).due_after(minutes(due)).extending_timer("reminder");
        stage(&store, message("first").due_after(minutes(5))).await;
        stage(&store, extending("due", 6)).await;
        store.advance(minutes(10));
        let first = claim(&store, 1).await;
        assert_eq!(payloads(&first), ["first"]);
        assert_eq!(store.settle(&[first[0].lease.done()]).await.unwrap(), []);
        stage(&store, extending("extended", 5)).await;
        assert_eq!(claim(&store, 10).await, []);

        store.advance(minutes(5));
        assert_eq!(payloads(&claim(&store, 10).await), ["extended"]);
    }

    #[tokio::test]
    async fn rolled_back_cancellation_unlocks_its_timer() {
        let store = MemoryStore::new();
        for name in ["before", "after"] {
            stage(&store, message(name).timer(name)).await;
        }
        let mut tx = store.begin();
        assert!(cancel(&store, &mut tx, "before").await);
        tx.savepoint();
        assert!(cancel(&store, &mut tx, "after").await);
        tx.rollback_to_savepoint();
        assert_eq!(payloads(&claim(&store, 10).await), ["after"]);
        assert_eq!(
            payloads(&claim(&store, 10).await),
            [""; 0],
            "the timer cancelled before the savepoint is still locked"
        );

        tx.rollback();
        assert_eq!(payloads(&claim(&store, 10).await), ["before"]);
    }

    #[tokio::test]
    async fn rollback_to_missing_savepoint_undoes_everything() {
        let store = MemoryStore::new();
        let mut tx = store.begin();
        store.stage(&mut tx, message("undone")).await.unwrap();
        tx.rollback_to_savepoint();
        store.stage(&mut tx, message("kept")).await.unwrap();
        tx.commit();

        assert_eq!(payloads(&claim(&store, 10).await), ["kept"]);
    }

    #[tokio::test]
    async fn claim_gives_the_rest_of_the_limit_to_the_first_lanes() {
        let store = MemoryStore::new();
        store.declare(&queue(), &QueuePolicy::by_key(OnFailure::Block)).await.unwrap();
        for payload in ["a1", "a2", "a3", "b1", "b2", "c1"] {
            stage(&store, message(payload).key(&payload[..1])).await;
        }
        let first = claim(&store, 4).await;
        assert_eq!(payloads(&first), ["a1", "a2", "b1", "c1"]);
        assert_eq!(
            first.iter().map(|each| each.lease.turn().unwrap().last).collect::<Vec<_>>(),
            [false, true, true, true]
        );
    }

    #[tokio::test]
    async fn cancellation_committed_during_a_turn_keeps_the_turn() {
        let store = MemoryStore::new();
        store.declare(&queue(), &QueuePolicy::by_key(OnFailure::Block)).await.unwrap();
        for number in 1..=3 {
            let due = message(number.to_string()).key("k").due_after(minutes(number));
            stage(&store, due.timer(number.to_string())).await;
        }
        store.advance(minutes(3));
        let turn = claim(&store, 1).await;
        assert_eq!(store.settle(&[turn[0].lease.done()]).await.unwrap(), []);
        let mut tx = store.begin();
        assert!(cancel(&store, &mut tx, "3").await);
        let turn = claim(&store, 10).await;
        assert_eq!(payloads(&turn), ["2"], "the turn ends before the locked message");
        tx.commit();

        assert_eq!(store.renew(&[turn[0].lease.clone()], minutes(1)).await.unwrap(), []);
        assert_eq!(store.settle(&[turn[0].lease.done()]).await.unwrap(), []);
        assert_eq!(claim(&store, 10).await, []);
    }

    #[tokio::test]
    async fn message_without_key_is_listed_and_released_by_its_id() {
        let store = MemoryStore::new();
        store.declare(&queue(), &QueuePolicy::by_key(OnFailure::Park)).await.unwrap();
        for payload in ["a", "b"] {
            stage(&store, message(payload)).await;
        }
        let claimed = claim(&store, 10).await;
        assert_eq!(payloads(&claimed), ["a", "b"]);
        assert_eq!(store.settle(&[claimed[0].lease.retry(minutes(1), "busy")]).await.unwrap(), []);
        let blocked = store.blocked_keys(&queue(), 10).await.unwrap().remove(0);
        assert_eq!(blocked.key.as_str(), claimed[0].id().to_string());
        let request = ListRequest::new(queue(), StateFilter::Ready).with_key(blocked.key.clone());
        assert_eq!(store.list(&request).await.unwrap().entries.len(), 1);

        assert!(store.release_key(&queue(), &blocked.key, &Action::new("ada", "fixed")).await.unwrap());
        let again = claim(&store, 10).await;
        assert_eq!(payloads(&again), ["a"]);
        assert_eq!(again[0].message.key(), None);
    }

    #[tokio::test]
    async fn release_keeps_the_count_of_expired_leases() {
        let store = MemoryStore::new();
        store.declare(&queue(), &QueuePolicy::by_key(OnFailure::Block)).await.unwrap();
        for payload in ["a", "b"] {
            stage(&store, message(payload).key("k")).await;
        }
        assert_eq!(claim(&store, 10).await.len(), 2);
        store.advance(minutes(2));
        for _ in 0..2 {
            let head = claim(&store, 10).await;
            assert_eq!((payloads(&head), head[0].deliveries), (vec!["a".to_owned()], 2));
            assert_eq!(store.settle(&[head[0].lease.release()]).await.unwrap(), []);
        }
    }

    #[tokio::test]
    async fn claim_takes_turns_between_keys_and_other_queues() {
        let store = MemoryStore::new();
        let by_key: QueueName = "by-key".parse().unwrap();
        store.declare(&by_key, &QueuePolicy::by_key(OnFailure::Block)).await.unwrap();
        for number in 0..6 {
            stage(&store, Message::builder("by-key").key("k").payload(format!("k{number}"))).await;
            stage(&store, message(format!("u{number}"))).await;
        }
        let both = ClaimRequest::of([queue(), by_key], 2);
        let claimed = store.claim(&both).await.unwrap();
        assert_eq!(payloads(&claimed), ["k0", "u0"]);
        store.settle(&claimed.iter().map(|each| each.lease.done()).collect::<Vec<_>>()).await.unwrap();

        assert_eq!(
            payloads(&store.claim(&both).await.unwrap()),
            ["u1", "u2"],
            "the key went to the tail of the ring"
        );
    }

    #[tokio::test]
    async fn listener_that_missed_notifications_gets_at_least_one() {
        let store = MemoryStore::new();
        store
            .register_idle(&IdleWorker { worker: Uuid::now_v7(), queues: vec![queue()] }, minutes(1))
            .await
            .unwrap();
        let mut listener = store.listen(&[queue()]).await.unwrap();
        for _ in 0..5_000 {
            stage(&store, message("a")).await;
        }
        assert_eq!(listener.wait().await.unwrap(), queue());
    }

    #[tokio::test]
    async fn debug_output_shows_no_message() {
        let store = MemoryStore::new();
        let mut tx = store.begin();
        store.stage(&mut tx, message("secret")).await.unwrap();
        assert!(!format!("{tx:?}").contains("secret"));
        tx.commit();
        assert!(!format!("{store:?}").contains("secret"));
    }

    #[tokio::test]
    async fn extreme_durations_are_capped() {
        let store = MemoryStore::new();
        store.declare(&queue(), &QueuePolicy::default().with_keep_for(Duration::MAX)).await.unwrap();
        stage(&store, message("a")).await;
        stage(&store, message("b")).await;
        let claimed = claim(&store, 10).await;
        let settlements = [claimed[0].lease.retry(Duration::MAX, "never"), claimed[1].lease.done()];
        assert_eq!(store.settle(&settlements).await.unwrap(), []);

        for state in [StateFilter::Scheduled, StateFilter::Done] {
            assert_eq!(store.list(&ListRequest::new(queue(), state)).await.unwrap().entries.len(), 1);
        }
        store.advance(Duration::MAX);
        assert_eq!(payloads(&claim(&store, 10).await), ["a"]);
    }

    fn minutes(count: u64) -> Duration {
        Duration::from_secs(60 * count)
    }

    fn queue() -> QueueName {
        "orders".parse().unwrap()
    }

    fn message(payload: impl Into<String>) -> MessageBuilder {
        Message::builder("orders").payload(payload.into())
    }

    async fn stage(store: &MemoryStore, message: MessageBuilder) {
        let mut tx = store.begin();
        store.stage(&mut tx, message).await.unwrap();
        tx.commit();
    }

    async fn cancel(store: &MemoryStore, tx: &mut MemoryTransaction, timer: &str) -> bool {
        store.cancel_timer(tx, &queue(), &timer.parse().unwrap()).await.unwrap()
    }

    async fn claim(store: &MemoryStore, limit: usize) -> Vec<ClaimedMessage> {
        store.claim(&ClaimRequest::new(queue(), limit)).await.unwrap()
    }

    fn payloads(claimed: &[ClaimedMessage]) -> Vec<String> {
        claimed.iter().map(|each| String::from_utf8(each.message.payload().to_vec()).unwrap()).collect()
    }
}
