//! Producers signal while somebody sleeps, once for each queue and transaction, and only what can be claimed now
//! (promise 8, decision "wake-up").
//!
//! Silence is heard without waiting: after what must not signal, a message is staged in a queue that always has a sleeper,
//! and its signal must be the next.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    Outbox, OutboxExt, Pausable, QueueName,
    wake::{Ear, Sleeper},
};
use std::time::{Duration, SystemTime};
use tokio::time::timeout;
use uuid::Uuid;

/// A commit wakes a sleeper, and so does the next.
pub async fn a_commit_wakes_a_sleeper<F: Fixture>(fixture: F) {
    let mut bedroom = Bedroom::of(&fixture, &["orders"]).await;
    for _ in 0..3 {
        stage_one(&fixture, message("orders")).await;
        assert_eq!(bedroom.heard(&fixture).await, ["orders"]);
    }
}

/// Whoever hears that a queue was resumed can claim at once.
pub async fn a_resumed_queue_wakes_its_sleepers<F: Fixture>(fixture: F) {
    let (store, orders) = (fixture.store(), Pausable::Queue(queue("orders")));
    let id = stage_one(&fixture, message("orders")).await;
    fixture.operate().pause(&orders, &operator()).await.unwrap();
    let mut bedroom = Bedroom::of(&fixture, &["orders"]).await;
    loop {
        let claimed = claim(&store, "orders", 1).await;
        if claimed.is_empty() {
            break;
        }
        settle(&store, &[claimed[0].lease.release()]).await;
    }
    fixture.operate().resume(&orders, &operator()).await.unwrap();
    assert_eq!(bedroom.heard(&fixture).await, ["orders"]);
    assert_eq!(ids(&claim(&store, "orders", 1).await), [id]);
}

/// Nothing is heard before the commit.
pub async fn nothing_is_heard_before_the_commit<F: Fixture>(fixture: F) {
    let mut bedroom = Bedroom::of(&fixture, &["orders"]).await;
    let mut tx = fixture.begin().await;
    fixture.outbox().stage(&mut tx, message("orders")).await.unwrap();
    if fixture.features().concurrent_transactions {
        assert_eq!(bedroom.heard(&fixture).await, [""; 0]);
    }
    fixture.commit(tx).await;
    assert_eq!(bedroom.heard(&fixture).await, ["orders"]);
}

/// Any number of messages of one queue, in any number of calls, are one signal a transaction.
pub async fn many_messages_of_one_transaction_are_one_signal<F: Fixture>(fixture: F) {
    let mut bedroom = Bedroom::of(&fixture, &["orders"]).await;
    let mut tx = fixture.begin().await;
    for batch in numbered("orders", 100).chunks(30) {
        fixture.outbox().stage_all(&mut tx, batch).await.unwrap();
    }
    fixture.commit(tx).await;

    assert_eq!(bedroom.heard(&fixture).await, ["orders"]);
}

/// A transaction that stages in several queues signals each of them once.
pub async fn every_queue_is_signalled_once<F: Fixture>(fixture: F) {
    let names = ["invoices", "letters", "orders"];
    let mut bedroom = Bedroom::of(&fixture, &names).await;
    let messages: Vec<_> = (0..30).map(|number| message(names[number % 3]).build().unwrap()).collect();
    stage(&fixture, &messages).await;

    let mut heard = bedroom.heard(&fixture).await;
    heard.sort_unstable();
    assert_eq!(heard, names);
}

/// An ear hears the queues it was opened for, and no others.
pub async fn an_ear_hears_its_own_queues_only<F: Fixture>(fixture: F) {
    let mut bedroom = Bedroom::of(&fixture, &["orders"]).await;
    bedroom.lie_down(&fixture, &["letters"], minutes(60)).await;
    stage_one(&fixture, message("letters")).await;
    assert_eq!(bedroom.heard(&fixture).await, [""; 0]);
}

/// What is due later does not signal now; what was due in the past does.
pub async fn a_future_message_does_not_signal<F: Fixture>(fixture: F) {
    let mut bedroom = Bedroom::of(&fixture, &["orders"]).await;
    stage_one(&fixture, message("orders").due_after(minutes(5))).await;
    stage_one(&fixture, message("orders").due_at(SystemTime::now() + minutes(5))).await;
    stage_one(&fixture, message("orders").due_after(minutes(5)).timer("reminder")).await;
    assert_eq!(bedroom.heard(&fixture).await, [""; 0]);
    stage_one(&fixture, message("orders").due_at(SystemTime::now() - minutes(5))).await;
    assert_eq!(bedroom.heard(&fixture).await, ["orders"]);
}

/// What changes nothing does not signal: a duplicate, a timer that is ignored, an empty batch.
pub async fn what_changes_nothing_does_not_signal<F: Fixture>(fixture: F) {
    let known = message("orders").id(fresh_id()).build().unwrap();
    let timer = message("orders").timer("reminder").build().unwrap();
    stage(&fixture, &[known.clone(), timer.clone()]).await;
    let mut bedroom = Bedroom::of(&fixture, &["orders"]).await;
    assert_eq!(stage_all(&fixture, &[known]).await.new_messages(), 0);
    assert_eq!(stage_all(&fixture, &[timer]).await.new_messages(), 0);
    assert_eq!(stage_all(&fixture, &[]).await.new_messages(), 0);

    assert_eq!(bedroom.heard(&fixture).await, [""; 0]);
}

