//! A relay to a broker or a webhook: checks the destination, then publishes what was committed.
//!
//! ```sh
//! cargo run -p postrider --features nats     --example relay_broker -- nats nats://127.0.0.1:4222 orders.placed
//! cargo run -p postrider --features kafka    --example relay_broker -- kafka kafka://127.0.0.1:9092 orders
//! cargo run -p postrider --features redis    --example relay_broker -- redis redis://127.0.0.1:6379 orders
//! cargo run -p postrider --features rabbitmq --example relay_broker -- rabbitmq amqp://guest:guest@127.0.0.1:5672/%2f orders
//! cargo run -p postrider --features sqs      --example relay_broker -- sqs http://127.0.0.1:5000 orders
//! cargo run -p postrider --features http     --example relay_broker -- webhook http://127.0.0.1:8080/hooks orders
//! ```

use postrider::{Destination, Message, OutboxExt, Relay, Route, Transport, memory::MemoryStore};
use std::{error::Error, sync::Arc};

fn transport(kind: &str, url: &str) -> Result<Arc<dyn Transport>, Box<dyn Error>> {
    Ok(match kind {
        #[cfg(feature = "kafka")]
        "kafka" => Arc::new(postrider::transports::kafka::KafkaTransport::connect(url)?),
        #[cfg(feature = "nats")]
        "nats" => Arc::new(postrider::transports::nats::NatsTransport::connect(url)?),
        #[cfg(feature = "rabbitmq")]
        "rabbitmq" => Arc::new(postrider::transports::rabbitmq::RabbitMqTransport::new(url)?),
        #[cfg(feature = "redis")]
        "redis" => Arc::new(postrider::transports::redis::RedisTransport::connect(url)?),
        #[cfg(feature = "sqs")]
        "sqs" => {
            // `AwsOptions::new()` alone is Amazon's SQS, with region and credentials from the environment. This is a local server.
            let options = postrider::transports::sqs::AwsOptions::new().with_client(url);
            let options = options.with_region("eu-central-1").with_credentials("test", "test", None);
            Arc::new(postrider::transports::sqs::SqsTransport::new(options)?)
        }
        #[cfg(feature = "http")]
        "webhook" => {
            use postrider::transports::http::{HttpOptions, HttpTransport, signature::Secret};
            let secret = std::env::var("WEBHOOK_SECRET")?;
            // Unencrypted requests and private addresses are only for trying this out.
            let options = HttpOptions::below(url)?.allow_http().allow_network("127.0.0.0/8")?;
            Arc::new(HttpTransport::new(options.with_secret(Secret::parse(&secret)?))?)
        }
        other => return Err(format!("unknown kind {other:?}, or a feature of the crate is missing").into()),
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, url, address] = &arguments[..] else {
        return Err("usage: relay_broker KIND URL ADDRESS".into());
    };
    let broker = transport(kind, url)?;

    // Settings of the broker that could lose messages, each with its fix.
    for finding in broker.check(&[address]).await? {
        println!("{} {}: {}", finding.severity, finding.code, finding.fix);
    }

    let store = MemoryStore::new(); // in a service: the store in your own database
    for (order, commits) in [(1, true), (2, false), (3, true)] {
        let mut tx = store.begin();
        let placed = Message::builder("orders").event_type("order.placed").key(format!("order-{order}"));
        store.stage(&mut tx, placed.json(&order)).await?;
        if commits {
            tx.commit();
        } // else it is rolled back, and the message with it
    }

    let relay = Relay::builder(store, "/shop")
        .destination(Destination::shared("broker", Arc::clone(&broker)))
        .route(Route::new("orders").to("broker", address))
        .build()?;
    let report = relay.run_until_idle().await?; // in a service: `start` or `run_until_signal`
    let retried = report.retried + report.released; // failed, or released because the broker is unavailable
    println!("{} published, {retried} to be retried, {} dead", report.delivered, report.dead);
    broker.close().await;
    Ok(())
}
