//! Graceful shutdown of a relay.

use super::helpers::*;
use crate::Fixture;
use std::time::Duration;

/// Publishes in flight have their results before the relay ends.
pub async fn a_stop_waits_for_publish_results<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.hold();
    let staged = stage_orders(&fixture, 20).await;
    let running = relay(&fixture, &transport, to_billing()).start();
    eventually(async || !transport.calls().is_empty()).await;
    let stopping = tokio::spawn(running.stop(Duration::from_secs(30)));
    transport.let_through(1_000);
    let stopped = stopping.await.unwrap();
    assert!(stopped.clean);
    assert_eq!(stopped.report.delivered as usize, transport.accepted().len(), "what was accepted is settled");
    let left = staged.len() - transport.accepted().len();
    assert_eq!(claim_all(&fixture.store(), "orders").await.len(), left, "the rest was released");
}

/// At the deadline, publishes without a result are abandoned: their messages are not settled and count no attempt.
pub async fn a_stop_at_its_deadline_leaves_unconfirmed_messages_unsettled<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.set_script(|_| Step::Hang);
    let staged = stage_orders(&fixture, 20).await;
    let running = relay(&fixture, &transport, to_billing()).start();
    eventually(async || !transport.calls().is_empty()).await;
    let stopped = running.stop(Duration::from_millis(500)).await;
    assert_eq!(stopped.report.delivered, 0);
    // The message is released if there is time; otherwise its lease expires.
    expire_leases(&fixture).await;
    let claimed = claim_all(&fixture.store(), "orders").await;
    assert_eq!(sorted(ids(&claimed)), sorted(staged));
    assert!(claimed.iter().all(|claimed| claimed.attempts == 0));
}

/// Stop, then start: the same relay continues.
pub async fn a_stopped_relay_can_be_started_again<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    let relay = relay(&fixture, &transport, to_billing());
    for round in 1..=2 {
        stage_orders(&fixture, 10).await;
        let running = relay.start();
        eventually(async || transport.accepted().len() == 10 * round).await;
        assert!(running.stop(Duration::from_secs(30)).await.clean);
    }
    assert_empty(&fixture, "orders").await;
}
