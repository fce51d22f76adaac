//! A relay: what was committed is published to two destinations, each of which accepts, refuses and fails on its own. They are in
//! memory here, so that nothing has to be installed; a broker is one line in their stead.

use postrider::{
    Destination, Message, OutboxExt, PublishError, Relay, RetryStrategy, Route,
    inspect::{Inspect, ListRequest, Room},
    memory::{ManualClock, MemoryStore},
    relay::To,
    transports::memory::MemoryTransport,
};
use std::{
    error::Error,
    io::Write,
    time::{Duration, SystemTime},
};

const MINUTE: Duration = Duration::from_secs(60);

/// Runs the example, and writes what happens to `out`.
pub(crate) async fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
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
                .to_with(To::new("audit", "large-orders").only(large))
                .retry(RetryStrategy::constant(MINUTE)),
        )
        .build()?;

    let report = relay.run_once().await?; // a service calls `start` or `run_until_signal`
    writeln!(
        out,
        "{} claimed: {} went on, {} to be sent again, {} dead",
        report.claimed, report.delivered, report.retried, report.dead
    )?;
    audit.fail_when(|_| None);
    clock.advance(MINUTE);
    let report = relay.run_once().await?;
    writeln!(out, "a minute later: {} delivered", report.delivered)?;

    for (name, broker) in [("billing", &billing), ("audit", &audit)] {
        for message in broker.published() {
            let body = String::from_utf8_lossy(&message.body).into_owned();
            writeln!(out, "{name} has {body} at {}", message.destination)?;
        }
    }
    let dead = store.list(&ListRequest::new("orders>billing".try_into()?, Room::Dead)).await?;
    for entry in dead.entries {
        let body = String::from_utf8_lossy(entry.message.payload()).into_owned();
        writeln!(out, "billing never gets {body}: {}", entry.error.unwrap_or_default())?;
    }
    Ok(())
}

#[allow(dead_code, reason = "the tests call `run`")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout()).await
}
