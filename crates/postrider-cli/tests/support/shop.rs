//! A database with something in each room, and the program run on it.

use crate::program::{Ended, postrider, run};
use postrider::{
    ClaimRequest, IntoMessage, Message, MessageBuilder, MessageId, OnFailure, Ordering, OutboxExt, QueueName,
    QueuePolicy, Reason, Settle, Settlement, Store, schema::Schema, sqlite::SqliteStore,
};
use sqlx::SqlitePool;
use std::{process::Stdio, time::Duration};
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
        run(postrider(arguments).env("POSTRIDER_DB", "shop.db").stdin(stdin).current_dir(self.folder.path()))
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
