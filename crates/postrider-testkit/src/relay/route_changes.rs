//! Routes that lose a destination while messages for it are pending.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{Message, MessageId, OnFailure, PublishError, QueueName, QueuePolicy};
use postrider_engine::relay::{Destination, Relay, Route};
use std::time::Duration;

fn to_mail() -> Route {
    Route::new("orders").to("mail", "orders")
}

fn to_both() -> Route {
    to_mail().to("billing", "orders")
}

fn relay_to<F: Fixture>(fixture: &F, mail: &ScriptedTransport, route: Route) -> Relay {
    let short = Duration::from_millis(20);
    let mail = Destination::new("mail", mail.clone()).circuit_backoff(short, short);
    builder(fixture)
        .destination(billing(&ScriptedTransport::default()))
        .destination(mail)
        .route(route)
        .build()
        .unwrap()
}

/// Relays messages to two destinations, one of which rejects them temporarily: they wait in its own queue.
async fn owe_to_mail<F: Fixture>(
    fixture: &F,
    mail: &ScriptedTransport,
    route: Route,
    messages: &[Message],
) -> Vec<MessageId> {
    mail.fail_with(|| PublishError::unavailable("connection refused"));
    let relay = relay_to(fixture, mail, route);
    relay.declare().await.unwrap();
    let staged = stage(fixture, messages).await;
    relay.run_until_idle().await.unwrap();
    assert_eq!(pending(fixture, "orders>mail").await, messages.len());
    staged
}

async fn pending<F: Fixture>(fixture: &F, queue: &str) -> usize {
    let counts = fixture.inspect().counts().await.unwrap();
    counts.get(&QueueName::new(queue).unwrap()).map_or(0, |counts| counts.pending.at_least as usize)
}

fn numbers(transport: &ScriptedTransport) -> Vec<u64> {
    transport.accepted().iter().map(number_of).collect()
}

/// Orders of one key with these numbers.
fn numbered_orders(numbers: std::ops::Range<u64>) -> Vec<Message> {
    orders_of("k", numbers.end).split_off(numbers.start as usize)
}

/// A route with two destinations is reduced to one: messages that were waiting for it are delivered.
pub async fn a_route_reduced_to_one_destination_delivers_its_pending_messages<F: Fixture>(fixture: F) {
    let mail = ScriptedTransport::default();
    let mut staged = owe_to_mail(&fixture, &mail, to_both(), &orders(5)).await;
    mail.accept_all();
    staged.extend(stage_orders(&fixture, 1).await);
    relay_to(&fixture, &mail, to_mail()).run_until_idle().await.unwrap();
    assert_eq!(sorted(published(&mail)), sorted(staged));
    assert_empty(&fixture, "orders").await;
    assert_empty(&fixture, "orders>mail").await;
}

/// The same on an ordered queue: no message overtakes an earlier one of its key, whether or not the route declares the order.
pub async fn an_ordered_route_reduced_to_one_destination_keeps_the_order<F: Fixture>(fixture: F) {
    let by_key = QueuePolicy::by_key(OnFailure::Block);
    let mail = ScriptedTransport::default();
    owe_to_mail(&fixture, &mail, to_both().policy(by_key.clone()), &numbered_orders(0..5)).await;
    stage(&fixture, &numbered_orders(5..8)).await;
    mail.set_script(|outgoing| match number_of(outgoing) {
        2 => Step::Fail(PublishError::retry("busy")),
        _ => Step::Accept,
    });
    let route = || to_mail().retry(three_times());
    relay_to(&fixture, &mail, route().policy(by_key)).run_until_idle().await.unwrap();
    assert_eq!(numbers(&mail), [0, 1], "later messages wait for the retry");

    fixture.advance(minutes(5)).await;
    relay_to(&fixture, &mail, route()).run_until_idle().await.unwrap();
    assert_eq!(numbers(&mail), [0, 1], "the route does not declare the order");

    mail.accept_all();
    for _ in 0..2 {
        fixture.advance(minutes(5)).await;
        relay_to(&fixture, &mail, route()).run_until_idle().await.unwrap();
    }
    assert_eq!(numbers(&mail), (0..8).collect::<Vec<_>>());
    assert_empty(&fixture, "orders").await;
    assert_empty(&fixture, "orders>mail").await;
}

/// A retry in the queue of the destination does not hold up an unordered queue.
pub async fn an_unordered_route_does_not_wait_for_its_pending_messages<F: Fixture>(fixture: F) {
    let mail = ScriptedTransport::default();
    owe_to_mail(&fixture, &mail, to_both(), &orders(2)).await;
    stage(&fixture, &orders(5)[2..]).await;
    mail.set_script(|outgoing| match number_of(outgoing) {
        0 => Step::Fail(PublishError::retry("busy")),
        _ => Step::Accept,
    });
    relay_to(&fixture, &mail, to_mail().retry(three_times())).run_until_idle().await.unwrap();
    let mut accepted = numbers(&mail);
    accepted.sort_unstable();
    assert_eq!(accepted, [1, 2, 3, 4]);
}

/// The destination is renamed or removed: the relay names the queue that it does not deliver.
pub async fn a_queue_of_a_removed_destination_is_reported<F: Fixture>(fixture: F) {
    let mail = ScriptedTransport::default();
    owe_to_mail(&fixture, &mail, to_both(), &orders(5)).await;
    let relay = relay_to(&fixture, &mail, to_mail());
    assert_eq!(relay.unrouted_queues().await.unwrap().len(), 0, "its route has the destination");
    let relay = relay_to(&fixture, &mail, Route::new("orders").to("billing", "orders"));
    let unrouted = relay.unrouted_queues().await.unwrap();
    let [(queue, messages)] = &unrouted.into_iter().collect::<Vec<_>>()[..] else {
        panic!("one queue is not delivered")
    };
    assert_eq!((queue.as_str(), messages.at_least), ("orders>mail", 5));
    let relay = relay_to(&fixture, &mail, Route::new("bills").to("mail", "bills"));
    assert_eq!(relay.unrouted_queues().await.unwrap().len(), 1, "the whole route is gone");
}
