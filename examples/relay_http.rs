//! Webhooks: orders that were staged in a transaction are posted to a receiver, signed, and settled by what it answers.
//!
//! The receiver is at `POSTRIDER_WEBHOOK_URL`, or at `http://127.0.0.1:8080/hooks`; anything that answers a POST will do. It can
//! verify what it gets with the secret below.

use postrider::{
    Message, OutboxExt, RetryStrategy, Transport,
    memory::MemoryStore,
    relay::{Destination, Relay, Route},
    transports::http::{HttpOptions, HttpTransport, signature::Secret},
};
use std::{error::Error, io::Write, time::Duration};

/// Shared with the receiver. In your program it comes from wherever you keep secrets.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Runs the example against the receiver at `url`, and writes what happens to `out`.
pub(crate) async fn run(url: &str, out: &mut (impl Write + Send)) -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::new();
    let mut tx = store.begin();
    for order in 1..=3 {
        let message = Message::builder("orders").event_type("order.placed").tenant("acme").json(&order);
        store.stage(&mut tx, message).await?;
    }
    tx.commit();

    // This receiver is on our own machine and has no certificate. Neither is allowed unless we say so.
    let options = HttpOptions::below(url)?.allow_http().allow_network("127.0.0.0/8")?;
    let webhooks = HttpTransport::new(options.with_secret(Secret::parse(SECRET)?))?;
    for finding in webhooks.check(&["acme/orders"]).await? {
        writeln!(out, "{}: {}, {}", finding.severity, finding.code, finding.fix)?;
    }

    let relay = Relay::builder(store, "/shop")
        .destination(Destination::new("webhooks", webhooks).timeout(Duration::from_secs(30)))
        .route(
            Route::new("orders")
                .to("webhooks", "{tenant}/{queue}")
                .retry(RetryStrategy::constant(Duration::from_secs(60))),
        )
        .build()?;
    let report = relay.run_once().await?;
    writeln!(
        out,
        "{} accepted, {} to be sent again, {} refused for good, {} wait for the receiver",
        report.delivered, report.retried, report.dead, report.handed_back
    )?;
    Ok(())
}

#[allow(dead_code, reason = "the tests call `run`")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("POSTRIDER_WEBHOOK_URL");
    run(url.as_deref().unwrap_or("http://127.0.0.1:8080/hooks"), &mut std::io::stdout()).await
}
