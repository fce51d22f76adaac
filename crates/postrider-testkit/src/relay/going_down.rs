//! Destinations that are down.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{PublishError, State};
use postrider_engine::relay::{Destination, Relay, Route};
use std::{sync::atomic::Ordering::SeqCst, time::Duration};

/// An outage is no fault of the messages: they wait uncounted, whatever it takes.
pub async fn a_destination_that_is_down_costs_no_attempts<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.fails(|| PublishError::down("nobody is there"));
    let staged = stage_orders(&fixture, 20).await;
    let running = relay(&fixture, &transport, to_billing().retry(three_times())).start();
    // Longer than any number of attempts.
    eventually(async || transport.calls().len() >= 10).await;
    running.shutdown(Duration::from_secs(30)).await;
    for id in staged {
        let entry = entry_in(&fixture, "orders", id, State::Pending).await;
        assert_eq!((entry.attempts, entry.deliveries), (0, 0));
    }
}

/// After the first failure single messages are tried, and nothing else is claimed.
pub async fn nothing_is_claimed_while_it_is_down<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.fails(|| PublishError::down("nobody is there"));
    stage_orders(&fixture, 500).await;
    let (store, wake, watch) = watched_store(&fixture);
    let relay = Relay::builder_on(store, Some(wake), "/shop");
    let route = to_billing().in_hand(10);
    let relay = relay.destination(billing(&transport)).route(route).build().unwrap();
    let running = relay.start();
    eventually(async || transport.calls().len() >= 5).await;
    let (calls, sent) = (transport.calls().len(), transport.calls().concat().len());
    let claimed = watch.claimed.load(SeqCst);
    assert!(sent <= 100 + calls, "{sent} messages were sent in {calls} calls");
    assert!(claimed <= 100 + 2 * calls, "{claimed} messages were claimed for {calls} calls");
    running.shutdown(Duration::from_secs(30)).await;
}

/// When something gets through again, everything does.
pub async fn what_waited_is_sent_when_it_is_back<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.fails(|| PublishError::down("nobody is there"));
    let staged = stage_orders(&fixture, 100).await;
    let running = relay(&fixture, &transport, to_billing()).start();
    eventually(async || transport.calls().len() >= 3).await;
    transport.accepts();
    eventually(async || transport.accepted().len() >= 100).await;
    running.shutdown(Duration::from_secs(30)).await;
    assert_eq!(sorted(published(&transport)), sorted(staged), "each once");
    assert_empty(&fixture, "orders").await;
}

/// One silence may be chance. Silence that goes on is an outage, and burns no more attempts.
pub async fn going_on_silence_counts_as_down<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.does(|_| Step::Hang);
    stage_orders(&fixture, 50).await;
    let short = Duration::from_millis(20);
    let billing = Destination::new("billing", transport.clone()).timeout(short).batch(1);
    let billing = billing.pauses(short, Duration::from_secs(1));
    let relay =
        builder(&fixture).destination(billing).route(to_billing().retry(three_times())).build().unwrap();
    let running = relay.start();
    eventually(async || transport.calls().len() >= 10).await;
    let stopped = running.shutdown(Duration::from_secs(30)).await;
    // Those of the first batches, and the single ones that were tried since.
    assert!(stopped.tally.retried < 25, "{:?}", stopped.tally);
    assert_eq!(stopped.tally.dead, 0);
}

/// Two queues, two destinations: the one that is down keeps nothing from the other.
pub async fn one_destination_that_is_down_does_not_stop_another<F: Fixture>(fixture: F) {
    let (down, up) = (ScriptedTransport::default(), ScriptedTransport::default());
    down.fails(|| PublishError::down("nobody is there"));
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
    running.shutdown(Duration::from_secs(30)).await;
    assert_empty(&fixture, "letters").await;
}

/// Whoever asks for what can be sent now does not wait until what cannot is tried again.
pub async fn one_run_does_not_wait_for_a_destination_that_is_down<F: Fixture>(fixture: F) {
    let (down, up) = (ScriptedTransport::default(), ScriptedTransport::default());
    down.fails(|| PublishError::down("nobody is there"));
    stage_orders(&fixture, 10).await;
    stage(&fixture, &numbered("letters", 300)).await;
    let hour = Duration::from_secs(3_600);
    let relay = builder(&fixture)
        .destination(Destination::new("billing", down.clone()).pauses(hour, hour))
        // One at a time, so that it is known to be down long before the last one was sent.
        .destination(Destination::new("mail", up.clone()).batch(1))
        .route(to_billing())
        .route(Route::new("letters").to("mail", "letters"))
        .build()
        .unwrap();
    assert_eq!(relay.run_once().await.unwrap().delivered, 300);
    assert_eq!((down.calls().len(), up.accepted().len()), (1, 300));
}
