//! A consumer of webhooks: each message has its effect once, however often it is delivered.
//!
//! It listens at `POSTRIDER_WEBHOOK_ADDRESS`, or at `127.0.0.1:8080`, until nobody has posted anything for a minute. `relay_http` posts to it.

use postrider::{
    Consumer, Context, Failure, Message, OutboxExt, Source, Tx,
    memory::{MemoryStore, Transaction},
    transports::http::{HttpSource, signature::Secret},
};
use std::{error::Error, future::IntoFuture, io::Write, time::Duration};
use tokio::net::TcpListener;

/// Shared with the sender. In your program it comes from wherever you keep secrets.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Receives what is posted to `path` on `listener` until nothing has come for so long, and writes what happened to `out`.
pub(crate) async fn run(
    listener: TcpListener,
    path: &str,
    idle_for: Duration,
    out: &mut (impl Write + Send),
) -> Result<(), Box<dyn Error>> {
    let source = HttpSource::new(path, Secret::parse(SECRET)?)?;
    // In your program: merge it into the router that you have.
    let server = tokio::spawn(axum::serve(listener, source.router()).into_future());

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
    let consumed = consumer.run_until_idle(idle_for).await?; // or `start`, or `run_until_signal`
    server.abort();
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
    let address = std::env::var("POSTRIDER_WEBHOOK_ADDRESS").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    run(listener, "/hooks/acme/orders", Duration::from_secs(60), &mut std::io::stdout()).await
}
