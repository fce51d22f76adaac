//! A consumer of a topic of Kafka: each message has its effect once, however often it is delivered.
//!
//! `KAFKA_URL` says where the server is; `kafka://127.0.0.1:9092` unless it is set. The topic `orders` has to be there.

use postrider::{
    Consumer, Context, Failure, Message, OutboxExt, Source, Tx,
    memory::{MemoryStore, Transaction},
    transports::kafka::KafkaSource,
};
use std::{error::Error, io::Write, time::Duration};

/// Receives from `topic` until nothing comes any more, and writes what happened to `out`.
pub(crate) async fn run(url: &str, topic: &str, out: &mut (impl Write + Send)) -> Result<(), Box<dyn Error>> {
    let source = KafkaSource::builder(url, topic).with_group("billing").build()?;

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
    let consumed = consumer.run_until_idle(Duration::from_secs(5)).await?; // or `start`, or `run_until_signal`
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
    let url = std::env::var("KAFKA_URL").unwrap_or_else(|_| "kafka://127.0.0.1:9092".to_owned());
    run(&url, "orders", &mut std::io::stdout()).await
}
