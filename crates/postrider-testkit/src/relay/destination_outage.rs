//! Outages of destinations.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{PublishError, State};
use postrider_engine::relay::{Destination, Relay, Route};
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
