//! The whole way of a message on the memory store: staged in a transaction, claimed, retried, dead-lettered.

use postrider::{
    ClaimRequest, Event, Json, OutboxExt, QueueName, Reason, Store,
    inspect::{Inspect, ListRequest, Room},
    memory::MemoryStore,
};
use std::{error::Error, io::Write, time::Duration};

#[derive(serde::Serialize, serde::Deserialize)]
struct OrderPlaced {
    order: u32,
}

impl Event for OrderPlaced {
    const TYPE: &'static str = "order.placed";
    const QUEUE: &'static str = "orders";
    type Codec = Json;
}

/// Runs the example, and writes what happens to `out`.
pub(crate) async fn run(out: &mut (impl Write + Send)) -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::new();
    let orders = QueueName::new("orders")?;

    let mut tx = store.begin();
    store.stage(&mut tx, &OrderPlaced { order: 1 }).await?;
    tx.rollback();
    let mut tx = store.begin();
    for order in [2, 3, 4] {
        store.stage(&mut tx, &OrderPlaced { order }).await?;
    }
    tx.commit();
    writeln!(out, "order 1 was rolled back; orders 2, 3 and 4 were committed")?;

    let request = ClaimRequest::new(orders.clone(), 10);
    let claimed = store.claim(&request).await?;
    let mut settlements = Vec::new();
    for (claimed, ending) in claimed.iter().zip(["done", "retry", "dead"]) {
        let payload = String::from_utf8_lossy(claimed.message.payload());
        writeln!(out, "claimed {payload}: {ending}")?;
        settlements.push(match ending {
            "done" => claimed.lease.done(),
            "retry" => claimed.lease.retry(Duration::from_secs(30), "Timeout"),
            _ => claimed.lease.dead(Reason::Rejected, "NoSuchCustomer"),
        });
    }
    store.settle(&settlements).await?;

    store.advance(Duration::from_secs(30));
    for claimed in store.claim(&request).await? {
        let payload = String::from_utf8_lossy(claimed.message.payload());
        writeln!(out, "claimed {payload} again, after {} failure", claimed.attempts)?;
        store.settle(&[claimed.lease.done()]).await?;
    }
    for letter in store.list(&ListRequest::new(orders, Room::Dead)).await?.entries {
        let payload = String::from_utf8_lossy(letter.message.payload());
        let reason = letter.reason.map_or("", Reason::as_str);
        writeln!(out, "dead letter {payload}: {reason}, {}", letter.error.unwrap_or_default())?;
    }
    Ok(())
}

#[allow(dead_code, reason = "the tests call `run`")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout()).await
}
