//! Publish results other than "accepted".

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    Capacity, Message, PublishError, Reason, RetryStrategy, State, inspect::StateFilter, retry::Jitter,
};
use postrider_engine::relay::{Destination, Route, RouteTarget};
use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

/// A temporary rejection waits for between half and all of its backoff, is not claimed until then, and is sent under the same id.
pub async fn a_temporary_rejection_is_retried_under_the_same_id<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.fail_with(|| PublishError::retry("busy"));
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    let route = || {
        let retry = RetryStrategy::exponential(minutes(10), 2.0).with_jitter(Jitter::Equal);
        to_billing().retry(retry)
    };
    let before = SystemTime::now();
    assert_eq!(relay_all(&fixture, &transport, route()).await.retried, 1);
    let entry = entry_in(&fixture, "orders", id, State::Scheduled).await;
    assert_eq!((entry.attempts, entry.error.as_deref()), (1, Some("PublishRefused")));
    let wait = entry.at.duration_since(before).unwrap();
    // A minute of tolerance for clocks and for this test.
    assert!(wait >= minutes(5) - minutes(1) && wait <= minutes(10) + minutes(1), "{wait:?}");

    transport.accept_all();
    assert_eq!(relay_all(&fixture, &transport, route()).await.claimed, 0, "not before it is due");
    fixture.advance(minutes(10)).await;
    assert_eq!(relay_all(&fixture, &transport, route()).await.delivered, 1);
    assert_eq!(ids_sent(&transport.calls().concat()), [id, id]);
}

/// With its attempts exhausted, the message is a complete dead letter.
pub async fn exhausted_retries_are_dead_lettered<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.fail_with(|| PublishError::retry("busy"));
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    for _ in 0..3 {
        relay_all(&fixture, &transport, to_billing().retry(three_times())).await;
        fixture.advance(minutes(5)).await;
    }
    let entry = entry_in(&fixture, "orders", id, State::Dead).await;
    assert_eq!((entry.reason, entry.attempts), (Some(Reason::RetriesExhausted), 3));
    assert_eq!(entry.message.payload(), r#"{"number":1}"#);
}

/// A retry delay from the destination is honoured.
pub async fn the_destination_can_set_the_retry_delay<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.fail_with(|| PublishError::retry_after(minutes(60), "busy"));
    stage_orders(&fixture, 1).await;
    relay_all(&fixture, &transport, to_billing().retry(three_times())).await;
    transport.accept_all();
    fixture.advance(minutes(30)).await;
    assert_eq!(relay_all(&fixture, &transport, to_billing()).await.claimed, 0);
    fixture.advance(minutes(30)).await;
    assert_eq!(relay_all(&fixture, &transport, to_billing()).await.delivered, 1);
}

/// A permanent rejection is a dead letter after one attempt.
pub async fn a_permanent_rejection_is_dead_lettered_at_once<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.fail_with(|| PublishError::reject("forbidden"));
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    assert_eq!(relay_all(&fixture, &transport, to_billing()).await.dead, 1);
    let entry = entry_in(&fixture, "orders", id, State::Dead).await;
    assert_eq!((entry.reason, entry.error.as_deref()), (Some(Reason::Rejected), Some("PublishRejected")));
}

/// One poison message of a thousand: the others are delivered in the same run, without an extra attempt.
pub async fn a_poison_message_in_a_batch_delays_no_other<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.set_script(|outgoing| match number_of(outgoing) {
        500 => Step::Fail(PublishError::reject("poison")),
        _ => Step::Accept,
    });
    let staged = stage_orders(&fixture, 1_000).await;
    let report = relay_all(&fixture, &transport, to_billing()).await;
    assert_eq!((report.delivered, report.dead, report.retried), (999, 1, 0));
    let dead = list(&fixture, "orders", StateFilter::Dead).await;
    assert_eq!(ids_of(&dead), [staged[500]]);
    let sent: Vec<_> = ids_sent(&transport.calls().concat());
    assert_eq!(sent.iter().collect::<BTreeSet<_>>().len(), sent.len(), "no message was sent twice");
}

