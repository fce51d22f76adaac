//! Stopping.

use super::helpers::*;
use crate::Fixture;
use std::time::Duration;

/// What is under way is answered for before the relay ends.
pub async fn a_stop_waits_for_answers<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.hold();
    let staged = stage_orders(&fixture, 20).await;
    let running = relay(&fixture, &transport, to_billing()).start();
    eventually(async || !transport.calls().is_empty()).await;
    let stopping = tokio::spawn(running.shutdown(Duration::from_secs(30)));
    transport.let_in(1_000);
    let stopped = stopping.await.unwrap();
    assert!(stopped.is_clean);
    assert_eq!(stopped.tally.delivered as usize, transport.accepted().len(), "what was accepted is settled");
    let left = staged.len() - transport.accepted().len();
    assert_eq!(claim_all(&fixture.store(), "orders").await.len(), left, "the rest was handed back");
}

/// At the deadline, what has no answer yet is given up: nothing is settled that nobody answered for, and nothing is counted.
pub async fn a_stop_at_its_deadline_settles_nothing_unanswered<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    transport.does(|_| Step::Hang);
    let staged = stage_orders(&fixture, 20).await;
    let running = relay(&fixture, &transport, to_billing()).start();
    eventually(async || !transport.calls().is_empty()).await;
    let stopped = running.shutdown(Duration::from_millis(500)).await;
    assert_eq!(stopped.tally.delivered, 0);
    // It is handed back where there is time to; otherwise its lease lapses.
    lapse(&fixture).await;
    let claimed = claim_all(&fixture.store(), "orders").await;
    assert_eq!(sorted(ids(&claimed)), sorted(staged));
    assert!(claimed.iter().all(|claimed| claimed.attempts == 0));
}

/// Stop, then start.
pub async fn a_stopped_relay_can_be_started_again<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    let relay = relay(&fixture, &transport, to_billing());
    for round in 1..=2 {
        stage_orders(&fixture, 10).await;
        let running = relay.start();
        eventually(async || transport.accepted().len() == 10 * round).await;
        assert!(running.shutdown(Duration::from_secs(30)).await.is_clean);
    }
    assert_empty(&fixture, "orders").await;
}
