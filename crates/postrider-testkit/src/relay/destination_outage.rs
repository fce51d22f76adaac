//! Outages of destinations.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{Capacity, Event, Message, PublishError, State};
use postrider_engine::relay::{Destination, Relay, Route, RouteTarget};
use std::{sync::atomic::Ordering::SeqCst, time::Duration};

/// An outage is not a failure of the messages: they wait, and count no attempt.
pub async fn an_outage_counts_no_attempts<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.fail_with(|| PublishError::unavailable("connection refused"));
    let staged = stage_orders(&fixture, 20).await;
    let running = relay(&fixture, &transport, to_billing().retry(three_times())).start();
    // Longer than any number of attempts.
    eventually(async || transport.calls().len() >= 10).await;
    running.stop(Duration::from_secs(30)).await;
    for id in staged {
        let entry = entry_in(&fixture, "orders", id, State::Pending).await;
        assert_eq!((entry.attempts, entry.deliveries), (0, 0));
    }
}

/// A missing exchange, stream, topic or queue is an outage as well: the messages wait until an operator creates it.
pub async fn a_missing_address_counts_no_attempts<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.fail_with(|| PublishError::address_unavailable("exchange \"shop\" does not exist: declare it"));
    let staged = stage_orders(&fixture, 50).await;
    let running = relay(&fixture, &transport, to_billing().retry(three_times())).start();
    eventually(async || transport.calls().len() >= 10).await;
    for id in &staged {
        let entry = get(&fixture, "orders", *id).await.unwrap();
        assert_eq!((entry.attempts, entry.reason), (0, None));
    }
    transport.accept_all();
    // A probe waits a few seconds of the store's clock.
    eventually(async || {
        fixture.advance(Duration::from_secs(1)).await;
        transport.accepted().len() == 50
    })
    .await;
    let stopped = running.stop(Duration::from_secs(30)).await;
    assert_eq!((stopped.report.retried, stopped.report.dead), (0, 0));
    assert_eq!(sorted(published(&transport)), sorted(staged), "each once");
}

/// One missing address among others that accept messages is a failure of its own messages.
pub async fn one_missing_address_among_several_counts_attempts<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.set_script(|outgoing| match number_of(outgoing) {
        5 => Step::Fail(PublishError::address_unavailable("no such exchange")),
        _ => Step::Accept,
    });
    let staged = stage_orders(&fixture, 20).await;
    let report = relay_all(&fixture, &transport, to_billing().retry(three_times())).await;
    assert_eq!((report.delivered, report.retried, report.dead), (19, 1, 0));
    let entry = entry_in(&fixture, "orders", staged[5], State::Scheduled).await;
    assert_eq!(entry.attempts, 1);
}

/// A probe to a missing address does not keep the messages to other addresses waiting: the next probe is another message.
pub async fn a_missing_address_does_not_block_the_probe_of_another<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.set_script(|outgoing| match number_of(outgoing) {
        0 => Step::Fail(PublishError::address_unavailable("no such exchange")),
        _ => Step::Accept,
    });
    stage_orders(&fixture, 1).await;
    let running = relay(&fixture, &transport, to_billing().retry(three_times())).start();
    eventually(async || transport.calls().len() == 1).await;
    stage(&fixture, &[Order { number: 17 }.message().build().unwrap()]).await;
    eventually(async || transport.accepted().iter().any(|sent| number_of(sent) == 17)).await;
    running.stop(Duration::from_secs(30)).await;
}

/// After the first failure only probes are sent, and nothing else is claimed.
pub async fn an_open_circuit_claims_nothing<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.fail_with(|| PublishError::unavailable("connection refused"));
    stage_orders(&fixture, 500).await;
    let (store, probe) = instrumented_store(&fixture);
    let relay = Relay::builder_on(store, "/shop");
    let route = to_billing().concurrency(10);
    let relay = relay.destination(billing(&transport)).route(route).build().unwrap();
    let running = relay.start();
    eventually(async || transport.calls().len() >= 5).await;
    let (calls, sent) = (transport.calls().len(), transport.calls().concat().len());
    let claimed = probe.claimed.load(SeqCst);
    assert!(sent <= 100 + calls, "{sent} messages were sent in {calls} calls");
    assert!(claimed <= 100 + 2 * calls, "{claimed} messages were claimed for {calls} calls");
    running.stop(Duration::from_secs(30)).await;
}

/// After the first successful probe, everything is sent.
pub async fn pending_messages_are_sent_after_recovery<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.fail_with(|| PublishError::unavailable("connection refused"));
    let staged = stage_orders(&fixture, 100).await;
    let running = relay(&fixture, &transport, to_billing()).start();
    eventually(async || transport.calls().len() >= 3).await;
    transport.accept_all();
    eventually(async || transport.accepted().len() >= 100).await;
    running.stop(Duration::from_secs(30)).await;
    assert_eq!(sorted(published(&transport)), sorted(staged), "each once");
    assert_empty(&fixture, "orders").await;
}

/// One timeout may be chance. Repeated timeouts are an outage, and count no more attempts.
pub async fn repeated_timeouts_count_as_an_outage<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.set_script(|_| Step::Hang);
    stage_orders(&fixture, 50).await;
    let short = Duration::from_millis(20);
    let billing = Destination::new("billing", transport.clone()).timeout(short).batch_size(1);
    let billing = billing.circuit_backoff(short, Duration::from_secs(1));
    let relay =
        builder(&fixture).destination(billing).route(to_billing().retry(three_times())).build().unwrap();
    let running = relay.start();
    eventually(async || transport.calls().len() >= 10).await;
    let stopped = running.stop(Duration::from_secs(30)).await;
    // Those of the first batches, and the probes since.
    assert!(stopped.report.retried < 25, "{:?}", stopped.report);
    assert_eq!(stopped.report.dead, 0);
}

