//! One queue, several destinations.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{Message, OnFailure, PublishError, QueuePolicy, Reason, State, inspect::StateFilter};
use postrider_engine::relay::{Destination, Relay, Route, RouteTarget};
use std::time::Duration;

/// A route from the queue of orders to two destinations.
fn to_both() -> Route {
    Route::new("orders").to("billing", "orders").to("mail", "orders")
}

fn relay_to<F: Fixture>(
    fixture: &F,
    (one, other): (&ScriptedTransport, &ScriptedTransport),
    route: Route,
) -> Relay {
    let short = Duration::from_millis(20);
    let mail = Destination::new("mail", other.clone()).circuit_backoff(short, short);
    builder(fixture).destination(billing(one)).destination(mail).route(route).build().unwrap()
}

/// Every destination gets every message, once if nothing fails.
pub async fn every_destination_gets_each_message<F: Fixture>(fixture: F) {
    let (one, other) = (ScriptedTransport::default(), ScriptedTransport::default());
    let staged = stage_orders(&fixture, 100).await;
    let report = relay_to(&fixture, (&one, &other), to_both()).run_until_idle().await.unwrap();
    assert_eq!((report.claimed, report.delivered), (100, 100), "nothing took a second way");
    assert_eq!(sorted(published(&one)), sorted(staged.clone()));
    assert_eq!(sorted(published(&other)), sorted(staged));
    assert_empty(&fixture, "orders").await;
}

/// A message that one destination rejects temporarily is sent to that one again, under its id, and not to the other.
pub async fn a_retry_for_one_destination_is_not_sent_to_the_other<F: Fixture>(fixture: F) {
    let (one, other) = (ScriptedTransport::default(), ScriptedTransport::default());
    other.fail_with(|| PublishError::retry("busy"));
    let staged = stage_orders(&fixture, 10).await;
    let relay = relay_to(&fixture, (&one, &other), to_both().retry(three_times()));
    relay.run_until_idle().await.unwrap();
    assert_empty(&fixture, "orders").await;
    other.accept_all();
    fixture.advance(minutes(5)).await;
    relay.run_until_idle().await.unwrap();
    assert_eq!(sorted(published(&one)), sorted(staged.clone()), "once");
    assert_eq!(sorted(published(&other)), sorted(staged), "once, in the end");
    assert_empty(&fixture, "orders>mail").await;
}

/// A retry goes to the same address as the first attempt, though the message waits in another queue meanwhile.
pub async fn a_retry_for_one_destination_keeps_its_address<F: Fixture>(fixture: F) {
    let (one, other) = (ScriptedTransport::default(), ScriptedTransport::default());
    other.fail_with(|| PublishError::retry("busy"));
    stage_orders(&fixture, 1).await;
    let only_orders = |message: &Message| message.queue().as_str() == "orders";
    let route = Route::new("orders")
        .to("billing", "{queue}.{type}")
        .to_with(RouteTarget::new("mail", "{queue}.{type}").filter(only_orders))
        .retry(three_times());
    let relay = relay_to(&fixture, (&one, &other), route);
    relay.run_until_idle().await.unwrap();
    other.accept_all();
    fixture.advance(minutes(5)).await;
    relay.run_until_idle().await.unwrap();
    for transport in [&one, &other] {
        let addresses: Vec<_> =
            transport.accepted().into_iter().map(|outgoing| outgoing.destination).collect();
        assert_eq!(addresses, ["orders.order.placed"]);
    }
}

