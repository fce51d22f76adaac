//! Orders on their way to RabbitMQ: what the broker has to be like, what was delivered, and what happens when nobody wants it.
//!
//! `RABBITMQ_URL` says where it is (`amqp://guest:guest@localhost:5672/%2f` otherwise), and `RABBITMQ_DESTINATION` where the orders go:
//! `exchange/routing.key` or the name of a queue (`orders` otherwise). Declare that first, durable.

use postrider::{
    Destination, Message, OutboxExt, Relay, Route, Transport, memory::MemoryStore,
    transports::rabbitmq::RabbitMqTransport,
};
use std::{error::Error, io::Write, sync::Arc};

/// Runs the example, and writes what happens to `out`.
pub(crate) async fn run(
    url: &str,
    destination: &str,
    out: &mut (impl Write + Send),
) -> Result<(), Box<dyn Error>> {
    let rabbitmq = Arc::new(RabbitMqTransport::new(url)?);
    // What would lose messages there? Nothing is the good answer.
    for finding in rabbitmq.check(&[destination]).await? {
        writeln!(out, "{}: {}: {}", finding.severity, finding.code, finding.fix)?;
    }

    let store = MemoryStore::new();
    let mut tx = store.begin();
    for order in [1, 2, 3] {
        let placed = Message::builder("orders").event_type("order.placed").json(&order);
        store.stage(&mut tx, placed).await?;
    }
    tx.commit();

    let relay = Relay::builder(store, "/shop")
        .destination(Destination::shared("rabbitmq", rabbitmq.clone()))
        .route(Route::new("orders").to("rabbitmq", destination))
        .build()?;
    let report = relay.run_once().await?; // or `start`, or `run_until_signal`
    writeln!(out, "{} delivered, {} to be sent again", report.delivered, report.retried)?;
    rabbitmq.close().await;
    Ok(())
}

#[allow(dead_code, reason = "the tests call run")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let told = |name: &str, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let url = told("RABBITMQ_URL", "amqp://guest:guest@localhost:5672/%2f");
    run(&url, &told("RABBITMQ_DESTINATION", "orders"), &mut std::io::stdout()).await
}