/// Opens the circuit of `billing`, and stages twenty messages that its filter excludes, one that is too large, and one that is sent. A
/// relay that waits for the timeout of a probe does not recover within the time limit of the case.
async fn recover_behind_unsent_messages<F: Fixture>(fixture: &F, route: Route) {
    let transport = ScriptedTransport::new(Capacity::of(1_000).with_message_bytes(1_000));
    transport.fail_with(|| PublishError::unknown("no answer"));
    let (short, hour) = (Duration::from_millis(20), Duration::from_secs(3_600));
    let billing = Destination::new("billing", transport.clone()).circuit_backoff(short, short).timeout(hour);
    let running = builder(fixture)
        .destination(billing.batch_size(1))
        .destination(Destination::new("mail", ScriptedTransport::default()))
        .route(route.retry(three_times()))
        .build()
        .unwrap()
        .start();
    // Three unknown results open the circuit; the messages are retried much later.
    stage_orders(fixture, 3).await;
    eventually(async || transport.calls().len() == 3).await;
    transport.accept_all();
    let excluded = || Message::builder("orders").json(&17);
    let mut messages: Vec<_> = (0..20).map(|_| excluded()).collect();
    messages.push(Message::builder("orders").event_type("order.placed").payload(vec![b' '; 2_000]));
    messages.push(Order { number: 17 }.message());
    let messages: Vec<Message> = messages.into_iter().map(|message| message.build().unwrap()).collect();
    stage(fixture, &messages).await;
    eventually(async || transport.accepted().iter().any(|sent| number_of(sent) == 17)).await;
    running.stop(Duration::from_secs(30)).await;
}

fn typed_to_billing() -> RouteTarget {
    RouteTarget::new("billing", "orders").filter(|message| message.event_type().is_some())
}

/// A probe whose message is filtered out, or cannot be sent, is given back: the next message is the probe.
pub async fn messages_that_are_not_sent_do_not_delay_a_probe<F: Fixture>(fixture: F) {
    recover_behind_unsent_messages(&fixture, Route::new("orders").to_with(typed_to_billing())).await;
}

/// The same where a queue has several destinations.
pub async fn messages_that_are_not_sent_to_one_of_several_do_not_delay_its_probe<F: Fixture>(fixture: F) {
    let nothing_to_mail = RouteTarget::new("mail", "orders").filter(|_| false);
    let route = Route::new("orders").to_with(typed_to_billing()).to_with(nothing_to_mail);
    recover_behind_unsent_messages(&fixture, route).await;
}

/// Two queues, two destinations: an outage of one does not affect the other.
pub async fn an_outage_of_one_destination_does_not_stop_another<F: Fixture>(fixture: F) {
    let (down, up) = (ScriptedTransport::default(), ScriptedTransport::default());
    down.fail_with(|| PublishError::unavailable("connection refused"));
    stage_orders(&fixture, 100).await;
    stage(&fixture, &numbered("letters", 100)).await;
    let relay = builder(&fixture)
        .destination(billing(&down))
        .destination(Destination::new("mail", up.clone()))
        .route(to_billing())
        .route(Route::new("letters").to("mail", "letters"))
        .build()
        .unwrap();
    let running = relay.start();
    eventually(async || up.accepted().len() == 100 && !down.calls().is_empty()).await;
    running.stop(Duration::from_secs(30)).await;
    assert_empty(&fixture, "letters").await;
}

/// `run_until_idle` does not wait for the next probe of an unavailable destination.
pub async fn run_until_idle_does_not_wait_for_an_outage_to_end<F: Fixture>(fixture: F) {
    let (down, up) = (ScriptedTransport::default(), ScriptedTransport::default());
    down.fail_with(|| PublishError::unavailable("connection refused"));
    stage_orders(&fixture, 10).await;
    stage(&fixture, &numbered("letters", 300)).await;
    let hour = Duration::from_secs(3_600);
    let relay = builder(&fixture)
        .destination(Destination::new("billing", down.clone()).circuit_backoff(hour, hour))
        // One at a time, so that the outage is detected long before the last message is sent.
        .destination(Destination::new("mail", up.clone()).batch_size(1))
        .route(to_billing())
        .route(Route::new("letters").to("mail", "letters"))
        .build()
        .unwrap();
    assert_eq!(relay.run_until_idle().await.unwrap().delivered, 300);
    assert_eq!((down.calls().len(), up.accepted().len()), (1, 300));
}

/// `run_batch` sends one probe to an unavailable destination, and then returns at once: nothing is claimed for it.
pub async fn run_batch_does_not_wait_for_an_outage_to_end<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.fail_with(|| PublishError::unavailable("connection refused"));
    let staged = stage_orders(&fixture, 10).await;
    let hour = Duration::from_secs(3_600);
    let billing = Destination::new("billing", transport.clone()).circuit_backoff(hour, hour);
    let relay = builder(&fixture).destination(billing).route(to_billing()).build().unwrap();
    let first = relay.run_batch().await.unwrap();
    assert_eq!((first.delivered, first.retried, first.dead), (0, 0, 0));
    let second = relay.run_batch().await.unwrap();
    assert_eq!((second.claimed, transport.calls().len()), (0, 1), "the circuit is open");
    for id in staged {
        assert_eq!(entry_in(&fixture, "orders", id, State::Pending).await.attempts, 0);
    }
}
