//! Publishing.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{Capacity, Format, Message, inspect::StateFilter};
use postrider_engine::relay::{Destination, Route, RouteTarget};
use std::time::Duration;

/// Promises 1 and 2: every committed message is published, once if nothing fails, and leaves the store; rolled-back ones are not.
pub async fn every_committed_message_is_published_once<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    let staged = stage_orders(&fixture, 100).await;
    let mut tx = fixture.begin().await;
    postrider_core::Outbox::stage_all(&fixture.outbox(), &mut tx, &orders(5)).await.unwrap();
    fixture.rollback(tx).await;
    let report = relay_all(&fixture, &transport, to_billing()).await;
    assert_eq!((report.claimed, report.delivered), (100, 100));
    assert_eq!(sorted(published(&transport)), sorted(staged));
    assert_empty(&fixture, "orders").await;
}

/// Identity, key, type, tenant, trail and headers are published, and the address is built from the message.
pub async fn message_metadata_is_published<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    let message = Message::builder("orders").event_type("order.placed").key("k-1").tenant("acme").json(&17);
    let message = message.header("color", "blue").correlation_id("c-1").causation_id("d-1");
    let id = stage_one(&fixture, message).await;
    let route = Route::new("orders").to("billing", "{queue}.{type}.{tenant}.{key}");
    relay_all(&fixture, &transport, route).await;
    let sent = transport.accepted().remove(0);
    assert_eq!((sent.id, sent.destination.as_str()), (id, "orders.order.placed.acme.k-1"));
    assert_eq!(sent.headers, [("color".to_owned(), "blue".to_owned())]);
    for (name, value) in [
        ("id", id.to_string().as_str()),
        ("source", "/shop"),
        ("type", "order.placed"),
        ("partitionkey", "k-1"),
        ("tenantid", "acme"),
        ("correlationid", "c-1"),
        ("causationid", "d-1"),
    ] {
        assert!(sent.attributes.contains(&(name, value.to_owned().into())), "{name}: {:?}", sent.attributes);
    }
    let unset = |name: &str| !sent.attributes.iter().any(|(attribute, _)| *attribute == name);
    assert!(unset("subject") && unset("traceparent"), "what is not set is left out");
}

/// A route can filter messages, and replace their content under the same id.
pub async fn a_route_can_filter_and_transform<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    let staged = stage_orders(&fixture, 4).await;
    let is_even =
        |message: &Message| matches!(message.payload().as_ref(), br#"{"number":0}"# | br#"{"number":2}"#);
    let to = RouteTarget::new("billing", "{type}").format(Format::Plain).filter(is_even);
    let to = to.transform(|message| message.to_builder().event_type("order.seen").payload(r#"{"number":7}"#));
    let report = relay_all(&fixture, &transport, Route::new("orders").to_with(to)).await;
    assert_eq!(report.delivered, 4, "what is left out is done");
    let sent = transport.accepted();
    assert_eq!(sorted(ids_sent(&sent)), sorted([staged[0], staged[2]]));
    assert!(sent.iter().all(|sent| sent.destination == "order.seen" && sent.body == r#"{"number":7}"#));
}

/// Messages that arrive while others are in flight are sent together, up to the capacity of the transport.
pub async fn pending_messages_are_sent_in_batches<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::new(Capacity::of(50));
    transport.hold();
    stage_orders(&fixture, 500).await;
    let running = relay(&fixture, &transport, to_billing()).start();
    // The second call is made when a full batch is pending.
    eventually(async || transport.calls().len() == 2).await;
    transport.let_through(1_000);
    eventually(async || transport.accepted().len() == 500).await;
    running.stop(Duration::from_secs(30)).await;
    let sizes: Vec<_> = transport.calls().iter().map(Vec::len).collect();
    assert_eq!((sizes[1], sizes.iter().max()), (50, Some(&50)), "{sizes:?}");
}

/// A run reports the results of the messages it claimed.
pub async fn a_run_reports_its_counts<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.set_script(|outgoing| match number_of(outgoing) {
        0 => Step::Fail(postrider_core::PublishError::retry("busy")),
        1 => Step::Fail(postrider_core::PublishError::reject("no")),
        _ => Step::Accept,
    });
    stage_orders(&fixture, 5).await;
    let route = to_billing().retry(three_times());
    let report = relay_all(&fixture, &transport, route).await;
    assert_eq!((report.claimed, report.delivered, report.retried, report.dead), (5, 3, 1, 1));
    assert_eq!((report.reclaimed, report.unstarted), (0, 0));
}

/// Messages in flight of a dead relay are reclaimed when their lease has expired, and not before.
pub async fn messages_of_a_dead_relay_are_reclaimed<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    let staged = stage_orders(&fixture, 3).await;
    let dead = fixture.another_store().await;
    assert_eq!(claim(&dead, "orders", 2).await.len(), 2);
    let report = relay_all(&fixture, &transport, to_billing()).await;
    assert_eq!((report.delivered, report.reclaimed), (1, 0));
    expire_leases(&fixture).await;
    let report = relay_all(&fixture, &transport, to_billing()).await;
    assert_eq!((report.delivered, report.reclaimed), (2, 2));
    assert_eq!(sorted(published(&transport)), sorted(staged));
}

/// A destination gets no more messages per period than its rate limit.
pub async fn a_rate_limit_is_kept<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    stage_orders(&fixture, 20).await;
    let slow = Destination::new("billing", transport.clone()).rate_limit(10, Duration::from_secs(3_600));
    let relay = builder(&fixture).destination(slow).route(to_billing()).build().unwrap();
    let running = relay.start();
    eventually(async || transport.accepted().len() == 10).await;
    // Long enough to settle the accepted messages, and to release the rest.
    running.stop(Duration::from_secs(3)).await;
    assert_eq!(transport.accepted().len(), 10, "the next one is six minutes away");
    assert_eq!(list(&fixture, "orders", StateFilter::Ready).await.len(), 10);
}

/// `run_batch` publishes what the rate limit of the route permits now, and does not wait for more.
pub async fn a_batch_keeps_the_rate_limit<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    stage_orders(&fixture, 5).await;
    let relay = relay(&fixture, &transport, to_billing().rate_limit(2, Duration::from_secs(3_600)));
    assert_eq!(relay.run_batch().await.unwrap().delivered, 2);
    assert_eq!(relay.run_batch().await.unwrap().claimed, 0, "the next one is half an hour away");
    assert_eq!(transport.accepted().len(), 2);
}