/// A dead letter belongs to the destination that rejected it.
pub async fn a_dead_letter_belongs_to_its_destination<F: Fixture>(fixture: F) {
    let (one, other) = (ScriptedTransport::default(), ScriptedTransport::default());
    other.fail_with(|| PublishError::reject("forbidden"));
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    relay_to(&fixture, (&one, &other), to_both()).run_until_idle().await.unwrap();
    assert_eq!(published(&one), [id]);
    let entry = entry_in(&fixture, "orders>mail", id, State::Dead).await;
    assert_eq!(
        (entry.reason, entry.message.payload().as_ref()),
        (Some(Reason::Rejected), &br#"{"number":1}"#[..])
    );
    assert_eq!(list(&fixture, "orders", StateFilter::Dead).await, []);
}

/// One destination is unavailable: the other gets everything, and the copies for the first wait uncounted until it recovers.
pub async fn an_outage_of_one_destination_does_not_block_the_other<F: Fixture>(fixture: F) {
    let (one, other) = (ScriptedTransport::default(), ScriptedTransport::default());
    other.fail_with(|| PublishError::unavailable("connection refused"));
    let staged = stage_orders(&fixture, 200).await;
    let running = relay_to(&fixture, (&one, &other), to_both()).start();
    eventually(async || one.accepted().len() == 200).await;
    other.accept_all();
    eventually(async || other.accepted().len() >= 200).await;
    running.stop(Duration::from_secs(30)).await;
    assert_eq!(sorted(published(&one)), sorted(staged.clone()), "each once");
    assert_eq!(sorted(published(&other)), sorted(staged), "each once");
    assert_empty(&fixture, "orders>mail").await;
}

/// All destinations are unavailable: nothing is sent, and nothing is counted.
pub async fn an_outage_of_all_destinations_moves_nothing<F: Fixture>(fixture: F) {
    let (one, other) = (ScriptedTransport::default(), ScriptedTransport::default());
    one.fail_with(|| PublishError::unavailable("connection refused"));
    other.fail_with(|| PublishError::unavailable("connection refused"));
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    relay_to(&fixture, (&one, &other), to_both()).run_until_idle().await.unwrap();
    let entry = entry_in(&fixture, "orders", id, State::Pending).await;
    assert_eq!((entry.attempts, entry.deliveries), (0, 0));
}

/// On an ordered queue, a key that is blocked for one destination continues to the other, in order on both.
pub async fn a_key_is_blocked_for_one_destination_only<F: Fixture>(fixture: F) {
    let (one, other) = (ScriptedTransport::default(), ScriptedTransport::default());
    other.set_script(|outgoing| match number_of(outgoing) {
        3 => Step::Fail(PublishError::retry("busy")),
        _ => Step::Accept,
    });
    let route = to_both().retry(three_times()).policy(QueuePolicy::by_key(OnFailure::Block));
    let relay = relay_to(&fixture, (&one, &other), route);
    relay.declare().await.unwrap();
    stage(&fixture, &orders_of("k", 8)).await;
    relay.run_until_idle().await.unwrap();
    let numbers =
        |transport: &ScriptedTransport| transport.accepted().iter().map(number_of).collect::<Vec<_>>();
    assert_eq!(numbers(&one), (0..8).collect::<Vec<_>>());
    assert_eq!(numbers(&other), [0, 1, 2]);
    other.accept_all();
    fixture.advance(minutes(5)).await;
    relay.run_until_idle().await.unwrap();
    assert_eq!(numbers(&other), (0..8).collect::<Vec<_>>());
    assert_eq!(one.accepted().len(), 8);
}

/// An ordered queue whose route is unordered is not sent: the order would be lost.
pub async fn an_ordered_queue_on_an_unordered_route_sends_nothing<F: Fixture>(fixture: F) {
    let (one, other) = (ScriptedTransport::default(), ScriptedTransport::default());
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let staged = stage(&fixture, &orders_of("k", 3)).await;
    relay_to(&fixture, (&one, &other), to_both()).run_until_idle().await.unwrap();
    assert!(one.calls().is_empty() && other.calls().is_empty());
    assert_eq!(list(&fixture, "orders", StateFilter::Ready).await.len(), staged.len());
}

/// Each destination has its own filter.
pub async fn each_destination_applies_its_own_filter<F: Fixture>(fixture: F) {
    let (one, other) = (ScriptedTransport::default(), ScriptedTransport::default());
    stage_orders(&fixture, 4).await;
    let to = RouteTarget::new("mail", "orders").filter(|message| message.payload().ends_with(b":1}"));
    let route = Route::new("orders").to("billing", "orders").to_with(to);
    relay_to(&fixture, (&one, &other), route).run_until_idle().await.unwrap();
    assert_eq!((one.accepted().len(), other.accepted().len()), (4, 1));
    assert_empty(&fixture, "orders").await;
}