/// A message without a value for a placeholder of its address cannot be sent, now or later.
pub async fn a_message_without_an_address_is_dead_lettered<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    let id = stage_one(&fixture, Message::builder("orders").payload("x")).await;
    let route = Route::new("orders").to("billing", "to.{tenant}");
    assert_eq!(relay_all(&fixture, &transport, route).await.dead, 1);
    let entry = entry_in(&fixture, "orders", id, State::Dead).await;
    assert_eq!((entry.reason, entry.error.as_deref()), (Some(Reason::Rejected), Some("NoAddress")));
    assert!(transport.calls().is_empty());
}

/// A message above the size limit of the destination is dead-lettered without being sent.
pub async fn an_oversized_message_is_not_sent<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::new(Capacity::of(10).with_message_bytes(1_000));
    let id = stage_one(&fixture, Message::builder("orders").payload("x".repeat(1_000))).await;
    stage_one(&fixture, Message::builder("orders").payload("x")).await;
    let report = relay_all(&fixture, &transport, to_billing()).await;
    assert_eq!((report.dead, report.delivered), (1, 1));
    let entry = entry_in(&fixture, "orders", id, State::Dead).await;
    assert_eq!(entry.error.as_deref(), Some("TooLarge"));
    assert_eq!(transport.calls().concat().len(), 1);
}

/// Without a publish result the message may have arrived: it is not done, and is sent again under the same id.
pub async fn an_unconfirmed_message_is_retried_under_the_same_id<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.set_script(|_| Step::AcceptSilently);
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    let impatient = || Destination::new("billing", transport.clone()).timeout(Duration::from_millis(20));
    let route = || to_billing().retry(three_times());
    let relay = builder(&fixture).destination(impatient()).route(route()).build().unwrap();
    assert_eq!(relay.run_until_idle().await.unwrap().retried, 1);
    assert_eq!(
        entry_in(&fixture, "orders", id, State::Scheduled).await.error.as_deref(),
        Some("PublishUnknown")
    );
    transport.accept_all();
    fixture.advance(minutes(5)).await;
    assert_eq!(relay.run_until_idle().await.unwrap().delivered, 1);
    assert_eq!(published(&transport), [id, id], "the first had arrived: a duplicate, under its id");
}

/// If a transport returns too few results, or panics, every message of the batch is sent again.
pub async fn a_transport_with_wrong_result_count_or_panic_loses_nothing<F: Fixture>(fixture: F) {
    for broken in [|| Step::Skip, || Step::Panic] {
        let transport = ScriptedTransport::default();
        transport.set_script(move |outgoing| if number_of(outgoing) == 1 { broken() } else { Step::Accept });
        let staged = stage_orders(&fixture, 3).await;
        let route = || to_billing().retry(three_times());
        let report = relay_all(&fixture, &transport, route()).await;
        assert_eq!(report.delivered + report.retried, 3, "{report:?}");
        assert!(report.retried >= 1);
        transport.accept_all();
        fixture.advance(minutes(5)).await;
        relay_all(&fixture, &transport, route()).await;
        let arrived: BTreeSet<_> = published(&transport).into_iter().collect();
        assert_eq!(arrived, staged.into_iter().collect());
        assert_empty(&fixture, "orders").await;
    }
}

/// A filter or transformation that panics fails its own message only.
pub async fn a_panicking_route_function_affects_only_its_message<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    stage_orders(&fixture, 3).await;
    let to = RouteTarget::new("billing", "orders").filter(|message| {
        assert!(message.payload() != r#"{"number":1}"#, "as the test says");
        true
    });
    let route = Route::new("orders").to_with(to).retry(three_times());
    let report = relay_all(&fixture, &transport, route).await;
    assert_eq!((report.delivered, report.retried), (2, 1));
}
