//! The events of the tests.

use postrider_core::{Event, Json, OutboxExt};
use postrider_testing::TestStore;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OrderPlaced {
    pub(crate) order: u32,
}

impl Event for OrderPlaced {
    const TYPE: &'static str = "order.placed";
    const QUEUE: &'static str = "orders";
    type Codec = Json;

    fn key(&self) -> Option<String> {
        Some(format!("order-{}", self.order))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MailWanted {
    pub(crate) to: String,
}

impl Event for MailWanted {
    const TYPE: &'static str = "mail.wanted";
    const QUEUE: &'static str = "mails";
    type Codec = Json;
}

pub(crate) async fn place(store: &TestStore, orders: &[u32]) {
    let mut tx = store.begin();
    for order in orders {
        store.stage(&mut tx, &OrderPlaced { order: *order }).await.unwrap();
    }
    tx.commit();
}