/// While nobody sleeps, nobody is signalled.
pub async fn nobody_asleep_nobody_signalled<F: Fixture>(fixture: F) {
    let mut bedroom = Bedroom::of(&fixture, &[]).await;
    bedroom.open_ear(&fixture, &["orders"]).await;
    bedroom.lie_down(&fixture, &["letters"], minutes(60)).await;
    stage_one(&fixture, message("orders")).await;

    assert_eq!(bedroom.heard(&fixture).await, [""; 0]);
}

/// Who has risen is no longer signalled; who still sleeps is.
pub async fn who_has_risen_is_not_signalled<F: Fixture>(fixture: F) {
    let mut bedroom = Bedroom::of(&fixture, &["orders"]).await;
    let another = bedroom.lie_down(&fixture, &["orders"], minutes(60)).await;
    fixture.wake().rise(&bedroom.sleeper).await.unwrap();
    stage_one(&fixture, message("orders")).await;
    assert_eq!(bedroom.heard(&fixture).await, ["orders"], "another still sleeps");

    fixture.wake().rise(&another).await.unwrap();
    stage_one(&fixture, message("orders")).await;
    assert_eq!(bedroom.heard(&fixture).await, [""; 0]);
}

/// An announcement lapses by itself, unless it is repeated.
pub async fn a_lapsed_announcement_is_not_signalled<F: Fixture>(fixture: F) {
    let mut bedroom = Bedroom::of(&fixture, &[]).await;
    bedroom.open_ear(&fixture, &["orders"]).await;
    let sleeper = bedroom.lie_down(&fixture, &["orders"], minutes(5)).await;
    fixture.advance(minutes(3)).await;
    fixture.wake().lie_down(&sleeper, minutes(5)).await.unwrap();
    fixture.advance(minutes(3)).await;
    stage_one(&fixture, message("orders")).await;
    assert_eq!(bedroom.heard(&fixture).await, ["orders"], "it was repeated");

    fixture.advance(minutes(3)).await;
    stage_one(&fixture, message("orders")).await;
    assert_eq!(bedroom.heard(&fixture).await, [""; 0]);
}

/// What is rolled back does not signal.
pub async fn a_rolled_back_transaction_does_not_signal<F: Fixture>(fixture: F) {
    let mut bedroom = Bedroom::of(&fixture, &["orders"]).await;
    let mut tx = fixture.begin().await;
    fixture.outbox().stage(&mut tx, message("orders")).await.unwrap();
    fixture.rollback(tx).await;

    assert_eq!(bedroom.heard(&fixture).await, [""; 0]);
}

/// A savepoint takes its signal along when it is rolled back, and what is staged after it signals all the same.
pub async fn a_rolled_back_savepoint_does_not_swallow_a_signal<F: Fixture>(fixture: F) {
    let mut bedroom = Bedroom::of(&fixture, &["orders"]).await;
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
        assert_eq!(bedroom.heard(&fixture).await, expected);
    }
}

/// Always has a sleeper; named so that it sorts last, whatever order an ear hears simultaneous signals in.
const MARKER: &str = "zzz";

/// A sleeper, and an ear that hears its queues and the marker.
pub(super) struct Bedroom {
    sleeper: Sleeper,
    ear: Box<dyn Ear>,
}

impl Bedroom {
    /// Somebody sleeps for these queues, and an ear is open for them.
    pub(super) async fn of<F: Fixture>(fixture: &F, names: &[&str]) -> Self {
        let marker = Sleeper { worker: Uuid::new_v4(), queues: queues(&[MARKER]) };
        fixture.wake().lie_down(&marker, minutes(600)).await.unwrap();
        let sleeper = Sleeper { worker: Uuid::new_v4(), queues: queues(names) };
        fixture.wake().lie_down(&sleeper, minutes(600)).await.unwrap();
        let ear = fixture.wake().listen(&queues(&[names, &[MARKER]].concat())).await.unwrap();
        Self { sleeper, ear }
    }

    /// Another sleeper lies down.
    async fn lie_down<F: Fixture>(&self, fixture: &F, names: &[&str], lasting: Duration) -> Sleeper {
        let sleeper = Sleeper { worker: Uuid::new_v4(), queues: queues(names) };
        fixture.wake().lie_down(&sleeper, lasting).await.unwrap();
        sleeper
    }

    /// Opens another ear, for these queues and the marker.
    async fn open_ear<F: Fixture>(&mut self, fixture: &F, names: &[&str]) {
        self.ear = fixture.wake().listen(&queues(&[names, &[MARKER]].concat())).await.unwrap();
    }

    /// Everything heard up to now.
    pub(super) async fn heard<F: Fixture>(&mut self, fixture: &F) -> Vec<String> {
        stage_one(fixture, message(MARKER)).await;
        let mut heard = Vec::new();
        loop {
            let signal = timeout(Duration::from_secs(20), self.ear.wait()).await.expect("a signal is heard");
            let name = signal.unwrap().as_str().to_owned();
            if name == MARKER {
                return heard;
            }
            heard.push(name);
        }
    }
}

fn queues(names: &[&str]) -> Vec<QueueName> {
    names.iter().map(|name| queue(name)).collect()
}
