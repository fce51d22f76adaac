//! A consumer of a stream of NATS JetStream: each message has its effect once, however often it is delivered.
//!
//! `NATS_URL` says where the server is; `nats://127.0.0.1:4222` unless it is set. The stream `ORDERS` has to be there.

use postrider::{
    Consumer, Context, Failure, Message, OutboxExt, Source, Tx,
    memory::{MemoryStore, Transaction},
    transports::nats::NatsSource,
};
use std::{error::Error, io::Write, time::Duration};

/// Receives the `subjects` of `stream` until nothing comes any more, and writes what happened to `out`.
pub(crate) async fn run(
    url: &str,
    stream: &str,
    subjects: &str,
    out: &mut (impl Write + Send),
) -> Result<(), Box<dyn Error>> {
    // In your program: create the consumer with your deployment, and leave this out.
    let source = NatsSource::builder(url, stream, "billing")
        .with_created_consumer(subjects, Duration::from_secs(30))
        .build()?;

    // What would lose messages is told before anything is received.
    for finding in source.check().await? {
        writeln!(out, "{} {}: {}", finding.severity, finding.code, finding.fix)?;
    }

    // In your program: a store in your own database, whose transactions you write in.
    let store = MemoryStore::new();
    let outbox = store.clone();
    let consumer = Consumer::builder("billing", source, store)
        .on_json(move |order: u64, mut tx: Tx<Transaction>, context: Context| {
            let outbox = outbox.clone();
            async move {
                let invoice = Message::builder("invoices").json(&order);
                outbox.stage(&mut *tx, context.follow(invoice)).await?;
                Ok::<(), Failure>(())
            }
        })
        .max_deliveries(5)
        .build()?;
    let consumed = consumer.run_until_idle(Duration::from_secs(1)).await?; // or `start`, or `run_until_signal`
    writeln!(
        out,
        "{} processed, {} duplicates, {} parked, {} failed",
        consumed.processed, consumed.duplicates, consumed.parked, consumed.failed
    )?;
    Ok(())
}

#[allow(dead_code, reason = "the tests call `run`")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned());
    run(&url, "ORDERS", "orders.>", &mut std::io::stdout()).await
}
