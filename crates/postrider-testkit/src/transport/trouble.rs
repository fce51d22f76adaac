//! Servers that are not there, calls that are dropped, crashes.

use super::{TransportFixture, helpers::*};
use postrider_core::{Outgoing, PublishError};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Nobody listens: the answer is that nothing gets through, and it comes within a bound.
pub async fn nobody_there_is_down<F: TransportFixture>(fixture: F) {
    let transport = patiently("connecting", fixture.nobody_there()).await;
    for answer in publish(&*transport, &orders(3.min(transport.capacity().batch), "orders")).await {
        assert!(matches!(answer, Err(PublishError::Down { .. })), "{answer:?}");
    }
}

/// A call that is dropped at any await leaves nothing behind that confuses the next one's answers.
pub async fn a_dropped_call_confuses_nobody<F: TransportFixture>(fixture: F) {
    let (transport, destination) = (fixture.transport().await, fixture.destination().await);
    let knows = fixture.features().knows_destinations;
    let lost = if knows { fixture.missing_destination() } else { destination.clone() };
    let size = transport.capacity().batch.min(10);
    for polls in 1..12 {
        // What the dropped call did must not count for the next one: the one fails, the other does not.
        drop_after(transport.publish(&orders(size, &lost)), polls).await;
        let batch = orders(size, &destination);
        publish_all(&*transport, &batch).await;
        if knows {
            drop_after(transport.publish(&orders(size, &destination)), polls).await;
            for answer in publish(&*transport, &orders(size, &lost)).await {
                assert!(answer.is_err(), "after a call that was dropped after {polls} polls");
            }
        }
    }
}

/// Calls that overlap do not take each other's answers.
pub async fn calls_at_one_moment_have_their_own_answers<F: TransportFixture>(fixture: F) {
    let (transport, destination) = (fixture.transport().await, fixture.destination().await);
    let knows = fixture.features().knows_destinations;
    let missing = fixture.missing_destination();
    let size = transport.capacity().batch.min(20);
    let mut calls = Vec::new();
    for number in 0..16 {
        let transport = Arc::clone(&transport);
        let is_bad = knows && number % 2 == 1;
        let batch = orders(size, if is_bad { &missing } else { &destination });
        calls.push(tokio::spawn(async move { (publish(&*transport, &batch).await, is_bad) }));
    }
    let mut accepted = 0;
    for call in calls {
        let (answers, is_bad) = call.await.unwrap();
        assert!(answers.iter().all(|answer| answer.is_err() == is_bad), "{answers:?}");
        accepted += answers.iter().filter(|answer| answer.is_ok()).count();
    }
    assert_eq!(received(&fixture, &destination, accepted).await.len(), accepted);
}

/// What was accepted is there when the server comes back, and the transport finds its way by itself.
pub async fn what_was_accepted_survives_a_crash<F: TransportFixture>(fixture: F) {
    if !fixture.features().survives_restarts {
        return;
    }
    let (transport, destination) = (fixture.transport().await, fixture.destination().await);
    let before = orders(transport.capacity().batch.min(100), &destination);
    publish_all(&*transport, &before).await;
    fixture.kill_and_restart().await;
    let after = orders(1, &destination);
    publish_until_accepted(&*transport, &after[0]).await;
    let arrived: BTreeSet<_> =
        identities(&received(&fixture, &destination, before.len() + 1).await).into_iter().collect();
    for outgoing in before.iter().chain(&after) {
        assert!(arrived.contains(&outgoing.id.to_string()), "{} was accepted and is gone", outgoing.id);
    }
}

/// The server dies while batches are under way: what was answered with success is there, and the rest may be sent again.
pub async fn a_crash_in_the_middle_loses_nothing_that_was_accepted<F: TransportFixture>(fixture: F) {
    if !fixture.features().survives_restarts {
        return;
    }
    let (transport, destination) = (fixture.transport().await, fixture.destination().await);
    let (begun, mut has_begun) = tokio::sync::mpsc::channel::<()>(1);
    let is_over = Arc::new(AtomicBool::new(false));
    let sender = {
        let (transport, destination) = (Arc::clone(&transport), destination.clone());
        let is_over = Arc::clone(&is_over);
        tokio::spawn(async move {
            let (mut accepted, mut failed): (Vec<Outgoing>, usize) = (Vec::new(), 0);
            let mut is_last = false;
            // Until the crash has been felt, or is over where a client sends again by itself.
            while failed == 0 && !is_last {
                is_last = is_over.load(Ordering::SeqCst);
                let batch = orders(transport.capacity().batch.min(50), &destination);
                let answers = publish(&*transport, &batch).await;
                for (answer, outgoing) in answers.into_iter().zip(batch) {
                    match answer {
                        Ok(_) => accepted.push(outgoing),
                        Err(PublishError::Reject { source }) => panic!("refused for good: {source}"),
                        Err(_) => failed += 1,
                    }
                }
                begun.try_send(()).ok();
            }
            accepted
        })
    };
    patiently("publishing", has_begun.recv()).await;
    fixture.kill_and_restart().await;
    is_over.store(true, Ordering::SeqCst);
    let accepted = patiently("feeling the crash", sender).await.unwrap();
    let last = orders(1, &destination);
    publish_until_accepted(&*transport, &last[0]).await;
    let arrived: BTreeSet<_> =
        identities(&received(&fixture, &destination, accepted.len() + 1).await).into_iter().collect();
    for outgoing in accepted.iter().chain(&last) {
        assert!(arrived.contains(&outgoing.id.to_string()), "{} was accepted and is gone", outgoing.id);
    }
}
