//! Queues ordered by key.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{OnFailure, Outgoing, PublishError, QueuePolicy};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

fn by_key(sent: &[Outgoing]) -> BTreeMap<String, Vec<u64>> {
    let mut keys: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for outgoing in sent {
        keys.entry(outgoing.key.as_ref().unwrap().to_string()).or_default().push(number_of(outgoing));
    }
    keys
}

async fn staged<F: Fixture>(fixture: &F, keys: &[&str], count: u64) {
    declare(fixture, "orders", QueuePolicy::by_key(OnFailure::Block)).await;
    for key in keys {
        stage(fixture, &orders_of(key, count)).await;
    }
}

/// The next message of a key is sent when the previous one was accepted.
pub async fn messages_of_a_key_are_sent_one_after_the_other<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    staged(&fixture, &["a", "b", "c"], 20).await;
    relay_all(&fixture, &transport, to_billing()).await;
    for (key, numbers) in by_key(&transport.accepted()) {
        assert_eq!(numbers, (0..20).collect::<Vec<_>>(), "{key}");
    }
    for call in transport.calls() {
        assert!(by_key(&call).values().all(|numbers| numbers.len() == 1), "one of each key at a time");
    }
    assert_empty(&fixture, "orders").await;
}

/// A message in the middle fails: its key is blocked there, and continues from there when the retry is due; other keys do not wait.
pub async fn a_failed_message_blocks_its_key_and_no_other<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    staged(&fixture, &["a", "b"], 10).await;
    let is_bad =
        |outgoing: &Outgoing| outgoing.key.as_ref().unwrap().as_str() == "a" && number_of(outgoing) == 4;
    transport.set_script(move |outgoing| match is_bad(outgoing) {
        true => Step::Fail(PublishError::retry("busy")),
        false => Step::Accept,
    });
    let route = || to_billing().retry(three_times());
    relay_all(&fixture, &transport, route()).await;
    let sent = by_key(&transport.accepted());
    assert_eq!(sent["a"], [0, 1, 2, 3]);
    assert_eq!(sent["b"], (0..10).collect::<Vec<_>>());
    transport.accept_all();
    fixture.advance(minutes(5)).await;
    relay_all(&fixture, &transport, route()).await;
    assert_eq!(by_key(&transport.accepted())["a"], (0..10).collect::<Vec<_>>());
}

/// The destination fails and recovers in turns: nothing is overtaken, nothing is lost.
pub async fn an_outage_keeps_the_order<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    staged(&fixture, &["a", "b", "c", "d"], 25).await;
    let sent = Arc::new(Mutex::new(0));
    transport.set_script(move |_| {
        let mut sent = sent.lock().unwrap();
        *sent += 1;
        match *sent % 7 {
            0 => Step::Fail(PublishError::unavailable("connection refused")),
            _ => Step::Accept,
        }
    });
    let running = relay(&fixture, &transport, to_billing()).start();
    eventually(async || transport.accepted().len() >= 100).await;
    running.stop(std::time::Duration::from_secs(30)).await;
    for (key, numbers) in by_key(&transport.accepted()) {
        assert_eq!(numbers, (0..25).collect::<Vec<_>>(), "{key}");
    }
    assert_empty(&fixture, "orders").await;
}
