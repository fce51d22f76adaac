//! A commit notifies idle workers, once per queue and transaction, and only of messages that can be claimed now (promise 8,
//! decision "wake-up").
//!
//! The absence of a notification is checked without waiting: after an action that must not notify, a message is staged in a queue
//! that always has an idle worker, and its notification must be the next one.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    Outbox, OutboxExt, Pausable, QueueName,
    notifier::{IdleWorker, Listener},
};
use std::time::{Duration, SystemTime};
use tokio::time::timeout;
use uuid::Uuid;

/// A commit wakes an idle worker, and so does the next.
pub async fn a_commit_wakes_an_idle_worker<F: Fixture>(fixture: F) {
    let mut listener = IdleListener::of(&fixture, &["orders"]).await;
    for _ in 0..3 {
        stage_one(&fixture, message("orders")).await;
        assert_eq!(listener.notified_queues(&fixture).await, ["orders"]);
    }
}

/// A worker that is notified of a resumed queue can claim at once.
pub async fn a_resumed_queue_wakes_its_idle_workers<F: Fixture>(fixture: F) {
    let (store, orders) = (fixture.store(), Pausable::Queue(queue("orders")));
    let id = stage_one(&fixture, message("orders")).await;
    fixture.operate().pause(&orders, &operator()).await.unwrap();
    let mut listener = IdleListener::of(&fixture, &["orders"]).await;
    loop {
        let claimed = claim(&store, "orders", 1).await;
        if claimed.is_empty() {
            break;
        }
        settle(&store, &[claimed[0].lease.release()]).await;
    }
    fixture.operate().resume(&orders, &operator()).await.unwrap();
    assert_eq!(listener.notified_queues(&fixture).await, ["orders"]);
    assert_eq!(ids(&claim(&store, "orders", 1).await), [id]);
}

/// No notification arrives before the commit.
pub async fn no_notification_before_the_commit<F: Fixture>(fixture: F) {
    let mut listener = IdleListener::of(&fixture, &["orders"]).await;
    let mut tx = fixture.begin().await;
    fixture.outbox().stage(&mut tx, message("orders")).await.unwrap();
    if fixture.features().concurrent_transactions {
        assert_eq!(listener.notified_queues(&fixture).await, [""; 0]);
    }
    fixture.commit(tx).await;
    assert_eq!(listener.notified_queues(&fixture).await, ["orders"]);
}

/// Any number of messages of one queue, in any number of calls, cause one notification per transaction.
pub async fn many_messages_of_one_transaction_are_one_notification<F: Fixture>(fixture: F) {
    let mut listener = IdleListener::of(&fixture, &["orders"]).await;
    let mut tx = fixture.begin().await;
    for batch in numbered("orders", 100).chunks(30) {
        fixture.outbox().stage_all(&mut tx, batch).await.unwrap();
    }
    fixture.commit(tx).await;

    assert_eq!(listener.notified_queues(&fixture).await, ["orders"]);
}

/// A transaction that stages in several queues notifies each of them once.
pub async fn every_queue_is_notified_once<F: Fixture>(fixture: F) {
    let names = ["invoices", "letters", "orders"];
    let mut listener = IdleListener::of(&fixture, &names).await;
    let messages: Vec<_> = (0..30).map(|number| message(names[number % 3]).build().unwrap()).collect();
    stage(&fixture, &messages).await;

    let mut notified = listener.notified_queues(&fixture).await;
    notified.sort_unstable();
    assert_eq!(notified, names);
}

/// A listener receives notifications of its queues, and of no others.
pub async fn a_listener_hears_its_own_queues_only<F: Fixture>(fixture: F) {
    let mut listener = IdleListener::of(&fixture, &["orders"]).await;
    listener.register_idle(&fixture, &["letters"], minutes(60)).await;
    stage_one(&fixture, message("letters")).await;
    assert_eq!(listener.notified_queues(&fixture).await, [""; 0]);
}

/// A message that is due later does not notify now; one that was due in the past does.
pub async fn a_scheduled_message_does_not_notify<F: Fixture>(fixture: F) {
    let mut listener = IdleListener::of(&fixture, &["orders"]).await;
    stage_one(&fixture, message("orders").due_after(minutes(5))).await;
    stage_one(&fixture, message("orders").due_at(SystemTime::now() + minutes(5))).await;
    stage_one(&fixture, message("orders").due_after(minutes(5)).timer("reminder")).await;
    assert_eq!(listener.notified_queues(&fixture).await, [""; 0]);
    stage_one(&fixture, message("orders").due_at(SystemTime::now() - minutes(5))).await;
    assert_eq!(listener.notified_queues(&fixture).await, ["orders"]);
}

/// A call that stages nothing new does not notify: a duplicate, an ignored timer, an empty batch.
pub async fn a_stage_without_new_messages_does_not_notify<F: Fixture>(fixture: F) {
    let known = message("orders").id(fresh_id()).build().unwrap();
    let timer = message("orders").timer("reminder").build().unwrap();
    stage(&fixture, &[known.clone(), timer.clone()]).await;
    let mut listener = IdleListener::of(&fixture, &["orders"]).await;
    assert_eq!(stage_all(&fixture, &[known]).await.new_messages(), 0);
    assert_eq!(stage_all(&fixture, &[timer]).await.new_messages(), 0);
    assert_eq!(stage_all(&fixture, &[]).await.new_messages(), 0);

    assert_eq!(listener.notified_queues(&fixture).await, [""; 0]);
}

