//! What the cases of the relay suite say over and over.

pub(super) use super::scripted::{ScriptedTransport, Step};
use crate::Fixture;
pub(super) use crate::worker::helpers::*;
use postrider_core::{Message, MessageId, Outgoing};
use postrider_engine::relay::{Destination, Relay, RelayBuilder, Report, Route};
use std::time::Duration;

/// The queue of orders on its way to one destination.
pub(super) fn to_billing() -> Route {
    Route::new("orders").to("billing", "orders")
}

/// That destination, which tries again soon when nothing gets through, and does not wait long for answers.
pub(super) fn billing(transport: &ScriptedTransport) -> Destination {
    let short = Duration::from_millis(20);
    Destination::new("billing", transport.clone()).pauses(short, short).timeout(Duration::from_secs(30))
}

pub(super) fn builder<F: Fixture>(fixture: &F) -> RelayBuilder {
    Relay::builder_on(fixture.store(), Some(fixture.wake()), "/shop")
}

/// A relay of the orders to one destination.
pub(super) fn relay<F: Fixture>(fixture: &F, transport: &ScriptedTransport, route: Route) -> Relay {
    builder(fixture).destination(billing(transport)).route(route).build().unwrap()
}

/// Sends what can be sent now.
pub(super) async fn relay_all<F: Fixture>(
    fixture: &F,
    transport: &ScriptedTransport,
    route: Route,
) -> Report {
    relay(fixture, transport, route).run_once().await.unwrap()
}

pub(super) fn published(transport: &ScriptedTransport) -> Vec<MessageId> {
    ids_sent(&transport.accepted())
}

pub(super) fn ids_sent(sent: &[Outgoing]) -> Vec<MessageId> {
    sent.iter().map(|outgoing| outgoing.id).collect()
}

/// The number of an order.
pub(super) fn number_of(outgoing: &Outgoing) -> u64 {
    serde_json::from_slice::<Order>(&outgoing.body).unwrap().number
}

/// So many messages, as the queue holds them.
pub(super) async fn stage_orders<F: Fixture>(fixture: &F, count: u64) -> Vec<MessageId> {
    let messages: Vec<Message> = orders(count);
    stage(fixture, &messages).await
}
