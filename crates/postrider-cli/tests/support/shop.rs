//! A database with messages in each state, and the program run on it.

use super::program::{CompletionOutcome, postrider, run};
use postrider::{
    Arrival, ClaimRequest, FollowUp, InboxExt, IntoMessage, LeaseSettlement, Message, MessageBuilder,
    MessageId, OnFailure, Ordering, OutboxExt, QueueName, QueuePolicy, Reason, Reference, Settlement, Store,
    schema::Schema, sqlite::SqliteStore,
};
use sqlx::SqlitePool;
use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};
use tempfile::{TempDir, tempdir};
use uuid::Uuid;

/// The id of a message in the guides.
pub(crate) const ID_IN_GUIDES: &str = "0190f3a1-7b5c-7cc1-9f0e-3d2a5b6c7d8e";

/// A SQLite file, `shop.db`, in a folder of its own.
pub(crate) struct Shop {
    pub(crate) folder: TempDir,
    pub(crate) store: SqliteStore,
    pool: SqlitePool,
}

/// A message id that is the same in every run.
pub(crate) fn id(number: u128) -> MessageId {
    MessageId::from_uuid(Uuid::from_u128(number))
}

pub(crate) fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

/// Searches return messages in the order of staging, which SQLite records in milliseconds.
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

    /// Dead-letters every due message of a queue.
    pub(crate) async fn bury(&self, name: &str, reason: Reason, error: &str) {
        loop {
            let claimed = self.store.claim(&ClaimRequest::new(queue(name), 1000)).await.unwrap();
            if claimed.is_empty() {
                return;
            }
            let settlement = Settlement::Dead { reason, error: Some(error.to_owned()) };
            let ended = claimed.iter().map(|claimed| LeaseSettlement {
                lease: claimed.lease.clone(),
                settlement: settlement.clone(),
            });
            assert!(self.store.settle(&ended.collect::<Vec<_>>()).await.unwrap().is_empty());
        }
    }

    /// Fails the one due message of a queue once, with an immediate retry.
    pub(crate) async fn fail(&self, name: &str, error: &str) {
        let claimed = self.store.claim(&ClaimRequest::new(queue(name), 1)).await.unwrap();
        let settlement = Settlement::Retry { after: Duration::ZERO, error: Some(error.to_owned()) };
        let lease = claimed[0].lease.clone();
        assert!(self.store.settle(&[LeaseSettlement { lease, settlement }]).await.unwrap().is_empty());
    }

    /// Adds a deduplication record of a consumer.
    pub(crate) async fn admit(&self, consumer: &str, id: MessageId) {
        let mut tx = self.pool.begin().await.unwrap();
        let consumer = consumer.parse().unwrap();
        self.store.inbox().admit(&mut tx, &consumer, Arrival::new(id)).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// Delivers every due message of a queue, and returns their number.
    pub(crate) async fn deliver(&self, name: &str) -> usize {
        let mut delivered = 0;
        loop {
            let claimed = self.store.claim(&ClaimRequest::new(queue(name), 1000)).await.unwrap();
            if claimed.is_empty() {
                return delivered;
            }
            let done = claimed.iter().map(|claimed| LeaseSettlement {
                lease: claimed.lease.clone(),
                settlement: Settlement::Done,
            });
            assert!(self.store.settle(&done.collect::<Vec<_>>()).await.unwrap().is_empty());
            delivered += claimed.len();
        }
    }

    /// Removes the payload of a dead letter, as a runner does when it abandons a follow-up.
    pub(crate) async fn forget(&self, id: MessageId) {
        let forget = "update postrider_dead set payload = x'', content_type = 'application/json' where message_id = ?1";
        assert_eq!(
            sqlx::query(forget).bind(id.as_uuid()).execute(&self.pool).await.unwrap().rows_affected(),
            1
        );
    }

    /// A database with two dead letters of one kind, one of another, and a timer.
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

    /// A database with a parked key.
    pub(crate) async fn parked() -> Self {
        let shop = Self::open().await;
        let parking = QueuePolicy { ordering: Ordering::ByKey(OnFailure::Park), ..QueuePolicy::default() };
        shop.store.declare(&queue("invoices"), &parking).await.unwrap();
        shop.stage([Message::builder("invoices").id(id(5)).key("ann").json(&5)]).await;
        shop.bury("invoices", Reason::Rejected, "no such account").await;
        shop
    }

    /// A database with something to show for each command of the guides, and a configuration file: kept messages, dead letters,
    /// a parked key and abandoned follow-ups.
    pub(crate) async fn of_the_guides() -> Self {
        let shop = Self::parked().await;
        let keeping = QueuePolicy::default().with_keep_for(Duration::from_secs(3600));
        shop.store.declare(&queue("orders"), &keeping).await.unwrap();
        let order = || Message::builder("orders").event_type("order.placed").key("order-17").json(&17);
        shop.stage([order()]).await;
        assert_eq!(shop.deliver("orders").await, 1);
        let id: MessageId = ID_IN_GUIDES.parse().unwrap();
        shop.stage([order().id(id), order()]).await;
        shop.bury("orders", Reason::Rejected, "no such address: Elm Street 7").await;
        let erase = |reference| {
            FollowUp::new("customer-17", "payments", "erase", Reference::new("customer", reference)).unwrap()
        };
        shop.stage([erase("cus_17").with_id(id), erase("cus_18")]).await;
        shop.bury("follow-ups", Reason::RetriesExhausted, "timeout").await;
        let file = "source = \"/shop\"\n\n[databases.shop]\nurl = \"shop.db\"\n\n[destinations.hooks]\nkind = \"stdout\"\n\n\
                    [[routes]]\nqueue = \"orders\"\nto = [{ destination = \"hooks\", address = \"orders\" }]\n";
        fs::write(shop.folder.path().join("postrider.toml"), file).unwrap();
        shop
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> CompletionOutcome {
        self.run_with(arguments, Stdio::null())
    }

    pub(crate) fn run_with(&self, arguments: &[&str], stdin: Stdio) -> CompletionOutcome {
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

/// The text with all timestamps replaced by zeros.
pub(crate) fn timeless(text: &str) -> String {
    const ZEROS: &str = "0000-00-00T00:00:00.000Z";
    let is_time = |text: &str| {
        let mut bytes = text.bytes().zip(ZEROS.bytes());
        bytes.all(|(byte, zero)| if zero == b'0' { byte.is_ascii_digit() } else { byte == zero })
    };
    let mut replaced = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let is_next = rest.get(..ZEROS.len()).is_some_and(is_time);
        let (text, length) = if is_next { (ZEROS, ZEROS.len()) } else { (rest, next.len_utf8()) };
        replaced.push_str(&text[..length]);
        rest = &rest[length..];
    }
    replaced
}
