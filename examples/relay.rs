//! A relay with two destinations, each with its own rejections, retries and dead letters. Both are in memory, so that nothing has to be
//! installed; a broker is one line instead.

use postrider::{
    Destination, Message, OutboxExt, PublishError, Relay, RetryStrategy, Route,
    inspect::{Inspect, ListRequest, StateFilter},
    memory::{ManualClock, MemoryStore},
    relay::RouteTarget,
    transports::memory::MemoryTransport,
};
use std::{
    error::Error,
    time::{Duration, SystemTime},
};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000));
    let store = MemoryStore::with_clock(clock.clone());
    for (order, total) in [(1, 20), (2, 5_000), (3, 70)] {
        let event = serde_json::json!({ "order": order, "total": total });
        let event =
            Message::builder("orders").event_type("order.placed").key(format!("order-{order}")).json(&event);
        let mut tx = store.begin();
        store.stage(&mut tx, event).await?;
        tx.commit();
    }

    let (billing, audit) = (MemoryTransport::new(), MemoryTransport::new());
    billing.fail_when(|message| {
        message
            .key
            .as_ref()
            .is_some_and(|key| key.as_str() == "order-1")
            .then(|| PublishError::reject("unknown"))
    });
    audit.fail_when(|_| Some(PublishError::retry("busy")));
    let large = |message: &Message| message.payload().len() > 22;
    let relay = Relay::builder(store.clone(), "/shop")
        .destination(Destination::new("billing", billing.clone()))
        .destination(Destination::new("audit", audit.clone()))
        .route(
            Route::new("orders")
                .to("billing", "{queue}.{type}")
                .to_with(RouteTarget::new("audit", "large-orders").filter(large))
                .retry(RetryStrategy::constant(MINUTE)),
        )
        .build()?;

    let report = relay.run_until_idle().await?; // a service calls `start` or `run_until_signal`
    println!(
        "{} claimed: {} delivered, {} to be retried, {} dead",
        report.claimed, report.delivered, report.retried, report.dead
    );
    audit.fail_when(|_| None);
    clock.advance(MINUTE);
    let report = relay.run_until_idle().await?;
    println!("a minute later: {} delivered", report.delivered);

    for (name, broker) in [("billing", &billing), ("audit", &audit)] {
        for message in broker.published() {
            let body = String::from_utf8_lossy(&message.body).into_owned();
            println!("{name} has {body} at {}", message.destination);
        }
    }
    let dead = store.list(&ListRequest::new("orders>billing".try_into()?, StateFilter::Dead)).await?;
    for entry in dead.entries {
        let body = String::from_utf8_lossy(entry.message.payload()).into_owned();
        println!("billing never gets {body}: {}", entry.error.unwrap_or_default());
    }
    Ok(())
}
