//! What a typed handler can say: done, `?`, rejected, again in an hour, not now; and what happens to a type that it does not
//! know.

use postrider::{
    Context, Event, Failure, Json, Message, OutboxExt, Queue, RetryStrategy, Worker,
    inspect::{Inspect, ListRequest, Room},
    memory::MemoryStore,
    worker::Unknown,
};
use std::{
    error::Error,
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

const HOUR: Duration = Duration::from_secs(3600);

#[derive(serde::Serialize, serde::Deserialize)]
struct PaymentWanted {
    customer: String,
    amount: String,
}

impl Event for PaymentWanted {
    const TYPE: &'static str = "payment.wanted";
    const QUEUE: &'static str = "payments";
    type Codec = Json;
}

/// Shared by all handlers of the worker, and found by its type.
#[derive(Debug, Default)]
struct Till(AtomicU32);

async fn charge(event: PaymentWanted, context: Context) -> Result<(), Failure> {
    let amount: u32 = event.amount.parse()?; // any error: tried again, as the queue's strategy says
    match event.customer.as_str() {
        "nobody" => Err(Failure::reject("no such customer").named("NoSuchCustomer")), // a dead letter at once
        "busy" => Err(Failure::retry_after(HOUR, "the bank asks to come back").named("TooManyRequests")),
        "new" => Err(Failure::snooze(24 * HOUR)), // not now: no failure, and not counted
        _ => {
            context.shared::<Arc<Till>>()?.0.fetch_add(amount, Relaxed);
            Ok(())
        }
    }
}

/// Runs the example, and writes what happens to `out`.
pub(crate) async fn run(out: &mut (impl Write + Send)) -> Result<(), Box<dyn Error>> {
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
        .on_unknown(Unknown::Reject) // the default; workers of two versions side by side want `Retry`
        .retry(RetryStrategy::constant(Duration::from_secs(60)));
    let till = Arc::new(Till::default());
    let worker = Worker::builder(store.clone()).queue(payments).share(Arc::clone(&till)).build()?;
    let tally = worker.run_until_idle().await?;
    writeln!(out, "{} delivered: {} in the till", tally.delivered, till.0.load(Relaxed))?;
    writeln!(out, "{} to be tried again, {} put off, {} dead", tally.retried, tally.released, tally.dead)?;

    for (room, name) in [(Room::Later, "waits"), (Room::Dead, "dead")] {
        for entry in store.list(&ListRequest::new("payments".parse()?, room)).await?.entries {
            let payload = String::from_utf8_lossy(entry.message.payload());
            let error = entry.error.as_deref().unwrap_or("no failure");
            let reason = entry.reason.map(|reason| format!(", {reason}")).unwrap_or_default();
            writeln!(out, "{name}: {payload}: {error}{reason}")?;
        }
    }
    Ok(())
}

#[allow(dead_code, reason = "the tests call `run`")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout()).await
}
