//! Unreachable servers, cancelled calls, crashes.

use super::{TransportFixture, helpers::*};
use postrider_core::{Outgoing, PublishError};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// No server listens: the result is "unavailable", in bounded time.
pub async fn an_unreachable_server_is_unavailable<F: TransportFixture>(fixture: F) {
    let transport = within_patience("connecting", fixture.nobody_there()).await;
    for result in publish(&*transport, &orders(3.min(transport.capacity().batch), "orders")).await {
        assert!(matches!(result, Err(PublishError::Unavailable { .. })), "{result:?}");
    }
}

/// A call that is cancelled at any await does not affect the results of the next one.
pub async fn a_cancelled_publish_does_not_affect_later_results<F: TransportFixture>(fixture: F) {
    let (transport, destination) = (fixture.transport().await, fixture.destination().await);
    let knows = fixture.features().knows_destinations;
    let lost = if knows { fixture.missing_destination() } else { destination.clone() };
    let size = transport.capacity().batch.min(10);
    for polls in 1..12 {
        // The cancelled call must not count for the next one: one fails, the other does not.
        drop_after(transport.publish(&orders(size, &lost)), polls).await;
        let batch = orders(size, &destination);
        publish_all(&*transport, &batch).await;
        if knows {
            drop_after(transport.publish(&orders(size, &destination)), polls).await;
            for result in publish(&*transport, &orders(size, &lost)).await {
                assert!(result.is_err(), "after a call that was dropped after {polls} polls");
            }
        }
    }
}

/// Concurrent calls do not mix up their results.
pub async fn concurrent_publishes_have_their_own_results<F: TransportFixture>(fixture: F) {
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
        let (results, is_bad) = call.await.unwrap();
        assert!(results.iter().all(|result| result.is_err() == is_bad), "{results:?}");
        accepted += results.iter().filter(|result| result.is_ok()).count();
    }
    assert_eq!(received(&fixture, &destination, accepted).await.len(), accepted);
}

/// Accepted messages are there when the server is back, and the transport reconnects by itself.
pub async fn accepted_messages_survive_a_crash<F: TransportFixture>(fixture: F) {
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

/// The server crashes while batches are in flight: accepted messages are there, and the rest can be sent again.
pub async fn a_crash_during_publish_loses_no_accepted_message<F: TransportFixture>(fixture: F) {
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
            // Until the crash caused a failure, or is over if the client resends by itself.
            while failed == 0 && !is_last {
                is_last = is_over.load(Ordering::SeqCst);
                let batch = orders(transport.capacity().batch.min(50), &destination);
                let results = publish(&*transport, &batch).await;
                for (result, outgoing) in results.into_iter().zip(batch) {
                    match result {
                        Ok(_) => accepted.push(outgoing),
                        Err(PublishError::Reject { source }) => panic!("rejected permanently: {source}"),
                        Err(_) => failed += 1,
                    }
                }
                begun.try_send(()).ok();
            }
            accepted
        })
    };
    within_patience("publishing", has_begun.recv()).await;
    fixture.kill_and_restart().await;
    is_over.store(true, Ordering::SeqCst);
    let accepted = within_patience("feeling the crash", sender).await.unwrap();
    let last = orders(1, &destination);
    publish_until_accepted(&*transport, &last[0]).await;
    let arrived: BTreeSet<_> =
        identities(&received(&fixture, &destination, accepted.len() + 1).await).into_iter().collect();
    for outgoing in accepted.iter().chain(&last) {
        assert!(arrived.contains(&outgoing.id.to_string()), "{} was accepted and is gone", outgoing.id);
    }
}
