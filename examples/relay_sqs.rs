//! A relay to Amazon SQS: looks at the queue first, then publishes what was committed.
//!
//! `SQS_URL` says where a server on this machine is, such as moto or LocalStack; `http://127.0.0.1:5000` unless it is set. With
//! `AwsOptions::new()` alone it would be Amazon's, in the region and with the credentials of the environment.

use postrider::{
    Destination, Message, OutboxExt, Relay, Route, Transport,
    memory::MemoryStore,
    transports::sqs::{AwsOptions, SqsTransport},
};
use std::{error::Error, io::Write, sync::Arc};

/// Publishes to `queue`, and writes what happens to `out`.
pub(crate) async fn run(url: &str, queue: &str, out: &mut (impl Write + Send)) -> Result<(), Box<dyn Error>> {
    let options = AwsOptions::new()
        .with_endpoint_url(url)
        .with_region("eu-central-1")
        .with_credentials("test", "test", None);
    let sqs = Arc::new(SqsTransport::new(options)?);

    // What would lose messages is told before anything is sent.
    for finding in sqs.check(&[queue]).await? {
        writeln!(out, "{}: {}, {}", finding.severity, finding.code, finding.reason)?;
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
        .destination(Destination::shared("sqs", sqs.clone()))
        .route(Route::new("orders").to("sqs", queue))
        .build()?;
    let report = relay.run_once().await?;
    writeln!(out, "{} published, {} to be sent again", report.delivered, report.retried)?;
    sqs.close().await;
    Ok(())
}

#[allow(dead_code, reason = "the tests call `run`")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("SQS_URL").unwrap_or_else(|_| "http://127.0.0.1:5000".to_owned());
    run(&url, "orders", &mut std::io::stdout()).await
}