/// Without an idle worker, no notification is sent.
pub async fn without_an_idle_worker_nothing_is_notified<F: Fixture>(fixture: F) {
    let mut listener = IdleListener::of(&fixture, &[]).await;
    listener.open_listener(&fixture, &["orders"]).await;
    listener.register_idle(&fixture, &["letters"], minutes(60)).await;
    stage_one(&fixture, message("orders")).await;

    assert_eq!(listener.notified_queues(&fixture).await, [""; 0]);
}

/// A deregistered worker is no longer notified; one that is still idle is.
pub async fn a_deregistered_worker_is_not_notified<F: Fixture>(fixture: F) {
    let mut listener = IdleListener::of(&fixture, &["orders"]).await;
    let another = listener.register_idle(&fixture, &["orders"], minutes(60)).await;
    fixture.wake().deregister_idle(&listener.idle).await.unwrap();
    stage_one(&fixture, message("orders")).await;
    assert_eq!(listener.notified_queues(&fixture).await, ["orders"], "another worker is still idle");

    fixture.wake().deregister_idle(&another).await.unwrap();
    stage_one(&fixture, message("orders")).await;
    assert_eq!(listener.notified_queues(&fixture).await, [""; 0]);
}

/// A registration expires by itself, unless it is renewed.
pub async fn an_expired_registration_is_not_notified<F: Fixture>(fixture: F) {
    let mut listener = IdleListener::of(&fixture, &[]).await;
    listener.open_listener(&fixture, &["orders"]).await;
    let idle = listener.register_idle(&fixture, &["orders"], minutes(5)).await;
    fixture.advance(minutes(3)).await;
    fixture.wake().register_idle(&idle, minutes(5)).await.unwrap();
    fixture.advance(minutes(3)).await;
    stage_one(&fixture, message("orders")).await;
    assert_eq!(listener.notified_queues(&fixture).await, ["orders"], "the registration was renewed");

    fixture.advance(minutes(3)).await;
    stage_one(&fixture, message("orders")).await;
    assert_eq!(listener.notified_queues(&fixture).await, [""; 0]);
}

/// A rolled-back transaction does not notify.
pub async fn a_rolled_back_transaction_does_not_notify<F: Fixture>(fixture: F) {
    let mut listener = IdleListener::of(&fixture, &["orders"]).await;
    let mut tx = fixture.begin().await;
    fixture.outbox().stage(&mut tx, message("orders")).await.unwrap();
    fixture.rollback(tx).await;

    assert_eq!(listener.notified_queues(&fixture).await, [""; 0]);
}

/// Rolling back to a savepoint discards its notification, and messages staged after it still notify.
pub async fn a_rolled_back_savepoint_does_not_lose_a_notification<F: Fixture>(fixture: F) {
    let mut listener = IdleListener::of(&fixture, &["orders"]).await;
    for staged_again in [false, true] {
        let mut tx = fixture.begin().await;
        fixture.savepoint(&mut tx).await;
        fixture.outbox().stage(&mut tx, message("orders")).await.unwrap();
        fixture.rollback_to_savepoint(&mut tx).await;
        if staged_again {
            fixture.outbox().stage(&mut tx, message("orders")).await.unwrap();
        }
        fixture.commit(tx).await;

        let expected: &[&str] = if staged_again { &["orders"] } else { &[] };
        assert_eq!(listener.notified_queues(&fixture).await, expected);
    }
}

/// A queue that always has an idle worker; its name sorts last among simultaneous notifications.
const MARKER: &str = "zzz";

/// An idle worker, and a listener for its queues and the marker.
pub(super) struct IdleListener {
    idle: IdleWorker,
    listener: Box<dyn Listener>,
}

impl IdleListener {
    /// Registers an idle worker for these queues, and opens a listener for them.
    pub(super) async fn of<F: Fixture>(fixture: &F, names: &[&str]) -> Self {
        let marker = IdleWorker { worker: Uuid::new_v4(), queues: queues(&[MARKER]) };
        fixture.wake().register_idle(&marker, minutes(600)).await.unwrap();
        let idle = IdleWorker { worker: Uuid::new_v4(), queues: queues(names) };
        fixture.wake().register_idle(&idle, minutes(600)).await.unwrap();
        let listener = fixture.wake().listen(&queues(&[names, &[MARKER]].concat())).await.unwrap();
        Self { idle, listener }
    }

    /// Registers another idle worker.
    async fn register_idle<F: Fixture>(&self, fixture: &F, names: &[&str], lasting: Duration) -> IdleWorker {
        let idle = IdleWorker { worker: Uuid::new_v4(), queues: queues(names) };
        fixture.wake().register_idle(&idle, lasting).await.unwrap();
        idle
    }

    /// Opens another listener, for these queues and the marker.
    async fn open_listener<F: Fixture>(&mut self, fixture: &F, names: &[&str]) {
        self.listener = fixture.wake().listen(&queues(&[names, &[MARKER]].concat())).await.unwrap();
    }

    /// The queues of all notifications so far.
    pub(super) async fn notified_queues<F: Fixture>(&mut self, fixture: &F) -> Vec<String> {
        stage_one(fixture, message(MARKER)).await;
        let mut notified = Vec::new();
        loop {
            let signal =
                timeout(Duration::from_secs(20), self.listener.wait()).await.expect("a notification arrives");
            let name = signal.unwrap().as_str().to_owned();
            if name == MARKER {
                return notified;
            }
            notified.push(name);
        }
    }
}

fn queues(names: &[&str]) -> Vec<QueueName> {
    names.iter().map(|name| queue(name)).collect()
}
