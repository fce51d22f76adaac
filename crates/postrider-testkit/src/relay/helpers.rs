//! Helpers of the relay suite.

pub(super) use super::scripted_transport::{ScriptedTransport, Step};
use crate::Fixture;
pub(super) use crate::worker::helpers::*;
use postrider_core::{Message, MessageId, Outgoing};
use postrider_engine::{
    Report,
    relay::{Destination, Relay, RelayBuilder, Route},
};
use std::time::Duration;

/// A route from the queue of orders to one destination.
pub(super) fn to_billing() -> Route {
    Route::new("orders").to("billing", "orders")
}

/// That destination, with a short circuit-breaker backoff and a short publish timeout.
pub(super) fn billing(transport: &ScriptedTransport) -> Destination {
    let short = Duration::from_millis(20);
    Destination::new("billing", transport.clone())
        .circuit_backoff(short, short)
        .timeout(Duration::from_secs(30))
}

pub(super) fn builder<F: Fixture>(fixture: &F) -> RelayBuilder {
    Relay::builder_on(fixture.store(), "/shop")
}

/// A relay of the orders to one destination.
pub(super) fn relay<F: Fixture>(fixture: &F, transport: &ScriptedTransport, route: Route) -> Relay {
    builder(fixture).destination(billing(transport)).route(route).build().unwrap()
}

/// Sends every message that can be sent now.
pub(super) async fn relay_all<F: Fixture>(
    fixture: &F,
    transport: &ScriptedTransport,
    route: Route,
) -> Report {
    relay(fixture, transport, route).run_until_idle().await.unwrap()
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

/// Stages this many orders.
pub(super) async fn stage_orders<F: Fixture>(fixture: &F, count: u64) -> Vec<MessageId> {
    let messages: Vec<Message> = orders(count);
    stage(fixture, &messages).await
}
