//! A database with something in each room, and the program run on it.

use super::program::{Ended, postrider, run};
use postrider::{
    Arrival, ClaimRequest, InboxExt, IntoMessage, Message, MessageBuilder, MessageId, OnFailure, Ordering,
    OutboxExt, QueueName, QueuePolicy, Reason, Settle, Settlement, Store, schema::Schema,
    sqlite::SqliteStore,
};
use sqlx::SqlitePool;
use std::{
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};
use tempfile::{TempDir, tempdir};
use uuid::Uuid;

/// A file of SQLite, `shop.db`, in a folder of its own.
pub(crate) struct Shop {
    pub(crate) folder: TempDir,
    pub(crate) store: SqliteStore,
    pool: SqlitePool,
}

/// The same in every run.
pub(crate) fn id(number: u128) -> MessageId {
    MessageId::from_uuid(Uuid::from_u128(number))
}

pub(crate) fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

/// What is found by a clue comes in the order of staging, which SQLite tells in milliseconds.
fn next_millisecond() {
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    let start = now();
    while now() <= start {
        std::hint::spin_loop();
    }
}

impl Shop {
    pub(crate) async fn open() -> Self {
        let folder = tempdir().unwrap();
        let path = folder.path().join("shop.db");
        let store = SqliteStore::open(&path).await.unwrap();
        store.migrate().await.unwrap();
        let pool = SqlitePool::connect(&format!("sqlite:{}", path.display())).await.unwrap();
        Self { folder, store, pool }
    }

    pub(crate) async fn stage<M: IntoMessage + Send>(&self, messages: impl IntoIterator<Item = M>) {
        let mut tx = self.pool.begin().await.unwrap();
        for message in messages {
            next_millisecond();
            self.store.outbox().stage(&mut tx, message).await.unwrap();
        }
        tx.commit().await.unwrap();
    }

    /// Lets everything that is due in a queue fail for good.
    pub(crate) async fn bury(&self, name: &str, reason: Reason, error: &str) {
        loop {
            let claimed = self.store.claim(&ClaimRequest::new(queue(name), 1000)).await.unwrap();
            if claimed.is_empty() {
                return;
            }
            let settlement = Settlement::Dead { reason, error: Some(error.to_owned()) };
            let ended = claimed
                .iter()
                .map(|claimed| Settle { lease: claimed.lease.clone(), settlement: settlement.clone() });
            assert!(self.store.settle(&ended.collect::<Vec<_>>()).await.unwrap().is_empty());
        }
    }

    /// Lets the one message that is due in a queue fail once, to be tried again at once.
    pub(crate) async fn fail(&self, name: &str, error: &str) {
        let claimed = self.store.claim(&ClaimRequest::new(queue(name), 1)).await.unwrap();
        let settlement = Settlement::Retry { after: Duration::ZERO, error: Some(error.to_owned()) };
        let lease = claimed[0].lease.clone();
        assert!(self.store.settle(&[Settle { lease, settlement }]).await.unwrap().is_empty());
    }

    /// Marks a message as received by a consumer.
    pub(crate) async fn admit(&self, consumer: &str, id: MessageId) {
        let mut tx = self.pool.begin().await.unwrap();
        let consumer = consumer.parse().unwrap();
        self.store.inbox().admit(&mut tx, &consumer, Arrival::new(id)).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// Delivers everything that is due in a queue, and answers how many that were.
    pub(crate) async fn deliver(&self, name: &str) -> usize {
        let mut delivered = 0;
        loop {
            let claimed = self.store.claim(&ClaimRequest::new(queue(name), 1000)).await.unwrap();
            if claimed.is_empty() {
                return delivered;
            }
            let done = claimed
                .iter()
                .map(|claimed| Settle { lease: claimed.lease.clone(), settlement: Settlement::Done });
            assert!(self.store.settle(&done.collect::<Vec<_>>()).await.unwrap().is_empty());
            delivered += claimed.len();
        }
    }

    /// Keeps no payload of a dead letter any more, as a runner that gives a follow-up up.
    pub(crate) async fn forget(&self, id: MessageId) {
        let forget = "update postrider_dead set payload = x'', content_type = 'application/json' where message_id = ?1";
        assert_eq!(
            sqlx::query(forget).bind(id.as_uuid()).execute(&self.pool).await.unwrap().rows_affected(),
            1
        );
    }

    /// Two dead letters of one kind and one of another, and a timer.
    pub(crate) async fn troubled() -> Self {
        let shop = Self::open().await;
        let placed = |number| order(number).event_type("order.placed");
        shop.stage([placed(1), placed(2).key("order-17")]).await;
        shop.bury("orders", Reason::Rejected, "no such address: Elm Street 7").await;
        shop.stage([order(3).event_type("order.paid")]).await;
        shop.bury("orders", Reason::Undecodable, "missing field `total`").await;
        shop.stage([order(4).due_after(Duration::from_secs(3600))]).await;
        shop
    }

    /// A key that waits for a hand.
    pub(crate) async fn parked() -> Self {
        let shop = Self::open().await;
        let parking = QueuePolicy { ordering: Ordering::ByKey(OnFailure::Park), ..QueuePolicy::default() };
        shop.store.declare(&queue("invoices"), &parking).await.unwrap();
        shop.stage([Message::builder("invoices").id(id(5)).key("ann").json(&5)]).await;
        shop.bury("invoices", Reason::Rejected, "no such account").await;
        shop
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.run_with(arguments, Stdio::null())
    }

    pub(crate) fn run_with(&self, arguments: &[&str], stdin: Stdio) -> Ended {
        run(self.command(arguments).stdin(stdin))
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = postrider(arguments);
        command.env("POSTRIDER_DB", "shop.db").current_dir(self.folder.path());
        command
    }
}

pub(crate) fn order(number: u128) -> MessageBuilder {
    Message::builder("orders").id(id(number)).json(&number.to_string())
}

/// What it said, without the times, which are never the same.
pub(crate) fn timeless(text: &str) -> String {
    const FORM: &str = "0000-00-00T00:00:00.000Z";
    let is_time = |text: &str| {
        let mut signs = text.bytes().zip(FORM.bytes());
        signs.all(|(sign, form)| if form == b'0' { sign.is_ascii_digit() } else { sign == form })
    };
    let mut told = String::new();
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        let is_next = rest.get(..FORM.len()).is_some_and(is_time);
        let (said, length) = if is_next { (FORM, FORM.len()) } else { (rest, sign.len_utf8()) };
        told.push_str(&said[..length]);
        rest = &rest[length..];
    }
    told
}
