//! Every result of a typed handler: done, an error, a rejection, a retry after an hour, a snooze; and a message of an unknown type.

use postrider::{
    Context, Event, Failure, Message, OutboxExt, Queue, RetryStrategy, Worker,
    inspect::{Inspect, ListRequest, StateFilter},
    memory::MemoryStore,
    worker::OnUnknownType,
};
use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

const HOUR: Duration = Duration::from_secs(3600);

#[derive(Event, serde::Serialize, serde::Deserialize)]
#[event(type = "payment.wanted", queue = "payments")]
struct PaymentWanted {
    customer: String,
    amount: String,
}

/// Shared by all handlers of the worker, which find it by its type.
#[derive(Debug, Default)]
struct Till(AtomicU32);

async fn charge(event: PaymentWanted, context: Context) -> Result<(), Failure> {
    let amount: u32 = event.amount.parse()?; // any error: retried, as the queue's strategy says
    match event.customer.as_str() {
        "nobody" => Err(Failure::reject("no such customer").named("NoSuchCustomer")), // a dead letter at once
        "busy" => Err(Failure::retry_after(HOUR, "the bank is busy").named("TooManyRequests")),
        "new" => Err(Failure::snooze(24 * HOUR)), // not now: no failure, and no attempt is counted
        _ => {
            context.shared::<Arc<Till>>()?.0.fetch_add(amount, Relaxed);
            Ok(())
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::new();
    let mut tx = store.begin();
    for (customer, amount) in
        [("ann", "12"), ("bob", "30"), ("eve", "much"), ("nobody", "1"), ("busy", "2"), ("new", "3")]
    {
        store.stage(&mut tx, &PaymentWanted { customer: customer.into(), amount: amount.into() }).await?;
    }
    let unknown =
        Message::builder("payments").event_type("payment.refunded").json(&serde_json::json!({ "amount": 5 }));
    store.stage(&mut tx, unknown).await?;
    let unreadable = Message::builder("payments").event_type(PaymentWanted::TYPE).payload("{");
    store.stage(&mut tx, unreadable).await?;
    tx.commit();

    let payments = Queue::new("payments")
        .on(charge)
        .on_unknown(OnUnknownType::Reject) // the default; workers of two versions side by side want `Retry`
        .retry(RetryStrategy::constant(Duration::from_secs(60)));
    let till = Arc::new(Till::default());
    let worker = Worker::builder(store.clone()).queue(payments).share(Arc::clone(&till)).build()?;
    let report = worker.run_until_idle().await?;
    println!("{} delivered: {} in the till", report.delivered, till.0.load(Relaxed));
    println!("{} to be retried, {} snoozed, {} dead", report.retried, report.released, report.dead);

    for (state, name) in [(StateFilter::Scheduled, "scheduled"), (StateFilter::Dead, "dead")] {
        for row in store.list(&ListRequest::new("payments".parse()?, state)).await?.entries {
            let payload = String::from_utf8_lossy(row.message.payload());
            let error = row.error.as_deref().unwrap_or("no failure");
            let reason = row.reason.map(|reason| format!(", {reason}")).unwrap_or_default();
            println!("{name}: {payload}: {error}{reason}");
        }
    }
    Ok(())
}
