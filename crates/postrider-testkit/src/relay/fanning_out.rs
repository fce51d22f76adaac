//! One queue, several destinations.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{OnFailure, PublishError, QueuePolicy, Reason, State, inspect::Room};
use postrider_engine::relay::{Destination, Relay, Route, To};
use std::time::Duration;

/// The queue of orders on its way to two destinations.
fn to_both() -> Route {
    Route::new("orders").to("billing", "orders").to("mail", "orders")
}

fn relay_to<F: Fixture>(
    fixture: &F,
    (one, other): (&ScriptedTransport, &ScriptedTransport),
    route: Route,
) -> Relay {
    let short = Duration::from_millis(20);
    let mail = Destination::new("mail", other.clone()).pauses(short, short);
    builder(fixture).destination(billing(one)).destination(mail).route(route).build().unwrap()
}

/// Every destination gets every message, once as nothing fails.
pub async fn every_destination_gets_each_message<F: Fixture>(fixture: F) {
    let (one, other) = (ScriptedTransport::default(), ScriptedTransport::default());
    let staged = stage_orders(&fixture, 100).await;
    let report = relay_to(&fixture, (&one, &other), to_both()).run_once().await.unwrap();
    assert_eq!((report.claimed, report.delivered), (100, 100), "nothing took a second way");
    assert_eq!(sorted(published(&one)), sorted(staged.clone()));
    assert_eq!(sorted(published(&other)), sorted(staged));
    assert_empty(&fixture, "orders").await;
}

/// What one refuses for now is sent to that one again, under its id, and not to the other.
pub async fn what_one_refuses_is_not_sent_to_the_other_again<F: Fixture>(fixture: F) {
    let (one, other) = (ScriptedTransport::default(), ScriptedTransport::default());
    other.fails(|| PublishError::retry("busy"));
    let staged = stage_orders(&fixture, 10).await;
    let relay = relay_to(&fixture, (&one, &other), to_both().retry(three_times()));
    relay.run_once().await.unwrap();
    assert_empty(&fixture, "orders").await;
    other.accepts();
    fixture.advance(minutes(5)).await;
    relay.run_once().await.unwrap();
    assert_eq!(sorted(published(&one)), sorted(staged.clone()), "once");
    assert_eq!(sorted(published(&other)), sorted(staged), "once, in the end");
    assert_empty(&fixture, "orders>mail").await;
}

/// A dead letter belongs to the destination that refused it.
pub async fn a_dead_letter_belongs_to_its_destination<F: Fixture>(fixture: F) {
    let (one, other) = (ScriptedTransport::default(), ScriptedTransport::default());
    other.fails(|| PublishError::reject("forbidden"));
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    relay_to(&fixture, (&one, &other), to_both()).run_once().await.unwrap();
    assert_eq!(published(&one), [id]);
    let entry = entry_in(&fixture, "orders>mail", id, State::Dead).await;
    assert_eq!(
        (entry.reason, entry.message.payload().as_ref()),
        (Some(Reason::Rejected), &br#"{"number":1}"#[..])
    );
    assert_eq!(list(&fixture, "orders", Room::Dead).await, []);
}

/// One is down: the other gets everything, and what is owed waits uncounted until it is back.
pub async fn one_that_is_down_does_not_hold_up_the_other<F: Fixture>(fixture: F) {
    let (one, other) = (ScriptedTransport::default(), ScriptedTransport::default());
    other.fails(|| PublishError::down("nobody is there"));
    let staged = stage_orders(&fixture, 200).await;
    let running = relay_to(&fixture, (&one, &other), to_both()).start();
    eventually(async || one.accepted().len() == 200).await;
    other.accepts();
    eventually(async || other.accepted().len() >= 200).await;
    running.shutdown(Duration::from_secs(30)).await;
    assert_eq!(sorted(published(&one)), sorted(staged.clone()), "each once");
    assert_eq!(sorted(published(&other)), sorted(staged), "each once");
    assert_empty(&fixture, "orders>mail").await;
}

/// All are down: nothing moves, and nothing is counted.
pub async fn when_all_are_down_nothing_moves<F: Fixture>(fixture: F) {
    let (one, other) = (ScriptedTransport::default(), ScriptedTransport::default());
    one.fails(|| PublishError::down("nobody is there"));
    other.fails(|| PublishError::down("nobody is there"));
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    relay_to(&fixture, (&one, &other), to_both()).run_once().await.unwrap();
    let entry = entry_in(&fixture, "orders", id, State::Pending).await;
    assert_eq!((entry.attempts, entry.deliveries), (0, 0));
}

/// Where order is kept, a key that halts on its way to one destination goes on to the other, in order on both.
pub async fn a_key_halts_for_one_destination_only<F: Fixture>(fixture: F) {
    let (one, other) = (ScriptedTransport::default(), ScriptedTransport::default());
    other.does(|outgoing| match number_of(outgoing) {
        3 => Step::Fail(PublishError::retry("busy")),
        _ => Step::Accept,
    });
    let route = to_both().retry(three_times()).policy(QueuePolicy::by_key(OnFailure::Block));
    let relay = relay_to(&fixture, (&one, &other), route);
    relay.declare(&*fixture.schema()).await.unwrap();
    stage(&fixture, &orders_of("k", 8)).await;
    relay.run_once().await.unwrap();
    let numbers =
        |transport: &ScriptedTransport| transport.accepted().iter().map(number_of).collect::<Vec<_>>();
    assert_eq!(numbers(&one), (0..8).collect::<Vec<_>>());
    assert_eq!(numbers(&other), [0, 1, 2]);
    other.accepts();
    fixture.advance(minutes(5)).await;
    relay.run_once().await.unwrap();
    assert_eq!(numbers(&other), (0..8).collect::<Vec<_>>());
    assert_eq!(one.accepted().len(), 8);
}

/// A queue that is ordered though its route does not know is not sent from: order would be lost.
pub async fn an_order_that_the_route_does_not_know_sends_nothing<F: Fixture>(fixture: F) {
    let (one, other) = (ScriptedTransport::default(), ScriptedTransport::default());
    declare(&fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    let staged = stage(&fixture, &orders_of("k", 3)).await;
    relay_to(&fixture, (&one, &other), to_both()).run_once().await.unwrap();
    assert!(one.calls().is_empty() && other.calls().is_empty());
    assert_eq!(list(&fixture, "orders", Room::Ready).await.len(), staged.len());
}

/// Each destination has its own filter.
pub async fn each_destination_gets_what_is_meant_for_it<F: Fixture>(fixture: F) {
    let (one, other) = (ScriptedTransport::default(), ScriptedTransport::default());
    stage_orders(&fixture, 4).await;
    let to = To::new("mail", "orders").only(|message| message.payload().ends_with(b":1}"));
    let route = Route::new("orders").to("billing", "orders").to_with(to);
    relay_to(&fixture, (&one, &other), route).run_once().await.unwrap();
    assert_eq!((one.accepted().len(), other.accepted().len()), (4, 1));
    assert_empty(&fixture, "orders").await;
}
