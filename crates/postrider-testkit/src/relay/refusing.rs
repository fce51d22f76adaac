//! Answers that are not "accepted".

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    Capacity, Message, PublishError, Reason, RetryStrategy, State, inspect::Room, retry::Jitter,
};
use postrider_engine::relay::{Destination, Route, To};
use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

/// Refused for now: it waits for half to the whole of its pause, is invisible until then, and goes out under the same id.
pub async fn a_refusal_is_sent_again_under_its_id_when_it_is_due<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.fails(|| PublishError::retry("busy"));
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    let route = || {
        let retry = RetryStrategy::exponential(minutes(10), 2.0).with_jitter(Jitter::Equal);
        to_billing().retry(retry)
    };
    let before = SystemTime::now();
    assert_eq!(relay_all(&fixture, &transport, route()).await.retried, 1);
    let entry = entry_in(&fixture, "orders", id, State::Waiting).await;
    assert_eq!((entry.attempts, entry.error.as_deref()), (1, Some("PublishRefused")));
    let wait = entry.at.duration_since(before).unwrap();
    // A minute for clocks and for this test.
    assert!(wait >= minutes(5) - minutes(1) && wait <= minutes(10) + minutes(1), "{wait:?}");

    transport.accepts();
    assert_eq!(relay_all(&fixture, &transport, route()).await.claimed, 0, "not before it is due");
    fixture.advance(minutes(10)).await;
    assert_eq!(relay_all(&fixture, &transport, route()).await.delivered, 1);
    assert_eq!(ids_sent(&transport.calls().concat()), [id, id]);
}

/// Its attempts used up, it is a dead letter, whole.
pub async fn refusals_end_as_a_dead_letter<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.fails(|| PublishError::retry("busy"));
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    for _ in 0..3 {
        relay_all(&fixture, &transport, to_billing().retry(three_times())).await;
        fixture.advance(minutes(5)).await;
    }
    let entry = entry_in(&fixture, "orders", id, State::Dead).await;
    assert_eq!((entry.reason, entry.attempts), (Some(Reason::RetriesExhausted), 3));
    assert_eq!(entry.message.payload(), r#"{"number":1}"#);
}

/// A word on when to come again is heeded.
pub async fn the_other_side_may_say_when<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.fails(|| PublishError::retry_after(minutes(60), "busy"));
    stage_orders(&fixture, 1).await;
    relay_all(&fixture, &transport, to_billing().retry(three_times())).await;
    transport.accepts();
    fixture.advance(minutes(30)).await;
    assert_eq!(relay_all(&fixture, &transport, to_billing()).await.claimed, 0);
    fixture.advance(minutes(30)).await;
    assert_eq!(relay_all(&fixture, &transport, to_billing()).await.delivered, 1);
}

/// Refused for good: a dead letter after one attempt.
pub async fn what_is_refused_for_good_is_a_dead_letter_at_once<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.fails(|| PublishError::reject("forbidden"));
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    assert_eq!(relay_all(&fixture, &transport, to_billing()).await.dead, 1);
    let entry = entry_in(&fixture, "orders", id, State::Dead).await;
    assert_eq!((entry.reason, entry.error.as_deref()), (Some(Reason::Rejected), Some("PublishRejected")));
}

/// One of a thousand is poison: the others are delivered in the same run, with no attempt lost.
pub async fn poison_in_the_middle_of_a_batch_delays_nobody<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.does(|outgoing| match number_of(outgoing) {
        500 => Step::Fail(PublishError::reject("poison")),
        _ => Step::Accept,
    });
    let staged = stage_orders(&fixture, 1_000).await;
    let report = relay_all(&fixture, &transport, to_billing()).await;
    assert_eq!((report.delivered, report.dead, report.retried), (999, 1, 0));
    let dead = list(&fixture, "orders", Room::Dead).await;
    assert_eq!(ids_of(&dead), [staged[500]]);
    let sent: Vec<_> = ids_sent(&transport.calls().concat());
    assert_eq!(sent.iter().collect::<BTreeSet<_>>().len(), sent.len(), "nobody was sent twice");
}

