//! A relay to NATS JetStream: looks at the stream first, then publishes what was committed.
//!
//! `NATS_URL` says where the server is; `nats://127.0.0.1:4222` unless it is set. The stream is yours to make:
//! `nats stream add ORDERS --subjects 'orders.>' --storage file --discard new --defaults`.

use postrider::{
    Destination, Message, OutboxExt, Relay, Route, Transport, memory::MemoryStore,
    transports::nats::NatsTransport,
};
use std::{error::Error, io::Write, sync::Arc};

/// Publishes to subjects that begin with `prefix`, and writes what happens to `out`.
pub(crate) async fn run(
    url: &str,
    prefix: &str,
    out: &mut (impl Write + Send),
) -> Result<(), Box<dyn Error>> {
    let nats = Arc::new(NatsTransport::connect(url)?);

    // What would lose messages is told before anything is sent.
    for finding in nats.check(&[&format!("{prefix}.placed")]).await? {
        writeln!(out, "{} {}: {}", finding.severity, finding.code, finding.fix)?;
    }

    let store = MemoryStore::new();
    for (order, is_paid) in [(1, true), (2, false), (3, true)] {
        let mut tx = store.begin();
        store.stage(&mut tx, Message::builder("orders").event_type("placed").json(&order)).await?;
        match is_paid {
            true => tx.commit(),
            false => drop(tx), // rolled back: nobody hears of it
        }
    }

    let relay = Relay::builder(store, "/shop")
        .destination(Destination::shared("nats", nats.clone()))
        .route(Route::new("orders").to("nats", format!("{prefix}.{{type}}")))
        .build()?;
    let report = relay.run_once().await?;
    writeln!(out, "{} published, {} to be tried again", report.delivered, report.retried)?;
    nats.close().await;
    Ok(())
}

#[allow(dead_code, reason = "the tests call `run`")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned());
    run(&url, "orders", &mut std::io::stdout()).await
}
