//! The Python example stages in a transaction and a process of its own, and a worker of this process delivers the message.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/polyglot.rs"]
mod polyglot;
#[path = "support/sqlite.rs"]
mod support;

use polyglot::{EXAMPLES, run};
use postrider_core::{
    ClaimRequest, ClaimedMessage, QueueName, Store, TimerName,
    notifier::{IdleWorker, Notifier},
};
use postrider_testkit::Fixture;
use sqlx::Row;
use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
    time::Duration,
};
use support::SqliteFixture;
use uuid::Uuid;

async fn claim(fixture: &SqliteFixture, queue: &str) -> Vec<ClaimedMessage> {
    fixture.store.claim(&ClaimRequest::new(QueueName::new(queue).unwrap(), 100)).await.unwrap()
}

#[tokio::test]
async fn python_example_stages_in_its_transaction() {
    let fixture = SqliteFixture::new().await;
    fixture.run("create table orders (id integer primary key, placed_by text)").await;
    let script = |order: &str| {
        run(Command::new("python3").arg(format!("{EXAMPLES}/stage_sqlite.py")).arg(fixture.path()).arg(order))
    };
    let refused = "refused: queue: neither white space nor control characters are allowed";
    let printed = script("17");
    let (id, rest) = printed.split_once('\n').unwrap();
    assert_eq!(rest.trim_end(), refused);
    assert_eq!(script("-1").trim_end(), format!("rolled back: an order has a number above zero\n{refused}"));

    let orders = sqlx::query("select id, placed_by from orders").fetch_all(&fixture.app).await.unwrap();
    assert_eq!(orders.len(), 1);
    assert_eq!((orders[0].get::<i64, _>(0), orders[0].get::<&str, _>(1)), (17, "python"));
    let claimed = claim(&fixture, "orders").await;
    assert_eq!(claimed.len(), 1, "a rolled-back message does not exist");
    let message = &claimed[0].message;
    assert_eq!(claimed[0].id().to_string(), id);
    assert_eq!(message.payload(), r#"{"order": 17}"#);
    assert_eq!(message.event_type().unwrap().as_str(), "order.placed");
    assert_eq!(message.key().unwrap().as_str(), "order-17");
    assert_eq!(message.headers().get("language"), Some("python"));

    assert_eq!(claim(&fixture, "reminders").await.len(), 0);
    fixture.advance(Duration::from_secs(3601)).await;
    let reminders = claim(&fixture, "reminders").await;
    assert_eq!(reminders.len(), 1);
    assert_eq!(reminders[0].message.timer().unwrap().name, TimerName::new("unpaid-17").unwrap());
}

/// Stages many messages, each in a transaction of its own; every second transaction is rolled back.
const PRODUCER: &str = r#"
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=60, isolation_level="IMMEDIATE")
for number in range(400):
    connection.execute("insert into postrider_outbox (queue, payload) values ('orders', ?)", [str(number)])
    connection.commit() if number % 2 == 0 else connection.rollback()
"#;

/// An idle worker is notified by Python, and delivers each committed message once while two Python processes stage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_worker_is_notified_by_python_and_delivers_each_message_once() {
    let fixture = SqliteFixture::new().await;
    let idle = IdleWorker { worker: Uuid::now_v7(), queues: vec!["orders".parse().unwrap()] };
    fixture.store.register_idle(&idle, Duration::from_secs(600)).await.unwrap();
    let mut listener = fixture.store.listen(&idle.queues).await.unwrap();
    let spawn = || {
        let mut python = Command::new("python3");
        python.args(["-c", PRODUCER]).arg(fixture.path()).stdin(Stdio::null()).spawn().unwrap()
    };
    let mut producers = [spawn(), spawn()];
    let mut seen: Vec<String> = Vec::new();
    while seen.len() < 400 {
        let notified = tokio::time::timeout(Duration::from_secs(120), listener.wait()).await;
        assert_eq!(notified.expect("a commit notifies").unwrap(), idle.queues[0]);
        loop {
            let claimed = claim(&fixture, "orders").await;
            if claimed.is_empty() {
                break;
            }
            seen.extend(claimed.iter().map(|one| String::from_utf8(one.message.payload().to_vec()).unwrap()));
            let done: Vec<_> = claimed.iter().map(|one| one.lease.done()).collect();
            assert_eq!(fixture.store.settle(&done).await.unwrap(), []);
        }
    }
    for producer in &mut producers {
        assert!(producer.wait().unwrap().success(), "no call fails because of a lock");
    }
    assert_eq!(claim(&fixture, "orders").await, []);
    assert_eq!(seen.len(), 400, "each message once");
    let distinct: BTreeSet<_> = seen.iter().map(|number| number.parse::<u32>().unwrap()).collect();
    assert_eq!(distinct, (0..400).step_by(2).collect(), "all committed messages");
}
