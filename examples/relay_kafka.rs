//! A relay to Kafka: looks at the topic first, then publishes what was committed.
//!
//! `KAFKA_URL` says where the cluster is; `kafka://127.0.0.1:9092` unless it is set. The topic is yours to make:
//! `kafka-topics.sh --bootstrap-server 127.0.0.1:9092 --create --topic orders --partitions 6 --replication-factor 3
//! --config min.insync.replicas=2`.

use postrider::{
    Destination, Message, OutboxExt, Relay, Route, Transport, memory::MemoryStore,
    transports::kafka::KafkaTransport,
};
use std::{error::Error, io::Write, sync::Arc};

/// Publishes to `topic`, and writes what happens to `out`.
pub(crate) async fn run(url: &str, topic: &str, out: &mut (impl Write + Send)) -> Result<(), Box<dyn Error>> {
    let kafka = Arc::new(KafkaTransport::connect(url)?);

    // What would lose messages is told before anything is sent.
    for finding in kafka.check(&[topic]).await? {
        writeln!(out, "{} {}: {}", finding.severity, finding.code, finding.fix)?;
    }

    let store = MemoryStore::new();
    for (order, is_paid) in [(1, true), (2, false), (3, true)] {
        let mut tx = store.begin();
        let placed = Message::builder("orders").event_type("order.placed").key(format!("order-{order}"));
        store.stage(&mut tx, placed.json(&order)).await?;
        match is_paid {
            true => tx.commit(),
            false => drop(tx), // rolled back: nobody hears of it
        }
    }

    let relay = Relay::builder(store, "/shop")
        .destination(Destination::shared("kafka", kafka.clone()))
        .route(Route::new("orders").to("kafka", topic))
        .build()?;
    let report = relay.run_once().await?;
    writeln!(out, "{} published, {} to be tried again", report.delivered, report.retried)?;
    kafka.close().await;
    Ok(())
}

#[allow(dead_code, reason = "the tests call `run`")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("KAFKA_URL").unwrap_or_else(|_| "kafka://127.0.0.1:9092".to_owned());
    run(&url, "orders", &mut std::io::stdout()).await
}
