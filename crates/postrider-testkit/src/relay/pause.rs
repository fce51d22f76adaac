//! Destinations that an operator has paused.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{Pausable, State};
use postrider_engine::relay::{Destination, Relay, Route};
use std::{sync::atomic::Ordering::SeqCst, time::Duration};

fn paused_billing() -> Pausable {
    Pausable::Destination("billing".parse().unwrap())
}

async fn pause<F: Fixture>(fixture: &F) {
    assert!(fixture.operate().pause(&paused_billing(), &operator()).await.unwrap());
}

async fn resume<F: Fixture>(fixture: &F) {
    assert!(fixture.operate().resume(&paused_billing(), &operator()).await.unwrap());
}

/// A relay that starts while its destination is paused claims nothing for it, and sends after the resume.
pub async fn a_paused_destination_claims_nothing<F: Fixture>(fixture: F) {
    let (transport, mail) = (ScriptedTransport::default(), ScriptedTransport::default());
    pause(&fixture).await;
    let staged = stage_orders(&fixture, 50).await;
    stage(&fixture, &numbered("letters", 50)).await;
    let (store, probe) = instrumented_store(&fixture);
    let relay = Relay::builder_on(store, "/shop")
        .destination(billing(&transport))
        .destination(Destination::new("mail", mail.clone()))
        .route(to_billing())
        .route(Route::new("letters").to("mail", "letters"))
        .build()
        .unwrap();
    let running = relay.start();
    eventually(async || mail.accepted().len() == 50).await;
    assert_eq!(probe.claimed.load(SeqCst), 50, "the letters and nothing else");
    assert!(transport.calls().is_empty());
    for id in &staged {
        let entry = entry_in(&fixture, "orders", *id, State::Pending).await;
        assert_eq!((entry.attempts, entry.deliveries), (0, 0));
    }
    resume(&fixture).await;
    eventually(async || transport.accepted().len() == 50).await;
    running.stop(Duration::from_secs(30)).await;
    assert_eq!(sorted(published(&transport)), sorted(staged), "each once");
    assert_empty(&fixture, "orders").await;
}

/// A destination that is paused under load gets no more messages; nothing is lost, and no attempt is counted.
pub async fn a_destination_can_be_paused_under_load<F: Fixture>(fixture: F) {
    let transport = ScriptedTransport::default();
    let running = relay(&fixture, &transport, to_billing().retry(three_times())).start();
    let mut staged = stage_orders(&fixture, 50).await;
    eventually(async || transport.accepted().len() == 50).await;
    pause(&fixture).await;
    // Within about a second messages stay in the queue.
    loop {
        let id = stage_one(&fixture, message("orders")).await;
        staged.push(id);
        let mut looks = 0;
        eventually(async || {
            looks += 1;
            looks > 20 || published(&transport).contains(&id)
        })
        .await;
        // A message in flight at the last check has been sent, or is still leased.
        if let Some(entry) = get(&fixture, "orders", id).await
            && entry.state == State::Pending
        {
            assert_eq!(entry.attempts, 0);
            break;
        }
    }
    resume(&fixture).await;
    eventually(async || transport.accepted().len() == staged.len()).await;
    let stopped = running.stop(Duration::from_secs(30)).await;
    assert_eq!((stopped.report.retried, stopped.report.dead), (0, 0));
    assert_eq!(sorted(published(&transport)), sorted(staged));
}

/// Of several destinations, only the copies for the paused one wait.
pub async fn only_the_paused_of_several_destinations_waits<F: Fixture>(fixture: F) {
    let (transport, mail) = (ScriptedTransport::default(), ScriptedTransport::default());
    pause(&fixture).await;
    let staged = stage_orders(&fixture, 20).await;
    let relay = builder(&fixture)
        .destination(billing(&transport))
        .destination(Destination::new("mail", mail.clone()))
        .route(Route::new("orders").to("billing", "orders").to("mail", "orders"))
        .build()
        .unwrap();
    relay.run_until_idle().await.unwrap();
    assert_eq!(sorted(published(&mail)), sorted(staged.clone()));
    assert!(transport.calls().is_empty());
    assert_empty(&fixture, "orders").await;
    for id in &staged {
        entry_in(&fixture, "orders>billing", *id, State::Pending).await;
    }
    resume(&fixture).await;
    eventually(async || {
        relay.run_until_idle().await.unwrap();
        !transport.accepted().is_empty()
    })
    .await;
    assert_eq!(sorted(published(&transport)), sorted(staged));
    assert_eq!(mail.accepted().len(), 20, "not sent there again");
}
