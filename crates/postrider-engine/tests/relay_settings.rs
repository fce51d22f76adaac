//! Invalid relay settings are rejected, and dubious ones give warnings.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use postrider_core::{QueuePolicy, RetryStrategy};
use postrider_engine::relay::{Destination, Relay, RelayBuilder, Route, RouteTarget};
use postrider_stores::memory::MemoryStore;
use postrider_transports::memory::MemoryTransport;
use std::time::Duration;

fn billing() -> Destination {
    Destination::new("billing", MemoryTransport::new())
}

fn builder() -> RelayBuilder {
    Relay::builder(MemoryStore::new(), "/shop")
}

fn refused(builder: RelayBuilder) -> String {
    builder.build().unwrap_err().to_string()
}

fn refused_route(route: Route) -> String {
    refused(builder().destination(billing()).route(route))
}

fn refused_destination(destination: Destination) -> String {
    refused(builder().destination(destination).route(Route::new("orders").to("billing", "orders")))
}

#[test]
fn invalid_settings_are_rejected() {
    let to_billing = || Route::new("orders").to("billing", "orders");
    let second = Duration::from_secs(1);
    let refusals = [
        refused(Relay::builder(MemoryStore::new(), "my shop").route(to_billing())),
        refused(builder().destination(billing())),
        refused(builder().route(to_billing())),
        refused(builder().destination(billing()).destination(billing()).route(to_billing())),
        refused(builder().destination(billing()).route(to_billing()).route(to_billing())),
        refused_route(Route::new("two words").to("billing", "orders")),
        refused_route(Route::new("orders")),
        refused_route(Route::new("orders").to("biling", "orders")),
        refused_route(to_billing().to("billing", "others")),
        refused_route(Route::new("orders").to("billing", "")),
        refused_route(Route::new("orders").to("billing", "orders.{topic}")),
        refused_route(to_billing().max_deliveries(0)),
        refused_route(to_billing().concurrency(0)),
        refused_route(to_billing().weight(0)),
        refused_route(to_billing().rate_limit(0, second)),
        refused_route(to_billing().lease_for(Duration::from_millis(1))),
        refused_route(to_billing().retry(RetryStrategy::exponential(Duration::ZERO, 2.0))),
        refused_destination(Destination::new("", MemoryTransport::new())),
        refused_destination(billing().timeout(Duration::ZERO)),
        refused_destination(billing().batch_size(0)),
        refused_destination(billing().concurrency(0)),
        refused_destination(billing().rate_limit(10, Duration::ZERO)),
        refused_destination(billing().circuit_backoff(second * 2, second)),
    ];
    insta::assert_snapshot!(refusals.join("\n"));
}

#[test]
fn dubious_settings_give_warnings() {
    let warnings =
        |route: Route| builder().destination(billing()).route(route).build().unwrap().warnings().to_vec();
    let to_billing = || Route::new("orders").to("billing", "orders");
    assert_eq!(warnings(to_billing()), Vec::<String>::new());
    assert_eq!(warnings(to_billing().classic()), Vec::<String>::new());
    let few = to_billing().max_deliveries(3).retry(RetryStrategy::default().with_max_attempts(5));
    let silent = to_billing().policy(QueuePolicy { dead_letters: false, ..QueuePolicy::default() });
    insta::assert_snapshot!([warnings(few), warnings(silent)].concat().join("\n"));
}

/// The debug output of a route shows its settings, and no message content.
#[test]
fn route_debug_output_shows_its_targets() {
    let route = Route::new("orders").to_with(RouteTarget::new("billing", "orders.{type}").filter(|_| true));
    let shown = r#"Route { queue: "orders", to: [RouteTarget { destination: "billing", address: "orders.{type}", .. }], .. }"#;
    assert_eq!(format!("{route:?}"), shown);
}
