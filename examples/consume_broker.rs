//! A consumer of a broker: each message has its effects once, however often the broker delivers it.
//!
//! ```sh
//! cargo run -p postrider --features nats     --example consume_broker -- nats nats://127.0.0.1:4222 ORDERS
//! cargo run -p postrider --features kafka    --example consume_broker -- kafka kafka://127.0.0.1:9092 orders
//! cargo run -p postrider --features redis    --example consume_broker -- redis redis://127.0.0.1:6379 orders
//! cargo run -p postrider --features rabbitmq --example consume_broker -- rabbitmq amqp://guest:guest@127.0.0.1:5672/%2f orders
//! cargo run -p postrider --features sqs      --example consume_broker -- sqs http://127.0.0.1:5000 orders
//! ```

use postrider::{
    Consumer, Context, Failure, Message, OutboxExt, Source, Tx,
    memory::{MemoryStore, MemoryTransaction},
};
use std::{error::Error, sync::Arc, time::Duration};

fn source(kind: &str, url: &str, name: &str) -> Result<Arc<dyn Source>, Box<dyn Error>> {
    Ok(match kind {
        #[cfg(feature = "kafka")]
        "kafka" => Arc::new(
            postrider::transports::kafka::KafkaSource::builder(url, name).with_group("billing").build()?,
        ),
        #[cfg(feature = "nats")]
        "nats" => {
            // In production, create the JetStream consumer with your deployment and leave out `with_created_consumer`.
            let source = postrider::transports::nats::NatsSource::builder(url, name, "billing");
            Arc::new(source.with_created_consumer(format!("{name}.>"), Duration::from_secs(30)).build()?)
        }
        #[cfg(feature = "rabbitmq")]
        "rabbitmq" => Arc::new(
            postrider::transports::rabbitmq::RabbitMqSource::builder(url, name).with_quorum(true).build()?,
        ),
        #[cfg(feature = "redis")]
        "redis" => {
            let source = postrider::transports::redis::RedisSource::builder(url, name);
            Arc::new(source.with_group("billing").create_group().build()?)
        }
        #[cfg(feature = "sqs")]
        "sqs" => {
            let options = postrider::transports::sqs::AwsOptions::new().with_client(url);
            let options = options.with_region("eu-central-1").with_credentials("test", "test", None);
            Arc::new(postrider::transports::sqs::SqsSource::builder(options, name).build()?)
        }
        other => return Err(format!("unknown kind {other:?}, or a feature of the crate is missing").into()),
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, url, name] = &arguments[..] else { return Err("usage: consume_broker KIND URL QUEUE".into()) };
    let source = source(kind, url, name)?;

    // Settings of the broker that could lose messages, each with its fix.
    for finding in source.check().await? {
        println!("{} {}: {}", finding.severity, finding.code, finding.fix);
    }

    let store = MemoryStore::new(); // in a service: `store.transactions(pool)` of PostgreSQL or SQLite
    let outbox = store.clone();
    let consumer = Consumer::builder_on("billing", source, store)
        .on_json(move |order: u64, mut tx: Tx<MemoryTransaction>, context: Context| {
            let outbox = outbox.clone();
            async move {
                // Effects commit together with the deduplication record.
                let invoice = Message::builder("invoices").json(&order);
                outbox.stage(&mut *tx, context.follow(invoice)).await?;
                Ok::<(), Failure>(())
            }
        })
        .max_deliveries(5)
        .idle_after(Duration::from_secs(5))
        .build()?;
    let report = consumer.run_until_idle().await?; // in a service: `start` or `run_until_signal`
    println!("{} processed, {} duplicates", report.delivered, report.duplicates);
    Ok(())
}