/// A message that lacks what its address asks for cannot be sent, now or later.
pub async fn what_has_no_address_is_a_dead_letter<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    let id = stage_one(&fixture, Message::builder("orders").payload("x")).await;
    let route = Route::new("orders").to("billing", "to.{tenant}");
    assert_eq!(relay_all(&fixture, &transport, route).await.dead, 1);
    let entry = entry_in(&fixture, "orders", id, State::Dead).await;
    assert_eq!((entry.reason, entry.error.as_deref()), (Some(Reason::Rejected), Some("NoAddress")));
    assert!(transport.calls().is_empty());
}

/// What the destination cannot take is a dead letter before it is sent.
pub async fn what_is_too_large_is_not_sent<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::new(Capacity::of(10).with_message_bytes(1_000));
    let id = stage_one(&fixture, Message::builder("orders").payload("x".repeat(1_000))).await;
    stage_one(&fixture, Message::builder("orders").payload("x")).await;
    let report = relay_all(&fixture, &transport, to_billing()).await;
    assert_eq!((report.dead, report.delivered), (1, 1));
    let entry = entry_in(&fixture, "orders", id, State::Dead).await;
    assert_eq!(entry.error.as_deref(), Some("TooLarge"));
    assert_eq!(transport.calls().concat().len(), 1);
}

/// No answer: it may have arrived, so it is not done, and the same id goes out again.
pub async fn silence_is_sent_again_under_its_id<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.does(|_| Step::AcceptSilently);
    let id = stage_one(&fixture, &Order { number: 1 }).await;
    let impatient = || Destination::new("billing", transport.clone()).timeout(Duration::from_millis(20));
    let route = || to_billing().retry(three_times());
    let relay = builder(&fixture).destination(impatient()).route(route()).build().unwrap();
    assert_eq!(relay.run_once().await.unwrap().retried, 1);
    assert_eq!(
        entry_in(&fixture, "orders", id, State::Waiting).await.error.as_deref(),
        Some("PublishUnknown")
    );
    transport.accepts();
    fixture.advance(minutes(5)).await;
    assert_eq!(relay.run_once().await.unwrap().delivered, 1);
    assert_eq!(published(&transport), [id, id], "the first had arrived: a duplicate, under its id");
}

/// A transport that answers for too few, or panics, has every message of the batch sent again.
pub async fn a_transport_that_miscounts_or_panics_loses_nothing<F: Fixture>(fixture: F) {
    for broken in [|| Step::Skip, || Step::Panic] {
        let transport = ScriptedTransport::default();
        transport.does(move |outgoing| if number_of(outgoing) == 1 { broken() } else { Step::Accept });
        let staged = stage_orders(&fixture, 3).await;
        let route = || to_billing().retry(three_times());
        let report = relay_all(&fixture, &transport, route()).await;
        assert_eq!(report.delivered + report.retried, 3, "{report:?}");
        assert!(report.retried >= 1);
        transport.accepts();
        fixture.advance(minutes(5)).await;
        relay_all(&fixture, &transport, route()).await;
        let arrived: BTreeSet<_> = published(&transport).into_iter().collect();
        assert_eq!(arrived, staged.into_iter().collect());
        assert_empty(&fixture, "orders").await;
    }
}

/// A filter or a change that panics fails its own message.
pub async fn a_function_that_panics_harms_only_its_message<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    stage_orders(&fixture, 3).await;
    let to = To::new("billing", "orders").only(|message| {
        assert!(message.payload() != r#"{"number":1}"#, "as the test says");
        true
    });
    let route = Route::new("orders").to_with(to).retry(three_times());
    let report = relay_all(&fixture, &transport, route).await;
    assert_eq!((report.delivered, report.retried), (2, 1));
}
